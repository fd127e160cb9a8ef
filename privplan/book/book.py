"""The budget book from Python: what groups spent over all runs, and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NotRequired, TypedDict, Unpack

from privplan.accounting.release import History, Relation
from privplan.book import store
from privplan.book.accounts import Budgets, has_accounts
from privplan.book.composition import BookRule
from privplan.book.database import address_of, shown
from privplan.book.entry import BookedRun, booking_of, declared
from privplan.book.remaining import Remaining, remaining
from privplan.book.spending import Spending, account_of, delta_for, spendings
from privplan.errors import InputError
from privplan.guidance import called_first, checked_call, explained_init
from privplan.values import Named, Shown
from privplan.verification.verify import judge


class Judging(TypedDict, total=False):
    """Arguments of ``privplan.judge``."""

    rounds: int | str
    options: Mapping[str, Any]
    trusted: Iterable[object]
    noise_key: Path


class Counting(TypedDict, total=False):
    """Whose releases are composed, and what epsilon counts."""

    population: str
    delta: float


class Spent(Counting, total=False):
    """The same, and which data sets are neighbours."""

    relation: Relation


class Declared(Counting):
    """The people whose releases are declared."""

    group: str
    clients: int
    relation: NotRequired[str]


class NextRun(TypedDict, total=False):
    """A run that is planned; ratio and rounds are the last run's when left out."""

    sampling_ratio: float
    rounds: int
    rule: BookRule  # exact only where all runs were fixed before the first result


@explained_init
class Book(Shown):
    """A budget book: a file or an SQLAlchemy address.

    Args:
        address: of the book; by default that in ``PRIVPLAN_BOOK``, or ``book.sqlite``.

    >>> book = privplan.Book("book.sqlite")
    >>> book.add("run")
    'added'
    >>> book.left("strict", 20).headroom > 0
    True
    """

    def __init__(self, address: Path | str | None = None) -> None:
        self._text = str(address or "")
        self._url = address_of(self._text)
        self.address = shown(self._url)

    @checked_call
    def add(
        self,
        run: Any,
        population: str = "",
        *,
        infinite: bool = False,
        **judging: Unpack[Judging],
    ) -> str:
        """Verify a run and add it once.

        Args:
            run: the run or its folder.
            population: whose groups these are.
            infinite: whether a broken run is added, at infinite epsilon.
            **judging: the arguments of ``privplan.judge``, such as ``rounds``.

        Returns:
            What became of it, as ``store.Added`` says.

        Raises:
            InputError: when it is no run, or the book cannot take it.
            BrokenRunError: when it is broken, unless ``infinite``.
        """
        judged = partial(judge, **judging)
        booking = booking_of(run, population, infinite=infinite, judged=judged)
        return store.add(self._url, booking).outcome

    @checked_call
    def declare(self, name: str, history: History, **whose: Unpack[Declared]) -> str:
        """Add releases that no run has, such as published counts.

        Args:
            name: of the declaration, which counts once.
            history: the releases.
            **whose: ``group`` and number of ``clients``; also ``population``,
                ``relation`` and ``delta``.

        Returns:
            What became of them, as ``store.Added`` says.
        """
        return store.add(self._url, declared(name, history, **whose)).outcome

    @property
    def runs(self) -> tuple[BookedRun, ...]:
        """The runs in the order in which they were added."""
        return store.runs(self._url)

    @called_first
    @checked_call
    def spent(
        self, group: str | None = None, **options: Unpack[Spent]
    ) -> Named[Spending]:
        """Realised epsilon of groups over all runs, in order or by their names.

        Args:
            group: only groups of this name.
            **options: a ``population``, a ``delta`` or a ``relation``.

        Raises:
            InputError: with the faults of all groups that cannot be composed.
        """
        spent, faults = spendings(self.runs, group=group, **options)
        if faults:
            raise InputError(faults)
        return Named(spent)

    @checked_call
    def left(
        self,
        group: str,
        epsilon: float,
        *,
        delta: float | None = None,
        population: str = "",
        relation: Relation | None = None,
        **next_run: Unpack[NextRun],
    ) -> Remaining:
        """What is left of a budget over all runs, and the least noise of a next run.

        Args:
            group: whose budget.
            epsilon: the budget.
            delta: its failure probability; by default that of the runs' plans.
            population: of the group.
            relation: which data sets are neighbours; that of the runs by default.
            **next_run: its ``sampling_ratio`` and ``rounds``, which are those of the
                last run when left out; a ``rule``, which is exact only where all runs
                were fixed before the first result.

        Raises:
            InputError: when the group's account has something spent or reserved, which
                is not among the runs.
            InfeasibleError: when nothing is left.
        """
        account = account_of(self.runs, population, group, relation)
        if has_accounts(self._text):
            limits = Budgets(self._text).limits(account.where)
            if limits and limits[0].units:
                rule = (
                    "must have nothing spent or reserved in its account, which left does "
                    "not count (privplan book budgets, solve --from-book)"
                )
                raise InputError.one("group", rule, account.where)
        return remaining(account, epsilon, delta_for(account, delta), **next_run)
