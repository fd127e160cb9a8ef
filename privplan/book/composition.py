"""How the runs of a group are composed against its budget: exactly, or by a filter.

Exact composition holds for runs that were all fixed before the first result. A run that
is chosen after seeing an earlier one needs a filter (``filters``). By default the first
run of the book decides which one, since nothing was seen before it: the Gaussian filter
where everybody took part in it, else the Rényi filter at the order at which most such
runs fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from privplan.accounting.accountant import accountant
from privplan.accounting.certificate import laws
from privplan.accounting.rdp import ORDERS
from privplan.accounting.release import History, Relation, Unit, named_law
from privplan.book import filters
from privplan.book.filters import MOST_UNITS, Filter
from privplan.book.spending import GUARANTEE, Account
from privplan.errors import InputError, UnsupportedError

BookRule = Literal["renyi", "gaussian", "exact"]


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
    rule: BookRule
    relation: Relation
    budget: float
    delta: float
    order: int = 0
    past: History = field(default_factory=History)
    units: int = 0
    unit: Unit = "client"

    def epsilon(self, new: History) -> float:
        """Upper bound on the epsilon of the past releases and of new ones."""
        if self.rule == "exact":
            return self.alone(self.past + new)
        units = self._cost_with(new)
        return filters.spent_epsilon(self.rule, units, self.delta, self.order)

    def alone(self, new: History) -> float:
        """Upper bound on the epsilon of new releases without the past ones."""
        return accountant(GUARANTEE).epsilon(new, self.delta, self.relation).upper

    def fits(self, new: History) -> bool:
        """Whether the past releases and new ones stay within the budget."""
        if self.rule == "exact":
            return self.epsilon(new) <= self.budget
        return self._cost_with(new) <= self._capacity

    def share(self, new: History) -> float | None:
        """The part of what is left that new releases cost.

        Returns:
            Their cost over the rest of the capacity, infinite where nothing is left;
            None for exact composition, under which epsilons do not add up.
        """
        if self.rule == "exact":
            return None
        spent = self._cost_with(History())
        remaining = self._capacity - spent
        if remaining > 0:
            return (self._cost_with(new) - spent) / remaining
        return math.inf

    def exact(self) -> Composition:
        """The same past releases, composed exactly."""
        return replace(self, rule="exact")

    def cell(self, new: History) -> str:
        """Delta, sampling law, relation and rule, as text."""
        law = named_law(laws(self.past + new), self.unit)
        return f"delta {self.delta:.4g}, {law} sampling, {self.relation}, {self.phrase}"

    @property
    def phrase(self) -> str:
        """The rule as text."""
        if self.rule == "exact":
            return f"accountant {GUARANTEE}"
        if self.rule == "gaussian":
            return "gaussian filter"
        return f"renyi filter at order {ORDERS[self.order]:g}"

    @property
    def _filter(self) -> Filter:
        """The rule, of a composition that is not exact."""
        return cast(Filter, self.rule)

    @property
    def _capacity(self) -> int:
        return filters.capacity(self._filter, self.budget, self.delta, self.order)

    def _cost_with(self, new: History) -> int:
        """Cost of the past releases and of new ones, in units of the filter.

        Raises:
            InputError: when the filter does not cover them.
        """
        releases = self.past + new
        try:
            units = filters.cost(self._filter, releases, self.relation, self.order)
        except UnsupportedError as error:
            text = "must cover the releases, as exact does for runs fixed in advance"
            raise InputError.one("rule", f"{text} ({error})", self.rule) from None
        return min(self.units + units, MOST_UNITS)


def composition_of(
    account: Account, budget: float, delta: float, rule: BookRule | None = None
) -> Composition:
    """How a group's runs are composed.

    Args:
        account: its past releases; the first run fixes the order of the Rényi filter.
        budget: epsilon over all runs.
        delta: failure probability.
        rule: the rule; by default the filter that fits the first run.

    Raises:
        InputError: when no filter covers the first run, or the budget is too small for
            one.
    """
    histories = (history for history in account.histories if history.rounds)
    first_history = next(histories, History())
    if rule is None:
        rule = _default_filter(account, first_history)
    composition = Composition(
        where=account.where,
        rule=rule,
        relation=account.relation,
        budget=budget,
        delta=delta,
        past=account.history,
        unit=account.unit,
    )
    if rule == "exact":
        return composition

    # The Gaussian filter has no order; the one that is stored with it is not used.
    typical = first_history if first_history.rounds and rule == "renyi" else None
    try:
        order = filters.order_of(budget, delta, typical, account.relation)
    except UnsupportedError as error:
        text = f"must be gaussian, where everybody takes part, or exact ({error})"
        raise InputError.one("rule", text, rule) from None

    # Refuses a budget that is too small for the filter, before anything is composed.
    filters.capacity(rule, budget, delta, order)
    return replace(composition, order=order)


def _default_filter(account: Account, first_history: History) -> Filter:
    """The filter that fits a first run; one that was only declared is no evidence."""
    everybody = all(release.sampling_ratio == 1 for release, _ in first_history)
    if first_history.rounds and everybody and 0 not in account.declared:
        return "gaussian"
    return "renyi"


def scaled(history: History, factor: float) -> History:
    """The releases with their noise multipliers times a factor."""
    return History(
        (replace(release, noise_multiplier=release.noise_multiplier * factor), count)
        for release, count in history
    )
