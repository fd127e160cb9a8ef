"""Statistical tests of who took part in the rounds of a run.

Each p-value is an upper bound on the chance that an honest run looks at least as odd. SciPy is
imported by the tests, since every command imports the laws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np


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


Draws = tuple[Sequence[int], np.ndarray, np.ndarray, int]
"""Counts of one law, its whole numbers, the logarithms of their masses, and so many more zeros."""


def dispersion_p_value(
    counts: Sequence[int], trials: int | Sequence[int], ratio: float
) -> float:
    """Whether counts vary as independent binomial draws would, each from so many trials.

    The statistic is the sum of (count - mean)^2, each in units of its variance; the answer is twice
    the smaller of two Chernoff bounds, each the best over a grid of exponents, so it is never too
    small. Cohort sizes of a fixed-size law that was booked as Poisson have a statistic near zero;
    participations of clients of whom some are preferred have one that is too large.
    """
    if not 0 < ratio < 1:
        return 1.0
    alike: dict[int, list[int]] = {}
    each = [trials] * len(counts) if isinstance(trials, int) else trials
    for count, of in zip(counts, each, strict=True):
        alike.setdefault(of, []).append(count)
    draws: list[Draws] = []
    for of, found in alike.items():  # the chance of any other size is below 1e-100
        mean, reach = (
            int(of * ratio),
            math.ceil(40 * math.sqrt(of * ratio * (1 - ratio)) + 40),
        )
        sizes = np.arange(max(0, mean - reach), min(of, mean + reach) + 1)
        draws.append((found, sizes, binomial_log_mass(sizes, of, ratio), 0))
    return spread_p_value(*draws)


def spread_p_value(*draws: Draws) -> float:
    """``dispersion_p_value`` for draws from any laws on whole numbers."""
    exponents = np.geomspace(1e-3, 1e3, 200)
    exponents = np.concatenate([-exponents, exponents[exponents < 0.45]])
    bounds = np.zeros(
        len(exponents)
    )  # logarithms of E[exp(t (X - x))], x the statistic
    for counts, sizes, log_mass, zeros in draws:
        mass = np.exp(log_mass)
        mean = float(mass @ sizes / mass.sum())
        variance = float(mass @ (sizes - mean) ** 2 / mass.sum())
        if variance < 1e-12:
            continue
        squares = float(np.sum((np.asarray(counts) - mean) ** 2)) + zeros * mean**2
        square, number = (sizes - mean) ** 2 / variance, len(counts) + zeros
        for at, one in enumerate(exponents):
            logs = log_mass + one * square
            moment = (top := logs.max()) + math.log(np.exp(logs - top).sum())
            bounds[at] += number * moment - one * squares / variance
    return float(min(1.0, 2 * np.exp(min(0.0, bounds.min()))))


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


def binomial_log_mass(sizes: np.ndarray, clients: int, ratio: float) -> np.ndarray:
    """Logarithm of the binomial probability of each size, for a ratio in (0, 1)."""
    from scipy.special import gammaln

    choose = gammaln(clients + 1) - gammaln(sizes + 1) - gammaln(clients - sizes + 1)
    mass: np.ndarray = (
        choose + sizes * np.log(ratio) + (clients - sizes) * np.log1p(-ratio)
    )
    return mass
