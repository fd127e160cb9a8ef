"""Concurrent writers: different runs, the same run, and a run that grows, all at once."""

from collections import Counter
from pathlib import Path

from privplan.book.entry import booking_of
from privplan.book.store import add, address_of, runs
from tests.book.runs import run
from tests.book.writers import write_at_once

WRITERS = 5
OWN = 6


def test_every_run_is_in_the_book_once(address: str, tmp_path: Path) -> None:
    shared = booking_of(run(tmp_path / "shared", 900), "")
    first = booking_of(run(tmp_path / "first", 902), "")
    assert add(address_of(address), first).outcome == "added"
    grown = [booking_of(run(tmp_path / f"g{n}", 901, rounds=n), "") for n in range(5, 5 + WRITERS)]
    work, expected = [], {first.run.chain, shared.run.chain, grown[-1].run.chain}
    for writer in range(WRITERS):
        seeds = range(1 + writer * OWN, 1 + (writer + 1) * OWN)
        own = [booking_of(run(tmp_path / f"{s}", s, rounds=2), "") for s in seeds]
        expected |= {booking.run.chain for booking in own}
        work.append([grown[writer], shared, *own, shared])
    outcomes = write_at_once(address, work)
    kept = runs(address_of(address))
    assert Counter(one.chain for one in kept) == Counter(expected)
    assert outcomes["known"] == 2 * WRITERS - 1
    assert outcomes["replaced"] + outcomes["longer"] == WRITERS - 1
    assert outcomes["added"] == WRITERS * OWN + 2
