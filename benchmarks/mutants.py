"""A random sample of mutants of what a guarantee rests on, and what kills them.

``python -m benchmarks.mutants FILE.csv --seed 1 --each 50`` takes 50 mutants of each
part. A mutant is the product with one change in the body of a function: an operator, a
number, a comparison or a flag is another, ``and`` is ``or``, a maximum a minimum, the
condition of a paragraph never holds, a call whose value nobody takes is left out. Texts
and what is raised stay as they are.

Each mutant is planted in a copy below ``mutants/`` and asked by the tests that execute
its line, cheapest first, until one fails. A row of FILE.csv is a mutant; those that
have an outcome are not asked again, so that a run can be cut off and go on. ``--again``
asks the survivors anew, by all tests that execute them. Which test executes which line
is measured first (minutes) and stored in CONTEXTS; remove it when tests have changed.

``make mutants`` plants every mutant of mutmut instead, for hours: it asks all tests
that enter a function, however many seconds they take.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CONTEXTS = ROOT / "mutants" / "contexts.json"
PARTS = {
    "accounting": ["privplan/accounting/*.py"],
    "accounting/pld": ["privplan/accounting/pld/*.py"],
    "laws": ["privplan/laws/*.py"],
    "book": [
        "privplan/book/spending.py",
        "privplan/book/filters.py",
        "privplan/book/composition.py",
    ],
    "guard": ["privplan/guard/*.py"],
    "checks": ["privplan/verification/checks/*.py"],
}
TESTS = [
    "tests/accounting",
    "tests/laws",
    "tests/book",
    "tests/guard",
    "tests/verification",
]
OPTIONS = ["-n", "0", "-p", "no:cacheprovider"]
FIELDS = (
    "part",
    "file",
    "line",
    "column",
    "kind",
    "before",
    "after",
    "tests",
    "asked",
    "outcome",
    "killed_by",
    "seconds",
    "equivalent",
)
FAILED = "failed.txt"
KILLED = "killed"
TIMED_OUT = "killed by time"
SURVIVED = "survived"
NO_TEST = "no test"
# Of the tests that a mutant is first asked by; survivors can be asked by all.
FIRST_SECONDS = 20.0
# A mutant may slow a test down, or start one that never ends: limits of CPU seconds,
# and of those that pass while it waits.
SLOWER = 2
GRACE_SECONDS = 20
WAITING_SECONDS = 900.0
MEMORY_BYTES = 12 * 2**30

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.MatMult: ast.Mult,
}
FUNCTIONS = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "ceil": "floor",
    "floor": "ceil",
    "any": "all",
    "all": "any",
    "exp": "expm1",
    "log1p": "log",
}


@dataclass(frozen=True)
class Mutant:
    """One change of a file: the text between two offsets in bytes is another."""

    file: str
    line: int
    column: int
    statement: int
    kind: str
    start: int
    end: int
    after: str


def changed(node: ast.AST) -> tuple[str, str, ast.AST] | None:
    """The kind of a node's change, its new text, and the node that the text replaces.

    Nothing where the node has no change.
    """
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        opposite = COMPARISONS.get(type(node.ops[0]))
        if opposite is not None:
            swapped = ast.Compare(node.left, [opposite()], node.comparators)
            return "comparison", f"({ast.unparse(swapped)})", node
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        operator = OPERATORS[type(node.op)]()
        swapped = ast.BinOp(node.left, operator, node.right)
        return "operator", f"({ast.unparse(swapped)})", node
    if isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
        operator = OPERATORS[type(node.op)]()
        text = ast.unparse(ast.AugAssign(node.target, operator, node.value))
        return "operator", text, node
    if isinstance(node, ast.BoolOp):
        joint = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return "and or", f"({ast.unparse(ast.BoolOp(joint, node.values))})", node
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        return "sign", f"({ast.unparse(node.operand)})", node
    if isinstance(node, ast.Constant):
        return changed_constant(node)
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Name) and function.id in FUNCTIONS:
            return "function", FUNCTIONS[function.id], function
        if isinstance(function, ast.Attribute) and function.attr in FUNCTIONS:
            owner = ast.unparse(function.value)
            return "function", f"{owner}.{FUNCTIONS[function.attr]}", function
    if isinstance(node, ast.If):
        return "condition", "False", node.test
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return "call", "None", node
    return None


def changed_constant(node: ast.Constant) -> tuple[str, str, ast.AST] | None:
    """A flag is turned, an integer one more, another number half as much again."""
    value = node.value
    if isinstance(value, bool):
        return "flag", str(not value), node
    if isinstance(value, int):
        return "number", str(value + 1), node
    if isinstance(value, float):
        return "number", repr(1.5 * value if value else 1.0), node
    return None


def mutants_of(file: str) -> Iterator[Mutant]:
    """All mutants of a file, in the order of its text."""
    text = (ROOT / file).read_bytes()
    starts = [0]
    for row in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    for function in functions_of(ast.parse(text)):
        for statement, node in nodes_of(function):
            change = changed(node)
            if change is None:
                continue
            kind, after, replaced = change
            line: int = replaced.lineno
            column: int = replaced.col_offset
            end = starts[replaced.end_lineno - 1] + replaced.end_col_offset
            start = starts[line - 1] + column
            yield Mutant(file, line, column, statement.lineno, kind, start, end, after)


def functions_of(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """The functions and methods of a module, without those inside of a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node
        else:
            yield from functions_of(node)


def nodes_of(function: ast.FunctionDef) -> Iterator[tuple[ast.stmt, ast.AST]]:
    """The nodes of a function's body, each with the statement around it.

    Texts, types, decorators and what is raised are left out.
    """
    pending: list[tuple[ast.stmt, ast.AST]] = []
    pending += [(statement, statement) for statement in reversed(function.body)]
    while pending:
        statement, node = pending.pop()
        if isinstance(node, (ast.Raise, ast.JoinedStr)):
            continue
        yield statement, node
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.AnnAssign):
            children.remove(node.annotation)
        if isinstance(node, ast.FunctionDef):
            children = list(node.body)
        for child in reversed(children):
            inside = child if isinstance(child, ast.stmt) else statement
            pending.append((inside, child))


def sample(seed: int, mutants_of_a_part: int) -> Iterator[tuple[str, Mutant]]:
    """So many mutants of each part, drawn without replacement."""
    draw = random.Random(seed)
    for part, patterns in PARTS.items():
        files: list[str] = []
        for pattern in patterns:
            files += [str(path.relative_to(ROOT)) for path in ROOT.glob(pattern)]
        mutants: list[Mutant] = []
        for file in sorted(files):
            mutants += mutants_of(file)
        print(f"{part}: {len(mutants)} mutants", flush=True)
        for mutant in draw.sample(mutants, min(mutants_of_a_part, len(mutants))):
            yield part, mutant


# The tests that execute a line


class Recorder:
    """A plugin of pytest: names what is executed by the test that executes it."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """What a cache has kept is computed anew, so that this test executes it."""
        for name, module in list(sys.modules.items()):
            if name.startswith("privplan"):
                for value in list(vars(module).values()):
                    if hasattr(value, "cache_clear"):
                        value.cache_clear()
        self.coverage.switch_context(nodeid)
        self.seconds[nodeid] = -time.time()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """What follows belongs to no test."""
        self.seconds[nodeid] += time.time()
        self.coverage.switch_context("")


def record_contexts() -> None:
    """Run the tests once and store which of them execute which lines."""
    import coverage

    CONTEXTS.parent.mkdir(exist_ok=True)
    data_file = CONTEXTS.with_suffix(".coverage")
    measured = coverage.Coverage(
        data_file=str(data_file), config_file=False, source=["privplan"]
    )
    recorder = Recorder(measured)
    measured.start()
    outcome = pytest.main(["-q", *OPTIONS, *TESTS], plugins=[recorder])
    measured.stop()
    if outcome != 0:
        sys.exit("the tests fail without a mutant")
    # By their places in ``seconds``, since names would fill a hundred megabytes.
    places = {test: place for place, test in enumerate(recorder.seconds)}
    lines: dict[str, dict[int, list[int]]] = {}
    data = measured.get_data()
    for file in data.measured_files():
        by_line = {}
        for line, tests in data.contexts_by_lineno(file).items():
            by_line[line] = [places[test] for test in tests if test]
        lines[str(Path(file).relative_to(ROOT))] = by_line
    stored = {"seconds": recorder.seconds, "lines": lines}
    CONTEXTS.write_text(json.dumps(stored), encoding="utf-8")


class Contexts:
    """The tests that execute a line, cheapest first."""

    def __init__(self) -> None:
        stored = json.loads(CONTEXTS.read_text(encoding="utf-8"))
        self.seconds: dict[str, float] = stored["seconds"]
        self._names = list(self.seconds)
        self._lines: dict[str, dict[str, list[int]]] = stored["lines"]

    def tests(self, mutant: Mutant) -> list[str]:
        """Those of the changed line or, where it is not counted, of its statement."""
        by_line = self._lines.get(mutant.file, {})
        places = by_line.get(str(mutant.line)) or by_line.get(str(mutant.statement), [])
        tests = [self._names[place] for place in places]
        return sorted(tests, key=lambda test: self.seconds[test])

    def first(self, tests: list[str]) -> list[str]:
        """So many of the cheapest as fit into FIRST_SECONDS."""
        total = 0.0
        cheapest: list[str] = []
        for test in tests:
            total += self.seconds[test]
            if cheapest and total > FIRST_SECONDS:
                break
            cheapest.append(test)
        return cheapest


# The copy in which mutants are planted


def copied(folder: Path) -> Path:
    """Bring a folder of copies of the tracked files up to date."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        target = folder / name
        if not source.is_file():
            target.unlink(missing_ok=True)
        elif not target.exists() or target.stat().st_mtime != source.stat().st_mtime:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return folder


def outcome_of(copy: Path, mutant: Mutant, tests: list[str], seconds: float) -> str:
    """Whether a test fails once the mutant is planted."""
    planted = copy / mutant.file
    text = planted.read_bytes()
    stamp = planted.stat().st_mtime
    after = mutant.after.encode()
    planted.write_bytes(text[: mutant.start] + after + text[mutant.end :])
    # Another second than that of the compiled file, which is then not taken.
    os.utime(planted, (stamp + 1000, stamp + 1000))
    process = multiprocessing.get_context("fork").Process(
        target=run_tests, args=(copy, tests, SLOWER * math.ceil(seconds))
    )
    try:
        process.start()
        process.join(WAITING_SECONDS)
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
            return TIMED_OUT
    finally:
        planted.write_bytes(text)
        os.utime(planted, (stamp, stamp))
    if process.exitcode == -signal.SIGXCPU:
        return TIMED_OUT
    return SURVIVED if process.exitcode == 0 else KILLED


def enter(copy: Path) -> None:
    """Import the product from the copy from now on."""
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path[:] = [str(copy), *(entry for entry in sys.path if entry != str(ROOT))]


class Witness:
    """A plugin of pytest: stores which test has failed."""

    def __init__(self, copy: Path) -> None:
        self.copy = copy

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the name of a test that failed."""
        if report.failed:
            (self.copy / FAILED).write_text(report.nodeid, encoding="utf-8")


def run_tests(copy: Path, tests: list[str], cpu_seconds: int) -> None:
    """Run tests of a copy in this process until one fails, and leave it."""
    os.setpgrp()
    enter(copy)
    # What is compiled of a mutant is not kept.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    limit = cpu_seconds + GRACE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    options = ["-x", "-q", "--tb=no", *OPTIONS]
    outcome = int(pytest.main([*options, *tests], plugins=[Witness(copy)]))
    os._exit(outcome)


def preload(copy: Path) -> None:
    """Import what tests need and no mutant changes, once for all of them.

    It compiles the copy, too.
    """
    folder = os.getcwd()
    enter(copy)
    pytest.main(["-qqq", "--collect-only", *OPTIONS, *TESTS])
    os.chdir(folder)
    for name in list(sys.modules):
        if name.partition(".")[0] in ("privplan", "simulate", "tests"):
            del sys.modules[name]


def ask(
    rows: list[dict[str, Any]],
    path: Path,
    parts: list[str],
    again: bool,
    seconds: float,
) -> None:
    """Fill in the outcomes that rows of these parts lack, and store them one by one.

    None is begun when so many seconds have passed.
    """
    stop = time.time() + seconds
    contexts = Contexts()
    copy = copied(CONTEXTS.parent / path.stem)
    preload(copy)
    # The first of each part, then the second: one that is cut off has asked all parts.
    drawn = defaultdict(list)
    for row in rows:
        drawn[row["part"]].append(row)
    for row in chain.from_iterable(zip_longest(*drawn.values())):
        if row is None:
            continue
        lives = row["outcome"] in (SURVIVED, NO_TEST) and not row["equivalent"]
        if row["outcome"] and not (again and lives):
            continue
        if row["part"] not in parts or time.time() > stop:
            continue
        mutant = row["mutant"]
        tests = contexts.tests(mutant)
        chosen = tests if again else contexts.first(tests)
        started = time.time()
        witness = copy / FAILED
        witness.unlink(missing_ok=True)
        if tests:
            expected = sum(contexts.seconds[test] for test in chosen)
            row["outcome"] = outcome_of(copy, mutant, chosen, expected)
        else:
            row["outcome"] = NO_TEST
        row["killed_by"] = (
            witness.read_text(encoding="utf-8") if witness.exists() else ""
        )
        row["tests"] = len(tests)
        row["asked"] = len(chosen)
        row["seconds"] = round(time.time() - started, 1)
        write(rows, path)
        place = f"{mutant.file}:{mutant.line}"
        print(row["outcome"], place, row["before"], "=>", row["after"], flush=True)


def mutant_key(row: dict[str, Any]) -> tuple[str, ...]:
    """What tells a mutant from all others of its file, wherever its line has moved."""
    fields = ("file", "line", "column", "kind", "before", "after")
    return tuple(str(row[field]) for field in fields)


def rows_of(seed: int, mutants_of_a_part: int, path: Path) -> list[dict[str, Any]]:
    """A row for each mutant of the sample, with the outcome that the file has."""
    stored = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            stored = {mutant_key(row): row for row in csv.DictReader(file)}
    rows = []
    for part, mutant in sample(seed, mutants_of_a_part):
        text = (ROOT / mutant.file).read_bytes()
        before = " ".join(text[mutant.start : mutant.end].decode().split())
        row: dict[str, Any] = dict.fromkeys(FIELDS, "")
        row |= {
            "part": part,
            "file": mutant.file,
            "line": mutant.line,
            "column": mutant.column,
            "kind": mutant.kind,
            "before": before,
            "after": " ".join(mutant.after.split()),
        }
        row |= stored.get(mutant_key(row), {})
        rows.append(row | {"mutant": mutant})
    return rows


def write(rows: list[dict[str, Any]], path: Path) -> None:
    """Store the rows beside the file and rename it."""
    partial = path.with_suffix(".part")
    with partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, FIELDS, extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(rows)
    partial.replace(path)


def show(rows: list[dict[str, Any]]) -> None:
    """Print how many mutants of each part are killed, equivalent, or left."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        outcome = "equivalent" if row["equivalent"] else row["outcome"] or "not asked"
        counts[row["part"]][outcome] += 1
    for part, outcomes in counts.items():
        print(part, dict(outcomes))


def main() -> None:
    """Draw the sample, ask what has no outcome, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=50, help="mutants of each part")
    parser.add_argument("--again", action="store_true", help="ask survivors anew")
    parser.add_argument("--parts", nargs="*", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--minutes", type=float, default=math.inf)
    arguments = parser.parse_args()
    if not CONTEXTS.exists():
        record_contexts()
    rows = rows_of(arguments.seed, arguments.each, arguments.file)
    seconds = 60 * arguments.minutes
    ask(rows, arguments.file, arguments.parts, arguments.again, seconds)
    show(rows)


if __name__ == "__main__":
    main()
