"""Values of expressions in a script: constants, names, calls, and what is not determined."""

from __future__ import annotations

import ast
import math
import operator
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from privplan.errors import InputError
from privplan.files import load_json, load_yaml, read_text

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
    """A call in the script."""

    path: str  # dotted name of the function, imports resolved
    positional: tuple[Any, ...]  # values of positional arguments
    named: Mapping[str, Any]  # values of keyword arguments
    complete: bool  # whether no argument is hidden in an unknown ``*`` or ``**``
    line: int  # its line
    node: ast.Call = field(repr=False)  # the syntax tree
    scope: Scope = field(repr=False)  # the innermost function, class or module that holds it

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


# -------------------------------------------------------------------------------------------------
# A Python script as a syntax tree: calls with the values of their arguments, where determined.
#
# Nothing is executed or imported. A name has a value where exactly one assignment can reach the
# use and its right side is a constant expression; every other value is ``UNKNOWN``.

_SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BRANCHES = (ast.If, ast.Try, ast.Match, *_LOOPS)
_MOST_DEPTH = 60
_RUN_CONFIG = Name("run_config")
"""Flower's configuration of a run, under whatever name it was assigned."""


@dataclass(frozen=True)
class _Assignment:
    value: ast.expr | None
    line: int
    statement: ast.AST


class Script:
    """The parsed script.

    Args:
        text: Python source.
        settings: values of the project's configuration by normalised key, for
            ``context.run_config`` of Flower.

    Raises:
        SyntaxError: when it is not Python.
    """

    def __init__(self, text: str, settings: Mapping[str, Any] | None = None) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.settings = dict(settings or {})
        self._parents: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
        self._aliases = self._imports()
        self._assignments: dict[tuple[ast.AST, str], list[_Assignment]] = defaultdict(list)
        self._collect()
        self._active: set[int] = set()
        self._rewritten = set(self._rewrites())

    # -- structure -------------------------------------------------------------------------

    def parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """Enclosing nodes, innermost first."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def scope(self, node: ast.AST) -> Scope:
        """The innermost enclosing function, class or module."""
        return next((p for p in self.parents(node) if isinstance(p, _SCOPES)), self.tree)

    def loops(self, node: ast.AST) -> list[ast.AST]:
        """Enclosing loops inside the innermost function, innermost first."""
        found: list[ast.AST] = []
        for parent in self.parents(node):
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                break
            if isinstance(parent, _LOOPS):
                found.append(parent)
        return found

    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """All function definitions."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return [node for node in ast.walk(self.tree) if isinstance(node, kinds)]

    def classes(self) -> list[ast.ClassDef]:
        """All class definitions."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]

    def imports(self, package: str) -> bool:
        """Whether the script imports the package or something of it."""
        paths = self._aliases.values()
        return any(path == package or path.startswith(f"{package}.") for path in paths)

    @cached_property
    def calls(self) -> list[Call]:
        """All calls, in the order of their lines."""
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        return [self.call(node) for node in sorted(nodes, key=lambda n: (n.lineno, n.col_offset))]

    def named(self, *names: str) -> list[Call]:
        """Calls of functions with one of these last names."""
        return [call for call in self.calls if call.name in names]

    def call(self, node: ast.Call) -> Call:
        """A call with the values of its arguments."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        complete = True
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                complete = False
                break
            positional.append(self.value(argument))
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, dict):
                named.update(value)
            else:
                complete = False
        path = self.path(node.func)
        scope = self.scope(node)
        return Call(path, tuple(positional), named, complete, node.lineno, node, scope)

    def path(self, node: ast.AST) -> str:
        """Dotted path of a name, with imports resolved; empty where there is none."""
        if isinstance(node, ast.Name):
            return self._aliases.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            before = self.path(node.value)
            return f"{before}.{node.attr}" if before else node.attr
        if isinstance(node, ast.Call):
            return self.path(node.func)
        return ""

    def statement(self, call: Call) -> ast.stmt:
        """The innermost statement that holds a call."""
        return next(one for one in self.parents(call.node) if isinstance(one, ast.stmt))

    def generator(self, call: Call) -> bool:
        """Whether a call draws from ``random``, ``numpy.random`` or a generator made by them."""
        made = self.value(call.node.func.value) if isinstance(call.node.func, ast.Attribute) else 0
        path = made.path if isinstance(made, Call) else call.path
        return path.startswith(("random.", "numpy.random"))

    # -- values ----------------------------------------------------------------------------

    def value(self, node: ast.AST | None) -> Any:
        """The value of an expression, ``UNKNOWN`` where it is not determined."""
        if node is None or id(node) in self._active or len(self._active) > _MOST_DEPTH:
            return UNKNOWN
        self._active.add(id(node))
        try:
            return self._value(node)
        except (ArithmeticError, ValueError, TypeError, LookupError):
            return UNKNOWN
        finally:
            self._active.discard(id(node))

    def _value(self, node: ast.AST) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._of_name(node)
            case ast.UnaryOp():
                value = self.value(node.operand)
                return value if value is UNKNOWN else OPERATORS[type(node.op)](value)
            case ast.BinOp():
                return self._binary(node)
            case ast.Tuple() | ast.List():
                return [self.value(one) for one in node.elts]
            case ast.Dict():
                keys = [self.value(key) for key in node.keys]
                return dict(zip(keys, map(self.value, node.values), strict=True))
            case ast.Subscript():
                return self._item(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self._called(node)
        return UNKNOWN

    def _binary(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if not all(isinstance(one, int | float) for one in (left, right)):
            return UNKNOWN
        if isinstance(node.op, ast.Pow):
            small = abs(left) <= 1e9 and abs(right) <= 64
            return left**right if small else UNKNOWN
        return OPERATORS[type(node.op)](left, right)

    def _item(self, node: ast.Subscript) -> Any:
        holder, key = self.value(node.value), self.value(node.slice)
        if holder == _RUN_CONFIG:
            return self._setting(key, UNKNOWN)
        changed = key in self._rewritten or self.path(node.value) in self._rewritten
        return UNKNOWN if changed or holder is UNKNOWN or key is UNKNOWN else holder[key]

    def _setting(self, key: Any, default: Any) -> Any:
        return self.settings.get(str(key).replace("-", "_").lower(), default)

    def _attribute(self, node: ast.Attribute) -> Any:
        if node.attr == _RUN_CONFIG.path:
            return _RUN_CONFIG
        holder = self.value(node.value)
        if node.attr in self._rewritten:
            return UNKNOWN
        if isinstance(holder, Call) and holder.name in ("SimpleNamespace", "Namespace"):
            return holder.argument(node.attr)
        if isinstance(holder, Name):
            return Name(f"{holder.path}.{node.attr}")
        if isinstance(node.value, ast.Name):
            for one in self.classes():
                if one.name == node.value.id:
                    return self._chosen(self._assignments[one, node.attr], None)
        return UNKNOWN

    def _called(self, node: ast.Call) -> Any:
        path = self.path(node.func)
        holder = node.func.value if isinstance(node.func, ast.Attribute) else None
        if path.endswith("get") and self.value(holder) == _RUN_CONFIG:
            default = self.value(node.args[1]) if len(node.args) > 1 else UNKNOWN
            return self._setting(self.value(node.args[0]), default)
        if path == "dict" and not node.args:
            return {one.arg: self.value(one.value) for one in node.keywords}
        call = self.call(node)
        function = FUNCTIONS.get(path)
        if function is None:
            return call
        known = not any(one is UNKNOWN or isinstance(one, Call) for one in call.positional)
        return function(*call.positional, **call.named) if known else UNKNOWN

    def _of_name(self, node: ast.Name) -> Any:
        for scope in [self.scope(node), *self._outer(node)]:
            function = isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) and scope
            if function and node.id in _names(function):
                if self._assignments.get((scope, node.id)):
                    return UNKNOWN
                return self._parameter(function, node.id)
            found = self._assignments.get((scope, node.id))
            if found:
                use = node if scope is self.scope(node) else None
                value = self._chosen(found, use)
                changed = isinstance(value, list | dict) and node.id in self._rewritten
                return UNKNOWN if changed else value
        if node.id in self._aliases:
            return Name(self._aliases[node.id])
        return UNKNOWN

    def _outer(self, node: ast.AST) -> list[Scope]:
        scopes = [p for p in self.parents(node) if isinstance(p, _SCOPES)]
        return [one for one in scopes[1:] if not isinstance(one, ast.ClassDef)]

    def _chosen(self, found: list[_Assignment], use: ast.AST | None) -> Any:
        """The value that reaches a use: of the last unconditional assignment before it."""
        before = list(found)
        if use is not None:
            line = getattr(use, "lineno", 0)
            loops = self.loops(use)
            own = [one for one in found if use in ast.walk(one.statement)]
            before = [one for one in found if one.line <= line and one not in own]
            later = [one for one in found if one not in before and one not in own]
            if any(loop in self.parents(one.statement) for one in later for loop in loops):
                return UNKNOWN
        around = set(self.parents(use)) if use is not None else set()
        values: list[Any] = []
        for one in reversed(before):
            values.append(self.value(one.value))
            blocks = [p for p in self.parents(one.statement) if isinstance(p, _BRANCHES)]
            if all(block in around for block in blocks):
                break
        if not values or any(value is UNKNOWN for value in values):
            return UNKNOWN
        same = all(type(value) is type(values[0]) and value == values[0] for value in values)
        return values[0] if same else UNKNOWN

    def _parameter(self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Any:
        """The value of a parameter: that of all calls in the script, where they agree."""
        arguments = function.args
        every = [*arguments.posonlyargs, *arguments.args]
        last = every[len(every) - len(arguments.defaults) :]
        by_name = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        optional = (*zip(last, arguments.defaults, strict=True), *by_name)
        defaults = {a.arg: d for a, d in optional if d is not None}
        names = [a.arg for a in every]
        position = names.index(name) if name in names else None
        values = []
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Call) or self.path(node.func) != function.name:
                continue
            given = next((k.value for k in node.keywords if k.arg == name), None)
            if any(k.arg is None for k in node.keywords):
                return UNKNOWN
            if given is None and position is not None and position < len(node.args):
                given = node.args[position]
            values.append(self.value(defaults.get(name) if given is None else given))
        known = values and not any(value is UNKNOWN for value in values)
        return values[0] if known and all(v == values[0] for v in values) else UNKNOWN

    # -- collection ------------------------------------------------------------------------

    def _imports(self) -> dict[str, str]:
        aliases = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    first = one.name.partition(".")[0]
                    aliases[one.asname or first] = one.name if one.asname else first
            elif isinstance(node, ast.ImportFrom):
                for one in node.names:
                    aliases[one.asname or one.name] = f"{node.module or ''}.{one.name}".lstrip(".")
        return aliases

    def _rewrites(self) -> Iterator[str]:
        """Attributes, keys and holders of keys that change after they were made."""
        for node in ast.walk(self.tree):
            stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
            if stored and isinstance(node, ast.Attribute):
                yield node.attr
            elif stored and isinstance(node, ast.Subscript):
                constant = node.slice.value if isinstance(node.slice, ast.Constant) else None
                yield constant if isinstance(constant, str) else self.path(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in ("update", "append", "extend", "insert", "pop", "clear"):
                    yield self.path(node.func.value)
            elif isinstance(node, ast.Call) and self.path(node.func).endswith("setattr"):
                yield from (ast.unparse(one).strip("'\"") for one in node.args[1:2])

    def _collect(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value, node)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                self._assign(node.target, node.value, node)
            elif isinstance(node, ast.AugAssign | ast.For | ast.AsyncFor):
                self._assign(node.target, None, node)
            elif isinstance(node, ast.With | ast.AsyncWith):
                for item in node.items:
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, None, node)
            elif isinstance(node, ast.Global | ast.Nonlocal):
                for name in node.names:
                    one = _Assignment(None, node.lineno, node)
                    self._assignments[self.tree, name].append(one)
        for found in self._assignments.values():
            found.sort(key=lambda one: one.line)

    def _assign(
        self, target: ast.AST, value: ast.expr | None, statement: ast.stmt | ast.expr
    ) -> None:
        if isinstance(target, ast.Name):
            one = _Assignment(value, statement.lineno, statement)
            self._assignments[self.scope(target), target.id].append(one)
        elif isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            parts = value.elts if same and isinstance(value, ast.Tuple | ast.List) else None
            for index, part in enumerate(target.elts):
                self._assign(part, parts[index] if parts else None, statement)


def _names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    every = function.args
    parts = [*every.posonlyargs, *every.args, *every.kwonlyargs]
    parts += [one for one in (every.vararg, every.kwarg) if one is not None]
    return {one.arg for one in parts}


def repetitions(script: Script, loop: ast.AST) -> int | None:
    """How often a ``for`` loop over ``range`` runs; None where it is not determined."""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return None
    call = loop.iter
    if script.path(call.func).rpartition(".")[2] not in ("range", "trange"):
        # a ``range`` inside ``tqdm(...)`` or ``enumerate(...)``
        inner = call.args[0] if call.args else None
        return repetitions(script, ast.For(target=call, iter=inner, body=[], orelse=[]))  # type: ignore[arg-type]
    ends = [whole(script.value(one)) for one in call.args]
    if any(one is None for one in ends):
        return None
    return len(range(*[int(one) for one in ends if one is not None]))


# --- A file to lint: a Python script, a configuration in TOML, YAML or JSON, or a log. -----------

_CONFIGS = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML", ".json": "JSON"}


@dataclass(frozen=True)
class Source:
    """One file, parsed by its kind."""

    path: str  # the file, for messages
    kind: Literal["script", "config", "log"]  # ``script``, ``config`` or ``log``
    text: str  # its content
    script: Script | None = None  # the parsed script; None for other kinds
    data: Any = None  # plain data of a configuration; None for other kinds
    # scalar values by normalised last key (lower case, ``_`` for ``-``); keys that occur with
    # different values are ``UNKNOWN``
    settings: Mapping[str, Any] = field(default_factory=dict)

    def setting(self, *keys: str) -> Any:
        """The value of the first of these keys that the configuration has; else ``UNKNOWN``."""
        return next((self.settings[key] for key in keys if key in self.settings), UNKNOWN)

    def has(self, *keys: str) -> bool:
        """Whether the configuration has one of these keys."""
        return any(key in self.settings for key in keys)


def load(path: Path | str) -> Source:
    """Read a file."""
    text = read_text(path, "file")
    suffix = Path(path).suffix.lower()
    if suffix == ".py":
        try:
            return Source(str(path), "script", text, Script(text, _project(Path(path))))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = getattr(error, "msg", None) or str(error) or type(error).__name__
            line = getattr(error, "lineno", None)
            at = f" (line {line}: {reason})" if line else f" ({reason})"
            raise InputError.one("file", f"must be a Python script{at}", str(path)) from None
    if suffix in _CONFIGS:
        data = _parsed(text, _CONFIGS[suffix], str(path))
        return Source(str(path), "config", text, None, data, flattened(data))
    return Source(str(path), "log", text)


def _parsed(text: str, kind: str, path: str) -> Any:
    try:
        if kind == "TOML":
            data: Any = tomllib.loads(text)
        elif kind == "JSON":
            data = load_json(text)
        else:
            data = load_yaml(text, path)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError.one("file", f"must be {kind} ({reason})", path) from None
    if not isinstance(data, dict | list):
        raise InputError.one("file", f"must be {kind} with named values", path)
    return data


def _project(script: Path) -> dict[str, Any]:
    """Settings of Flower's project file, in the folder of the script or the one above it."""
    for folder in (script.parent, script.parent.parent):
        try:
            data = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        app = data.get("tool", {}).get("flwr", {}).get("app", {})
        return flattened(app.get("config", {}))
    return {}


def key(text: object) -> str:
    """The normalised form of a key."""
    return str(text).strip().lower().replace("-", "_").replace(" ", "_")


def walk(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All values of plain data with the key that holds them, outermost first."""
    yield name, data
    if isinstance(data, dict):
        for inner, value in data.items():
            yield from walk(value, key(inner))
    elif isinstance(data, list):
        for value in data:
            yield from walk(value, name)


def flattened(data: Any) -> dict[str, Any]:
    """Scalar values by normalised key; ``UNKNOWN`` where one key has several values."""
    found: dict[str, Any] = {}
    for name, value in walk(data):
        if isinstance(value, dict | list) or not name:
            continue
        if isinstance(value, str):  # a number that a text spells, such as 1e-5 in YAML
            with suppress(ValueError):
                value = float(value)
        known = name in found and (type(found[name]), found[name]) != (type(value), value)
        found[name] = UNKNOWN if known else value
    return found
