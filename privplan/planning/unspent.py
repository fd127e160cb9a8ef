"""Budgets that a plan leaves unspent, and why."""

from __future__ import annotations

import math

from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.release import Relation
from privplan.accounting.target import MOST_ROUNDS, least_certified
from privplan.errors import TooLittleNoiseError
from privplan.plan import GroupPlan, Plan
from privplan.planning.allocate import NEGLIGIBLE
from privplan.planning.budget_nodes import covered_ratio
from privplan.planning.group_noise import GUARANTEE, history_of
from privplan.planning.noise_model import CHEAPER, cheaper
from privplan.planning.problem import problem_of

_SAME = 1.001
_AT_FLOOR = 1e-3
"""Relative distance of a weight from its least value that rounding of noise may leave."""
ENOUGH = 0.9
"""Share of a budget below which a plan says why the rest stays unspent."""


def unspent_lines(plan: Plan) -> list[str]:
    """One line per group that spends less than 90% of its epsilon, with the reason.

    With fixed noise the epsilon that states a risk is not a budget of its own.
    """
    lines = []
    for group, asked in zip(plan.groups, plan.spec.groups, strict=True):
        if asked.risk is not None and asked.noise_multiplier is not None:
            continue
        spent = _certified(plan, group.name, guarantee=True)
        if spent < ENOUGH * group.epsilon:
            lines.append(
                f"groups.{group.name}.epsilon: {spent:.4g} of {group.epsilon:.4g} is spent, "
                f"{1 - spent / group.epsilon:.0%} is left: {_reason(plan, group)}"
            )
    return lines


def _reason(plan: Plan, group: GroupPlan) -> str:
    planning, asked, rounds = plan.spec.planning, _asked(plan, group.name), plan.spec.rounds
    if asked is not None:
        most = f", and more than {MOST_ROUNDS} rounds are not planned"
        return f"its noise multiplier is fixed at {asked:g}{most * (rounds == MOST_ROUNDS)}"
    if planning.accountant != "pld":
        own = _certified(plan, group.name, guarantee=False, accountant=planning.accountant)
        as_published = planning.calibration == "published"
        tables = ", as the published tables are" if as_published else ""
        if own >= ENOUGH * group.epsilon or own == 0:
            return (
                f"the noise is calibrated by {planning.accountant}{tables}, whose bound is looser "
                "than pld's; planning.accountant: pld spends it"
            )
    less = _with_less(plan, group)
    if less > group.epsilon:
        if group.sampling_ratio <= covered_ratio(
            group.delta, plan.spec.sampling.law.rounds_of_client(rounds)
        ):
            return (
                f"delta {group.delta:.3g} covers the chance that a client ever takes part, so any "
                "noise keeps the budget, and less than this is not certified"
            )
        if _at_least(plan, group) or math.isinf(less):
            return f"less noise than {group.noise_multiplier:.4g} cannot be certified"
        return "no smaller noise multiplier keeps the budget at its sampling ratio"
    if _at_least(plan, group):
        return f"less noise than {group.noise_multiplier:.4g} is not planned"
    share = group.clients / plan.spec.population
    if (
        cheaper(planning.accountant, group.delta) != planning.accountant
        and group.weight < NEGLIGIBLE * share
        and _certified(plan, group.name, guarantee=False, accountant=CHEAPER)
        >= ENOUGH * group.epsilon
    ):
        return (
            f"its weight of {group.weight:.3g} is negligible, so its noise is calibrated by "
            f"{CHEAPER}, which is faster than {GUARANTEE} and looser"
        )
    if plan.release == "joint" and group.scale * group.noise_multiplier > 0:
        if "weights" not in planning.free or plan.spec.weighting != "optimal":
            return (
                f"planning.weights: {plan.spec.weighting} gives it a weight of {group.weight:.3g}, "
                "and in one sum of all groups less noise means more weight"
            )
        floors = _floors_of_others(plan, group.name)
        if floors and (group.weight <= share or not plan.bound.get("bias")):
            leave = "leaves" if len(floors) == 1 else "leave"
            return (
                f"{' and '.join(floors)} {leave} it a weight of {group.weight:.3g} for {share:.3g} "
                "of the clients, and in one sum of all groups less noise would mean more weight"
            )
        if group.weight < share * (1 - _AT_FLOOR):
            return (
                f"the search for ratios and weights ended at a weight of {group.weight:.3g} for "
                f"{share:.3g} of the clients, where less noise would keep the budget"
            )
        return (
            f"it has a weight of {group.weight:.3g} for {share:.3g} of the clients, and in one sum "
            "of all groups less noise would mean more weight, which costs more by bias "
            "(planning.heterogeneity) than it gains by noise"
        )
    return "no smaller noise multiplier keeps the budget under this sampling law"


def _at_least(plan: Plan, group: GroupPlan) -> bool:
    """Whether a group has the least noise multiplier that is planned."""
    least = least_certified(plan.spec.sampling, Relation(plan.spec.relation))
    return group.noise_multiplier <= _SAME * least


def _floors_of_others(plan: Plan, name: str) -> list[str]:
    """The least weights of other groups that are not exceeded, as fields with their values."""
    return [
        f"groups.{asked.name}.min_weight: {asked.min_weight:g}"
        for asked, group in zip(plan.spec.groups, plan.groups, strict=True)
        if asked.name != name
        and asked.min_weight
        and group.weight <= asked.min_weight * (1 + _AT_FLOOR)
    ]


def _with_less(plan: Plan, group: GroupPlan) -> float:
    """Certified epsilon with slightly less noise; inf where there is none, 0 where not asked.

    Epsilon falls by steps where delta covers almost all of the loss, as for rare participation.
    """
    if plan.spec.unit != "client" or plan.spec.tuning is not None or group.segments:
        return 0.0
    problem = problem_of(plan.spec)
    less = history_of(problem, group.sampling_ratio, group.noise_multiplier / _SAME)
    try:
        return by_name(GUARANTEE).epsilon(less, group.delta, problem.relation).upper
    except TooLittleNoiseError:
        return math.inf


def _asked(plan: Plan, name: str) -> float | None:
    """The group's fixed noise multiplier in the spec."""
    for group in plan.spec.groups:
        if group.name == name:
            return group.noise_multiplier
    return None


def _certified(plan: Plan, name: str, *, guarantee: bool, accountant: str | None = None) -> float:
    """Largest upper bound among the group's rows; 0 without rows."""
    found = [
        row.epsilon_upper
        for row in plan.certificate
        if row.group == name and (row.guarantee if guarantee else row.accountant == accountant)
    ]
    return max(found, default=0.0)
