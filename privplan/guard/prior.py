"""The book of a guarded run: what the groups spent before, and adding the run.

The database library is imported only by a run that has a book.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from privplan.accounting.release import History, Relation
from privplan.errors import InputError
from privplan.ledger import chained
from privplan.plan import Plan
from privplan.record import LEDGER, ReleaseRecord
from privplan.spec.tuning import refuse_in_book

if TYPE_CHECKING:
    from privplan.book.rules import Composition


def past_runs(
    book: str, population: str, plan: Plan, records: list[ReleaseRecord]
) -> dict[str, Composition]:
    """The other runs of each group in a book; empty for a new book.

    They are composed by the rule and against the budget over all runs that the plan stores, where
    it was made from a book; else by a filter, against the plan's budget of the group.

    Args:
        book: address of the book.
        population: whose groups these are.
        plan: the plan of the run.
        records: releases of the run itself, which may be in the book.

    Raises:
        InputError: when the book cannot be read, has the group with another unit of privacy, or
            the rule does not cover its releases.
    """
    from privplan.book.database import address_of
    from privplan.book.rules import composition_of
    from privplan.book.spending import account_of, groups_of
    from privplan.book.store import has_runs, runs

    refuse_in_book(plan.spec.tuning)
    url = address_of(book)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return {}
    if not has_runs(url):
        return {}
    own, chain = set(), plan.digest
    for record in records:
        chain = chained(record, chain)[1]
        own.add(chain)
    booked = runs(url)
    others = [run for run in booked if run.plan != plan.digest or run.chain not in own]
    stored = {one.group: one for one in plan.book or ()}
    groups = {group.name: group for group in plan.groups}
    found: dict[str, Composition] = {}
    for _, name in groups_of(others, population):
        if name not in groups:
            continue
        group, planned = groups[name], stored.get(name)
        # With the run's own entry, since the first run of the book fixes the filter.
        account = account_of(booked, population, name, Relation(plan.spec.relation))
        if account.unit != plan.unit:
            rule = f"must protect the unit {plan.unit!r} in all runs of the book"
            raise InputError.one(f"groups.{name}", rule, account.unit)
        budget, rule_ = group.epsilon, None
        if planned is not None:
            budget, rule_ = planned.budget, planned.rule
        composition = composition_of(account, budget, group.delta, rule_)
        past = account_of(others, population, name, account.relation).history
        found[name] = replace(composition, past=past)
        _ = found[name].fits(History())  # refuses releases that the rule does not cover
    return found


def add_to_book(book: str, population: str, folder: Path) -> None:
    """Add the run to the book, at the cost that its ledger records.

    The guard executed law and noise itself, so that missing evidence does not raise the cost.

    Raises:
        InputError: when the book cannot be written.
    """
    from privplan.book.database import address_of
    from privplan.book.entry import Cost, booking
    from privplan.book.store import add
    from privplan.verification.verify import judge, load_run

    if not (folder / LEDGER).exists():  # nothing was released
        return
    run = load_run(folder)
    if not run.ledger.records:
        return
    verdict = judge(run)
    cost: Cost = "infinite" if verdict.failed else "recorded"
    add(address_of(book), booking(run, folder, population, verdict.outcome, cost))
