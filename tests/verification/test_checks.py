"""The registry of checks: their order in a verdict, and checks of other distributions."""

import json

import pytest
from click.testing import CliRunner

from privplan.cli import main
from privplan.registry import Registry
from privplan.verification.checks import check as checks
from privplan.verification.checks.check import RunCheck
from tests.verification import honest_run

NAMES = [
    "plan", "ledger", "groups", "rounds", "clipping", "coordinates", "noise planned",
    "noise drawn", "noise fresh", "sums", "sampling law", "cohorts",
    "participation", "weights", "replay", "audit", "budget",
]  # fmt: skip
OPTIONAL = ["replay", "audit"]
"""Checks whose evidence a run does not need for its verdict."""
PASSED = [name for name in NAMES if name not in OPTIONAL]


def few_releases(run):
    """Fails: an honest run has one release per round and group."""
    found = len(run.ledger.records)
    return checks.failed("few releases", f"{found} releases, at most 9")


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """A registry of its own for each test, with the checks of this project."""
    fresh = Registry[RunCheck](
        "check", "privplan.checks", "privplan.verification.checks", checks._as_check
    )
    for name, one in checks.CHECKS.items():
        if name in NAMES:
            fresh.register(name, one)
    monkeypatch.setattr(checks, "CHECKS", fresh)
    return fresh


def verified(folder):
    """Exit code, rows of the verdict, and standard error of ``privplan verify``."""
    honest_run.write_run(folder)
    done = CliRunner().invoke(
        main, ["verify", "--rounds=0", "--details", str(folder), "--format", "json"]
    )
    rows = json.loads(done.stdout)["checks"] if done.stdout else []
    return done.exit_code, [(row["name"], row["outcome"]) for row in rows], done.stderr


def test_checks_are_listed_in_their_order(tmp_path):
    code, rows, _ = verified(tmp_path)
    assert code == 0
    assert [name for name, _ in rows] == NAMES
    assert [name for name, outcome in rows if outcome == "not shown"] == OPTIONAL


@pytest.mark.parametrize(("order", "place"), [(checks.LAST, 15), (15, 1)])
def test_a_registered_check_is_part_of_the_verdict(order, place, registry, tmp_path):
    registry.register("few releases", RunCheck(few_releases, order))
    code, rows, _ = verified(tmp_path)
    assert code == 4
    assert rows[place] == ("few releases", "failed")
    assert [name for name, outcome in rows if outcome == "passed"] == PASSED
