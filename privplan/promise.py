"""What a plan promises, computed again: its stored certificate is a claim.

A stored plan carries the bounds that its planner computed. They follow from noise,
ratios, laws and rounds, so that reading the plan computes them again; a stored bound
that contradicts the computed one is bad input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from privplan.accounting.accountant import Interval, accountant
from privplan.accounting.certificate import CertificateRow, laws
from privplan.accounting.release import History, Relation
from privplan.errors import Fault, InputError
from privplan.registry import Registry


class PlannedGroup(Protocol):
    """A group of a plan, as its promise needs it."""

    @property
    def name(self) -> str:
        """Of the group."""

    @property
    def delta(self) -> float:
        """At which its epsilon is."""


class PlannedSpec(Protocol):
    """The spec of a plan, as its promise needs it."""

    @property
    def relation(self) -> str:
        """Which data sets are neighbours."""


class Planned(Protocol):
    """A plan, as its promise needs it. A plan reads this module, which reads none."""

    @property
    def spec(self) -> PlannedSpec:
        """What was to be planned."""

    @property
    def groups(self) -> Sequence[PlannedGroup]:
        """In the order of the spec."""

    @property
    def certificate(self) -> Sequence[CertificateRow]:
        """Bounds on epsilon, as they are stored."""

    @property
    def guarantee(self) -> str:
        """Accountant of the guarantee."""

    def history(self, group: str) -> History:
        """What the unit that a group's budget protects will have been part of."""


P = TypeVar("P", bound=Planned)

GUARANTEE = "pld"
# Functions of a plan, which this module does not know.
GUARANTEES: Registry[Callable[[Any, History, float], float]] = Registry(
    "certificate.accountant", "privplan.guarantees"
)
"""Upper bounds on epsilon by what guarantees a plan, where that is not this project's PLD
accountant: functions of the plan, the releases of one run, and delta."""

SAME = 1e-6
"""Relative difference within which two computations of one bound agree: versions and
processors differ in the last digits only, by 1e-13 in plans of 0.1.0."""

_UPPER_BOUNDS = ("upper bound", "two-sided bound")


def promised(plan: Planned, group: PlannedGroup) -> Interval:
    """Bounds on the epsilon of a group after all planned releases, by the guarantee.

    Raises:
        PrivplanError: when the accountant does not cover the releases.
    """
    history = plan.history(group.name)
    if plan.guarantee != GUARANTEE:
        bound = GUARANTEES.get(plan.guarantee)
        return Interval(0.0, bound(plan, history, group.delta))
    relation = Relation(plan.spec.relation)
    return accountant(GUARANTEE).epsilon(history, group.delta, relation)


def require_certified(plan: P) -> P:
    """The plan, whose certificate is what computing it again gives.

    Raises:
        InputError: with every contradiction.
        PrivplanError: when the accountant does not cover the releases.
    """
    faults: list[Fault] = []
    for group in plan.groups:
        rows = [row for row in plan.certificate if row.group == group.name]
        if not any(row.guarantee for row in rows):
            rule = "must have a row that guarantees"
            faults.append(Fault(f"plan.certificate.{group.name}", rule, len(rows)))
            continue
        bounds = promised(plan, group)
        for row in rows:
            faults += _faults_of(plan, group, row, bounds)
    if faults:
        raise InputError(faults)
    return plan


def _faults_of(
    plan: Planned, group: PlannedGroup, row: CertificateRow, bounds: Interval
) -> Iterator[Fault]:
    """What a row of the certificate says that contradicts the plan.

    Args:
        plan: whose certificate it is.
        group: that the row is about.
        row: of the certificate.
        bounds: on the epsilon of the group, computed again.
    """
    where = f"plan.certificate.{group.name}.{row.accountant}"
    sampling = laws(plan.history(group.name))
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
