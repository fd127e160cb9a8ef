"""What lint understands of a framework; all else in a file is named, and forbids an epsilon.

The whole file is in reach of the mechanism: every name, attribute, keyword and stored value must
be on a list, or be made by the file itself from what is. How values flow then matters no more.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from privplan.contrib.lint import python, traps
from privplan.contrib.lint.logs import read_log
from privplan.contrib.lint.reading import Framework, Line, Options, Reading
from privplan.contrib.lint.script import UNKNOWN, Script, bound_arguments, number
from privplan.contrib.lint.source import Source, walk
from privplan.contrib.lint.syntax import Call, place

_HIDDEN = {"*", "**"}


@dataclass(frozen=True)
class Understood:
    """The list of one framework."""

    package: str  # package of the framework
    # arguments of each class and function in their order; those after ``|`` only by keyword
    calls: dict[str, str]
    names: str = ""  # further names of the package: constants, modules, functions
    attributes: str = ""  # attributes and methods of objects
    keys: str = ""  # keys and sections of configurations

    def argument(self, script: Script, call: Call | None, name: str, default: Any = UNKNOWN) -> Any:
        """The value of an argument; the framework's default where the call leaves it out."""
        bound = self.bound(call)
        if name in bound:
            return script.value(bound[name])
        return UNKNOWN if call is None or _HIDDEN & bound.keys() else default

    def bound(self, call: Call | None) -> dict[str, ast.expr]:
        """The arguments of a call by name."""
        if call is None:
            return {}
        return bound_arguments(call.node, self.signature(call.name).partition("|")[0].split())

    def signature(self, name: str) -> str:
        """The arguments of a class or function; none where it is not listed."""
        return self.calls.get(name) or python.CALLS.get(name, "")

    def check(self, source: Source, reading: Reading) -> None:
        """Name everything in a script or a configuration that is not understood."""
        constructs = _Check(self, source).constructs()
        # of several lines with the same, the first is named
        lines = dict(sorted(constructs, key=lambda construct: -construct[1]))
        reading.not_understood += [
            Line(f"not understood: {text}", line) for text, line in lines.items()
        ]


class _Check:
    """The check of one file against a framework's list."""

    def __init__(self, understood: Understood, source: Source) -> None:
        self._source, self._list = source, understood
        self._names = {*python.CALLS, *understood.calls, *understood.names.split()}
        self._packages = {understood.package, *python.PACKAGES.split()}
        listed = f"{understood.attributes} {python.ATTRIBUTES}"
        self._attributes = {*understood.calls, *listed.split()}
        self._made = {*python.BUILTINS.split()}

    def constructs(self) -> Iterator[tuple[str, int]]:
        """Everything that is not understood, with its line."""
        script = self._source.script
        if script is None:
            understood = {"", *self._list.keys.split()}
            for key, _ in walk(self._source.data):
                if key not in understood:
                    yield f"key {key}", self._source.line(re.escape(key))
            return
        taken = {*self._names, *script.imports, *dir(builtins)} - {*python.PARAMETERS.split()}
        # attributes that classes of the file give themselves
        own = (getattr(node, "attr", "") for node in script.nodes if _of_new(script, node))
        self._attributes.update(own)
        for (_, name), bindings in script.bindings.items():
            if name in taken:
                yield f"{name}, which the file defines anew", place(bindings[0].statement)[0]
        self._made.update(name for _, name in script.bindings)
        for node in script.nodes:
            for text in self._of_node(script, node):
                yield text, place(node)[0]

    def _of_node(self, script: Script, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Import() | ast.ImportFrom():
                modules = [getattr(node, "module", None) or name.name for name in node.names]
                yield from (m for m in modules if m.partition(".")[0] not in self._packages)
            case ast.Attribute(ctx=ast.Load()) | ast.Name(ctx=ast.Load()):
                longest = not isinstance(script.parent[node], ast.Attribute)
                if longest and not self._loaded(script, node):
                    yield script.path(node).removeprefix(".")
            case ast.Attribute() | ast.Subscript(ctx=ast.Store() | ast.Del()):
                if not _of_new(script, node):
                    yield f"the change of {ast.unparse(node)}"
            case ast.Call():
                name = script.name_of(node)
                if name in self._names:
                    bound = self._list.bound(script.call_of[node])
                    listed = self._list.signature(name).split()
                    yield from (f"{key} of {name}" for key in bound if key not in listed)
            case ast.ClassDef():
                bases = all(map(python.BASES.fullmatch, map(script.path, node.bases)))
                if node.keywords or not bases:
                    yield f"class {node.name}({', '.join(map(script.path, node.bases))})"
            case ast.FunctionDef() if isinstance(script.scope[node], ast.ClassDef):
                if node.name not in python.METHODS.split():
                    yield f"method {node.name}"
            case ast.AsyncFunctionDef():
                yield f"async {node.name}"
            case ast.AugAssign():
                # a plain number; what is added to a tensor changes it in place
                name = script.path(node.target)
                first = script.bindings.get((script.scope[node], name), [])[:1]
                if None in (number(script.bound(binding, name)) for binding in first):
                    yield f"the change of {name} in place"

    def _loaded(self, script: Script, node: ast.AST) -> bool:
        """Whether a name with its attributes is understood: imported, made here, or Python's."""
        path = script.path(node)
        root, *attributes = path.split(".")
        last = path.rpartition(".")[2]
        called = getattr(script.parent[node], "func", None) is node
        while isinstance(node, ast.Attribute):
            node = node.value
        if isinstance(node, ast.Name) and node.id in script.imports:
            # the last part and every class on the way to it
            parts = {last, *(part for part in attributes if part[:1].isupper())}
            listed = path == root or self._names.issuperset(parts)
            of_framework = root == self._list.package and listed
            return of_framework or bool(python.PATHS.fullmatch(path))
        made = not root or root in self._made
        # a method that is not called here may be called with anything
        passed_on = attributes and not called and last in self._list.calls
        return made and not passed_on and self._attributes.issuperset(attributes)


def _of_new(script: Script, node: ast.AST) -> bool:
    """Whether a class of the file gives itself an attribute, when it is made."""
    stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    first = getattr(script.scope.get(node), "name", "") == "__init__"
    return stored and first and script.path(node).startswith("self.")


def reader(
    understood: Understood,
    script: Callable[[Source, Script, Options, Reading], None],
    configuration: Callable[[Source, Options, Reading], None],
) -> Framework:
    """A framework that reads scripts and configurations by these functions, and logs by theirs."""

    def read(source: Source, options: Options) -> Reading:
        reading = Reading()
        if source.script is not None:
            traps.find(source, source.script, reading)
            script(source, source.script, options, reading)
        elif source.data is not None:
            reading.unknown("the script that reads this configuration is not here")
            configuration(source, options, reading)
        else:
            read_log(source, reading)
        understood.check(source, reading)
        return reading

    return read
