"""Whether the next release fits: into the plan, and every group into its budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from privplan.accounting.accountant import Interval, accountant
from privplan.accounting.release import History, Relation, Release
from privplan.errors import InfeasibleError
from privplan.ledger import history_of
from privplan.plan import GroupPlan, Plan

if TYPE_CHECKING:
    from privplan.book.composition import Composition

GUARANTEE = "pld"  # the accountant whose bounds are a guarantee


class BudgetExceededError(InfeasibleError):
    """A release that would exceed the plan or the budget of a group was refused."""


class Excess(NamedTuple):
    """A budget that releases exceed."""

    budget: str  # in words, with its delta
    epsilon: float  # of the releases


class GroupBudget:
    """The releases that a group's budget admits.

    Args:
        plan: of the run.
        group: whose epsilon bounds this run.
        past: the group's other runs, with the rule and the budget over all runs; None
            for none.
        limits: what the group's account in the book and its ceilings leave.
    """

    def __init__(
        self,
        plan: Plan,
        group: GroupPlan,
        past: Composition | None = None,
        limits: Sequence[Composition] = (),
    ) -> None:
        self.group = group
        self._plan = plan
        self._past = past
        self._limits = limits

    def planned(self, round_: int) -> Release:
        """The release of a round as a client of the group sees it."""
        ratio, noise_multiplier = self._plan.at_round(self.group, round_)
        return Release(noise_multiplier, ratio, self._plan.law_of(self.group))

    def planned_rounds(
        self, first_round: int, last_round: int
    ) -> Iterator[tuple[int, Release]]:
        """The planned rounds of a stretch with their releases."""
        return (
            (round_, self.planned(round_))
            for round_ in range(first_round, last_round + 1)
        )

    def epsilon(self, releases: History) -> Interval:
        """Bounds on the epsilon of releases of this run and of the other runs.

        The upper bound is that of the rule by which the runs are composed.
        """
        if self._past is None:
            return self._composed(releases)
        lower = self._composed(self._past.past + releases).lower
        return Interval(lower, self._past.epsilon(releases))

    def excess(self, releases: History) -> Excess | None:
        """The budget that releases of this run exceed; None if they fit."""
        epsilon = self._composed(releases).upper
        if epsilon > self.group.epsilon:
            law = self._plan.law_of(self.group)
            relation = self._plan.spec.relation
            cell = f"({law} sampling, {relation}, accountant {GUARANTEE})"
            budget = f"{self.group.epsilon:g} at delta {self.group.delta:.4g} {cell}"
            return Excess(budget, epsilon)
        past = self._past
        if past is not None and not past.fits(releases):
            budget = f"{past.budget:g} over all runs ({past.cell(releases)})"
            return Excess(budget, past.epsilon(releases))
        for limit in self._limits:
            if not limit.fits(releases):
                cell = limit.cell(releases)
                budget = f"{limit.budget:g} of the account {limit.where} ({cell})"
                return Excess(budget, limit.epsilon(releases))
        return None

    def _composed(self, releases: History) -> Interval:
        """Bounds on the epsilon of releases by exact composition."""
        relation = Relation(self._plan.spec.relation)
        return accountant(GUARANTEE).epsilon(releases, self.group.delta, relation)

    @cached_property
    def affordable_rounds(self) -> int:
        """The largest number of first rounds whose releases fit.

        Fewer releases fit as well, so it is found by bisection.
        """
        fits = 0
        exceeds = self._plan.spec.rounds
        if self._first_rounds_fit(exceeds):
            return exceeds
        while fits + 1 < exceeds:
            middle = (fits + exceeds) // 2
            if self._first_rounds_fit(middle):
                fits = middle
            else:
                exceeds = middle
        return fits

    def _first_rounds_fit(self, rounds: int) -> bool:
        releases = history_of((), self.group.name, self.planned_rounds(1, rounds))
        return self.excess(releases) is None


def budgets_of(
    plan: Plan,
    past: Mapping[str, Composition],
    limits: Mapping[str, Sequence[Composition]],
) -> dict[str, GroupBudget]:
    """The budgets of all groups, by name.

    Args:
        plan: of the run.
        past: other runs, by group.
        limits: accounts and their ceilings, by group.
    """
    return {
        group.name: GroupBudget(
            plan, group, past.get(group.name), limits.get(group.name, ())
        )
        for group in plan.groups
    }


def affordable_rounds(budgets: Mapping[str, GroupBudget]) -> int:
    """How many first rounds all budgets afford."""
    return min(budget.affordable_rounds for budget in budgets.values())
