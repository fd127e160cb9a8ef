"""P-values of participations and of cohorts.

Given its size, each cohort is a uniform subset of its group under every law of this
project, and those of different rounds are independent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cache, lru_cache

import numpy as np
from scipy.special import gammaln

# Exponents among which a Chernoff bound takes the best. Each of them gives a bound.
_EXPONENTS = np.geomspace(1e-3, 20, 120)


def oddest_client(
    counts: np.ndarray, law: np.ndarray, clients: int
) -> tuple[int, float]:
    """The index of the oddest number of participations, and how odd it is among all.

    Args:
        counts: number of participations of clients.
        law: probability of each number, from 0.
        clients: of the group, among whom the oddest was chosen: a union bound.
    """
    below = np.cumsum(law)
    above = np.cumsum(law[::-1])[::-1]
    inside = np.minimum(counts, len(law) - 1)
    smaller_tails = np.minimum(below[inside], above[inside])
    chances = np.where(counts < len(law), smaller_tails, 0.0)
    oddest = int(np.argmin(chances))
    return oddest, float(min(1.0, 2 * clients * chances[oddest]))


def hypergeometric(
    population: int, marked: int, draws: int
) -> tuple[np.ndarray, np.ndarray]:
    """Values and log-probabilities of the number of marked clients in a uniform draw.

    Args:
        population: clients among whom is drawn.
        marked: clients whose number in the draw is counted.
        draws: clients that are drawn.
    """
    values = np.arange(max(0, draws + marked - population), min(draws, marked) + 1)
    log_mass = (
        _log_choose(marked, values)
        + _log_choose(population - marked, draws - values)
        - _log_choose(population, np.array(draws))
    )
    return values, log_mass


def hypergeometric_p_value(
    count: int, population: int, marked: int, draws: int
) -> float:
    """Exact two-sided p-value of the number of marked clients in a uniform draw."""
    # The law is symmetric in marked and drawn clients, so the cache needs half of them.
    smaller = min(marked, draws)
    larger = max(marked, draws)
    smallest_count, chances = _hypergeometric_p_values(population, smaller, larger)
    index = count - smallest_count
    if 0 <= index < len(chances):
        return float(chances[index])
    return 0.0


@lru_cache(maxsize=512)
def _hypergeometric_p_values(
    population: int, marked: int, draws: int
) -> tuple[int, np.ndarray]:
    """Smallest number of marked clients, and the p-values of it and of each above."""
    values, log_mass = hypergeometric(population, marked, draws)
    mass = np.exp(log_mass)
    below = np.cumsum(mass)
    above = np.cumsum(mass[::-1])[::-1]
    return int(values[0]), np.minimum(1.0, 2 * np.minimum(below, above))


def overlaps_p_value(
    overlaps: Sequence[int], sizes: Sequence[tuple[int, int]], n: int
) -> float:
    """Chernoff bound on the two-sided tail of the sum of overlaps of pairs of cohorts.

    The overlap of two independent uniform subsets is hypergeometric given one of them.
    Overlaps of rounds t and t + lag for all t are a martingale with these conditional
    laws, so that the moment generating functions multiply.

    Args:
        overlaps: number of clients in common of each pair.
        sizes: number of clients of both cohorts of each pair.
        n: clients of the group.
    """
    overlap_sum = sum(overlaps)
    mean = sum(left * right for left, right in sizes) / n
    log_chance = _log_chernoff(overlap_sum, overlap_sum >= mean, sizes, n)
    return min(1.0, 2 * float(np.exp(min(0.0, log_chance))))


def _log_chernoff(
    overlap_sum: int, is_above: bool, sizes: Sequence[tuple[int, int]], n: int
) -> float:
    """Logarithm of the Chernoff bound on one tail; the bound of the other is 1.

    Args:
        overlap_sum: number of clients in common, over all pairs of cohorts.
        is_above: whether the tail is that of larger sums.
        sizes: number of clients of both cohorts of each pair.
        n: clients of the group.
    """
    # The law is symmetric in the sizes, so that few laws repeat.
    laws = Counter((min(pair), max(pair)) for pair in sizes)
    terms = [hypergeometric(n, *pair) for pair in laws]
    repetitions = np.array(list(laws.values()))
    lengths = [len(values) for values, _ in terms]
    starts = np.cumsum([0, *lengths[:-1]])
    values = np.concatenate([values for values, _ in terms])
    log_mass = np.concatenate([log_mass for _, log_mass in terms])
    sign = 1.0 if is_above else -1.0

    @cache
    def log_bound(index: int) -> float:
        """Sum of log E[exp(t X)] - t x, all laws together, at an exponent t."""
        exponent = sign * float(_EXPONENTS[index])
        powers = log_mass + exponent * values
        # The largest is taken out of each sum, so that no exponential overflows.
        largest = np.maximum.reduceat(powers, starts)
        sums = np.add.reduceat(np.exp(powers - np.repeat(largest, lengths)), starts)
        log_moments = float(repetitions @ (largest + np.log(sums)))
        return log_moments - exponent * overlap_sum

    return _minimum(log_bound, len(_EXPONENTS))


def _minimum(convex: Callable[[int], float], length: int) -> float:
    """Least value of a convex function at 0, ..., length - 1, by ternary search."""
    low = 0
    high = length - 1
    while high - low > 2:
        left = low + (high - low) // 3
        right = high - (high - low) // 3
        if convex(left) <= convex(right):
            high = right
        else:
            low = left
    return min(convex(index) for index in range(low, high + 1))


def overlap(left: Collection[int], right: frozenset[int]) -> int:
    """Number of clients in both cohorts."""
    return len(right.intersection(left))


def neighbours_p_value(
    cohorts: Sequence[Sequence[int]], n: int, distance: int
) -> float:
    """Bound on the upper tail of how many clients joined with one ``distance`` apart.

    Counts, over all rounds, disjoint pairs of positions (i, i + distance) both of whose
    clients took part. Indicators of clients in a uniform subset are negatively
    associated, and so are indicators of disjoint pairs; a multiplicative Chernoff bound
    applies.

    Args:
        cohorts: positions of the participants of each round.
        n: clients of the group.
        distance: of the positions, from 1.
    """
    # Of each 2 * distance positions the first half are partners of the second.
    blocks, remaining = divmod(max(0, n - distance), 2 * distance)
    pairs = blocks * distance + min(remaining, distance)
    mean = 0.0
    count = 0
    for cohort in cohorts:
        size = len(cohort)
        drawn = np.asarray(cohort, dtype=np.int64)
        firsts = drawn[drawn // distance % 2 == 0]
        count += int(np.isin(firsts + distance, drawn).sum())
        if n > 1:
            mean += pairs * size * (size - 1) / (n * (n - 1))
    if count <= mean or mean == 0:
        return 1.0
    return float(np.exp(min(0.0, count - mean - count * np.log(count / mean))))


def _log_choose(total: int, chosen: np.ndarray) -> np.ndarray:
    """Logarithms of binomial coefficients."""
    logarithms: np.ndarray = (
        gammaln(total + 1) - gammaln(chosen + 1) - gammaln(total - chosen + 1)
    )
    return logarithms
