"""The syntax tree of a script, indexed once: scopes, statements, bindings, calls."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.While)
BRANCHES = (ast.If, ast.Try, ast.Match, *LOOPS)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.Module, *FUNCTIONS, ast.Lambda, ast.ClassDef, *_COMPREHENSIONS)
# Fields of syntax nodes that hold the names which a node binds or declares.
_NAMING = ("arg", "asname", "id", "name", "names", "rest")
# What binds names that no node shows.
_HIDDEN = {"*", "exec", "eval", "globals", "locals", "vars", "setattr", "delattr"}


@dataclass(frozen=True, eq=False)
class Call:
    """A call in the script."""

    path: str  # dotted name of the function, imports resolved
    node: ast.Call = field(repr=False)  # the syntax tree

    @property
    def name(self) -> str:
        """The last part of the function's path."""
        return self.path.rpartition(".")[2]

    @property
    def holder(self) -> ast.AST | None:
        """The object whose method is called; None for a function."""
        return getattr(self.node.func, "value", None)

    @property
    def line(self) -> int:
        """The call's line."""
        return self.node.lineno


@dataclass(frozen=True, eq=False)
class Binding:
    """One place that gives a name a value."""

    statement: ast.AST  # the statement, after which the name has the value
    value: ast.expr | None = (
        None  # the expression; None where the value is not determined
    )
    index: int | None = (
        None  # the value's item, of a value that is taken apart; else None
    )
    parameter: bool = (
        False  # whether it is a parameter of the function that is ``statement``
    )


def place(node: ast.AST) -> tuple[int, int]:
    """Line and column of a node."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


class Syntax:
    """The parsed script.

    Args:
        text: Python source.

    Raises:
        SyntaxError: when it is not Python.
    """

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text, "the code")
        self.nodes: list[ast.AST] = []
        self.parent: dict[ast.AST, ast.AST] = {}
        self.scope: dict[ast.AST, ast.AST] = {}
        self.statement: dict[ast.AST, ast.AST] = {}
        self.imports: dict[str, str] = {}  # dotted path by name
        self.bindings: dict[tuple[ast.AST, str], list[Binding]] = defaultdict(list)
        # how many nodes bind a name, in whatever way and scope
        self.places: Counter[object] = Counter()
        self.references: dict[str, list[ast.AST]] = defaultdict(list)
        self._place_all()
        self.nodes.sort(key=place)
        for node in self.nodes:
            self.places.update(_bound_names(node))
            self._index(node)
        recorded: Counter[object] = Counter()
        for (_, name), bindings in self.bindings.items():
            recorded[name] += len(bindings)
        # names that are bound in another way than those that are indexed
        self.unread = {*(self.places - recorded)}
        self.hidden = bool(_HIDDEN & {*self.places, *self.references})
        nodes = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.call_of = {node: Call(self.path(node.func), node) for node in nodes}
        self.calls = [*self.call_of.values()]
        self._by_name: dict[str, list[Call]] = defaultdict(list)
        for call in self.calls:
            self._by_name[call.name].append(call)

    def named(self, *names: str) -> list[Call]:
        """Calls of functions with one of these last names."""
        calls: list[Call] = []
        for name in names:
            calls += self._by_name.get(name, [])
        return calls

    def name_of(self, node: ast.Call) -> str:
        """The last part of a called function's path."""
        return self.call_of[node].name

    def path(self, node: ast.AST) -> str:
        """Dotted path of a name, imports resolved; other values begin with a dot."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            root = self.imports.get(node.id, node.id)
        else:
            root = ""
        return ".".join([root, *reversed(parts)])

    def blocks(self, node: ast.AST) -> Iterator[ast.AST]:
        """Statements around a node in its scope, innermost first; the scope is last."""
        scope = self.scope.get(node, self.tree)
        while node is not scope:
            inside = isinstance(
                scope, ast.expr
            )  # a lambda or a comprehension has no statements
            if inside:
                node = scope
            else:
                node = self.parent[self.statement.get(node, node)]
            yield node

    def loops(self, node: ast.AST) -> list[ast.AST]:
        """Loops around a node within its scope, innermost first."""
        return [block for block in self.blocks(node) if isinstance(block, LOOPS)]

    def _place_all(self) -> None:
        """Set scope, statement and parent of all nodes, each visited once."""
        waiting: list[tuple[ast.AST, ast.AST]] = [(self.tree, self.tree)]
        while waiting:
            node, scope = waiting.pop()
            self.nodes.append(node)
            inner = node if isinstance(node, _SCOPES) else scope
            for child in ast.iter_child_nodes(node):
                self.parent[child] = node
                self.scope[child] = inner
                begins = isinstance(child, ast.stmt)
                if begins:
                    self.statement[child] = child
                else:
                    self.statement[child] = self.statement.get(node, node)
                waiting.append((child, inner))

    def _index(self, node: ast.AST) -> None:
        match node:
            case ast.Import():
                for name in node.names:
                    root = name.name.partition(".")[0]
                    # Without an alias, ``import a.b`` binds ``a``.
                    full_name = name.name if name.asname else root
                    self.imports[name.asname or root] = full_name
            case ast.ImportFrom():
                source = "." * node.level + (node.module or "")
                for name in node.names:
                    self.imports[name.asname or name.name] = f"{source}.{name.name}"
            case ast.Assign() | ast.AnnAssign():
                for target in getattr(node, "targets", [getattr(node, "target", node)]):
                    self._store(target, Binding(node, node.value))
            case ast.AugAssign() | ast.For():
                self._store(node.target, Binding(self.statement[node]))
            case ast.withitem() if node.optional_vars is not None:
                self._store(
                    node.optional_vars, Binding(self.statement[node], node.context_expr)
                )
            case ast.FunctionDef() | ast.ClassDef():
                self.bindings[self.scope[node], node.name].append(Binding(node))
            case ast.arg():
                function = self.scope[node]
                self.bindings[function, node.arg].append(
                    Binding(function, parameter=True)
                )
            case ast.Name(ctx=ast.Load()):
                self.references[node.id].append(node)

    def _store(self, target: ast.AST, binding: Binding) -> None:
        if isinstance(target, ast.Name):
            self.bindings[self.scope[target], target.id].append(binding)
        elif isinstance(target, ast.Tuple | ast.List):
            # only a target of plain names takes a value apart by position
            plain = all(isinstance(part, ast.Name) for part in target.elts)
            value = binding.value if plain else None
            for position, part in enumerate(target.elts):
                self._store(part, Binding(binding.statement, value, position))


def _bound_names(node: ast.AST) -> Iterator[object]:
    """All that a node binds or declares, whatever its kind; not only names."""
    read = isinstance(getattr(node, "ctx", None), ast.Load)
    if not read and not isinstance(node, ast.keyword):
        for name in _NAMING:
            bound = getattr(node, name, None)
            yield from bound if isinstance(bound, list) else [bound]
