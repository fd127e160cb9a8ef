"""Delta of one round as a function of epsilon, and its inverse, rounded outward.

In closed form for Gaussian pairs, as a sum for discrete ones; and of the Gaussian
mechanism, which all rounds without sampling are together.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
from scipy.special import log_ndtr, ndtr

from privplan.accounting.pld.pairs import UNIT, Array, Rows, cells, threshold
from privplan.laws.law import AnyPair, DiscretePair, Kind, Pair

_Falling = Callable[[float], float]

# Relative distance of both ends of a search.
_CLOSE = 1e-13
# Relative distance within which a sum tells epsilon: rounding is far smaller.
_NEAR_SUM = 2e-10
# No round has an epsilon above it that a lower bound would tell from it.
_LARGEST_EPSILON = 1e6
# Losses beyond it have a factor e^-loss that is no float, or 0.
_LARGEST_LOSS = 600.0


def delta_of(pair: AnyPair, epsilon: float) -> tuple[float, float]:
    """Lower and upper bound on ``H(P, Q)`` at an epsilon of 0 or more; rounding only.

    The loss grows with the outcome, so the best test is "outcome above the one whose
    loss is epsilon". A test at a misplaced outcome loses the square of the misplacement
    only. For ``STITCHED`` an epsilon of 0 or more is in its ``REMOVE`` half.
    """
    if isinstance(pair, DiscretePair):
        losses = np.array(pair.losses)
        return _of_discrete(losses, np.array(pair.masses), pair.infinite, epsilon)
    kind = Kind.REMOVE if pair.kind == Kind.STITCHED else pair.kind
    rows = Rows(kind, np.array([[pair.shift]]), np.array([[pair.ratio]]))
    level = np.array([[epsilon]])
    outcome = threshold(rows, level)
    beyond = np.concatenate([outcome, [[np.inf]]], axis=1)
    value, error = cells(rows, beyond).excess(level)
    misplaced = 0.0
    if math.isfinite(outcome[0, 0]):
        misplaced = 64 * UNIT * (1 + abs(float(outcome[0, 0])))
    delta = float(value[0, 0])
    doubt = float(error[0, 0]) + misplaced**2
    return max(0.0, delta - doubt), min(1.0, delta + doubt)


def _of_discrete(
    losses: Array, masses: Array, infinite: float, epsilon: float
) -> tuple[float, float]:
    """Bounds on ``sum_l mass_l max(0, 1 - e^(epsilon - l))`` and the infinite mass.

    A sum of n terms is off by n + 4 units of itself.
    """
    gains = np.expm1(np.minimum(epsilon - losses, 0.0)) * masses
    delta = infinite - float(gains.sum())
    doubt = UNIT * (len(losses) + 8) * delta
    return max(0.0, delta - doubt), min(1.0, delta + doubt)


def epsilon_of(pair: AnyPair, delta: float, *, from_above: bool) -> float:
    """The epsilon of one round at ``delta``, rounded up (``from_above``) or down."""
    if isinstance(pair, DiscretePair):
        return _epsilon_of_discrete(pair, delta, from_above=from_above)
    return _epsilon_of_gaussian(pair, delta, from_above=from_above)


def _epsilon_of_gaussian(pair: Pair, delta: float, *, from_above: bool) -> float:
    bound_index = 1 if from_above else 0

    def bound(epsilon: float) -> float:
        return delta_of(pair, epsilon)[bound_index]

    return _smallest(bound, delta, pair.shift, _LARGEST_EPSILON, from_above=from_above)


def _epsilon_of_discrete(
    pair: DiscretePair, delta: float, *, from_above: bool
) -> float:
    """Between two losses delta is ``a - b e^epsilon``, which tells where to search."""
    losses = np.array(pair.losses)
    masses = np.array(pair.masses)
    infinite = pair.infinite
    places = np.clip(losses, -_LARGEST_LOSS, _LARGEST_LOSS)

    # Masses of P and of Q at each loss and beyond.
    of_p_and_q = np.stack([masses, masses * np.exp(-places)])
    beyond = np.cumsum(of_p_and_q[:, ::-1], axis=1)[:, ::-1]
    too_small = beyond[0] - np.exp(places) * beyond[1] > delta - infinite
    index = int(too_small[:-1].sum())
    mass_of_q = max(float(beyond[1, index]), 1e-300)
    growth = float(beyond[0, index] + infinite - delta) / mass_of_q
    start = float(np.abs(losses).max())
    if growth > 1:
        start = math.log(growth) * (1 + _NEAR_SUM / 2)
    bound_index = 1 if from_above else 0

    def bound(epsilon: float) -> float:
        return _of_discrete(losses, masses, infinite, epsilon)[bound_index]

    return _smallest(
        bound, delta, start, _LARGEST_EPSILON, from_above=from_above, near=_NEAR_SUM
    )


def _smallest(
    delta_at: _Falling,
    delta: float,
    start: float,
    largest: float,
    *,
    from_above: bool,
    near: float = 1.0,
) -> float:
    """Where a falling function reaches ``delta``, rounded up or down.

    Args:
        delta_at: delta at an epsilon.
        delta: to be reached.
        start: epsilon at which the search starts.
        largest: epsilon at which it gives up.
        from_above: whether the result is rounded up.
        near: relative distance below ``start`` that is tried first.
    """
    if delta_at(0.0) <= delta:
        return 0.0
    low = start * (1 - near)
    if not delta_at(low) > delta:
        low = 0.0
    high = start
    while delta_at(high) > delta:
        low = high
        high = 2 * high
        if high > largest:
            if from_above:
                return math.inf
            return low
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        if delta_at(middle) > delta:
            low = middle
        else:
            high = middle
    if from_above:
        return high
    return low


def gaussian_delta(mu: float, epsilon: float) -> tuple[float, float]:
    """Lower and upper bound on delta of the mu-Gaussian.

    By Balle and Wang (2018, Theorem 8) it is ``Phi(x) - e^epsilon Phi(x - mu)`` with
    ``x = mu / 2 - epsilon / mu``. The argument is rounded by a few units of its two
    terms, which changes a tail by ``|x| + 1`` times as much.
    """
    if mu == 0:
        return 0.0, 0.0
    half = mu / 2
    shift = epsilon / mu
    above = float(ndtr(half - shift))
    below = math.exp(min(float(log_ndtr(-half - shift)) + epsilon, 0.0))
    steep = (abs(half - shift) + 1) * (half + shift) + epsilon
    doubt = 8 * UNIT * (above + below) * (1 + steep)
    return max(0.0, above - below - doubt), min(1.0, max(0.0, above - below) + doubt)


def gaussian_epsilon(mu: float, delta: float) -> tuple[float, float]:
    """Bounds on the epsilon of the mu-Gaussian at ``delta``.

    mu may be rounded by a few units.
    """
    low_mu = mu * (1 - 8 * UNIT)
    high_mu = mu * (1 + 8 * UNIT)
    largest = sys.float_info.max

    def from_below(epsilon: float) -> float:
        return gaussian_delta(low_mu, epsilon)[0]

    def from_above(epsilon: float) -> float:
        return gaussian_delta(high_mu, epsilon)[1]

    return (
        _smallest(from_below, delta, low_mu, largest, from_above=False),
        _smallest(from_above, delta, high_mu, largest, from_above=True),
    )
