"""What a method may need of a plan besides its unit of privacy."""

from __future__ import annotations

from collections.abc import Callable

from privplan.accounting.release import SamplingLaw
from privplan.errors import Fault, InputError
from privplan.plan import Plan
from simulate.models.adapted import PREFIX, adapted
from simulate.models.registry import model

Need = Callable[[Plan], Fault | None]
"""What of a plan a method cannot execute; None when it can."""


def poisson(plan: Plan) -> Fault | None:
    """Poisson sampling: where groups have ratios of their own under one noise multiplier."""
    if plan.spec.sampling == SamplingLaw.POISSON:
        return None
    return Fault("plan.sampling", "must be poisson", str(plan.spec.sampling))


def per_group(plan: Plan) -> Fault | None:
    """A release of each group: where the plan is executed as it is, group by group."""
    if plan.release == "per_group":
        return None
    return Fault("plan.release", "must be per_group", plan.release)


def blocks(plan: Plan) -> Fault | None:
    """A model that adapters fit into.

    Raises:
        InputError: for a model that is not known.
    """
    base = model(plan.spec.model.name.removeprefix(PREFIX))
    try:
        adapted(base)
    except InputError as error:
        return error.faults[0]
    return None
