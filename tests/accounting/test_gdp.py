"""Gaussian formulas against known values and each other."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from privplan.accounting.gdp import GdpAccountant, central_limit, epsilon_of, log_delta_of, mu_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.errors import InputError, UnsupportedError

AR, RO = Relation.ADD_REMOVE, Relation.REPLACE_ONE


def test_full_participation_is_exact():
    # Balle and Wang 2018, Theorem 8, at mu = sqrt(10) / 2 and sqrt(10).
    history = History.repeated(Release(2.0, 1.0, SamplingLaw.FULL), 10)
    assert GdpAccountant().epsilon(history, 1e-5, AR).upper == pytest.approx(7.5113, abs=5e-5)
    assert GdpAccountant().epsilon(history, 1e-5, RO).upper == pytest.approx(17.8566, abs=5e-5)


def test_delta_at_a_value_by_hand():
    # Phi(0) - e^(1/2) Phi(-1) at mu = 1, epsilon = 1/2.
    expected = 0.5 - math.exp(0.5) * 0.5 * math.erfc(1 / math.sqrt(2))
    assert math.exp(log_delta_of(1.0, 0.5)) == pytest.approx(expected, rel=1e-12)


def test_central_limit_formula():
    # Bu et al. 2020, Corollary 4: mu = q sqrt(T (exp(1/sigma^2) - 1)).
    mu = central_limit(History.repeated(Release(1.5, 0.02), 50))
    assert mu == pytest.approx(0.02 * math.sqrt(50 * math.expm1(1 / 2.25)), rel=1e-12)


def test_is_an_approximation_and_refuses_what_it_has_no_limit_for():
    assert GdpAccountant.kind == "approximation"
    assert not GdpAccountant.guarantee
    history = History.repeated(Release(1.5, 0.02), 50)
    with pytest.raises(UnsupportedError, match="no central limit for poisson"):
        GdpAccountant().epsilon(history, 1e-5, RO)


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(-34, -1))
def test_epsilon_and_mu_are_inverse(mu, log_delta):
    delta = math.exp(log_delta)
    epsilon = epsilon_of(mu, delta)
    if epsilon > 1e-6 * mu:
        assert mu_of(epsilon, delta) == pytest.approx(mu, rel=1e-6)
        assert log_delta_of(mu, epsilon) == pytest.approx(log_delta, abs=1e-6)
    else:
        assert log_delta_of(mu, 0.0) <= log_delta + 1e-5


def test_edges():
    assert epsilon_of(0.0, 1e-5) == 0
    assert math.isinf(epsilon_of(math.inf, 1e-5))
    assert GdpAccountant().epsilon(History(), 1e-5, AR).upper == 0
    assert math.isinf(
        GdpAccountant().epsilon(History.repeated(Release(0.0, 0.1), 1), 1e-5, AR).upper
    )
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="epsilon: must be positive"):
            mu_of(epsilon, 1e-5)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.02, 50), st.floats(1e-12, 0.3))
def test_strength_of_a_budget_against_scipy(epsilon: float, delta: float) -> None:
    found = mu_of(epsilon, delta)
    target = math.log(delta)
    theirs = brentq(
        lambda mu: log_delta_of(mu, epsilon) - target, found / 2, found * 2, xtol=1e-14, rtol=1e-13
    )
    assert found == pytest.approx(theirs, rel=1e-11)
