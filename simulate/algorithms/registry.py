"""The catalogue of algorithms: one short file each, one table."""

from __future__ import annotations

import json
from functools import lru_cache
from types import MappingProxyType

from privplan.errors import InfeasibleError, InputError
from privplan.plan import Plan
from simulate.algorithm import Algorithm
from simulate.algorithms import (
    centaur,
    dp2_fedsam,
    dp_fedavg,
    dp_fedavg_blur,
    dp_fedavg_blur_lus,
    dp_fedavg_ft,
    dp_fedavg_ls,
    dp_fedavg_records,
    dp_fedpgn,
    dp_fedpgn_ls,
    dp_fedsam,
    dp_fedsam_ft,
    fed_smp,
    fedavg,
    gdpfed,
    gdpfed_op,
    gdpfed_plus,
    hyperfl,
    hyperfl_lpm,
    idp_fedavg_sample,
    idp_fedavg_scale,
    local_only,
    minimum_epsilon,
    p_fedsam,
    pfa,
    pfedhn,
    pfedhn_pc,
    planned,
    ppsgd,
    robust_hdp,
    robust_hdp_oracle,
    time_adaptive,
    weiavg,
)
from simulate.algorithms.entry import Entry, Hyperparameters, Records

ALGORITHMS: MappingProxyType[str, Entry] = MappingProxyType(
    {
        module.ROW.name: module.ROW
        for module in (
            fedavg,
            local_only,
            dp_fedavg,
            dp_fedavg_ft,
            dp_fedsam,
            dp_fedsam_ft,
            fed_smp,
            dp_fedavg_blur,
            dp_fedavg_blur_lus,
            dp_fedavg_ls,
            dp_fedpgn,
            dp_fedpgn_ls,
            gdpfed,
            gdpfed_op,
            gdpfed_plus,
            pfa,
            weiavg,
            idp_fedavg_scale,
            idp_fedavg_sample,
            time_adaptive,
            dp_fedavg_records,
            minimum_epsilon,
            robust_hdp,
            robust_hdp_oracle,
            p_fedsam,
            dp2_fedsam,
            centaur,
            ppsgd,
            pfedhn,
            pfedhn_pc,
            hyperfl,
            hyperfl_lpm,
            planned,
        )
    }
)
CLIENT = "planned executes any plan of clients"
"""What to choose where a plan of clients does not suit a method."""


def row(name: str) -> Entry:
    """The line of a name, in any case.

    Raises:
        InputError: for a name that is not in the catalogue.
    """
    for known, found in ALGORITHMS.items():
        if known.lower() == name.strip().lower():
            return found
    raise InputError.one("algorithm", f"must be one of {', '.join(ALGORITHMS)}", name)


def fitting(plan: Plan) -> list[str]:
    """Names of the algorithms that can execute a plan, as the catalogue has them."""
    return [name for name, found in ALGORITHMS.items() if found.why_not(plan) is None]


def unfit(plan: Plan) -> dict[str, list[str]]:
    """Names of the algorithms that cannot execute a plan, by what is in their way."""
    found: dict[str, list[str]] = {}
    for name, one in ALGORITHMS.items():
        if fault := one.why_not(plan):
            found.setdefault(str(fault), []).append(name)
    return found


def algorithm(
    name: str, plan: Plan, choices: Hyperparameters | None = None, records: Records | None = None
) -> Algorithm:
    """An algorithm for a person's plan, with the plan that it executes.

    Args:
        name: a name of the catalogue, in any case.
        plan: the solved plan; algorithms that plan otherwise solve its spec their own way.
        choices: what else may be chosen of it.
        records: the fewest records that a client of each group holds, for methods that protect
            records; one record when not given.

    Raises:
        InputError: for an unknown name, a number that the method does not have, or a plan that
            the algorithm cannot execute.
        InfeasibleError: when the spec has no plan of the kind that the algorithm executes.
    """
    found = row(name)
    if fault := found.why_not(plan):
        kind = f"record suits {', '.join(fitting(plan))}" if plan.unit == "record" else CLIENT
        raise InputError.one(fault.field, f"{fault.rule} for {found.name}; {kind}", fault.found)
    complete = found.complete(choices or Hyperparameters())
    held = records or {group.name: 1 for group in plan.groups}
    try:
        executed = _executed(found.name, plan.to_json(), tuple(held.items()))
    except InfeasibleError as error:
        raise InfeasibleError(f"{found.name}: {error}") from None
    return found.build(executed, complete)


@lru_cache(maxsize=256)
def _executed(name: str, text: str, records: tuple[tuple[str, int], ...]) -> Plan:
    """The plan that an algorithm executes, solved once in a process for many seeds."""
    return ALGORITHMS[name].executes(Plan.parse(json.loads(text)), dict(records))
