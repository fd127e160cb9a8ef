"""Concurrent writers: different runs, the same run, and a run that grows, all at once."""

import multiprocessing
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privplan.book.entry import Booking, booking_of
from privplan.book.store import add, address_of, runs
from tests.book.runs import run

WRITERS = 4
OWN = 3


def _write(barrier: Any, results: Any, address: str, bookings: Sequence[Booking]) -> None:
    url = address_of(address)
    barrier.wait()
    results.put([add(url, booking).outcome for booking in bookings])


def write_at_once(address: str, work: Sequence[Sequence[Booking]]) -> Counter[str]:
    """Let one process a list of bookings add them, all at once; counts of the outcomes."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(len(work)), context.Queue()
    processes = [
        context.Process(target=_write, args=(barrier, results, address, bookings))
        for bookings in work
    ]
    for process in processes:
        process.start()
    outcomes: Counter[str] = Counter()
    for _ in processes:
        outcomes.update(results.get(timeout=120))
    for process in processes:
        process.join()
    results.close()
    assert [process.exitcode for process in processes] == [0] * len(work)
    return outcomes


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
