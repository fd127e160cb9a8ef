"""The parts of the PLD engine, each against exact arithmetic or a direct sum."""

import math

import mpmath as mp
import numpy as np
import pytest
import scipy.fft
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose

from privplan.accounting import families as noise_families
from privplan.accounting.pld import lattice, profile
from privplan.accounting.pld import pairs as dominating_pairs
from privplan.accounting.pld.accountant import PldAccountant
from privplan.accounting.pld.convolution import convolved, fast_length, suffix_deltas
from privplan.accounting.pld.lattice import convex
from privplan.accounting.pld.pairs import Rows
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.laws.law import Kind, Pair

AR = Relation.ADD_REMOVE
FIXED = SamplingLaw.FIXED_SIZE
FULL = SamplingLaw.FULL


def rows_of(kind, shift, ratio):
    return Rows(kind, np.array([[shift]]), np.array([[ratio]]))


def exact_gaussian_delta(mu, epsilon):
    mu = mp.mpf(mu)
    epsilon = mp.mpf(epsilon)
    x = mu / 2 - epsilon / mu
    return mp.ncdf(x) - mp.exp(epsilon) * mp.ncdf(x - mu)


@pytest.mark.parametrize("mu", [1e-8, 1e-4, 0.01, 1.0, 30.0, 3000.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-15])
def test_gaussian_bounds_hold_in_forty_digits(mu, delta):
    with mp.workdps(40):
        low, high = profile.gaussian_epsilon(mu, delta)
        assert low == 0 or exact_gaussian_delta(mu, low) >= delta
        assert exact_gaussian_delta(mu, high) <= delta
        assert high - low <= 1e-5 * high


def exact_excess(kind, shift, ratio, low, high, level):
    """``P(cell) - e^level Q(cell)`` in 150 digits."""
    with mp.workdps(150):
        ratio = mp.mpf(ratio)

        def mass(mean):
            return mp.ncdf(mp.mpf(high) - mean) - mp.ncdf(mp.mpf(low) - mean)

        p = ratio if kind != Kind.ADD else 0
        q = ratio if kind != Kind.REMOVE else 0
        mass_of_p = (1 - p) * mass(0) + p * mass(shift)
        mass_of_q = (1 - q) * mass(0) + q * mass(-shift)
        return mass_of_p - mp.exp(mp.mpf(level)) * mass_of_q


@pytest.mark.parametrize("kind", [Kind.REMOVE, Kind.ADD, Kind.SWAP])
@pytest.mark.parametrize(
    ("shift", "ratio"), [(1e-4, 1e-6), (0.01, 0.5), (0.15, 0.9), (2.0, 0.1)]
)
def test_rounding_errors_of_cells_are_within_their_bounds(kind, shift, ratio):
    rows = rows_of(kind, shift, ratio)
    bounds = np.array([[-7.0, -6.9, -1.0, -0.95, 0.0, 0.04, 3.0, 3.05, 8.0]])
    inner = dominating_pairs.cells(rows, bounds)
    for end in (0, 1):
        levels = dominating_pairs.loss(rows, bounds)[:, end : end + 8]
        value, error = inner.excess(levels)
        for cell in range(8):
            ends = bounds[0, cell : cell + 2]
            exact = exact_excess(kind, shift, ratio, *ends, levels[0, cell])
            assert abs(exact - mp.mpf(value[0, cell])) <= error[0, cell]


@pytest.mark.parametrize("kind", [Kind.REMOVE, Kind.ADD, Kind.SWAP])
@given(
    shift=st.floats(1e-4, 6.0),
    ratio=st.floats(1e-6, 0.999),
    outcome=st.floats(-9.0, 9.0),
)
@settings(max_examples=40, deadline=None)
def test_threshold_inverts_loss(kind, shift, ratio, outcome):
    rows = rows_of(kind, shift, ratio)
    level = dominating_pairs.loss(rows, np.array([[outcome]]))
    again = dominating_pairs.loss(rows, dominating_pairs.threshold(rows, level))
    scale = shift * ratio
    assert_allclose(again, level, rtol=1e-9, atol=1e-12 * scale)


@given(
    growth=st.floats(0.001, 0.5),
    dense=st.floats(0.0, 300.0),
    total=st.floats(0.0, 1e6),
    step=st.floats(0.01, 10.0),
)
@settings(max_examples=60, deadline=None)
def test_spacing_covers_and_grows_gently(growth, dense, total, step):
    index = lattice.Spacing(growth=growth).away(step, dense, total)
    gaps = np.diff(index)
    assert index[0] == 0
    assert index[-1] * step >= total * (1 - 1e-8)
    assert np.all(gaps >= 1)
    near = index[:-1] * step < min(dense, total) - step
    assert np.all(gaps[near] == 1)
    assert np.all(gaps <= 2 + growth * index[1:])


def profile_at(masses, losses, epsilon):
    return float((masses * np.maximum(0.0, -np.expm1(epsilon - losses))).sum())


@given(seed=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_the_hull_is_a_measure_with_a_lower_profile(seed):
    rng = default_rng(seed)
    masses = rng.uniform(0.05, 1.0, 40)
    masses[rng.choice(np.arange(1, 38), 5, replace=False)] *= -0.3
    masses /= masses.sum()
    index = np.cumsum(rng.integers(1, 4, 40))
    step = 0.05
    out, slack = convex(masses[None].copy(), step, index)
    losses = step * index
    assert np.all(out >= 0)
    for epsilon in np.linspace(losses[0] - 1, losses[-1], 301):
        assert (
            profile_at(out[0], losses, epsilon) - slack[0]
            <= profile_at(masses, losses, epsilon) + 1e-12
        )


def test_a_stitched_pair_has_the_profile_of_proposition_30():
    # gamma H_a(P, Q) with a = 1 + (x - 1) / gamma above x = 1, and its mirror image
    # below, with the 2 C-Gaussian as P and Q (Zhu, Dong and Wang 2022, Proposition 30).
    shift = 1.4
    ratio = 0.1
    stitched = lattice.upper(rows_of(Kind.STITCHED, shift, ratio), 0.002, 1e-14)
    losses = stitched.losses[0]
    masses = stitched.masses[0]

    def above(x):
        return ratio * float(exact_gaussian_delta(shift, math.log1p((x - 1) / ratio)))

    for epsilon in (-0.2, -0.05, 0.0, 0.1, 0.7, 2.0):
        x = math.exp(epsilon)
        expected = above(x) if x >= 1 else 1 - x + x * above(1 / x)
        delta = profile_at(masses, losses, epsilon) + stitched.infinite[0]
        assert expected - 1e-12 <= delta <= expected * (1 + 1e-4)
    assert masses.sum() + stitched.infinite[0] == pytest.approx(1.0, abs=1e-10)


def test_convolution_errors_are_within_their_bound():
    masses = default_rng(3).uniform(size=50)
    masses /= masses.sum()
    exact = np.array([mp.mpf(1)])
    with mp.workdps(30):
        for _ in range(6):
            wide = [mp.mpf(0)] * (len(exact) + 49)
            for i, a in enumerate(exact):
                for j, b in enumerate(masses):
                    wide[i + j] += a * mp.mpf(b)
            exact = np.array(wide)
        place = np.arange(50)
        split = [(place, masses, 4.0), (place, masses, 1.0), (place, masses, 1.0)]
        for rounds in ([(place, masses, 6.0)], split):
            computed, norm = convolved(rounds, 512)
            pairs = zip(exact, computed, strict=False)
            error = mp.sqrt(sum((a - mp.mpf(b)) ** 2 for a, b in pairs))
            assert error <= norm < 1e-12


def test_lengths_of_transforms_are_those_of_scipy():
    sizes = [*range(1, 2000), *(2**k + 1 for k in range(11, 28)), 10_000_019]
    assert [fast_length(n) for n in sizes] == [
        scipy.fft.next_fast_len(n, real=True) for n in sizes
    ]


@pytest.mark.parametrize("step", [1e-9, 1e-3, 0.5, 30.0, 900.0])
def test_suffix_deltas_are_direct_sums(step):
    masses = default_rng(1).uniform(size=200)
    index = np.arange(200)
    direct = [
        (masses[k:] * -np.expm1(-step * (index[k:] - k))).sum()
        for k in range(len(masses))
    ]
    assert_allclose(suffix_deltas(masses, step), direct, rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", [Kind.REMOVE, Kind.ADD, Kind.SWAP])
@pytest.mark.parametrize(("shift", "ratio"), [(0.01, 0.5), (1.0, 0.02), (3.0, 0.3)])
@pytest.mark.parametrize("delta", [1e-4, 1e-12])
def test_one_round_is_read_exactly(kind, shift, ratio, delta):
    pair = Pair(kind, shift, ratio)
    high = profile.epsilon_of(pair, delta, from_above=True)
    low = profile.epsilon_of(pair, delta, from_above=False)
    rows = rows_of(kind, shift, ratio)
    for epsilon, sign in ((high, 1), (low, -1)):
        if epsilon > 0:
            bound = float(dominating_pairs.threshold(rows, np.array([[epsilon]]))[0, 0])
            exact = exact_excess(kind, shift, ratio, bound, mp.inf, epsilon)
            assert sign * (delta - exact) >= -1e-12 * delta
    assert low <= high <= low * (1 + 1e-6) + 1e-300


def two_round_delta(first_round, second_round, epsilon):
    """Two rounds of Poisson add/remove (remove) by a double Riemann sum."""
    grid = np.linspace(-9, 12, 4001)
    normal = np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi) * (grid[1] - grid[0])
    masses = []
    losses = []
    for sigma, ratio in (first_round, second_round):
        growth = np.expm1(grid / sigma - 1 / (2 * sigma**2))
        masses.append(normal * (1 + ratio * growth))
        losses.append(np.log1p(ratio * growth))
    loss = np.add.outer(losses[0], losses[1])
    gain = np.maximum(0.0, -np.expm1(np.minimum(epsilon - loss, 0.0)))
    return float(masses[0] @ gain @ masses[1])


def test_two_different_rounds_against_a_double_integral():
    first_round = (1.1, 0.2)
    second_round = (0.8, 0.05)
    history = History([(Release(*first_round), 1), (Release(*second_round), 1)])
    for delta in (1e-2, 1e-6):
        bounds = PldAccountant().epsilon(history, delta, AR)
        least_delta = two_round_delta(first_round, second_round, bounds.upper)
        assert least_delta <= delta * (1 + 1e-6)
        largest_delta = two_round_delta(first_round, second_round, bounds.lower)
        assert largest_delta >= delta * (1 - 1e-6)
        assert bounds.upper - bounds.lower <= 1e-3 * bounds.upper


def test_close_releases_cost_what_equal_ones_cost():
    merged = History.repeated(Release(1.5, 0.03), 100)
    single = History([(Release(1.5 * (1 + k * 1e-12), 0.03), 1) for k in range(100)])
    assert len(single) == 100
    for relation in Relation:
        of_equal = PldAccountant().epsilon(merged, 1e-6, relation)
        of_close = PldAccountant().epsilon(single, 1e-6, relation)
        assert of_equal.lower <= of_close.upper
        assert of_close.lower <= of_equal.upper
        assert of_close.upper == pytest.approx(of_equal.upper, rel=3e-4)


def test_the_profile_of_every_tolerance_agrees():
    for law in (SamplingLaw.POISSON, FIXED):
        history = History.repeated(Release(0.9, 0.004, law), 3000)
        for relation in Relation:
            lower = []
            upper = []
            for tolerance in (1e-2, 1e-3, 1e-4):
                accountant = PldAccountant(tolerance=tolerance)
                bounds = accountant.epsilon(history, 1e-7, relation)
                lower.append(bounds.lower)
                upper.append(bounds.upper)
            assert max(lower) <= min(upper)


def test_fixed_size_cohorts_need_twice_the_noise():
    # Under add/remove a fixed-size cohort is Poisson at half the noise multiplier.
    fixed = History.repeated(Release(2.0, 0.02, FIXED), 50)
    poisson = History.repeated(Release(1.0, 0.02), 50)
    bounds = PldAccountant().epsilon(poisson, 1e-5, AR)
    assert PldAccountant().epsilon(fixed, 1e-5, AR) == bounds


def test_every_cell_has_pairs_and_exact_ones_where_known():
    for law in SamplingLaw:
        ratio = 1.0 if law == FULL else 0.1
        for relation in Relation:
            pairs = noise_families.dominating_pairs(Release(2.0, ratio, law), relation)
            assert (pairs.upper != pairs.lower) == (law == FIXED and relation != AR)


@pytest.mark.parametrize(
    "sigma", [0.3, 1.0, pytest.param(30.0, marks=pytest.mark.slow), 1e4]
)
@pytest.mark.parametrize("ratio", [1e-6, 1e-3, 0.3, 0.999])
def test_extremes_are_tight_or_at_least_sound(sigma, ratio):
    for rounds, delta in ((1, 1e-15), (1000, 1e-9), (1_000_000, 1e-3)):
        history = History.repeated(Release(sigma, ratio), rounds)
        bounds = PldAccountant(tolerance=1e-3).epsilon(history, delta, AR)
        assert 0 <= bounds.lower <= bounds.upper < math.inf
        assert bounds.upper - bounds.lower <= 2e-3 * bounds.upper + 1e-12


def test_too_little_noise_is_refused_in_one_line():
    reason = PldAccountant().why_not(History.repeated(Release(0.01, 0.5), 10), AR)
    assert reason is not None
    assert "\n" not in reason
    everybody = History.repeated(Release(0.01, 1.0, FULL), 10)
    assert PldAccountant().why_not(everybody, AR) is None
