"""Grouping of individual budgets by what a plan of them minimises.

A group has the least epsilon and the least delta of its members. A grouping retains
sum_g N_g worth_g of sum_i worth_i, where the worth of a client says what its budget adds to the
plan: with the costs of an objective by ``privplan.spec.grouping``, otherwise its precision,
which in the small-loss limit is its Gaussian strength mu. With one delta the best groups are found
exactly (``privplan.spec.grouping``), with several by local search
(``privplan.spec.grouping``).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.gdp import mu_of
from privplan.errors import Fault, InputError
from privplan.files import read_text
from privplan.values import LARGEST, LEAST

# --- Groups of individual budgets, and the strength of a budget. ---------------------------------

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Worth = Callable[[Floats], Floats]
"""Strengths -> worth of a client of each, at least 0 and increasing."""

_NODES = 1024
_MANY = 16
"""Distinct deltas from which strengths are interpolated in both."""
_GRID = 96, 48


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

    @property
    def strengths(self) -> Floats:
        """Strength of each group's budget, shape (groups,)."""
        return strengths(np.array(self.epsilons), np.array(self.deltas))

    @staticmethod
    def of(clients: Integers, epsilons: Floats, deltas: Floats) -> Grouping:
        """Groups with these budgets, shape (groups,) each, strictest first."""
        order = np.argsort(strengths(epsilons, deltas), kind="stable")
        return Grouping(
            clients=tuple(clients[order].tolist()),
            epsilons=tuple(epsilons[order].tolist()),
            deltas=tuple(deltas[order].tolist()),
            precision=1.0,
        )


@lru_cache(maxsize=1 << 16)
def _mu_of(epsilon: float, delta: float) -> float:
    return mu_of(epsilon, delta)


def strengths(epsilons: Floats, deltas: Floats) -> Floats:
    """Mu of the Gaussian mechanism that spends exactly (epsilon, delta), shape (clients,).

    Where there are many, solved at nodes and interpolated in log-log: to about 1e-6 with few
    distinct deltas, to about 1e-4 with many.

    Args:
        epsilons: positive, shape (clients,).
        deltas: in (0, 1), shape (clients,).
    """
    levels = np.unique(deltas)
    if len(levels) > _MANY and len(epsilons) > math.prod(_GRID):
        return _interpolated(np.log(epsilons), np.log(deltas))
    mu = np.empty_like(epsilons)
    for delta in levels:
        chosen = deltas == delta
        distinct, where = np.unique(epsilons[chosen], return_inverse=True)
        if len(distinct) <= _NODES:
            found = np.array([_mu_of(float(one), float(delta)) for one in distinct])
        else:
            logs = np.log(distinct)
            nodes = np.linspace(logs[0], logs[-1], _NODES)
            values = [math.log(mu_of(math.exp(node), float(delta))) for node in nodes]
            found = np.exp(np.interp(logs, nodes, values))
        mu[chosen] = found[where]
    return mu


def _interpolated(epsilons: Floats, deltas: Floats) -> Floats:
    """Strengths of logarithms of budgets, by a spline through a grid of them."""
    from scipy.interpolate import RectBivariateSpline

    rows, columns = (
        np.linspace(logs.min(), max(logs.max(), logs.min() + 1e-6), size)
        for logs, size in zip((epsilons, deltas), _GRID, strict=True)
    )
    values = [[math.log(mu_of(math.exp(e), math.exp(d))) for d in columns] for e in rows]
    return np.asarray(np.exp(RectBivariateSpline(rows, columns, values).ev(epsilons, deltas)))


# --- Groups of budgets of one delta, exactly. ----------------------------------------------------
#
# Sorted by strength, the best groups are intervals, and
#
#     f_g(j) = max_{i < j} f_{g-1}(i) + (C_j - C_i) worth_i
#
# over distinct budgets with cumulative counts C is an exact dynamic program. The lines in C_j have
# slopes worth_i that grow with i, so the best i grows with j: each layer is solved by divide and
# conquer, all intervals of one depth at once.

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


# -------------------------------------------------------------------------------------------------
# What a grouping of budgets costs a plan with one release of all groups, by the central limit.
#
# A client of Gaussian strength mu over T rounds that takes part with ratio q enters the sum with a
# scale v of t(mu, q) = q sqrt(log(1 + mu^2 / (T q^2))) at most, its q / sigma. The error is
#
#     (A + s sum_i v_i^2) / S^2 + h^2 (n sum_i v_i^2 / S^2 - 1),   S = sum_i v_i,
#
# with A the cost of noise, s that of sampling per client and h^2 that of bias. It falls with v_i
# up to the level x = (A + c sum v^2) / (c S), c = s + n h^2, by x v - v^2 / 2 to first order, so
# that budgets beyond the level buy nothing; and clients share the cohort at one price per
# expected client. What a client adds is thus gain(mu) = max_q v - v^2 / 2x - price q with v =
# t(mu, q) <= x.

_ROOTS = 200
_BISECTIONS = 18
_PLACES = 8
_ROUNDS = 6
_PRICES = 1e-12, 1e6
_LEVELS = 1e-9, 1e3


@dataclass(frozen=True)
class Costs:
    """What the error of a plan with one release of all groups depends on, beside the budgets.

    Attributes:
        noise: A, cost of the squared noise multiplier of the mean.
        sampling: s, cost of sampling a client.
        bias: h^2, cost of weights other than the population's.
        cohort: expected clients per round.
        rounds: number of rounds.
        everyone: whether all clients take part in every round.
        sensitivity: distance of neighbouring sums, in clipping norms.
    """

    noise: float
    sampling: float
    bias: float
    cohort: float
    rounds: int
    everyone: bool = False
    sensitivity: float = 1.0


@dataclass(frozen=True)
class Balance:
    """The best scales of groups of clients.

    Attributes:
        error: their error.
        level: x, the scale beyond which more budget does not lower it.
        price: of an expected client, in the unit of gains.
    """

    error: float
    level: float
    price: float


def balance(mu: Floats, counts: Floats, costs: Costs) -> Balance:
    """The least error over sampling ratios and scales, up to the grid of the ratios.

    Args:
        mu: strengths, shape (groups,).
        counts: clients, shape (groups,).
        costs: of the plan's objective.
    """
    price = 0.0
    if not costs.everyone:

        def crowded(prices: Floats) -> NDArray[np.bool_]:
            levels = _level(mu, counts, prices, costs)
            return _ratios(mu, levels, prices, costs) @ counts > costs.cohort

        price = float(_crossing(crowded, *_PRICES, ()))
    level = float(_level(mu, counts, np.array(price), costs))
    scales = _scales(mu, _ratios(mu, level, price, costs), level, costs)
    total, clients = float(counts @ scales), float(counts.sum())
    spread = clients * float(counts @ (scales - total / clients) ** 2)
    error = costs.noise + costs.sampling * float(counts @ scales**2) + costs.bias * spread
    return Balance(error / total**2, level, price)


def gains(mu: Floats, found: Balance, costs: Costs) -> Floats:
    """What a client of each strength adds, at the level and price of a balance; increasing.

    Computed at nodes and interpolated where there are many strengths.
    """
    if len(mu) > 2 * _ROOTS:
        nodes = np.geomspace(mu.min(), mu.max() * (1 + 1e-12), _ROOTS)
        return np.interp(np.log(mu), np.log(nodes), gains(nodes, found, costs))
    ratios = _ratios(mu, found.level, found.price, costs)
    scales = _scales(mu, ratios, found.level, costs)
    return np.asarray(scales - scales**2 / (2 * found.level) - found.price * ratios)


def condensed(mu: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Many strengths at few nodes, with the clients between two nodes at the lower one."""
    if len(mu) <= 2 * _ROOTS:
        return mu, counts
    nodes = np.geomspace(mu.min(), mu.max(), _ROOTS)
    where = np.clip(np.searchsorted(nodes, mu * (1 + 1e-12), side="right") - 1, 0, _ROOTS - 1)
    sums = np.bincount(where, weights=counts, minlength=_ROOTS)
    return nodes[sums > 0], np.asarray(sums[sums > 0], dtype=float)


def _scales(mu: Floats, ratios: Floats, level: Floats | float, costs: Costs) -> Floats:
    """Scales at the ratios, at most the level, shape (*levels, groups)."""
    share = mu / math.sqrt(costs.rounds)
    if not costs.everyone:
        share = ratios * np.sqrt(np.log1p((share / ratios) ** 2))
    return np.asarray(np.minimum(share / costs.sensitivity, np.expand_dims(level, -1)))


def _ratios(mu: Floats, level: Floats | float, price: Floats | float, costs: Costs) -> Floats:
    """The ratio of most gain for each strength, by bisection, shape (*levels, groups).

    The slope of the gain, (1 - t / x) dt/dq, falls with q; it is the price at the best ratio.

    Args:
        mu: strengths, shape (groups,).
        level: x, shape (*levels,).
        price: of each level.
        costs: of the plan's objective.
    """
    shape = (*np.shape(level), len(mu))
    if costs.everyone:
        return np.ones(shape)
    low, high = np.full(shape, math.log(1e-9)), np.zeros(shape)
    share, most = mu / math.sqrt(costs.rounds), costs.sensitivity * np.expand_dims(level, -1)
    least = costs.sensitivity * np.expand_dims(price, -1)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        ratio = np.exp(middle)
        square = (share / ratio) ** 2
        root = np.sqrt(np.log1p(square))
        more = (1 - ratio * root / most) * (root - square / ((1 + square) * root)) > least
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return np.asarray(np.exp(high))


def _level(mu: Floats, counts: Floats, prices: Floats, costs: Costs) -> Floats:
    """The x of the module's docstring at each price; inf without costs per client."""
    client = costs.sampling + costs.bias * float(counts.sum())
    if client <= 0:
        return np.full(np.shape(prices), math.inf)

    def scarce(levels: Floats) -> NDArray[np.bool_]:
        own = np.broadcast_to(prices[..., None], levels.shape)
        scales = _scales(mu, _ratios(mu, levels, own, costs), levels, costs)
        return client * ((scales * (levels[..., None] - scales)) @ counts) < costs.noise

    return _crossing(scarce, *_LEVELS, np.shape(prices))


def _crossing(
    before: Callable[[Floats], NDArray[np.bool_]], low: float, high: float, shape: tuple[int, ...]
) -> Floats:
    """Where a condition that holds up to some place ends, to about 2e-4 of it.

    Args:
        before: values, shape (*shape, places) -> whether each lies before the place.
        low: least value.
        high: largest value, returned where all lie before.
        shape: of the result.
    """
    left, right = np.full(shape, math.log(low)), np.full(shape, math.log(high))
    for _ in range(_ROUNDS):
        width = (right - left) / _PLACES
        inner = left[..., None] + width[..., None] * np.arange(1, _PLACES)
        left = left + width * before(np.exp(inner)).sum(axis=-1)
        right = left + width
    return np.asarray(np.exp(right))


# --- Groups of budgets that differ in both epsilon and delta, by local search. -------------------
#
# A group has the least epsilon and the least delta of its members. Where these are two clients',
# the group's budget is stricter than both, often by far: (4, 1e-9) and (1, 1e-2) make (1, 1e-9).
# So a grouping is a set of corners (epsilon, delta), where each client has the corner of most
# worth among those that are no looser than its own budget in both, and the worth of a set is the
# sum over clients. It is submodular in the set, so that adding the corner of most worth
# (Nemhauser, Wolsey and Fisher 1978, Mathematical Programming 14), followed by exchanges of one
# corner while they gain, is near the best. Epsilons are first searched over few nodes, then over
# finer ones at the corners.

Corner = tuple[float, float]

_CORNER_LEVELS = 8
"""Most levels of delta; with more deltas, the least and quantiles over clients."""
_CORNER_PLACES = 384
"""Corners of the first search."""
_FINER = 96
"""Epsilons of a later search beside all corners, on each side."""
_SMALL = 64
"""Corners up to which an exchange of several begins with each of them."""
_SEARCHES = 3
_SWEEPS = 20
_TOGETHER = (4, 5), (3, 7), (2, 12), (1, math.inf)
"""Corners that are exchanged at once, and most groups of which they are."""
_UNCOVERED = -1e6
"""Worth of a client without a corner, over the largest worth."""


@dataclass(frozen=True)
class Lattice:
    """Places of corners, and the clients by the last place that is no looser than their budgets.

    Attributes:
        corners: epsilon and delta, shape (places, 2).
        clients: shape (places,).
        allowed: whether a client of a place may have a corner, shape (corners, places).
    """

    corners: Floats
    clients: Floats
    allowed: NDArray[np.bool_]

    @staticmethod
    def of(epsilons: Floats, deltas: Floats, nodes: Floats, levels: Floats) -> Lattice:
        """The lattice of some nodes of epsilon and levels of delta, both increasing."""
        rows = np.searchsorted(nodes, epsilons, side="right") - 1
        columns = np.searchsorted(levels, deltas, side="right") - 1
        places = rows * len(levels) + columns
        clients = np.bincount(places, minlength=len(nodes) * len(levels)).astype(float)
        grid = np.stack(np.meshgrid(nodes, levels, indexing="ij"), axis=-1).reshape(-1, 2)
        allowed = np.all(grid[:, None] <= grid[None], axis=-1)
        used = clients > 0
        return Lattice(grid, clients[used], allowed[:, used])


class Corners:
    """Budgets of several deltas.

    Attributes:
        distinct: number of different budgets.
    """

    def __init__(self, epsilons: Floats, deltas: Floats) -> None:
        """Counts the budgets.

        Args:
            epsilons: budget of each client, shape (clients,).
            deltas: failure probability of each client, shape (clients,).
        """
        self._epsilons, self._deltas = epsilons, deltas
        self._last: list[Corner] = []
        self.distinct = len(np.unique(np.stack([epsilons, deltas]), axis=1).T)

    def best(self, worth: Worth, number: int) -> Grouping:
        """At most ``number`` groups whose clients are worth much together."""
        corners = _best_corners(
            self._epsilons,
            self._deltas,
            number,
            lambda epsilons, deltas: worth(strengths(epsilons, deltas)),
            self._last if len(self._last) <= number else (),
        )
        self._last = corners
        own = _members(self._epsilons, self._deltas, corners, strengths(*np.array(corners).T))
        used, group = np.unique(own, return_inverse=True)
        epsilons, smallest = np.full(len(used), np.inf), np.full(len(used), np.inf)
        np.minimum.at(epsilons, group, self._epsilons)
        np.minimum.at(smallest, group, self._deltas)
        return Grouping.of(np.bincount(group), epsilons, smallest)


def _best_corners(
    epsilons: Floats,
    deltas: Floats,
    number: int,
    worth: Callable[[Floats, Floats], Floats],
    start: Sequence[Corner] = (),
) -> list[Corner]:
    """At most ``number`` corners that cover all clients, of large worth.

    Args:
        epsilons: budget of each client, shape (clients,).
        deltas: failure probability of each client, shape (clients,).
        number: of corners.
        worth: epsilons and deltas, shape (corners,) each -> worth of a client with that budget, at
            least 0 and increasing in both.
        start: corners that cover all clients, to begin with.
    """
    levels = _few(deltas, _CORNER_LEVELS)
    nodes = _few(epsilons, _CORNER_PLACES // len(levels))
    chosen = list(start) or [(float(nodes[0]), float(levels[0]))]
    together = next(size for size, most in _TOGETHER if number <= most)
    for search in range(_SEARCHES):
        if search:
            nodes = _finer(epsilons, nodes, chosen)
        own = np.array([epsilon for epsilon, _ in chosen])
        nodes = np.union1d(nodes, own)
        lattice = Lattice.of(epsilons, deltas, nodes, levels)
        chosen = _searched(lattice, chosen, number, worth, together if not search else 1)
    return chosen


def _members(epsilons: Floats, deltas: Floats, corners: Sequence[Corner], mu: Floats) -> Integers:
    """The corner of each client, the one of largest strength that it may have, shape (clients,)."""
    found = np.full(len(epsilons), -1)
    for at in np.argsort(mu):
        found[(epsilons >= corners[at][0]) & (deltas >= corners[at][1])] = at
    return found


def _few(values: Floats, most: int) -> Floats:
    """All distinct values, or the least one, quantiles over clients and values spaced by ratio."""
    distinct = np.unique(values)
    if len(distinct) <= most:
        return distinct
    quantiles = np.sort(values)[np.arange(most // 2) * len(values) // (most // 2)]
    spaced = np.searchsorted(distinct, np.geomspace(distinct[0], distinct[-1], most // 2 + 1)[:-1])
    return np.union1d(quantiles, distinct[spaced])


def _finer(epsilons: Floats, nodes: Floats, chosen: Sequence[Corner]) -> Floats:
    """Epsilons of clients at and beside each corner, up to its neighbours among the nodes."""
    distinct, found = np.unique(epsilons), []
    own = {epsilon for epsilon, _ in chosen}
    between = max(_FINER // len(own), 1)
    for epsilon in own:
        at = int(np.searchsorted(nodes, epsilon))
        ends = nodes[max(at - 1, 0)], epsilon, nodes[min(at + 1, len(nodes) - 1)]
        first, middle, last = np.searchsorted(distinct, ends)
        for begin, end in ((first, middle), (middle, last)):
            found.append(distinct[np.linspace(begin, end, between + 1).astype(np.int64)])
    return np.unique(np.concatenate([distinct[:1], *found]))


def _searched(
    lattice: Lattice,
    chosen: Sequence[Corner],
    number: int,
    worth: Callable[[Floats, Floats], Floats],
    together: int,
) -> list[Corner]:
    """Corners of a lattice, from those chosen, by additions and then exchanges that gain.

    Args:
        lattice: where corners may be.
        chosen: corners of the lattice that cover all clients.
        number: of corners.
        worth: of a client with a corner.
        together: most corners that are exchanged at once.
    """
    values = worth(*lattice.corners.T)
    values = np.where(lattice.allowed, values[:, None], _UNCOVERED * max(values.max(), 1e-30))
    index = {(float(e), float(d)): at for at, (e, d) in enumerate(lattice.corners)}
    found = [index[one] for one in chosen]
    floors = -values.max() * np.array([0.0, 0.1, 1.0])

    def totals(others: list[int], floor: float = -math.inf) -> Floats:
        """Of the worth of others and each corner, where no client's is below the floor."""
        kept = np.max(values[others], axis=0, initial=floor)
        return np.asarray(np.maximum(values, kept) @ lattice.clients)

    def added(others: list[int], more: int) -> tuple[list[int], float]:
        """Others with the corners that gain most one by one, and the worth of all."""
        best = -math.inf
        for _ in range(more):
            now = totals(others)
            others = [*others, int(np.argmax(now))]
            best = float(now[others[-1]])
        return others, best

    def firsts(others: list[int]) -> Iterable[int]:
        """Corners with which an exchange of several begins."""
        if len(values) <= _SMALL:
            return range(len(values))
        return {int(np.argmax(totals(others, floor))) for floor in floors}

    found, total = added(found[1:], min(number, len(values)) - len(found) + 1)
    for _ in range(_SWEEPS):
        before = total
        for size in range(1, together + 1):
            for out in combinations(range(len(found)), size):
                others = [one for slot, one in enumerate(found) if slot not in out]
                for first in [[]] if size == 1 else [[one] for one in firsts(others)]:
                    exchanged, now = added([*others, *first], size - len(first))
                    if now > total:
                        found, total = exchanged, now
        if total <= before + 1e-9 * abs(before):
            break
    return [(float(e), float(d)) for e, d in lattice.corners[found]]


# --- Groups by the error of their plans, where no formula says what a client adds to one. --------
#
# Under weights by a rule, or with one release per group, the error is no sum over clients. Cuts
# by powers of the strength and by the formula are compared by the error of their plans; with one
# delta the best of them is then improved by moving its cuts, by shorter and shorter steps.

_POWERS = (0.25, 1.0, 2.0, 4.0)
_EVALUATIONS = 150
"""Groups in all plans that are compared, at most; some 40 ms each."""
_FINEST = 64
"""Cuts move by this fraction of the clients at least."""
_GAIN = 1e-4

Error = Callable[[Grouping], float | None]


class Finder(Protocol):
    """Finds the groups whose clients are worth most."""

    def best(self, worth: Worth, number: int) -> Grouping:
        """At most ``number`` groups."""


class Compared:
    """Groupings and the errors of their plans, each computed once.

    Attributes:
        best: the grouping of least error so far.
        error: its error.
    """

    def __init__(self, error_of: Error, first: Grouping, error: float) -> None:
        """Begins with one grouping.

        Args:
            error_of: grouping -> error of its plan, infinite where there is none.
            first: the grouping.
            error: of its plan.
        """
        self._error_of, self.best, self.error = error_of, first, error
        self._known = {_key(first)}
        self._left = _EVALUATIONS // len(first.clients) - 1

    @property
    def ended(self) -> bool:
        """Whether no more plans are compared."""
        return self._left <= 0

    def add(self, groupings: Iterable[Grouping]) -> bool:
        """Compares more groupings; whether one of them is better than all before."""
        before = self.best
        for one in groupings:
            if self.ended or _key(one) in self._known:
                continue
            self._known.add(_key(one))
            self._left -= 1
            error = self._error_of(one)
            if error is not None and error < self.error * (1 - _GAIN):
                self.best, self.error = one, error
        return self.best is not before


def improved(
    found: Grouping, epsilons: Floats, deltas: Floats, finder: Finder, error_of: Error
) -> Grouping:
    """The grouping, or one whose plan has a smaller error.

    Args:
        found: the grouping by the formula.
        epsilons: budget of each client, shape (clients,).
        deltas: failure probability of each client, shape (clients,).
        finder: of groups by the worth of clients.
        error_of: grouping -> error of its plan; None where the formula says it.
    """
    number = len(found.clients)
    first = error_of(found) if number > 1 else None
    if first is None:
        return found
    compared = Compared(error_of, found, first)
    compared.add(finder.best(partial(_power, power=power), number) for power in _POWERS)
    if deltas.min() == deltas.max():
        _moved(compared, np.sort(epsilons), float(deltas[0]))
    return compared.best


def _moved(compared: Compared, epsilons: Floats, delta: float) -> None:
    """Compares all cuts where they are few, otherwise those beside the best ones."""
    starts = np.flatnonzero(np.diff(epsilons, prepend=-math.inf))
    number, clients = len(compared.best.clients), len(epsilons)
    if math.comb(len(starts) - 1, number - 1) <= _EVALUATIONS // number:
        compared.add(
            _cut(epsilons, delta, cuts) for cuts in combinations(starts[1:].tolist(), number - 1)
        )
        return
    step = clients // 4
    while step >= max(1, clients // _FINEST) and not compared.ended:
        better = False
        for slot in range(number - 1):
            for move in (step, -step):
                cuts = np.cumsum(compared.best.clients)[:-1]
                cuts[slot] = np.clip(cuts[slot] + move, 1, clients - 1)
                snapped = np.unique(starts[np.searchsorted(starts, cuts, side="right") - 1])
                if snapped[0] > 0 and len(snapped) == number - 1:
                    better |= compared.add([_cut(epsilons, delta, snapped.tolist())])
        if not better:
            step //= 2


def _power(mu: Floats, power: float) -> Floats:
    return np.asarray(mu**power)


def _cut(epsilons: Floats, delta: float, cuts: Iterable[int]) -> Grouping:
    """The groups between cuts of increasing budgets."""
    ends = np.array([0, *cuts, len(epsilons)])
    least = epsilons[ends[:-1]]
    return Grouping.of(np.diff(ends), least, np.full(len(least), delta))


def _key(one: Grouping) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
    return one.clients, one.epsilons, one.deltas


# --- Grouping of individual budgets by what a plan of them minimises. ----------------------------

_ENOUGH = 0.99
_PASSES = 4
_COMPARED = 3
"""Numbers of groups whose cuts are compared by the error of plans, where they are free."""
MOST_GROUPS = 12


def group_budgets(
    epsilons: Floats, deltas: Floats, groups: int, costs: Costs | None = None
) -> Grouping:
    """The best grouping into at most ``groups`` groups.

    Args:
        epsilons: budget of each client, positive, shape (clients,).
        deltas: failure probability of each client, shape (clients,).
        groups: number of groups.
        costs: of the plan's objective; None for the precision only.

    Raises:
        InputError: when there is no client, or fewer than one group.
    """
    return groupings(epsilons, deltas, groups, costs=costs, every=False)[-1]


def free_groups(
    epsilons: Floats,
    deltas: Floats,
    most: int = MOST_GROUPS,
    costs: Costs | None = None,
    error_of: Error | None = None,
) -> Grouping:
    """The fewest groups that retain 99% of the precision, or the best ``most`` groups.

    Where plans have errors of their own, as many groups as the plan of least error has.

    Args:
        epsilons: budget of each client, positive, shape (clients,).
        deltas: failure probability of each client, shape (clients,).
        most: largest number of groups.
        costs: of the plan's objective; None for the precision only.
        error_of: grouping -> error of its plan; None where the formula says it.

    Raises:
        InputError: when there is no client, or fewer than one group.
    """
    found = groupings(epsilons, deltas, most, stop=True, costs=costs)
    if error_of is None or error_of(found[-1]) is None:
        return found[-1]
    first = sorted(found, key=partial(_error, error_of=error_of))[:_COMPARED]
    better = [with_least_error(one, epsilons, deltas, costs, error_of) for one in first]
    return min(better, key=partial(_error, error_of=error_of))


def _error(one: Grouping, error_of: Error) -> float:
    error = error_of(one)
    return math.inf if error is None else error


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
    mu, finder = strengths(epsilons, deltas), _finder(epsilons, deltas)
    own = balance(*_bins(mu), costs) if costs is not None else None
    largest = min(most, finder.distinct)
    found = []
    for number in range(1 if stop or every else largest, largest + 1):
        if costs is None or own is None:
            best = finder.best(lambda mu: mu, number)
            best = replace(
                best, precision=float(np.array(best.clients) @ best.strengths) / float(mu.sum())
            )
        else:
            best = _balanced(finder, number, own, costs)
        found.append(best)
        if stop and best.precision >= _ENOUGH:
            break
    return found


def _finder(epsilons: Floats, deltas: Floats) -> Intervals | Corners:
    """Exact with one delta, by local search with several."""
    if deltas.min() == deltas.max():
        return Intervals(epsilons, strengths(epsilons, deltas), float(deltas[0]))
    return Corners(epsilons, deltas)


def with_least_error(
    found: Grouping, epsilons: Floats, deltas: Floats, costs: Costs | None, error_of: Error
) -> Grouping:
    """The grouping, or as many groups whose plan has a smaller error.

    Args:
        found: the best grouping by the formula.
        epsilons: budget of each client, positive, shape (clients,).
        deltas: failure probability of each client, shape (clients,).
        costs: of the plan's objective; None for the precision only.
        error_of: grouping -> error of its plan; None where the formula says it.
    """
    best = improved(found, epsilons, deltas, _finder(epsilons, deltas), error_of)
    if best is found:
        return found
    mu, clients = strengths(epsilons, deltas), np.array(best.clients, dtype=float)
    kept = float(clients @ best.strengths) / float(mu.sum())
    if costs is not None:
        own, error = balance(*_bins(mu), costs).error, balance(best.strengths, clients, costs).error
        kept = math.sqrt(own / error)
    return replace(best, precision=min(kept, 1.0))


def _balanced(finder: Intervals | Corners, number: int, own: Balance, costs: Costs) -> Grouping:
    """The best groups by a plan's error, and the precision that they retain.

    Gains depend on level and price of the plan, which are first those of clients with scales of
    their own, and then those of the groups found.
    """
    at, best, least = own, None, math.inf
    for _ in range(_PASSES):
        found = finder.best(partial(gains, found=at, costs=costs), number)
        at = balance(found.strengths, np.array(found.clients, dtype=float), costs)
        if best is not None and not at.error < least * (1 - 1e-4):
            break
        best, least = found, at.error
    return replace(best or found, precision=min(math.sqrt(own.error / least), 1.0))


def _bins(mu: Floats) -> tuple[Floats, Floats]:
    """Strengths of all clients at few nodes, and the clients of each."""
    values, counts = np.unique(mu, return_counts=True)
    starts, ends = starts_of(values), np.append(0, np.cumsum(counts))
    sizes = np.diff(np.append(ends[starts], ends[-1]))
    return condensed(values[starts], sizes.astype(float))


# --- A file of individual budgets into the groups of a spec. -------------------------------------

DEFAULT_GROUPS = 3
_SHOWN = 20
"""Lines with faults that are named, at most."""
_UNIT = "\x1f"
"""What stands between cells that were read from quotes."""
HEADERS = (("client", "epsilon"), ("client", "epsilon", "delta"))


def read_budgets(path: Path, default_delta: float | str) -> tuple[Floats, Floats]:
    """Budgets of individual clients from a CSV file: client, epsilon[, delta].

    Args:
        path: the file, with a header line.
        default_delta: for a file without deltas: a number, or a law such as ``n^-1.1``.

    Returns:
        epsilon and delta of each client, shape (clients,) each.

    Raises:
        InputError: naming the lines that are no budget, or repeat a client.
    """
    text = read_text(path, "groups_from").removeprefix("\ufeff")  # as spreadsheets begin
    separator = _UNIT if '"' in text else ","
    numbered = list(enumerate(text.splitlines(), start=1)) or [(1, "")]
    if separator == _UNIT:
        numbered = _unquoted(path.name, numbered)
    (_, header), *rows = numbered
    columns = tuple(part.strip() for part in header.split(separator))
    if columns not in HEADERS:
        rule = "must begin with the line client,epsilon or client,epsilon,delta"
        raise InputError.one("groups_from", rule, header[:60].replace(separator, ","))
    rows = [pair for pair in rows if pair[1].strip()]
    if not rows:
        raise InputError.one("groups_from", "must name at least one client", str(path))
    table = _table([line for _, line in rows], len(columns), separator)
    if table is None:
        cells = [(number, line.split(separator)) for number, line in rows]
        raise InputError(_faults(path.name, cells, columns))
    if len(columns) == 3:
        return table[:, 0], table[:, 1]
    delta = _law(default_delta, table)
    if not 0 < delta < 1:
        raise InputError.one("delta", "must be in (0, 1)", delta)
    return table[:, 0], np.full(len(table), delta)


def _unquoted(file: str, numbered: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Lines with cells in quotes as lines whose cells have no quotes around them.

    Raises:
        InputError: naming the lines where a quote is not closed.
    """
    found, faults = [], []
    for number, line in numbered:
        try:
            cells = next(csv.reader([line], skipinitialspace=True, strict=True), [])
        except csv.Error:
            rule = f"line {number} of {file}: quotes must be closed, and doubled within quotes"
            faults.append(Fault("groups_from", rule, line))
            continue
        found.append((number, _UNIT.join(cells)))
    if faults:
        raise InputError(_shown(file, [[fault] for fault in faults]))
    return found


def _table(lines: list[str], columns: int, separator: str) -> Floats | None:
    """The numbers of all lines, shape (clients, columns - 1); None if a line has a fault."""
    clients = {line.partition(separator)[0].strip() for line in lines}
    if len(clients) < len(lines) or "" in clients:
        return None
    if any(line.count(separator) != columns - 1 for line in lines):
        return None
    try:
        used = range(1, columns)
        table = np.loadtxt(lines, delimiter=separator, usecols=used, ndmin=2, comments=None)
    except ValueError:
        return None
    sound = np.all((table >= LEAST) & (table <= LARGEST)) and np.all(table[:, 1:] < 1)
    return table if sound else None


def _faults(file: str, rows: list[tuple[int, list[str]]], columns: tuple[str, ...]) -> list[Fault]:
    """The faults of the first lines that have one, and the number of other such lines."""
    seen: set[str] = set()
    found: list[list[Fault]] = []
    for number, row in rows:
        place, (client, *cells) = f"line {number} of {file}", map(str.strip, row)
        own = []
        if len(row) != len(columns):
            line = ",".join(row)
            own.append(Fault("groups_from", f"{place}: must be {','.join(columns)}", line))
        else:
            if not client or client in seen:
                rule = "must be unique" if client else "must have a name"
                own.append(Fault("groups_from", f"{place}: client {rule}", client))
            pairs = zip(columns[1:], cells, strict=True)
            own += [fault for name, cell in pairs for fault in _cell_faults(place, name, cell)]
        seen.add(client)
        found += [own] if own else []
    return _shown(file, found)


def _shown(file: str, found: list[list[Fault]]) -> list[Fault]:
    """The faults of the first lines, and the number of others."""
    shown = [fault for own in found[:_SHOWN] for fault in own]
    if len(found) > _SHOWN:
        rule = f"has faults in {len(found) - _SHOWN} more lines"
        shown.append(Fault("groups_from", rule, file))
    return shown


def _cell_faults(place: str, name: str, cell: str) -> Iterator[Fault]:
    """The fault of an epsilon or a delta, if it has one."""
    if not _is_number(cell):
        yield Fault("groups_from", f"{place}: {name} must be a number", cell)
    elif name == "epsilon" and not 0 < float(cell) < math.inf:
        yield Fault("groups_from", f"{place}: epsilon must be positive and finite", float(cell))
    elif name == "epsilon" and not LEAST <= float(cell) <= LARGEST:
        rule = f"epsilon must be in [{LEAST:g}, {LARGEST:g}]"
        yield Fault("groups_from", f"{place}: {rule}", float(cell))
    elif name == "delta" and not LEAST <= float(cell) < 1:
        yield Fault("groups_from", f"{place}: delta must be in (0, 1)", float(cell))


def _is_number(cell: str) -> bool:
    """Whether NumPy reads the text as a number, which has no underscores or other digits."""
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii() and "_" not in cell


def _law(delta: float | str, table: Floats) -> float:
    if isinstance(delta, str) and delta.startswith("n^-"):
        return float(len(table) ** -float(delta.removeprefix("n^-")))
    return float(delta)


def with_groups(
    data: dict[str, Any],
    folder: Path,
    costs_of: Callable[[dict[str, Any]], Costs | None],
    error_of: Callable[[dict[str, Any]], float | None],
) -> dict[str, Any]:
    """Plain data of a spec with the groups of its ``groups_from`` file filled in.

    Args:
        data: the spec's data; returned unchanged when it names no file, or has the groups that
            were filled in before, which ``groups_precision`` shows.
        folder: where a relative path starts.
        costs_of: plain data with all clients in one group -> costs of the plan's objective.
        error_of: plain data with groups -> error of their plan; None where the costs say it.

    Raises:
        InputError: when the file cannot be read or holds what is not a budget, or groups are given.
    """
    source = data.get("groups_from")
    if source is None:
        return data
    if data.get("groups"):
        if data.get("groups_precision") is None:
            rule = "must be left out with groups_from, whose file makes the groups"
            raise InputError.one("groups", rule, data["groups"])
        return data
    if not isinstance(source, str):
        raise InputError.one("groups_from", "must be the name of a file", source)
    planning = data.get("planning") or {}
    given = planning.get("group_count") if isinstance(planning, dict) else None
    count = DEFAULT_GROUPS if given is None else given
    named = planning.get("free") if isinstance(planning, dict) else None
    free = isinstance(named, list | tuple) and "groups" in named
    if free and given is not None:
        rule = "must be left out where planning.free names groups, which decides how many"
        raise InputError.one("planning.group_count", rule, count)
    faults = []
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        rule = "must be a whole number, 1 or more"
        faults.append(Fault("planning.group_count", rule, count))
    delta = data.get("delta", "n^-1.1")
    try:
        epsilons, deltas = read_budgets(folder / source, delta)
    except InputError as error:
        raise InputError([*faults, *error.faults]) from None
    except (TypeError, ValueError):
        faults.append(Fault("delta", "must be a number in (0, 1) or a law", delta))
    if faults:
        raise InputError(faults)
    everybody = Grouping((len(epsilons),), (epsilons.min(),), (deltas.min(),), 1.0)
    costs = costs_of({**data, "groups": groups_of(everybody)})

    def error_with(one: Grouping) -> float | None:
        return error_of({**data, "groups": groups_of(one), "groups_precision": one.precision})

    if free:
        most = _most_groups(data.get("cohort"))
        found = free_groups(epsilons, deltas, most, costs, error_with)
    else:
        found = group_budgets(epsilons, deltas, count, costs)
        found = with_least_error(found, epsilons, deltas, costs, error_with)
    return {**data, "groups": groups_of(found), "groups_precision": found.precision}


def _most_groups(cohort: Any) -> int:
    """Most groups when they are free: each takes one client or more of a cohort."""
    served = isinstance(cohort, int | float) and 1 <= cohort < MOST_GROUPS
    return int(cohort) if served else MOST_GROUPS


def groups_of(found: Grouping) -> list[dict[str, Any]]:
    """The groups of a grouping as plain data, named after their rank, strictest first."""
    rows = zip(found.clients, found.epsilons, found.deltas, strict=True)
    return [
        {
            "name": f"budget-{rank}",
            "clients": int(clients),
            "epsilon": float(epsilon),
            "delta": float(delta),
        }
        for rank, (clients, epsilon, delta) in enumerate(rows, start=1)
    ]
