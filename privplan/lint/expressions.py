"""Values of expressions in a script: constants, names, calls, and what is not determined."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


class _Unknown:
    """The value of an expression that is not determined."""

    def __repr__(self) -> str:
        return "not determined"

    def __bool__(self) -> bool:
        return False


UNKNOWN = _Unknown()

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "round": round,
    "min": min,
    "max": max,
    "abs": abs,
    "len": len,
    "sum": sum,
    "list": list,
    "tuple": tuple,
    "math.sqrt": math.sqrt,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.log": math.log,
    "numpy.sqrt": math.sqrt,
    "numpy.ceil": math.ceil,
    "numpy.log": math.log,
}


@dataclass(frozen=True)
class Name:
    """A name that the script does not define, with its full dotted path."""

    path: str

    @property
    def last(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, eq=False)
class Call:
    """A call in the script.

    Attributes:
        path: dotted name of the function, imports resolved.
        positional: values of positional arguments.
        named: values of keyword arguments.
        complete: whether no argument is hidden in an unknown ``*`` or ``**``.
        line: its line.
        node: the syntax tree.
        scope: the innermost function, class or module that holds it.
    """

    path: str
    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    complete: bool
    line: int
    node: ast.Call = field(repr=False)
    scope: Scope = field(repr=False)

    @property
    def name(self) -> str:
        """The last part of the function's path."""
        return self.path.rpartition(".")[2]

    def argument(self, name: str, position: int | None = None, default: Any = UNKNOWN) -> Any:
        """The value of an argument; the default where the call leaves it out."""
        if name in self.named:
            return self.named[name]
        if position is not None and position < len(self.positional):
            return self.positional[position]
        return default if self.complete else UNKNOWN

    def given(self, name: str, position: int | None = None) -> bool:
        """Whether the call gives the argument."""
        return name in self.named or (position is not None and position < len(self.positional))


def number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known and math.isfinite(value) else None


def whole(value: Any) -> int | None:
    """A whole number; None for anything else."""
    found = number(value)
    return int(found) if found is not None and found == int(found) else None
