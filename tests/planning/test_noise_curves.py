"""Noise curves and the noise of plans: against calibration, and independent of what is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import noise_multiplier
from privplan.accounting.pld import accountant as pld_accountant
from privplan.accounting.release import Relation, SamplingLaw
from privplan.planning import noise as planning_noise
from privplan.planning.noise import (
    Budget,
    NoiseCurve,
    NoiseCurves,
    history_of,
    least_noise,
    root,
    upper_bounds_only,
)
from privplan.planning.solver import solve
from privplan.planning.sweep import parse_vary, solve_point, sweep
from privplan.spec.spec import Spec
from tests.planning.problems import calibrated, make_problem, spec_data

BUDGETS = [
    Budget(0.5, 7e-5, 50, SamplingLaw("poisson"), Relation("add_remove")),
    Budget(6.0, 2e-3, 60, SamplingLaw("poisson"), Relation("replace_one")),
    Budget(2.0, 1e-5, 200, SamplingLaw("fixed_size"), Relation("add_remove")),
    Budget(0.1, 1e-6, 1000, SamplingLaw("poisson"), Relation("add_remove")),
]
SPENT = {"planning": {"accountant": "pld", "ratios": "balanced"}}


def curve_of(budget: Budget, least: float = 1e-3) -> NoiseCurve:
    return planning_noise._coarse_curve(budget, "pld", math.log(least), 0.0)


def noise_of(curve: NoiseCurve, ratios: Any) -> np.ndarray:
    return NoiseCurves([curve]).at(np.array([ratios]))[0][0]


@pytest.mark.parametrize("budget", BUDGETS)
def test_curves_are_calibrated(budget: Budget) -> None:
    """Within some percent anywhere, and within 2e-4 where they are refined."""
    curve = curve_of(budget)
    for ratio in (0.5, 0.03):
        exact = calibrated(budget, ratio)
        assert noise_of(curve, [ratio]) == pytest.approx(exact, rel=0.03)
        assert noise_of(curve.refined(ratio), [ratio]) == pytest.approx(exact, rel=2e-4)
        assert math.exp(root(budget, ratio)[0]) == pytest.approx(exact, rel=2e-4)


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.4])
@pytest.mark.parametrize("ratio", [1.0, 0.1, 0.004])
def test_least_noise_keeps_the_budget(factor: float, ratio: float) -> None:
    """From any guess: the accountant's upper bound keeps the budget, and 2e-4 less breaks it."""
    problem = make_problem(epsilons=(1.5, 2.0, 4.0))
    near = factor * noise_multiplier(
        1.5, problem.deltas[0], sampling_ratio=ratio, rounds=problem.rounds
    )
    noise = least_noise(problem, 0, ratio, near=near)

    def spent(sigma: float) -> float:
        history = history_of(problem, ratio, sigma)
        return accountant("pld").epsilon(history, problem.deltas[0], problem.relation).upper

    assert spent(noise) <= 1.5 < spent(noise * (1 - 3e-4))
    assert spent(least_noise(problem, 0, ratio, near=near, rtol=1e-2)) <= 1.5


def test_points_of_a_sweep_do_not_depend_on_what_is_known() -> None:
    """They are equal bit for bit, alone with empty caches and after others."""
    data = spec_data(**SPENT)
    rows = sweep(data, [parse_vary("groups.strict.epsilon=0.5:1.5:3")])
    caches: list[Any] = [
        planning_noise._coarse_curve,
        pld_accountant._bounds,
        pld_accountant.reading_at_delta,
    ]
    for cached in caches:
        cached.cache_clear()
    last = solve_point((data, {"groups.strict.epsilon": 1.5}))
    assert last == rows[-len(last) :]


def test_plans_with_upper_bounds_only_are_those_of_solve() -> None:
    spec = Spec.parse(spec_data(**SPENT))
    alone = solve(spec, second_opinion=False)
    with upper_bounds_only():
        shared = solve(spec, second_opinion=False)
    assert shared.objective.value == pytest.approx(alone.objective.value, rel=2e-4)
    for row in shared.certificate:
        assert not row.guarantee or row.epsilon_upper <= shared.group(row.group).epsilon


@pytest.mark.slow
def test_many_points_keep_their_budgets() -> None:
    """Every guarantee of a sweep is within 2e-4 below its budget, never above."""
    rows = sweep(spec_data(**SPENT), [parse_vary("groups.strict.epsilon=0.2:3.5:300")])
    assert len(rows) == 600
    assert all(row["epsilon_upper"] <= row["epsilon"] for row in rows)
    assert sum(row["epsilon_upper"] >= row["epsilon"] * (1 - 2e-4) for row in rows) >= 300
