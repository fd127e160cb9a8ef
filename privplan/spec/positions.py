"""Lines of a spec's file on which faults stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from privplan.errors import InputError
from privplan.yaml_text import compose_yaml


def with_lines(error: InputError, text: str, path: Path | str) -> InputError:
    """The error with the line of each fault, as ``spec.yaml:14``.

    Args:
        error: of the spec in the file.
        text: of the file, which is valid YAML.
        path: of the file.
    """
    root = compose_yaml(text)
    faults = []
    for fault in error.faults:
        line = _line(root, fault.field)
        place = "" if line is None else f"{path}:{line}"
        faults.append(replace(fault, place=place))
    return InputError(faults)


def _line(node: yaml.Node | None, field: str) -> int | None:
    """The line of a field with dots below a node, or of the nearest value around it.

    Returns:
        The line, from 1; None where not even the first part of the field stands.
    """
    for name, key, value in _parts(node):
        if field == name or field.startswith(f"{name}."):
            inner = _line(value, field.removeprefix(name).removeprefix("."))
            return inner or int(key.start_mark.line) + 1
    return None


def _parts(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Name, first node and value of each part of a node; items also by their name."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield str(key.value), key, value
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield str(index), item, item
            for name, _, value in _parts(item):
                if name == "name":
                    yield str(value.value), item, item
