"""The one-run audit: a lower bound on epsilon from guesses about many canaries of one run.

The canaries with the highest and lowest scores are guessed to be included or not; the others are
not guessed. T. Steinke, M. Nasr, M. Jagielski, Privacy Auditing with One (1) Training Run,
NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from privplan.auditing import register
from privplan.laws.participation import binomial_log_mass

FEWEST = 16
"""Smallest number of guesses, where there are as many canaries."""
LARGEST = 60.0
"""Upper end of the search for a bound on epsilon."""


@dataclass(frozen=True)
class Guesses:
    """The number of guessed canaries and of correct guesses."""

    guesses: int
    correct: int


def count_guesses(scores: np.ndarray, included: np.ndarray) -> list[Guesses]:
    """Guesses at both ends of the scores and at the upper end only, for decreasing numbers.

    Each number of guesses is a quarter of the one before, and depends only on the number of
    canaries, so that the choice is independent of the scores.
    """
    ranked = included[np.argsort(-scores, kind="stable")].astype(bool)
    counts, size = [], len(ranked) - len(ranked) % 2
    while size >= min(FEWEST, len(ranked) - len(ranked) % 2) > 0:
        top, bottom = ranked[: size // 2], ranked[len(ranked) - size // 2 :]
        counts.append(Guesses(size, int(top.sum() + (~bottom).sum())))
        counts.append(Guesses(size // 2, int(top.sum())))
        size = size // 8 * 2
    return counts


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Upper bound on the probability of ``correct`` guesses under (epsilon, delta)-DP.

    Main theorem of the paper: each guess is correct with the probability of randomised response at
    epsilon, and delta adds at most 2 m delta times the largest mean over i of the probabilities of
    falling short of the number of correct guesses by 1 to i.
    """
    rate = 1 / (1 + np.exp(-epsilon))
    if not correct:
        return 1.0
    reached = float(bdtrc(correct - 1, guesses, rate))
    mass = np.exp(binomial_log_mass(np.arange(correct - 1, -1, -1), guesses, rate))
    worst = float((np.cumsum(mass) / np.arange(1, correct + 1)).max())
    return min(1.0, reached + 2 * canaries * delta * worst)


@register("one run", "bound", order=10)
def lower_bound(scores: np.ndarray, included: np.ndarray, delta: float, confidence: float) -> float:
    """Lower bound on epsilon at delta for any mechanism.

    The numbers of guesses share the error rate equally (union bound).
    """
    counts = count_guesses(scores, included)
    level = (1 - confidence) / len(counts)
    return max(
        (_largest(len(scores), one.guesses, one.correct, delta, level) for one in counts),
        default=0.0,
    )


def _largest(canaries: int, guesses: int, correct: int, delta: float, level: float) -> float:
    """The largest epsilon that is rejected at the level, rounded down."""
    low, high = 0.0, LARGEST
    if p_value(canaries, guesses, correct, 0.0, delta) >= level:
        return 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        if p_value(canaries, guesses, correct, middle, delta) < level:
            low = middle
        else:
            high = middle
    return low
