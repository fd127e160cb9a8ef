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
from privplan.auditing.one_run import Guesses, count_guesses
from privplan.auditing.registry import register

Inverse = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(parameter of the family, y) to the x with 1 - f(x) = y, elementwise."""
LARGEST_EPSILON, LARGEST_MU = 40.0, 20.0
GRID = 40


def rejected(
    canaries: int, counts: list[Guesses], level: float, parameters: np.ndarray, inverse: Inverse
) -> np.ndarray:
    """Whether each trade-off curve makes each number of correct guesses less likely than the level.

    Args:
        canaries: number of canaries, each included with probability 1/2 (m).
        counts: numbers of guesses and of correct ones [R].
        level: probability below which a curve is rejected (tau).
        parameters: parameters of the curves [E].
        inverse: the family.

    Returns:
        Whether each curve is rejected, by numbers of guesses and by curve [R, E].
    """
    guesses = np.array([[one.guesses] for one in counts])
    correct = np.array([[one.correct] for one in counts])
    chance = np.full((len(counts), len(parameters)), level)
    beyond = np.zeros_like(chance)  # sum of P_j over j > i + 1
    for index in range(int(correct.max()) - 1, -1, -1):
        active = index < correct
        right = ((index + 1) * chance + beyond) / canaries
        wrong = inverse(parameters[None, :], np.minimum(right, 1.0))
        least = (wrong * canaries + beyond + chance) / np.maximum(guesses - index, 1)
        beyond = np.where(active, beyond + chance, beyond)
        chance = np.where(active, np.maximum(chance, least), chance)
        chance = np.minimum(chance, 2.0)  # rejected already
    return np.asarray(chance > 1)


def family(delta: float) -> Inverse:
    """The trade-off curves of (epsilon, delta)-DP, by epsilon."""

    def inverse(epsilon: np.ndarray, y: np.ndarray) -> np.ndarray:
        steep = (y - delta) * np.exp(-epsilon)
        flat = 1 - delta - np.exp(epsilon) * (1 - y)
        curve: np.ndarray = np.maximum(0.0, np.maximum(steep, flat))
        return curve

    return inverse


def gaussian(mu: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The trade-off curves of mu-GDP, by mu."""
    curve: np.ndarray = ndtr(ndtri(y) - mu)
    return curve


@register("f-DP", "bound", order=20)
def lower_bound(scores: np.ndarray, included: np.ndarray, delta: float, confidence: float) -> float:
    """Lower bound on epsilon at delta for any mechanism.

    Args:
        scores: score of each canary; a higher score means more likely included [m].
        included: whether each canary was included [m].
        delta: failure probability.
        confidence: probability that the bound holds, in (0, 1).
    """
    return _largest(scores, included, confidence, LARGEST_EPSILON, family(delta))


@register("f-DP, Gaussian", "bound if Gaussian", order=30)
def lower_bound_if_gaussian(
    scores: np.ndarray, included: np.ndarray, delta: float, confidence: float
) -> float:
    """Lower bound on epsilon at delta if the trade-off curve is that of a Gaussian mechanism.

    Args:
        scores: score of each canary; a higher score means more likely included [m].
        included: whether each canary was included [m].
        delta: failure probability.
        confidence: probability that the bound holds, in (0, 1).
    """
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
