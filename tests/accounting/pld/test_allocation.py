"""One of t rounds at random: closed forms, quadrature, sampling and cited values."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.random import default_rng
from scipy.special import ndtr
from scipy.stats import binom

from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import calibrate
from privplan.accounting.pld import allocation
from privplan.accounting.pld.accountant import ComposedLoss, PldAccountant
from privplan.accounting.pld.allocation import _missed, allocation_pairs
from privplan.accounting.pld.direction import Direction
from privplan.accounting.pld.profile import delta_of, epsilon_of, gaussian_epsilon
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.laws.law import DominatingPairs, Relation

DELTA = 6.98e-5


def call(sigma: float, strike: np.ndarray) -> np.ndarray:
    """E[(Y - strike)+] of a lognormal Y of mean 1, for any strike."""
    with np.errstate(divide="ignore", invalid="ignore"):
        d = 1 / (2 * sigma) - sigma * np.log(strike)
        priced = ndtr(d) - strike * ndtr(d - 1 / sigma)
    return np.where(strike <= 0, 1 - strike, priced)


def quadrature(
    sigma: float, rounds: int, x: float, normal: np.ndarray | None = None
) -> float:
    """E[(R - x)+] for 2 or 3 rounds, integrated over all Y but one.

    The integral is split where a draw alone reaches the strike: beyond that the option
    is linear in what is left, so the rule needs no points there.
    """
    nodes, weights = np.polynomial.legendre.leggauss(160)

    def option(remaining: np.ndarray, depth: int) -> np.ndarray:
        """E[(the sum of depth draws - left)+]."""
        if depth == 1:
            return call(sigma, remaining)
        kink = sigma * np.log(np.maximum(remaining, 1e-300)) + 1 / (2 * sigma)
        kink = np.clip(kink, -12.0, 12.0 + 1 / sigma)
        total = np.zeros_like(remaining)
        lowest = np.full_like(remaining, -12.0)
        highest = np.full_like(remaining, 12.0 + 1 / sigma)
        ends = [lowest, kink - 2, kink - 0.5, kink, highest]
        for start, end in pairwise(ends):
            low = np.maximum(start, -12.0)
            high = np.maximum(end, -12.0)
            z = low[:, None] + (high - low)[:, None] * (1 + nodes) / 2
            y = np.exp((z - 1 / (2 * sigma)) / sigma)
            inner = option((remaining[:, None] - y).ravel(), depth - 1).reshape(z.shape)
            density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
            total += ((high - low)[:, None] / 2 * weights * density * inner).sum(axis=1)
        return total

    return float(option(np.array([rounds * x]), rounds)[0]) / rounds


def composed(pairs: DominatingPairs, blocks: int) -> ComposedLoss:
    """So many blocks with these pairs."""
    directions = []
    for above, below in zip(pairs.upper, pairs.lower, strict=True):
        upper = Direction(((above, blocks),), True)
        directions.append((upper, Direction(((below, blocks),), False)))
    return ComposedLoss(None, tuple(directions), 1e-4)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 100.0])
def test_one_round_is_the_gaussian_mechanism(sigma: float) -> None:
    pairs = allocation_pairs(sigma, 1)
    for delta in (1e-3, DELTA, 1e-8):
        low, high = gaussian_epsilon(1 / sigma, delta)
        for above, below in zip(pairs.upper, pairs.lower, strict=True):
            lower = epsilon_of(below, delta, from_above=False)
            upper = epsilon_of(above, delta, from_above=True)
            assert lower <= high
            assert low <= upper
            assert upper <= lower * 1.001


@pytest.mark.parametrize(
    ("sigma", "rounds"), [(0.5, 2), (1.166, 2), (0.7, 3), (2.0, 3)]
)
def test_a_few_rounds_by_quadrature(sigma: float, rounds: int) -> None:
    pairs = allocation_pairs(sigma, rounds)
    scale = math.sqrt(math.log1p(math.expm1(1 / sigma**2) / rounds))
    for epsilon in (0.3 * scale, scale, 3 * scale):
        remove = quadrature(sigma, rounds, math.exp(epsilon))
        x = math.exp(-epsilon)
        add = (quadrature(sigma, rounds, x) - 1 + x) / x
        for exact, above, below in zip(
            (remove, add), pairs.upper, pairs.lower, strict=True
        ):
            low = delta_of(below, epsilon)[0]
            high = delta_of(above, epsilon)[1]
            assert low - 1e-9 <= exact <= high + 1e-9
            assert high - low <= 4e-3 * high


@pytest.mark.parametrize(
    ("sigma", "epsilon"), [(1.166, 0.15), (1.504, 0.1), (0.625, 3.0), (0.4, 4.0)]
)
def test_fifty_rounds_by_importance_sampling(sigma: float, epsilon: float) -> None:
    """Under P with the client's round moved on: weights that count are small."""
    generator = default_rng(1)
    rounds = 50
    draws = 50_000
    z = generator.standard_normal((draws, rounds))
    moved = 0.0
    if sigma < 1:  # to where this round alone has a loss of epsilon, nearly
        moved = sigma * (epsilon + math.log(rounds)) - 1 / (2 * sigma) - 1.5
    z[:, 0] += 1 / sigma + moved
    ratio = np.exp((z - 1 / (2 * sigma)) / sigma).mean(axis=1)
    weight = np.exp(-moved * (z[:, 0] - 1 / sigma) + moved**2 / 2)
    terms = weight * np.maximum(1 - math.exp(epsilon) / ratio, 0.0)
    error = 5 * terms.std() / math.sqrt(draws)
    assert error < 0.3 * terms.mean()
    pairs = allocation_pairs(sigma, rounds)
    assert delta_of(pairs.lower[0], epsilon)[0] <= terms.mean() + error
    assert delta_of(pairs.upper[0], epsilon)[1] >= terms.mean() - error


def test_the_published_interval_of_fifty_rounds() -> None:
    # The authors' package at sigma^2 = 2.262, and a finer computation.
    published = (0.3134, 0.3197)
    finer = (0.315499, 0.315541)
    release = Release(math.sqrt(2.262), 1.0, "random_allocation:50")
    history = History.repeated(release, 1)
    bounds = accountant("pld").epsilon(history, DELTA, "add_remove")
    for low, high in (published, finer):
        assert bounds.lower <= high
        assert low <= bounds.upper
    assert bounds.upper - bounds.lower <= 2e-4 * bounds.upper


@pytest.mark.parametrize(
    ("sigma", "rounds", "blocks"),
    [
        (1.166, 50, 1),
        (1.166, 50, 5),
        (0.8, 10, 20),
        (20, 1000, 10),
        (1, 10_000, 3),
        (0.3, 9, 1),
    ],
)
def test_both_sides_are_close(sigma: float, rounds: int, blocks: int) -> None:
    pairs = allocation_pairs(sigma, rounds)
    loss = composed(pairs, blocks)
    for delta in (DELTA, 1e-7, 1e-10):
        bounds = loss.epsilon(delta)
        assert 0 < bounds.lower <= bounds.upper <= bounds.lower * 1.001


def test_blocks_of_one_round_compose_like_gaussians() -> None:
    bounds = composed(allocation_pairs(10.0, 1), 25).epsilon(1e-6)
    low, high = gaussian_epsilon(0.5, 1e-6)
    assert bounds.lower <= high
    assert low <= bounds.upper <= 1.0005 * bounds.lower


@pytest.mark.parametrize(("epsilon", "published"), [(0.5, 1.166), (3.0, 0.625)])
def test_noise_of_fifty_rounds_beside_that_of_other_laws(
    epsilon: float, published: float
) -> None:
    def noise(law: str, ratio: float, rounds: int) -> float:
        releases = {"sampling_ratio": ratio, "rounds": rounds, "sampling": law}
        return calibrate("noise_multiplier", epsilon, DELTA, **releases)

    allocated = noise("random_allocation:50", 1.0, 1)
    assert allocated == pytest.approx(published, abs=6e-4)
    assert allocated <= 0.95 * noise("poisson", 0.02, 50)
    assert allocated <= 0.5 * noise("fixed_size", 0.02, 50)


def test_little_noise_counts_as_a_public_round() -> None:
    history = History.repeated(Release(0.2, 1.0, "random_allocation:50"), 1)
    bounds = accountant("pld").epsilon(history, DELTA, "add_remove")
    gaussian = gaussian_epsilon(5.0, DELTA)[1]
    assert 0 < bounds.lower < bounds.upper <= gaussian * (1 + 1e-6)

    more_noise = allocation_pairs(0.25, 50).upper[0]
    assert epsilon_of(more_noise, DELTA, from_above=True) < bounds.upper


def test_what_options_miss_above_the_top_covers_a_simulation() -> None:
    """The other draws stay below the strike less the top at most so often."""
    rounds = 200
    top = 5.0
    strikes = np.array([0.85, 0.9, 1.2])
    draws = default_rng(1).normal(size=(4000, rounds - 1))
    sums = np.exp(draws - 0.5).sum(axis=1)
    below = (sums[:, None] <= strikes * rounds - top).mean(axis=0)
    missed = _missed(1.0, rounds, strikes, top, 1e-3)
    assert np.all(missed >= strikes * rounds * 1e-3 * below)


@pytest.mark.parametrize("tilt", [-0.8, 0.8])
def test_options_on_a_sum_are_those_of_the_binomial_law(tilt: float) -> None:
    """Also at strikes below and above all places where there is mass to speak of."""
    rounds = 400
    chance = 0.3
    law = allocation._Law(
        0.0, np.array([0.0, 1.0]), np.array([1 - chance, chance]), 1.0
    )
    counted_lattices = allocation._parts(law, rounds)
    moved = chance * math.exp(tilt) / (1 - chance + chance * math.exp(tilt))
    middle = rounds * moved
    spread = math.sqrt(middle * (1 - moved))
    strikes = middle + spread * np.array([-30.0, -3.0, 0.3, 3.0, 30.0])
    strikes = strikes[(strikes > 0) & (strikes < rounds)]
    priced = allocation._priced(counted_lattices, strikes, tilt, 20.0)
    sign = math.copysign(1.0, tilt)
    counts = np.arange(rounds + 1.0)
    payoffs = np.maximum(sign * (counts - strikes[:, None]), 0.0)
    exact = payoffs @ binom.pmf(counts, rounds, chance)
    beyond = (payoffs > 0) @ binom.pmf(counts, rounds, chance)
    assert (abs(priced.price - exact) <= priced.price_error + 1e-12 * exact).all()
    assert (abs(priced.mass - beyond) <= priced.mass_error + 1e-12 * beyond).all()


@pytest.mark.parametrize(
    ("sigma", "step", "top"), [(5.0, 0.5, 50.0), (20.0, 0.05, 5.0), (2.0, 0.05, 20.0)]
)
def test_the_smaller_law_has_no_larger_put(
    sigma: float, step: float, top: float
) -> None:
    """But for the mass that was put on: also where tangents cross each other."""
    law = allocation._smaller(sigma, step, top)
    places = law.origin + law.steps
    strikes = np.linspace(0.0, places[-1], 501)
    puts = np.maximum(strikes[:, None] - places, 0.0) @ law.masses
    exact = (call(sigma, strikes * step) - 1) / step + strikes
    assert (puts <= exact + law.added * strikes + 1e-12).all()


@pytest.mark.parametrize(
    ("name", "times", "sigma", "epsilon"),
    [
        ("random_allocation:50", 1, 2.7, 0.15),
        ("random_allocation:5", 1, 0.8, 3.5),
        ("random_allocation:20", 3, 1.5, 1.0),
        ("cyclic_allocation:5:10", 1, 1.2, 1.2),
        ("cyclic_allocation:5:10", 2, 1.2, 1.7),
    ],
)
def test_an_estimate_is_the_upper_bound_within_a_ten_thousandth(
    name, times, sigma, epsilon
):
    """Laws are ranked by it: a coarser one would order close ones by its error."""
    sampling = SamplingLaw(name)
    estimate = sampling.law.estimated_epsilon(sigma, times, 7e-5, epsilon, rough=True)
    history = History([(Release(sigma, 1.0, sampling), times)])
    bound = PldAccountant().epsilon(history, 7e-5, Relation.ADD_REMOVE)
    assert bound.upper == pytest.approx(epsilon, rel=0.2)
    assert estimate == pytest.approx(bound.upper, rel=2e-4)


@pytest.mark.parametrize("name", ["min_separation:50", "banded_separation:50"])
def test_a_law_with_pairs_of_its_own_has_no_estimate_of_blocks(name):
    law = SamplingLaw(name).law
    assert law.estimated_epsilon(1.2, 1, 7e-5, 1.0, rough=True) is None
