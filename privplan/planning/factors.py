"""Factors that turn noisy sums into the weighted mean, by the aggregator's name.

``rule_of`` gives the factor on each group's sum in a round by the name of the
aggregator in a run's record. The factors depend on expected cohorts only, never on the
clients who took part.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from privplan.plan import GroupPlan, Plan

# (group as planned for a round, plan) -> factor on the sum that contains the group.
Rule = Callable[[GroupPlan, Plan], float]


def literal(group: GroupPlan, plan: Plan) -> float:
    """w_m / (q n), with q n the expected cohort.

    Source: GDPFed+, Algorithm 1 and Appendix B.2.
    """
    return group.weight / sum(planned.expected_cohort for planned in plan.groups)


def normalised(group: GroupPlan, plan: Plan) -> float:
    """w_m / (r_m s_m): the weights on the groups' mean updates add up to 1."""
    return group.weight / (group.expected_cohort * group.scale)


def mean(group: GroupPlan, plan: Plan) -> float:
    """1 / sum_m s_m r_m, one factor for all groups."""
    return 1.0 / sum(planned.scale * planned.expected_cohort for planned in plan.groups)


def by_epsilon(group: GroupPlan, plan: Plan) -> float:
    """epsilon_m / sum_j epsilon_j r_j (WeiAvg)."""
    total = sum(planned.epsilon * planned.expected_cohort for planned in plan.groups)
    return group.epsilon / total


def through_hypernetwork(group: GroupPlan, plan: Plan) -> float:
    """1 / sum_m r_m, with which a hypernetwork's derivatives are added (pFedHN)."""
    return 1 / sum(planned.expected_cohort for planned in plan.groups)


def of_client(group: GroupPlan, plan: Plan) -> float:
    """w_m / n_m: what an update counts that its client sends by itself."""
    return group.weight / group.clients


# Rules of sums of clipped updates by their name in a run's record.
RULES: MappingProxyType[str, Rule] = MappingProxyType(
    {"literal": literal, "normalised": normalised, "mean": mean}
)
_OF_SUMS: dict[str, Rule] = {
    **RULES,
    "by epsilon": by_epsilon,
    "through the hypernetwork": through_hypernetwork,
}
_OF_CLIENTS: dict[str, Rule] = dict.fromkeys(
    ("by records", "by epsilon", "by estimated noise", "by noise", "by norm"), of_client
)


def rule_of(aggregator: str, plan: Plan) -> Rule | None:
    """The rule of an aggregator by its name in a record; None for an unknown name."""
    inner = aggregator.rpartition(", ")[2].removeprefix("unshifted ")
    rules = _OF_CLIENTS if plan.spec.unit == "record" else _OF_SUMS
    return rules.get(inner)
