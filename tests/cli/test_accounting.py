"""The accounting commands: account, calibrate, tradeoff."""

import json
import math

import pytest
from click.testing import CliRunner

from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import UNKNOWNS
from privplan.accounting.release import History, Relation, Release
from privplan.cli import account as calibrate
from privplan.cli import main

FIELDS = {"accountant", "epsilon_lower", "epsilon_upper", "delta", "sampling", "relation",
          "version", "guarantee"}  # fmt: skip
MECHANISM = ["--noise-multiplier", "1.5", "--sampling-ratio", "0.02", "--rounds", "50"]
DELTA = ["--delta", "6.98e-5"]
PLD = accountant("pld")


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def rows(*arguments):
    done = run(*arguments, "--format", "json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_account_json_rows():
    found = rows("account", *MECHANISM, *DELTA)
    assert all(set(row) >= FIELDS for row in found)
    by_name = {row["accountant"]: row for row in found}
    assert by_name["pld"]["guarantee"] is True
    assert not any(row["guarantee"] for name, row in by_name.items() if name != "pld")
    truth = PLD.epsilon(History.repeated(Release(1.5, 0.02), 50), 6.98e-5, Relation.ADD_REMOVE)
    assert by_name["pld"]["epsilon_upper"] == truth.upper
    assert by_name["pld"]["epsilon_upper"] < by_name["rdp"]["epsilon_upper"]


def test_account_under_other_laws_and_relations():
    fixed = rows(
        "account", *MECHANISM, *DELTA, "--sampling", "fixed_size", "--relation", "replace_one"
    )
    assert {row["sampling"] for row in fixed} == {"fixed_size"}
    assert {row["relation"] for row in fixed} == {"replace_one"}
    arguments = ["--noise-multiplier", 2, "--rounds", 10, "--delta", "1e-5", "--sampling", "full"]
    for relation, exact in (("add_remove", 7.5113), ("replace_one", 17.8566)):
        found = rows("account", *arguments, "--relation", relation, "--accountant", "pld")
        assert found[0]["epsilon_upper"] == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(
    ("solve_for", "given"),
    [
        ("noise_multiplier", ["--sampling-ratio", 0.02, "--rounds", 50, *DELTA]),
        ("sampling_ratio", ["--noise-multiplier", 1.5, "--rounds", 50, *DELTA]),
        ("rounds", ["--noise-multiplier", 1.5, "--sampling-ratio", 0.02, *DELTA]),
        ("cohort", ["--noise-multiplier", 1.5, "--rounds", 50, "--clients", 6000, *DELTA]),
        ("delta", MECHANISM),
    ],
)
def test_calibrate_each_unknown(solve_for, given):
    found = rows("calibrate", "--epsilon", 0.5, "--solve-for", solve_for, *given)
    guarantee = next(row for row in found if row["guarantee"])
    assert guarantee["epsilon_upper"] <= 0.5
    assert guarantee["solved_for"] == solve_for
    assert guarantee["value"] > 0
    assert guarantee.get(solve_for, guarantee["value"]) == pytest.approx(guarantee["value"])
    assert set(guarantee) >= FIELDS


@pytest.mark.parametrize(("epsilon", "least"), [(3000, True), (3, False)])
def test_calibrate_says_when_a_budget_allows_less_noise_than_can_be_certified(epsilon, least):
    arguments = ["--epsilon", epsilon, "--delta", 1e-5, "--sampling-ratio", 0.04, "--rounds", 30]
    done = run("calibrate", *arguments)
    assert done.exit_code == 0
    assert ("0.050005 is the least that can be calibrated by pld here" in done.stderr) == least
    assert done.stdout.startswith("noise_multiplier: 0.050005 ") == least


def test_calibrate_offers_every_unknown():
    assert tuple(UNKNOWNS) == calibrate.UNKNOWNS


def test_tradeoff_reads_the_attackers_power(tmp_path):
    curve = tmp_path / "curve.png"
    done = run("account", *MECHANISM, *DELTA, "--tradeoff", curve)
    assert done.exit_code == 0, done.stderr
    assert curve.read_bytes().startswith(b"\x89PNG")
    assert "advantage, at most" in done.stdout
    (row,) = rows("account", "--tradeoff", *MECHANISM, *DELTA)
    assert set(row) >= FIELDS | {"gdp_mu", "advantage", "tpr_at_fpr_0.01"}
    assert 0.01 < row["tpr_at_fpr_0.01"] < 0.01 * math.exp(row["epsilon_upper"]) + row["delta"]


def test_tradeoff_of_a_gaussian_is_exact():
    # One full release: mu = 1 / sigma, the best attack has rate Phi(Phi^-1(a) + mu).
    from scipy.special import ndtr, ndtri

    release = ["--noise-multiplier", 2, "--rounds", 1, "--delta", 1e-5, "--sampling", "full"]
    (row,) = rows("account", "--tradeoff", *release)
    assert row["gdp_mu"] == pytest.approx(0.5, rel=2e-3)
    assert row["advantage"] == pytest.approx(2 * ndtr(0.25) - 1, rel=2e-3)
    assert row["tpr_at_fpr_0.1"] == pytest.approx(ndtr(ndtri(0.1) + 0.5), rel=5e-3)
