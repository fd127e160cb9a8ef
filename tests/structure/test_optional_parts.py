"""The core does without the optional parts: it neither imports nor names one of them."""

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
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in PRODUCT
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if words.search(line)
    ]
    assert PARTS
    assert found == []


def test_tests_of_the_core_do_not_import_an_optional_part():
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.is_relative_to(ROOT / "tests" / "contrib"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [one.name for one in node.names] if isinstance(node, ast.Import) else []
            )
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            found += [
                f"{path}: {name}" for name in names if "contrib" in name.split(".")
            ]
    assert found == []
