"""Searched plans: against brute force, a general solver, and lower bounds."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy import optimize

from privplan.planning.choices import optimised, task_of
from privplan.planning.dual_bound import lower_bound, relative_gap
from privplan.planning.error import mean_noise_multiplier
from privplan.planning.noise import least_noise
from privplan.planning.problem import problem_of
from privplan.planning.published import descend, differences
from privplan.planning.search import error_model
from privplan.planning.task import error_of
from tests.planning.problems import make_spec, members

CASES = range(20)
# A case that takes a second.
QUICK = (10,)


def random_spec(case):
    """Laws, relations, releases and objectives in turn; sizes and budgets at random."""
    generator = default_rng(1000 + case)
    size = 2 + case % 2
    clients = [int(x) for x in generator.integers(30, 1500, size)]
    groups: list[dict[str, Any]] = [
        {
            "name": f"g{m}",
            "clients": n,
            "epsilon": float(np.exp(generator.uniform(-1, 2))),
        }
        for m, n in enumerate(clients)
    ]
    if case % 4 == 3:
        groups[0]["max_sampling_ratio"] = 0.5
        groups[0]["min_weight"] = 0.2
    cohort = round(float(generator.uniform(0.02, 0.5)) * sum(clients))
    return make_spec(
        groups=groups,
        cohort=max(cohort, 2 * size),
        rounds=int(generator.integers(5, 200)),
        delta="n^-1.1",
        sampling=("poisson", "fixed_size")[case // 2 % 2],
        relation=("add_remove", "replace_one")[case // 4 % 2],
        planning={
            "accountant": "rdp",
            "ratios": ("balanced", "noise")[case // 10],
            "release": ("joint", "per_group")[case % 2],
            "heterogeneity": float(generator.uniform(0, 0.6)),
        },
    )


def grid(task, steps):
    """Cohorts within the limits that sum to the cohort; whole ones under fixed_size."""
    limits = task.limits
    total = task.problem.cohort
    fixed = task.problem.sampling == "fixed_size"
    axes = []
    for low, high in zip(limits.min_cohorts[:-1], limits.max_cohorts[:-1], strict=True):
        top = min(high, total)
        axis = np.union1d(
            np.linspace(low, top, steps), np.geomspace(low, top, steps // 2)
        )
        axes.append(np.unique(np.round(axis)) if fixed else axis)
    points = [
        np.array([*point, total - sum(point)]) for point in itertools.product(*axes)
    ]
    return [
        point
        for point in points
        if limits.min_cohorts[-1] <= point[-1] <= limits.max_cohorts[-1]
        and np.all(point >= limits.min_cohorts)
    ]


def brute_force(task, steps):
    """The least error on the grid; noise is calibrated at 60 ratios of each group."""
    clients = task.problem.clients
    tables = []
    for m, n in enumerate(clients):
        low = task.limits.min_cohorts[m] / n
        high = min(task.limits.max_cohorts[m], task.problem.cohort) / n
        ratios = np.geomspace(low, high, 60) if high > low else np.array([high])
        noise = [
            least_noise(task.problem, m, float(q), task.accountant) for q in ratios
        ]
        tables.append((np.log(ratios), np.log(noise)))
    least_error = math.inf
    for cohorts in grid(task, steps):
        places = np.log(cohorts / np.asarray(clients))
        noise = np.exp(
            [np.interp(x, *table) for x, table in zip(places, tables, strict=True)]
        )
        least_error = min(least_error, error_of(task, cohorts, noise))
    return least_error


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in QUICK else pytest.mark.slow)
        for case in CASES
    ],
)
def test_no_grid_point_is_a_thousandth_better(case):
    spec = random_spec(case)
    problem = problem_of(spec)
    task = task_of(spec, problem)
    plan = optimised(spec, problem)
    assert plan.cohorts.sum() == pytest.approx(problem.cohort, rel=1e-9)
    assert np.all(plan.cohorts >= task.limits.min_cohorts * (1 - 1e-9))
    assert np.all(plan.cohorts <= task.limits.max_cohorts * (1 + 1e-9))
    assert np.all(plan.weights >= task.limits.min_weights - 1e-9)
    ours = error_of(task, plan.cohorts, plan.noise)
    least_error = brute_force(task, 400 if len(problem.clients) == 2 else 40)
    assert ours <= least_error * (1 + 1e-3), plan.status


def noise_fit(problem, group_index, ratio):
    """By pld, log noise as a polynomial of the log of a ratio over ``ratio``."""
    offsets = np.linspace(-0.6, 0.6, 5)
    ratios = [float(ratio * np.exp(offset)) for offset in offsets]
    noise = [least_noise(problem, group_index, ratio, "pld") for ratio in ratios]
    return np.polyfit(offsets, np.log(noise), 4)


def test_loss_distributions_are_searched_as_well_as_moments():
    """With pld the curve is corrected, not built: 3,000 points nearby agree."""
    spec = make_spec(rounds=40, planning={"accountant": "pld", "ratios": "balanced"})
    problem = problem_of(spec)
    task = task_of(spec, problem)
    plan = optimised(spec, problem)
    ours = error_of(task, plan.cohorts, plan.noise)
    ratios = plan.cohorts / np.asarray(problem.clients)
    fits = [noise_fit(problem, m, ratio) for m, ratio in enumerate(ratios)]
    generator = default_rng(0)
    for cohorts in plan.cohorts * np.exp(generator.normal(0, 0.15, (3000, 2))):
        cohorts = cohorts * problem.cohort / cohorts.sum()
        places = np.log(cohorts / plan.cohorts)
        noise = np.exp(
            [np.polyval(fit, x) for fit, x in zip(fits, places, strict=True)]
        )
        assert ours <= error_of(task, cohorts, noise) * (1 + 1e-3)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(0, 10**6))
def test_descent_reaches_what_scipy_reaches(size, seed):
    source = default_rng(seed)
    costs = source.uniform(0.1, 5, size)
    total = 10.0
    lower = np.full(size, 0.05)
    upper = source.uniform(4, 10, size)
    upper[0] = total

    def objective(values):
        return float(np.sum(costs / values) + 0.01 * np.sum(values**2))

    start = np.full(size, total / size)
    minimum = descend(
        lambda x: (objective(x), 0.02 * x - costs / x**2), start, lower, upper, total
    )
    numerical_value = objective(
        descend(differences(objective), start, lower, upper, total)
    )
    assert numerical_value == pytest.approx(objective(minimum), rel=1e-8)
    scipy_minimum = optimize.minimize(
        objective,
        start,
        bounds=list(zip(lower, upper, strict=True)),
        constraints=[{"type": "eq", "fun": lambda x: x.sum() - total}],
        method="SLSQP",
        options={"ftol": 1e-13},
    )
    assert minimum.sum() == pytest.approx(total)
    assert np.all((minimum >= lower - 1e-12) & (minimum <= upper + 1e-9))
    assert objective(minimum) <= scipy_minimum.fun * (1 + 1e-7)


def unlike_groups():
    """Weights are nearly the groups' shares, because h^2 is 1,000 times the error."""
    groups = [members("strict", 900, 2.0), members("loose", 3000, 9.0)]
    planning = {"accountant": "pld", "ratios": "balanced", "heterogeneity": 3.0}
    model = {"name": "mlp-digits", "parameters": 3}
    spec = make_spec(
        groups=groups, cohort=800, rounds=40, model=model, planning=planning
    )
    return task_of(spec, problem_of(spec))


@pytest.mark.slow
def test_the_gap_is_a_small_share_where_groups_must_count_by_their_size():
    model = error_model(unlike_groups())
    task = model.task
    cohort_grid = [np.array([r, 800 - r]) for r in np.linspace(1, 780, 150)]
    errors = np.array([model.error(cohorts) for cohorts in cohort_grid])

    def gap(cohorts):
        return relative_gap(model, cohorts, 1e-4).relative

    best = cohort_grid[int(errors.argmin())]
    assert 0 <= gap(best) < 0.1
    for worse in (5, 125):
        assert gap(cohort_grid[worse]) >= 1 - errors.min() / errors[worse] - 1e-6
    mean_noise = mean_noise_multiplier(
        model.weights(best), best, model.noise(best), task.release
    )
    tangent = 2 * (float(errors.min()) + task.coefficients.bias) / mean_noise
    bound = lower_bound(model, tangent, np.ones(2), best)
    assert bound.error <= errors.min() * (1 + 1e-6)


@pytest.mark.slow
def test_a_plan_of_everybody_has_a_gap_of_at_most_one():
    planning = {"accountant": "pld", "ratios": "balanced", "heterogeneity": 50.0}
    spec = make_spec(sampling="full", cohort=500, planning=planning)
    status = optimised(spec, problem_of(spec)).status
    assert float(status.split("within ")[1].split(" ")[0]) < 0.1
