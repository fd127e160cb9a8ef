"""YAML text: a loader that is safe and strict, and edits that keep comments."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from io import StringIO
from pathlib import Path
from typing import Any

import yaml

from privplan.errors import Fault, InputError
from privplan.limits import MOST_YAML

# Largest number of values in a document after all aliases are expanded.
MOST_NODES = 1_000_000
# Largest depth of nested brackets; the time of parsing grows with its square.
MOST_DEPTH = 100
# Most letters of a parser's error that are shown.
_MOST_SHOWN = 160
# The tag of the key ``<<``, which merges another mapping.
MERGE = "tag:yaml.org,2002:merge"

Convert = Callable[[Any], Any]
"""Plain data to values of a document that is edited."""


class _UniqueKeys(yaml.SafeLoader):
    """PyYAML's safe loader, which rejects duplicate keys and too many values.

    Aliases of aliases can make a short text exponentially large.
    """

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        if self.flow_level >= MOST_DEPTH:
            raise yaml.YAMLError(f"nested deeper than {MOST_DEPTH} brackets")
        super().fetch_flow_collection_start(token)

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and _size(node, {}) > MOST_NODES:
            raise yaml.YAMLError(
                f"more than {MOST_NODES} values when aliases are written out"
            )
        return node

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Any, Any]:
        seen = set()
        for node_of_key, _ in node.value:
            if node_of_key.tag == MERGE:
                continue
            key = self.construct_object(node_of_key, deep=True)
            if not isinstance(key, Hashable) or key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {str(key)[:80]!r} stands twice or is no key",
                    problem_mark=node_of_key.start_mark,
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_OCTAL = re.compile(r"[-+]?0[0-7_]*[1-7][0-7_]*")


def _decimal(kind: str) -> Any:
    """A constructor that refuses numbers to base 60 (1:30) and 8 (014) of YAML 1.1."""
    usual = getattr(yaml.SafeLoader, f"construct_yaml_{kind}")

    def construct(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
        fault = None
        if ":" in node.value:
            fault = "60; write a decimal number"
        elif _OCTAL.fullmatch(node.value):
            fault = "8; write a decimal number without zeros before it"
        if fault is not None:
            raise yaml.YAMLError(f"{node.value} is a number to base {fault}")
        return usual(loader, node)

    return construct


for _kind in ("int", "float"):
    _UniqueKeys.add_constructor(f"tag:yaml.org,2002:{_kind}", _decimal(_kind))


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Values in a node after all aliases are expanded.

    Args:
        node: where to begin.
        sizes: sizes by identity of the nodes that were met before.

    Returns:
        Their number; above the limit for a recursive node.
    """
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in sizes:
        # A node that is met again below itself is recursive.
        sizes[id(node)] = MOST_NODES + 1
        size = 1
        for entry in node.value:
            # Of a mapping the entries are pairs of key and value.
            nodes = entry if isinstance(entry, tuple) else (entry,)
            size += sum(_size(inner, sizes) for inner in nodes)
        sizes[id(node)] = size
    return sizes[id(node)]


# What PyYAML raises for text that is not YAML; some of it by oversight.
_YAML_FAULTS = (
    yaml.YAMLError,
    ArithmeticError,
    LookupError,
    ValueError,
    TypeError,
    RecursionError,
)


def load_yaml(text: str, what: str, path: Path | str | None = None) -> Any:
    """Plain data from YAML text.

    Args:
        text: the text.
        what: the field that an error names.
        path: of the file, for the line of an error.
    """
    if len(text) > MOST_YAML:
        raise InputError.one(
            what, f"must be YAML of at most {MOST_YAML} letters", len(text)
        )
    try:
        return yaml.load(text, Loader=_UniqueKeys)
    except _YAML_FAULTS as error:
        if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
            raise InputError.one(what, "must be YAML", _shown(error)) from None
        mark = error.problem_mark
        problem = _shown(error.problem)
        line = mark.line + 1
        place = f"line {line}" if path is None else f"{path}:{line}"
        raise InputError([Fault(what, "must be YAML", problem, place)]) from None


def compose_yaml(text: str) -> yaml.Node | None:
    """The nodes of YAML text that ``load_yaml`` has read, with their lines."""
    root: yaml.Node | None = yaml.compose(text, Loader=_UniqueKeys)
    return root


def edited(
    text: str, edit: Callable[[Any, Convert], None], expected: Any, what: str
) -> str:
    """YAML text with other values; comments, order and layout stay where they can.

    Args:
        text: the text.
        edit: changes the document's content; its second argument converts plain data.
        expected: plain data of the edited text.
        what: the field that an error names.

    Raises:
        InputError: for text that is not YAML, or that has other data when edited.
    """
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ImportError:
        rule = "needs the library ruamel.yaml: pip install 'privplan[simulate]'"
        raise InputError.one(what, rule, "no module named ruamel") from None
    document = YAML()
    document.preserve_quotes = True
    # Where long texts are folded, and how presets are indented.
    document.width = 100
    document.indent(mapping=2, sequence=4, offset=2)
    result = StringIO()
    try:
        content = document.load(text)
        edit(
            content, lambda value: document.load(yaml.safe_dump(value, sort_keys=False))
        )
        document.dump(content, result)
    except (YAMLError, AttributeError, *_YAML_FAULTS) as error:
        rule = "must be YAML that can be edited"
        raise InputError.one(what, rule, _shown(error)) from None
    if load_yaml(result.getvalue(), what) != expected:
        rule = (
            "must be YAML that can be edited; write it without anchors and merged keys"
        )
        raise InputError.one(what, rule, "other data when edited")
    return result.getvalue()


def _shown(error: object) -> str:
    """An error of a parser on a line of limited length."""
    return " ".join(str(error).split())[:_MOST_SHOWN]
