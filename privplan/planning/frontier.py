"""Frontiers: noise against rounds, cohort and budgets.

Each point is a plan that is solved with one number changed. Noise is that of the weighted mean
update in norm: the square root of d times its standard deviation per coordinate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from privplan.errors import InfeasibleError, InputError, PrivplanError
from privplan.planning.choices import decide_free_choices, task_of
from privplan.planning.problem import (
    check_limits,
    problem_of,
    provisioned_noise_multiplier,
)
from privplan.planning.search import allocate
from privplan.spec.grouping import MOST_GROUPS, groupings, read_budgets
from privplan.spec.planning import is_objective, objective_names
from privplan.spec.spec import Spec

_STEP = 1.1
_KNEE = 0.1
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class FrontierPoint:
    """A plan with one number changed."""

    # what is varied: ``rounds``, ``cohort``, ``epsilon``, ``shadow_price``, ``without``, ``knee``,
    # or ``groups`` (the number of groups that individual budgets are merged into)
    question: str
    what: str  # the value or group
    noise: float | None  # noise of the mean update, in norm; None when there is no plan
    # relative change of the noise against the plan of the spec
    change: float | None
    note: str = ""  # the reason why there is no plan, or the meaning of the point

    def plain(self) -> dict[str, Any]:
        """The fields for JSON."""
        return dict(vars(self))


def frontier(
    spec: Spec, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[FrontierPoint]:
    """All points of the frontier of a spec."""
    if spec.unit != "client":
        raise InputError.one("unit", "must be client for a frontier", spec.unit)
    if not is_objective(spec.planning.ratios):
        rule = f"must be one of {', '.join(objective_names())} for a frontier"
        raise InputError.one("planning.ratios", rule, spec.planning.ratios)
    spec = decide_free_choices(spec)[0]
    base, variations = _noise(spec), _variations(spec)
    points = []
    for done, (question, what, changed, scale) in enumerate(variations):
        progress(done, len(variations))
        points.append(_point(question, what, changed, base, scale))
    progress(len(variations), len(variations))
    return [*points, *_knee(points), *_groups(spec, base)]


def _variations(spec: Spec) -> list[tuple[str, str, dict[str, Any], float]]:
    """Question, what, changed data, and the divisor of the relative change of noise."""
    data, variations = spec.model_dump(mode="json"), []
    for factor in _FACTORS:
        rounds = max(round(spec.rounds * factor), 1)
        variations.append(("rounds", str(rounds), {**data, "rounds": rounds}, 1.0))
    for size in _cohorts(spec):
        variations.append(("cohort", f"{size:g}", {**data, "cohort": size}, 1.0))
    scaled = [group for group in spec.groups if group.risk is None]
    for factor in _FACTORS if scaled else ():
        variations.append(
            ("epsilon", f"x {factor:g}", _budgets(data, factor, None), 1.0)
        )
    for group in scaled:
        more = _budgets(data, _STEP, group.name)
        variations.append(
            ("shadow_price", group.name, more, (_STEP - 1) * group.epsilon)
        )
    for group in spec.groups if len(spec.groups) > 1 else ():
        others = [other for other in data["groups"] if other["name"] != group.name]
        clients = sum(other["clients"] for other in others)
        cohort: float | None = (
            None if spec.everyone else min(spec.expected_cohort, clients)
        )
        changed = {
            **data,
            "groups": others,
            "cohort": cohort,
            "delta": spec.delta_of(group),
        }
        changed["groups_from"] = None
        variations.append(("without", group.name, changed, 1.0))
    return variations


def unscaled_lines(spec: Spec) -> list[str]:
    """That budgets stated as risks are not scaled, in one sentence; none without such a budget."""
    names = [group.name for group in spec.groups if group.risk is not None]
    if not names:
        return []
    which = (
        "all groups" if len(names) == len(spec.groups) else f"groups {', '.join(names)}"
    )
    return [
        f"budgets stated as risks are not scaled: rows epsilon and shadow_price leave out {which}"
    ]


def _cohorts(spec: Spec) -> list[float]:
    """A quarter and half of the cohort, the cohort, and its doubles up to the population."""
    if spec.everyone:
        return []
    cohorts = [spec.expected_cohort / 4]
    while cohorts[-1] < spec.population:
        cohorts.append(min(2 * cohorts[-1], float(spec.population)))
    if spec.sampling == "fixed_size":
        cohorts = [float(round(cohort)) for cohort in cohorts]
    return [cohort for cohort in cohorts if cohort >= len(spec.groups)]


def _budgets(data: dict[str, Any], factor: float, only: str | None) -> dict[str, Any]:
    """The data with the epsilon of one group times a factor, or of all that state no risk."""
    groups = [
        {**group, "epsilon": group["epsilon"] * factor}
        if only in (None, group["name"]) and group.get("risk") is None
        else group
        for group in data["groups"]
    ]
    return {**data, "groups": groups}


def _point(
    question: str, what: str, changed: dict[str, Any], base: float, scale: float
) -> FrontierPoint:
    """The point of changed data; ``base`` is the noise of the spec's own plan."""
    note = "per unit of epsilon" if question == "shadow_price" else ""
    try:
        spec = Spec.parse(changed)
        noise = _noise(spec)
    except PrivplanError as error:
        return FrontierPoint(question, what, None, None, " ".join(str(error).split()))
    try:
        check_limits(spec)
    except InfeasibleError as error:
        note = f"beyond {str(error).partition(' is below')[0]}"
    return FrontierPoint(question, what, noise, (noise / base - 1) / scale, note)


def _knee(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """The smallest cohort whose double lowers the noise by less than ``_KNEE``, if any."""
    cohorts = [p for p in points if p.question == "cohort" and p.noise is not None]
    for small, large in pairwise(cohorts):
        if small.noise and large.noise and large.noise > small.noise * (1 - _KNEE):
            note = "twice this cohort lowers the noise by less than 10%"
            return [FrontierPoint("knee", small.what, small.noise, small.change, note)]
    return []


def _groups(spec: Spec, base: float) -> list[FrontierPoint]:
    """Noise by number of groups that individual budgets are merged into; empty without them."""
    if spec.groups_from is None:
        return []
    epsilons, deltas = read_budgets(Path(spec.groups_from), spec.delta)
    data, points = spec.model_dump(mode="json"), []
    for found in groupings(epsilons, deltas, MOST_GROUPS):
        number = len(found.clients)
        note = f"keeps {found.precision:.2%} of the precision of individual budgets"
        if number > data["cohort"]:
            break
        point = _point(
            "groups", str(number), {**data, "groups": found.plain()}, base, 1.0
        )
        points.append(replace(point, note=point.note or note))
    return points


def _noise(spec: Spec) -> float:
    multiplier = provisioned_noise_multiplier(
        spec, allocate(task_of(spec, problem_of(spec)))
    )
    return multiplier * spec.clipping_norm * math.sqrt(spec.model.parameters)
