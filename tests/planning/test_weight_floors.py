"""Floors on weights: exact gradients, a dual bound that knows them, and a search that is proven."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from privplan.planning import error as error_terms
from privplan.planning import error as exact_weights
from privplan.planning.choices import optimised, task_of
from privplan.planning.error import (
    Coefficients,
    best_weights,
    floor_prices,
    least_error_with_floors,
    mean_noise_multiplier,
    terms,
)
from privplan.planning.problem import problem_of
from privplan.planning.search import curves_of, error_of, lower_bound
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
    st.floats(0.05, 0.99),
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
        weights = best_weights(at, noise, coefficients, release, floors)
        return terms(weights, at, noise, coefficients, release).total

    noise = scale * cohorts**slopes
    found, gradient = least_error_with_floors(cohorts, noise, slopes, coefficients, release, floors)
    assert found == pytest.approx(error(cohorts), rel=1e-9, abs=1e-9)
    for m in range(size):
        step = np.zeros(size)
        step[m] = 1e-6 * cohorts[m]
        above, below = error(cohorts + step) - found, found - error(cohorts - step)
        assume(abs(above - below) <= 1e-3 * abs(above) + 1e-9 * found)  # not at a kink
        difference = (above + below) / (2 * step[m])
        assert gradient[m] == pytest.approx(difference, rel=2e-3, abs=1e-4 * found / cohorts[m])


@pytest.mark.parametrize("count", [2, 3])
def test_floors_that_fix_all_weights_are_planned_as_those_weights(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def counted(*given: Any) -> exact_weights.Floored:
        nonlocal calls
        calls += 1
        return plain(*given)

    plain = error_terms.joint_with_floors
    monkeypatch.setattr(error_terms, "joint_with_floors", counted)
    spec, fixed = floored([1 / count] * count), floored([None] * count, weights="population")
    found, expected = optimised(spec, problem_of(spec)), optimised(fixed, problem_of(fixed))
    assert found.objective.value == pytest.approx(expected.objective.value, rel=1e-5)
    assert found.status.startswith("optimal")
    assert calls < 5000


@pytest.mark.parametrize(
    ("weights", "planning"),
    [
        ([0.6, 0.4], {}),
        ([0.5, 0.3, None], {}),
        ([0.3, None, 0.1, 0.2], {}),
        ([0.5, 0.3, None], {"ratios": "noise"}),
        ([0.5, 0.3, None], {"release": "per_group"}),
    ],
)
def test_the_dual_bound_knows_the_floors(
    weights: list[float | None], planning: dict[str, str]
) -> None:
    """Sharp at the optimum, and below the error of any cohorts within the limits."""
    spec = floored(weights, **planning)
    problem = problem_of(spec)
    task, found = task_of(spec, problem), optimised(spec, problem)
    assert float(found.status.split("within ")[1].split(" ")[0]) < 0.005
    curves = curves_of(task)
    clients, floors = np.asarray(problem.clients, dtype=float), task.limits.min_weights
    noise, slopes = curves.at(found.cohorts / clients)
    best = best_weights(found.cohorts, noise, task.coefficients, task.release, floors)
    common = curves, problem, task.limits, task.coefficients, task.release
    nu = mean_noise_multiplier(best, found.cohorts, noise, task.release)
    value = error_of(task, found.cohorts, noise)
    given = found.cohorts, noise, slopes, task.coefficients, task.release, floors
    bounds = [lower_bound(*common, (value, nu), prices) for prices in floor_prices(*given)]
    source = np.random.default_rng(len(weights))
    for _ in range(300):
        cohorts = problem.cohort * source.dirichlet(np.ones(len(weights)))
        cohorts = np.maximum(cohorts, task.limits.min_cohorts)
        error = error_of(task, cohorts, curves.at(cohorts / clients)[0])
        # raising small cohorts to their limits may add a few clients
        assert max(bounds) <= error * (1 + 1e-3) * (cohorts.sum() / problem.cohort) ** 2
