"""Statistical tests of who took part in the rounds of a run.

Each p-value is an upper bound on the chance that an honest run looks at least as odd. SciPy is
imported by the tests, since every command imports the laws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

BLOCK = 2**21
"""Most numbers of a table that a test holds at a time."""


def total_p_value(counts: Sequence[int], clients: int, ratio: float) -> float:
    """Two-sided exact binomial test of how many participations there were in all."""
    from scipy.special import bdtr, bdtrc

    trials, total = clients * len(counts), sum(counts)
    if total > trials:
        return 0.0
    if not 0 < ratio < 1:
        return 1.0 if total == trials * ratio else 0.0
    below = bdtr(total, trials, ratio)
    above = bdtrc(total - 1, trials, ratio) if total > 0 else 1.0
    return float(min(1.0, 2 * min(below, above)))


def dispersion_p_value(counts: Sequence[int], trials: int, ratio: float) -> float:
    """Whether counts vary as independent binomial draws would.

    The statistic is the sum of (count - mean)^2; the answer is twice the smaller of two Chernoff
    bounds, each the best over a grid of exponents, so it is never too small. Cohort sizes of a
    fixed-size law that was booked as Poisson have a statistic near zero; participations of
    clients of whom some are preferred have one that is too large.
    """
    if not 0 < ratio < 1:
        return 1.0
    sizes = likely_sizes(trials, ratio)
    return spread_p_value(counts, sizes, binomial_log_mass(sizes, trials, ratio))


def likely_sizes(trials: int, ratio: float) -> np.ndarray:
    """Numbers of successes; the chance of any other one is below 1e-100 and is neglected."""
    reach = math.ceil(40 * math.sqrt(trials * ratio * (1 - ratio)) + 40)
    mean = int(trials * ratio)
    return np.arange(max(0, mean - reach), min(trials, mean + reach) + 1)


def spread_p_value(
    counts: Sequence[int], sizes: np.ndarray, log_mass: np.ndarray, zeros: int = 0
) -> float:
    """``dispersion_p_value`` for draws from any law on whole numbers, and so many more zeros."""
    mass = np.exp(log_mass)
    mean = float(mass @ sizes / mass.sum())
    variance = float(mass @ (sizes - mean) ** 2 / mass.sum())
    if variance < 1e-12:
        return 1.0
    squares = float(np.sum((np.asarray(counts) - mean) ** 2)) + zeros * mean**2
    statistic, number = squares / variance, len(counts) + zeros
    square = (sizes - mean) ** 2 / variance
    exponents = np.geomspace(1e-3, 1e3, 200)
    low = _chernoff(log_mass, square, -exponents, statistic, number)
    high = _chernoff(log_mass, square, exponents[exponents < 0.45], statistic, number)
    return float(min(1.0, 2 * min(low, high)))


def participation_law(rounds: Mapping[float, int]) -> np.ndarray:
    """How often a client takes part in all, when it takes part in each round independently."""
    law = np.ones(1)
    for ratio, count in rounds.items():
        sizes = np.arange(count + 1)
        if 0 < ratio < 1:
            mass = np.exp(binomial_log_mass(sizes, count, ratio))
        else:
            mass = (sizes == round(count * ratio)).astype(float)
        law = np.convolve(law, mass)
    return law


def _chernoff(
    log_mass: np.ndarray, square: np.ndarray, exponents: np.ndarray, statistic: float, rounds: int
) -> float:
    """Smallest of E[exp(t X)]^rounds exp(-t statistic) over the exponents t, at most 1."""
    least, rows = 0.0, max(1, BLOCK // len(square))
    for first in range(0, len(exponents), rows):
        block = exponents[first : first + rows]
        terms = log_mass[None, :] + block[:, None] * square[None, :]
        top = terms.max(axis=1)
        log_moment = top + np.log(np.exp(terms - top[:, None]).sum(axis=1))
        least = min(least, (rounds * log_moment - block * statistic).min())
    return float(np.exp(least))


def binomial_log_mass(sizes: np.ndarray, clients: int, ratio: float) -> np.ndarray:
    """Logarithm of the binomial probability of each size, for a ratio in (0, 1)."""
    from scipy.special import gammaln

    choose = gammaln(clients + 1) - gammaln(sizes + 1) - gammaln(clients - sizes + 1)
    mass: np.ndarray = choose + sizes * np.log(ratio) + (clients - sizes) * np.log1p(-ratio)
    return mass
