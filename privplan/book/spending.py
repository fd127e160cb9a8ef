"""Epsilon of a group over all its runs: exact composition, naive sum, a Rényi bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privplan.accounting.accountant import Interval, accountant
from privplan.accounting.certificate import laws
from privplan.accounting.release import History, Relation, Unit, named_law
from privplan.book.entry import DECLARED, BookedRun, Share
from privplan.errors import Fault, InputError, UnsupportedError
from privplan.proven import finding_on
from privplan.values import Value, omitted

if TYPE_CHECKING:
    from privplan.proof import Finding

GUARANTEE = "pld"  # the accountant whose bounds are a guarantee


@dataclass(frozen=True)
class Account:
    """All releases of one group of one population, by run.

    Attributes:
        unit: unit of privacy of the releases.
        relation: neighbouring relation of the composition.
        sources: the runs, in the order in which they were added.
        histories: releases of the group in each run, likewise.
        delta: smallest delta of the runs' plans for the group; None when no plan has
            the group.
        kept_runs: number of runs whose verdict is kept.
        checked: how strongly each run was checked, in words.
        plans: digests of their plans, or declared names, each once.
        declared: indices of the histories that are declared.
        partial: whether a run may have stopped within a turn, which spends less.
        person: the word of the runs' plans for whom they protect.
    """

    population: str
    group: str
    unit: Unit
    relation: Relation
    sources: tuple[str, ...]
    histories: tuple[History, ...]
    delta: float | None
    kept_runs: int = 0
    checked: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    declared: frozenset[int] = frozenset()
    partial: bool = False
    person: str | None = None

    @property
    def history(self) -> History:
        """All releases of all runs."""
        return sum(self.histories, History())

    @property
    def where(self) -> str:
        """Population and name of the group."""
        return full_name(self.population, self.group)

    @property
    def levels(self) -> dict[str, int]:
        """Number of runs by how strongly they were checked."""
        return dict(Counter(self.checked))

    def composed(self, new: History, delta: float) -> Interval:
        """Bounds on epsilon at ``delta`` of the book's releases and new ones."""
        return accountant(GUARANTEE).epsilon(self.history + new, delta, self.relation)


def full_name(population: str, group: str) -> str:
    """Population and name of a group, as text."""
    if population:
        return f"{population}/{group}"
    return group


class Spending(Value):
    """Realised epsilon of a group; None where it is infinite.

    Attributes:
        runs: number of runs with releases of the group.
        kept: number of these runs whose verdict is kept.
        levels: number of these runs by how strongly they were checked.
        releases: number of rounds in all runs; in whole cycles where clients take
            turns.
        epsilon_lower: lower bound for the composition of all releases of all runs.
        epsilon_upper: upper bound for it.
        epsilon_naive: sum of the runs' own epsilons, each at ``delta / runs``: basic
            composition, also an upper bound at ``delta``.
        epsilon_rdp: an independent upper bound, which holds even if later runs were
            chosen adaptively; None where that accountant does not apply.
        plans: digests of the runs' plans, or declared names, each once.
        person: the word of the runs' plans for whom they protect; person where they
            differ.
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
    levels: dict[str, int]
    releases: int
    epsilon_lower: float | None
    epsilon_upper: float | None
    epsilon_naive: float | None
    epsilon_rdp: float | None
    plans: tuple[str, ...]
    person: str | None = omitted("The word of the plans for whom they protect.")

    @property
    def name(self) -> str:
        """Population and name of the group, as text."""
        return full_name(self.population, self.group)


def groups_of(
    runs: Iterable[BookedRun], population: str | None
) -> list[tuple[str, str]]:
    """Every (population, group) of the book, sorted.

    Args:
        runs: the book.
        population: only groups of this population; of all where it is None.
    """
    pairs: set[tuple[str, str]] = set()
    for run in runs:
        if population is None or run.population == population:
            pairs.update((run.population, share.group) for share in run.shares)
    return sorted(pairs)


def account_of(
    runs: Sequence[BookedRun],
    population: str,
    group: str,
    relation: Relation | None = None,
) -> Account:
    """The account of a group.

    Args:
        runs: the book.
        population: name of the group's population.
        group: its name.
        relation: neighbouring relation of all releases; by default that of their plans.

    Raises:
        InputError: when the group is not in the book, or its runs differ in the unit of
            privacy, or in relation where none is named.
    """
    pairs: list[tuple[BookedRun, Share]] = []
    for run in runs:
        if run.population == population:
            pairs += [(run, share) for share in run.shares if share.group == group]
    if not pairs:
        names = ", ".join(name for _, name in groups_of(runs, population)) or "none"
        rule = f"must be in the book (population {population!r} has {names})"
        raise InputError.one("group", rule, group)

    units = {share.unit for _, share in pairs}
    relations = {share.relation for _, share in pairs}
    if relation is not None:
        relations = {relation}
    for name, values in (("relation", relations), ("unit", units)):
        if len(values) > 1:
            rule = f"must be one in all runs to compose them for group {group}"
            raise InputError.one(name, rule, " and ".join(sorted(values)))

    deltas = [share.delta for _, share in pairs if share.delta is not None]
    declared = [run.algorithm == DECLARED for run, _ in pairs]
    plans = [run.source if run.algorithm == DECLARED else run.plan for run, _ in pairs]
    return Account(
        population=population,
        group=group,
        unit=units.pop(),
        relation=relations.pop(),
        sources=tuple(run.source for run, _ in pairs),
        histories=tuple(run.history(share) for run, share in pairs),
        delta=min(deltas, default=None),
        kept_runs=sum(run.verdict == "kept" for run, _ in pairs),
        checked=tuple(run.checked for run, _ in pairs),
        plans=tuple(dict.fromkeys(plans)),
        declared=frozenset(index for index, is_one in enumerate(declared) if is_one),
        partial=any(_may_be_partial(run, share) for run, share in pairs),
        person=_person_of([run for run, _ in pairs]),
    )


def _person_of(runs: Sequence[BookedRun]) -> str | None:
    """The word of all plans for whom they protect; person where they differ."""
    words = {run.person for run in runs if run.algorithm != DECLARED}
    if len(words) > 1:
        return "person"
    return next(iter(words), None)


def _may_be_partial(run: BookedRun, share: Share) -> bool:
    """Whether a run may have stopped, or a deployment failed, within a turn."""
    if run.status == "complete" and run.seed is not None:
        return False
    laws_of_share = (release.sampling.law for release, _ in share.history)
    return any(law.complete_at(1) > 1 for law in laws_of_share)


def delta_for(account: Account, requested_delta: float | None) -> float:
    """The requested delta, else the smallest of the runs' plans for the group.

    Raises:
        InputError: when there is neither, or it is not in (0, 1).
    """
    delta = account.delta if requested_delta is None else requested_delta
    if delta is None or not 0 < delta < 1:
        rule = f"must be in (0, 1) for group {account.group}"
        if delta is None:
            rule += ", of which the book has no plan: give --delta"
        raise InputError.one("delta", rule, delta)
    return delta


def spending(account: Account, delta: float) -> Spending:
    """Realised epsilon of the group at ``delta``.

    Raises:
        UnsupportedError: when the releases cannot be composed.
    """
    history = account.history
    bounds = account.composed(History(), delta)
    rounds = (release.sampling.law.rounds_for(count) for release, count in history)
    return Spending(
        population=account.population,
        group=account.group,
        unit=account.unit,
        person=account.person,
        relation=account.relation,
        sampling=named_law(laws(history), account.unit),
        delta=delta,
        accountant=GUARANTEE,
        runs=len(account.histories),
        kept=account.kept_runs,
        levels=account.levels,
        releases=sum(rounds),
        epsilon_lower=0.0 if account.partial else _finite(bounds.lower),
        epsilon_upper=_finite(bounds.upper),
        epsilon_naive=_finite(_naive_epsilon(account, delta)),
        epsilon_rdp=_renyi_epsilon(account, delta),
        plans=account.plans,
    )


def _naive_epsilon(account: Account, delta: float) -> float:
    """Sum of the runs' upper bounds, each at an equal part of delta, rounded down."""
    delta_of_run = math.nextafter(delta / len(account.histories), 0.0)
    guarantee = accountant(GUARANTEE)
    # A history counts for the person with the most clients of all its releases, also of
    # those that happened 0 times: each run counts for the person of all runs.
    of_all_runs = [(release, 0) for release, _ in account.history]
    histories = [History([*history, *of_all_runs]) for history in account.histories]
    epsilons = {
        history: guarantee.epsilon(history, delta_of_run, account.relation).upper
        for history in set(histories)
    }
    return math.fsum(epsilons[history] for history in histories)


def _renyi_epsilon(account: Account, delta: float) -> float | None:
    try:
        bounds = accountant("rdp").epsilon(account.history, delta, account.relation)
    except UnsupportedError:
        return None
    return _finite(bounds.upper)


def _finite(value: float) -> float | None:
    if math.isfinite(value):
        return value
    return None


def spendings(
    runs: Sequence[BookedRun],
    *,
    group: str | None = None,
    population: str | None = None,
    delta: float | None = None,
    relation: Relation | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[list[Spending], list[Fault]]:
    """Realised epsilon of several groups, and the faults of those without one.

    Args:
        runs: the book.
        group: only groups of this name.
        population: only groups of this population.
        delta: as in ``delta_for``.
        relation: as in ``account_of``.
        progress: called with the number of finished groups and of all groups.

    Raises:
        InputError: when no group, or no population, has the name.
    """
    selected = [
        pair for pair in groups_of(runs, population) if group in (None, pair[1])
    ]
    if group is not None and not selected:
        account_of(runs, population or "", group)  # refuses the name
    if population is not None and not selected:
        names = ", ".join(sorted({repr(run.population) for run in runs}))
        rule = f"must be in the book ({names or 'empty'})"
        raise InputError.one("population", rule, population)

    # A group that cannot be composed does not hide what the others have spent.
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


def proven_spendings(
    runs: Sequence[BookedRun], spent: Iterable[Spending]
) -> dict[str, Finding]:
    """What is proven of groups' upper bounds, by their full names."""
    findings = {}
    for group in spent:
        account = account_of(runs, group.population, group.group, group.relation)
        findings[account.where] = finding_on(
            account.history, group.relation, group.epsilon_upper, group.delta
        )
    return findings
