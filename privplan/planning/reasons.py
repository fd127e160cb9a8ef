"""Why a plan is as it is, in sentences: who decides, what groups cost, what budgets buy.

Every number comes from plans that are solved with one budget changed, so explaining takes about
two searches per group.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from privplan.errors import PrivplanError
from privplan.plan import Plan
from privplan.planning.allocate import allocate
from privplan.planning.objectives import objective_of
from privplan.planning.optimised import task_of
from privplan.planning.problem import problem_of, provisioned_noise_multiplier
from privplan.planning.unspent import unspent_lines
from privplan.spec.objectives import is_objective
from privplan.spec.spec import Spec

STEP = 1.1
"""Factor on a budget for what more of it buys."""
MOST_GROUPS = 12
"""Largest number of groups whose budgets are varied; beyond it explaining takes too long."""
_LOOSE = 0.01
_BIAS = "groups that count more or less than their share of the clients"
_TERMS = {
    "noise": "privacy noise",
    "privacy_noise": "privacy noise",
    "sampling": "the draw of the clients",
    "bias": _BIAS,
    "leaning": _BIAS,  # its name in plans of version 0.1
    "progress": "too few rounds",
    "dissimilarity": "differences between the clients",
    "local_variance": "the scatter of local gradients",
}


@dataclass(frozen=True)
class BudgetValue:
    """What the budget of a group is worth to the plan; changes are relative.

    Attributes:
        group: its name.
        objective_gain: fall of the objective when its epsilon is 10% larger.
        noise_gain: fall of the noise of the mean update then.
        cost: fall of the objective if its epsilon were that of the loosest group.
        noise_cost: fall of the noise of the mean update then.
    """

    group: str
    objective_gain: float
    noise_gain: float
    cost: float
    noise_cost: float


def budget_values(plan: Plan) -> list[BudgetValue]:
    """What each group's budget is worth; empty for plans without an objective or of many groups.

    Groups whose budget is a risk are left out, since their epsilon is not a budget of its own.
    """
    spec = plan.spec
    if spec.unit != "client" or not is_objective(spec.planning.ratios):
        return []
    if len(spec.groups) > MOST_GROUPS:
        return []
    base = _found(spec)
    loosest = max(group.epsilon for group in spec.groups)
    values = []
    for m, group in enumerate(spec.groups):
        if group.risk is not None:
            continue
        try:
            more = _found(_with_epsilon(spec, m, group.epsilon * STEP))
            free = base if group.epsilon == loosest else _found(_with_epsilon(spec, m, loosest))
        except PrivplanError:  # a larger budget may ask for less noise than can be certified
            continue
        values.append(
            BudgetValue(
                group.name,
                objective_gain=1 - more[0] / base[0],
                noise_gain=1 - more[1] / base[1],
                cost=1 - free[0] / base[0],
                noise_cost=1 - free[1] / base[1],
            )
        )
    return values


def reasons(plan: Plan) -> list[str]:
    """The plan in sentences, most important first."""
    lines = []
    values = budget_values(plan)
    if values:
        lines += [*_terms(plan), *_who_decides(plan, values), *_worth(plan, values)]
    return [*lines, *_bound(plan), *unspent_lines(plan)]


def _found(spec: Spec) -> tuple[float, float]:
    """Objective and noise multiplier of the mean of a spec's plan, before certification."""
    problem = problem_of(spec)
    found = allocate(task_of(spec, problem))
    value = sum(objective_of(spec).terms(spec, problem, found).values())
    return value, provisioned_noise_multiplier(spec, found)


def _with_epsilon(spec: Spec, index: int, epsilon: float) -> Spec:
    data = spec.model_dump(mode="json")
    data["groups"][index]["epsilon"] = epsilon
    return Spec.parse(data)


def _terms(plan: Plan) -> list[str]:
    total = sum(plan.bound.values())
    named = [(value / total, _TERMS[name]) for name, value in plan.bound.items() if name in _TERMS]
    if len(named) < 2 or total <= 0:
        return []
    parts = [f"{share:.0%} {name}" for share, name in sorted(named, reverse=True)]
    return [f"The expected error of a round's step is {', '.join(parts)}."]


def _who_decides(plan: Plan, values: list[BudgetValue]) -> list[str]:
    if len(plan.groups) == 1:
        return []
    most = max(values, key=lambda one: one.objective_gain)
    group = plan.group(most.group)
    share = group.clients / plan.spec.population
    lines = [
        f"{most.group} decides: 10% more of its budget would lower the objective by "
        f"{most.objective_gain:.1%}, more than that of any other group; it has {share:.0%} of the "
        f"clients and {group.weight:.0%} of the weight."
    ]
    for one in sorted(values, key=lambda value: value.cost, reverse=True):
        if one.cost > 1e-3:
            lines.append(
                f"{one.group} costs the others: with the budget of the loosest group instead of "
                f"{plan.group(one.group).epsilon:g}, the objective would be {one.cost:.1%} lower"
                f" and the noise {_change(one.noise_cost)}."
            )
    return lines


def _worth(plan: Plan, values: list[BudgetValue]) -> list[str]:
    lines = []
    for one in values:
        step = (STEP - 1) * plan.group(one.group).epsilon
        if one.objective_gain < 1e-4:
            lines.append(f"{one.group}: more budget buys nothing; it does not spend what it has.")
            continue
        lines.append(
            f"{one.group}: {step:.3g} more epsilon lowers the objective by "
            f"{one.objective_gain:.1%} ({one.objective_gain / step:.1%} per unit); the noise is "
            f"then {_change(one.noise_gain)}."
        )
    return lines


def _change(fall: float) -> str:
    return f"{abs(fall):.1%} {'lower' if fall >= 0 else 'higher'}"


def _bound(plan: Plan) -> list[str]:
    """What the distance from the dual bound means, where it is not small."""
    found = re.search(r"within (\S+) of the dual bound", plan.status)
    gap = float(found.group(1)) if found else 0.0
    if not math.isfinite(gap) or gap <= _LOOSE:
        return []
    why = (
        "the bound lets every group choose its cohort at one price, which is below what any plan "
        "reaches where doubling a small cohort more than doubles its precision"
    )
    return [
        f"No plan within these limits can have an objective more than {gap:.0%} lower. That is how "
        f"far the proof goes, not what is known to be lost: {why}."
    ]
