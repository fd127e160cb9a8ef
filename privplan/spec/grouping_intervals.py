"""Groups of budgets of one delta, exactly.

Sorted by strength, the best groups are intervals, and

    f_g(j) = max_{i < j} f_{g-1}(i) + (C_j - C_i) worth_i

over distinct budgets with cumulative counts C is an exact dynamic program. The lines in C_j have
slopes worth_i that grow with i, so the best i grows with j: each layer is solved by divide and
conquer, all intervals of one depth at once.
"""

from __future__ import annotations

import numpy as np

from privplan.spec.grouped import Floats, Grouping, Integers, Worth

_MOST_STARTS = 4096


class Intervals:
    """Budgets of one delta, whose best groups are intervals of epsilon.

    Attributes:
        distinct: number of places where a group may begin.
    """

    def __init__(self, epsilons: Floats, mu: Floats, delta: float) -> None:
        """Sorts the budgets.

        Args:
            epsilons: budget of each client, shape (clients,).
            mu: strength of each client, shape (clients,).
            delta: of all of them.
        """
        self._epsilons, self._delta = np.sort(epsilons), delta
        values, counts = np.unique(mu, return_counts=True)
        starts, ends = starts_of(values), np.append(0, np.cumsum(counts))
        self._mu, self._total = values[starts], np.append(ends[starts], ends[-1])
        self.distinct = len(starts)

    def best(self, worth: Worth, number: int) -> Grouping:
        """The ``number`` groups whose clients are worth most together."""
        cuts = _partition(worth(self._mu), self._total, number)
        begins = self._total[cuts[:-1]]
        epsilons = self._epsilons[begins]
        return Grouping.of(np.diff(self._total[cuts]), epsilons, np.full(len(begins), self._delta))


def starts_of(mu: Floats) -> Integers:
    """Indices at which a group may begin: all, or those of fine bins where there are many."""
    if len(mu) <= _MOST_STARTS:
        return np.arange(len(mu))
    even = np.linspace(0, len(mu) - 1, _MOST_STARTS // 2)
    spaced = np.searchsorted(mu, np.geomspace(mu[0], mu[-1], _MOST_STARTS // 2))
    return np.unique(np.concatenate([even.astype(np.int64), spaced]))


def _partition(worth: Floats, total: Integers, number: int) -> list[int]:
    """Boundaries of the best groups, as indices of distinct budgets."""
    best = np.concatenate([[0.0], total[1:] * worth[0]])
    layers: list[Integers] = []
    for _ in range(number - 1):
        best, choices = _layer(best, worth, total)
        layers.append(choices)
    return _cuts(layers, len(worth))


def _cuts(layers: list[Integers], size: int) -> list[int]:
    """Boundaries of the groups, from the choices of every layer."""
    cuts = [size]
    for choices in reversed(layers):
        cuts.append(int(choices[cuts[-1]]))
    return [0, *reversed([cut for cut in cuts if cut > 0])]


def _layer(before: Floats, mu: Floats, total: Integers) -> tuple[Floats, Integers]:
    """Best values and their choices with one more group, shape (budgets + 1,).

    Args:
        before: best values with one group fewer, for the first j budgets.
        mu: distinct strengths, increasing, shape (budgets,).
        total: cumulative counts, shape (budgets + 1,).
    """
    size = len(mu)
    offsets = before[:-1] - total[:-1] * mu
    best, choices = np.zeros(size + 1), np.zeros(size + 1, dtype=np.int64)
    low, high = np.array([1]), np.array([size])
    left, right = np.array([0]), np.array([size - 1])
    while len(low):
        middle = (low + high) // 2
        value, choice = _maxima(middle, left, np.minimum(right, middle - 1), offsets, mu, total)
        best[middle], choices[middle] = value, choice
        lows = np.concatenate([low, middle + 1])
        highs = np.concatenate([middle - 1, high])
        lefts, rights = np.concatenate([left, choice]), np.concatenate([choice, right])
        nonempty = lows <= highs
        low, high = lows[nonempty], highs[nonempty]
        left, right = lefts[nonempty], rights[nonempty]
    return best, choices


def _maxima(
    queries: Integers, left: Integers, right: Integers, offsets: Floats, mu: Floats, total: Integers
) -> tuple[Floats, Integers]:
    """Values and indices of the best line i in [left, right] of each query j."""
    lengths = right - left + 1
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    lines = np.arange(int(lengths.sum())) + np.repeat(left - starts, lengths)
    values = offsets[lines] + np.repeat(total[queries], lengths) * mu[lines]
    best = np.maximum.reduceat(values, starts)
    hits = np.flatnonzero(values == np.repeat(best, lengths))
    return best, lines[hits[np.searchsorted(hits, starts)]]
