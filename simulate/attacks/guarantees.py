"""What the executed plan guarantees to the attacked group, for each row of a report."""

from __future__ import annotations

import math
from typing import Any

from privplan.accounting.accountant import accountant
from privplan.plan import GroupPlan, Plan
from simulate.algorithms.registry import ALGORITHMS


def with_noise(group: GroupPlan, factor: float) -> GroupPlan:
    """A group with a factor on its planned noise multiplier."""
    if factor == 1.0:
        return group
    sigma = group.noise_multiplier * factor
    return group.model_copy(update={"noise_multiplier": sigma, "segments": None})


def guarantee(
    name: str, plan: Plan, group: GroupPlan, factor: float = 1.0
) -> dict[str, Any]:
    """Unit, noise and epsilon of a group under an executed plan, as plain data.

    Args:
        name: of the algorithm.
        plan: that it executes.
        group: that is attacked.
        factor: on the group's noise.
    """
    unit = ALGORITHMS.get(name).unit_under(plan)
    planned = plan.group(group.name)
    if unit == "none":
        return {
            "unit": "none",
            "noise_multiplier": 0.0,
            "epsilon": "inf",
            "delta": planned.delta,
        }
    if factor == 1.0:
        bounds = [
            (certified.epsilon_upper, certified.accountant)
            for certified in plan.certificate
            if certified.group == planned.name and certified.guarantee
        ]
        epsilon, accountant_name = min(bounds, default=(math.inf, "none"))
    else:
        # No certificate is of other noise.
        accountant_name = "rdp"
        history = plan.history(with_noise(planned, factor))
        bound = accountant("rdp").epsilon(history, planned.delta, plan.spec.relation)
        epsilon = bound.upper
    return {
        "unit": unit,
        "noise_multiplier": planned.noise_multiplier * factor,
        "epsilon": "inf" if math.isinf(epsilon) else epsilon,
        "delta": planned.delta,
        "group": planned.name,
        "sampling": str(plan.law_of(planned)),
        "relation": str(plan.spec.relation),
        "accountant": accountant_name,
    }
