"""Why a plan is as it is: who decides, what groups cost, what budgets buy.

Every number comes from plans that are solved with one budget changed, so explaining
takes about two searches per group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from privplan.errors import PrivplanError
from privplan.plan import Plan
from privplan.planning.choices import task_of
from privplan.planning.error import Allocation
from privplan.planning.objectives import objective_of
from privplan.planning.problem import problem_of, provisioned_noise_multiplier
from privplan.planning.search import allocate, estimated
from privplan.planning.task import Task
from privplan.planning.unspent import MOST_GROUPS, unspent_lines
from privplan.spec.planning import is_objective
from privplan.spec.spec import Spec

# Factor on a budget for what more of it buys.
STEP = 1.1
# Falls of the objective that are smaller are not worth a number: a group that costs the
# others a tenth of a percent, and a budget that buys a hundredth.
_SMALLEST_COST = 1e-3
_SMALLEST_GAIN = 1e-4
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
        group: name of the group.
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


class _Outcome(NamedTuple):
    """A spec's plan before certification: objective, and noise of the mean update."""

    objective: float
    noise: float


def budget_values(plan: Plan, more_by: float | None = None) -> list[BudgetValue]:
    """What each group's budget is worth.

    Empty for plans without an objective or of many groups. Groups whose budget is a
    risk are left out, since their epsilon is not a budget of its own.

    Args:
        plan: the plan.
        more_by: gains are those of so much more epsilon instead of 10%, of curves that
            are within 1e-3 of what is calibrated.
    """
    spec = plan.spec
    many = len(spec.groups) > MOST_GROUPS
    if many or spec.unit != "client" or not is_objective(spec.planning.ratios):
        return []
    search = allocate if more_by is None else estimated
    base = _outcome(spec, search)
    loosest = max(group.epsilon for group in spec.groups)
    values: list[BudgetValue] = []
    for index, group in enumerate(spec.groups):
        if group.risk is not None:
            continue
        if more_by is None:
            larger = group.epsilon * STEP
        else:
            larger = group.epsilon + more_by
        try:
            gain = _outcome(_with_epsilon(spec, index, larger), search)
            free = base
            if group.epsilon != loosest:
                free = _outcome(_with_epsilon(spec, index, loosest), search)
        except PrivplanError:
            # A larger budget may ask for less noise than can be certified.
            continue
        values.append(
            BudgetValue(
                group.name,
                objective_gain=1 - gain.objective / base.objective,
                noise_gain=1 - gain.noise / base.noise,
                cost=1 - free.objective / base.objective,
                noise_cost=1 - free.noise / base.noise,
            )
        )
    return values


def _outcome(spec: Spec, search: Callable[[Task], Allocation]) -> _Outcome:
    """What a search finds for a spec."""
    problem = problem_of(spec)
    allocation = search(replace(task_of(spec, problem), slack=0.0))
    terms = objective_of(spec).terms(spec, problem, allocation)
    noise = provisioned_noise_multiplier(spec, allocation)
    return _Outcome(sum(terms.values()), noise)


def _with_epsilon(spec: Spec, index: int, epsilon: float) -> Spec:
    """The spec in which one group has another epsilon."""
    data = spec.model_dump(mode="json")
    data["groups"][index]["epsilon"] = epsilon
    return Spec.parse(data)


def reasons(plan: Plan) -> list[str]:
    """The plan in sentences, most important first."""
    values = budget_values(plan)
    if not values:
        return unspent_lines(plan)
    lines = _term_lines(plan)
    if len(plan.groups) > 1:
        lines.append(_deciding_line(plan, values))
        lines += _cost_lines(plan, values)
    lines += [_gain_line(plan, value) for value in values]
    return [*lines, *unspent_lines(plan)]


def _term_lines(plan: Plan) -> list[str]:
    """The shares of the error's terms, largest first; nothing where it has one only."""
    total = sum(plan.bound.values())
    shares: list[tuple[float, str]] = []
    for name, value in plan.bound.items():
        if name in _TERMS:
            shares.append((value / total, _TERMS[name]))
    if len(shares) < 2:
        return []
    phrases = [f"{share:.0%} {name}" for share, name in sorted(shares, reverse=True)]
    return [f"The expected error of a round's step is {', '.join(phrases)}."]


def _deciding_line(plan: Plan, values: list[BudgetValue]) -> str:
    """The group whose budget is worth most."""
    deciding = max(values, key=lambda value: value.objective_gain)
    group = plan.group(deciding.group)
    return (
        f"{deciding.group} decides: 10% more of its budget would lower the objective by "
        f"{deciding.objective_gain:.1%}, more than that of any other group; it has "
        f"{group.clients / plan.spec.population:.0%} of the clients and "
        f"{group.weight:.0%} of the weight."
    )


def _cost_lines(plan: Plan, values: list[BudgetValue]) -> list[str]:
    """What strict groups cost the others, the dearest first."""
    lines: list[str] = []
    for value in sorted(values, key=lambda value: value.cost, reverse=True):
        if value.cost <= _SMALLEST_COST:
            continue
        epsilon = plan.group(value.group).epsilon
        lines.append(
            f"{value.group} costs the others: with the budget of the loosest group instead "
            f"of {epsilon:g}, the objective would be {value.cost:.1%} lower and the noise "
            f"{_change(value.noise_cost)}."
        )
    return lines


def _gain_line(plan: Plan, value: BudgetValue) -> str:
    """What more of a group's budget buys."""
    if value.objective_gain < _SMALLEST_GAIN:
        return f"{value.group}: more budget lowers the objective by less than 0.01%."
    step = (STEP - 1) * plan.group(value.group).epsilon
    return (
        f"{value.group}: {step:.3g} more epsilon lowers the objective by "
        f"{value.objective_gain:.1%}; the noise is then {_change(value.noise_gain)}."
    )


def _change(fall: float) -> str:
    """How much a number falls or rises, in words."""
    direction = "lower" if fall >= 0 else "higher"
    return f"{abs(fall):.1%} {direction}"
