"""Each error term decides somewhere: bounds hold with it, and are wrong without it.

Exact values are sums of products of the given masses in fifty digits.
"""

import itertools
import math
from bisect import bisect_right

import mpmath as mp
import numpy as np
import pytest

from privplan.accounting.pld import convolution, error_terms, lattice, pairs
from privplan.accounting.pld.lattice import Lattice
from privplan.accounting.pld.pairs import Rows
from privplan.laws.law import Kind

DIGITS = 50


def parts_of(step, masses, count, offset=0.0):
    """One kind of round, with masses at neighbouring multiples of a step."""
    zero = np.zeros(1)
    one_round = Lattice(
        step,
        np.array([offset]),
        np.arange(len(masses))[None],
        np.array(masses, dtype=float)[None],
        zero,
        zero,
    )
    return [(one_round, np.array([float(count)]))]


def exact_masses(masses, count):
    """Masses of the sum of ``count`` rounds at 0, 1, ... steps."""
    factors = [mp.mpf(mass) for mass in masses]
    power = [mp.mpf(1)]
    for _ in range(count):
        longer = [mp.mpf(0)] * (len(power) + len(masses) - 1)
        for place, mass in enumerate(power):
            for step, factor in enumerate(factors):
                longer[place + step] += mass * factor
        power = longer
    return power


def exact_delta_of(losses, masses):
    """E[(1 - exp(epsilon - loss))+] as a function of epsilon, for losses that rise.

    It is the mass above epsilon less exp(epsilon) times the sum of mass * exp(-loss).
    """
    above = [mp.mpf(0)]
    discounted = [mp.mpf(0)]
    for loss, mass in zip(reversed(losses), reversed(masses), strict=True):
        above.append(above[-1] + mass)
        discounted.append(discounted[-1] + mass * mp.exp(-loss))

    def delta(epsilon):
        count = len(losses) - bisect_right(losses, epsilon)
        return above[count] - mp.exp(epsilon) * discounted[count]

    return delta


def breaches(composed, losses, masses, *, sign, places=None):
    """At how many losses of the window a bound from above (1) or below (-1) is wrong.

    Args:
        composed: the bounds.
        losses: exact losses of the composition.
        masses: exact masses, likewise.
        sign: which bound.
        places: indices of losses of the window; all by default.
    """
    bounds = composed.deltas(sign)
    exact_delta = exact_delta_of(losses, masses)
    wrong = 0
    for index in range(len(bounds)) if places is None else places:
        # The blur covers the rounding of the losses of the window.
        place = mp.mpf(float(composed.losses[index])) + sign * mp.mpf(composed.blur)
        exact = exact_delta(place)
        wrong += (mp.mpf(float(bounds[index])) - exact) * sign < 0
    return wrong


def breaches_of_both(counted_lattices, tilt, losses, masses, *, places):
    """Where the bounds of a composition from above and from below are wrong."""
    composed = convolution.compose_at(counted_lattices, tilt)
    return sum(
        breaches(composed, losses, masses, sign=sign, places=places) for sign in (1, -1)
    )


def without(monkeypatch, *names):
    """Leave terms out."""
    for name in names:
        monkeypatch.setattr(error_terms, name, lambda *arguments: 0.0)


BELL = [math.exp(-((k - 6) ** 2) / 6) for k in range(13)]
BELL = [mass / math.fsum(BELL) for mass in BELL]


def window_place(monkeypatch, sign, spared_term):
    """A narrow window, without a term that bounds of that sign do not need."""
    monkeypatch.setattr(error_terms, "ALIASED", 1e-2)
    without(monkeypatch, spared_term)
    masses = exact_masses(BELL, 8)
    losses = [mp.mpf(0.1) * k for k in range(len(masses))]
    composed = convolution.compose_at(parts_of(0.1, BELL, 8), 1.0)
    return breaches(composed, losses, masses, sign=sign)


@pytest.mark.parametrize(
    ("sign", "term", "other_term"),
    [
        # What lies above a narrow window is missing in upper bounds.
        (1, "mass_above", "wrapped_error"),
        # What lies below it appears at its top, which lower bounds must not count.
        (-1, "wrapped_error", "mass_above"),
    ],
)
def test_mass_outside_of_the_window_counts(monkeypatch, sign, term, other_term):
    with mp.workdps(DIGITS):
        assert window_place(monkeypatch, sign, other_term) == 0
        without(monkeypatch, term)
        assert window_place(monkeypatch, sign, other_term) > 0


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("term", ["product_error", "spread_error"])
def test_rounding_of_transforms_counts(monkeypatch, term, sign):
    """Many rounds, whose product of transforms is off by as many units."""
    monkeypatch.setattr(error_terms, "ALIASED", 1e-25)
    without(monkeypatch, "tilt_drift", "sum_rounding", "loss_blur")
    with mp.workdps(DIGITS):
        masses = exact_masses(BELL, 32)
        losses = [mp.mpf(0.125) * k for k in range(len(masses))]
        counted_lattices = parts_of(0.125, BELL, 32)
        composed = convolution.compose_at(counted_lattices, 0.5)
        assert (
            breaches(composed, losses, masses, sign=sign, places=range(0, 140, 4)) == 0
        )
        without(monkeypatch, term)
        composed = convolution.compose_at(counted_lattices, 0.5)
        assert (
            breaches(composed, losses, masses, sign=sign, places=range(0, 140, 4)) > 0
        )


def rare_moves(count):
    """A round that stays at 0 but for one chance in ``count``, and its exact sums."""
    moved = 1.3 / count
    masses = [1 - moved, 0.0, moved]
    exact = []
    for moves in range(40):
        chance = mp.binomial(count, moves) * mp.mpf(moved) ** moves
        exact.append(chance * mp.mpf(masses[0]) ** (count - moves))
    return masses, exact


def drift_place(monkeypatch):
    """A million rounds, the mass of each of which is off by a unit alike."""
    without(monkeypatch, "wrapped_error", "sum_rounding", "loss_blur")
    masses, exact = rare_moves(1_000_000)
    losses = [mp.mpf(0.5) * 2 * moves for moves in range(len(exact))]
    counted_lattices = parts_of(0.5, masses, 1_000_000)
    return breaches_of_both(counted_lattices, 1.0, losses, exact, places=range(4))


def moves_place(monkeypatch):
    """A hundred rounds in which next to nothing moves."""
    monkeypatch.setattr(error_terms, "ALIASED", 1e-25)
    without(monkeypatch, "sum_rounding", "tilt_drift", "loss_blur")
    masses, exact = rare_moves(100)
    losses = [mp.mpf(0.5) * 2 * moves for moves in range(len(exact))]
    counted_lattices = parts_of(0.5, masses, 100)
    return breaches_of_both(counted_lattices, 0.2, losses, exact, places=range(12))


def sums_place(monkeypatch):
    """Five thousand equal masses, from a transform that is exact."""

    def placed(laws, points):
        [(places, masses, _)] = laws
        return np.bincount(places, masses, points), 0.0

    monkeypatch.setattr(convolution, "convolved", placed)
    without(monkeypatch, "wrapped_error")
    count = 5_000
    losses = [mp.mpf(1e-3) * k for k in range(count)]
    exact = [mp.mpf(1 / count)] * count
    counted_lattices = parts_of(1e-3, [1 / count] * count, 1)
    return breaches_of_both(
        counted_lattices, 1e-3, losses, exact, places=range(1005, 5000, 1000)
    )


def losses_place(monkeypatch):
    """Losses of 750 that are told apart by a millionth."""
    exact = exact_masses([0.5, 0.5], 3)
    losses = [3 * mp.mpf(250.1) + mp.mpf(1e-6) * k for k in range(len(exact))]
    counted_lattices = parts_of(1e-6, [0.5, 0.5], 3, offset=250.1)
    return breaches_of_both(counted_lattices, 1e4, losses, exact, places=range(3))


@pytest.mark.parametrize(
    ("term", "place"),
    [
        ("tilt_drift", drift_place),
        ("moved_error", moves_place),
        ("sum_rounding", sums_place),
        ("loss_blur", losses_place),
    ],
)
def test_rounding_counts(monkeypatch, term, place):
    with mp.workdps(DIGITS):
        assert place(monkeypatch) == 0
        without(monkeypatch, term)
        assert place(monkeypatch) > 0


def exact_divergence(shift, ratio, epsilon):
    """Of the pair of a removed client: its best test is a threshold."""
    shift = mp.mpf(shift)
    ratio = mp.mpf(ratio)
    growth = (mp.exp(epsilon) - 1 + ratio) / ratio
    if growth <= 0:
        return 1 - mp.exp(epsilon)
    threshold = mp.log(growth) / shift + shift / 2
    present = (1 - ratio) * mp.ncdf(-threshold) + ratio * mp.ncdf(shift - threshold)
    return present - mp.exp(epsilon) * mp.ncdf(-threshold)


def profile_breaches(one_round, extra, *, sign):
    """At how many places the profile of a lattice is on the wrong side of the exact.

    At the points a profile from above touches the exact one, between them one from
    below.
    """
    losses = [mp.mpf(float(loss)) for loss in one_round.losses[0]]
    masses = [mp.mpf(float(mass)) for mass in one_round.masses[0]]
    places = losses[:-1]
    if sign < 0:
        places = [(low + high) / 2 for low, high in itertools.pairwise(losses)]
    exact_delta = exact_delta_of(losses, masses)
    wrong = 0
    for place in places:
        profile = exact_delta(place) + sign * mp.mpf(float(extra))
        wrong += (profile - exact_divergence(1.0, 0.1, place)) * sign < 0
    return wrong


REMOVED = Rows(Kind.REMOVE, np.array([[1.0]]), np.array([[0.1]]))


def test_tails_of_a_round_count():
    with mp.workdps(DIGITS):
        above = lattice.upper(REMOVED, 0.05, 1e-3)
        assert profile_breaches(above, above.infinite[0], sign=1) == 0
        assert profile_breaches(above, 0.0, sign=1) > 0


def test_what_no_line_of_a_lower_lattice_covers_counts():
    with mp.workdps(DIGITS):
        below = lattice.lower(REMOVED, 0.3, 1e-4, max_slack=1.0)
        assert profile_breaches(below, below.slack[0], sign=-1) == 0
        assert profile_breaches(below, 0.0, sign=-1) > 0


def test_rounding_of_cells_counts(monkeypatch):
    """Chords touch the exact profile at the points, so that rounding decides there."""
    normal_cells = pairs.normal_cells

    def without_error(bounds):
        mass, error = normal_cells(bounds)
        return mass, 0 * error

    with mp.workdps(DIGITS):
        above = lattice.upper(REMOVED, 0.05, 1e-40)
        assert profile_breaches(above, above.infinite[0], sign=1) == 0
        monkeypatch.setattr(pairs, "normal_cells", without_error)
        above = lattice.upper(REMOVED, 0.05, 1e-40)
        assert profile_breaches(above, above.infinite[0], sign=1) > 0


def test_doubt_about_losses_moves_each_bound_its_own_way():
    """With blur b delta at epsilon is bounded by exact deltas at epsilon -+ b."""
    values = np.array([0.5, 0.3, 0.1, 0.0])
    losses = 0.5 * np.arange(4)
    exact = convolution.Composed(losses, values, np.zeros(4), 0.0, 0.0)
    blurred = convolution.Composed(losses, values, np.zeros(4), 0.0, 0.1)
    for epsilon in (0.3, 0.75, 1.2):
        assert blurred.delta(epsilon, 1) == exact.delta(epsilon - 0.1, 1)
        assert blurred.delta(epsilon, -1) == exact.delta(epsilon + 0.1, -1)
    assert blurred.epsilon_upper(0.2) == pytest.approx(exact.epsilon_upper(0.2) + 0.1)
    assert blurred.epsilon_lower(0.2) == pytest.approx(exact.epsilon_lower(0.2) - 0.1)


def test_losses_without_mass_do_not_count_however_large():
    """A fair coin between places that no double of their weight could hold."""
    masses = [0.0, 0.5, 0.5, 0.0]
    step = 800.0
    tilts = np.array([1e-3, 1.0, -1.0])
    counted_lattices = parts_of(step, masses, 3, offset=-1000.0)
    low, high = (-1000.0 + step * place for place in (1, 2))
    expected = 3 * (np.logaddexp(tilts * low, tilts * high) - math.log(2))
    assert convolution.cumulants(counted_lattices, tilts) == pytest.approx(
        expected, rel=1e-12
    )
