"""Several processes that write one book at the same moment."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Sequence
from typing import Any

from privplan.book.entry import Booking
from privplan.book.store import add, address_of


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
