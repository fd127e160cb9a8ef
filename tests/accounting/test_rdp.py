"""Rényi accounting against Opacus, closed forms, quadrature and what must hold."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import norm

from privplan.accounting import rdp
from privplan.accounting.release import History, Relation, Release, SamplingLaw

AR = Relation.ADD_REMOVE
RO = Relation.REPLACE_ONE
ZO = Relation.ZERO_OUT
FULL = SamplingLaw.FULL
POISSON = SamplingLaw.POISSON
FIXED = SamplingLaw.FIXED_SIZE
RDP = rdp.RdpAccountant()
cells = st.tuples(st.sampled_from([POISSON, FIXED]), st.sampled_from(list(Relation)))


def epsilon(sigma, q, rounds, delta, law=POISSON, relation=AR):
    return RDP.epsilon(
        History.repeated(Release(sigma, q, law), rounds), delta, relation
    ).upper


@pytest.fixture(scope="module")
def opacus_rdp():
    pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants.analysis import rdp
    return rdp


def test_orders_hold_those_of_opacus():
    theirs = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))
    assert all(np.abs(rdp.ORDERS - order).min() < 1e-12 for order in theirs)


@pytest.mark.parametrize(
    ("sigma", "q"),
    [
        (0.3, 0.1),
        (0.6, 0.5),
        (1.0, 0.01),
        (1.5, 0.02),
        (4.0, 0.2),
        (100.0, 0.1),
        (0.8, 0.99),
    ],
)
def test_equals_opacus_at_every_order(opacus_rdp, sigma, q):
    orders = np.concatenate([rdp.FRACTIONAL, rdp.INTEGER])
    with np.errstate(all="ignore"):
        theirs = opacus_rdp.compute_rdp(
            q=q, noise_multiplier=sigma, steps=1, orders=[float(a) for a in orders]
        )
    ours = rdp.rdp_of_release(Release(sigma, q), AR)[: orders.size]
    assert_allclose(ours, theirs, rtol=1e-10, atol=3e-12)


def test_conversion_equals_opacus(opacus_rdp):
    spent = 50 * rdp.rdp_of_release(Release(1.5, 0.02), AR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, _ = opacus_rdp.get_privacy_spent(
            orders=rdp.ORDERS, rdp=spent, delta=1e-5
        )
    assert rdp.epsilon_of_rdp(spent, 1e-5) == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize(("relation", "distance"), [(AR, 1), (ZO, 1), (RO, 2)])
def test_full_participation_is_the_gaussian_closed_form(relation, distance):
    ours = rdp.rdp_of_release(Release(2.0, 1.0, FULL), relation)
    assert_allclose(ours, rdp.ORDERS * distance**2 / (2 * 2.0**2))


@pytest.mark.parametrize(("sigma", "q"), [(0.5, 0.2), (1.5, 0.02), (6.0, 0.4)])
def test_poisson_replace_one_equals_adaptive_quadrature(sigma, q):
    from scipy.integrate import quad
    from scipy.stats import norm

    def integrand(z, alpha):
        zero = math.log(1 - q) + norm.logpdf(z, 0, sigma)
        p = np.logaddexp(zero, math.log(q) + norm.logpdf(z, 1, sigma))
        r = np.logaddexp(zero, math.log(q) + norm.logpdf(z, -1, sigma))
        return math.exp(alpha * p + (1 - alpha) * r)

    ours = rdp.rdp_of_release(Release(sigma, q), RO)
    for alpha in (1.5, 2.0, 5.3):
        # Beyond eight deviations of either centre the integrand is negligible.
        low = -8 * sigma - 1
        high = alpha + 8 * sigma
        moment, _ = quad(
            integrand, low, high, args=(alpha,), points=[0, alpha], limit=500, epsabs=0
        )
        place = int(np.abs(rdp.ORDERS - alpha).argmin())
        assert ours[place] == pytest.approx(math.log(moment) / (alpha - 1), rel=1e-7)


@pytest.mark.parametrize("sigma", [0.7, 10.0, 80.0])
def test_poisson_replace_one_approaches_full_participation(sigma):
    almost = rdp.rdp_of_release(Release(sigma, 1 - 1e-9), RO)
    full = rdp.rdp_of_release(Release(sigma, 1.0, FULL), RO)
    # At larger orders even the rarest absence hides something.
    low = np.isfinite(almost) & (3 * sigma**2 + 1 > rdp.ORDERS)
    assert_allclose(almost[low], full[low], rtol=1e-4)


def test_fixed_size_add_remove_is_poisson_at_half_the_noise():
    assert_array_equal(
        rdp.rdp_of_release(Release(3.0, 0.1, FIXED), AR),
        rdp.rdp_of_release(Release(1.5, 0.1), AR),
    )


def test_without_replacement_order_two_by_hand():
    # Wang et al. 2019, Theorem 9 at alpha = 2:
    # log(1 + q^2 min(4 (e^rho - 1), 2 e^rho)), rho = 4 / sigma^2 for neighbours two
    # clipping norms apart.
    place = int(np.flatnonzero(rdp.ORDERS == 2)[0])
    for sigma in (1.5, 20.0):
        rho = 4 / sigma**2
        expected = math.log1p(0.01 * min(4 * math.expm1(rho), 2 * math.exp(rho)))
        ours = rdp.rdp_of_release(Release(sigma, 0.1, FIXED), RO)[place]
        assert ours == pytest.approx(expected, rel=1e-12)


def test_without_replacement_is_above_the_reachable_pair():
    # A cohort whose other members send zero: (1 - q) N(0) + q N(1) against its mirror
    # image.
    for sigma in (0.5, 2.0, 50.0):
        bound = rdp.rdp_of_release(Release(sigma, 0.1, FIXED), RO)
        reached = rdp.rdp_of_release(Release(sigma, 0.1, POISSON), RO)
        computed = np.isfinite(reached)
        assert np.all(bound[computed] >= reached[computed])


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("law", [POISSON, FIXED])
def test_extremes(law, relation):
    assert epsilon(math.inf, 0.1, 10, 1e-5, law, relation) == 0
    assert epsilon(1.0, 0.0, 10, 1e-5, law, relation) == 0
    assert math.isinf(epsilon(0.0, 0.1, 10, 1e-5, law, relation))
    for sigma in (1e-300, 1e-3, 0.05, 0.3, 1e4, 1e200):
        for q in (1e-6, 0.5, 1.0):
            assert epsilon(sigma, q, 10**6, 1e-15, law, relation) >= 0


@settings(max_examples=60, deadline=None)
@given(
    cells,
    st.floats(0.3, 50),
    st.floats(1.0, 3.0),
    st.floats(1e-5, 1),
    st.integers(1, 10**5),
)
def test_more_noise_never_costs_more(cell, sigma, factor, q, rounds):
    law, relation = cell
    less = epsilon(sigma, q, rounds, 1e-6, law, relation)
    assert epsilon(sigma * factor, q, rounds, 1e-6, law, relation) <= less * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(cells, st.floats(0.3, 50), st.floats(1e-5, 1), st.floats(0, 1))
# Wang's bound alone is above full participation there.
@example((FIXED, RO), 1.0, 1.0, 0.5)
def test_sampling_less_never_costs_more(cell, sigma, q, factor):
    law, relation = cell
    less = epsilon(sigma, q * factor, 100, 1e-6, law, relation)
    assert less <= epsilon(sigma, q, 100, 1e-6, law, relation) * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.3, 50), st.floats(1e-5, 1))
def test_replace_one_costs_at_least_add_remove(sigma, q):
    # A client that sends zero is one that may take its place.
    zeroed = epsilon(sigma, q, 20, 1e-5, POISSON, ZO)
    for law in (POISSON, FIXED):
        assert epsilon(sigma, q, 20, 1e-5, law, RO) >= zeroed * (1 - 1e-9)


def test_divergences_do_not_fall_with_the_order():
    ascending = np.argsort(rdp.ORDERS)
    for sigma, q in ((0.3, 0.1), (1.5, 0.02), (50.0, 0.5)):
        for law in (POISSON, FIXED):
            for relation in Relation:
                values = rdp.rdp_of_release(Release(sigma, q, law), relation)[ascending]
                finite = values[np.isfinite(values)]
                assert np.all(np.diff(finite) >= -1e-12 * finite[1:])


def test_moments_of_deviations_are_bounded_by_those_of_even_order():
    def moment(output, sigma, order):
        distance = abs(math.expm1((output - 0.5) / sigma**2))
        return distance**order * norm.pdf(output, 0, sigma)

    for sigma, order in itertools.product((1.0, 8.0), (2, 3, 4, 5)):
        ends = (-20 * sigma, 35 * sigma)
        exact, _ = quad(moment, *ends, args=(sigma, order), points=[0.5], limit=200)
        bound = math.exp(rdp._log_deviations(sigma)[order])
        assert exact <= bound * (1 + 1e-6)
        assert order % 2 or exact == pytest.approx(bound)


def test_what_is_kept_of_a_curve_cannot_be_written():
    curve = rdp._rdp(POISSON, AR, 0.1, 1.0)
    assert not curve.flags.writeable
