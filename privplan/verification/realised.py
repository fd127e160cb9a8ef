"""The epsilon that a run's ledger implies, for each group and its worst-off client."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from privplan.accounting.accountant import Interval, accountant
from privplan.accounting.release import History, Relation
from privplan.auditing import EmpiricalEpsilon, empirical_epsilons
from privplan.errors import PrivplanError
from privplan.ledger import history_of, worst_client
from privplan.plan import GroupPlan
from privplan.promise import GUARANTEE, GUARANTEES, promised
from privplan.verification.run import Run
from privplan.verification.verdict import GroupVerdict, OneRun, WorstOff


class Realised(NamedTuple):
    """What a run spent."""

    groups: list[GroupVerdict]
    worst: list[WorstOff]  # the worst-off client of each group
    refused: list[PrivplanError]  # what accountants refused to compute


def realised(run: Run) -> Realised:
    """The verdict on each group and its worst-off client, by the accountants.

    A group's epsilon covers every client that its law could draw, whoever was drawn.
    Where each release protects the records of one client, the worst-off client is the
    one whose own releases tell most, and the group's epsilon is at least that.
    """
    refused: list[PrivplanError] = []
    groups = []
    worst = []
    for group in run.plan.groups:
        spending = _Spending(run, group, refused)
        shared = _shared_fields(spending)
        groups.append(_group_verdict(spending, shared))
        worst.append(_worst_off(spending, shared))
    return Realised(groups, worst, refused)


def _is_sound(run: Run) -> bool:
    """Whether epsilon follows from the ledger.

    All its lines are read, of groups of the plan, and count. A release that claims to
    protect the records of one client counts for that client alone, so one in a plan
    that protects clients would make epsilon smaller.
    """
    if run.ledger.fault is not None:
        return False
    groups = {group.name for group in run.plan.groups}
    units = {"client", run.plan.spec.unit}
    for release in run.ledger.records:
        of_plan = all(share.group in groups for share in release.shares)
        if release.unit not in units or not of_plan:
            return False
    return True


class _Spending:
    """What a group's clients spent: bounds on epsilon at its delta.

    Attributes:
        run: that was read.
        group: of the plan.
        client: position of the client who took part most; None where all have the same
            history.
        spent: bounds on the epsilon of all releases of the group.
        worst_off: bounds on that of the client who took part most.
        renyi: an upper bound by Renyi divergences; infinite where they do not cover it.
        one_run: epsilon of this run alone, where the budget is of several.
    """

    def __init__(
        self, run: Run, group: GroupPlan, refused: list[PrivplanError]
    ) -> None:
        """Compute all bounds.

        Args:
            run: that was read.
            group: of the plan.
            refused: grows by what accountants refuse to compute.
        """
        self.run = run
        self.group = group
        self.one_run: OneRun | None = None
        self._refused = refused

        history = history_of(run.ledger.records, group.name)
        of_group = (run.ledger.records, group.name, run.clients[group.name])
        self.client, client_history = worst_client(*of_group)
        self.spent = self._epsilon(history)
        self.worst_off = self.spent
        if client_history != history:
            self.worst_off = self._epsilon(client_history)
        # Under correlated noise a participation moves later releases, too. Until these
        # are in the ledger, it does not bound epsilon from below.
        _, released = worst_client(*of_group, complete=True)
        if released != client_history:
            lower = self._epsilon(released).lower
            self.worst_off = Interval(lower, self.worst_off.upper)

        is_sound = _is_sound(run)
        self.renyi = math.inf
        if is_sound and not accountant("rdp").why_not(history, self.relation):
            self.renyi = self._epsilon(history, "rdp").upper
        if run.plan.guarantee != GUARANTEE:
            self._replace_by_guarantee(history, client_history, is_sound)
        # What was released after the sound lines is unknown.
        if not is_sound:
            self.spent = Interval(self.spent.lower, math.inf)
            self.worst_off = Interval(self.worst_off.lower, math.inf)

    @property
    def relation(self) -> Relation:
        """Which histories are neighbours."""
        return Relation(self.run.plan.spec.relation)

    def bounds(self, compute: Callable[[], Interval]) -> Interval:
        """Bounds that an accountant computes; none where it refuses."""
        try:
            return compute()
        # Of a broken run the check that failed says why.
        except PrivplanError as error:
            self._refused.append(error)
            return Interval(0.0, math.inf)

    def _epsilon(self, history: History, name: str = GUARANTEE) -> Interval:
        """Bounds on the epsilon of releases by an accountant."""
        return self.bounds(
            lambda: accountant(name).epsilon(history, self.group.delta, self.relation)
        )

    def _replace_by_guarantee(
        self, history: History, client_history: History, is_sound: bool
    ) -> None:
        """Keep epsilon of this run, and bound that of all that the budget is of.

        Args:
            history: all releases of the group.
            client_history: those of the worst-off client.
            is_sound: whether epsilon follows from the ledger.
        """
        plan = self.run.plan
        delta = self.group.delta
        upper = self.spent.upper if is_sound else math.inf
        self.one_run = OneRun(
            lower=_finite(self.spent.lower),
            upper=_finite(upper),
            rdp=_finite(self.renyi),
        )
        bound = GUARANTEES.get(plan.guarantee)
        self.spent = self.bounds(lambda: Interval(0.0, bound(plan, history, delta)))
        self.worst_off = self.bounds(
            lambda: Interval(0.0, bound(plan, client_history, delta))
        )
        self.renyi = self.spent.upper if is_sound else math.inf


def _shared_fields(spending: _Spending) -> dict[str, Any]:
    """What the verdict on a group and that on its worst-off client both say."""
    plan = spending.run.plan
    group = spending.group
    planned = None
    if any(row.group == group.name for row in plan.certificate):
        planned = _finite(spending.bounds(lambda: promised(plan, group)).upper)
    return {
        "group": group.name,
        "budget": group.epsilon,
        "planned": planned,
        "realised_lower": _finite(spending.worst_off.lower),
        "delta": group.delta,
        "sampling": plan.law_of(group),
        "relation": spending.relation,
        "accountant": plan.guarantee,
    }


def _group_verdict(spending: _Spending, shared: dict[str, Any]) -> GroupVerdict:
    """What a group spent, beside its budget and how it was scored."""
    group = spending.group
    upper = spending.spent.upper
    return GroupVerdict(
        **shared,
        clients=group.clients,
        realised_upper=_finite(upper),
        realised_rdp=_finite(spending.renyi),
        headroom=_finite(group.epsilon - upper),
        kept=upper <= group.epsilon,
        accuracy=spending.run.record.accuracy_by_group.get(group.name),
        audit=_audit_of(spending.run, group),
        one_run=spending.one_run,
    )


def _worst_off(spending: _Spending, shared: dict[str, Any]) -> WorstOff:
    """What the client of a group spent who took part most."""
    upper = spending.worst_off.upper
    return WorstOff(
        **shared,
        client=spending.client,
        realised_upper=_finite(upper),
        headroom=_finite(spending.group.epsilon - upper),
    )


def _audit_of(run: Run, group: GroupPlan) -> tuple[EmpiricalEpsilon, ...]:
    """Empirical epsilons from the canaries of a group; empty without any.

    They bound from below what an attacker could tell, at the delta of the group.
    """
    if run.audit is None:
        return ()
    for traces in run.audit.groups:
        if traces.group == group.name:
            return empirical_epsilons(traces, group.delta)
    return ()


def _finite(value: float) -> float | None:
    """The number, or None where there is no bound, as JSON has no infinity."""
    if math.isfinite(value):
        return value
    return None
