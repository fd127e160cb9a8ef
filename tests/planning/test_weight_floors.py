"""Floors on weights: a dual bound that knows them, and a search that is proven."""

from typing import Any

import numpy as np
import pytest
from scipy import optimize

from privplan.errors import InputError
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
    each = ({"name": f"g{m}", "epsilon": m + 1.0} for m in range(len(floors)))
    groups: list[dict[str, Any]] = [{**one, "clients": 300} for one in each]
    for group, weight in zip(groups, floors, strict=True):
        if weight is not None:
            group["min_weight"] = weight
    chosen = {"accountant": "pld", "ratios": "balanced", **planning}
    return make_spec(groups=groups, rounds=20, cohort=40, model=MODEL, planning=chosen)


@pytest.mark.parametrize("rule", ["participation", "inverse_variance"])
def test_weights_that_follow_cohorts_are_not_searched_over(rule):
    spec = floored([None, None], weights=rule)
    with pytest.raises(InputError, match="must be optimal, population or uniform"):
        task_of(spec, problem_of(spec))


@pytest.mark.parametrize("release", ["joint", "per_group"])
@pytest.mark.parametrize(
    "least", [[0.3, 0.3, 0.2], [0.5, None, None], [None, 0.1, None]]
)
def test_the_search_reaches_what_scipy_reaches(least, release):
    """SciPy's search over cohorts with the best weights for each, from its own result and ours."""
    spec = floored(least, release=release)
    model = error_model(task_of(spec, problem_of(spec)))
    limits = model.task.limits
    total = model.task.problem.cohort
    starts = starts_of(model.task)

    def within(x):
        shares = np.exp(np.append(x, 0.0))
        return (
            limits.min_cohorts
            + (total - limits.min_cohorts.sum()) * shares / shares.sum()
        )

    found = [model.error(local_minimum(model, start).cohorts) for start in starts[:2]]
    x, exact = np.zeros(2), {"xatol": 1e-6, "fatol": 1e-9, "maxiter": 2000}
    for _ in range(2):  # once more from where it ended, since it can stall
        theirs = optimize.minimize(
            lambda x: model.error(within(x)) / found[0],
            x,
            method="Nelder-Mead",
            options=exact,
        )
        x = theirs.x
    assert found[0] == pytest.approx(found[1], rel=1e-4)
    assert 1 - 1e-5 <= 1 / theirs.fun <= 1 + 1e-5


@pytest.mark.parametrize("count", [2, 3])
def test_floors_that_fix_all_weights_are_planned_as_those_weights(count):
    spec, fixed = (
        floored([1 / count] * count),
        floored([None] * count, weights="population"),
    )
    found, expected = (
        optimised(spec, problem_of(spec)),
        optimised(fixed, problem_of(fixed)),
    )
    assert found.objective.value == pytest.approx(expected.objective.value, rel=1e-5)
    assert found.status.startswith("optimal")


@pytest.mark.parametrize(
    ("least", "planning"),
    [
        ([0.6, 0.4], {}), ([0.5, 0.3, None], {}), ([0.3, None, 0.1, 0.2], {}),
        ([0.5, 0.3, None], {"ratios": "noise"}), ([0.5, 0.3, None], {"release": "per_group"}),
    ],
)  # fmt: skip
def test_the_dual_bound_knows_the_floors(least, planning):
    """Sharp at the optimum, and below the error of any cohorts within the limits."""
    spec = floored(least, **planning)
    problem = problem_of(spec)
    task, found = task_of(spec, problem), optimised(spec, problem)
    assert float(found.status.split("within ")[1].split(" ")[0]) < 0.005
    model = error_model(task)
    floors = model.task.limits.min_weights
    noise = model.noise(found.cohorts)
    weights = model.weights(found.cohorts)
    nu = mean_noise_multiplier(weights, found.cohorts, noise, task.release)
    tangent = 2 * (model.error(found.cohorts) + task.coefficients.bias) / nu
    costs = local_minimum(model, found.cohorts).weight_costs
    costs = np.where(floors > 0, costs, costs.min())
    prices = costs / (costs.min() + (costs - costs.min()) @ floors)
    bound = lower_bound(model, tangent, prices, found.cohorts).error
    source = np.random.default_rng(len(least))
    for _ in range(300):
        cohorts = problem.cohort * source.dirichlet(np.ones(len(least)))
        cohorts = np.maximum(cohorts, model.task.limits.min_cohorts)
        error = model.error(cohorts)
        # raising small cohorts to their limits may add a few clients
        assert bound <= error * (1 + 1e-3) * (cohorts.sum() / problem.cohort) ** 2
