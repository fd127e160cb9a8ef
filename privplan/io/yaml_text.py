"""The loader of YAML text, safe and strict."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable
from typing import Any

import yaml

from privplan.errors import InputError

MOST_NODES = 1_000_000
"""Largest number of values in a document after all aliases are expanded."""

MERGE = "tag:yaml.org,2002:merge"
MOST_DEPTH = 100
"""Largest depth of nested brackets; the time of parsing grows with its square."""


class _UniqueKeys(yaml.SafeLoader):
    """PyYAML's safe loader that rejects duplicate keys and exponentially growing aliases."""

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        if self.flow_level >= MOST_DEPTH:
            raise yaml.YAMLError(f"nested deeper than {MOST_DEPTH} brackets")
        super().fetch_flow_collection_start(token)

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and _size(node, {}) > MOST_NODES:
            raise yaml.YAMLError(f"more than {MOST_NODES} values when aliases are written out")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for node_of_key, _ in node.value:
            if node_of_key.tag == MERGE:
                continue
            key = self.construct_object(node_of_key, deep=True)
            if not isinstance(key, Hashable) or key in seen:
                raise yaml.YAMLError(f"the key {str(key)[:80]!r} stands twice or is no key")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_OCTAL = re.compile(r"[-+]?0[0-7_]*[1-7][0-7_]*")


def _decimal(kind: str) -> Any:
    """A constructor of numbers that refuses those that YAML 1.1 alone reads to another base.

    They are numbers to base 60, such as 1:30, and to base 8, such as 014.
    """
    usual = getattr(yaml.SafeLoader, f"construct_yaml_{kind}")

    def construct(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
        base = 60 if ":" in node.value else 8 if _OCTAL.fullmatch(node.value) else None
        if base is not None:
            rule = "write a decimal number" + ("" if base == 60 else " without zeros before it")
            raise yaml.YAMLError(f"{node.value} is a number to base {base}; {rule}")
        return usual(loader, node)

    return construct


for _kind in ("int", "float"):
    _UniqueKeys.add_constructor(f"tag:yaml.org,2002:{_kind}", _decimal(_kind))


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Values in a node after all aliases are expanded; above the limit for a recursive node."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = MOST_NODES + 1  # a node met again below itself is recursive
        parts = itertools.chain.from_iterable(
            part if isinstance(part, tuple) else (part,) for part in node.value
        )
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


def plain_data(text: str, what: str) -> Any:
    """Plain data from YAML text.

    Args:
        text: the document.
        what: the field that error messages name, for example ``spec``.

    Raises:
        InputError: when the text is not YAML, or would need too much memory.
    """
    try:
        return yaml.load(text, Loader=_UniqueKeys)
    except (
        yaml.YAMLError,
        ArithmeticError,
        LookupError,
        ValueError,
        TypeError,
        RecursionError,
    ) as error:
        line = " ".join(str(error).split())
        raise InputError.one(what, "must be YAML", line[:160]) from None
