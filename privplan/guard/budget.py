"""Whether the next release fits: into the plan, and with it every group into its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from privplan.accounting.accountant import Interval, accountant
from privplan.accounting.release import History, Relation, Release
from privplan.errors import Fault, InfeasibleError
from privplan.ledger import history_of
from privplan.plan import GroupPlan, Plan
from privplan.record import ReleaseRecord

if TYPE_CHECKING:
    from privplan.book.rules import Composition

GUARANTEE = "pld"


class BudgetExceededError(InfeasibleError):
    """A release that would exceed the plan or the budget of a group was refused."""


class GroupBudget:
    """The releases that a group's budget admits.

    Args:
        plan: the plan.
        group: the group, whose epsilon bounds this run.
        past: the group's other runs, with the rule and the budget over all runs; None for none.
    """

    def __init__(self, plan: Plan, group: GroupPlan, past: Composition | None = None) -> None:
        self._plan, self.group, self._past = plan, group, past

    def planned(self, round_: int) -> Release:
        """The release of a round as a client of the group sees it."""
        ratio, sigma = self._plan.at_round(self.group, round_)
        return Release(sigma, ratio, self._plan.spec.sampling)

    def epsilon(self, releases: History) -> Interval:
        """Bounds on the epsilon of releases of this run and those of the other runs.

        The upper bound is that of the rule by which the runs are composed.
        """
        if self._past is None:
            return self._composed(releases)
        return Interval(
            self._composed(self._past.past + releases).lower, self._past.epsilon(releases)
        )

    def refusal(self, releases: History) -> tuple[str, float] | None:
        """The budget that releases of this run exceed, and the epsilon found; None if they fit."""
        own = self._composed(releases).upper
        if own > self.group.epsilon:
            law, relation = self._plan.spec.sampling, self._plan.spec.relation
            cell = f"({law} sampling, {relation}, accountant {GUARANTEE})"
            return f"{self.group.epsilon:g} at delta {self.group.delta:.4g} {cell}", own
        past = self._past
        if past is not None and not past.fits(releases):
            return f"{past.budget:g} over all runs ({past.cell(releases)})", past.epsilon(releases)
        return None

    def fits(self, releases: History) -> bool:
        """Whether the releases stay within the group's budgets."""
        return self.refusal(releases) is None

    def _composed(self, releases: History) -> Interval:
        relation = Relation(self._plan.spec.relation)
        return accountant(GUARANTEE).epsilon(releases, self.group.delta, relation)

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
        past: other runs, by group.
    """

    def __init__(self, plan: Plan, past: Mapping[str, Composition]) -> None:
        self._plan = plan
        self.groups = {
            group.name: GroupBudget(plan, group, past.get(group.name)) for group in plan.groups
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
            one = History([(budget.planned(round_), 1)])
            refused = budget.refusal(history_of(records, name) + one)
            if refused is not None:
                limit, found = refused
                rule = f"must stay within the budget {limit} with the release of round {round_}"
                return str(Fault(f"groups.{name}.epsilon", rule, float(f"{found:.6g}")))
        return None
