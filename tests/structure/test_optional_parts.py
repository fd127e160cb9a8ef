"""The core does without the optional parts: it neither imports nor names them."""

import ast
import re
from pathlib import Path

from benchmarks import structure

ROOT = Path(__file__).parents[2]
PRODUCT = [name for name in structure.tracked(ROOT) if "/contrib/" not in name]
PARTS = {path.parent.name for path in ROOT.glob("*/contrib/*/__init__.py")}
ORDINARY = {"adapters", "lint", "reproduction", "sensitivity"}
"""Parts whose names are also words of the field."""


def test_the_core_neither_imports_nor_names_an_optional_part():
    words = re.compile(rf"\bcontrib\b|\b({'|'.join(sorted(PARTS - ORDINARY))})\b")
    assert PARTS
    for name in PRODUCT:
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            assert not words.search(line), f"{name}:{number}: {line.strip()}"


def imported(tree):
    """Names of the modules that a file imports, at its top and in functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield str(node.module)


def test_tests_of_the_core_do_not_import_an_optional_part():
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.is_relative_to(ROOT / "tests" / "contrib"):
            continue
        # Most files are not parsed: what one imports stands in it as it is.
        text = path.read_text()
        if "contrib" not in text:
            continue
        for name in imported(ast.parse(text)):
            assert "contrib" not in name.split("."), f"{path}: {name}"
