"""Groups by the error of their plans, where no formula says what a client adds to one.

Under weights by a rule, or with one release per group, the error is no sum over clients. Cuts by
powers of the strength and by the formula are compared by the error of their plans; with one delta
the best of them is then improved by moving its cuts, by shorter and shorter steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import combinations
from typing import Protocol

import numpy as np

from privplan.spec.grouped import Floats, Grouping, Worth

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
