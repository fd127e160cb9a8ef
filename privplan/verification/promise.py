"""What a plan promises, computed again: its stored certificate is a claim.

A stored plan carries the bounds that its planner computed. They follow from noise,
ratios, laws and rounds, so that whoever shows or relies upon them computes them again;
a stored bound that contradicts the computed one is bad input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from privplan.accounting.accountant import Interval, accountant
from privplan.accounting.certificate import CertificateRow, laws
from privplan.accounting.release import History, Relation
from privplan.errors import Fault, InputError
from privplan.plan import GroupPlan, Plan
from privplan.registry import Registry

GUARANTEE = "pld"
GUARANTEES: Registry[Callable[[Plan, History, float], float]] = Registry(
    "certificate.accountant", "privplan.guarantees"
)
"""Upper bounds on epsilon by what guarantees a plan, where that is not this project's PLD
accountant: functions of the plan, the releases of one run, and delta."""

SAME = 1e-6
"""Relative difference within which two computations of one bound agree: versions and
processors differ in the last digits only, by 1e-13 in plans of 0.1.0."""

_UPPER_BOUNDS = ("upper bound", "two-sided bound")


def promised(plan: Plan, group: GroupPlan) -> Interval:
    """Bounds on the epsilon of a group after all planned releases, by the guarantee.

    Raises:
        PrivplanError: when the accountant does not cover the releases.
    """
    history = plan.history(group)
    if plan.guarantee != GUARANTEE:
        bound = GUARANTEES.get(plan.guarantee)
        return Interval(0.0, bound(plan, history, group.delta))
    relation = Relation(plan.spec.relation)
    return accountant(GUARANTEE).epsilon(history, group.delta, relation)


def require_certified(plan: Plan) -> Plan:
    """The plan, whose certificate is what computing it again gives.

    Raises:
        InputError: with every contradiction.
        PrivplanError: when the accountant does not cover the releases.
    """
    faults: list[Fault] = []
    for group in plan.groups:
        rows = [row for row in plan.certificate if row.group == group.name]
        if not rows:
            continue
        bounds = promised(plan, group)
        for row in rows:
            faults += _faults_of(plan, group, row, bounds)
    if faults:
        raise InputError(faults)
    return plan


def _faults_of(
    plan: Plan, group: GroupPlan, row: CertificateRow, bounds: Interval
) -> Iterator[Fault]:
    """What a row of the certificate says that contradicts the plan.

    Args:
        plan: whose certificate it is.
        group: that the row is about.
        row: of the certificate.
        bounds: on the epsilon of the group, computed again.
    """
    where = f"plan.certificate.{group.name}.{row.accountant}"
    sampling = laws(plan.history(group))
    if row.sampling != sampling:
        yield Fault(
            f"{where}.sampling", f"must be that of the plan, {sampling}", row.sampling
        )
    if row.guarantee:
        expected = {"epsilon_lower": bounds.lower, "epsilon_upper": bounds.upper}
        for field, computed in expected.items():
            stored = getattr(row, field)
            if not math.isclose(stored, computed, rel_tol=SAME):
                rule = f"must be what the plan's releases cost, {computed:.6g}"
                yield Fault(f"{where}.{field}", rule, stored)
    elif row.kind in _UPPER_BOUNDS and row.epsilon_upper * (1 + SAME) < bounds.lower:
        rule = f"must be at least what is certain to be spent, {bounds.lower:.6g}"
        yield Fault(f"{where}.epsilon_upper", rule, row.epsilon_upper)
