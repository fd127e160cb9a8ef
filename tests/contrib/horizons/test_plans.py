"""Horizons: one composition over all runs, against the closed form of Gaussian releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History
from privplan.cli import main
from privplan.contrib.horizons.models import horizon_of, read
from privplan.contrib.horizons.plans import HorizonPlan, solve_horizon
from privplan.errors import InfeasibleError, InputError
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec

BASE: dict[str, Any] = {
    "name": "many",
    "groups": [
        {"name": "strict", "clients": 100, "epsilon": 1.0},
        {"name": "loose", "clients": 100, "epsilon": 4.0},
    ],
    "rounds": 10,
    "model": {"name": "m", "parameters": 1000},
}
FULL = {**BASE, "sampling": "full", "planning": {"ratios": "uniform"}}
SAMPLED = {**BASE, "cohort": 30}


def _horizon(base: dict[str, Any], **horizon: Any) -> HorizonPlan:
    return solve_horizon(Spec.parse(base), horizon_of(horizon))


def test_four_equal_gaussian_runs_need_twice_the_noise() -> None:
    single = solve(Spec.parse(FULL))
    planned = _horizon(FULL, runs=4)
    for plan in planned.plans:
        for group, one in zip(plan.groups, single.groups, strict=True):
            assert group.noise_multiplier == pytest.approx(2 * one.noise_multiplier, rel=5e-3)


def test_given_shares_divide_squared_strengths() -> None:
    models = [{"name": "small", "share": 0.2}, {"name": "large", "share": 0.8}]
    small, large = _horizon(FULL, split="given", models=models).plans
    for one, other in zip(small.groups, large.groups, strict=True):
        assert one.noise_multiplier == pytest.approx(2 * other.noise_multiplier, rel=2e-3)


@pytest.fixture(scope="module")
def apps() -> HorizonPlan:
    models = [{"name": "a"}, {"name": "b", "rounds": 20, "cohort": 20}]
    return _horizon(SAMPLED, split="worst", models=models)


def test_the_composition_uses_the_budgets_and_never_exceeds_them(apps: HorizonPlan) -> None:
    for m, group in enumerate(apps.spec.groups):
        releases = [part for plan in apps.plans for part in plan.history(plan.groups[m])]
        delta = apps.spec.delta_of(group)
        spent = accountant("pld").epsilon(History(releases), delta, apps.spec.relation).upper
        assert 0.98 * group.epsilon < spent <= group.epsilon
        rows = [row for row in apps.certificate if row.guarantee and row.group == group.name]
        assert [row.epsilon_upper for row in rows] == [spent]


def test_the_worst_objective_is_shared_by_all_runs(apps: HorizonPlan) -> None:
    values = [plan.objective.value for plan in apps.plans]
    assert max(values) == pytest.approx(min(values), rel=0.05)
    equal = _horizon(SAMPLED, models=[{"name": "a"}, {"name": "b", "rounds": 20, "cohort": 20}])
    assert max(values) < max(plan.objective.value for plan in equal.plans)


def test_a_horizon_is_written_and_read(apps: HorizonPlan, tmp_path: Path) -> None:
    paths = apps.save(tmp_path / "apps.json")
    assert [Path(path).name for path in paths] == ["apps.json", "apps-a.json", "apps-b.json"]
    assert HorizonPlan.load(paths[0]) == apps
    assert Plan.load(paths[2]) == apps.plans[1]


@pytest.mark.parametrize(
    ("horizon", "line"),
    [
        ({}, "horizon: must have runs or models, found 'neither'"),
        ({"runs": 2, "models": [{"name": "a"}]}, "horizon: must have runs or models, found 'both'"),
        ({"runs": 0}, "horizon.runs: must be 1 or more, found 0"),
        ({"models": [{"name": "a"}] * 2}, "horizon.models: must have unique names, found 'a'"),
        ({"models": [{"name": "a/b"}]}, "horizon.models.a/b.name: must be letters, digits"),
        ({"runs": 2, "split": "given"}, "horizon.split: given needs models with shares"),
        (
            {
                "split": "given",
                "models": [{"name": "a", "share": 0.7}, {"name": "b", "share": 0.6}],
            },
            "horizon.models: must have shares of at most 1 in all, found '1.3'",
        ),
    ],
)
def test_faulty_horizons(horizon: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        _horizon(SAMPLED, **horizon)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"cohort": 1000}, "cohort: must not exceed the population of 200 clients, found 1000.0"),
        ({"cohort": 1}, "cohort: must be at least one client per group (2), found 1.0"),
        ({"rounds": 10**9}, "rounds: must be at most 10000000, found 1000000000"),
    ],
)
def test_a_fault_of_a_field_of_a_model_names_the_model(own: dict[str, Any], said: str) -> None:
    models = [{"name": "a", **own}, {"name": "b"}, {"name": "c", **own}]
    with pytest.raises(InputError) as raised:
        _horizon(SAMPLED, models=models)
    assert str(raised.value).splitlines() == [f"horizon.models.{name}.{said}" for name in "ac"]


def test_a_field_of_a_model_that_cannot_be_planned_names_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(spec: Spec, **_: Any) -> Plan:
        raise InfeasibleError(f"cohort: {spec.cohort:g} is too much")

    monkeypatch.setattr("privplan.contrib.horizons.plans.solve", refuse)
    for own, field in (({"cohort": 70}, "horizon.models.a.cohort"), ({"rounds": 9}, "cohort")):
        with pytest.raises(InfeasibleError, match=rf"^{field}: \d+ is too much$"):
            _horizon(SAMPLED, models=[{"name": "a", **own}])


def test_a_plain_spec_with_a_horizon_names_the_command() -> None:
    with pytest.raises(
        InputError, match=r"^horizon: was removed in 0\.2; use privplan book horizon"
    ):
        solve(Spec.parse({**SAMPLED, "horizon": {"runs": 2}}))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"groups": [{**BASE["groups"][0], "epsilon": 1.0, "noise_multiplier": 2.0}]},
            "noise_mult",
        ),
        ({"groups": [{"name": "a", "clients": 50, "risk": {"advantage": 0.1}}]}, "risk: cannot go"),
        ({"sampling": "cyclic_poisson:5"}, "sampling: must be poisson, fixed_size, full with a"),
    ],
)
def test_budgets_that_cannot_be_split_are_refused(changes: dict[str, Any], line: str) -> None:
    planning = {"ratios": "uniform"} if "noise" in line else {}
    with pytest.raises(InputError, match=line):
        _horizon({**SAMPLED, "planning": planning, **changes}, runs=2)


def test_a_horizon_of_the_version_before_is_read() -> None:
    """Written by 0.2.0 before horizons had a command of their own."""
    found = HorizonPlan.load(Path(__file__).parent / "years.json")
    assert [plan.spec.name for plan in found.plans] == ["years-run-1", "years-run-2"]
    assert found.horizon.runs == 2
    alone = Plan.load(Path(__file__).parent / "years-run-1.json")
    assert alone == found.plans[0]
    assert alone.digest == found.plans[0].digest


def test_the_command_writes_the_horizon_and_its_plans(tmp_path: Path) -> None:
    path = tmp_path / "years.yaml"
    path.write_text(json.dumps({**SAMPLED, "horizon": {"runs": 2}}))
    out = tmp_path / "years.json"
    done = CliRunner().invoke(main, ["book", "horizon", str(path), "-o", str(out)])
    assert done.exit_code == 0, done.stderr
    assert HorizonPlan.load(out) == solve_horizon(*read(path)[:2])
    path.write_text(json.dumps(SAMPLED))
    done = CliRunner().invoke(main, ["book", "horizon", str(path)])
    assert done.exit_code == 2
    assert done.stderr.startswith("privplan: horizon: must be a mapping such as {runs: 4}")
