"""How the runs of a group are composed against its budget: exactly, or by a filter.

Exact composition holds for runs that were all fixed before the first result. A run that is chosen
after seeing an earlier one needs a filter (``filters``). By default the first run of the book
decides which one, since nothing was seen before it: the Gaussian filter where everybody took part
in it, else the Rényi filter at the order at which most such runs fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from privplan.accounting.accountant import accountant
from privplan.accounting.certificate import laws
from privplan.accounting.noise_families import not_gaussian
from privplan.accounting.rdp import ORDERS
from privplan.accounting.release import History, Relation, Unit, named_law
from privplan.book import filters
from privplan.book.spending import GUARANTEE, Account
from privplan.errors import InputError, UnsupportedError

Rule = Literal["renyi", "gaussian", "exact"]
RULES: tuple[Rule, ...] = get_args(Rule)


@dataclass(frozen=True)
class Composition:
    """Past releases under one rule, against one budget.

    Attributes:
        where: population and group, or the name of an account.
        rule: ``exact``, or the filter.
        relation: neighbouring relation.
        budget: epsilon over all runs.
        delta: its failure probability.
        order: index in ``ORDERS`` of the order of the Rényi filter.
        past: past releases.
        units: cost of further past releases that are known by their cost only.
        unit: unit of privacy.
    """

    where: str
    rule: Rule
    relation: Relation
    budget: float
    delta: float
    order: int = 0
    past: History = field(default_factory=History)
    units: int = 0
    unit: Unit = "client"

    def epsilon(self, more: History) -> float:
        """Upper bound on the epsilon of the past releases and ``more``."""
        if self.rule == "exact":
            return accountant(GUARANTEE).epsilon(self.past + more, self.delta, self.relation).upper
        return filters.spent_epsilon(self.rule, self._spent(more), self.delta, self.order)

    def alone(self, more: History) -> float:
        """Upper bound on the epsilon of ``more`` without the past releases."""
        return accountant(GUARANTEE).epsilon(more, self.delta, self.relation).upper

    def fits(self, more: History) -> bool:
        """Whether the past releases and ``more`` stay within the budget."""
        if self.rule == "exact":
            return self.epsilon(more) <= self.budget
        return self._spent(more) <= self._capacity

    def share(self, more: History) -> float | None:
        """Cost of ``more`` over what the past leaves of the capacity; None for exact composition.

        Infinite where nothing is left.
        """
        if self.rule == "exact":
            return None
        left = self._capacity - self._spent(History())
        return (self._spent(more) - self._spent(History())) / left if left > 0 else float("inf")

    def exact(self) -> Composition:
        """The same past releases, composed exactly."""
        return replace(self, rule="exact")

    def cell(self, more: History) -> str:
        """Delta, sampling law, relation and rule, as text."""
        law = named_law(laws(self.past + more), self.unit)
        return f"delta {self.delta:.4g}, {law} sampling, {self.relation}, {self.phrase}"

    @property
    def phrase(self) -> str:
        """The rule as text."""
        if self.rule == "exact":
            return f"accountant {GUARANTEE}"
        at = f" at order {ORDERS[self.order]:g}" if self.rule == "renyi" else ""
        return f"{self.rule} filter{at}"

    @property
    def _capacity(self) -> int:
        kind: filters.Rule = "gaussian" if self.rule == "gaussian" else "renyi"
        return filters.capacity(kind, self.budget, self.delta, self.order)

    def _spent(self, more: History) -> int:
        kind: filters.Rule = "gaussian" if self.rule == "gaussian" else "renyi"
        try:
            found = filters.cost(kind, self.past + more, self.relation, self.order)
        except UnsupportedError as error:
            text = "must cover the releases; exact does, for runs fixed in advance"
            raise InputError.one("rule", f"{text} ({error})", self.rule) from None
        return min(self.units + found, filters.MOST_UNITS)


def composition_of(
    account: Account, budget: float, delta: float, rule: Rule | None = None
) -> Composition:
    """How a group's runs are composed.

    Args:
        account: its past releases; the first run fixes the order of the Rényi filter.
        budget: epsilon over all runs.
        delta: failure probability.
        rule: the rule; by default the filter that fits the first run.

    Raises:
        InputError: when no filter covers the first run, or the budget is too small for one.
    """
    first = next((one for one in account.histories if one.rounds), History())
    if rule is None:
        everybody = first.rounds and all(release.sampling_ratio == 1 for release, _ in first)
        rule = "gaussian" if everybody else "renyi"
    known = (account.where, rule, account.relation, budget, delta)
    if rule == "exact":
        return Composition(*known, past=account.history, unit=account.unit)
    reason = not_gaussian(first)
    if reason is not None:
        text = f"must be exact, for runs fixed in advance ({rule} filter: {reason})"
        raise InputError.one("rule", text, rule)
    try:
        order = filters.order_of(budget, delta, first if first.rounds else None, account.relation)
        filters.capacity(rule, budget, delta, order)
    except UnsupportedError as error:
        text = f"must be exact, for runs fixed in advance ({error})"
        raise InputError.one("rule", text, rule) from None
    return Composition(*known, order=order, past=account.history, unit=account.unit)


def scaled(history: History, factor: float) -> History:
    """The releases with their noise multipliers times a factor."""
    return History(
        (replace(one, noise_multiplier=one.noise_multiplier * factor), count)
        for one, count in history
    )
