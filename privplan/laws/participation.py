"""Statistical tests of who took part in the rounds of a run.

Each p-value is an upper bound on the chance that an honest run looks at least as odd.
SciPy is imported by the tests, since every command imports the laws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np


def total_p_value(counts: Sequence[int], clients: int, ratio: float) -> float:
    """Two-sided exact binomial test of how many participations there were in all."""
    from scipy.special import bdtr, bdtrc

    trials = clients * len(counts)
    total = sum(counts)
    if total > trials:
        return 0.0
    if not 0 < ratio < 1:
        return float(total == trials * ratio)
    below = bdtr(total, trials, ratio)
    above = bdtrc(total - 1, trials, ratio) if total > 0 else 1.0
    return float(min(1.0, 2 * min(below, above)))


Draws = tuple[Sequence[int], np.ndarray, np.ndarray, int]
"""Counts of a law, its whole numbers, logarithms of their masses, and more zeros."""

# Exponents t of the Chernoff bounds; any grid gives valid ones. For a normal law
# E[exp(t x)] is finite below t = 1/2 only.
_EXPONENTS = np.geomspace(1e-3, 1e3, 200)
_EXPONENTS_ABOVE = _EXPONENTS[_EXPONENTS < 0.45]
_NO_VARIANCE = 1e-12  # a law of a single number up to rounding, which shows nothing
_REACH = 40  # standard deviations: the chance of any other size is below 1e-100


def dispersion_p_value(
    counts: Sequence[int], trials: int | Sequence[int], ratio: float
) -> float:
    """Whether counts vary as independent binomial draws, each from so many trials.

    The statistic is the sum of (count - mean)^2, each in units of its variance; the
    answer is twice the smaller of two Chernoff bounds, each the best over a grid of
    exponents, so it is never too small. Cohort sizes of a fixed-size law that was
    booked as Poisson have a statistic near zero; participations of clients of whom some
    are preferred have one that is too large.
    """
    if not 0 < ratio < 1:
        return 1.0
    if isinstance(trials, int):
        trials = [trials] * len(counts)
    counts_by_trials: dict[int, list[int]] = {}
    for count, count_trials in zip(counts, trials, strict=True):
        counts_by_trials.setdefault(count_trials, []).append(count)

    draws: list[Draws] = []
    for number, law_counts in counts_by_trials.items():
        mean = int(number * ratio)
        deviation = math.sqrt(number * ratio * (1 - ratio))
        reach = math.ceil(_REACH * deviation + _REACH)
        sizes = np.arange(max(0, mean - reach), min(number, mean + reach) + 1)
        log_mass = binomial_log_mass(sizes, number, ratio)
        draws.append((law_counts, sizes, log_mass, 0))
    return spread_p_value(*draws)


def spread_p_value(*draws: Draws) -> float:
    """``dispersion_p_value`` for draws from any laws on whole numbers."""
    terms = list(_terms(draws))
    # Each draw is expected to add 1 to the statistic; the bound of the other tail is 1.
    is_above = sum(term.statistic - term.draws for term in terms) >= 0
    exponents = _EXPONENTS_ABOVE if is_above else -_EXPONENTS

    def log_bound(index: int) -> float:
        return sum(term.log_bound(exponents[index]) for term in terms)

    log_chance = least_value(log_bound, len(exponents))
    return min(1.0, 2 * math.exp(min(0.0, log_chance)))


class _Term(NamedTuple):
    """What draws from one law add to the logarithm of a Chernoff bound.

    Attributes:
        draws: their number.
        statistic: sum of their squared distances from the mean, over the variance.
        scaled_squares: the same of each size.
        log_mass: logarithm of the chance of each size.
    """

    draws: int
    statistic: float
    scaled_squares: np.ndarray
    log_mass: np.ndarray

    def log_bound(self, exponent: float) -> float:
        """Logarithm of E[exp(t (X - x))] at an exponent t, with x the statistic."""
        # The largest logarithm is taken out, so that no exponential overflows.
        logs = self.log_mass + exponent * self.scaled_squares
        largest = float(logs.max())
        log_moment = largest + math.log(np.exp(logs - largest).sum())
        return self.draws * log_moment - exponent * self.statistic


def _terms(draws: Iterable[Draws]) -> Iterator[_Term]:
    """The terms of laws whose draws vary."""
    for counts, sizes, log_mass, zeros in draws:
        mass = np.exp(log_mass)
        mass /= mass.sum()
        mean = float(mass @ sizes)
        squares = (sizes - mean) ** 2
        variance = float(mass @ squares)
        if variance < _NO_VARIANCE:
            continue
        statistic = float(np.sum((np.asarray(counts) - mean) ** 2)) + zeros * mean**2
        yield _Term(
            len(counts) + zeros, statistic / variance, squares / variance, log_mass
        )


def least_value(convex: Callable[[int], float], length: int) -> float:
    """Least value of a convex function at 0, ..., length - 1, by ternary search."""
    convex = cache(convex)
    low = 0
    high = length - 1
    while high - low > 2:
        lower = low + (high - low) // 3
        upper = high - (high - low) // 3
        if convex(lower) <= convex(upper):
            high = upper
        else:
            low = lower
    return min(map(convex, range(low, high + 1)))


def participation_law(rounds: Mapping[float, int]) -> np.ndarray:
    """How often a client takes part in all, by an independent draw in each round."""
    law = np.ones(1)
    for ratio, count in rounds.items():
        sizes = np.arange(count + 1)
        if 0 < ratio < 1:
            mass = np.exp(binomial_log_mass(sizes, count, ratio))
        else:
            mass = (sizes == round(count * ratio)).astype(float)
        law = np.convolve(law, mass)
    return law


def binomial_log_mass(sizes: np.ndarray, clients: int, ratio: float) -> np.ndarray:
    """Logarithm of the binomial probability of each size, for a ratio in (0, 1)."""
    from scipy.special import gammaln

    choose = gammaln(clients + 1) - gammaln(sizes + 1) - gammaln(clients - sizes + 1)
    mass: np.ndarray = (
        choose + sizes * np.log(ratio) + (clients - sizes) * np.log1p(-ratio)
    )
    return mass
