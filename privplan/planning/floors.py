"""What the floor under each group's weight costs, and whom none can help."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privplan.accounting.audibility import AUDIBLE, audibility_in_words
from privplan.errors import PrivplanError
from privplan.plan import Plan
from privplan.planning.choices import task_of
from privplan.planning.problem import least_shares, problem_of
from privplan.planning.recipe import relative_noise, relative_noise_of
from privplan.planning.search import estimated
from privplan.planning.task import Task
from privplan.spec.planning import is_objective
from privplan.spec.spec import Spec

# Prices of more groups are not computed: each takes a search, and no reader looks
# through more.
_MOST_GROUPS = 12
# Factor on the noise from which a price comes with what would lower it.
DEAR = 1.5
# A floor that costs less noise has no price: searches tell that from none only.
_CHEAP = 1.005
# A weight is at its floor when it is above by less.
_AT_FLOOR = 1.001
_LESS = 0.5  # least share that is tried as a remedy


@dataclass(frozen=True)
class FloorPrice:
    """What the least weight of a group costs.

    Attributes:
        group: name of the group.
        counts: its least weight over its share of the clients.
        factor: noise of the mean over that of the plan without this floor.
        remedies: changes of the spec, with the noise over the clipping norm after each.
    """

    group: str
    counts: float
    factor: float
    remedies: tuple[tuple[str, float], ...] = ()


def floor_prices(plan: Plan) -> list[FloorPrice]:
    """The price of each floor that decides a weight, in the order of the groups.

    Noise without a floor is that of the noise curves, within 1e-3.
    """
    spec = plan.spec
    is_chosen = spec.unit == "client" and spec.weighting == "optimal"
    is_chosen = is_chosen and is_objective(spec.planning.ratios)
    if not is_chosen or len(spec.groups) > _MOST_GROUPS or len(spec.groups) == 1:
        return []
    problem = problem_of(spec)
    task = task_of(spec, problem)
    floors = task.limits.min_weights
    noise = relative_noise(plan)

    prices: list[FloorPrice] = []
    for index, group in enumerate(plan.groups):
        is_at_floor = group.weight <= _AT_FLOOR * floors[index]
        if not is_at_floor or floors[index] == 0:
            continue
        factor = noise / relative_noise_of(spec, estimated(_without(task, index)))
        if factor < _CHEAP:
            continue
        remedies = tuple(_remedies(spec, index)) if factor >= DEAR else ()
        counts = float(floors[index] / problem.shares[index])
        prices.append(FloorPrice(group.name, counts, factor, remedies))
    return prices


def _without(task: Task, group: int) -> Task:
    """The task without the floor of one group."""
    floors = np.array(task.limits.min_weights)
    floors[group] = 0.0
    return replace(task, limits=replace(task.limits, min_weights=floors))


def _remedies(spec: Spec, index: int) -> list[tuple[str, float]]:
    """Changes that make a group's floor cheaper, with the noise after each."""
    group = spec.groups[index]
    changes: dict[str, dict[str, Any] | None] = {
        f"epsilon {2 * group.epsilon:g} for {group.name}": {
            "epsilon": 2 * group.epsilon
        }
    }
    looser = [rival for rival in spec.groups if rival.epsilon > group.epsilon]
    if looser:
        nearest = min(looser, key=lambda rival: rival.epsilon)
        merged = f"{group.name} merged into {nearest.name}"
        changes[f"{merged} (epsilon {nearest.epsilon:g})"] = {
            "epsilon": nearest.epsilon,
            "delta": nearest.delta,
        }
    changes[f"groups.{group.name}.least_share {_LESS:g}"] = {
        "least_share": _LESS,
        "min_weight": None,
    }
    changes[f"{group.name} left out"] = None

    remedies: list[tuple[str, float]] = []
    for name, change in changes.items():
        groups = list(spec.groups)
        if change is None:
            del groups[index]
        else:
            groups[index] = group.model_copy(update={**change, "risk": None})
        changed = spec.model_copy(update={"groups": tuple(groups)})
        with suppress(PrivplanError):
            allocation = estimated(task_of(changed, problem_of(changed)))
            remedies.append((name, relative_noise_of(changed, allocation)))
    return remedies


def floor_lines(plan: Plan) -> list[str]:
    """What each floor costs and what would lower it, and whom no weight can help."""
    lines: list[str] = []
    for price in floor_prices(plan):
        line = (
            f"{price.group} counts at least {price.counts:.0%} of its clients' number: "
            f"{price.factor:.2f} times the noise of a plan without this floor"
        )
        if price.remedies:
            remedies = [
                f"{noise:.3g} with {change}" for change, noise in price.remedies
            ]
            line += f"; noise {', '.join(remedies)}"
        lines.append(line)
    return [*lines, *audibility_lines(plan)]


def audibility_lines(plan: Plan) -> list[str]:
    """What groups that are hidden or faint as a whole cannot expect of any weight."""
    spec = plan.spec
    if spec.unit != "client":
        return []
    has_floors = is_objective(spec.planning.ratios) and spec.weighting == "optimal"
    floors = least_shares(spec)
    lines: list[str] = []
    for group, stated, floor in zip(plan.groups, spec.groups, floors, strict=True):
        line = audibility_in_words(group.name, group.clients, group.audibility)
        if not line:
            continue
        has_floor = floor > 0 or stated.min_weight
        if has_floors and group.audibility < AUDIBLE and not has_floor:
            line += "; it has no floor and counts as the objective says"
        lines.append(line)
    hidden = len(lines) - _MOST_GROUPS
    if hidden > 0:
        return [*lines[:_MOST_GROUPS], f"groups: {hidden} more are hidden or faint"]
    return lines
