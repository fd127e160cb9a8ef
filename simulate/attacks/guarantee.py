"""What the executed plan guarantees to the attacked group, for each row of a report."""

from __future__ import annotations

import math
from typing import Any

from privplan.accounting.accountant import accountant
from privplan.plan import GroupPlan, Plan
from simulate.algorithms.registry import ALGORITHMS


def guarantee(name: str, plan: Plan, group: GroupPlan, factor: float = 1.0) -> dict[str, Any]:
    """Unit, noise multiplier and epsilon of a group under the executed plan, as plain data.

    Args:
        name: name of the algorithm.
        plan: the executed plan, noise as planned.
        group: the attacked group, by name.
        factor: factor on the noise multiplier, for sweeps; for others than 1 epsilon is that of
            the Renyi accountant.

    Returns:
        ``unit``, ``noise_multiplier``, ``epsilon`` (an upper bound over all rounds; ``inf``
        without noise), ``delta``; with noise also ``group``, ``sampling``, ``relation`` and
        ``accountant``.
    """
    unit = ALGORITHMS.get(name).unit_under(plan)
    own = plan.group(group.name)
    if unit == "none":
        return {"unit": "none", "noise_multiplier": 0.0, "epsilon": "inf", "delta": own.delta}
    sigma = own.noise_multiplier * factor
    if factor == 1.0:
        bounds = [
            (one.epsilon_upper, one.accountant)
            for one in plan.certificate
            if one.group == own.name and one.guarantee
        ]
        epsilon, by = min(bounds, default=(math.inf, "none"))
    else:
        changed = own.model_copy(update={"noise_multiplier": sigma, "segments": None})
        history = plan.history(changed)
        epsilon, by = accountant("rdp").epsilon(history, own.delta, plan.spec.relation).upper, "rdp"
    return {
        "unit": unit,
        "noise_multiplier": sigma,
        "epsilon": "inf" if math.isinf(epsilon) else epsilon,
        "delta": own.delta,
        "group": own.name,
        "sampling": str(plan.spec.sampling),
        "relation": str(plan.spec.relation),
        "accountant": by,
    }
