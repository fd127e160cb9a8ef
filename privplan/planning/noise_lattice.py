"""Nodes of many budgets: calibrated on a lattice of budgets, interpolated between them.

The points of a sweep have budgets (epsilon, delta and rounds) that no other point has, but that
lie close together. Over the logarithms of the three, log sigma exceeds its central limit
(``Budget.central``) by a smooth function, so calibrations of few budgets give all: polynomials of
degree five through the six lattice budgets around, one axis after the other. Where those through
four differ by more than ``_DOUBT``, or a lattice budget is not met, a budget has its own nodes.

Interpolated nodes only say where an optimum lies and where a calibration starts: plans are
calibrated and certified as ever. docs/performance.md states what the ratios lose.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.pld.accountant import TOLERANCE
from privplan.accounting.release import History, Release
from privplan.errors import TooLittleNoiseError
from privplan.planning.budget_nodes import STEP, Budget, Node, lagrange, lagrange_weights, own_node
from privplan.planning.group_noise import GUARANTEE

AXES = ("epsilon", "rounds", "delta")
"""Numbers of a budget that a sweep may vary."""
_DISTANCE = {"epsilon": 0.4, "rounds": 0.65, "delta": 1.0}
"""Distance of neighbouring lattice budgets, in logarithms."""
_EVERY = 8
"""Up to so many rounds, each number is on the lattice."""
_LARGE_DELTA = 0.1
"""Larger failure probabilities have nodes of their own."""
_AROUND = 6
_HALVES = 2
_APART = STEP / _HALVES
"""Distance of the places of sharp nodes in log q; other nodes are at every second one."""
COARSE, PRECISE, SHARP = range(3)
"""Kinds of nodes: within 1e-3, within 3e-4, and between the accountant's bounds."""
_FAR_OFF = 0.02
_DOUBT = 5e-4
_OWN, _OF_LATTICE = 15, 30
"""Time for the nodes of a budget of its own, and of one on the lattice, over what a plan spares
whose calibration starts from sharp nodes."""
Axes = tuple[str, ...] | None
"""Which of ``AXES`` are interpolated; only along ratios when empty, nothing when None."""

_interpolated: ContextVar[Axes] = ContextVar("interpolated", default=None)


@contextmanager
def interpolating(axes: Axes) -> Iterator[None]:
    """Interpolate noise curves between lattice budgets within the block."""
    token = _interpolated.set(axes)
    try:
        yield
    finally:
        _interpolated.reset(token)


def node(budget: Budget, index: int, precise: bool) -> Node:
    """The noise multiplier of a budget at the ratio ``exp(-STEP index)``."""
    axes = _interpolated.get()
    place = _HALVES * index
    found = _between(budget, axes, place, PRECISE if precise else COARSE) if axes else None
    return own_node(budget, index, precise) if found is None else found


def predicted(budget: Budget, ratio: float) -> float | None:
    """Log sigma that meets a budget at any ratio, within some 5e-5.

    None outside of ``interpolating``, and where a node cannot be interpolated.

    Args:
        budget: the budget.
        ratio: sampling ratio.
    """
    axes = _interpolated.get()
    if axes is None or ratio >= 1:
        return None
    first = max(math.floor(-math.log(ratio) / _APART) - _AROUND // 2 + 1, 0)
    places = range(first, first + _AROUND)
    excess = []
    for place in places:
        found = _between(budget, axes, place, SHARP)
        if found is None:
            return None
        excess.append(found.log_noise - budget.central(_ratio(place)))
    return budget.central(ratio) + lagrange(places, excess, -math.log(ratio) / _APART)


def shared_axes(budgets: Collection[Budget], plans: int) -> Axes:
    """The axes along which interpolation makes a sweep cheapest; None where it does not pay.

    Args:
        budgets: the distinct budgets of a sweep, or of a part of its points.
        plans: plans of a group that have them, one per point and group.
    """
    varying = [axis for axis in AXES if len({getattr(one, axis) for one in budgets}) > _AROUND]
    best: Axes = None
    least = _OWN * len(budgets) + plans
    for size in range(len(varying) + 1):
        for axes in combinations(varying, size):
            needed = set(budgets)
            for axis in axes:
                needed = {found for one in needed for found in lattice_around(one, axis)}
            if _OF_LATTICE * len(needed) < least:
                best, least = axes, _OF_LATTICE * len(needed)
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


def _ratio(place: int) -> float:
    """The sampling ratio at a place."""
    return math.exp(-_APART * place)


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
def _between(budget: Budget, axes: tuple[str, ...], place: int, kind: int) -> Node | None:
    """The node interpolated along axes; None where one of the lattice is not met or in doubt."""
    if not axes:
        return _calibrated(budget, place, kind)
    around = _around(budget, axes[0])
    nodes = [_between(one, axes[1:], place, kind) for one in around.budgets]
    if len(nodes) == 1:
        return nodes[0]
    known = [found for found in nodes if found is not None]
    if len(known) < len(nodes):
        return None
    ratio, total, doubt = _ratio(place), 0.0, 0.0
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


def _calibrated(budget: Budget, place: int, kind: int) -> Node | None:
    """A node of a lattice budget; a sharp one lies between the bounds of the accountant."""
    if kind != SHARP:
        found = own_node(budget, place // _HALVES, kind == PRECISE)
        return found if found.met else None
    first = max(place // _HALVES - 1, 0)
    indices = range(first, first + 4)
    nodes = [own_node(budget, index, True) for index in indices]
    if not all(one.met for one in nodes):
        return None
    excess = [
        one.log_noise - budget.central(_ratio(_HALVES * index))
        for one, index in zip(nodes, indices, strict=True)
    ]
    log_noise = budget.central(_ratio(place)) + lagrange(indices, excess, place / _HALVES)
    slope = nodes[min(place // _HALVES - first, 3)].slope
    history = History.repeated(
        Release(math.exp(log_noise), _ratio(place), budget.sampling), budget.rounds
    )
    try:
        bounds = by_name(GUARANTEE).epsilon(history, budget.delta, budget.relation)
    except TooLittleNoiseError:
        return None
    if not 0 < bounds.lower <= bounds.upper < math.inf:
        return None
    # a lattice of losses adds twice what it takes from below, where the bounds can be closed
    width = min(math.log(bounds.upper / bounds.lower), TOLERANCE)
    gap = math.log(bounds.upper / budget.epsilon) - 2 / 3 * width
    return Node(log_noise + gap / slope, slope) if abs(gap) < _FAR_OFF else None
