"""The error of a choice, and its best weights against a numerical solver."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from privplan.planning.error import Coefficients, best, mean_noise_multiplier, terms

positive = st.floats(0.05, 20)


def numerically(cohorts, noise, coefficients, release, min_weights):
    """The least error over weights, by a general solver.

    The variables are the weights and, last, a bound of every group's weighted noise:
    the noise of a joint release is a maximum, which has no derivative.
    """
    size = len(cohorts)

    def value(variables):
        errors = terms(variables[:size], cohorts, noise, coefficients, "per_group")
        noise_error = errors.noise
        if release == "joint":
            noise_error = coefficients.noise * variables[size] ** 2
        return noise_error + errors.sampling + errors.bias

    start = np.append(
        coefficients.shares, np.max(coefficients.shares * noise / cohorts)
    )
    minimize: Any = optimize.minimize
    minimum = minimize(
        value,
        start,
        bounds=[*((floor, 1) for floor in min_weights), (0, None)],
        constraints=[
            {"type": "eq", "fun": lambda variables: variables[:size].sum() - 1},
            {
                "type": "ineq",
                "fun": lambda variables: (
                    variables[size] - variables[:size] * noise / cohorts
                ),
            },
        ],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    return float(minimum.fun)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(positive, positive, positive, st.floats(0, 0.3)),
        min_size=2,
        max_size=4,
    ),
    st.sampled_from(["joint", "per_group"]),
    st.floats(0.01, 10),
    st.floats(0.001, 10),
    st.floats(0.001, 10),
)
def test_best_weights_are_no_worse_than_a_general_solver(
    rows, release, price, sampling, bias
):
    cohorts, noise, sizes, min_weights = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    min_weights = min_weights / max(1.0, 1.2 * min_weights.sum())
    coefficients = Coefficients(price, sampling, bias, sizes / sizes.sum())
    weights = best(cohorts, noise, coefficients, release, min_weights)
    assert weights.sum() == pytest.approx(1, rel=1e-12)
    assert np.all(weights >= min_weights - 1e-12)
    ours = terms(weights, cohorts, noise, coefficients, release).total
    best_of_all = numerically(cohorts, noise, coefficients, release, min_weights)
    assert ours <= best_of_all * (1 + 1e-5) + 1e-12


def test_least_noise_alone_by_hand():
    """Joint: w ~ r / sigma, noise 1 / sum r / sigma; separate: w ~ (r / sigma)^2."""
    cohorts = np.array([10.0, 30.0])
    noise = np.array([2.0, 1.0])
    coefficients = Coefficients(1.0, 0.0, 0.0, np.array([0.5, 0.5]))
    joint = best(cohorts, noise, coefficients, "joint", np.zeros(2))
    assert joint.tolist() == pytest.approx([5 / 35, 30 / 35])
    assert mean_noise_multiplier(joint, cohorts, noise, "joint") == pytest.approx(
        1 / 35
    )
    separate = best(cohorts, noise, coefficients, "per_group", np.zeros(2))
    assert separate.tolist() == pytest.approx([25 / 925, 900 / 925])
    assert mean_noise_multiplier(
        separate, cohorts, noise, "per_group"
    ) == pytest.approx(925**-0.5)


def test_terms_by_hand():
    coefficients = Coefficients(
        noise=2.0, sampling=3.0, bias=5.0, shares=np.array([0.5, 0.5])
    )
    weights = np.array([0.25, 0.75])
    cohorts = np.array([4.0, 8.0])
    noise = np.array([1.0, 2.0])
    joint = terms(weights, cohorts, noise, coefficients, "joint")
    assert joint.noise == pytest.approx(2 * (0.75 * 2 / 8) ** 2)
    assert joint.sampling == pytest.approx(3 * (0.0625 / 4 + 0.5625 / 8))
    assert joint.bias == pytest.approx(5 * 2 * 0.0625 / 0.5)
    assert joint.total == pytest.approx(joint.noise + joint.sampling + joint.bias)
    separate = terms(weights, cohorts, noise, coefficients, "per_group")
    assert separate.noise == pytest.approx(2 * ((0.25 / 4) ** 2 + (0.75 * 2 / 8) ** 2))


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=6))
def test_one_release_is_never_noisier_than_separate_ones(rows):
    """At the same guarantees; by at most the root of the number of groups."""
    cohorts, noise = (np.array(column) for column in zip(*rows, strict=True))
    coefficients = Coefficients(1.0, 0.0, 0.0, np.full(len(rows), 1 / len(rows)))
    joint, separate = (
        mean_noise_multiplier(
            best(cohorts, noise, coefficients, kind, np.zeros(len(rows))),
            cohorts,
            noise,
            kind,
        )
        for kind in ("joint", "per_group")
    )
    assert joint <= separate * (1 + 1e-12)
    assert separate <= joint * len(rows) ** 0.5 * (1 + 1e-12)
