"""Groups of individual budgets, and the strength of a budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.gdp import mu_of

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
