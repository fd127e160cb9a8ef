"""A guarded run in a budget book: what other runs spent, and what it reserves.

Imported only by a run that has a book, since it needs the database library.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sqlalchemy import URL, Connection

from privplan.accounting.release import History, Relation
from privplan.book.accounts import Budgets
from privplan.book.composition import Composition, composition_of
from privplan.book.database import address_of, shown
from privplan.book.entry import FOR_GOOD, BookedRun, Booking, Cost, booking, reservation
from privplan.book.reservations import FencedError, Reservation, has_reserved
from privplan.book.spending import account_of, full_name, groups_of
from privplan.book.store import add
from privplan.errors import InputError
from privplan.files import read_text, write_text
from privplan.guard.budgets import GroupBudget, affordable_rounds, budgets_of
from privplan.guard.opening import OTHER_BOOK
from privplan.guard.storage import Storage
from privplan.ledger import history_of
from privplan.names import refuse_names
from privplan.plan import Plan
from privplan.record import LEDGER, ReleaseRecord
from privplan.verification.verify import judge, load_run


class RunInBook:
    """A guarded run in its book, where what it may still release is reserved.

    Of two copies of the run folder the one that was opened last goes on: it holds a
    fence in the book, which every release has to pass.

    Args:
        address: of the book.
        population: whose groups these are.
        folder: the run folder.
        plan: of the run.
        storage: the run's files.
        is_running: whether the run may release more.

    Attributes:
        budgets: of the groups, with the other runs of the book and their accounts.
        affordable_rounds: how many first rounds these afford, and the run reserved.
        lost: why another copy of the folder goes on; empty where this one does.

    Raises:
        InputError: when it is another book than the one in which the run reserved, or
            another population.
        FencedError: when the folder lacks a release of its run.
    """

    def __init__(
        self,
        address: str,
        population: str,
        folder: Path,
        plan: Plan,
        storage: Storage,
        *,
        is_running: bool,
    ) -> None:
        self.lost = ""
        self._population = population
        self._folder = folder
        self._plan = plan
        self._storage = storage
        refuse_names({"population": population})
        url = address_of(address)
        is_new = not storage.reservation.exists()
        self._name = _reserved_name(url, storage)
        chains = frozenset(storage.chains)

        accounts = Budgets(address)

        def decide(
            connection: Connection, booked: tuple[BookedRun, ...]
        ) -> Booking | None:
            self._refuse_other_population(booked, chains)
            # What the run reserved before is decided anew.
            booked = tuple(run for run in booked if run.chain != self._name)
            past = past_runs(booked, population, plan, chains)
            runs_of_others = other_runs(booked, plan, chains)
            limits = {}
            for group in plan.groups:
                name = full_name(population, group.name)
                of_group = accounts.limits_within(connection, name, runs_of_others)
                for limit in of_group:
                    if limit.relation != plan.spec.relation:
                        rule = (
                            f"must be {limit.relation}, that of account {limit.where}"
                        )
                        raise InputError.one("relation", rule, plan.spec.relation)
                limits[group.name] = of_group
            self.budgets = budgets_of(plan, past, limits)
            self.affordable_rounds = affordable_rounds(self.budgets)
            return self._to_come(booked_lines(booked, plan, chains), is_running)

        self._reservation = Reservation(url, self._name, str(folder))
        try:
            self._reservation.take(_chains_to_go_on(storage), storage.chain, decide)
        except InputError:
            if is_new:  # nothing was reserved under that name
                storage.reservation.unlink()
            raise

    def _refuse_other_population(
        self, booked: Sequence[BookedRun], chains: Collection[str]
    ) -> None:
        """Refuse to go on with the run as one of other people than those of its rounds.

        Args:
            booked: the runs of the book.
            chains: the hashes of the run's ledger, see ``Storage.chains``.

        Raises:
            InputError: when the book has releases of the run, or its reservation, under
                another population.
        """
        for run in booked:
            is_booked = run.plan == self._plan.digest and run.chain in chains
            is_this_run = is_booked or run.chain == self._name
            if is_this_run and run.population != self._population:
                rule = f"must be {run.population!r}, under which the book holds the run"
                raise InputError.one("population", rule, self._population)

    def _whole_run(self, is_running: bool) -> dict[str, History]:
        """What the run released, and the planned rounds that the budgets afford."""
        return whole_run(
            self._storage.records,
            self.budgets,
            next_round=self._storage.round + 1,
            last_round=self.affordable_rounds if is_running else 0,
        )

    def _to_come(self, lines: int, is_running: bool) -> Booking | None:
        """What the book has to hold beside so many lines of the ledger.

        These are the releases since, and the planned ones up to the last that the
        budgets afford; None without any.
        """
        releases = not_booked(
            self._whole_run(is_running), self._storage.records[:lines]
        )
        if not releases:
            return None
        folder = self._folder.resolve()
        return reservation(self._plan, self._name, folder, self._population, releases)

    def pass_fence(self, records: Sequence[ReleaseRecord]) -> None:
        """Move the fence past a stored release, which may be handed out then.

        The release is on disk before: after a kill it is the one that is handed out. A
        guard that lost the fence removes it.

        Args:
            records: the lines of the release.

        Raises:
            FencedError: when another copy of the folder was opened since.
        """
        try:
            self._reservation.move(self._storage.chain_with(records))
        except FencedError as error:
            self._storage.remove_release(records[0].round)
            self.lost = str(error)
            raise

    def settle(self, *, is_running: bool) -> None:
        """Add the run to the book; what it may still release stays reserved.

        Without a draw nothing does: whoever removes the folder gives all back. A guard
        that lost the fence adds nothing: the copy that took it has all its releases.
        """
        if not self.lost:
            to_come = None
            if self._storage.has_begun:
                to_come = self._to_come(len(self._storage.records), is_running)
            executed = executed_run(self._folder, self._population)
            self._reservation.settle(executed, to_come)


def _chains_to_go_on(storage: Storage) -> list[str]:
    """The ledger's hashes that at most one released round follows.

    A guard that is killed leaves one round that did not pass the fence. More are of a
    folder that was filled by hand, or beside an older state of the book.
    """
    chains = [storage.chain]
    released = set()
    lines = zip(reversed(storage.records), reversed(storage.chains[:-1]), strict=True)
    for record, chain in lines:
        if not record.failure:
            released.add(record.round)
        if len(released) > 1:
            break
        chains.append(chain)
    return chains


def _reserved_name(url: URL, storage: Storage) -> str:
    """The name under which a run reserves in a book; a new one before its first draw.

    Raises:
        InputError: when the run has begun without this book.
    """
    path = storage.reservation
    if path.exists():
        name = read_text(path, "guard.reserved")
        if has_reserved(url, name):
            return name
        if storage.has_begun:
            raise InputError.one("book", OTHER_BOOK, shown(url))
    elif storage.has_begun:
        # It may be a copy that shares cohorts with another one, or made up.
        rule = (
            "must be named from the first round on; privplan book add adds a run that "
            "has begun without it"
        )
        raise InputError.one("book", rule, f"round {storage.last_drawn}")
    # Also of a run that reserved in another book: a copy may go on there by that name.
    name = f"reserved-{uuid.uuid4().hex}"
    write_text(path, name)
    return name


def booked_lines(
    booked: Sequence[BookedRun], plan: Plan, chains: Collection[str]
) -> int:
    """How many lines of the run's ledger the book holds.

    Args:
        booked: the runs of the book.
        plan: of the run.
        chains: the hashes of its ledger, see ``Storage.chains``.
    """
    states = (run for run in booked if run.plan == plan.digest and run.chain in chains)
    return max((state.lines for state in states), default=0)


def other_runs(
    booked: Sequence[BookedRun], plan: Plan, chains: Collection[str]
) -> list[BookedRun]:
    """The runs of a book without the releases of this run; as ``booked_lines``."""
    return [run for run in booked if run.plan != plan.digest or run.chain not in chains]


def past_runs(
    booked: Sequence[BookedRun], population: str, plan: Plan, chains: Collection[str]
) -> dict[str, Composition]:
    """The other runs of each group in a book, with what runs that train reserved in it.

    They are composed by the rule and against the budget over all runs that the plan
    stores, where it was made from a book; else by a filter, against the plan's budget
    of the group. The releases of this run itself, which may be in the book, are left
    out.

    Raises:
        InputError: when the book has a group with another unit of privacy, or the rule
            does not cover its releases.
    """
    plan.refuse_in_book()
    past = other_runs(booked, plan, chains)
    stored = {budget.group: budget for budget in plan.book or ()}
    groups = {group.name: group for group in plan.groups}
    compositions: dict[str, Composition] = {}
    for _, name in groups_of(past, population):
        if name not in groups:
            continue
        group = groups[name]
        # With the run's own entry, since the first run of the book fixes the filter.
        account = account_of(booked, population, name, Relation(plan.spec.relation))
        if account.unit != plan.unit:
            rule = f"must protect the unit {plan.unit!r} in all runs of the book"
            raise InputError.one(f"groups.{name}", rule, account.unit)
        if name in stored:
            planned = stored[name]
            composition = composition_of(
                account, planned.budget, group.delta, planned.rule
            )
        else:
            composition = composition_of(account, group.epsilon, group.delta)
        history = account_of(past, population, name, account.relation).history
        compositions[name] = replace(composition, past=history)
        _ = compositions[name].fits(History())  # refuses what the rule does not cover
    return compositions


def whole_run(
    records: Sequence[ReleaseRecord],
    budgets: Mapping[str, GroupBudget],
    next_round: int,
    last_round: int,
) -> dict[str, History]:
    """What each group's clients see of a run.

    Args:
        records: its releases.
        budgets: of its groups, by name.
        next_round: the first of the planned rounds to count beside them.
        last_round: the last one.
    """
    return {
        name: history_of(records, name, budget.planned_rounds(next_round, last_round))
        for name, budget in budgets.items()
    }


def not_booked(
    whole_run: Mapping[str, History], booked: Sequence[ReleaseRecord]
) -> dict[str, History]:
    """What is in a whole run and not in the lines that the book holds; maybe empty."""
    missing = {}
    for name, history in whole_run.items():
        done = dict(history_of(booked, name))
        missing[name] = History(
            (release, count - done.get(release, 0)) for release, count in history
        )
    if any(history.rounds for history in missing.values()):
        return missing
    return {}


def executed_run(folder: Path, population: str) -> Booking | None:
    """The run at its cost, as the guard executed it; None without a release."""
    run = load_run(folder) if (folder / LEDGER).exists() else None
    if run is None or not run.ledger.records:
        return None
    verdict = judge(run, 0)  # a deployment, which cannot be executed again
    cost: Cost = FOR_GOOD if verdict.failed else "recorded"
    return booking(run, folder, population, verdict.outcome, cost, verdict.level)


def add_to_book(book: str, population: str, folder: Path) -> None:
    """Add a run that had no book when it was executed."""
    executed = executed_run(folder, population)
    if executed is not None:
        add(address_of(book), executed)
