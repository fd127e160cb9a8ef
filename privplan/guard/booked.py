"""A guarded run in a budget book: what other runs spent, and what it reserves.

Imported only by a run that has a book, since it needs the database library.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from privplan.accounting.release import History, Relation
from privplan.book.composition import Composition, composition_of
from privplan.book.database import address_of
from privplan.book.entry import BookedRun, Booking, Cost, booking
from privplan.book.spending import account_of, groups_of
from privplan.book.store import add
from privplan.errors import InputError
from privplan.guard.rounds import GroupBudget
from privplan.ledger import history_of
from privplan.plan import Plan
from privplan.record import LEDGER, ReleaseRecord
from privplan.verification.verify import judge, load_run


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


def past_runs(
    booked: Sequence[BookedRun], population: str, plan: Plan, chains: Collection[str]
) -> dict[str, Composition]:
    """The other runs of each group in a book, with what runs that train reserved in it.

    They are composed by the rule and against the budget over all runs that the plan
    stores, where it was made from a book; else by a filter, against the plan's budget
    of the group. The releases of this run itself, which may be in the book, are left
    out.
    """
    plan.refuse_in_book()
    past = [run for run in booked if run.plan != plan.digest or run.chain not in chains]
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
        name: history_of(records, name, budget.to_come(next_round, last_round))
        for name, budget in budgets.items()
    }


def not_booked(
    whole: Mapping[str, History], booked: Sequence[ReleaseRecord]
) -> dict[str, History]:
    """What is in a whole run and not in the lines that the book holds; maybe empty."""
    missing = {}
    for name, history in whole.items():
        done = dict(history_of(booked, name))
        missing[name] = History(
            (release, count - done.get(release, 0)) for release, count in history
        )
    return missing if any(history.rounds for history in missing.values()) else {}


def executed_run(folder: Path, population: str) -> Booking | None:
    """The run at its cost, as the guard executed it; None without a release."""
    run = load_run(folder) if (folder / LEDGER).exists() else None
    if run is None or not run.ledger.records:
        return None
    verdict = judge(run, 0)  # a deployment, which cannot be executed again
    cost: Cost = "infinite" if verdict.failed else "recorded"
    return booking(run, folder, population, verdict.outcome, cost, verdict.level)


def add_to_book(book: str, population: str, folder: Path) -> None:
    """Add a run that had no book when it was executed."""
    executed = executed_run(folder, population)
    if executed is not None:
        add(address_of(book), executed)
