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

FIELDS = {
    "accountant",
    "epsilon_lower",
    "epsilon_upper",
    "delta",
    "sampling",
    "relation",
    "version",
    "guarantee",
}
MECHANISM = ["--noise-multiplier", "1.5", "--sampling-ratio", "0.02", "--rounds", "50"]
DELTA = ["--delta", "6.98e-5"]
SAMPLED = ["--sampling-ratio", "0.1"]
PLD = accountant("pld")


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def rows(*arguments):
    done = run(*arguments, "--format", "json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_account_shows_accountants_side_by_side():
    done = run("account", *MECHANISM, *DELTA)
    assert done.exit_code == 0, done.stderr
    for name in ("pld", "rdp", "closed_form", "gdp", "guarantee", "about 0.3", "with --all"):
        assert name in done.stdout
    assert "epsilon at delta 6.98e-05, poisson sampling, add_remove" in done.stdout
    assert "closed_form is not a bound here" in done.stderr


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


def test_account_notes_and_choice():
    done = run("account", *MECHANISM, *DELTA, "--relation", "replace_one", "--accountant", "prv")
    assert done.exit_code == 0
    assert "no row: prv: prv-accountant does not cover replace_one" in done.stdout
    everything = rows("account", *MECHANISM, *DELTA, "--all")
    assert {"prv", "dp_accounting"} <= {row["accountant"] for row in everything}


def test_clients_suggest_delta_and_check_the_cohort():
    found = rows("account", *MECHANISM, "--clients", 6000, "--accountant", "rdp")
    assert found[0]["delta"] == pytest.approx(6000**-1.1)
    keep = ["--accountant", "rdp", "--clients", 110]
    done = run("account", *MECHANISM, "--delta", "0.01", "--sampling", "fixed_size", *keep)
    assert "delta 0.01 is not below 1/clients" in done.stderr
    assert "a cohort of 2.2 of 110 clients is not whole" in done.stderr


@pytest.mark.parametrize(
    ("solve_for", "given"),
    [
        ("noise_multiplier", ["--sampling-ratio", 0.02, "--rounds", 50]),
        ("sampling_ratio", ["--noise-multiplier", 1.5, "--rounds", 50]),
        ("rounds", ["--noise-multiplier", 1.5, "--sampling-ratio", 0.02]),
        ("cohort", ["--noise-multiplier", 1.5, "--rounds", 50, "--clients", 6000]),
    ],
)
def test_calibrate_each_unknown(solve_for, given):
    arguments = ["--epsilon", 0.5, *DELTA, "--solve-for", solve_for, *given]
    found = rows("calibrate", *arguments)
    guarantee = next(row for row in found if row["guarantee"])
    assert guarantee["epsilon_upper"] <= 0.5
    assert guarantee["solved_for"] == solve_for
    assert guarantee["value"] > 0
    assert set(guarantee) >= FIELDS
    shown = run("calibrate", *arguments)
    assert shown.stdout.startswith(f"{solve_for}: ")


@pytest.mark.parametrize(("epsilon", "least"), [(3000, True), (3, False)])
def test_calibrate_says_when_a_budget_allows_less_noise_than_can_be_certified(epsilon, least):
    arguments = ["--epsilon", epsilon, "--delta", 1e-5, "--sampling-ratio", 0.04, "--rounds", 30]
    done = run("calibrate", *arguments)
    assert done.exit_code == 0
    said = (
        "noise_multiplier: 0.050005 is the least that can be calibrated by pld here; it spends 15"
    )
    assert (said in done.stderr) == least
    assert done.stdout.startswith("noise_multiplier: 0.050005 ") == least


def test_calibrate_offers_every_unknown():
    assert tuple(UNKNOWNS) == calibrate.UNKNOWNS


def test_calibrate_delta():
    found = rows("calibrate", "--epsilon", 0.5, "--solve-for", "delta", *MECHANISM)
    guarantee = next(row for row in found if row["guarantee"])
    assert guarantee["epsilon_upper"] <= 0.5
    assert guarantee["delta"] == pytest.approx(guarantee["value"])


def test_infeasible_is_one_line_and_exit_code_3():
    done = run(
        "calibrate", "--epsilon", 1e-5, "--delta", 1e-10, "--sampling-ratio", 1, "--rounds", 1000
    )
    assert done.exit_code == 3
    assert len(done.stderr.strip().splitlines()) == 1
    assert "noise_multiplier: none in [0.01, 10000] can meet epsilon 1e-05" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["account", *MECHANISM], "delta: must be given"),
        (["account", *MECHANISM, "--delta", "2"], "delta: must be in [1e-30, 1), found 2.0"),
        (["account", "--rounds", "5", *DELTA], "noise-multiplier"),
        (
            ["account", *DELTA, *SAMPLED, "--noise-multiplier", "0", "--rounds", "5"],
            "noise_multiplier: must be in [1e-30, 1e+40]",
        ),
        (
            ["account", *DELTA, "--noise-multiplier=1", "--sampling-ratio=1e-320", "--rounds=5"],
            "sampling_ratio: must be in [1e-30, 1], found 1e-320",
        ),
        (
            ["account", *DELTA, *SAMPLED, "--noise-multiplier", "1", "--rounds", 10**7 + 1],
            "rounds: must be in [1, 10000000], found 10000001",
        ),
        (["account", *MECHANISM, *DELTA, "--accountant", "moments"], "must be one of pld, rdp"),
        (["account", *MECHANISM, *DELTA, "--sampling", "full"], "must be 1 under full"),
        (["account", *MECHANISM, *DELTA, "--clients", "0"], "clients: must be 1 or more"),
        (
            ["calibrate", "--epsilon", "1", *DELTA, "--rounds", "5"],
            "sampling_ratio: must be given to solve for noise_multiplier",
        ),
        (
            ["calibrate", "--epsilon", "-1", *DELTA, "--rounds", "5", "--sampling-ratio", "1"],
            "epsilon: must be positive and finite, found -1.0",
        ),
        (
            ["calibrate", "--epsilon", "1", *DELTA, *MECHANISM],
            "noise_multiplier: must not be given when it is the unknown",
        ),
        (["account", *MECHANISM, *DELTA, "--tradeoff", "curve.doc"], "must end in .png"),
        (
            ["account", *MECHANISM, *DELTA, "--all", "--tradeoff"],
            "all: cannot go with --tradeoff, found 'True'",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, found):
    done = run(*arguments)
    assert done.exit_code == 2
    assert found in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


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
