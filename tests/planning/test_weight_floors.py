"""Floors on weights: exact gradients, a dual bound that knows them, and a search that is proven."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from privplan.planning.choices import optimised, task_of
from privplan.planning.error import (
    WEIGHTS,
    Coefficients,
    best,
    error_of_rule,
    floor_prices,
    least_error,
    mean_noise_multiplier,
    terms,
    weights,
)
from privplan.planning.problem import problem_of
from privplan.planning.search import _prepared, error_of, lower_bound
from privplan.spec.spec import Spec
from tests.planning.problems import make_spec

positive = st.floats(0.05, 20)
MODEL = {"name": "mlp-digits", "parameters": 2410}


def floored(floors: list[float | None], **planning: Any) -> Spec:
    """Groups of 300 clients with epsilon 1, 2, ... and these least weights."""
    groups: list[dict[str, Any]] = [
        {"name": f"g{m}", "clients": 300, "epsilon": m + 1.0} for m in range(len(floors))
    ]
    for group, weight in zip(groups, floors, strict=True):
        if weight is not None:
            group["min_weight"] = weight
    chosen = {"accountant": "pld", "ratios": "balanced", **planning}
    return make_spec(groups=groups, rounds=20, cohort=40, model=MODEL, planning=chosen)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(positive, positive, st.floats(0.1, 0.9), st.floats(0.01, 1)),
        min_size=2,
        max_size=5,
    ),
    st.tuples(positive, st.floats(0, 5), st.floats(0, 5)),
    st.sampled_from(["joint", "per_group"]),
    st.sampled_from([0.0, 0.05, 0.4, 0.8, 0.99]),
)
def test_the_gradient_with_floors_is_the_limit_of_differences(
    groups: list[tuple[float, ...]], costs: tuple[float, float, float], release: Any, held: float
) -> None:
    cohorts, scale, slopes, floors = (np.array(column) for column in zip(*groups, strict=True))
    size = len(cohorts)
    floors *= held / floors.sum()
    coefficients = Coefficients(*costs, np.full(size, 1 / size))

    def error(at: np.ndarray) -> float:
        noise = scale * at**slopes
        weights = best(at, noise, coefficients, release, floors).weights
        return terms(weights, at, noise, coefficients, release).total

    noise = scale * cohorts**slopes
    found, gradient = least_error(cohorts, noise, slopes, coefficients, release, floors)
    assert found == pytest.approx(error(cohorts), rel=1e-9, abs=1e-9)
    for m in range(size):
        step = np.zeros(size)
        step[m] = 1e-6 * cohorts[m]
        above, below = error(cohorts + step) - found, found - error(cohorts - step)
        assume(abs(above - below) <= 1e-3 * abs(above) + 1e-9 * found)  # not at a kink
        difference = (above + below) / (2 * step[m])
        assert gradient[m] == pytest.approx(difference, rel=2e-3, abs=1e-4 * found / cohorts[m])


@pytest.mark.parametrize("rule", WEIGHTS)
def test_gradients_of_rules_are_limits_of_differences(rule: str) -> None:
    cohorts, slopes = np.array([3.0, 8.0, 20.0]), np.array([0.2, 0.5, 0.9])
    clients = np.array([30.0, 50.0, 90.0])
    coefficients = Coefficients(3.0, 2.0, 0.7, clients / clients.sum())

    def both(at: np.ndarray, release: Any) -> tuple[float, np.ndarray]:
        noise = np.array([2.0, 1.0, 0.7]) * at**slopes
        chosen = weights(rule, at, noise, clients)
        error = terms(chosen, at, noise, coefficients, release)
        total = error.total if release == "per_group" else error.sampling + error.bias
        return total, chosen * noise / at

    noise = np.array([2.0, 1.0, 0.7]) * cohorts**slopes
    for release in ("joint", "per_group"):
        given = clients, cohorts, noise, slopes, coefficients, release
        value, gradient, parts = error_of_rule(rule, *given)
        assert value == pytest.approx(both(cohorts, release)[0])
        for m, step in enumerate(np.diag(1e-6 * cohorts)):
            above, below = both(cohorts + step, release), both(cohorts - step, release)
            width = 2 * step[m]
            assert gradient[m] == pytest.approx((above[0] - below[0]) / width, rel=1e-5, abs=1e-8)
            assert parts[:, m] == pytest.approx((above[1] - below[1]) / width, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("count", [2, 3])
def test_floors_that_fix_all_weights_are_planned_as_those_weights(count: int) -> None:
    spec, fixed = floored([1 / count] * count), floored([None] * count, weights="population")
    found, expected = optimised(spec, problem_of(spec)), optimised(fixed, problem_of(fixed))
    assert found.objective.value == pytest.approx(expected.objective.value, rel=1e-5)
    assert found.status.startswith("optimal")


@pytest.mark.parametrize(
    ("least", "planning"),
    [
        ([0.6, 0.4], {}),
        ([0.5, 0.3, None], {}),
        ([0.3, None, 0.1, 0.2], {}),
        ([0.5, 0.3, None], {"ratios": "noise"}),
        ([0.5, 0.3, None], {"release": "per_group"}),
    ],
)
def test_the_dual_bound_knows_the_floors(
    least: list[float | None], planning: dict[str, str]
) -> None:
    """Sharp at the optimum, and below the error of any cohorts within the limits."""
    spec = floored(least, **planning)
    problem = problem_of(spec)
    task, found = task_of(spec, problem), optimised(spec, problem)
    assert float(found.status.split("within ")[1].split(" ")[0]) < 0.005
    task, curves, _ = _prepared(task)
    clients, floors = task.clients, task.limits.min_weights
    noise, slopes = curves.at(found.cohorts / clients)
    chosen = best(found.cohorts, noise, task.coefficients, task.release, floors).weights
    nu = mean_noise_multiplier(chosen, found.cohorts, noise, task.release)
    tangent = 2 * (error_of(task, found.cohorts, noise) + task.coefficients.bias) / nu
    prices = floor_prices(found.cohorts, noise, slopes, task.coefficients, task.release, floors)
    bounds = [lower_bound(task, curves, tangent, one)[0] for one in prices]
    source = np.random.default_rng(len(least))
    for _ in range(300):
        cohorts = problem.cohort * source.dirichlet(np.ones(len(least)))
        cohorts = np.maximum(cohorts, task.limits.min_cohorts)
        error = error_of(task, cohorts, curves.at(cohorts / clients)[0])
        # raising small cohorts to their limits may add a few clients
        assert max(bounds) <= error * (1 + 1e-3) * (cohorts.sum() / problem.cohort) ** 2
