"""How sums of updates become a mean: the factor on each group's sum, by rule.

Every rule divides by constants of the plan, the expected cohorts; none looks at who came.

Weights of the groups in the model's step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from privplan.errors import InputError
from privplan.plan import GroupPlan, Plan

Rule = Callable[[GroupPlan, Plan], float]
"""(group as it is in a round, plan) to the factor on the sum that holds the group."""


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
"""Every rule, by the name that a record calls it."""


Floats = NDArray[np.float64]


def participation(cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats) -> Floats:
    """r_m^2 / sum r^2 (GDPFed+, Appendix B.2); the noise plays no part."""
    square = np.asarray(cohorts, dtype=float) ** 2
    return np.asarray(square / square.sum())


def uniform(cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats) -> Floats:
    """The same for every group."""
    return np.full(len(cohorts), 1 / len(cohorts))


def inverse_variance(cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats) -> Floats:
    """r_m^2 / sigma_m^2 normalised: the least noise when each group has its own noisy sum."""
    precision = (np.asarray(cohorts, dtype=float) / np.asarray(noise, dtype=float)) ** 2
    return np.asarray(precision / precision.sum())


def inverse_noise(cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats) -> Floats:
    """r_m / sigma_m normalised: the least noise when all groups share one noisy sum."""
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
    """Weights by the rule that a spec names.

    Args:
        rule: ``population`` (N_m / n) or a name of ``WEIGHTS``.
        cohorts: expected clients of each group in a round (r_m), shape (groups,).
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
