"""Guesses of who was in, from scores: the surest first, the others left open.

The one-run audit: many canaries, one run, guesses who was in.

T. Steinke, M. Nasr, M. Jagielski, Privacy Auditing with One (1) Training Run, NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

FEWEST = 16


@dataclass(frozen=True)
class Guessed:
    """How many canaries were guessed, and how many of the guesses were right."""

    guesses: int
    correct: int


def guessed(scores: np.ndarray, included: np.ndarray) -> list[Guessed]:
    """A quarter as many guesses each time: on both ends of the scores, and on the upper end alone.

    How many are guessed is fixed beforehand and depends on the number of canaries only.

    Args:
        scores: how much each canary seems to be in [m].
        included: which of them were [m].
    """
    ranked = included[np.argsort(-scores, kind="stable")].astype(bool)
    found, size = [], len(ranked) - len(ranked) % 2
    while size >= min(FEWEST, len(ranked) - len(ranked) % 2) > 0:
        top, bottom = ranked[: size // 2], ranked[len(ranked) - size // 2 :]
        found.append(Guessed(size, int(top.sum() + (~bottom).sum())))
        found.append(Guessed(size // 2, int(top.sum())))
        size = size // 8 * 2
    return found


LARGEST = 60.0
"""No bound above this is looked for."""


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Chance of so many correct guesses against any (epsilon, delta)-DP mechanism, at most.

    Their main theorem: each guess is right as randomised response at epsilon would have it, and
    delta adds at most 2 m delta times the largest mean over i of the chances of falling short of
    the number of correct guesses by 1 to i.

    Args:
        canaries: canaries, each in by a fair coin (m).
        guesses: how many of them were guessed (r).
        correct: right guesses (v).
        epsilon: the privacy that is doubted.
        delta: its failure probability.
    """
    rate = 1 / (1 + np.exp(-epsilon))
    reached = float(binom.sf(correct - 1, guesses, rate))
    short = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, rate))
    worst = float((short / np.arange(1, correct + 1)).max()) if correct else 0.0
    return min(1.0, reached + 2 * canaries * delta * worst)


def lower_bound(scores: np.ndarray, included: np.ndarray, delta: float, confidence: float) -> float:
    """Epsilon at delta is at least this, with the given confidence, whatever the mechanism.

    Several numbers of guesses share the rate of errors among them.

    Args:
        scores: how much each canary seems to be in [m].
        included: which of them were [m].
        delta: failure probability.
        confidence: chance that the bound holds, in (0, 1).
    """
    tries = guessed(scores, included)
    level = (1 - confidence) / len(tries)
    return max(
        (_largest(len(scores), one.guesses, one.correct, delta, level) for one in tries),
        default=0.0,
    )


def _largest(canaries: int, guesses: int, correct: int, delta: float, level: float) -> float:
    """The largest epsilon that is refuted at the level, rounded down."""
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
