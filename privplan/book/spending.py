"""What a group has spent over all its runs: one exact composition, beside the naive sum."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from privplan.accounting.accountant import Interval, accountant
from privplan.accounting.certificate import laws
from privplan.accounting.release import History, Relation, Unit, named_law
from privplan.book.entry import BookedRun
from privplan.errors import InputError, UnsupportedError
from privplan.values import Value

GUARANTEE = "pld"


@dataclass(frozen=True)
class Account:
    """Every release of one group of one population, run by run.

    Attributes:
        unit: whom the releases protect.
        relation: under which they are composed.
        sources: the runs, in the order in which they were added.
        histories: what each run released of the group, likewise.
        delta: the smallest that a plan promised the group; None when no plan knew it.
    """

    population: str
    group: str
    unit: Unit
    relation: Relation
    sources: tuple[str, ...]
    histories: tuple[History, ...]
    delta: float | None

    @property
    def history(self) -> History:
        """All releases of all runs."""
        return sum(self.histories, History())

    @property
    def where(self) -> str:
        """The group in words, with its population."""
        return f"{self.population}/{self.group}" if self.population else self.group

    def composed(self, more: History, delta: float) -> Interval:
        """Bounds on epsilon at ``delta`` of the book's releases and some more, composed."""
        return accountant(GUARANTEE).epsilon(self.history + more, delta, self.relation)

    def cell(self, more: History, delta: float) -> str:
        """What an epsilon of ``composed`` depends on, in words."""
        law = named_law(laws(self.history + more), self.unit)
        return f"delta {delta:.4g}, {law} sampling, {self.relation}, accountant {GUARANTEE}"


class Spending(Value):
    """What a group has spent; an epsilon is None where it is infinite.

    Attributes:
        runs: how many runs released the group.
        releases: how many releases there were in all.
        epsilon_lower: of all releases of all runs, composed exactly: at least this.
        epsilon_upper: likewise, at most this.
        epsilon_naive: sum of the runs' own epsilons, each at ``delta / runs``: basic
            composition, which holds at ``delta`` too.
        epsilon_rdp: an independent upper bound, which holds even if later runs were chosen by
            what earlier ones showed; None where that accountant does not apply.
    """

    population: str
    group: str
    unit: Unit
    relation: Relation
    sampling: str
    delta: float
    accountant: str
    runs: int
    releases: int
    epsilon_lower: float | None
    epsilon_upper: float | None
    epsilon_naive: float | None
    epsilon_rdp: float | None


def groups_of(runs: Iterable[BookedRun], population: str | None) -> list[tuple[str, str]]:
    """Every (population, group) of the book, sorted; of one population unless it is None."""
    found = {
        (run.population, share.group)
        for run in runs
        for share in run.shares
        if population is None or run.population == population
    }
    return sorted(found)


def account_of(
    runs: Sequence[BookedRun], population: str, group: str, relation: Relation | None = None
) -> Account:
    """The account of a group.

    Args:
        runs: the book.
        population: whose group it is.
        group: its name.
        relation: to read all releases under, whatever the plans said; by default theirs.

    Raises:
        InputError: when the book does not hold the group, or its runs differ in relation (and
            none is given) or in the unit that they protect.
    """
    pairs = [
        (run, share)
        for run in runs
        for share in run.shares
        if (run.population, share.group) == (population, group)
    ]
    if not pairs:
        known = ", ".join(name for _, name in groups_of(runs, population)) or "none"
        rule = f"must be in the book (population {population!r} has {known})"
        raise InputError.one("group", rule, group)
    units = {share.unit for _, share in pairs}
    relations = {share.relation for _, share in pairs} if relation is None else {relation}
    for field, found in (("relation", relations), ("unit", units)):
        if len(found) > 1:
            rule = f"must be one in all runs to compose them for group {group}"
            raise InputError.one(field, rule, " and ".join(sorted(found)))
    deltas = [share.delta for _, share in pairs if share.delta is not None]
    return Account(
        population=population,
        group=group,
        unit=units.pop(),
        relation=relations.pop(),
        sources=tuple(run.source for run, _ in pairs),
        histories=tuple(share.history for _, share in pairs),
        delta=min(deltas, default=None),
    )


def delta_for(account: Account, given: float | None) -> float:
    """Delta as given, or the smallest that a plan promised the group.

    Raises:
        InputError: when there is neither, or it is not in (0, 1).
    """
    delta = account.delta if given is None else given
    if delta is None or not 0 < delta < 1:
        raise InputError.one("delta", f"must be in (0, 1) for group {account.group}", delta)
    return delta


def spending(account: Account, delta: float) -> Spending:
    """What the group has spent at ``delta``.

    Raises:
        UnsupportedError: when the releases cannot be composed.
    """
    whole = account.history
    spent = account.composed(History(), delta)
    return Spending(
        population=account.population,
        group=account.group,
        unit=account.unit,
        relation=account.relation,
        sampling=named_law(laws(whole), account.unit),
        delta=delta,
        accountant=GUARANTEE,
        runs=len(account.histories),
        releases=whole.rounds,
        epsilon_lower=_finite(spent.lower),
        epsilon_upper=_finite(spent.upper),
        epsilon_naive=_finite(_naive(account, delta)),
        epsilon_rdp=_renyi(account, delta),
    )


def _naive(account: Account, delta: float) -> float:
    """Sum of upper bounds of the runs, each at an equal part of delta (rounded down)."""
    part = math.nextafter(delta / len(account.histories), 0.0)
    each = {
        history: accountant(GUARANTEE).epsilon(history, part, account.relation).upper
        for history in dict.fromkeys(account.histories)
    }
    return math.fsum(each[history] for history in account.histories)


def _renyi(account: Account, delta: float) -> float | None:
    try:
        bounds = accountant("rdp").epsilon(account.history, delta, account.relation)
    except UnsupportedError:
        return None
    return _finite(bounds.upper)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
