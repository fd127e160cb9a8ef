"""Roots against scipy's and closed forms."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from privplan.accounting.gdp import log_delta_of, mu_of, root


@pytest.mark.parametrize(
    ("function", "low", "high", "truth"),
    [
        (lambda x: x**3 - 2, 0.0, 1e6, 2 ** (1 / 3)),
        (lambda x: math.exp(x) - 1e-8, -100.0, 10.0, math.log(1e-8)),
        (lambda x: 1.0 - x, 0.0, 3.0, 1.0),
        (lambda x: -math.inf if x < 1 else x - 0.5, 0.0, 3.0, 1.0),
        (lambda x: math.copysign(1.0, x - 0.3), 0.0, 1.0, 0.3),
        (lambda x: (x - 0.5) ** 9, 0.0, 1.2, 0.5),
    ],
)
def test_known_roots(function, low: float, high: float, truth: float) -> None:
    calls = []

    def counted(x: float) -> float:
        calls.append(x)
        return function(x)

    tolerance = 1e-12 if truth != 0.5 else 0.05  # a ninth power is flat
    assert root(counted, low, high) == pytest.approx(truth, rel=tolerance)
    assert len(calls) < 250
    assert all(low <= x <= high for x in calls)


def test_a_root_at_an_end() -> None:
    assert root(lambda x: x, 0.0, 1.0) == 0.0
    assert root(lambda x: x - 1, 0.0, 1.0) == 1.0


@settings(max_examples=50, deadline=None)
@given(st.floats(0.02, 50), st.floats(1e-12, 0.3))
def test_strength_of_a_budget_against_scipy(epsilon: float, delta: float) -> None:
    found = mu_of(epsilon, delta)
    target = math.log(delta)
    theirs = brentq(
        lambda mu: log_delta_of(mu, epsilon) - target, found / 2, found * 2, xtol=1e-14, rtol=1e-13
    )
    assert found == pytest.approx(theirs, rel=1e-11)
