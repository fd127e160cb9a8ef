"""Grouping of individual budgets by what a plan of them minimises, exactly.

The budget of a group is that of its strictest member. A grouping retains sum_g N_g min_{i in g}
gain_i of sum_i gain_i, where the gain of a client says what its budget adds to the plan: with the
costs of an objective by ``privplan.spec.grouping_costs``, otherwise its precision, which in the
small-loss limit is its Gaussian strength mu. Sorted by mu, the best groups are intervals, and

    f_g(j) = max_{i < j} f_{g-1}(i) + (C_j - C_i) gain_i

over distinct budgets with cumulative counts C is an exact dynamic program. The lines in C_j have
slopes gain_i that grow with i, so the best i grows with j: each layer is solved by divide and
conquer, all intervals of one depth at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.gdp import mu_of
from privplan.errors import InputError
from privplan.spec.grouping_costs import Balance, Costs, balance, condensed, gains

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_NODES = 1024
_ENOUGH = 0.99
_MOST_STARTS = 4096
_PASSES = 4
MOST_GROUPS = 12


@dataclass(frozen=True)
class Grouping:
    """A partition of clients into groups, strictest first.

    Attributes:
        clients: clients of each group.
        epsilons: smallest epsilon in each group.
        deltas: smallest delta in each group.
        precision: root of the error of individual scales over that of the grouping: the fraction
            of their precision that it retains.
    """

    clients: tuple[int, ...]
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    precision: float


def strengths(epsilons: Floats, deltas: Floats) -> Floats:
    """Mu of the Gaussian mechanism that spends exactly (epsilon, delta), shape (clients,).

    Solved at nodes and interpolated in log-log, to about 1e-6.

    Args:
        epsilons: positive, shape (clients,).
        deltas: in (0, 1), shape (clients,), with few distinct values.
    """
    mu = np.empty_like(epsilons)
    for delta in np.unique(deltas):
        chosen = deltas == delta
        logs = np.log(epsilons[chosen])
        low, high = float(logs.min()), float(logs.max())
        nodes = np.linspace(low, high, _NODES) if high > low else np.array([low])
        values = [math.log(mu_of(math.exp(node), float(delta))) for node in nodes]
        mu[chosen] = np.exp(np.interp(logs, nodes, values))
    return mu


def group_budgets(
    epsilons: Floats, deltas: Floats, groups: int | None, costs: Costs | None = None
) -> Grouping:
    """The best grouping into at most ``groups`` groups.

    Args:
        epsilons: budget of each client, positive, shape (clients,).
        deltas: failure probability of each client, shape (clients,).
        groups: number of groups; None for the fewest that retain 99% of the precision.
        costs: of the plan's objective; None for the precision only.

    Raises:
        InputError: when there is no client, or fewer than one group.
    """
    most = groups or MOST_GROUPS
    return groupings(epsilons, deltas, most, stop=groups is None, costs=costs, every=False)[-1]


def groupings(
    epsilons: Floats,
    deltas: Floats,
    most: int,
    stop: bool = False,
    costs: Costs | None = None,
    every: bool = True,
) -> list[Grouping]:
    """The best grouping for each number of groups from 1 to ``most``.

    Args:
        epsilons: budget of each client, positive, shape (clients,).
        deltas: failure probability of each client, shape (clients,).
        most: largest number of groups.
        stop: whether to stop at the first that retains 99% of the precision.
        costs: of the plan's objective; None for the precision only.
        every: whether each number of groups is wanted, not only the last.

    Raises:
        InputError: when there is no client, or fewer than one group.
    """
    if not len(epsilons):
        raise InputError.one("groups_from", "must name at least one client", 0)
    if most < 1:
        raise InputError.one("planning.group_count", "must be 1 or more", most)
    order = np.lexsort((deltas, epsilons, mu := strengths(epsilons, deltas)))
    mu, counts = np.unique(mu[order], return_counts=True)
    total = np.concatenate([[0], np.cumsum(counts)])
    starts = _starts(mu)
    bins = mu[starts], np.append(total[starts], total[-1])
    own = None
    if costs is not None:
        own = balance(*condensed(bins[0], np.diff(bins[1]).astype(float)), costs)
    found = []
    for number in range(1, min(most, len(starts)) + 1):
        if number < min(most, len(starts)) and not (stop or every):
            continue
        cuts, kept = _best_cuts(*bins, number, costs, own)
        whole = [*starts, len(mu)]
        exact = [int(whole[cut]) for cut in cuts]
        found.append(_grouping(exact, epsilons[order], deltas[order], total, kept))
        if stop and kept >= _ENOUGH:
            break
    return found


def _starts(mu: Floats) -> Integers:
    """Indices at which a group may begin: all, or those of fine bins where there are many."""
    if len(mu) <= _MOST_STARTS:
        return np.arange(len(mu))
    even = np.linspace(0, len(mu) - 1, _MOST_STARTS // 2)
    spaced = np.searchsorted(mu, np.geomspace(mu[0], mu[-1], _MOST_STARTS // 2))
    return np.unique(np.concatenate([even.astype(np.int64), spaced]))


def _best_cuts(
    mu: Floats, total: Integers, number: int, costs: Costs | None, own: Balance | None
) -> tuple[list[int], float]:
    """Boundaries of the best groups, and the precision that they retain.

    With costs, gains depend on level and price of the plan, which are first those of clients with
    scales of their own, and then those of the groups found.
    """
    if costs is None or own is None:
        *_, cuts = _partitions(mu, total, number)
        whole = float(np.sum(np.diff(total) * mu))
        return cuts, float(np.sum(np.diff(total[cuts]) * mu[cuts[:-1]])) / whole
    at = own
    best: tuple[list[int], float] = [], math.inf
    for _ in range(_PASSES):
        *_, cuts = _partitions(gains(mu, at, costs), total, number)
        at = balance(mu[cuts[:-1]], np.diff(total[cuts]).astype(float), costs)
        if not at.error < best[1] * (1 - 1e-4):
            break
        best = cuts, at.error
    return best[0], min(math.sqrt(own.error / best[1]), 1.0)


def _partitions(worth: Floats, total: Integers, most: int) -> Iterator[list[int]]:
    """Boundaries of the best groups for 1 to ``most`` groups, as indices of distinct budgets."""
    best = np.concatenate([[0.0], total[1:] * worth[0]])
    layers: list[Integers] = []
    for number in range(1, most + 1):
        if number > 1:
            best, choices = _layer(best, worth, total)
            layers.append(choices)
        yield _cuts(layers, len(worth))


def _grouping(
    cuts: list[int], epsilons: Floats, deltas: Floats, total: Integers, precision: float
) -> Grouping:
    """The grouping between cuts (indices of distinct budgets) of clients sorted by mu."""
    ends = [int(total[cut]) for cut in cuts]
    spans = list(pairwise(ends))
    return Grouping(
        clients=tuple(end - begin for begin, end in spans),
        epsilons=tuple(float(epsilons[begin:end].min()) for begin, end in spans),
        deltas=tuple(float(deltas[begin:end].min()) for begin, end in spans),
        precision=float(precision),
    )


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
