"""Grouping of individual budgets by what a plan of them minimises, exactly.

A group has the least epsilon and the least delta of its members, which together may be stricter
than every member's budget: ``privplan.spec.grouping_deltas`` says who of different deltas may
share a group. A grouping retains sum_g N_g min_{i in g} gain_i of sum_i gain_i, where the gain of a
client says what its budget adds to the plan: with the costs of an objective by
``privplan.spec.grouping_costs``, otherwise its precision, which in the small-loss limit is its
Gaussian strength mu. Sorted by mu, the best groups are intervals, and

    f_g(j) = max_{i < j} f_{g-1}(i) + (C_j - C_i) gain_i

over distinct budgets of one delta with cumulative counts C is an exact dynamic program. The lines
in C_j have slopes gain_i that grow with i, so the best i grows with j: each layer is solved by
divide and conquer, all intervals of one depth at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.gdp import mu_of
from privplan.errors import InputError
from privplan.spec.grouping_costs import Balance, Costs, balance, condensed, gains
from privplan.spec.grouping_deltas import lowerings

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_NODES = 1024
_ENOUGH = 0.99
_MOST_STARTS = 4096
_PASSES = 4
MOST_GROUPS = 12


@dataclass(frozen=True)
class Part:
    """Clients whose groups have one delta at least; strictest first.

    Attributes:
        epsilons: of each client, shape (clients,).
        deltas: own delta of each client, shape (clients,).
        mu: strength at the part's delta where a group may begin, increasing, shape (budgets,).
        total: clients before each of these, and all, shape (budgets + 1,).
    """

    epsilons: Floats
    deltas: Floats
    mu: Floats
    total: Integers

    @staticmethod
    def of(epsilons: Floats, deltas: Floats, members: NDArray[np.bool_], delta: float) -> Part:
        """The part of some clients at a delta that is at most each of theirs."""
        order = np.flatnonzero(members)
        order = order[np.lexsort((deltas[order], epsilons[order]))]
        each = strengths(epsilons[order], np.full(len(order), delta))
        mu, counts = np.unique(each, return_counts=True)
        starts, ends = _starts(mu), np.append(0, np.cumsum(counts))
        total = np.append(ends[starts], ends[-1])
        return Part(epsilons[order], deltas[order], mu[starts], total)


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

    Where there are many, solved at nodes and interpolated in log-log, to about 1e-6.

    Args:
        epsilons: positive, shape (clients,).
        deltas: in (0, 1), shape (clients,), with few distinct values.
    """
    mu = np.empty_like(epsilons)
    for delta in np.unique(deltas):
        chosen = deltas == delta
        logs = np.log(epsilons[chosen])
        nodes = np.unique(logs)
        if len(nodes) > _NODES:
            nodes = np.linspace(nodes[0], nodes[-1], _NODES)
        values = [math.log(mu_of(math.exp(node), float(delta))) for node in nodes]
        mu[chosen] = np.exp(np.interp(logs, nodes, values))
    return mu


def _starts(mu: Floats) -> Integers:
    """Indices at which a group may begin: all, or those of fine bins where there are many."""
    if len(mu) <= _MOST_STARTS:
        return np.arange(len(mu))
    even = np.linspace(0, len(mu) - 1, _MOST_STARTS // 2)
    spaced = np.searchsorted(mu, np.geomspace(mu[0], mu[-1], _MOST_STARTS // 2))
    return np.unique(np.concatenate([even.astype(np.int64), spaced]))


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
    mu, counts = np.unique(strengths(epsilons, deltas), return_counts=True)
    own, whole = None, float(counts @ mu)
    if costs is not None:
        starts, ends = _starts(mu), np.append(0, np.cumsum(counts))
        sizes = np.diff(np.append(ends[starts], ends[-1]))
        own = balance(*condensed(mu[starts], sizes.astype(float)), costs)
    layouts = [
        [Part.of(epsilons, deltas, lowered == delta, delta) for delta in np.unique(lowered)]
        for lowered in lowerings(deltas)
    ]
    enough = max(sum(len(part.mu) for part in parts) for parts in layouts)
    found = []
    for number in range(1, min(most, enough) + 1):
        if number < min(most, enough) and not (stop or every):
            continue
        tried = [
            (parts, *_best_cuts(parts, number, costs, own, whole))
            for parts in layouts
            if len(parts) <= number
        ]
        groups = [_grouping(*one) for one in tried]
        if len(layouts) > 1:
            groups = [replace(one, precision=_kept(one, costs, own, whole)) for one in groups]
        found.append(max(groups, key=lambda one: one.precision))
        if stop and found[-1].precision >= _ENOUGH:
            break
    return found


def _best_cuts(
    parts: Sequence[Part], number: int, costs: Costs | None, own: Balance | None, whole: float
) -> tuple[list[list[int]], float]:
    """Boundaries of the best groups of each part, and the precision that they retain.

    With costs, gains depend on level and price of the plan, which are first those of clients with
    scales of their own, and then those of the groups found.
    """
    if costs is None or own is None:
        cuts = _divided([part.mu for part in parts], parts, number)
        pairs = list(zip(parts, cuts, strict=True))
        return cuts, sum(_worth(part.mu, part.total, cut) for part, cut in pairs) / whole
    at = own
    best: tuple[list[list[int]], float] = [], math.inf
    for _ in range(_PASSES):
        cuts = _divided([gains(part.mu, at, costs) for part in parts], parts, number)
        pairs = list(zip(parts, cuts, strict=True))
        mu = np.concatenate([part.mu[cut[:-1]] for part, cut in pairs])
        sizes = np.concatenate([np.diff(part.total[cut]) for part, cut in pairs])
        at = balance(mu, sizes.astype(float), costs)
        if not at.error < best[1] * (1 - 1e-4):
            break
        best = cuts, at.error
    return best[0], min(math.sqrt(own.error / best[1]), 1.0)


def _kept(found: Grouping, costs: Costs | None, own: Balance | None, whole: float) -> float:
    """The precision that groups retain by their own budgets, whatever level their deltas are at."""
    clients = np.array(found.clients, dtype=float)
    mu = np.array([mu_of(*pair) for pair in zip(found.epsilons, found.deltas, strict=True)])
    if costs is None or own is None:
        return float(clients @ mu) / whole
    return min(math.sqrt(own.error / balance(mu, clients, costs).error), 1.0)


def _worth(worth: Floats, total: Integers, cuts: list[int]) -> float:
    """What the groups between cuts retain."""
    return float(np.sum(np.diff(total[cuts]) * worth[cuts[:-1]]))


def _divided(worths: Sequence[Floats], parts: Sequence[Part], number: int) -> list[list[int]]:
    """Boundaries of the best ``number`` groups in all of the parts, one or more in each."""
    room = number - len(parts) + 1
    best: dict[int, tuple[float, list[list[int]]]] = {0: (0.0, [])}
    for worth, part in zip(worths, parts, strict=True):
        options = [
            (_worth(worth, part.total, cuts), cuts)
            for cuts in _partitions(worth, part.total, min(room, len(worth)))
        ]
        after: dict[int, tuple[float, list[list[int]]]] = {}
        for used, (value, before) in best.items():
            for more, (gain, cuts) in enumerate(options, start=1):
                now = after.get(used + more, (-math.inf, []))
                if used + more <= number and value + gain > now[0]:
                    after[used + more] = value + gain, [*before, cuts]
        best = after
    return best[max(best)][1]  # one more group never retains less


def _partitions(worth: Floats, total: Integers, most: int) -> Iterator[list[int]]:
    """Boundaries of the best groups for 1 to ``most`` groups, as indices of distinct budgets."""
    best = np.concatenate([[0.0], total[1:] * worth[0]])
    layers: list[Integers] = []
    for number in range(1, most + 1):
        if number > 1:
            best, choices = _layer(best, worth, total)
            layers.append(choices)
        yield _cuts(layers, len(worth))


def _grouping(parts: Sequence[Part], cuts: Sequence[list[int]], precision: float) -> Grouping:
    """The grouping between cuts of each part, strictest group first."""
    rows = []
    for part, ends in zip(parts, cuts, strict=True):
        for begin, end in pairwise(ends):
            members = slice(int(part.total[begin]), int(part.total[end]))
            budget = float(part.epsilons[members].min()), float(part.deltas[members].min())
            rows.append((mu_of(*budget), members.stop - members.start, *budget))
    _, clients, epsilons, deltas = zip(*sorted(rows), strict=True)
    return Grouping(clients, epsilons, deltas, float(precision))


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
