"""Groups of budgets that differ in both epsilon and delta, by local search.

A group has the least epsilon and the least delta of its members. Where these are two clients', the
group's budget is stricter than both, often by far: (4, 1e-9) and (1, 1e-2) make (1, 1e-9). So a
grouping is a set of corners (epsilon, delta), where each client has the corner of most worth among
those that are no looser than its own budget in both, and the worth of a set is the sum over
clients. It is submodular in the set, so that adding the corner of most worth (Nemhauser, Wolsey and
Fisher 1978, Mathematical Programming 14), followed by exchanges of one corner while they gain, is
near the best. Epsilons are first searched over few nodes, then over finer ones at the corners.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privplan.spec.grouped import Floats, Grouping, Integers, Worth, strengths

Corner = tuple[float, float]

_LEVELS = 8
"""Most levels of delta; with more deltas, the least and quantiles over clients."""
_PLACES = 384
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
    levels = _few(deltas, _LEVELS)
    nodes = _few(epsilons, _PLACES // len(levels))
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
