"""The structure of a checkout: files, what a command enters, cycles, upward imports.

Size: lines and files of Python in ``privplan`` and ``simulate`` that git tracks.

Entered: ``init --preset digits``, then the ``COMMANDS``, each in a fresh process with a
profile function for all its threads, from when ``privplan.cli`` is imported. ``files``
are the files of the project of which any code but the module's body is entered, so one
whose classes are merely defined counts; of ``function_files`` a function is entered.
``functions`` are distinct functions, methods, lambdas, comprehensions and generators,
not bodies of classes. Child processes and what dataclasses and pydantic generate do not
count.

Imports: read from the source, not run; module names in strings are not seen, and
importing a module does not count as importing the packages around it. ``run`` imports
are carried out when a module loads, ``function`` imports when a function is called,
``typing`` imports never. A cycle is a set of modules that all reach each other. An
import is upward when it goes from privplan to simulate, or from a lower layer of
privplan to a higher one.

Tokens: names, operators and literals of Python code, by folder; an f-string is one
literal. No comment, docstring, bracket, comma, colon or line break counts, so that no
layout saves one. ``--record`` writes the totals that ``tests/structure`` allows to grow
by 3%.

    python benchmarks/structure.py [--repo DIR] [--json]
    python benchmarks/structure.py --tokens [--repo DIR] [--json] [--record]
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PRODUCT = ("privplan/*.py", "simulate/*.py")
# Lines of a file that count as few, and as many.
SHORT = 40
LONG = 300
# From the lowest to the highest, by the first name below privplan.
LAYERS = [
    "vocabulary errors distribution guidance values presenter names registry files"
    " file_kinds yaml_text secret_files limits processes clusters sweeps threads visible proof",
    "laws accounting",
    "spec plan promise record line_rules configuration ledger witness evidence releases"
    " streams secure_stream discrete_gaussian public_data",
    "planning proven",
    "forecast",
    "verification attacked auditing folder bundle publishing book",
    "guard",
    "report",
    "api",
    "cli __main__",
    "contrib",
]
LAYER: dict[str, int] = {}
for _layer, _names in enumerate(LAYERS):
    LAYER.update(dict.fromkeys(_names.split(), _layer))
COMMANDS = {
    "solve": "solve spec.yaml --format json -o plan.json",
    "simulate": "simulate plan.json --algorithm planned --dataset digits --seed 1 -o run",
    "verify": "verify run --rounds 0",
}
KINDS = ("run", "function", "typing")
# Arguments: the root of the checkout, where to write, and the command.
TRACED = """
import atexit, inspect, json, sys, threading
from privplan.cli import main

root, out = sys.argv[1:3]
codes = {}

def enter(frame, event, argument):
    if event == "call":
        codes[id(frame.f_code)] = frame.f_code

def write():
    sys.setprofile(None)
    own = [code for code in list(codes.values())
       if code.co_filename.startswith((root + "privplan", root + "simulate"))]
    own = [code for code in own if code.co_name != "<module>"]
    functions = [code for code in own if code.co_flags & inspect.CO_OPTIMIZED]
    counts = {
        "files": len({code.co_filename for code in own}),
        "function_files": len({code.co_filename for code in functions}),
        "functions": len(functions),
    }
    with open(out, "w") as file:
        json.dump(counts, file)

atexit.register(write)
threading.setprofile(enter)
sys.setprofile(enter)
main(args=sys.argv[3:], prog_name="privplan")
"""


@dataclass(frozen=True)
class Import:
    """An import of a module of the project by another; the kind is one of ``KINDS``."""

    source: str
    target: str
    kind: str


def tracked(repo: Path) -> list[str]:
    """The product's Python files that git tracks, relative to the checkout.

    A file that was removed from the disk does not count.
    """
    listed = subprocess.check_output(
        ["git", "ls-files", "-z", *PRODUCT], cwd=repo, text=True
    )
    return [name for name in listed.split("\0") if name and (repo / name).is_file()]


def size(repo: Path, files: list[str]) -> dict[str, int]:
    """Lines, files, short files and long files."""
    lines = [len((repo / name).read_bytes().splitlines()) for name in files]
    return {
        "files": len(files),
        "lines": sum(lines),
        f"files_under_{SHORT}": sum(count < SHORT for count in lines),
        f"files_above_{LONG}": sum(count > LONG for count in lines),
    }


def entered(repo: Path) -> dict[str, dict[str, int]]:
    """What each command enters, one process per command, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        _write_metadata(repo, Path(folder))
        _counts(repo, folder, "init", "init --preset digits -o spec.yaml")
        return {
            name: _counts(repo, folder, name, line) for name, line in COMMANDS.items()
        }


def _write_metadata(repo: Path, folder: Path) -> None:
    """Make the entry points of a checkout those that Python sees.

    They come before those of the checkout that is installed.
    """
    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    metadata = folder / f"{project['name']}-{project['version']}.dist-info"
    metadata.mkdir()
    about = f"Name: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(about)
    with (metadata / "entry_points.txt").open("w") as file:
        for group, entry_points in project.get("entry-points", {}).items():
            file.write(f"[{group}]\n")
            for name, value in entry_points.items():
                file.write(f"{name} = {value}\n")


def _counts(repo: Path, folder: str, name: str, line: str) -> dict[str, int]:
    """What a command line enters."""
    path = f"{folder}{os.pathsep}{repo}"
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    out = Path(folder, f"{name}.counts")
    root = f"{repo}{os.sep}"
    done = subprocess.run(
        [sys.executable, "-c", TRACED, root, str(out), *line.split()],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"privplan {line}: exit code {done.returncode}\n{done.stderr}")
    counts: dict[str, int] = json.loads(out.read_text())
    return counts


def statements(node: ast.AST, kind: str = "run") -> Iterator[tuple[ast.AST, str]]:
    """Every import statement below a node, with its kind."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, kind
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith(
            "TYPE_CHECKING"
        ):
            yield from statements(ast.Module(child.body, []), "typing")
            yield from statements(ast.Module(child.orelse, []), kind)
        else:
            called = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from statements(
                child, "function" if called and kind == "run" else kind
            )


def imports(repo: Path, files: list[str]) -> set[Import]:
    """Every import between modules of the project."""
    stems = {name: name.removesuffix(".py").removesuffix("/__init__") for name in files}
    modules = {stem.replace("/", "."): name for name, stem in stems.items()}
    all_imports: set[Import] = set()
    for module, name in modules.items():
        package = module if name.endswith("/__init__.py") else module.rpartition(".")[0]
        for statement, kind in statements(ast.parse((repo / name).read_bytes())):
            for target in _targets(statement, package, modules):
                if target in modules and target != module:
                    all_imports.add(Import(module, target, kind))
    return all_imports


def _targets(
    statement: ast.AST, package: str, modules: Mapping[str, str]
) -> Iterator[str]:
    """Names of the modules that a statement of a package imports."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        base: list[str] = []
        if statement.level:
            # One dot is the package itself, each further one the package around it.
            parts = package.split(".")
            base = parts[: len(parts) + 1 - statement.level]
        if statement.module:
            base.append(statement.module)
        source = ".".join(base)
        for alias in statement.names:
            # ``from package import name``: a module, or something in the package.
            target = f"{source}.{alias.name}"
            yield target if target in modules else source


def cycles(edges: set[tuple[str, str]]) -> list[list[str]]:
    """The sets of two modules or more that all reach each other, largest first."""
    onward: dict[str, set[str]] = {}
    for source, target in edges:
        onward.setdefault(source, set()).add(target)
    reached: dict[str, set[str]] = {}
    for start in onward:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            fresh = onward.get(waiting.pop(), set()) - seen
            seen |= fresh
            waiting += fresh
        reached[start] = seen
    rings: set[tuple[str, ...]] = set()
    for start, seen in reached.items():
        ring = sorted(module for module in seen if start in reached.get(module, ()))
        if ring:
            rings.add(tuple(ring))
    return sorted(map(list, rings), key=lambda ring: (-len(ring), ring))


def layer_of(module: str) -> int | None:
    """The layer of a module of privplan; None where it has none."""
    return LAYER.get(module.split(".")[1]) if module.startswith("privplan.") else None


def upward(all_imports: set[Import]) -> dict[str, list[str]]:
    """Imports from privplan to simulate and from a lower layer to a higher one."""
    outward = []
    higher = []
    for link in sorted(all_imports, key=_kind_and_modules):
        line = f"{link.source} -> {link.target} ({link.kind})"
        low = layer_of(link.source)
        high = layer_of(link.target)
        if link.source.startswith("privplan") and link.target.startswith("simulate"):
            outward.append(line)
        elif low is not None and high is not None and low < high:
            higher.append(line)
    return {"privplan_to_simulate": outward, "to_a_higher_layer": higher}


def _kind_and_modules(link: Import) -> tuple[int, str, str]:
    return KINDS.index(link.kind), link.source, link.target


def measure(repo: Path) -> dict[str, Any]:
    """Everything that this script measures of a checkout."""
    files = tracked(repo)
    all_imports = imports(repo, files)

    # Cycles of the imports of the first kind, of the first two, and of all.
    rings: dict[str, list[list[str]]] = {}
    for count, kind in enumerate(KINDS, 1):
        edges = {
            (link.source, link.target)
            for link in all_imports
            if link.kind in KINDS[:count]
        }
        rings[kind if count == 1 else f"with_{kind}"] = cycles(edges)

    modules = {link.source for link in all_imports}
    modules |= {link.target for link in all_imports}
    of_privplan = [module for module in modules if module.startswith("privplan.")]
    without_layer = [module for module in of_privplan if layer_of(module) is None]
    return {
        "size": size(repo, files),
        "entered": entered(repo),
        "cycles": rings,
        "upward": upward(all_imports),
        "without_layer": sorted(without_layer),
    }


# Code tokens: what a reader must understand, however it is laid out.

PARTS = ("core", "optional parts", "tests")
RECORDED_TOKENS = Path("tests") / "structure" / "code_tokens.json"


def part_of(name: str) -> str:
    """The part of the project to which a file belongs.

    Tests of optional parts belong to these.
    """
    if "contrib" in Path(name).parts:
        return "optional parts"
    return "tests" if name.startswith("tests/") else "core"


# Brackets, commas and colons, whose number follows the layout.
LAYOUT_TOKENS = frozenset("()[]{},:")
# The tokens of Python, as ``tokenize`` has them at a tenth of its time. A text with a
# prefix, an f-string included, is one token, and so is a number with its letters.
_TOKEN = re.compile(
    r"""
    (?P<text>
        (?i:[rbuf]|br|rb|fr|rf)?
        (?: \"{3} (?:[^"\\]|\\.|"(?!""))* \"{3}
          | '{3} (?:[^'\\]|\\.|'(?!''))* '{3}
          | " (?:[^"\\\n]|\\.)* "
          | ' (?:[^'\\\n]|\\.)* '
        )
    )
  | (?P<comment> \#[^\n]*)
  | (?P<word>
        (?:\d|\.\d) (?:[eE][-+]|[\w.])*
      | \w+
      | \.\.\. | -> | := | (?: \*\* | // | << | >> | [-+*/%&|^@=<>!]) =?
      | [()\[\]{},:;.~]
    )
    """,
    re.VERBOSE | re.DOTALL,
)


def code_tokens(text: str) -> int:
    """The number of names, operators and literals in the text of a Python file."""
    documented: set[int] = set()
    # Only statements, which makes this the quicker.
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        for arm in ("body", "orelse", "finalbody", "handlers", "cases"):
            statements_of_arm = getattr(node, arm, [])
            # The arms of a conditional expression are no lists.
            if isinstance(statements_of_arm, list):
                waiting += statements_of_arm
        # A string that is a statement of its own documents what stands around it.
        text_alone = node.value if isinstance(node, ast.Expr) else None
        if isinstance(text_alone, ast.Constant) and isinstance(text_alone.value, str):
            documented |= set(
                range(text_alone.lineno, (text_alone.end_lineno or 0) + 1)
            )
    count = 0
    line = 1
    position = 0
    for token in _TOKEN.finditer(text):
        line += text.count("\n", position, token.start())
        position = token.start()
        if token["text"]:
            count += line not in documented
        elif token["word"]:
            count += token["word"] not in LAYOUT_TOKENS
    return count


def tokens_by_folder(repo: Path) -> dict[str, dict[str, int]]:
    """The code tokens of each part of the project, by folder."""
    command = ["git", "ls-files", "-z", "privplan/*.py", "simulate/*.py", "tests/*.py"]
    listed = subprocess.check_output(command, cwd=repo, text=True)
    folders: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    for name in filter(None, listed.split("\0")):
        path = repo / name
        if path.is_file():
            # Its folder, of which at most two levels are told apart.
            folder = "/".join(name.split("/")[:-1][:2])
            count = code_tokens(path.read_text(encoding="utf-8"))
            folders[part_of(name)][folder] += count
    return {part: dict(sorted(counts.items())) for part, counts in folders.items()}


def show_tokens(repo: Path, as_json: bool, record: bool) -> None:
    """Print the code tokens of a checkout, and store their totals to record them."""
    by_folder = tokens_by_folder(repo)
    totals = {part: sum(counts.values()) for part, counts in by_folder.items()}
    if record:
        (repo / RECORDED_TOKENS).write_text(json.dumps(totals, indent=1) + "\n")
    if as_json:
        print(json.dumps({"totals": totals, "folders": by_folder}, indent=1))
        return
    for part, counts in by_folder.items():
        print(f"{part:32}{totals[part]:9}")
        for folder, count in counts.items():
            print(f"  {folder:30}{count:9}")


def main() -> None:
    """Measure a checkout and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repo", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tokens", action="store_true", help="count tokens instead")
    parser.add_argument(
        "--record", action="store_true", help="store the totals of --tokens"
    )
    options = parser.parse_args()
    if options.tokens:
        show_tokens(options.repo.resolve(), options.json, options.record)
        return
    measured = measure(options.repo.resolve())
    if options.json:
        print(json.dumps(measured, indent=1))
    else:
        show(measured)


def show(measured: Mapping[str, Any]) -> None:
    """Print what was measured as a table."""
    for name, count in measured["size"].items():
        print(f"{name.replace('_', ' '):16}{count:8}")
    print(f"\n{'entered by':16}{'files':>8}{'function files':>16}{'functions':>11}")
    for command, counts in measured["entered"].items():
        files, function_files, functions = counts.values()
        print(f"{command:16}{files:8}{function_files:16}{functions:11}")
    for kind, rings in measured["cycles"].items():
        print(f"\nimport cycles, {kind.replace('_', ' ')} imports: {len(rings)}")
        print("".join(f"  {len(ring)}: {' '.join(ring)}\n" for ring in rings), end="")
    lists = {**measured["upward"], "without_layer": measured["without_layer"]}
    for name, lines in lists.items():
        print(f"\n{name.replace('_', ' ')}: {len(lines)}", *lines, sep="\n  ")


if __name__ == "__main__":
    main()
