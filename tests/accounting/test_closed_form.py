"""Closed forms: Gaussian differential privacy, and Theorem 1 with its conditions."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

import privplan
from privplan.accounting import closed_form
from privplan.accounting.certificate import NO_BOUND_HERE
from privplan.accounting.gdp import (
    GdpAccountant,
    central_limit,
    epsilon_of,
    log_delta_of,
    mu_of,
)
from privplan.accounting.rdp import ORDERS, rdp_of_release
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.errors import InputError, UnsupportedError
from privplan.report.tables import certificate_table

AR = Relation.ADD_REMOVE
RO = Relation.REPLACE_ONE
ZO = Relation.ZERO_OUT
FMNIST = 6000**-1.1
CLOSED = closed_form.ClosedFormAccountant()


def test_delta_at_a_value_by_hand():
    # Phi(0) - e^(1/2) Phi(-1) at mu = 1, epsilon = 1/2.
    expected = 0.5 - math.exp(0.5) * 0.5 * math.erfc(1 / math.sqrt(2))
    assert math.exp(log_delta_of(1.0, 0.5)) == pytest.approx(expected, rel=1e-12)


def test_a_formula_outside_its_conditions_is_marked():
    """Its number lies below what an attacker surely reaches, and says so."""
    mechanism = {"sampling_ratio": 0.1, "rounds": 20, "delta": 1e-5}
    swapped = {"sampling": "fixed_size", "relation": "replace_one"}
    rows = privplan.account(noise_multiplier=0.8, **mechanism, **swapped)
    formula = rows["closed_form"][0]
    assert formula.epsilon_upper < rows["pld"][0].epsilon_lower
    assert formula.kind == NO_BOUND_HERE
    assert not formula.is_bound
    assert rows.notes
    table = certificate_table(rows)
    [line] = [line for line in table.rows if "closed_form" in line]
    assert line[table.columns.index("at most")].endswith(" (no bound)")

    # Without sampling it needs no condition.
    mechanism["sampling_ratio"] = 1.0
    [formula] = privplan.account(noise_multiplier=5, **mechanism)["closed_form"]
    assert formula.kind == "published formula"


def test_central_limit_formula():
    # Bu et al. 2020, Corollary 4: mu = q sqrt(T (exp(1/sigma^2) - 1)).
    mu = central_limit(History.repeated(Release(1.5, 0.02), 50))
    assert mu == pytest.approx(0.02 * math.sqrt(50 * math.expm1(1 / 2.25)), rel=1e-12)


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
def test_strength_of_a_budget_against_scipy(epsilon, delta):
    mu = mu_of(epsilon, delta)
    target = math.log(delta)
    theirs = brentq(
        lambda guess: log_delta_of(guess, epsilon) - target,
        mu / 2,
        mu * 2,
        xtol=1e-14,
        rtol=1e-13,
    )
    assert mu == pytest.approx(theirs, rel=1e-11)


def test_formula_by_hand():
    # sigma^2 = 7 q^2 T (eps + 2 log(1/delta)) / eps^2: Fashion-MNIST, group 1.
    expected = 7 * 0.0069**2 * 50 * (0.5 + 2 * 1.1 * math.log(6000)) / 0.25
    assert closed_form.noise_multiplier(0.5, FMNIST, 0.0069, 50) ** 2 == pytest.approx(
        expected, rel=1e-12
    )


def test_epsilon_inverts_the_formula():
    sigma = closed_form.noise_multiplier(0.5, FMNIST, 0.0069, 50)
    history = History.repeated(Release(sigma, 0.0069), 50)
    assert CLOSED.epsilon(history, FMNIST, AR).upper == pytest.approx(0.5, rel=1e-12)


def test_conditions_fail_at_the_papers_own_setting():
    # alpha = 39.3 at epsilon 0.5, against a limit below 2 (design note: alpha = 39).
    sigma = closed_form.noise_multiplier(0.5, FMNIST, 0.0069, 50)
    failed = closed_form.conditions(0.5, FMNIST, 0.0069, sigma)
    assert len(failed) == 1
    assert failed[0].startswith(
        "alpha = 1 + 2 log(1/delta)/epsilon must be at most 1.409"
    )
    assert failed[0].endswith("found 39.28")


def test_a_condition_on_alpha_that_no_alpha_meets_fails():
    [line] = closed_form.conditions(7.283, 1e-5, 0.5, 1e6)
    assert line.startswith("alpha = 1 + 2 log(1/delta)/epsilon must be at most -")
    [line] = closed_form.conditions(2 * math.log(1 / 1e-5), 1e-5, 1e-9, 100.0)
    assert line.startswith("epsilon must be below")
    assert closed_form.conditions(0.5, 1e-5, 1.0, 0.1) == []


@settings(max_examples=150, deadline=None)
@given(st.floats(0.85, 100), st.floats(1e-6, 0.5))
def test_round_bound_holds_wherever_its_conditions_do(sigma, q):
    """3.5 q^2 alpha / sigma^2 dominates the exact divergence (GDPFed+, Lemma 7)."""
    assume(sigma**2 >= 0.7)
    limits = 1 + (2 / 3) * sigma**2 * -np.log(q * ORDERS * (1 + sigma**2))
    allowed = (limits >= ORDERS) & (ORDERS >= 2) & (ORDERS <= 256)
    exact = rdp_of_release(Release(sigma, q), AR)
    assert np.all(exact[allowed] <= 3.5 * q**2 * ORDERS[allowed] / sigma**2)


def test_noise_is_halved_where_neighbours_are_two_norms_apart():
    poisson = CLOSED.epsilon(History.repeated(Release(1.0, 0.1), 5), 1e-5, AR)
    for relation in (AR, RO):
        fixed = History.repeated(Release(2.0, 0.1, SamplingLaw.FIXED_SIZE), 5)
        assert CLOSED.epsilon(fixed, 1e-5, relation) == poisson


def test_cells_it_does_not_cover():
    for law, relation in ((SamplingLaw.POISSON, RO), (SamplingLaw.FIXED_SIZE, ZO)):
        history = History.repeated(Release(1.0, 0.1, law), 5)
        assert "does not cover" in str(CLOSED.why_not(history, relation))
        with pytest.raises(UnsupportedError, match="does not cover"):
            CLOSED.epsilon(history, 1e-5, relation)


def test_failed_conditions_of_histories():
    assert closed_form.failed_conditions(History(), 1e-5, AR) == []
    assert (
        closed_form.failed_conditions(History.repeated(Release(0.0, 0.1), 1), 1e-5, AR)
        == []
    )
    small = History.repeated(Release(0.5, 0.001), 5)
    assert any(
        "0.7" in line
        for line in closed_form.failed_conditions(small, 1e-5, "add_remove")
    )


@pytest.mark.parametrize("mu", [1e15, 1e27, 1e100])
def test_a_mu_beyond_roundings_has_an_epsilon_of_half_its_square(mu):
    """Almost without noise epsilon tends to mu^2 / 2, and no search ends early."""
    assert epsilon_of(mu, 1e-5) == pytest.approx(mu * mu / 2, rel=1e-6)
