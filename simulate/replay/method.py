"""The supported algorithms, as the few properties in which they differ."""

from __future__ import annotations

from dataclasses import dataclass

from privplan.plan import GroupPlan, Plan
from privplan.planning.weights import RULES


@dataclass(frozen=True)
class Method:
    """An algorithm that can be replayed.

    Attributes:
        release: ``joint`` (one sum of all groups), ``per_group`` or ``per_client``.
        weight: rule of the factor on each release.
        noisy: whether updates are clipped and noise is added.
        scaled: whether updates are multiplied by the group's scale.
        top_k: whether each released sum is sparsified.
    """

    release: str
    weight: str = "mean"
    noisy: bool = True
    scaled: bool = False
    top_k: bool = False


def method_of(plan: Plan, algorithm: str, aggregation: str) -> Method | None:
    """The method of an algorithm under the executed plan; None when it is not supported.

    Args:
        plan: the executed plan.
        algorithm: name of the algorithm.
        aggregation: ``paper`` or ``mean``, the scaling of the GDPFed family.
    """
    rule = "literal" if aggregation == "paper" else "normalised"
    planned = Method("joint", scaled=True)
    if plan.release == "per_group":
        planned = Method("per_group", "normalised", scaled=True, top_k=True)
    methods = {
        "FedAvg": Method("joint", noisy=False),
        "DP-FedAvg": Method("joint"),
        "GDPFed": Method("per_group", rule),
        "GDPFed-op": Method("per_group", rule),
        "GDPFed+": Method("per_group", rule, top_k=True),
        "planned": planned,
        "DPFedAvg": Method("per_client", "client"),
    }
    return methods.get(algorithm)


def groups_in_round(plan: Plan, round_: int) -> list[GroupPlan]:
    """The plan's groups with the sampling ratio, cohort and noise multiplier of a round."""
    groups = []
    for group in plan.groups:
        ratio, sigma = plan.at_round(group, round_)
        cohort = group.expected_cohort if group.segments is None else ratio * group.clients
        changes = {"sampling_ratio": ratio, "expected_cohort": cohort, "noise_multiplier": sigma}
        groups.append(group.model_copy(update=changes))
    return groups


def weight(plan: Plan, group: GroupPlan, rule: str) -> float:
    """Factor on the release that contains a group, as in ``Method.weight``."""
    return group.weight / group.clients if rule == "client" else RULES[rule](group, plan)
