"""What attackers may achieve under a plan, and budgets that are stated as such a risk.

All risks are upper bounds from the trade-off curve of the composed history of a group,
which is what the certificate composes: membership advantage, true positives at a
false-positive rate, and the chance to reconstruct data that could be guessed with a
baseline chance before, which is the true-positive rate at that chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from privplan.accounting.release import History
from privplan.accounting.tradeoff import (
    TradeOff,
    limit_of,
    profile_of,
    tightest_budget,
    tradeoff,
)
from privplan.errors import InfeasibleError, UnsupportedError
from privplan.plan import Plan
from privplan.spec.spec import Spec

# Relative slack of a risk below which its budget is not stated anew.
_SLACK = 3e-3
# How often budgets are stated anew, at most; every statement implies the risks.
STATEMENTS = 4


@dataclass(frozen=True)
class GroupRisk:
    """Upper bounds on attacks on a group's clients (or their records).

    Attributes:
        group: name of the group.
        stated_risk: the risk of the spec in words; None where the budget is an epsilon.
        curve: advantage, mu and true-positive rates at ``LEVELS``.
    """

    group: str
    stated_risk: str | None
    curve: TradeOff


def risks_of(
    plan: Plan, spent: Mapping[str, tuple[History, float]] | None = None
) -> list[GroupRisk]:
    """Upper bounds on what attackers achieve, one entry per group.

    Args:
        plan: the plan.
        spent: the releases of a run and the epsilon that they spent, by group; those
            that
            are planned, when left out.
    """
    risks: list[GroupRisk] = []
    for group, stated in zip(plan.groups, plan.spec.groups, strict=True):
        if spent:
            history, epsilon = spent[group.name]
        else:
            rows = [row for row in plan.certificate if row.group == group.name]
            history = plan.history(group)
            epsilon = max(row.epsilon_upper for row in rows if row.guarantee)
        profile = profile_of(history, plan.spec.relation)
        words = None if stated.risk is None else str(stated.risk)
        curve = tradeoff(profile, group.delta, epsilon)
        risks.append(GroupRisk(group.name, words, curve))
    return risks


def restated(plan: Plan) -> Spec | None:
    """The plan's spec with weaker budgets that imply the same risks.

    The budget of a risk is the tangent of a Gaussian curve; where the plan's curve is
    another one, its own tangent allows less noise. None when every risk is used up.
    """
    is_changed = False
    groups = []
    for group, stated in zip(plan.groups, plan.spec.groups, strict=True):
        data = stated.model_dump(mode="json")
        groups.append(data)
        if stated.risk is None:
            continue
        point = stated.risk.point
        try:
            profile = profile_of(plan.history(group), plan.spec.relation)
        except UnsupportedError:
            continue
        risk, (epsilon, delta) = tightest_budget(point, profile)
        if risk < limit_of(point) * (1 - _SLACK) and 0 < delta < 1:
            is_changed |= abs(epsilon / group.epsilon - 1) > _SLACK
            data |= {"epsilon": epsilon, "delta": delta}
    if not is_changed:
        return None
    return Spec.parse({**plan.spec.model_dump(mode="json"), "groups": groups})


def of_risk(error: InfeasibleError, spec: Spec) -> InfeasibleError:
    """The error, naming the risk where it names an epsilon that states one."""
    text = str(error)
    for group in spec.groups:
        place = f"groups.{group.name}.epsilon: "
        if group.risk is not None and text.startswith(place):
            stated = group.risk.model_dump(exclude_none=True).items()
            words = ", ".join(f"{name} {value!r}" for name, value in stated)
            return InfeasibleError(
                f"groups.{group.name}.risk: {words} cannot be met, which as a budget is "
                f"epsilon {group.epsilon:g} at delta {spec.delta_of(group):.3g}: "
                f"{text.removeprefix(place)}"
            )
    return error
