"""P-values of participations and of cohorts.

Given its size, each cohort is a uniform subset of its group under every law of this
project, and those of different rounds are independent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from privplan.laws.participation import least_value

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
    inside = np.minimum(counts, len(law) - 1)
    chances = np.where(counts < len(law), _smaller_tails(law)[inside], 0.0)
    oddest = int(np.argmin(chances))
    return oddest, float(min(1.0, 2 * clients * chances[oddest]))


@lru_cache(maxsize=512)  # sizes of cohorts repeat, at each distance of rounds
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
    smaller, larger = sorted((marked, draws))
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
    tails = _smaller_tails(np.exp(log_mass))
    return int(values[0]), np.minimum(1.0, 2 * tails)


def _smaller_tails(mass: np.ndarray) -> np.ndarray:
    """The smaller chance, of each number, to be at most or at least that."""
    below = np.cumsum(mass)
    above = np.cumsum(mass[::-1])[::-1]
    tails: np.ndarray = np.minimum(below, above)
    return tails


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
    mean = sum(first_size * second_size for first_size, second_size in sizes) / n
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

    def log_bound(index: int) -> float:
        """Sum of log E[exp(t X)] - t x, all laws together, at an exponent t."""
        exponent = sign * float(_EXPONENTS[index])
        powers = log_mass + exponent * values
        # The largest is taken out of each sum, so that no exponential overflows.
        largest = np.maximum.reduceat(powers, starts)
        sums = np.add.reduceat(np.exp(powers - np.repeat(largest, lengths)), starts)
        log_moments = float(repetitions @ (largest + np.log(sums)))
        return log_moments - exponent * overlap_sum

    return least_value(log_bound, len(_EXPONENTS))


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
        partners = {
            position + distance for position in cohort if position // distance % 2 == 0
        }
        count += len(partners.intersection(cohort))
        mean += pairs * size * (size - 1) / max(1, n * (n - 1))
    if count <= mean or mean == 0:
        return 1.0
    return float(np.exp(min(0.0, count - mean - count * np.log(count / mean))))


def _log_choose(total: int, chosen: np.ndarray) -> np.ndarray:
    """Logarithms of binomial coefficients."""
    logarithms: np.ndarray = (
        gammaln(total + 1) - gammaln(chosen + 1) - gammaln(total - chosen + 1)
    )
    return logarithms
