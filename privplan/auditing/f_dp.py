"""The one-run audit of a whole trade-off curve.

S. Mahloujifar, L. Melis, K. Chaudhuri, Auditing f-Differential Privacy in One Run, ICML 2025
(arXiv 2410.22235). Let P_i be the chance of at least i right guesses out of c' on m canaries.
For a mechanism with trade-off curve f, and F = 1 - f,

    sum_{j > i} (j / m) (P_j - P_{j+1}) <= F( sum_{j >= i} ((c' - j) / m) (P_j - P_{j+1}) ),

because flipping one canary turns its right guess into a wrong one and leaves the others as they
are. With sums of the P_j in the place of the two series it says that P_i is at least an
increasing function of P_{i+1}, P_{i+2}, ...: so P_c = tau forces a least P_0, and where that
exceeds 1, c right guesses have a chance below tau under f.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

from privplan.accounting.gdp import epsilon_of
from privplan.auditing.one_run import Guessed, guessed

Inverse = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(parameter of the family, y) to the x with 1 - f(x) = y, elementwise."""
LARGEST_EPSILON, LARGEST_MU = 40.0, 20.0
GRID = 40


def refuted(
    canaries: int, tries: list[Guessed], level: float, parameters: np.ndarray, inverse: Inverse
) -> np.ndarray:
    """Which trade-off curves of a family make the guesses less likely than the level.

    Args:
        canaries: canaries, each in by a fair coin (m).
        tries: numbers of guesses and of right ones [R].
        level: chance below which a curve is refuted (tau).
        parameters: of the curves [E].
        inverse: the family.

    Returns:
        Whether each curve is refuted by each try [R, E].
    """
    guesses = np.array([[one.guesses] for one in tries])
    correct = np.array([[one.correct] for one in tries])
    chance = np.full((len(tries), len(parameters)), level)
    beyond = np.zeros_like(chance)  # sum of P_j over j > i + 1
    for index in range(int(correct.max()) - 1, -1, -1):
        active = index < correct
        right = ((index + 1) * chance + beyond) / canaries
        wrong = inverse(parameters[None, :], np.minimum(right, 1.0))
        least = (wrong * canaries + beyond + chance) / np.maximum(guesses - index, 1)
        beyond = np.where(active, beyond + chance, beyond)
        chance = np.where(active, np.maximum(chance, least), chance)
        chance = np.minimum(chance, 2.0)  # refuted already
    return np.asarray(chance > 1)


def family(delta: float) -> Inverse:
    """The trade-off curves of (epsilon, delta)-DP, by epsilon."""

    def inverse(epsilon: np.ndarray, y: np.ndarray) -> np.ndarray:
        steep = (y - delta) * np.exp(-epsilon)
        flat = 1 - delta - np.exp(epsilon) * (1 - y)
        found: np.ndarray = np.maximum(0.0, np.maximum(steep, flat))
        return found

    return inverse


def gaussian(mu: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The trade-off curves of mu-GDP, by mu."""
    found: np.ndarray = ndtr(ndtri(y) - mu)
    return found


def lower_bound(scores: np.ndarray, included: np.ndarray, delta: float, confidence: float) -> float:
    """Epsilon at delta is at least this, with the given confidence, whatever the mechanism.

    Args:
        scores: how much each canary seems to be in [m].
        included: which of them were [m].
        delta: failure probability.
        confidence: chance that the bound holds, in (0, 1).
    """
    return _largest(scores, included, confidence, LARGEST_EPSILON, family(delta))


def lower_bound_if_gaussian(
    scores: np.ndarray, included: np.ndarray, delta: float, confidence: float
) -> float:
    """The same where the mechanism's trade-off curve is that of some Gaussian."""
    mu = _largest(scores, included, confidence, LARGEST_MU, gaussian)
    return epsilon_of(mu, delta) if mu > 0 else 0.0


def _largest(
    scores: np.ndarray, included: np.ndarray, confidence: float, top: float, inverse: Inverse
) -> float:
    """The largest parameter that any try refutes, rounded down to a grid within a grid."""
    tries = guessed(scores, included)
    if not tries:
        return 0.0
    level, low = (1 - confidence) / len(tries), 0.0
    step = top / GRID
    for _ in range(3):
        parameters = low + step * np.arange(GRID)
        refutations = refuted(len(scores), tries, level, parameters, inverse)
        hits: np.ndarray = np.logical_or.reduce(refutations, axis=0)
        if not hits[0]:
            return low
        low, step = float(parameters[np.flatnonzero(hits)[-1]]), step / GRID
    return low
