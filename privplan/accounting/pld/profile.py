"""Privacy profiles: delta as a function of epsilon, and its inverse, with bounds on rounding.

Of a composed loss on a window of losses, of one round (in closed form for Gaussian pairs, a sum
for discrete ones), and of the Gaussian mechanism without sampling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from privplan.accounting.pld import pairs as dominating_pairs
from privplan.accounting.pld.pairs import UNIT, Array, Rows
from privplan.laws.law import AnyPair, DiscretePair, Kind

_BLOCK = 400.0


@dataclass(frozen=True)
class Composed:
    """Delta as a function of epsilon on a window of equally spaced losses.

    Between two losses delta is linear in ``e^epsilon``, as for any distribution on them.

    Attributes:
        losses: shape (points,), ascending.
        values: delta at each loss, shape (points,).
        error: bound on the rounding and wrapping error of ``values``, shape (points,).
        outside: bound on what the window misses.
        blur: bound on the rounding of the losses themselves.
    """

    losses: Array
    values: Array
    error: Array
    outside: float
    blur: float

    def deltas(self, sign: int) -> Array:
        """Delta at each loss: an upper bound (sign 1) or a lower bound (sign -1)."""
        found: Array = self.values + sign * (self.error + self.outside)
        return found

    def epsilon_upper(self, delta: float) -> float:
        """An epsilon that suffices for ``delta``; inf when the window cannot show one."""
        enough = self.deltas(1) <= delta
        first = int(enough.argmax())
        if not enough[first]:
            return math.inf
        if first == 0:
            return max(0.0, float(self.losses[0]) + self.blur)
        goal = delta - float(self.error[first - 1]) - self.outside
        return max(0.0, self._within(first, goal) + self.blur)

    def epsilon_lower(self, delta: float) -> float:
        """An epsilon that does not suffice for ``delta``, or 0."""
        short = np.flatnonzero(self.deltas(-1) > delta)
        if not len(short) or short[-1] + 1 >= len(self.losses):
            return 0.0
        first = int(short[-1]) + 1
        goal = delta + float(self.error[first - 1]) + self.outside
        return max(0.0, self._within(first, goal) - self.blur)

    def doubt(self, epsilon: float) -> float:
        """Bound on the error of delta at an epsilon, apart from the rounding of the losses."""
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        return float(self.error[max(first - 1, 0)]) + self.outside

    def _within(self, first: int, goal: float) -> float:
        """The epsilon of the cell that ends at ``first`` where ``values`` passes ``goal``."""
        low, high = float(self.losses[first - 1]), float(self.losses[first])
        rise = float(self.values[first - 1] - self.values[first])
        share = (goal - float(self.values[first])) / rise if rise > 0 else 0.0
        if not 0 < share < 1:
            return high if share <= 0 else low
        return min(high, max(low, high + math.log1p(share * math.expm1(low - high))))

    def delta(self, epsilon: float, sign: int) -> float:
        """Delta at one epsilon: an upper bound (sign 1) or a lower bound (sign -1)."""
        epsilon -= sign * self.blur
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        if first == 0:
            return 1.0 if sign > 0 else 0.0
        doubt = sign * (float(self.error[first - 1]) + self.outside)
        if first == len(self.losses):
            return min(1.0, max(0.0, doubt))
        low, high = float(self.losses[first - 1]), float(self.losses[first])
        share = math.expm1(epsilon - high) / math.expm1(low - high)
        rise = float(self.values[first - 1] - self.values[first])
        return min(1.0, max(0.0, float(self.values[first]) + share * rise + doubt))


def suffix_deltas(masses: Array, step: float) -> Array:
    """Delta at each loss of a distribution on losses one ``step`` apart.

    ``sum_j>k m_j (1 - e^-(j-k)step)`` is ``1 - e^-step`` times the sum of the tails beyond k,
    discounted by ``e^-step`` for each further loss: sums of positive terms only.
    """
    tails = np.cumsum(masses[::-1])[::-1]
    block = max(1, int(_BLOCK / step))
    found = np.empty_like(masses)
    after = 0.0
    for stop in range(len(masses), 0, -block):
        start = max(0, stop - block)
        decay = np.exp(-step * np.arange(stop - start))
        own = np.cumsum((tails[start:stop] * decay)[::-1])[::-1] / decay
        found[start:stop] = own + after * math.exp(-step) * decay[::-1] if after else own
        after = float(found[start])
    values = np.zeros_like(masses)
    values[:-1] = -math.expm1(-step) * found[1:]
    return values


_HALVINGS = 200


def delta_of(pair: AnyPair, epsilon: float) -> tuple[float, float]:
    """Lower and upper bound on ``H(P, Q)`` at an epsilon of 0 or more; rounding only.

    The loss grows with the outcome, so the best test is "outcome above the one whose loss is
    epsilon". A test at a misplaced outcome loses the square of the misplacement only.
    For ``STITCHED`` an epsilon of 0 or more is in its ``REMOVE`` half.
    """
    if isinstance(pair, DiscretePair):
        return _discrete_delta(pair, epsilon)
    kind = Kind.REMOVE if pair.kind == Kind.STITCHED else pair.kind
    rows = Rows(kind, np.array([[pair.shift]]), np.array([[pair.ratio]]))
    level = np.array([[epsilon]])
    bound = dominating_pairs.threshold(rows, level)
    value, error = dominating_pairs.cells(rows, np.concatenate([bound, [[np.inf]]], axis=1)).excess(
        level
    )
    misplaced = 64 * UNIT * (1 + abs(float(bound[0, 0]))) if math.isfinite(bound[0, 0]) else 0.0
    doubt = float(error[0, 0]) + misplaced**2
    return max(0.0, float(value[0, 0]) - doubt), min(1.0, float(value[0, 0]) + doubt)


def _discrete_delta(pair: DiscretePair, epsilon: float) -> tuple[float, float]:
    """Lower and upper bound on ``sum_l mass_l max(0, 1 - e^(epsilon - l))`` plus infinite mass."""
    losses, masses = np.array(pair.losses), np.array(pair.masses)
    terms = -np.expm1(np.minimum(epsilon - losses, 0.0)) * masses
    value = float(terms.sum()) + pair.infinite
    doubt = UNIT * (len(losses) + 8 + float(np.abs(losses).max()) + epsilon)
    return max(0.0, value - doubt), min(1.0, value + doubt)


def epsilon_of(pair: AnyPair, delta: float, *, from_above: bool) -> float:
    """The epsilon of one round at ``delta``, rounded up (``from_above``) or down."""
    side = 1 if from_above else 0
    if delta_of(pair, 0.0)[side] <= delta:
        return 0.0
    low, high = 0.0, max(map(abs, pair.losses)) if isinstance(pair, DiscretePair) else pair.shift
    while delta_of(pair, high)[side] > delta:
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf if from_above else low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if high - low <= 1e-13 * high:
            break
        if delta_of(pair, middle)[side] > delta:
            low = middle
        else:
            high = middle
    return high if from_above else low


_CLOSE = 1e-13


def gaussian_delta(mu: float, epsilon: float) -> tuple[float, float]:
    """Lower and upper bound on delta of the mu-Gaussian (Balle and Wang 2018, Theorem 8).

    ``Phi(x) - e^epsilon Phi(x - mu)`` with ``x = mu / 2 - epsilon / mu``. The argument is rounded
    by a few units of its two terms, which changes a tail by ``|x| + 1`` times as much.
    """
    if mu == 0:
        return 0.0, 0.0
    half, shift = mu / 2, epsilon / mu
    above = float(ndtr(half - shift))
    below = math.exp(min(float(log_ndtr(-half - shift)) + epsilon, 0.0))
    steep = (abs(half - shift) + 1) * (half + shift) + epsilon
    doubt = 8 * UNIT * (above + below) * (1 + steep)
    return max(0.0, above - below - doubt), min(1.0, max(0.0, above - below) + doubt)


def gaussian_epsilon(mu: float, delta: float) -> tuple[float, float]:
    """Lower and upper bound on the epsilon of the mu-Gaussian at ``delta``.

    ``mu`` itself may be rounded by a few units.
    """
    return _smallest(mu * (1 - 8 * UNIT), delta, 0), _smallest(mu * (1 + 8 * UNIT), delta, 1)


def _smallest(mu: float, delta: float, side: int) -> float:
    """Where one of the bounds on delta falls to ``delta``: rounded down, or up for side 1."""
    if gaussian_delta(mu, 0.0)[side] <= delta:
        return 0.0
    low, high = 0.0, mu
    while gaussian_delta(mu, high)[side] > delta:
        low, high = high, 2 * high
        if math.isinf(high):
            return high if side else low
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        if gaussian_delta(mu, middle)[side] > delta:
            low = middle
        else:
            high = middle
    return high if side else low
