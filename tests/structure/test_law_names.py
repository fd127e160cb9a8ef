"""A sampling law states its own behaviour: other files ask it, and do not name it."""

import ast
import re
from pathlib import Path

from privplan.laws.law import FAMILIES, LAWS

ROOT = Path(__file__).parents[2]
MAX_FILES = 3
"""Files outside ``privplan/laws`` that may name a law whose rounds are not all alike."""
ORDINARY = {"full", "poisson", "fixed_size"}
"""Laws of independent rounds of all clients, which are defaults and choices of users."""


def _named(tree):
    """Identifiers and texts of a module, without docstrings."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name):
                names.add(name)
            case ast.ImportFrom(module=str(name)):
                names.add(name)
            case ast.keyword(arg=str(name)) | ast.arg(arg=name):
                names.add(name)
            case ast.Constant(value=str(name)) if node not in texts:
                names.add(name)
    return names


def test_few_files_name_the_special_case_of_a_law():
    special = {*FAMILIES, *(set(LAWS.names()) - ORDINARY)}
    assert "cyclic_poisson" in special
    words = "|".join(["in_turns", "banded", "cyclic", *sorted(special)])
    special_name = re.compile(rf"^turns$|{words}")
    # Most files are not parsed: an identifier or a text stands in the file as it is.
    mention = re.compile(rf"\bturns\b|{words}")

    naming_files = []
    files = [*(ROOT / "privplan").rglob("*.py"), *(ROOT / "simulate").rglob("*.py")]
    for path in files:
        # The proof shares no code, so it names what it proves.
        if path == ROOT / "privplan" / "proof.py":
            continue
        if path.is_relative_to(ROOT / "privplan" / "laws"):
            continue
        text = path.read_text(encoding="utf-8")
        if not mention.search(text):
            continue
        if any(map(special_name.search, _named(ast.parse(text)))):
            naming_files.append(str(path.relative_to(ROOT)))
    assert len(naming_files) <= MAX_FILES, sorted(naming_files)
