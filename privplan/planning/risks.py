"""What attackers may achieve under a plan, and budgets that are stated as such a risk.

All risks are upper bounds from the trade-off curve of the composed history of a group, which is
what the certificate composes: membership advantage, true positives at a false-positive rate, and
the chance to reconstruct data that could be guessed with a baseline chance before.
"""

from __future__ import annotations

from dataclasses import dataclass

from privplan.accounting.risk import limit_of, tightest_budget
from privplan.accounting.tradeoff import LEVELS, TradeOff, profile_of, tradeoff
from privplan.errors import InfeasibleError, UnsupportedError
from privplan.plan import Plan
from privplan.spec.spec import Spec

_SLACK = 3e-3
"""Relative slack of a risk below which its budget is not stated anew."""
STATEMENTS = 4
"""How often budgets are stated anew, at most; every statement implies the risks."""


@dataclass(frozen=True)
class GroupRisk:
    """Upper bounds on attacks on a group's clients (or their records).

    Attributes:
        group: its name.
        asked: the risk of the spec in words; None where the budget is an epsilon.
        curve: advantage, mu and true-positive rates at ``LEVELS``; a true-positive rate is also
            the chance to reconstruct what could be guessed with that chance before.
    """

    group: str
    asked: str | None
    curve: TradeOff


def risks_of(plan: Plan) -> list[GroupRisk]:
    """Upper bounds on what attackers achieve, one entry per group.

    Raises:
        UnsupportedError: when a history has no composed privacy loss.
    """
    found = []
    for group, asked in zip(plan.groups, plan.spec.groups, strict=True):
        profile = profile_of(plan.history(group), plan.spec.relation)
        epsilon = max(
            row.epsilon_upper
            for row in plan.certificate
            if row.guarantee and row.group == group.name
        )
        words = None if asked.risk is None else str(asked.risk)
        found.append(GroupRisk(group.name, words, tradeoff(profile, group.delta, epsilon)))
    return found


def risk_rows(risks: list[GroupRisk]) -> list[dict[str, object]]:
    """The risks as plain data, one mapping per group."""
    return [
        {"group": one.group, **({"asked": one.asked} if one.asked else {}), **one.curve.to_dict()}
        for one in risks
    ]


def restated(plan: Plan) -> Spec | None:
    """The plan's spec with weaker budgets that imply the same risks, by the plan's own curves.

    The budget of a risk is the tangent of a Gaussian curve; where the plan's curve is another one,
    its own tangent allows less noise. None when every risk is used up.
    """
    changed = False
    groups = []
    for group, asked in zip(plan.groups, plan.spec.groups, strict=True):
        data = asked.model_dump(mode="json")
        groups.append(data)
        if asked.risk is None:
            continue
        point = asked.risk.point
        try:
            profile = profile_of(plan.history(group), plan.spec.relation)
        except UnsupportedError:
            continue
        found, (epsilon, delta) = tightest_budget(point, profile)
        if found < limit_of(point) * (1 - _SLACK) and 0 < delta < 1:
            changed |= abs(epsilon / group.epsilon - 1) > _SLACK
            data |= {"epsilon": epsilon, "delta": delta}
    if not changed:
        return None
    return Spec.parse({**plan.spec.model_dump(mode="json"), "groups": groups})


def of_risk(error: InfeasibleError, spec: Spec) -> InfeasibleError:
    """The error, naming the risk of the spec where it names an epsilon that states a risk."""
    text = str(error)
    for group in spec.groups:
        where = f"groups.{group.name}.epsilon: "
        if group.risk is not None and text.startswith(where):
            given = group.risk.model_dump(exclude_none=True).items()
            words = ", ".join(f"{name} {value!r}" for name, value in given)
            return InfeasibleError(
                f"groups.{group.name}.risk: {words} cannot be met, which as a budget is epsilon "
                f"{group.epsilon:g} at delta {spec.delta_of(group):.3g}: {text.removeprefix(where)}"
            )
    return error


__all__ = ["LEVELS", "STATEMENTS", "GroupRisk", "of_risk", "restated", "risk_rows", "risks_of"]
