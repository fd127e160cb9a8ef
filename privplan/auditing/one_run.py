"""The one-run audit: guesses about many canaries of one run.

The canaries with the highest and lowest scores are guessed to be included or not; the
others are not guessed. T. Steinke, M. Nasr, M. Jagielski, Privacy Auditing with One (1)
Training Run, NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from privplan.laws.participation import binomial_log_mass

# Smallest number of guesses, where there are as many canaries.
FEWEST = 16
# Upper end of the search for a bound on epsilon, and the width at which it ends.
LARGEST_EPSILON = 60.0
_PRECISION = 1e-4


@dataclass(frozen=True)
class Guesses:
    """The number of guessed canaries and of correct guesses."""

    guesses: int
    correct: int


def count_guesses(scores: np.ndarray, included: np.ndarray) -> list[Guesses]:
    """Guesses at both ends of the scores and at the upper end, for decreasing numbers.

    Each number of guesses is a quarter of the one before, and depends only on the
    number of canaries, so that the choice is independent of the scores.
    """
    ranked = included[np.argsort(-scores, kind="stable")].astype(bool)
    even_count = len(ranked) - len(ranked) % 2
    counts: list[Guesses] = []
    size = even_count
    while size >= min(FEWEST, even_count) > 0:
        top = ranked[: size // 2]
        bottom = ranked[len(ranked) - size // 2 :]
        counts.append(Guesses(size, int(top.sum() + (~bottom).sum())))
        counts.append(Guesses(size // 2, int(top.sum())))
        # A quarter, and even: half of it is guessed at each end.
        size = size // 8 * 2
    return counts


def guesses_p_value(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float
) -> float:
    """Upper bound on the probability of ``correct`` guesses under (epsilon, delta)-DP.

    Main theorem of the paper: each guess is correct with the probability of randomised
    response at epsilon, and delta adds at most 2 m delta times the largest mean over i
    of the probabilities of falling short of the number of correct guesses by 1 to i.
    """
    if not correct:
        return 1.0
    rate = 1 / (1 + np.exp(-epsilon))
    reached = float(bdtrc(correct - 1, guesses, rate))
    mass = np.exp(binomial_log_mass(np.arange(correct - 1, -1, -1), guesses, rate))
    largest_mean = float((np.cumsum(mass) / np.arange(1, correct + 1)).max())
    return min(1.0, reached + 2 * canaries * delta * largest_mean)


def one_run(
    scores: np.ndarray, included: np.ndarray, delta: float, confidence: float
) -> float:
    """Lower bound for any mechanism.

    Numbers of guesses share the error rate (union bound).
    """
    counts = count_guesses(scores, included)
    level = (1 - confidence) / max(1, len(counts))
    bounds = (_epsilon(count, len(scores), delta, level) for count in counts)
    return max(bounds, default=0.0)


def _epsilon(count: Guesses, canaries: int, delta: float, level: float) -> float:
    """The largest epsilon under which the correct guesses are less likely than level.

    By bisection, whose lower end is always rejected.
    """

    def rejected(epsilon: float) -> bool:
        correct = count.correct
        return guesses_p_value(canaries, count.guesses, correct, epsilon, delta) < level

    if not rejected(0.0):
        return 0.0
    low = 0.0
    high = LARGEST_EPSILON
    while high - low > _PRECISION:
        middle = (low + high) / 2
        if rejected(middle):
            low = middle
        else:
            high = middle
    return low
