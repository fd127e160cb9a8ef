"""What lint understands of a framework; all else is named, and forbids an epsilon.

The whole file is in reach of the mechanism: every name, attribute, keyword and stored
value must be on a list, or be made by the file itself from what is. How values flow
then matters no more.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from privplan.contrib.lint import python
from privplan.contrib.lint.reading import Findings, Framework, Line, Options
from privplan.contrib.lint.script import UNKNOWN, Script, bound_arguments
from privplan.contrib.lint.source import Source, walk
from privplan.contrib.lint.syntax import Call, place

_HIDDEN = {"*", "**"}
_SYNTAX = {*python.SYNTAX.split()}


@dataclass(frozen=True)
class Understood:
    """The list of one framework."""

    package: str  # package of the framework
    # arguments of each class and function in their order; those after ``|`` only by
    # keyword
    calls: dict[str, str]
    names: str = ""  # further names of the package: constants, modules, functions
    attributes: str = ""  # attributes and methods of objects
    keys: str = ""  # keys and sections of configurations

    def argument(
        self, script: Script, call: Call | None, name: str, default: Any = UNKNOWN
    ) -> Any:
        """The value of an argument; the framework's default where it is left out."""
        bound = self.bound(call)
        if name in bound:
            return script.value(bound[name])
        if call is None or _HIDDEN & bound.keys():
            return UNKNOWN
        return default

    def bound(self, call: Call | None) -> dict[str, ast.expr]:
        """The arguments of a call by name."""
        if call is None:
            return {}
        return bound_arguments(
            call.node, self.signature(call.name).partition("|")[0].split()
        )

    def signature(self, name: str) -> str:
        """The arguments of a class or function; none where it is not listed."""
        return self.calls.get(name) or python.CALLS.get(name, "")

    def check(self, source: Source, findings: Findings) -> None:
        """Name everything in a script or a configuration that is not understood."""
        constructs = _Check(self, source).constructs()
        # of several lines with the same, the first is named
        lines = dict(sorted(constructs, key=lambda construct: -construct[1]))
        findings.not_understood += [
            Line(f"not understood: {text}", line) for text, line in lines.items()
        ]


class _Check:
    """The check of one file against a framework's list."""

    def __init__(self, understood: Understood, source: Source) -> None:
        self._source = source
        self._list = understood
        self._names = {*python.CALLS, *understood.calls, *understood.names.split()}
        self._packages = {understood.package, *python.PACKAGES.split()}
        listed = f"{understood.attributes} {python.ATTRIBUTES}"
        self._attributes = {*understood.calls, *listed.split()}
        self._defined = {*python.BUILTINS.split()}

    def constructs(self) -> Iterator[tuple[str, int]]:
        """Everything that is not understood, with its line."""
        script = self._source.script
        if script is None:
            understood = {"", *self._list.keys.split()}
            for key, _ in walk(self._source.data):
                if key not in understood:
                    yield f"key {key}", self._source.line(re.escape(key))
            return
        reserved = {*self._names, *script.imports, *dir(builtins)} - {
            *python.PARAMETERS.split()
        }
        # attributes that classes of the file give themselves
        attributes = (
            getattr(node, "attr", "") for node in script.nodes if _of_new(script, node)
        )
        self._attributes.update(attributes)
        for (_, name), bindings in script.bindings.items():
            if name in reserved:
                yield (
                    f"{name}, which the file defines anew",
                    place(bindings[0].statement)[0],
                )
        self._defined.update(name for _, name in script.bindings)
        for node in script.nodes:
            for text in self._of_node(script, node):
                yield text, place(node)[0]

    def _of_node(self, script: Script, node: ast.AST) -> Iterator[str]:
        kind = type(node).__name__
        if isinstance(node, ast.stmt | ast.expr) and kind not in _SYNTAX:
            yield f"syntax {kind}"
        yield from self._of_statement(script, node)
        match node:
            case ast.Attribute(ctx=ast.Load()) | ast.Name(ctx=ast.Load()):
                if not self._loaded(script, node):
                    yield script.path(node).removeprefix(".")
            case ast.Attribute():
                if not _of_new(script, node):
                    yield f"the change of {ast.unparse(node)}"
            case ast.Call() if script.name_of(node) in self._names:
                name = script.name_of(node)
                bound = self._list.bound(script.call_of[node])
                unlisted = bound.keys() - {*self._list.signature(name).split()}
                yield from (f"{key} of {name}" for key in unlisted)
            case ast.Call() if script.call_of[node].path == "torch.save":
                if "state_dict" not in [script.name_of(part) for part in _calls(node)]:
                    yield ast.unparse(node)

    def _of_statement(self, script: Script, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Import() | ast.ImportFrom():
                modules = [
                    getattr(node, "module", None) or name.name for name in node.names
                ]
                yield from (
                    m for m in modules if m.partition(".")[0] not in self._packages
                )
            case ast.ClassDef():
                bases = all(map(python.BASES.fullmatch, map(script.path, node.bases)))
                if node.keywords or not bases:
                    yield f"class {node.name}({', '.join(map(script.path, node.bases))})"
            case ast.FunctionDef() if node.name not in python.METHODS.split():
                if isinstance(script.scope[node], ast.ClassDef):
                    yield f"method {node.name}"
            case ast.If() if ast.unparse(node.test) != python.MAIN:
                yield f"if {ast.unparse(node.test)}"
            case ast.Expr(ast.Call()):
                # what a layer does besides its result
                if getattr(script.scope[node], "name", "") == "forward":
                    yield ast.unparse(node)

    def _loaded(self, script: Script, node: ast.AST) -> bool:
        """Whether a name with its attributes is imported, of the file, or of Python."""
        if isinstance(script.parent[node], ast.Attribute):
            return True  # the longest chain of attributes is looked at
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
            theirs = (python.PATHS, python.LOSSES)
            return of_framework or any(paths.fullmatch(path) for paths in theirs)
        defined = not root or root in self._defined
        # a method that is not called here may be called with anything
        passed_on = attributes and not called and last in self._list.calls
        return defined and not passed_on and self._attributes.issuperset(attributes)


def _calls(node: ast.Call) -> list[ast.Call]:
    """The first argument of a call, where it is a call itself."""
    return [part for part in node.args[:1] if isinstance(part, ast.Call)]


def _of_new(script: Script, node: ast.AST) -> bool:
    """Whether a class of the file gives itself an attribute, when it is made."""
    stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    first = getattr(script.scope.get(node), "name", "") == "__init__"
    return stored and first and script.path(node).startswith("self.")


def reader(
    understood: Understood,
    script: Callable[[Source, Script, Options, Findings], None],
    configuration: Callable[[Source, Options, Findings], None],
) -> Framework:
    """A framework that reads scripts and configurations by these functions."""

    def read(source: Source, options: Options) -> Findings:
        findings = Findings()
        understood.check(source, findings)
        if source.script is not None:
            script(source, source.script, options, findings)
        else:
            findings.unknown("the script that reads this configuration is not here")
            configuration(source, options, findings)
        return findings

    return read
