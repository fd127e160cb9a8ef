"""Bounds on epsilon or delta over the directions of a growing history."""

from __future__ import annotations

import math
from collections.abc import Sequence

from privplan.accounting.accountant import Interval
from privplan.accounting.pld.accountant import Reading
from privplan.accounting.pld.growing import Direction, Question

_ATTEMPTS = 9
_GLANCE = 3.0
_FLOOR = 0.05
_WIDE = 0.1
_PROGRESS = 0.7
_LEAST_DELTA = 1e-12


def bounds(
    directions: Sequence[Direction], question: Question, tolerance: float, *, floor: bool
) -> Interval:
    """Bounds from what is composed, composing more where they are too far apart.

    The worst direction is refined until its bounds are within the tolerance. The gap shrinks with
    the square of the step, which tells the next step. A direction that is not the worst is only
    composed coarsely, by the plan of the first, and needs no lower bound. Where the lower pairs
    are others than the upper ones, the gap is that of the cell and cannot be closed.

    Args:
        directions: one or two.
        question: epsilon at a delta, or delta at an epsilon.
        tolerance: gap over the upper bound to aim at.
        floor: whether ``tolerance`` is of a twentieth of the spread of the loss, where the
            upper bound is smaller than that; otherwise of 1e-12, where it is smaller.
    """
    for place, one in enumerate(directions):
        if math.isinf(one.above.bound(question)) or not one.above.known:
            plan = directions[0].above.plan(question)
            one.above.compose(plan, _GLANCE if place else 1.0, question)
    plans: dict[int, Reading] = {}
    scales: dict[int, float] = {}
    before = math.inf
    for _ in range(_ATTEMPTS):
        uppers = [one.above.bound(question) for one in directions]
        lowest = max(one.below.bound(question) for one in directions)
        upper = max(uppers)
        worst = uppers.index(upper)
        one = directions[worst]
        gap = upper - lowest
        least = _FLOOR * max((t.reading.spread for t in one.above.tables), default=0.0)
        enough = max(upper, least if floor else _LEAST_DELTA)
        close = math.isfinite(upper) and gap <= tolerance * enough
        if upper == 0 or close or one.above.pairs.total() == 1:
            break
        if worst not in plans:
            plans[worst], scales[worst] = one.above.plan(question), 1.0
            had = one.above.has(plans[worst]), one.below.has(plans[worst])
            if not had[0]:
                one.above.compose(plans[worst], 1.0, question)
            if not had[1]:
                one.below.compose(plans[worst], 1.0, question)
            if not all(had):
                continue
        if not one.closable or gap > _PROGRESS * before:
            break
        before = gap if scales[worst] < 1 else math.inf
        shrink = math.sqrt(tolerance * upper / gap) if math.isfinite(gap) else 0.5
        least_shrink = 0.3 if gap > _WIDE * upper else 0.05
        scales[worst] *= min(0.7, max(least_shrink, 0.85 * shrink))
        made = [
            side.compose(plans[worst], scales[worst], question) for side in (one.above, one.below)
        ]
        if not all(made):
            break
    upper = max(one.above.bound(question) for one in directions)
    lowest = max(one.below.bound(question) for one in directions)
    return Interval(min(lowest, upper), upper)
