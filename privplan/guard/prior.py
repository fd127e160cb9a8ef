"""The book of a guarded run: what the groups spent before, and adding the run.

The database library is imported only by a run that has a book.
"""

from __future__ import annotations

from pathlib import Path

from privplan.accounting.release import History
from privplan.errors import InputError
from privplan.ledger import chained
from privplan.plan import Plan
from privplan.record import LEDGER, ReleaseRecord


def prior_history(
    book: str, population: str, plan: Plan, records: list[ReleaseRecord]
) -> dict[str, History]:
    """Releases of each group in the other runs of a book; empty for a new book.

    Args:
        book: address of the book.
        population: whose groups these are.
        plan: the plan of the run.
        records: releases of the run itself, which may be in the book.

    Raises:
        InputError: when the book cannot be read, or has the group with another unit of privacy.
    """
    from privplan.book.database import address_of
    from privplan.book.store import runs

    url = address_of(book)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return {}
    own, chain = set(), plan.digest
    for record in records:
        chain = chained(record, chain)[1]
        own.add(chain)
    found: dict[str, History] = {}
    for run in runs(url):
        if run.population != population or (run.plan == plan.digest and run.chain in own):
            continue
        for share in run.shares:
            if share.unit != plan.unit:
                rule = f"must protect the unit {plan.unit!r} in all runs of the book"
                raise InputError.one(f"groups.{share.group}", rule, share.unit)
            found[share.group] = found.get(share.group, History()) + share.history
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
