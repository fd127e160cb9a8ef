"""The Gaussian mechanism without sampling: its profile in closed form, rounded outward."""

from __future__ import annotations

import math

from scipy.special import log_ndtr, ndtr

from privplan.accounting.pld.dominating_pairs import UNIT

_CLOSE = 1e-13


def delta_bounds(mu: float, epsilon: float) -> tuple[float, float]:
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


def epsilon_of(mu: float, delta: float) -> tuple[float, float]:
    """Lower and upper bound on the epsilon of the mu-Gaussian at ``delta``.

    ``mu`` itself may be rounded by a few units.
    """
    return _smallest(mu * (1 - 8 * UNIT), delta, 0), _smallest(mu * (1 + 8 * UNIT), delta, 1)


def _smallest(mu: float, delta: float, side: int) -> float:
    """Where one of the bounds on delta falls to ``delta``: rounded down, or up for side 1."""
    if delta_bounds(mu, 0.0)[side] <= delta:
        return 0.0
    low, high = 0.0, mu
    while delta_bounds(mu, high)[side] > delta:
        low, high = high, 2 * high
        if math.isinf(high):
            return high if side else low
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        if delta_bounds(mu, middle)[side] > delta:
            low = middle
        else:
            high = middle
    return high if side else low
