"""Noise curves of ``pld``: against calibration, monotone, and independent of what is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import noise_multiplier
from privplan.accounting.pld import accountant as direction
from privplan.accounting.pld import accountant as pld_accountant
from privplan.accounting.release import Relation, SamplingLaw
from privplan.planning import noise as budget_nodes
from privplan.planning.noise import (
    Budget,
    NoiseCurves,
    history_of,
    least_noise,
    log_noise_at,
    loss_curve,
    refined,
)
from privplan.planning.sweep import parse_vary, sweep
from tests.planning.problems import calibrated, make_problem, spec_data

BUDGETS = [
    Budget(0.5, 7e-5, 50, SamplingLaw("poisson"), Relation("add_remove")),
    Budget(6.0, 2e-3, 60, SamplingLaw("poisson"), Relation("replace_one")),
    Budget(2.0, 1e-5, 200, SamplingLaw("fixed_size"), Relation("add_remove")),
    Budget(0.1, 1e-6, 1000, SamplingLaw("poisson"), Relation("add_remove")),
]


@pytest.mark.parametrize("budget", BUDGETS)
def test_refined_curve_is_calibrated(budget):
    """A precise curve is within 1e-3 of the noise multiplier that a calibration finds."""
    curve = loss_curve(budget, 1e-3, 1.0)
    for ratio in (0.5, 0.03):
        better, error = refined(curve, budget, ratio)
        exact = calibrated(budget, ratio)
        assert log_noise_at(better, math.log(ratio)) == pytest.approx(math.log(exact), abs=1e-3)
        assert log_noise_at(curve, math.log(ratio)) == pytest.approx(math.log(exact), abs=0.05)
        assert error > 0
        assert refined(better, budget, ratio) == (better, 0.0)


@pytest.mark.parametrize("budget", BUDGETS)
def test_more_sampling_needs_more_noise(budget):
    """sigma(q) does not fall with q, between nodes and beyond them."""
    curve, _ = refined(loss_curve(budget, 1e-4, 0.9), budget, 0.05)
    noise, slopes = NoiseCurves([curve]).at(np.geomspace(2e-5, 1.0, 500)[None])
    assert np.all(np.diff(noise[0]) >= -1e-12)
    assert np.all(slopes >= 0)


@pytest.mark.parametrize("budget", BUDGETS)
def test_larger_budget_needs_less_noise(budget):
    """A tenth more epsilon lowers every node."""
    more = Budget(
        1.1 * budget.epsilon, budget.delta, budget.rounds, budget.sampling, budget.relation
    )
    strict, loose = loss_curve(budget, 1e-2, 1.0), loss_curve(more, 1e-2, 1.0)
    assert np.all(loose.log_noise < strict.log_noise)


def test_curve_does_not_depend_on_what_is_known():
    """Curves are equal bit for bit, whether other curves were computed before or not."""
    budget = BUDGETS[0]
    budget_nodes.own_node.cache_clear()
    cold, _ = refined(loss_curve(budget, 1e-3, 1.0), budget, 0.02)
    budget_nodes.own_node.cache_clear()
    for ratio in (0.3, 1e-3, 0.05):
        refined(loss_curve(budget, 1e-5, 0.7), budget, ratio)
    warm, _ = refined(loss_curve(budget, 1e-3, 1.0), budget, 0.02)
    assert np.array_equal(cold.log_noise, warm.log_noise)
    assert np.array_equal(cold.slopes, warm.slopes)


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.4])
@pytest.mark.parametrize("ratio", [1.0, 0.1, 0.004])
def test_least_noise_keeps_the_budget(factor, ratio):
    """From any guess: the accountant's upper bound keeps the budget, and 2e-4 less breaks it."""
    problem = make_problem(epsilons=(1.5, 2.0, 4.0))
    near = factor * noise_multiplier(
        1.5, problem.deltas[0], sampling_ratio=ratio, rounds=problem.rounds
    )
    noise = least_noise(problem, 0, ratio, near)

    def spent(sigma: float) -> float:
        history = history_of(problem, ratio, sigma)
        return accountant("pld").epsilon(history, problem.deltas[0], problem.relation).upper

    assert spent(noise) <= 1.5 < spent(noise * (1 - 3e-4))


def test_sweep_does_not_depend_on_what_is_known():
    """Points of a sweep are equal bit for bit, alone with empty caches and after others."""
    planning = {"accountant": "pld", "ratios": "balanced"}
    data = {**spec_data(), "planning": planning}
    rows = sweep(data, [parse_vary("groups.strict.epsilon=0.5:1.5:3")])
    for cached in (budget_nodes.own_node, pld_accountant._bounds, direction.reading_at_delta):
        cached.cache_clear()
    last = sweep(data, [parse_vary("groups.strict.epsilon=1.5:1.5:1")])
    assert last == rows[-len(last) :]
