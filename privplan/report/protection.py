"""What a budget protects from: an attacker's guesses, in words and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from privplan.accounting.accountant import at_most
from privplan.accounting.calibrate import PLD
from privplan.errors import UnsupportedError
from privplan.planning.risks import GroupRisk, risks_of
from privplan.report.numbers import rounded_up
from privplan.report.table import Cell, Table, table_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from privplan.accounting.release import History
    from privplan.plan import GroupPlan, Plan

GUESSED = {
    "add_remove": "took part",
    "replace_one": "has the data it has or others",
    "zero_out": "contributed or sent zeros",
}
"""What an attacker guesses of somebody, by the neighbouring relation."""

BLIND = 50.0  # right guesses of 100 without the release
_ONE_PERCENT = 1  # the place of this false-positive rate in ``LEVELS``


def risks_where_known(
    plan: Plan, spent: Mapping[str, tuple[History, float]] | None = None
) -> list[GroupRisk]:
    """What the best attacker may reach; empty where it cannot be computed.

    Args:
        plan: whose planned releases count where nothing was spent.
        spent: the releases of a run and the epsilon that they spent, by group.
    """
    if plan.guarantee != PLD:
        return []
    try:
        return risks_of(plan, spent)
    except UnsupportedError:
        return []


def right_guesses(risk: GroupRisk) -> float:
    """How many guesses of 100 are right at most.

    An attack of advantage a is right with probability ``(1 + a) / 2`` at even odds.
    """
    return BLIND * (1 + risk.curve.advantage)


def guess_lines(plan: Plan) -> list[str]:
    """How often an attacker is right at most, in the least protected group.

    A sentence; none where it is not known.
    """
    risks = risks_where_known(plan)
    if not risks:
        return []
    worst = max(risks, key=right_guesses)
    whom = plan.whom(plan.group(worst.group))
    return [
        f"whoever guesses whether a certain {whom} of {worst.group} "
        f"{GUESSED[str(plan.spec.relation)]} is right at most "
        f"{rounded_up(right_guesses(worst))} times of 100, instead of {BLIND:g}"
    ]


def promise_to(
    plan: Plan, group: GroupPlan, epsilon: float, right: float | None
) -> str:
    """What a group is promised and what that means, as a sentence.

    Args:
        plan: that promises it.
        group: of the plan.
        epsilon: upper bound on what the group spends.
        right: guesses of 100 that are right at most; None where it is unknown.
    """
    whom = plan.whom(group)
    promise = (
        f"each {whom} of {group.name} is protected by epsilon at most "
        f"{at_most(epsilon)}, of a budget of {group.epsilon:g}, at delta "
        f"{group.delta:.3g}"
    )
    if right is None:
        return f"{promise}; what an attacker reaches is not known"
    return (
        f"{promise}: whoever sees all releases and guesses whether a certain {whom} "
        f"{GUESSED[str(plan.spec.relation)]} is right at most {rounded_up(right)} times "
        f"of 100 instead of {BLIND:g}"
    )


def discovered(risk: GroupRisk) -> float:
    """How many of 100 who took part are found, at one false alarm in 100 others."""
    return 100 * risk.curve.true_positives[_ONE_PERCENT]


def attack_table(plan: Plan, risks: Sequence[GroupRisk], caption: str) -> Table:
    """What no attack on one unit exceeds, by group.

    Args:
        plan: that promises the budgets.
        risks: of its groups.
        caption: from which releases they follow.
    """
    planned = {
        row.group: row.epsilon_upper for row in plan.certificate if row.guarantee
    }
    cells: dict[str, Cell] = {
        "group": "group",
        "clients": lambda risk: plan.group(risk.group).clients,
        "budget epsilon": lambda risk: f"{plan.group(risk.group).epsilon:g}",
        "planned epsilon": lambda risk: rounded_up(planned[risk.group], 2),
        "right guesses of 100 (blind: 50)": lambda risk: rounded_up(
            right_guesses(risk)
        ),
        "advantage (blind: 0)": lambda risk: rounded_up(risk.curve.advantage, 3),
        "found of 100 (blind: 1)": lambda risk: rounded_up(discovered(risk)),
    }
    caption = (
        f"Upper bounds by pld from {caption}. Found: of 100 who took part, at one "
        "false alarm in 100 who did not. Advantage: share of true alarms less share of "
        "false alarms."
    )
    return table_of(f"No attack on one {plan.whom()} exceeds", risks, cells, caption)
