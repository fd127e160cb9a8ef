"""Floors on weights: a dual bound that knows them, and a search that is proven."""

from typing import Any

import numpy as np
import pytest
from scipy import optimize

from privplan.errors import InfeasibleError, InputError
from privplan.planning.choices import optimised, task_of
from privplan.planning.descent import local_minimum
from privplan.planning.dual_bound import lower_bound
from privplan.planning.error import mean_noise_multiplier
from privplan.planning.problem import problem_of
from privplan.planning.search import error_model, starts_of
from tests.planning.problems import make_spec

MODEL = {"name": "mlp-digits", "parameters": 2410}


def floored(floors, **planning):
    """Groups of 300 clients with epsilon 1, 2, ... and these least weights."""
    plain_groups = ({"name": f"g{m}", "epsilon": m + 1.0} for m in range(len(floors)))
    groups: list[dict[str, Any]] = [{**group, "clients": 300} for group in plain_groups]
    for group, weight in zip(groups, floors, strict=True):
        if weight is not None:
            group["min_weight"] = weight
    chosen = {"accountant": "rdp", "ratios": "balanced", **planning}
    return make_spec(groups=groups, rounds=20, cohort=40, model=MODEL, planning=chosen)


@pytest.mark.parametrize("rule", ["participation", "inverse_variance"])
def test_weights_that_follow_cohorts_are_not_searched_over(rule):
    spec = floored([None, None], weights=rule)
    with pytest.raises(InputError, match="must be optimal, population or uniform"):
        task_of(spec, problem_of(spec))


@pytest.mark.parametrize("release", ["joint", "per_group"])
@pytest.mark.parametrize(
    "floors", [[0.3, 0.3, 0.2], [0.5, None, None], [None, 0.1, None]]
)
def test_the_search_reaches_what_scipy_reaches(floors, release):
    """SciPy searches over cohorts, each with its best weights."""
    spec = floored(floors, release=release)
    model = error_model(task_of(spec, problem_of(spec)))
    limits = model.task.limits
    total = model.task.problem.cohort
    starts = starts_of(model.task)

    def within(variables):
        shares = np.exp(np.append(variables, 0.0))
        return (
            limits.min_cohorts
            + (total - limits.min_cohorts.sum()) * shares / shares.sum()
        )

    errors = [model.error(local_minimum(model, start).cohorts) for start in starts[:2]]
    position = np.zeros(2)
    exact = {"xatol": 1e-6, "fatol": 1e-9, "maxiter": 2000}
    # Once more from where it ended, since it can stall.
    for _ in range(2):
        theirs = optimize.minimize(
            lambda variables: model.error(within(variables)) / errors[0],
            position,
            method="Nelder-Mead",
            options=exact,
        )
        position = theirs.x
    assert errors[0] == pytest.approx(errors[1], rel=1e-4)
    assert 1 - 1e-5 <= 1 / theirs.fun <= 1 + 1e-5


@pytest.mark.parametrize("count", [2, 3])
def test_floors_that_fix_all_weights_are_planned_as_those_weights(count):
    spec = floored([1 / count] * count)
    fixed = floored([None] * count, weights="population")
    free_plan = optimised(spec, problem_of(spec))
    fixed_plan = optimised(fixed, problem_of(fixed))
    assert free_plan.objective.value == pytest.approx(
        fixed_plan.objective.value, rel=1e-5
    )
    assert free_plan.status.startswith("optimal")


def prices_of(costs, min_weights):
    """The prices of the dual bound, whose weighted mean is 1 with the floors."""
    costs = np.where(min_weights > 0, costs, costs.min())
    return costs / (costs.min() + (costs - costs.min()) @ min_weights)


@pytest.mark.parametrize(
    ("floors", "planning"),
    [
        ([0.6, 0.4], {}),
        ([0.5, 0.3, None], {}),
        pytest.param([0.3, None, 0.1, 0.2], {}, marks=pytest.mark.slow),
        ([0.5, 0.3, None], {"ratios": "noise"}),
        ([0.5, 0.3, None], {"release": "per_group", "accountant": "pld"}),
    ],
)
def test_the_dual_bound_knows_the_floors(floors, planning):
    """Sharp at the optimum, and below the error of any cohorts within the limits."""
    spec = floored(floors, **planning)
    problem = problem_of(spec)
    task = task_of(spec, problem)
    plan = optimised(spec, problem)
    assert float(plan.status.split("within ")[1].split(" ")[0]) < 0.005
    model = error_model(task)
    min_weights = model.task.limits.min_weights
    noise = model.noise(plan.cohorts)
    weights = model.weights(plan.cohorts)
    mean_noise = mean_noise_multiplier(weights, plan.cohorts, noise, task.release)
    tangent = 2 * (model.error(plan.cohorts) + task.coefficients.bias) / mean_noise
    prices = prices_of(local_minimum(model, plan.cohorts).weight_costs, min_weights)
    bound = lower_bound(model, tangent, prices, plan.cohorts).error
    source = np.random.default_rng(len(floors))
    for _ in range(300):
        cohorts = problem.cohort * source.dirichlet(np.ones(len(floors)))
        cohorts = np.maximum(cohorts, model.task.limits.min_cohorts)
        error = model.error(cohorts)
        # raising small cohorts to their limits may add a few clients
        assert bound <= error * (1 + 1e-3) * (cohorts.sum() / problem.cohort) ** 2


def test_floors_that_leave_a_group_no_weight_are_refused():
    """Two groups have floors that sum to 1; the third is too faint to have one."""
    people = [(5, 0.1, None), (300, 30.0, None), (5, 8.0, 0.2)]
    groups = []
    for clients, epsilon, floor in people:
        name = f"g{len(groups)}"
        group = {"name": name, "clients": clients, "epsilon": epsilon}
        groups.append({**group, "min_weight": floor})
    model = {"name": "own", "parameters": 18378}
    chosen = {"ratios": "balanced"}
    spec = make_spec(groups=groups, rounds=10, cohort=270, model=model, planning=chosen)
    with pytest.raises(InfeasibleError, match=r"groups\.g0: .* leave it none"):
        optimised(spec, problem_of(spec))
