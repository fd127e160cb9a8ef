"""Epsilon of a group over all its runs: exact composition, naive sum and a Renyi bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from privplan.accounting.accountant import Interval, accountant
from privplan.accounting.certificate import laws
from privplan.accounting.release import History, Relation, Unit, named_law
from privplan.book.entry import BookedRun
from privplan.errors import Fault, InputError, UnsupportedError
from privplan.values import Value

GUARANTEE = "pld"


@dataclass(frozen=True)
class Account:
    """All releases of one group of one population, by run.

    Attributes:
        unit: unit of privacy of the releases.
        relation: neighbouring relation of the composition.
        sources: the runs, in the order in which they were added.
        histories: releases of the group in each run, likewise.
        delta: smallest delta of the runs' plans for the group; None when no plan has the group.
        kept: number of runs whose verdict is kept.
    """

    population: str
    group: str
    unit: Unit
    relation: Relation
    sources: tuple[str, ...]
    histories: tuple[History, ...]
    delta: float | None
    kept: int = 0

    @property
    def history(self) -> History:
        """All releases of all runs."""
        return sum(self.histories, History())

    @property
    def where(self) -> str:
        """Population and name of the group."""
        return full_name(self.population, self.group)

    def composed(self, more: History, delta: float) -> Interval:
        """Bounds on epsilon at ``delta`` of the composition of the book's releases and ``more``."""
        return accountant(GUARANTEE).epsilon(self.history + more, delta, self.relation)

    def cell(self, more: History, delta: float) -> str:
        """Delta, sampling law, relation and accountant of ``composed``, as text."""
        law = named_law(laws(self.history + more), self.unit)
        return f"delta {delta:.4g}, {law} sampling, {self.relation}, accountant {GUARANTEE}"


def full_name(population: str, group: str) -> str:
    """Population and name of a group, as text."""
    return f"{population}/{group}" if population else group


class Spending(Value):
    """Realised epsilon of a group; None where it is infinite.

    Attributes:
        runs: number of runs with releases of the group.
        kept: number of these runs whose verdict is kept.
        releases: number of releases in all runs.
        epsilon_lower: lower bound for the composition of all releases of all runs.
        epsilon_upper: upper bound for it.
        epsilon_naive: sum of the runs' own epsilons, each at ``delta / runs``: basic
            composition, also an upper bound at ``delta``.
        epsilon_rdp: an independent upper bound, which holds even if later runs were chosen
            adaptively; None where that accountant does not apply.
    """

    population: str
    group: str
    unit: Unit
    relation: Relation
    sampling: str
    delta: float
    accountant: str
    runs: int
    kept: int
    releases: int
    epsilon_lower: float | None
    epsilon_upper: float | None
    epsilon_naive: float | None
    epsilon_rdp: float | None


def groups_of(runs: Iterable[BookedRun], population: str | None) -> list[tuple[str, str]]:
    """Every (population, group) of the book, sorted; of one population unless it is None."""
    pairs = {
        (run.population, share.group)
        for run in runs
        for share in run.shares
        if population is None or run.population == population
    }
    return sorted(pairs)


def account_of(
    runs: Sequence[BookedRun], population: str, group: str, relation: Relation | None = None
) -> Account:
    """The account of a group.

    Args:
        runs: the book.
        population: name of the group's population.
        group: its name.
        relation: neighbouring relation of all releases; by default that of their plans.

    Raises:
        InputError: when the group is not in the book, or its runs differ in relation (and none
            is given) or in the unit of privacy.
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
    for field, values in (("relation", relations), ("unit", units)):
        if len(values) > 1:
            rule = f"must be one in all runs to compose them for group {group}"
            raise InputError.one(field, rule, " and ".join(sorted(values)))
    deltas = [share.delta for _, share in pairs if share.delta is not None]
    return Account(
        population=population,
        group=group,
        unit=units.pop(),
        relation=relations.pop(),
        sources=tuple(run.source for run, _ in pairs),
        histories=tuple(share.history for _, share in pairs),
        delta=min(deltas, default=None),
        kept=sum(run.verdict == "kept" for run, _ in pairs),
    )


def delta_for(account: Account, given: float | None) -> float:
    """The given delta, else the smallest delta of the runs' plans for the group.

    Raises:
        InputError: when there is neither, or it is not in (0, 1).
    """
    delta = account.delta if given is None else given
    if delta is None or not 0 < delta < 1:
        raise InputError.one("delta", f"must be in (0, 1) for group {account.group}", delta)
    return delta


def spending(account: Account, delta: float) -> Spending:
    """Realised epsilon of the group at ``delta``.

    Raises:
        UnsupportedError: when the releases cannot be composed.
    """
    history = account.history
    spent = account.composed(History(), delta)
    return Spending(
        population=account.population,
        group=account.group,
        unit=account.unit,
        relation=account.relation,
        sampling=named_law(laws(history), account.unit),
        delta=delta,
        accountant=GUARANTEE,
        runs=len(account.histories),
        kept=account.kept,
        releases=history.rounds,
        epsilon_lower=_finite(spent.lower),
        epsilon_upper=_finite(spent.upper),
        epsilon_naive=_finite(_naive(account, delta)),
        epsilon_rdp=_renyi(account, delta),
    )


def _naive(account: Account, delta: float) -> float:
    """Sum of the runs' upper bounds, each at an equal part of delta (rounded down)."""
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


def spendings(
    runs: Sequence[BookedRun],
    *,
    group: str | None = None,
    population: str | None = None,
    delta: float | None = None,
    relation: Relation | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[list[Spending], list[Fault]]:
    """Realised epsilon of several groups, and the faults of those that cannot be composed.

    Args:
        runs: the book.
        group: only groups of this name.
        population: only groups of this population.
        delta: as in ``delta_for``.
        relation: as in ``account_of``.
        progress: called with the number of finished groups and of all groups.

    Raises:
        InputError: when no group has the given name.
    """
    selected = [pair for pair in groups_of(runs, population) if group in (None, pair[1])]
    if group is not None and not selected:
        account_of(runs, population or "", group)
    spent: list[Spending] = []
    faults: list[Fault] = []
    for done, (where, name) in enumerate(selected):
        progress(done, len(selected))
        try:
            account = account_of(runs, where, name, relation)
            spent.append(spending(account, delta_for(account, delta)))
        except InputError as error:
            faults += error.faults
        except UnsupportedError as error:
            faults.append(Fault(f"group {name}", "must be composable", str(error)))
    return spent, faults
