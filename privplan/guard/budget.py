"""Whether the next release fits: into the plan, and with it every group into its budget."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from privplan.accounting.accountant import Interval, accountant
from privplan.accounting.release import History, Relation, Release
from privplan.errors import Fault, InfeasibleError
from privplan.ledger import history_of
from privplan.plan import GroupPlan, Plan
from privplan.record import ReleaseRecord

GUARANTEE = "pld"


class BudgetExceededError(InfeasibleError):
    """A release that would exceed the plan or the budget of a group was refused."""


class GroupBudget:
    """The releases that a group's budget admits.

    Args:
        plan: the plan.
        group: the group.
        prior: releases of the group in earlier runs.
    """

    def __init__(self, plan: Plan, group: GroupPlan, prior: History) -> None:
        self._plan, self.group, self._prior = plan, group, prior

    def planned(self, round_: int) -> Release:
        """The release of a round as a client of the group sees it."""
        ratio, sigma = self._plan.at_round(self.group, round_)
        return Release(sigma, ratio, self._plan.spec.sampling)

    def epsilon(self, releases: History) -> Interval:
        """Bounds on the epsilon of releases of this run after those of earlier runs."""
        relation = Relation(self._plan.spec.relation)
        return accountant(GUARANTEE).epsilon(self._prior + releases, self.group.delta, relation)

    def fits(self, releases: History) -> bool:
        """Whether the releases stay within the group's budget."""
        return self.epsilon(releases).upper <= self.group.epsilon

    @cached_property
    def affordable_rounds(self) -> int:
        """The largest number of first rounds whose releases fit; fewer releases fit as well."""
        low, high = 0, self._plan.spec.rounds
        if self.fits(self._first(high)):
            return high
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(self._first(middle)) else (low, middle)
        return low

    def _first(self, rounds: int) -> History:
        return History((self.planned(round_), 1) for round_ in range(1, rounds + 1))


class Budgets:
    """The budgets of all groups.

    Args:
        plan: the plan.
        prior: releases in earlier runs, by group.
    """

    def __init__(self, plan: Plan, prior: dict[str, History]) -> None:
        self._plan = plan
        self.groups = {
            group.name: GroupBudget(plan, group, prior.get(group.name, History()))
            for group in plan.groups
        }

    def refusal(self, round_: int, records: Sequence[ReleaseRecord]) -> str | None:
        """Why the release of a round is refused; None when it may happen.

        Args:
            round_: training round, from 1.
            records: the releases so far.
        """
        rounds = self._plan.spec.rounds
        if round_ > rounds:
            return str(Fault("round", f"must be one of the {rounds} planned rounds", round_))
        for name, budget in self.groups.items():
            if round_ <= budget.affordable_rounds:
                continue
            group, spent = budget.group, history_of(records, name)
            found = budget.epsilon(spent + History([(budget.planned(round_), 1)])).upper
            if found > group.epsilon:
                law, relation = self._plan.spec.sampling, self._plan.spec.relation
                rule = (
                    f"must stay within the budget {group.epsilon:g} at delta {group.delta:.4g} "
                    f"({law} sampling, {relation}, accountant {GUARANTEE}) with the release of "
                    f"round {round_}"
                )
                return str(Fault(f"groups.{name}.epsilon", rule, float(f"{found:.6g}")))
        return None
