"""Faults of style: what makes a file hard to read, by rules over its syntax tree.

The rules, and what to write instead, stand in ``docs/decisions/style.md``. No Python
file that git tracks below ``ROOTS`` breaks them.

    python benchmarks/style.py FILE...              faults of files, with line numbers
    python benchmarks/style.py --summary [PATH...]  how dense files or folders are
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOTS = ("privplan", "simulate", "tests", "benchmarks")
# Inputs of lint's tests: scripts as strangers write them.
EXCLUDED = ("tests/contrib/lint/broken/", "tests/contrib/lint/sound/")
RUFF = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
# The formatter lays out code at 88 columns; a text that it cannot break has these.
CODE_COLUMNS: int = RUFF["lint"]["pycodestyle"]["max-line-length"]
# Comments, docstrings and texts, which no formatter breaks.
TEXT_COLUMNS = 88

# A reader keeps about this many names in mind; dp_accounting has 2 functions with more.
MAX_LOCAL_NAMES = 15
# The limits of pylint, whose users have agreed on them.
MAX_STATEMENTS = 50
MAX_BRANCHES = 12
# Pylint's limit is 5; 8 leaves room for a history, a delta, a relation and tolerances.
MAX_ARGUMENTS = 8
# Two rows are as clear in the formatter's layout.
MIN_TABLE_ROWS = 3

# Words that say nothing about the thing they name; the summary counts these.
_VAGUE_WORDS = """
one at off most asked found given way ways far sides reading own other made known kept
some every each least
"""
VAGUE = frozenset(_VAGUE_WORDS.split())
# The rules also refuse their kind.
_THEIR_KIND = """
beside wanted others these those here there both more rest needed held worth taken said
says told till apart thing things of by to
"""
BANNED = VAGUE | frozenset(_THEIR_KIND.split())
# Members that users name: a verdict is kept, or broken; the layout of a model; an error
# of one fault, and the value that it found.
PUBLIC_MEMBERS = frozenset({"kept", "of", "one", "found"})
# 0, 1, 2, a half, ten and a hundred explain themselves; any other number needs a name.
PLAIN_NUMBERS = (0, 1, 2, -1, 0.5, 100, 10)

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Function = ast.FunctionDef | ast.AsyncFunctionDef
# What a docstring can document.
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# What can bind a name.
NAMING = (ast.Name, ast.arg, ast.Attribute, *DOCUMENTED[1:])


@dataclass(frozen=True, order=True)
class Fault:
    """A rule that is broken at a line."""

    line: int
    rule: str
    detail: str


def faults(text: str) -> list[Fault]:
    """All faults of a file's text, by line."""
    return sorted(set(_each_fault(text)))


def _each_fault(text: str) -> Iterator[Fault]:
    tree = ast.parse(text)
    nodes: list[ast.AST] = []
    parts: dict[ast.AST, list[ast.AST]] = {}
    _visit(tree, nodes, parts)
    yield from _long_lines(text, docstring_lines(parts))
    if "# fmt:" in text:
        yield from _skipped_formatting(text, tree)
    public_members = set(_public_members(parts))
    for node in nodes:
        if isinstance(node, ast.expr):
            yield from _faults_of_expression(node)
        if isinstance(node, NAMING) and node not in public_members:
            yield from _faults_of_name(node)
        if isinstance(node, ast.Assign):
            yield from _faults_of_assignment(node)
        if isinstance(node, Function):
            yield from _faults_of_function(node, parts[node])


def _visit(
    node: ast.AST, nodes: list[ast.AST], parts: dict[ast.AST, list[ast.AST]]
) -> None:
    """Collect all nodes, and of each module, class and function those within it."""
    start = len(nodes)
    nodes.append(node)
    for name in node._fields:
        value = getattr(node, name, None)
        for child in value if isinstance(value, list) else (value,):
            # Whether a name is read or bound is no node that a rule asks for.
            if isinstance(child, ast.AST) and not isinstance(child, ast.expr_context):
                _visit(child, nodes, parts)
    if isinstance(node, DOCUMENTED):
        parts[node] = nodes[start:]


def _long_lines(text: str, documented: set[int]) -> Iterator[Fault]:
    for number, line in enumerate(text.splitlines(), 1):
        is_text = number in documented or line.lstrip().startswith("#")
        limit = TEXT_COLUMNS if is_text else CODE_COLUMNS
        # A line that is one long word, such as an address, cannot be broken.
        if len(line) > limit and len(line.split()) > 2:
            yield Fault(number, "long line", f"{len(line)} columns, at most {limit}")


def _faults_of_assignment(node: ast.Assign) -> Iterator[Fault]:
    for target in node.targets:
        if not isinstance(target, ast.Tuple):
            continue
        choice = node.value
        if isinstance(choice, ast.IfExp):
            branches = (choice.body, choice.orelse)
            if any(isinstance(branch, ast.Tuple) for branch in branches):
                yield Fault(
                    node.lineno, "packed assignment", "tuples behind a condition"
                )
        if isinstance(node.value, ast.Tuple) and not _is_simultaneous(
            target, node.value
        ):
            names = ast.unparse(target)
            yield Fault(
                node.lineno, "packed assignment", f"{names}: one statement each"
            )


def _is_simultaneous(target: ast.Tuple, value: ast.Tuple) -> bool:
    """Whether statements in a row would mean something else, as in a swap."""
    assigned: set[str] = set()
    for place, source in zip(target.elts, value.elts, strict=False):
        read = {
            ast.unparse(part) for part in ast.walk(source) if isinstance(part, ast.expr)
        }
        if read & assigned:
            return True
        assigned.add(ast.unparse(place))
    return False


def _faults_of_expression(node: ast.AST) -> Iterator[Fault]:
    if isinstance(node, Comprehension):
        inside = [part for part in ast.walk(node) if part is not node]
        if any(isinstance(part, Comprehension) for part in inside):
            yield Fault(node.lineno, "nested comprehension", "name the inner one first")
        elif len(node.generators) > 1:
            yield Fault(
                node.lineno, "nested comprehension", "a second for: write a loop"
            )
        if any(isinstance(part, ast.NamedExpr) for part in inside):
            yield Fault(node.lineno, "walrus in comprehension", "write a loop")
    elif isinstance(node, ast.IfExp):
        if sum(isinstance(part, ast.IfExp) for part in ast.walk(node)) > 1:
            yield Fault(
                node.lineno, "nested conditional expression", "write if statements"
            )
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        factors = (node.left, node.right)
        repeats_text = any(map(_is_text_or_display, factors))
        has_truth_value = any(map(_is_truth_value, factors))
        if any(map(_calls_bool, factors)) or (repeats_text and has_truth_value):
            yield Fault(node.lineno, "multiplied by a truth value", "write an if")
    elif isinstance(node, ast.Subscript) and _is_choice_by_index(node):
        yield Fault(node.lineno, "indexed by a truth value", "write an if")


def _is_choice_by_index(node: ast.Subscript) -> bool:
    return _is_text_or_display(node.value) and _is_truth_value(node.slice)


def _is_text_or_display(node: ast.expr) -> bool:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_text or isinstance(node, ast.JoinedStr | ast.List | ast.Tuple)


def _calls_bool(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return isinstance(node.func, ast.Name) and node.func.id == "bool"


def _is_truth_value(node: ast.expr) -> bool:
    is_negation = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return (
        is_negation or isinstance(node, ast.Compare | ast.BoolOp) or _calls_bool(node)
    )


def _bindings(node: ast.AST) -> Iterator[str]:
    """The name that a node binds, unless the language's conventions set it."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
        yield node.arg


def _public_members(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Fields and properties of classes that have a name of ``PUBLIC_MEMBERS``."""
    for node in nodes:
        for statement in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(statement, ast.AnnAssign):
                if ast.unparse(statement.target) in PUBLIC_MEMBERS:
                    yield statement.target
            elif isinstance(statement, Function) and statement.name in PUBLIC_MEMBERS:
                yield statement


def _faults_of_name(node: ast.AST) -> Iterator[Fault]:
    line = getattr(node, "lineno", 0)
    names = list(_bindings(node))
    if isinstance(node, Function | ast.ClassDef):
        names.append(node.name)
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        names.append(node.attr)
    for name in names:
        # ``__eq__`` and its kind call their argument ``other`` by convention.
        is_convention = isinstance(node, ast.arg) and name == "other"
        if name.strip("_").lower() in BANNED and not is_convention:
            yield Fault(line, "vague name", f"{name}: name the thing, with its unit")


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _faults_of_function(node: Function, parts: list[ast.AST]) -> Iterator[Fault]:
    local_names = {
        part.id
        for part in parts
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    docstring = 1 if ast.get_docstring(node, clean=False) else 0
    statements = [part for part in parts if isinstance(part, ast.stmt)]
    counts = {
        "local names": (len(local_names - {"_"}), MAX_LOCAL_NAMES),
        "statements": (len(statements) - 1 - docstring, MAX_STATEMENTS),
        "branches": (sum(map(_branches, statements)), MAX_BRANCHES),
        "arguments": (_arguments(node), MAX_ARGUMENTS),
    }
    for counted, (count, limit) in counts.items():
        if count > limit:
            detail = f"{node.name} has {count} {counted}, at most {limit}"
            yield Fault(node.lineno, f"too many {counted}", detail)


def _branches(node: ast.AST) -> int:
    """Branches that a statement opens, as pylint counts them: each of its arms."""
    if isinstance(node, ast.If):
        is_elif = len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
        return 2 if node.orelse and not is_elif else 1
    if isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return 2 if node.orelse else 1
    if isinstance(node, ast.Try):
        arms = [node.orelse, node.finalbody]
        return 1 + len(node.handlers) + sum(1 for arm in arms if arm)
    if isinstance(node, ast.Match):
        return len(node.cases)
    return 0


def _arguments(node: Function) -> int:
    """Arguments that a caller must think of.

    The arguments of a command are its options. Of a public function, keyword-only ones
    with a default do not count, because a caller names only those that it needs.
    """
    decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
    if re.search(r"\b(command|option|argument)\(", decorators):
        return 0
    arguments = node.args
    required = [default for default in arguments.kw_defaults if default is None]
    is_private = node.name.startswith("_") and not _is_dunder(node.name)
    keyword_only = len(arguments.kwonlyargs) if is_private else len(required)
    by_position = [*arguments.posonlyargs, *arguments.args]
    named = [item for item in by_position if item.arg not in ("self", "cls")]
    return len(named) + keyword_only


def _skipped_formatting(text: str, tree: ast.Module) -> Iterator[Fault]:
    """Layouts by hand that hold no table."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or not re.search(
            r"fmt: *(skip|off)", token.string
        ):
            continue
        line = token.start[0]
        around = [part for part in ast.walk(tree) if _covers(part, line)]
        if max((_rows(part) for part in around), default=0) < MIN_TABLE_ROWS:
            detail = f"only around a table of {MIN_TABLE_ROWS} rows or more"
            yield Fault(line, "fmt: skip", detail)


def _covers(node: ast.AST, line: int) -> bool:
    """Whether a node belongs to the statement or decorator that ends on a line."""
    # Of a compound statement, a skip covers the head alone, and the body holds others.
    is_simple = isinstance(node, ast.stmt) and not hasattr(node, "body")
    is_candidate = is_simple or isinstance(node, ast.expr)
    return is_candidate and getattr(node, "end_lineno", None) == line


def _rows(statement: ast.AST) -> int:
    """Rows of the longest table in a statement: lines on which its elements begin."""
    longest = 0
    for part in ast.walk(statement):
        if isinstance(part, ast.List | ast.Tuple | ast.Set):
            longest = max(longest, len({element.lineno for element in part.elts}))
        elif isinstance(part, ast.Dict):
            longest = max(longest, len({value.lineno for value in part.values}))
    return longest


# How dense code is, for comparisons before and after.


@dataclass
class Density:
    """Counts of code; rates are per 1,000 code lines unless said otherwise."""

    lines: int = 0
    code_lines: int = 0
    docstring_lines: int = 0
    characters: int = 0
    tokens: int = 0
    tuples: int = 0
    conditional_expressions: int = 0
    nested_comprehensions: int = 0
    unexplained_numbers: int = 0
    names: Counter[str] = field(default_factory=Counter)

    def add(self, text: str) -> None:
        """Count a file."""
        tree = ast.parse(text)
        documented = docstring_lines(ast.walk(tree))
        lines = text.splitlines()
        code = [
            line.strip()
            for number, line in enumerate(lines, 1)
            if number not in documented
            and line.strip()
            and not line.strip().startswith("#")
        ]
        self.lines += len(lines)
        self.docstring_lines += len(documented)
        self.code_lines += len(code)
        self.characters += sum(map(len, code))
        kinds = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        self.tokens += sum(token.type in kinds for token in tokens)
        for node in ast.walk(tree):
            self._add_node(node)
        # A number that a name of the module explains.
        for statement in tree.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                self.unexplained_numbers -= sum(map(_is_number, ast.walk(statement)))

    def _add_node(self, node: ast.AST) -> None:
        self.names.update(_bindings(node))
        self.unexplained_numbers += _is_number(node)
        self.conditional_expressions += isinstance(node, ast.IfExp)
        if isinstance(node, Comprehension):
            inside = [
                part for part in ast.walk(node) if isinstance(part, Comprehension)
            ]
            self.nested_comprehensions += len(inside) > 1 or len(node.generators) > 1
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            self.tuples += sum(isinstance(target, ast.Tuple) for target in node.targets)

    def row(self) -> dict[str, float]:
        """The columns of the table."""
        code_lines = max(1, self.code_lines)
        thousands = code_lines / 1000
        vague = sum(self.names[name] for name in VAGUE)
        return {
            "characters a line": self.characters / code_lines,
            "tokens a line": self.tokens / code_lines,
            "tuples": self.tuples / thousands,
            "conditional expressions": self.conditional_expressions / thousands,
            "nested comprehensions": self.nested_comprehensions / thousands,
            "unexplained numbers": self.unexplained_numbers / thousands,
            "docstrings, %": 100 * self.docstring_lines / max(1, self.lines),
            "vague names, %": 100 * vague / max(1, self.names.total()),
        }


def docstring_lines(nodes: Iterable[ast.AST]) -> set[int]:
    """The numbers of the lines of all docstrings of modules, classes and functions."""
    numbers: set[int] = set()
    for node in nodes:
        if isinstance(node, DOCUMENTED) and node.body:
            statement = node.body[0]
            if not isinstance(statement, ast.Expr):
                continue
            text = statement.value
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                numbers |= set(range(text.lineno, (text.end_lineno or 0) + 1))
    return numbers


def _is_number(node: ast.AST) -> bool:
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return False
    return isinstance(node.value, int | float) and node.value not in PLAIN_NUMBERS


def tracked(*paths: str) -> list[str]:
    """The Python files of the checkout below paths, without those that git ignores."""
    command = [
        "git",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
    ]
    listed = subprocess.check_output([*command, *(paths or ROOTS)], cwd=ROOT, text=True)
    files = [name for name in listed.split("\0") if name.endswith(".py")]
    kept_out = [name for name in files if name.startswith(EXCLUDED)]
    return sorted(
        name for name in files if name not in kept_out and (ROOT / name).is_file()
    )


def broken_files(files: Iterable[str]) -> dict[str, list[Fault]]:
    """The faults of those files that have any."""
    broken: dict[str, list[Fault]] = {}
    for name in files:
        file_faults = faults((ROOT / name).read_text(encoding="utf-8"))
        if file_faults:
            broken[name] = file_faults
    return broken


def summary(groups: dict[str, list[str]]) -> None:
    """Print one row per group of files."""
    for place, (label, files) in enumerate(groups.items()):
        density = Density()
        for name in files:
            density.add((ROOT / name).read_text(encoding="utf-8"))
        row = density.row()
        if place == 0:
            print("| | code lines |", " | ".join(row), "|")
            print("|---|" + "--:|" * (len(row) + 1))
        cells = " | ".join(f"{value:.1f}" for value in row.values())
        print(f"| {label} | {density.code_lines} | {cells} |")


def main() -> None:
    """Print the faults of files, or how dense they are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", help="files or folders; by default all")
    parser.add_argument(
        "--summary", action="store_true", help="density, one row per path"
    )
    options = parser.parse_args()
    if options.summary:
        groups = {path: tracked(path) for path in options.paths}
        if not groups:
            core = [
                name
                for name in tracked("privplan", "simulate")
                if "/contrib/" not in name
            ]
            groups = {
                "privplan core": [name for name in core if name.startswith("privplan")],
                "simulate core": [name for name in core if name.startswith("simulate")],
                "tests": tracked("tests"),
            }
        summary(groups)
    else:
        broken = broken_files(tracked(*options.paths))
        rules: Counter[str] = Counter()
        for name, file_faults in broken.items():
            for fault in file_faults:
                print(f"{name}:{fault.line}: {fault.rule}: {fault.detail}")
                rules[fault.rule] += 1
        print(*(f"{count:6} {rule}" for rule, count in rules.most_common()), sep="\n")
        sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
