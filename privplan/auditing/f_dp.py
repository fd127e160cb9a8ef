"""The one-run audit of a family of trade-off curves.

S. Mahloujifar, L. Melis, K. Chaudhuri, Auditing f-Differential Privacy in One Run, ICML
2025 (arXiv 2410.22235). Let P_i be the probability of at least i correct guesses of c'
on m canaries. For a mechanism with trade-off curve f, and F = 1 - f,

    sum_{j > i} (j / m) (P_j - P_{j+1})
        <= F( sum_{j >= i} ((c' - j) / m) (P_j - P_{j+1}) ),

because flipping one canary makes its correct guess wrong and does not change the
others. After summation by parts, P_i is at least an increasing function of P_{i+1},
P_{i+2}, ...: so P_c = tau implies a lower bound on P_0, and if that exceeds 1, the
probability of c correct guesses under f is below tau.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

from privplan.auditing.error_rates import epsilon_of_mu
from privplan.auditing.one_run import Guesses, count_guesses

Inverse = Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]
"""Parameters of the family to a function of y: the x with 1 - f(x) = y, elementwise."""
# Upper ends of the searches for a parameter.
LARGEST_EPSILON = 40.0
LARGEST_MU = 20.0
# Parameters per grid; each of the grids refines a step of the one before.
GRID = 40
_GRIDS = 3


def curves_rejected(
    canaries: int,
    counts: list[Guesses],
    level: float,
    parameters: np.ndarray,
    inverse: Inverse,
) -> np.ndarray:
    """Whether curves make numbers of correct guesses less likely than level.

    Args:
        canaries: their number m.
        counts: numbers of guesses and of correct guesses.
        level: the probability tau.
        parameters: of the curves in the family.
        inverse: the family.

    Returns:
        Whether a count rejects a curve [counts, parameters].
    """
    correct = np.array([count.correct for count in counts])

    # Rows in decreasing order of correct guesses: at each index i of the recursion its
    # rows, those with i < correct, come first.
    order = np.argsort(-correct, kind="stable")
    indices = np.arange(correct.max())
    active_rows = np.searchsorted(-correct[order], -indices).tolist()
    # c' - i, by index and row
    remaining = np.array([count.guesses for count in counts])[order][:, None]
    remaining = np.maximum(remaining - indices[:, None, None], 1).astype(float)

    # All divided by m: P_{i + 1} and the sum of P_j over j > i.
    chance = np.full((len(counts), len(parameters)), level / canaries)
    beyond = chance.copy()
    curve = inverse(parameters[None, :])
    for index in range(len(active_rows) - 1, -1, -1):
        active = active_rows[index]
        current = chance[:active]
        sums = beyond[:active]

        # The smallest P_i that satisfies the inequality; in place, for speed.
        right = index * current
        right += sums
        lowest = curve(np.minimum(right, 1.0, out=right))
        lowest += sums
        lowest /= remaining[index, :active]

        # P_i does not fall with i, and above 1 the curve is rejected already.
        np.maximum(current, lowest, out=current)
        np.minimum(current, 2.0 / canaries, out=current)
        sums += current
    return np.asarray(chance * canaries > 1)[np.argsort(order)]


def family(delta: float) -> Inverse:
    """The trade-off curves of (epsilon, delta)-DP, by epsilon.

    The inverse is the maximum of two lines and of 0.
    """

    def inverse(epsilon: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        falling = np.exp(-epsilon)
        rising = np.exp(epsilon)

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


def gaussian_family(mu: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The trade-off curves of mu-GDP, by mu."""
    return lambda y: np.asarray(ndtr(ndtri(y) - mu))


def f_dp(
    scores: np.ndarray, included: np.ndarray, delta: float, confidence: float
) -> float:
    """Lower bound on epsilon at delta for any mechanism."""
    return _largest_rejected(
        scores, included, confidence, LARGEST_EPSILON, family(delta)
    )


def f_dp_gaussian(
    scores: np.ndarray, included: np.ndarray, delta: float, confidence: float
) -> float:
    """Lower bound on epsilon at delta if the trade-off curve is that of a Gaussian."""
    mu = _largest_rejected(scores, included, confidence, LARGEST_MU, gaussian_family)
    return epsilon_of_mu(mu, delta)


def _largest_rejected(
    scores: np.ndarray,
    included: np.ndarray,
    confidence: float,
    top: float,
    inverse: Inverse,
) -> float:
    """The largest parameter that a count rejects, rounded down, on refined grids."""
    counts = count_guesses(scores, included)
    if not counts:
        return 0.0
    # Counts share the error rate (union bound).
    level = (1 - confidence) / len(counts)
    low = 0.0
    step = top / GRID
    for _ in range(_GRIDS):
        parameters = low + step * np.arange(GRID)
        rejections = curves_rejected(len(scores), counts, level, parameters, inverse)
        hits: np.ndarray = np.logical_or.reduce(rejections, axis=0)
        if not hits[0]:
            return low
        low = float(parameters[np.flatnonzero(hits)[-1]])
        step /= GRID
    return low
