"""Values of expressions in a script: constants, results of calls, or not determined.

Nothing is executed or imported. A name is a constant only where one plain assignment is
its only binding in the file. It is the result of a call where its plain assignments are
all that bind it, and one of them alone reaches the use. Else it is ``UNKNOWN``.
"""

from __future__ import annotations

import ast
import math
import operator
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from privplan.contrib.lint.syntax import BRANCHES, Binding, Call, Syntax, place

UNKNOWN = object()
"""The value of an expression that is not determined."""

# Nested expressions are followed so far; deeper ones are not determined.
_DEEPEST = 60
# Larger numbers count as infinite.
_INFINITE = 1e300


def _power(base: float, exponent: float) -> Any:
    """A power of floats, which overflows at once where whole numbers would grow."""
    return float(base) ** float(exponent)


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: _power,
    ast.USub: operator.neg,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "int": int,
    "math.ceil": math.ceil,
}


@dataclass(frozen=True)
class Result:
    """The result of a call, or one item of it."""

    call: Call
    index: int | None = None


def number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if plain and abs(value) < _INFINITE:
        return float(value)
    return None


def whole(value: Any) -> int | None:
    """A whole number; None for anything else."""
    size = number(value)
    if size is not None and size == int(size):
        return int(size)
    return None


def made_by(value: Any, *names: str) -> Call | None:
    """The call of one of these functions that a value is the result of; else None."""
    is_result = isinstance(value, Result) and value.call.name in names
    return value.call if is_result else None


class Script(Syntax):
    """The parsed script with the values of its expressions, each computed once."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values: dict[object, Any] = {}
        self._depth = 0

    def value(self, node: ast.AST | None) -> Any:
        """The value of an expression, ``UNKNOWN`` where it is not determined."""
        if node is None:
            return UNKNOWN
        return self.once(node, lambda: self._value(node))

    def once(self, key: object, compute: Callable[[], Any]) -> Any:
        """A value, computed once; what needs its own value is not determined."""
        if key not in self._values and self._depth < _DEEPEST:
            self._values[key] = UNKNOWN
            self._depth += 1
            with suppress(ArithmeticError, ValueError, TypeError, LookupError):
                self._values[key] = compute()
            self._depth -= 1
        return self._values.get(key, UNKNOWN)

    def callers(self, function: ast.AST) -> list[Call] | None:
        """All calls of a function; None where it may be called in other ways, too."""
        name = getattr(function, "name", "")
        scope = self.scope[function]
        alone = self.places[name] == 1 and not getattr(function, "decorator_list", 1)
        if not alone or isinstance(scope, ast.ClassDef):
            return None
        calls = [call for call in self.named(name) if call.path == name]
        if len(calls) == len(self.references[name]):
            return calls
        return None

    def _value(self, node: ast.AST) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._of_name(node)
            case ast.UnaryOp():
                return _OPERATORS[type(node.op)](self.value(node.operand))
            case ast.BinOp():
                operands = [self.value(node.left), self.value(node.right)]
                numeric = None not in map(number, operands)
                if numeric:
                    return _OPERATORS[type(node.op)](*operands)
                return UNKNOWN
            case ast.Tuple() | ast.List():
                return [self.value(item) for item in node.elts]
            case ast.Call():
                return self._called(self.call_of[node])
        return UNKNOWN

    def _called(self, call: Call) -> Any:
        function = _FUNCTIONS.get(call.path)
        if function is None:
            return Result(call)
        arguments = [self.value(argument) for argument in call.node.args]
        numeric = not call.node.keywords and None not in map(number, arguments)
        if numeric:
            return function(*arguments)
        return UNKNOWN

    def home(self, node: ast.Name) -> ast.AST | None:
        """The scope whose name a name is; None where the file does not bind it."""
        scope: ast.AST | None = self.scope[node]
        while scope is not None:
            seen = scope is self.scope[node] or not isinstance(scope, ast.ClassDef)
            if seen and (scope, node.id) in self.bindings:
                return scope
            scope = self.scope.get(scope)
        return None

    def _of_name(self, node: ast.Name) -> Any:
        scope = self.home(node)
        if scope is None or self.hidden or node.id in self.unread:
            return UNKNOWN
        bindings = self.bindings[scope, node.id]
        if scope is self.scope[node]:
            bindings = self._reaching(bindings, node)
        if len(bindings) == 1:
            value = self._bound(bindings[0], node.id)
        else:
            value = UNKNOWN
        # a list may be changed where it is; a constant has one binding
        constant = self.places[node.id] == 1 and not isinstance(value, list)
        if constant or isinstance(value, Result):
            return value
        return UNKNOWN

    def _reaching(self, bindings: list[Binding], use: ast.Name) -> list[Binding]:
        """The binding of its scope that a use sees; none where several may be."""
        start = place(self.statement[use])
        first = bisect_left(
            bindings, start, key=lambda binding: place(binding.statement)
        )
        for following in bindings[first : first + 1]:
            line = place(following.statement)[0]
            if any(line <= getattr(loop, "end_lineno", 0) for loop in self.loops(use)):
                return []
        last = bindings[max(first - 1, 0) : first]
        # a binding that some branch skips may be another one
        for binding in last:
            skipped = {*self.blocks(binding.statement)}.difference(self.blocks(use))
            if any(isinstance(block, BRANCHES) for block in skipped):
                return []
        return last

    def _bound(self, binding: Binding, name: str) -> Any:
        """The value that a binding gives its name."""
        if binding.parameter:
            parameter = (binding.statement, name)
            return self.once(parameter, lambda: self._parameter(*parameter))
        value = self.value(binding.value)
        if binding.index is None:
            return value
        if isinstance(value, list):
            return value[binding.index]
        whole_result = isinstance(value, Result) and value.index is None
        if whole_result:
            return Result(value.call, binding.index)
        return UNKNOWN

    def _parameter(self, function: ast.AST, name: str) -> Any:
        """The value of a parameter of a function that is called in one place."""
        parameters: Any = getattr(function, "args", None)
        if parameters.vararg or parameters.kwarg:
            return UNKNOWN
        ordered = [
            argument.arg for argument in (*parameters.posonlyargs, *parameters.args)
        ]
        calls = self.callers(function) or []
        values = [bound_arguments(call.node, ordered).get(name) for call in calls]
        if len(values) == 1:
            return self.value(values[0])
        return UNKNOWN


def bound_arguments(node: ast.Call, ordered: list[str]) -> dict[str, ast.expr]:
    """Arguments of a call by parameter; ``*`` and ``**`` under their signs."""
    bound: dict[str, ast.expr] = {}
    for position, argument in enumerate(node.args):
        if position < len(ordered):
            name = ordered[position]
        else:
            name = f"argument {position + 1}"
        # nobody knows the positions of what follows a star
        starred = "*" in bound or isinstance(argument, ast.Starred)
        bound["*" if starred else name] = argument
    for keyword in node.keywords:
        bound[keyword.arg or "**"] = keyword.value
    return bound
