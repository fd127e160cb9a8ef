"""Tests of who took part in which rounds, against uniform cohorts that are independent by round.

Given its size, each cohort is a uniform subset of its group under every law of this project, so
that all tests are exact or Chernoff bounds given the sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache, lru_cache

import numpy as np

from privplan.scipy_functions import gammaln

_EXPONENTS = np.geomspace(1e-3, 20, 120)
"""Exponents among which a Chernoff bound takes the best."""


def hypergeometric(population: int, marked: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Values and log-probabilities of the number of marked clients in a uniform draw.

    Args:
        population: number of clients.
        marked: how many of them are marked.
        draws: size of the draw.
    """
    values = np.arange(max(0, draws + marked - population), min(draws, marked) + 1)
    log_mass = (
        _log_choose(marked, values)
        + _log_choose(population - marked, draws - values)
        - _log_choose(population, np.array(draws))
    )
    return values, log_mass


@lru_cache(maxsize=1 << 15)
def hypergeometric_p_value(found: int, population: int, marked: int, draws: int) -> float:
    """Exact two-sided p-value of the number of marked clients in a uniform draw."""
    values, log_mass = hypergeometric(population, marked, draws)
    mass = np.exp(log_mass)
    return float(min(1.0, 2 * min(mass[values <= found].sum(), mass[values >= found].sum())))


def overlaps_p_value(overlaps: Sequence[int], sizes: Sequence[tuple[int, int]], n: int) -> float:
    """Chernoff bound on the two-sided tail of the sum of overlaps of pairs of cohorts.

    The overlap of two independent uniform subsets is hypergeometric given one of them. Overlaps of
    rounds t and t + lag for all t are a martingale with these conditional laws, so that the
    moment generating functions multiply.

    Args:
        overlaps: number of common clients of each pair.
        sizes: the two cohorts' sizes of each pair.
        n: clients of the group.
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

    Args:
        cohorts: positions of the participants of each round.
        n: clients of the group.
        distance: distance of the two positions.
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
