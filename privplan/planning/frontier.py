"""Frontiers: noise against rounds, cohort and budgets.

Each point is a plan that is solved with one number changed. Noise is that of the
weighted mean update in norm: the square root of d times its standard deviation per
coordinate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from privplan.errors import InfeasibleError, InputError, PrivplanError
from privplan.planning.choices import decide_free_choices, task_of
from privplan.planning.law_choice import with_best_law
from privplan.planning.problem import (
    check_limits,
    problem_of,
    provisioned_noise_multiplier,
)
from privplan.planning.search import allocate
from privplan.spec.grouping import MOST_GROUPS, groupings, read_budgets
from privplan.spec.planning import is_objective, objective_names
from privplan.spec.spec import Spec
from privplan.threads import one_product_thread

# Factor on a budget for what more of it buys.
_STEP = 1.1
# Relative fall of the noise by twice the cohort below which that is not worth it.
_KNEE = 0.1
# Factors on rounds and budgets.
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class FrontierPoint:
    """A plan with one number changed.

    Attributes:
        question: what is varied: ``rounds``, ``cohort``, ``epsilon``, ``shadow_price``,
            ``without``, ``knee``, or ``groups`` (the number of groups that individual
            budgets are merged into).
        what: the value or group.
        noise: noise of the mean update, in norm; None when there is no plan.
        change: relative change of the noise against the plan of the spec.
        note: the reason why there is no plan, or the meaning of the point.
    """

    question: str
    what: str
    noise: float | None
    change: float | None
    note: str = ""

    def plain(self) -> dict[str, Any]:
        """The fields for JSON."""
        return dict(vars(self))


class _Variation(NamedTuple):
    """A spec's data with one number changed.

    Attributes:
        question: as in ``FrontierPoint``.
        what: the value or group.
        data: the changed data.
        scale: the divisor of the relative change of noise.
    """

    question: str
    what: str
    data: dict[str, Any]
    scale: float = 1.0


@one_product_thread()
def frontier(
    spec: Spec, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[FrontierPoint]:
    """All points of the frontier of a spec.

    Raises:
        InputError: for specs of records, or whose ratios minimise no objective.
    """
    if spec.unit != "client":
        raise InputError.one("unit", "must be client for a frontier", spec.unit)
    if not is_objective(spec.planning.ratios):
        rule = f"must be one of {', '.join(objective_names())} for a frontier"
        raise InputError.one("planning.ratios", rule, spec.planning.ratios)
    spec, _ = with_best_law(spec)
    spec, _ = decide_free_choices(spec)
    base_noise = _noise(spec)
    variations = _variations(spec)
    points: list[FrontierPoint] = []
    for done, variation in enumerate(variations):
        progress(done, len(variations))
        points.append(_point(variation, base_noise))
    progress(len(variations), len(variations))
    return [*points, *_knee(points), *_groups(spec, base_noise)]


def _variations(spec: Spec) -> list[_Variation]:
    """Every change of one number."""
    data = spec.model_dump(mode="json")
    variations: list[_Variation] = []
    for factor in _FACTORS:
        rounds = max(round(spec.rounds * factor), 1)
        changed = {**data, "rounds": rounds}
        variations.append(_Variation("rounds", str(rounds), changed))
    for cohort in _cohorts(spec):
        changed = {**data, "cohort": cohort}
        variations.append(_Variation("cohort", f"{cohort:g}", changed))
    return [*variations, *_budget_variations(spec, data), *_without(spec, data)]


def _budget_variations(spec: Spec, data: dict[str, Any]) -> list[_Variation]:
    """All budgets times factors, and each budget a little larger."""
    scaled = [group for group in spec.groups if group.risk is None]
    if not scaled:
        return []
    variations: list[_Variation] = []
    for factor in _FACTORS:
        changed = _budgets(data, factor, None)
        variations.append(_Variation("epsilon", f"x {factor:g}", changed))
    for group in scaled:
        changed = _budgets(data, _STEP, group.name)
        step = (_STEP - 1) * group.epsilon
        variations.append(_Variation("shadow_price", group.name, changed, step))
    return variations


def _without(spec: Spec, data: dict[str, Any]) -> list[_Variation]:
    """The spec without each of its groups, with as many clients as are left."""
    if len(spec.groups) == 1:
        return []
    variations: list[_Variation] = []
    for group in spec.groups:
        remaining = [entry for entry in data["groups"] if entry["name"] != group.name]
        clients = sum(entry["clients"] for entry in remaining)
        cohort = None if spec.everyone else min(spec.expected_cohort, clients)
        changed = {
            **data,
            "groups": remaining,
            "cohort": cohort,
            "delta": spec.delta_of(group),
            "groups_from": None,
        }
        variations.append(_Variation("without", group.name, changed))
    return variations


def unscaled_lines(spec: Spec) -> list[str]:
    """That budgets stated as risks are not scaled; nothing without such a budget."""
    names = [group.name for group in spec.groups if group.risk is not None]
    if not names:
        return []
    groups = f"groups {', '.join(names)}"
    if len(names) == len(spec.groups):
        groups = "all groups"
    return [
        "budgets stated as risks are not scaled: rows epsilon and shadow_price leave out "
        f"{groups}"
    ]


def _cohorts(spec: Spec) -> list[float]:
    """A quarter of the cohort and its doubles up to the population."""
    if spec.everyone:
        return []
    cohorts = [spec.expected_cohort / 4]
    while cohorts[-1] < spec.population:
        cohorts.append(min(2 * cohorts[-1], float(spec.population)))
    if spec.sampling == "fixed_size":
        cohorts = [float(round(cohort)) for cohort in cohorts]
    return [cohort for cohort in cohorts if cohort >= len(spec.groups)]


def _budgets(data: dict[str, Any], factor: float, only: str | None) -> dict[str, Any]:
    """The data with a factor on epsilons: of a group, or of all that state no risk."""
    groups = []
    for group in data["groups"]:
        if only in (None, group["name"]) and group.get("risk") is None:
            group = {**group, "epsilon": group["epsilon"] * factor}
        groups.append(group)
    return {**data, "groups": groups}


def _point(variation: _Variation, base_noise: float) -> FrontierPoint:
    """The point of a variation; ``base_noise`` is that of the spec's own plan."""
    question = variation.question
    what = variation.what
    note = "per unit of epsilon" if question == "shadow_price" else ""
    try:
        spec = Spec.parse(variation.data)
        noise = _noise(spec)
    except PrivplanError as error:
        return FrontierPoint(question, what, None, None, " ".join(str(error).split()))
    try:
        check_limits(spec)
    except InfeasibleError as error:
        note = f"beyond {str(error).partition(' is below')[0]}"
    change = (noise / base_noise - 1) / variation.scale
    return FrontierPoint(question, what, noise, change, note)


def _knee(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """The smallest cohort whose double lowers the noise by less than ``_KNEE``."""
    cohorts = [p for p in points if p.question == "cohort" and p.noise is not None]
    for small, large in pairwise(cohorts):
        if small.noise and large.noise and large.noise > small.noise * (1 - _KNEE):
            note = "twice this cohort lowers the noise by less than 10%"
            return [FrontierPoint("knee", small.what, small.noise, small.change, note)]
    return []


def _groups(spec: Spec, base_noise: float) -> list[FrontierPoint]:
    """Noise by the number of groups that individual budgets are merged into."""
    if spec.groups_from is None:
        return []
    epsilons, deltas = read_budgets(Path(spec.groups_from), spec.delta)
    data = spec.model_dump(mode="json")
    points: list[FrontierPoint] = []
    for grouping in groupings(epsilons, deltas, MOST_GROUPS):
        number = len(grouping.clients)
        if number > data["cohort"]:
            break
        changed = {**data, "groups": grouping.plain()}
        point = _point(_Variation("groups", str(number), changed), base_noise)
        precision = f"{grouping.precision:.2%} of the precision of individual budgets"
        points.append(replace(point, note=point.note or f"keeps {precision}"))
    return points


def _noise(spec: Spec) -> float:
    """Norm of the noise of the mean update."""
    allocation = allocate(task_of(spec, problem_of(spec)))
    multiplier = provisioned_noise_multiplier(spec, allocation)
    return multiplier * spec.clipping_norm * math.sqrt(spec.model.parameters)
