"""Frontiers: directions that must hold, and the command."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan.cli import main
from privplan.planning.choices import decide_free_choices
from privplan.planning.frontier import FrontierPoint, frontier
from privplan.spec.spec import Spec
from tests.planning.problems import make_spec, spec_data

PLANNING = {"accountant": "rdp", "ratios": "balanced"}


@pytest.fixture(scope="module")
def answers() -> list[FrontierPoint]:
    return frontier(make_spec(planning=PLANNING))


def noises(answers: list[FrontierPoint], question: str) -> list[float]:
    return [a.noise for a in answers if a.question == question and a.noise is not None]


def test_more_rounds_more_noise_more_clients_less_more_budget_less(
    answers: list[FrontierPoint],
) -> None:
    assert noises(answers, "rounds") == sorted(noises(answers, "rounds"))
    assert noises(answers, "cohort") == sorted(noises(answers, "cohort"), reverse=True)
    assert noises(answers, "epsilon") == sorted(noises(answers, "epsilon"), reverse=True)


def test_free_rounds_and_cohort_are_decided_first() -> None:
    data = spec_data(planning={"accountant": "rdp", "max_uploads": 600})
    del data["clipping_norm"]
    data["planning"]["free"] = ["ratios", "weights", "rounds", "cohort"]
    spec = Spec.parse(data)
    decided = decide_free_choices(spec)[0]
    assert decided.rounds != spec.rounds
    found = {one.what: one for one in frontier(spec) if one.question == "rounds"}
    own = found[str(decided.rounds)]
    assert own.change == pytest.approx(0, abs=1e-9)
    assert own.note == ""
    assert found[str(2 * decided.rounds)].note == "beyond planning.max_uploads: 600"


def test_every_group_has_a_shadow_price_below_zero(answers: list[FrontierPoint]) -> None:
    prices = {a.what: a.change for a in answers if a.question == "shadow_price"}
    assert set(prices) == {"strict", "loose"}
    assert all(price is not None and price < 0 for price in prices.values())


@pytest.mark.parametrize(
    ("own", "which"),
    [
        pytest.param(None, "all groups", marks=pytest.mark.slow),
        pytest.param({"epsilon": 1.0}, "groups strict", marks=pytest.mark.slow),
    ],
)
def test_budgets_stated_as_risks_are_not_scaled(
    own: dict[str, float] | None, which: str, tmp_path: Path
) -> None:
    data = spec_data(planning={"accountant": "pld", "ratios": "balanced"})
    stated: list[dict[str, object]] = [{"risk": {"advantage": 0.15}}]
    stated.append({"risk": {"advantage": 0.3}} if own is None else {**own})
    data["groups"] = [
        {"name": name, "clients": 200, **budget}
        for name, budget in zip(("strict", "loose"), stated, strict=True)
    ]
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(data))
    done = CliRunner().invoke(main, ["frontier", str(path), "--format", "json"])
    points = json.loads(done.stdout)
    assert all(one["noise"] is not None for one in points)
    asked = [one["what"] for one in points if one["question"] in ("epsilon", "shadow_price")]
    assert asked == ([] if own is None else ["x 0.25", "x 0.5", "x 1", "x 2", "x 4", "loose"])
    assert f"rows epsilon and shadow_price leave out {which}" in done.stderr


def test_wrong_constants_cost_little_and_never_gain(answers: list[FrontierPoint]) -> None:
    regrets = [a.change for a in answers if a.question == "wrong_constant"]
    assert len(regrets) == 4
    assert all(regret is not None and -1e-3 <= regret < 0.5 for regret in regrets)


def test_command_shows_a_table_and_json(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(spec_data(planning=PLANNING)))
    done = CliRunner().invoke(main, ["frontier", str(spec), "--format", "json"])
    assert done.exit_code == 0, done.stderr
    assert {"rounds", "cohort", "epsilon", "without"} <= {
        r["question"] for r in json.loads(done.stdout)
    }
    spec.write_text(json.dumps(spec_data()))
    refused = CliRunner().invoke(main, ["frontier", str(spec)])
    assert refused.exit_code == 2
    assert "planning.ratios" in refused.stderr


def test_doubling_the_cohort_goes_on_to_everybody_and_finds_the_knee(
    answers: list[FrontierPoint],
) -> None:
    cohorts = [float(a.what) for a in answers if a.question == "cohort"]
    assert (cohorts[0], cohorts[-1]) == (12.5, 500)
    assert [a.what for a in answers if a.question == "knee"]


@pytest.mark.slow
def test_what_grouping_costs_by_number_of_groups(tmp_path: Path) -> None:
    """More groups keep more of the precision; the picture and the rows come from the command."""
    rows = [f"{i},{0.5 + (i % 7) / 2}" for i in range(300)]
    (tmp_path / "budgets.csv").write_text("client,epsilon\n" + "\n".join(rows) + "\n")
    data = spec_data(planning={**PLANNING, "group_count": 2, "heterogeneity": 0})
    del data["groups"]
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps({**data, "groups_from": "budgets.csv", "delta": 1e-4}))
    plot = tmp_path / "frontier.png"
    asked = ["frontier", str(spec), "--format", "json", "--plot", str(plot)]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.stderr
    found = [row for row in json.loads(done.stdout) if row["question"] == "groups"]
    assert [row["what"] for row in found] == [str(number) for number in range(1, 8)]
    noise = [row["noise"] for row in found]
    assert noise == sorted(noise, reverse=True)
    assert "keeps 100.00%" in found[-1]["note"]
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("free", [["ratios", "weights"], ["ratios", "weights", "cohort"]])
def test_a_horizon_is_refused(free: list[str], tmp_path: Path) -> None:
    planning = {"accountant": "rdp", "max_uploads": 600, "free": free}
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec_data(planning=planning, horizon={"runs": 4})))
    done = CliRunner().invoke(main, ["frontier", str(path)])
    assert done.exit_code == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("privplan: horizon: has several plans")
    assert line.endswith("found 'runs: 4'")
