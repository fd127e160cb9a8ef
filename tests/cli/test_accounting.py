"""The accounting commands: account, calibrate, tradeoff."""

import json

import pytest

from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import UNKNOWNS
from privplan.accounting.release import History, Relation, Release
from privplan.cli import account as calibrate
from tests.command import answer, privplan

FIELDS = {"accountant", "epsilon_lower", "epsilon_upper", "delta", "sampling", "relation",
          "version", "guarantee"}  # fmt: skip
MECHANISM = ["--noise-multiplier", "1.5", "--sampling-ratio", "0.02", "--rounds", "50"]
DELTA = ["--delta", "6.98e-5"]


def test_account_json_rows():
    found = json.loads(answer("account", *MECHANISM, *DELTA, "--format", "json"))
    assert all(set(row) >= FIELDS for row in found)
    by_name = {row["accountant"]: row for row in found}
    assert by_name["pld"]["guarantee"] is True
    assert not any(row["guarantee"] for name, row in by_name.items() if name != "pld")
    truth = accountant("pld").epsilon(
        History.repeated(Release(1.5, 0.02), 50), 6.98e-5, Relation.ADD_REMOVE
    )
    assert by_name["pld"]["epsilon_upper"] == truth.upper
    assert by_name["pld"]["epsilon_upper"] < by_name["rdp"]["epsilon_upper"]


@pytest.mark.parametrize(("epsilon", "least"), [(3000, True), (3, False)])
def test_calibrate_says_when_a_budget_allows_less_noise_than_can_be_certified(epsilon, least):
    arguments = ["--epsilon", epsilon, "--delta", 1e-5, "--sampling-ratio", 0.04, "--rounds", 30]
    done = privplan("calibrate", *arguments)
    assert done.exit_code == 0
    assert ("0.050005 is the least that can be calibrated by pld here" in done.stderr) == least
    assert done.stdout.startswith("noise_multiplier: 0.050005 ") == least


def test_calibrate_offers_every_unknown():
    assert tuple(UNKNOWNS) == calibrate.UNKNOWNS
