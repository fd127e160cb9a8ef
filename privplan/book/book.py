"""The budget book from Python: what groups have spent over all runs, and what is left."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from privplan.accounting.release import History
from privplan.book import spending, store
from privplan.book.entry import BookedRun, booking_of, declared
from privplan.errors import InputError, checked_call
from privplan.values import Shown
from privplan.verification.verify import judge


class Book(Shown):
    """A budget book: a file or an SQLAlchemy address; PRIVPLAN_BOOK or book.sqlite by default.

    >>> book = privplan.Book("book.sqlite")
    >>> book.add("run")
    'added'
    >>> book.left("strict", 20).headroom > 0
    True
    """

    def __init__(self, address: Path | str | None = None) -> None:
        self._url = store.address_of(str(address or ""))
        self.address = store.shown(self._url)

    @checked_call
    def add(
        self, run: Any, population: str = "", *, infinite: bool = False, **judging: Any
    ) -> str:
        """Verify a run (or its folder) and add it once; a broken one at ``infinite`` epsilon.

        ``judging`` are the arguments of ``privplan.judge``, such as ``rounds``.
        """
        booking = booking_of(
            run, population, infinite=infinite, judged=partial(judge, **judging)
        )
        return store.add(self._url, booking).outcome

    @checked_call
    def declare(self, name: str, history: History, **whose: Any) -> str:
        """Add releases that no run has, such as published counts, to a ``group`` of ``clients``."""
        return store.add(self._url, declared(name, history, **whose)).outcome

    @property
    def runs(self) -> tuple[BookedRun, ...]:
        """The runs in the order in which they were added."""
        return store.runs(self._url)

    def spent(
        self, group: str | None = None, **options: Any
    ) -> list[spending.Spending]:
        """Realised epsilon of groups over all runs; of a ``population``, at a ``delta``."""
        found, faults = spending.spendings(self.runs, group=group, **options)
        if faults:
            raise InputError(faults)
        return found

    @checked_call
    def left(
        self,
        group: str,
        epsilon: float,
        *,
        delta: float | None = None,
        population: str = "",
        **next_run: Any,
    ) -> spending.Remaining:
        """What is left of a budget over all runs, and the least noise of a next run.

        A next run has the ``sampling_ratio`` and ``rounds`` of the last one when left out; its
        ``rule`` is exact only where all runs were fixed before the first result.
        """
        account = spending.account_of(
            self.runs, population, group, next_run.pop("relation", None)
        )
        return spending.remaining(
            account, epsilon, spending.delta_for(account, delta), **next_run
        )
