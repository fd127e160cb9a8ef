"""Statistical tests of what a run recorded, with false-alarm rates that are upper bounds.

Each p-value is an upper bound on the chance that an honest run looks at least as odd; it is exact
or follows from a Chernoff bound, never from a limit theorem. Three topics, in this order: how
often clients took part; cohorts against uniform ones that are independent by round (given its
size, each cohort is a uniform subset of its group under every law of this project); measured noise
against independent standard normals.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache, lru_cache

import numpy as np
from scipy.special import bdtr, bdtrc, chdtr, chdtrc, gammaln, ndtr

from privplan.accounting.families import noise_p_value as noise_p_value
from privplan.evidence import CLOSE

FALSE_ALARM = 1e-6
"""Largest false-alarm rate of a check of the ledger, per honest run."""
EVIDENCE_FALSE_ALARM = 1e-4
"""The same for a check of measured noise or of cohorts; power needs a larger rate there."""
DENSITY = 1 / math.sqrt(2 * math.pi)
"""Largest density of the standard normal law."""
_EXPONENTS = np.geomspace(1e-3, 20, 120)
"""Exponents among which a Chernoff bound takes the best."""


def oddest_client(counts: np.ndarray, law: np.ndarray) -> tuple[int, float]:
    """The client whose number of participations is the oddest, and how odd it is."""
    below, above = np.cumsum(law), np.cumsum(law[::-1])[::-1]
    inside = np.minimum(counts, len(law) - 1)
    chances = np.where(counts < len(law), np.minimum(below[inside], above[inside]), 0.0)
    oddest = int(np.argmin(chances))
    return oddest, float(min(1.0, 2 * len(counts) * chances[oddest]))


def hypergeometric(population: int, marked: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Values and log-probabilities of the number of marked clients in a uniform draw."""
    values = np.arange(max(0, draws + marked - population), min(draws, marked) + 1)
    log_mass = (
        _log_choose(marked, values)
        + _log_choose(population - marked, draws - values)
        - _log_choose(population, np.array(draws))
    )
    return values, log_mass


def hypergeometric_p_value(found: int, population: int, marked: int, draws: int) -> float:
    """Exact two-sided p-value of the number of marked clients in a uniform draw."""
    least, chances = _hypergeometric_p_values(population, min(marked, draws), max(marked, draws))
    index = found - least
    return float(chances[index]) if 0 <= index < len(chances) else 0.0


@lru_cache(maxsize=512)
def _hypergeometric_p_values(population: int, marked: int, draws: int) -> tuple[int, np.ndarray]:
    """Least number of marked clients in a uniform draw, and p-values of it and of each above.

    The law is symmetric in its last two arguments.
    """
    values, log_mass = hypergeometric(population, marked, draws)
    mass = np.exp(log_mass)
    below, above = np.cumsum(mass), np.cumsum(mass[::-1])[::-1]
    return int(values[0]), np.minimum(1.0, 2 * np.minimum(below, above))


def overlaps_p_value(overlaps: Sequence[int], sizes: Sequence[tuple[int, int]], n: int) -> float:
    """Chernoff bound on the two-sided tail of the sum of overlaps of pairs of cohorts.

    The overlap of two independent uniform subsets is hypergeometric given one of them. Overlaps of
    rounds t and t + lag for all t are a martingale with these conditional laws, so that the
    moment generating functions multiply.
    """
    laws = Counter((min(pair), max(pair)) for pair in sizes)  # the law is symmetric in the sizes
    terms = [hypergeometric(n, *pair) for pair in laws]
    lengths, counts = [len(values) for values, _ in terms], np.array(list(laws.values()))
    starts = np.cumsum([0, *lengths[:-1]])
    values, log_mass = map(np.concatenate, zip(*terms, strict=True))
    found, mean = sum(overlaps), sum(one * other for one, other in sizes) / n
    side = 1.0 if found >= mean else -1.0  # the bound of the other side is 1

    @cache
    def exponent(index: int) -> float:
        slope = side * float(_EXPONENTS[index])
        powers = log_mass + slope * values
        largest = np.maximum.reduceat(powers, starts)
        sums = np.add.reduceat(np.exp(powers - np.repeat(largest, lengths)), starts)
        return float(counts @ (largest + np.log(sums))) - slope * found

    low, high = 0, len(_EXPONENTS) - 1  # a sum of convex functions has one minimum
    while high - low > 2:
        left, right = low + (high - low) // 3, high - (high - low) // 3
        low, high = (low, right) if exponent(left) <= exponent(right) else (left, high)
    least = min(exponent(index) for index in range(low, high + 1))
    return min(1.0, 2 * float(np.exp(min(0.0, least))))


def overlap(left: Collection[int], right: frozenset[int]) -> int:
    """Number of clients in both cohorts."""
    return len(right.intersection(left))


def neighbours_p_value(cohorts: Sequence[Sequence[int]], n: int, distance: int) -> float:
    """Bound on the upper tail of how many clients took part with a client ``distance`` apart.

    Counts, over all rounds, disjoint pairs of positions (i, i + distance) both of whose clients
    took part. Indicators of clients in a uniform subset are negatively associated, and so are
    indicators of disjoint pairs; a multiplicative Chernoff bound applies.
    """
    position = np.arange(n)
    is_first = (position // distance % 2 == 0) & (position + distance < n)
    mean, found, pairs = 0.0, 0, int(is_first.sum())
    for cohort in cohorts:
        size = len(cohort)
        present, drawn = np.zeros(n + distance, dtype=bool), np.asarray(cohort, dtype=np.int64)
        present[drawn] = True
        found += int((is_first[drawn] & present[drawn + distance]).sum())
        mean += pairs * size * (size - 1) / (n * (n - 1)) if n > 1 else 0.0
    if found <= mean or mean == 0:
        return 1.0
    return float(np.exp(min(0.0, found - mean - found * np.log(found / mean))))


def _log_choose(total: int, chosen: np.ndarray) -> np.ndarray:
    found: np.ndarray = gammaln(total + 1) - gammaln(chosen + 1) - gammaln(total - chosen + 1)
    return found


def ks_p_value(distance: float, n: int) -> float:
    """P-value of a Kolmogorov-Smirnov distance (Massart 1990, the DKW inequality)."""
    return min(1.0, 2 * math.exp(-2 * n * distance**2))


def counts_p_values(counts: np.ndarray, n: int, probabilities: np.ndarray) -> np.ndarray:
    """Exact two-sided binomial p-values of numbers of coordinates in cells or tails."""
    below = bdtr(counts, n, probabilities)
    above = np.where(counts > 0, bdtrc(np.maximum(counts - 1, 0), n, probabilities), 1.0)
    smaller = np.minimum(below, above)
    chances: np.ndarray = np.minimum(1.0, 2 * smaller)
    return chances


def tail_probabilities(limits: Sequence[float]) -> np.ndarray:
    """Probability that a standard normal exceeds each limit in absolute value."""
    probabilities: np.ndarray = 2 * ndtr(-np.asarray(limits))
    return probabilities


def squares_p_values(squares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Exact two-sided chi-square p-values of sums of squares."""
    smaller = np.minimum(chdtr(counts, squares), chdtrc(counts, squares))
    chances: np.ndarray = np.minimum(1.0, 2 * smaller)
    return chances


def close_pairs_p_value(pairs: int, sizes: Sequence[int]) -> float:
    """P-value of the number of neighbouring sorted values that are closer than ``CLOSE``.

    With the distribution function as a transform, the values of a vector become n independent
    uniform variables, whose spacings are negatively associated and at most ``a`` with probability
    1 - (1 - a)^n. A multiplicative Chernoff bound holds for sums of negatively associated
    indicators (Dubhashi and Ranjan 1998).
    """
    mean = sum((n - 1) * -math.expm1(n * math.log1p(-CLOSE * DENSITY)) for n in sizes)
    if pairs <= mean or mean == 0:
        return 1.0
    return math.exp(min(0.0, pairs - mean - pairs * math.log(pairs / mean)))


def product_p_values(products: np.ndarray, n: int | np.ndarray) -> np.ndarray:
    """Chernoff bound on two-sided tails of sums of products x_i y_i of independent normals.

    The logarithm of the moment generating function at t is -(n / 2) log(1 - t^2).
    """
    s = np.maximum(np.abs(np.asarray(products, dtype=float)), 1e-12)
    t = 2 * s / (n + np.sqrt(np.square(np.asarray(n, dtype=float)) + 4 * s**2))
    bounds: np.ndarray = np.minimum(1.0, 2 * np.exp(-t * s - n / 2 * np.log1p(-(t**2))))
    return bounds


def lagged_p_values(products: np.ndarray, n: int | np.ndarray) -> np.ndarray:
    """As ``product_p_values`` for products z_i z_(i + lag) within one vector of n normals.

    The quadratic form has trace 0 and eigenvalues in [-1, 1] (the mean of a shift matrix
    and its transpose), so that by convexity the logarithm of its moment generating function at t is
    at most -(n / 4) log(1 - 4 t^2): half the exponent of ``product_p_values``.
    """
    bounds = 2 * np.sqrt(product_p_values(products, n) / 2)
    chances: np.ndarray = np.minimum(1.0, bounds)
    return chances


def normal_p_values(values: np.ndarray) -> np.ndarray:
    """Exact two-sided p-values of standard normals."""
    chances: np.ndarray = 2 * ndtr(-np.abs(values))
    return chances
