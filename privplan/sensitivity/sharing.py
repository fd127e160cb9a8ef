"""What the points of a sweep share: the axes along which their noise curves are interpolated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from privplan.errors import PrivplanError

if TYPE_CHECKING:
    from privplan.planning.sweeping import Axes

_FEWEST = 20
"""Points from which on noise curves may be interpolated."""
_JUDGED = 1000
_GOLDEN = (math.sqrt(5) - 1) / 2
Item = TypeVar("Item")


def evenly(items: Sequence[Item]) -> list[Item]:
    """All items, or ``_JUDGED`` that lie evenly, whatever period the items have."""
    if len(items) <= _JUDGED:
        return list(items)
    return [items[int(place * _GOLDEN % 1 * len(items))] for place in range(_JUDGED)]


def axes_of(points: Sequence[dict[str, Any]]) -> Axes:
    """Axes along which the noise curves of a sweep are interpolated; None for each its own.

    A function of the points alone, so that every process, and a sweep that is resumed, finds the
    same. Only for plans of clients that are calibrated by ``pld`` (or ``prv``).

    Args:
        points: specs of the points as plain data; those with faults do not count.
    """
    from privplan.planning.budget_nodes import Budget, budget_of
    from privplan.planning.noise_lattice import shared_axes
    from privplan.planning.noise_model import FROM_LOSSES
    from privplan.planning.problem import Problem, problem_of
    from privplan.spec.objectives import is_objective
    from privplan.spec.spec import Spec

    def problems() -> Iterable[Problem]:
        for data in points:
            try:
                spec = Spec.parse(data)
                ours = spec.unit == "client" and is_objective(spec.planning.ratios)
                if ours and spec.planning.accountant in FROM_LOSSES:
                    yield problem_of(spec)
            except PrivplanError:
                continue

    if len(points) < _FEWEST:
        return None
    budgets: set[Budget] = set()
    for problem in problems():
        budgets |= {budget_of(problem, group) for group in range(len(problem.names))}
    return shared_axes(budgets) if budgets else None
