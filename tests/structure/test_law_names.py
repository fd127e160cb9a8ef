"""A sampling law states its own behaviour: other files ask it, and do not name it."""

import ast
import re
from pathlib import Path

from privplan.laws.law import FAMILIES, LAWS

ROOT = Path(__file__).parents[2]
MOST = 3  # files outside ``privplan/laws`` that may name a law whose rounds are not all alike
ORDINARY = {"full", "poisson", "fixed_size"}
"""Laws of independent rounds of all clients, which are defaults and choices of users."""


def _named(tree):
    """Identifiers and texts of a module, without docstrings."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name):
                found.add(name)
            case ast.ImportFrom(module=str(name)):
                found.add(name)
            case ast.keyword(arg=str(name)) | ast.arg(arg=name):
                found.add(name)
            case ast.Constant(value=str(name)) if node not in texts:
                found.add(name)
    return found


def test_few_files_name_the_special_case_of_a_law():
    special = {*FAMILIES, *(set(LAWS.names()) - ORDINARY)}
    assert "cyclic_poisson" in special
    named = re.compile(
        "|".join([r"^turns$", "in_turns", "banded", "cyclic", *sorted(special)])
    )
    files = [
        path
        for part in ("privplan", "simulate")
        for path in (ROOT / part).rglob("*.py")
    ]
    found = [
        str(path.relative_to(ROOT))
        for path in sorted(files)
        if not path.is_relative_to(ROOT / "privplan" / "laws")
        and path
        != ROOT / "privplan" / "proof.py"  # shares no code, so it names what it proves
        and any(map(named.search, _named(ast.parse(path.read_text(encoding="utf-8")))))
    ]
    assert len(found) <= MOST, found
