"""Nodes of many budgets: calibrated on a lattice of budgets, interpolated between them.

The points of a sweep have budgets (epsilon, delta and rounds) that no other point has, but that
lie close together. Over the logarithms of the three, log sigma exceeds its central limit
(``Budget.central``) by a smooth function, so calibrations of few budgets give all: polynomials of
degree five through the six lattice budgets around, one axis after the other. Where those through
four differ by more than ``_DOUBT``, or a lattice budget is not met, a budget has its own nodes.

Interpolated nodes only say where an optimum lies: plans are calibrated and certified as ever.
docs/performance.md states what the ratios lose.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

from privplan.planning.budget_nodes import STEP, Budget, Node, lagrange_weights, own_node, root
from privplan.planning.sweeping import interpolated

AXES = ("epsilon", "rounds", "delta")
"""Numbers of a budget that a sweep may vary."""
_DISTANCE = {"epsilon": 0.4, "rounds": 0.65, "delta": 1.0}
"""Distance of neighbouring lattice budgets, in logarithms."""
_EVERY = 8
"""Up to so many rounds, each number is on the lattice."""
_LARGE_DELTA = 0.1
"""Larger failure probabilities have nodes of their own."""
_AROUND = 6
_DOUBT = 5e-4
_SHARE = 0.05
"""Time to interpolate the nodes of a budget along an axis, over that to calibrate them."""
_SETTLED = 3e-4
"""Newton step that ends the search for a predicted log sigma, which is then within some 2e-5."""


def node(budget: Budget, index: int, precise: bool) -> Node:
    """The noise multiplier of a budget at the ratio ``exp(-STEP index)``."""
    axes = interpolated()
    if axes is None:
        return own_node(budget, index, precise)
    found = _between(budget, axes, index, precise) if axes else None
    return own_node(budget, index, precise) if found is None else found


def predicted(budget: Budget, ratio: float, near: float, slope: float) -> float | None:
    """Log sigma that meets a budget at any ratio, within some 2e-5.

    None at full participation, and at the ends of the range of noise multipliers.

    Args:
        budget: the budget.
        ratio: sampling ratio.
        near: noise multiplier within some percent of the result.
        slope: -d log epsilon / d log sigma there, within some percent.
    """
    if ratio >= 1:
        return None
    found = root(budget, math.log(ratio), math.log(near), slope, _SETTLED)
    return found.log_noise if found.met else None


def shared_axes(budgets: Collection[Budget]) -> tuple[str, ...]:
    """The axes along which interpolation makes a sweep cheapest; empty where it does not pay.

    Args:
        budgets: the distinct budgets of a sweep, or of a part of its points.
    """
    varying = [axis for axis in AXES if len({getattr(one, axis) for one in budgets}) > _AROUND]
    best: tuple[str, ...] = ()
    least = float(len(budgets))
    for size in range(1, len(varying) + 1):
        for axes in combinations(varying, size):
            needed = set(budgets)
            for axis in axes:
                needed = {found for one in needed for found in lattice_around(one, axis)}
            if len(needed) + _SHARE * size * len(budgets) < least:
                best, least = axes, len(needed) + _SHARE * size * len(budgets)
    return best


def lattice_around(budget: Budget, axis: str) -> tuple[Budget, ...]:
    """The lattice budgets between which one is interpolated along an axis; itself on the lattice.

    Args:
        budget: the budget.
        axis: one of ``AXES``.
    """
    if axis == "rounds":
        first = _rounds_before(budget.rounds)
        if _rounds(first) == budget.rounds:
            return (budget,)
        first = max(first - _AROUND // 2 + 1, 0)
        counts = [_rounds(first + step) for step in range(_AROUND)]
        return tuple(replace(budget, rounds=count) for count in counts)
    value, distance = float(getattr(budget, axis)), _DISTANCE[axis]
    first = math.floor(math.log(value) / distance) - _AROUND // 2 + 1
    values = [math.exp(distance * (first + step)) for step in range(_AROUND)]
    if value in values or (axis == "delta" and values[-1] > _LARGE_DELTA):
        return (budget,)
    if axis == "delta":
        return tuple(replace(budget, delta=one) for one in values)
    return tuple(replace(budget, epsilon=one) for one in values)


def _rounds(place: int) -> int:
    """The number of rounds at a place of the lattice, from 0 on."""
    if place < _EVERY:
        return place + 1
    return round(_EVERY * math.exp(_DISTANCE["rounds"] * (place + 1 - _EVERY)))


def _rounds_before(rounds: int) -> int:
    """The last place of the lattice with at most so many rounds."""
    if rounds <= _EVERY:
        return rounds - 1
    place = _EVERY + math.floor(math.log(rounds / _EVERY) / _DISTANCE["rounds"])
    return max(one for one in (place - 2, place - 1, place) if _rounds(one) <= rounds)


@dataclass(frozen=True)
class _Around:
    """How a budget is interpolated along an axis: lattice budgets with their weights.

    Attributes:
        budgets: the lattice budgets; one where the budget is on the lattice.
        weights: of the polynomial through all.
        doubts: of its difference from that through the four in the middle.
        below: the last lattice budget that is not above.
        share: part of the way from there to the next.
    """

    budgets: tuple[Budget, ...]
    weights: tuple[float, ...]
    doubts: tuple[float, ...]
    below: int
    share: float


@lru_cache(maxsize=16_384)
def _around(budget: Budget, axis: str) -> _Around:
    budgets = lattice_around(budget, axis)
    if len(budgets) == 1:
        return _Around(budgets, (1.0,), (0.0,), 0, 0.0)
    values = [math.log(getattr(one, axis)) for one in budgets]
    value = math.log(getattr(budget, axis))
    below = max(sum(one <= value for one in values) - 1, 0)
    first = min(max(below - 1, 0), _AROUND - 4)
    weights = lagrange_weights(values, value)
    inner = [0.0] * first + lagrange_weights(values[first : first + 4], value)
    doubts = [w - v for w, v in zip(weights, inner + [0.0] * _AROUND, strict=False)]
    share = (value - values[below]) / (values[below + 1] - values[below])
    return _Around(budgets, tuple(weights), tuple(doubts), below, share)


@lru_cache(maxsize=262_144)
def _between(budget: Budget, axes: tuple[str, ...], index: int, precise: bool) -> Node | None:
    """The node interpolated along axes; None where one of the lattice is not met or in doubt."""
    if not axes:
        found = own_node(budget, index, precise)
        return found if found.met else None
    around = _around(budget, axes[0])
    nodes = [_between(one, axes[1:], index, precise) for one in around.budgets]
    if len(nodes) == 1:
        return nodes[0]
    known = [found for found in nodes if found is not None]
    if len(known) < len(nodes):
        return None
    ratio, total, doubt = math.exp(-STEP * index), 0.0, 0.0
    for found, one, weight, other in zip(
        known, around.budgets, around.weights, around.doubts, strict=True
    ):
        excess = found.log_noise - one.central(ratio)
        total += weight * excess
        doubt += other * excess
    if not abs(doubt) <= _DOUBT:
        return None
    below, share = around.below, around.share
    slope = known[below].slope ** (1 - share) * known[below + 1].slope ** share
    return Node(budget.central(ratio) + total, slope)
