"""``solve --forecast`` and ``--for accuracy``: forecasts in plans, and plans for forecasts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from privplan.cli.plan import explain_command as explain
from privplan.cli.plan import solve_command as solve_command
from privplan.errors import InfeasibleError
from privplan.files import load_yaml
from privplan.forecast.features import even_coverage, features_of, plan_features
from privplan.forecast.model import Forecaster
from privplan.forecast.target import reached_line, solve_for_accuracy
from privplan.plan import Plan
from privplan.planning.inverse import noise_and_weights
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.forecast.table import table

TEXT = """
name: small
groups:
  - {name: strict, clients: 500, epsilon: 1.0}
  - {name: loose, clients: 500, epsilon: 4.0}
rounds: 40
cohort: 100
local: {steps: 2, learning_rate: 0.1}
model: {name: own, parameters: 1000}
planning: {accountant: rdp}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spec.yaml").write_text(TEXT)
    table(16).save(tmp_path / "proxy.json")
    return tmp_path


def call(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(solve_command, [str(folder / "spec.yaml"), *words])


def test_a_plan_keeps_its_forecast_and_without_one_its_digest(folder: Path) -> None:
    out = folder / "plan.json"
    done = call(folder, f"--forecast={folder / 'proxy.json'}", "-o", str(out))
    assert done.exit_code == 0, done.output
    plan, without = Plan.load(out), solve(folder / "spec.yaml", second_opinion=False)
    assert "forecast" not in json.loads(without.to_json())
    assert plan.forecast is not None
    assert plan.model_copy(update={"forecast": None}).digest == without.digest
    assert [one.group for one in plan.forecast.groups] == ["strict", "loose"]
    assert plan.forecast.lower < plan.forecast.accuracy < plan.forecast.upper
    assert "forecast: accuracy" in done.output
    shown = CliRunner().invoke(explain, [str(out)])
    assert "forecast: accuracy" in shown.output
    line = reached_line(plan, plan.forecast.upper + 0.01)
    assert line is not None
    assert "OUTSIDE the interval" in line


def test_features_are_those_of_the_solved_plan() -> None:
    spec = Spec.parse(load_yaml(TEXT, "spec"))
    noise, weights = noise_and_weights(spec)
    early, late = features_of(spec, noise / spec.clipping_norm, weights), solve(spec)
    assert plan_features(late).rate == pytest.approx(early.rate, rel=1e-3)
    assert plan_features(late).noise == pytest.approx(early.noise, rel=1e-3)
    assert plan_features(late).averaged == pytest.approx(early.averaged)


@pytest.mark.parametrize(
    ("unknown", "changes"),
    [
        ("epsilon", {}),
        ("cohort", {}),
        ("epsilon", {"sampling": "cyclic_poisson:4", "planning": {"accountant": "pld"}}),
    ],
)
def test_the_least_budget_or_cohort_reaches_the_target(
    unknown: str, changes: dict[str, Any]
) -> None:
    data = load_yaml(TEXT, "spec") | changes
    spec, model = Spec.parse(data), Forecaster(table(16))
    coverage = even_coverage(spec, 4)
    own = model.accuracy(plan_features(solve(spec, second_opinion=False)), coverage)
    target = 100 * own - 3
    plan = solve_for_accuracy(spec, target, model, coverage, unknown, second_opinion=False)
    assert plan.forecast is not None
    assert plan.forecast.accuracy == pytest.approx(target / 100, abs=0.002)
    if unknown == "epsilon":
        assert plan.spec.groups[0].epsilon < spec.groups[0].epsilon
    else:
        assert plan.spec.expected_cohort < spec.expected_cohort
    assert "target_accuracy" in plan.warnings[0]


@pytest.mark.slow
def test_a_target_out_of_reach_names_the_largest_forecast() -> None:
    spec, model = Spec.parse(load_yaml(TEXT, "spec")), Forecaster(table(16))
    with pytest.raises(InfeasibleError, match=r"99\.9 cannot be reached by rounds; the largest"):
        solve_for_accuracy(spec, 99.9, model, even_coverage(spec, 4), "rounds")
