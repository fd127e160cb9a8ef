"""The one-run audit of a family of trade-off curves.

S. Mahloujifar, L. Melis, K. Chaudhuri, Auditing f-Differential Privacy in One Run, ICML 2025
(arXiv 2410.22235). Let P_i be the probability of at least i correct guesses of c' on m canaries.
For a mechanism with trade-off curve f, and F = 1 - f,

    sum_{j > i} (j / m) (P_j - P_{j+1}) <= F( sum_{j >= i} ((c' - j) / m) (P_j - P_{j+1}) ),

because flipping one canary makes its correct guess wrong and does not change the others. After
summation by parts, P_i is at least an increasing function of P_{i+1}, P_{i+2}, ...: so P_c = tau
implies a lower bound on P_0, and if that exceeds 1, the probability of c correct guesses under f
is below tau.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

from privplan.accounting.gdp import epsilon_of
from privplan.auditing import register
from privplan.auditing.one_run import Guesses, count_guesses

Inverse = Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]
"""Parameters of the family to a function of y: the x with 1 - f(x) = y, elementwise."""
LARGEST_EPSILON, LARGEST_MU = 40.0, 20.0
GRID = 40


def rejected(
    canaries: int, counts: list[Guesses], level: float, parameters: np.ndarray, inverse: Inverse
) -> np.ndarray:
    """Whether each trade-off curve makes each number of correct guesses less likely than level."""
    correct = np.array([one.correct for one in counts])
    # Rows in decreasing order of correct guesses, so that those still in the recursion come first.
    order = np.argsort(-correct, kind="stable")
    indices = np.arange(correct.max())
    # rows with index < correct, by index
    active_rows = np.searchsorted(-correct[order], -indices).tolist()
    guesses = np.array([one.guesses for one in counts])[order]
    remaining = np.maximum(guesses[:, None] - indices[:, None, None], 1).astype(float)
    # All divided by m: P_{i + 1} and the sum of P_j over j > i.
    chance = np.full((len(counts), len(parameters)), level / canaries)
    beyond = chance.copy()
    most = 2.0 / canaries  # rejected already
    curve = inverse(parameters[None, :])
    for index in range(len(active_rows) - 1, -1, -1):
        active = active_rows[index]
        current, sums = chance[:active], beyond[:active]
        right = index * current
        right += sums
        least = curve(np.minimum(right, 1.0, out=right))
        least += sums
        least /= remaining[index, :active]
        np.maximum(current, least, out=current)
        np.minimum(current, most, out=current)
        sums += current
    rejections = np.empty(chance.shape, dtype=bool)
    rejections[order] = chance * canaries > 1
    return rejections


def family(delta: float) -> Inverse:
    """The trade-off curves of (epsilon, delta)-DP, by epsilon."""

    def inverse(epsilon: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        falling, rising = np.exp(-epsilon), np.exp(epsilon)

        def curve(y: np.ndarray) -> np.ndarray:
            steep = (y - delta) * falling
            flat = 1 - y
            flat *= -rising
            flat += 1 - delta
            np.maximum(steep, flat, out=steep)
            trade_off: np.ndarray = np.maximum(steep, 0.0, out=steep)
            return trade_off

        return curve

    return inverse


def gaussian(mu: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The trade-off curves of mu-GDP, by mu."""
    return lambda y: np.asarray(ndtr(ndtri(y) - mu))


@register("f-DP", "bound", order=20)
def lower_bound(scores: np.ndarray, included: np.ndarray, delta: float, confidence: float) -> float:
    """Lower bound on epsilon at delta for any mechanism."""
    return _largest(scores, included, confidence, LARGEST_EPSILON, family(delta))


@register("f-DP, Gaussian", "bound if Gaussian", order=30)
def lower_bound_if_gaussian(
    scores: np.ndarray, included: np.ndarray, delta: float, confidence: float
) -> float:
    """Lower bound on epsilon at delta if the trade-off curve is that of a Gaussian mechanism."""
    mu = _largest(scores, included, confidence, LARGEST_MU, gaussian)
    return epsilon_of(mu, delta) if mu > 0 else 0.0


def _largest(
    scores: np.ndarray, included: np.ndarray, confidence: float, top: float, inverse: Inverse
) -> float:
    """The largest parameter rejected by any number of guesses, rounded down, on refined grids."""
    counts = count_guesses(scores, included)
    if not counts:
        return 0.0
    level, low = (1 - confidence) / len(counts), 0.0
    step = top / GRID
    for _ in range(3):
        parameters = low + step * np.arange(GRID)
        rejections = rejected(len(scores), counts, level, parameters, inverse)
        hits: np.ndarray = np.logical_or.reduce(rejections, axis=0)
        if not hits[0]:
            return low
        low, step = float(parameters[np.flatnonzero(hits)[-1]]), step / GRID
    return low
