"""Budgets of groups whose noise multiplier is fixed and whose budget is a risk.

What such a group releases is known before anything is planned, so its budget is read from its own
trade-off curve. The budget of a risk alone (``privplan.spec.risk``) is the tangent of a Gaussian
curve, which may refuse noise that keeps the risk.
"""

from __future__ import annotations

import math
from typing import Any

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Relation
from privplan.accounting.risk import limit_of, tightest_budget
from privplan.accounting.search import largest_affordable
from privplan.accounting.target import MOST_ROUNDS, PLD
from privplan.accounting.tradeoff import profile_of
from privplan.errors import UnsupportedError
from privplan.spec.risk import Risk

_TRIES = 3
"""Rounds below the largest that keep a risk at which its budget is certified at the latest."""


def names_of(data: dict[str, Any]) -> frozenset[Any]:
    """Names of the groups with a noise multiplier and a risk, and without an epsilon.

    Args:
        data: plain data of a spec, before risks are stated as budgets.
    """
    groups = data.get("groups")
    if not isinstance(groups, list | tuple):
        return frozenset()
    asked = [
        one
        for one in groups
        if isinstance(one, dict) and one.get("risk") is not None and "epsilon" not in one
    ]
    names = [one.get("name") for one in asked if one.get("noise_multiplier") is not None]
    return frozenset(name for name in names if isinstance(name, str))


def own_budget(risk: Risk, history: History, relation: Relation) -> tuple[float, float] | None:
    """The (epsilon, delta) that a history keeps and that implies a risk.

    Args:
        risk: the risk.
        history: all that a client of the group takes part in.
        relation: which data sets are neighbours.

    Returns:
        None where the history exceeds the risk, or has no composed privacy loss.
    """
    try:
        found, (epsilon, delta) = tightest_budget(risk.point, profile_of(history, relation))
    except UnsupportedError:
        return None
    if found > limit_of(risk.point) or not (0 < delta < 1 and epsilon > 0):
        return None
    kept = accountant(PLD).epsilon(history, delta, relation).upper <= epsilon
    return (epsilon, delta) if kept else None


def most_rounds(risk: Risk, one_round: History, relation: Relation) -> int | None:
    """The most rounds that keep a risk; None where one round does not.

    Args:
        risk: the risk.
        one_round: what a client of the group takes part in in one round.
        relation: which data sets are neighbours.
    """

    def cost(log_rounds: float) -> float:
        history = one_round * round(math.exp(log_rounds))
        try:
            return tightest_budget(risk.point, profile_of(history, relation))[0]
        except UnsupportedError:
            return math.inf

    found = largest_affordable(
        cost,
        limit_of(risk.point),
        start=0.0,
        low=0.0,
        high=math.log(MOST_ROUNDS),
        tolerance=1e-4,
        integer=True,
    )
    if found.feasible is None:
        return None
    most = round(math.exp(found.feasible))
    tried = range(most, max(most - _TRIES, 1) - 1, -1)
    return next((n for n in tried if own_budget(risk, one_round * n, relation) is not None), None)
