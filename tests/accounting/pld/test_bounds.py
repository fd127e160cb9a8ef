"""The PLD accountant and its estimate, against integrals, closed forms and tables."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.optimize import brentq
from scipy.special import ndtr

from benchmarks import fixed_cohorts
from privplan.accounting.accountant import accountant
from privplan.accounting.pld import lattice as lattices
from privplan.accounting.pld.accountant import PldAccountant, compose
from privplan.accounting.pld.pairs import Rows, log_mixture
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.laws.law import Kind

PLD = PldAccountant()


def bounds_of(release, rounds, delta, relation=Relation.ADD_REMOVE):
    """On epsilon of equal rounds."""
    return PLD.epsilon(History.repeated(release, rounds), delta, relation)


def _profile(lattice, epsilon):
    return float(
        (lattice.masses * np.maximum(0.0, -np.expm1(epsilon - lattice.losses))).sum()
    )


def _divergence(rows, epsilon):
    """The hockey-stick divergence of a pair, whose loss rises with the outcome."""
    shift = rows.shift[0, 0]
    p = rows.p_ratio[0, 0]
    q = rows.q_ratio[0, 0]

    def log_ratio(ratio, moved):
        """Of a mixture with a shifted part to one without."""
        if not ratio:
            return 0.0
        return np.logaddexp(np.log1p(-ratio), np.log(ratio) + moved - shift**2 / 2)

    def above_epsilon(x):
        return float(log_ratio(p, shift * x) - log_ratio(q, -shift * x)) - epsilon

    if above_epsilon(-40) >= 0:
        return max(0.0, -math.expm1(epsilon))
    if above_epsilon(40) <= 0:
        return 0.0
    root = brentq(above_epsilon, -40, 40, xtol=1e-13)
    mass_of_p = (1 - p) * ndtr(-root) + p * ndtr(shift - root)
    mass_of_q = (1 - q) * ndtr(-root) + q * ndtr(-shift - root)
    return float(mass_of_p - math.exp(epsilon) * mass_of_q)


@pytest.mark.parametrize("kind", [Kind.REMOVE, Kind.ADD, Kind.SWAP])
@pytest.mark.parametrize("ratio", [1e-3, 0.1, 0.5, 0.51, 0.9, 0.999])
@pytest.mark.parametrize("shift", [0.05, 0.7, 1.5, 3.0])
def test_one_round_lies_between_its_lattices(kind, ratio, shift):
    rows = Rows(kind, np.array([[shift]]), np.array([[ratio]]))
    above = lattices.upper(rows, 0.02 * shift, 1e-12)
    below = lattices.lower(rows, 0.02 * shift, 1e-12)
    for epsilon in (-0.5, 0.0, 0.01 * shift, 0.3 * shift, shift, 2 * shift, 4 * shift):
        true = _divergence(rows, epsilon)
        high = _profile(above, epsilon) + above.infinite[0]
        low = _profile(below, epsilon) - below.slack[0]
        assert low - 1e-12 <= true <= high + 1e-12


# (sigma, q, T, delta) with values that were measured elsewhere: the interval for
# Poisson, and the value for a fixed size. 0.829 is sigma, the others are sigma^2.
ROWS = [
    (2.262**0.5, 0.02, 50, 6000**-1.1, (0.3677, 0.3682), 2.03),
    (0.829, 0.1677, 100, 600**-1.1, (12.50, 12.516), 58.2),
    (0.64**0.5, 0.1, 300, 1 / 500, (13.444, 13.460), 76.9),
    (1.0, 0.001, 10_000, 1e-6, (0.5546, 0.5555), 6.34),
]


@pytest.mark.parametrize(("sigma", "ratio", "rounds", "delta", "bounds", "fixed"), ROWS)
def test_known_cells(sigma, ratio, rounds, delta, bounds, fixed):
    of_poisson = bounds_of(Release(sigma, ratio), rounds, delta)
    assert bounds[0] <= of_poisson.lower <= of_poisson.upper <= bounds[1]
    assert of_poisson.upper - of_poisson.lower < 2e-3 * of_poisson.upper
    of_fixed = bounds_of(Release(sigma, ratio, SamplingLaw.FIXED_SIZE), rounds, delta)
    assert of_fixed.lower == pytest.approx(fixed, rel=5e-3)
    assert of_fixed.upper == pytest.approx(fixed, rel=5e-3)


@pytest.mark.parametrize(
    ("relation", "value"), [("add_remove", 7.5113), ("replace_one", 17.8566)]
)
def test_full_participation_is_exact(relation, value):
    release = Release(2.0, 1.0, SamplingLaw.FULL)
    bounds = bounds_of(release, 10, 1e-5, Relation(relation))
    assert bounds.lower == pytest.approx(value, abs=5e-5)
    assert bounds.upper == pytest.approx(value, abs=5e-5)


@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-15])
@pytest.mark.parametrize(("sigma", "rounds"), [(0.5, 1), (3.0, 20), (40.0, 1000)])
def test_sampling_nearly_everybody_is_nearly_the_gaussian(sigma, rounds, delta):
    """At q = 1 - 1e-9 the discretised path must agree with the closed form."""
    exact = bounds_of(Release(sigma, 1.0, SamplingLaw.FULL), rounds, delta)
    bounds = bounds_of(Release(sigma, 1 - 1e-9), rounds, delta)
    assert bounds.upper == pytest.approx(exact.upper, rel=2e-4)
    assert bounds.lower == pytest.approx(exact.lower, rel=2e-4)


@pytest.mark.parametrize(
    ("sigma", "rounds", "delta"), [(5.0, 10, 1e-5), (1.0, 1, 1e-9)]
)
def test_a_fixed_cohort_of_everybody_is_two_clipping_norms_from_its_neighbour(
    sigma, rounds, delta
):
    """A client more pushes one out, mu = 2 sqrt(T) / sigma; lower ratios cost less."""
    exact = gdp_epsilon(2 * math.sqrt(rounds) / sigma, delta)

    def release(ratio):
        return Release(sigma, ratio, SamplingLaw.FIXED_SIZE)

    everybody = bounds_of(release(1.0), rounds, delta)
    assert everybody.upper == pytest.approx(exact, rel=1e-5)
    assert everybody.lower == pytest.approx(exact, rel=1e-5)

    nearly = bounds_of(release(0.9999), rounds, delta).upper
    assert bounds_of(release(0.9), rounds, delta).upper < nearly
    assert nearly <= everybody.upper * (1 + 2e-4)

    history = History.repeated(release(1.0), rounds)
    assert accountant("rdp").epsilon(history, delta, Relation.ADD_REMOVE).upper >= exact


def gdp_epsilon(mu, delta):
    """Epsilon of the Gaussian mechanism at delta (Balle and Wang 2018, Theorem 8)."""

    def excess(epsilon):
        low = mu / 2 - epsilon / mu
        return float(ndtr(low) - math.exp(epsilon) * ndtr(low - mu) - delta)

    return float(brentq(excess, 1e-9, 200.0, xtol=1e-12))


def test_the_log_of_a_mixture_of_one_part_is_its_exponent():
    exponents = np.array([-800.0, -38.0, -36.0, 0.0, 25.0, 700.0])
    assert_array_equal(log_mixture(np.array(1.0), exponents), exponents)


def _reference(release, rounds, delta, pessimistic):
    """dp-accounting's PLD, Poisson add/remove, on a grid scaled to a round's loss."""
    from dp_accounting.pld import privacy_loss_distribution as reference

    sigma = release.noise_multiplier
    ratio = release.sampling_ratio
    deviation = ratio * math.sqrt(math.expm1(min(1 / sigma**2, 30)))
    of_round = reference.from_gaussian_mechanism(
        sigma,
        sampling_prob=ratio,
        value_discretization_interval=min(0.05, 0.05 * deviation),
        pessimistic_estimate=pessimistic,
        use_connect_dots=pessimistic,
    )
    return float(of_round.self_compose(rounds).get_epsilon_for_delta(delta))


def _random_cells(count, seed):
    rng = np.random.default_rng(seed)
    sigma = np.exp(rng.uniform(np.log(0.5), np.log(20), count))
    ratio = np.exp(rng.uniform(np.log(1e-3), np.log(0.95), count))
    rounds = np.exp(rng.uniform(0, np.log(500), count)).astype(int) + 1
    delta = 10.0 ** rng.uniform(-8, -3, count)
    return [
        (float(s), float(q), int(t), float(d))
        for s, q, t, d in zip(sigma, ratio, rounds, delta, strict=True)
    ]


def _assert_consistent(cell):
    sigma, ratio, rounds, delta = cell
    release = Release(sigma, ratio)
    bounds = bounds_of(release, rounds, delta)
    high = _reference(release, rounds, delta, pessimistic=True)
    low = _reference(release, rounds, delta, pessimistic=False)
    assert bounds.lower <= bounds.upper
    assert bounds.upper >= low * (1 - 1e-9), cell
    assert bounds.lower <= high * (1 + 1e-9), cell
    assert bounds.upper - bounds.lower <= 2e-3 * bounds.upper + 1e-9, cell


@pytest.mark.parametrize("cell", _random_cells(12, 1))
def test_random_cells_agree_with_dp_accounting(cell):
    _assert_consistent(cell)


@pytest.mark.slow
@pytest.mark.parametrize("cell", _random_cells(300, 2))
def test_hundreds_of_random_cells_agree_with_dp_accounting(cell):
    _assert_consistent(cell)


CELLS = list(itertools.product((SamplingLaw.POISSON, SamplingLaw.FIXED_SIZE), Relation))
MODERATE = {
    "sigma": st.floats(0.5, 30.0),
    "ratio": st.floats(1e-3, 0.999),
    "rounds": st.integers(1, 300),
    "delta": st.floats(1e-10, 1e-3),
}


@pytest.mark.parametrize(("law", "relation"), CELLS)
@settings(max_examples=6, deadline=None)
@given(**MODERATE)
def test_upper_is_never_below_lower(law, relation, sigma, ratio, rounds, delta):
    bounds = bounds_of(Release(sigma, ratio, law), rounds, delta, relation)
    assert 0 <= bounds.lower <= bounds.upper < math.inf


@pytest.mark.parametrize(("law", "relation"), CELLS)
@settings(max_examples=6, deadline=None)
@given(**MODERATE, factor=st.floats(1.01, 3.0))
def test_more_noise_never_costs_more(
    law, relation, sigma, ratio, rounds, delta, factor
):
    """Up to the width of the intervals: less noise cannot be proven cheaper."""
    bounds = bounds_of(Release(sigma, ratio, law), rounds, delta, relation)
    noisier = Release(sigma * factor, ratio, law)
    assert bounds_of(noisier, rounds, delta, relation).lower <= bounds.upper


def test_laws_mix_in_one_history():
    history = History(
        [
            (Release(2.0, 0.1), 20),
            (Release(3.0, 0.1, SamplingLaw.FIXED_SIZE), 10),
            (Release(10.0, 1.0, SamplingLaw.FULL), 5),
        ]
    )
    for relation in Relation:
        bounds = PLD.epsilon(history, 1e-6, relation)
        alone = bounds_of(Release(2.0, 0.1), 20, 1e-6, relation)
        assert alone.upper < bounds.lower <= bounds.upper


@pytest.mark.parametrize("rounds", [1, 20])
def test_what_adaptive_neighbours_of_fixed_cohorts_reach_is_within_the_bounds(rounds):
    """By dynamic programming on a grid; a single round has no gap."""
    release = Release(1.3, 0.05, "fixed_size")
    bounds = bounds_of(release, rounds, 1e-4, Relation.REPLACE_ONE)
    reached = fixed_cohorts.reached(1.3, 0.05, rounds, 1e-4, 0.008)
    assert bounds.lower * (1 - 1e-3) <= reached <= bounds.upper * (1 + 1e-3)
    assert (bounds.upper - reached > 0.02 * reached) == (rounds > 1)


def test_open_cells_keep_their_order():
    """Fixed size, replace one: at least add or remove, and not far above."""
    history = History.repeated(Release(1.5, 0.02, SamplingLaw.FIXED_SIZE), 50)
    tight = PLD.epsilon(history, 1e-5, Relation.ADD_REMOVE)
    wide = PLD.epsilon(history, 1e-5, Relation.REPLACE_ONE)
    assert tight.lower <= wide.upper
    assert wide.lower < wide.upper < 1.2 * tight.upper


CASES = [
    # law, relation, noise multiplier, ratio, rounds, delta
    ("poisson", "add_remove", 1.5, 0.02, 50, 7e-5),
    ("poisson", "add_remove", 0.8, 0.007, 28, 1e-5),
    ("poisson", "add_remove", 40.0, 0.2, 800, 1e-7),
    ("poisson", "add_remove", 0.6, 0.05, 300, 1e-6),
    ("poisson", "add_remove", 0.3, 0.0007, 280, 1.4e-4),  # rare participation
    ("poisson", "add_remove", 1.59, 0.00492, 603, 3.9e-9),
    ("fixed_size", "add_remove", 1.859, 0.00194, 710, 9.2e-8),
    ("poisson", "replace_one", 2.0, 0.1, 100, 1e-5),
    ("fixed_size", "add_remove", 2.5, 0.03, 60, 1e-5),
]


@pytest.mark.parametrize(
    ("law", "relation", "noise", "ratio", "rounds", "delta"), CASES
)
def test_estimates_are_close_above_bounds(law, relation, noise, ratio, rounds, delta):
    """By plans of their own, and by those of a loss nearby."""
    history = History.repeated(Release(noise, ratio, SamplingLaw(law)), rounds)
    loss = compose(history, Relation(relation))
    nearby = History.repeated(Release(noise * 1.03, ratio, SamplingLaw(law)), rounds)
    plan = compose(nearby, Relation(relation)).estimate(delta)[1]
    bounds = loss.epsilon(delta)
    for estimate, _ in (loss.estimate(delta), loss.estimate(delta, plan)):
        assert bounds.lower <= estimate <= bounds.upper * (1 + 1e-3)


def test_bounds_on_one_side_of_a_budget_are_close_enough():
    """The same upper bound alone where it keeps the budget, both where it does not."""
    history = History.repeated(Release(1.5, 0.02, SamplingLaw("poisson")), 50)
    question = (history, 7e-5, Relation("add_remove"))
    bounds = PldAccountant().epsilon(*question)
    met = PldAccountant(decide=bounds.upper).epsilon(*question)
    assert met.lower == 0.0
    assert met.upper == bounds.upper
    missed = PldAccountant(decide=bounds.lower * 0.99).epsilon(*question)
    assert 0 < missed.lower <= bounds.lower


def test_a_delta_near_one_is_bounded_from_below_too():
    """The window of the losses begins above epsilon."""
    history = History([(Release(2.5, 0.3), 368_429)])
    bounds = compose(history, Relation.ADD_REMOVE).delta(0.05)
    assert 0.999 < bounds.lower <= bounds.upper <= 1
