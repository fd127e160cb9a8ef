"""The table of accountants is complete, lazy, and its members keep the protocol."""

import ast
from pathlib import Path

import pytest

import privplan.accounting
from privplan.accounting.accountant import (
    ACCOUNTANTS,
    accountant,
    fast_accountants,
    second_opinions,
)
from privplan.accounting.release import History, Relation, Release
from privplan.errors import InputError

FOLDER = Path(privplan.accounting.__file__).parent


def accountants_on_disk():
    """Names of the classes in the package that have the protocol's methods."""
    found = set()
    for file in FOLDER.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                if {"why_not", "epsilon"} <= methods and "Protocol" not in bases:
                    found.add(node.name)
    return found


def test_every_accountant_is_in_the_table():
    assert accountants_on_disk() == {type(one).__name__ for _, one in ACCOUNTANTS.items()}


@pytest.mark.parametrize("name", ACCOUNTANTS.names())
def test_members_keep_the_protocol(name):
    one = accountant(name)
    assert one.name == name
    assert one.kind in (
        "two-sided bound",
        "upper bound",
        "second opinion",
        "approximation",
        "published formula",
    )
    assert isinstance(one.version, str)
    assert isinstance(one.guarantee, bool)
    history = History.repeated(Release(1.5, 0.02), 50)
    if one.why_not(history, Relation.ADD_REMOVE) is None:
        bounds = one.epsilon(history, 1e-5, Relation.ADD_REMOVE)
        assert 0 <= bounds.lower <= bounds.upper < 3
    with pytest.raises(InputError, match="delta: must be in"):
        one.epsilon(history, 0.0, Relation.ADD_REMOVE)


def test_tables_list_the_strongest_bounds_first():
    names = ("pld", "rdp", "closed_form", "gdp", "prv", "dp_accounting", "opacus")
    assert ACCOUNTANTS.names() == names
    assert fast_accountants() == list(names[:4])
    assert second_opinions() == list(names[4:])


def test_exactly_one_accountant_carries_the_guarantee():
    assert [name for name in ACCOUNTANTS if accountant(name).guarantee] == ["pld"]
