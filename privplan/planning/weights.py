"""Weights of the groups by rule, and factors that turn noisy sums into the weighted mean.

``weights`` gives w_m by the rule of a spec; ``rule_of`` gives the factor on each group's sum in a
round by the name of the aggregator in a run's record. The factors depend on expected cohorts only,
never on the clients who took part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from privplan.errors import InputError
from privplan.plan import GroupPlan, Plan

Rule = Callable[[GroupPlan, Plan], float]
"""(group as planned for a round, plan) -> factor on the sum that contains the group."""


def literal(group: GroupPlan, plan: Plan) -> float:
    """w_m / (q n), with q n the expected cohort (GDPFed+, Algorithm 1 and Appendix B.2)."""
    return group.weight / sum(one.expected_cohort for one in plan.groups)


def normalised(group: GroupPlan, plan: Plan) -> float:
    """w_m / (r_m s_m): the weights on the groups' mean updates add up to 1."""
    return group.weight / (group.expected_cohort * group.scale)


def mean(group: GroupPlan, plan: Plan) -> float:
    """1 / sum_m s_m r_m, one factor for all groups."""
    return 1.0 / sum(one.scale * one.expected_cohort for one in plan.groups)


RULES: MappingProxyType[str, Rule] = MappingProxyType(
    {"literal": literal, "normalised": normalised, "mean": mean}
)
"""Rules of sums of clipped updates by their name in a run's record."""


def _by_epsilon(group: GroupPlan, plan: Plan) -> float:
    """epsilon_m / sum_j epsilon_j r_j (WeiAvg)."""
    return group.epsilon / sum(one.epsilon * one.expected_cohort for one in plan.groups)


def _one_cohort(group: GroupPlan, plan: Plan) -> float:
    """1 / sum_m r_m, with which a hypernetwork's derivatives are added (pFedHN)."""
    return 1.0 / sum(one.expected_cohort for one in plan.groups)


def _per_client(group: GroupPlan, plan: Plan) -> float:
    """w_m / n_m: what an update counts that its client sends by itself."""
    return group.weight / group.clients


_OF_SUMS: dict[str, Rule] = {
    **RULES,
    "by epsilon": _by_epsilon,
    "through the hypernetwork": _one_cohort,
}
_OF_CLIENTS: dict[str, Rule] = dict.fromkeys(
    ("by records", "by epsilon", "by estimated noise", "by noise", "by norm"), _per_client
)


def rule_of(aggregator: str, plan: Plan) -> Rule | None:
    """The rule of an aggregator by its name in a run's record; None where the name is not known.

    Args:
        aggregator: the name; those of aggregators around it, which do not change its factors,
            stand before a comma, or are ``unshifted``.
        plan: the executed plan; clients send by themselves where it protects records.
    """
    inner = aggregator.rpartition(", ")[2].removeprefix("unshifted ")
    return (_OF_CLIENTS if plan.spec.unit == "record" else _OF_SUMS).get(inner)


Floats = NDArray[np.float64]


def participation(cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats) -> Floats:
    """r_m^2 / sum r^2 (GDPFed+, Appendix B.2), whatever the noise."""
    square = np.asarray(cohorts, dtype=float) ** 2
    return np.asarray(square / square.sum())


def uniform(cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats) -> Floats:
    """1 / M for each of M groups."""
    return np.full(len(cohorts), 1 / len(cohorts))


def inverse_variance(cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats) -> Floats:
    """r_m^2 / sigma_m^2 normalised: the least noise with one noisy sum per group."""
    precision = (np.asarray(cohorts, dtype=float) / np.asarray(noise, dtype=float)) ** 2
    return np.asarray(precision / precision.sum())


def inverse_noise(cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats) -> Floats:
    """r_m / sigma_m normalised: the least noise with one noisy sum of all groups."""
    precision = np.asarray(cohorts, dtype=float) / np.asarray(noise, dtype=float)
    return np.asarray(precision / precision.sum())


WEIGHTS = {
    "participation": participation,
    "uniform": uniform,
    "inverse_variance": inverse_variance,
}


def weights(
    rule: str,
    cohorts: Sequence[float] | Floats,
    noise: Sequence[float] | Floats,
    clients: Sequence[float] | Floats,
) -> Floats:
    """Weights by the rule of a spec.

    Args:
        rule: ``population`` (N_m / n) or a name of ``WEIGHTS``.
        cohorts: expected clients per round of each group (r_m), shape (groups,).
        noise: noise multipliers (sigma_m), shape (groups,).
        clients: clients of each group (N_m), shape (groups,).

    Returns:
        Weights that sum to 1, shape (groups,).

    Raises:
        InputError: for an unknown rule.
    """
    if rule == "population":
        sizes = np.asarray(clients, dtype=float)
        return np.asarray(sizes / sizes.sum())
    if rule not in WEIGHTS:
        raise InputError.one(
            "planning.weights", f"must be one of population, {', '.join(WEIGHTS)}", rule
        )
    return WEIGHTS[rule](cohorts, noise)
