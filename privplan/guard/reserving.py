"""A guard that reserves its plan's cost in budget accounts and spends it release by release."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privplan.accounting.release import History
from privplan.book.budgets import DAY, Budgets
from privplan.errors import InputError
from privplan.guard.guard import Guard
from privplan.guard.lines import Released, Sums
from privplan.guard.storage import FOLDER
from privplan.io.files import read_text, write_text
from privplan.plan import Plan

RESERVATION = "reservation"
"""File in the guard's folder with the name of the reservation."""


class ReservingGuard(Guard):
    """A guard whose groups have accounts in a book of budgets.

    The whole plan is reserved when the run starts, or the run is refused; each release is spent
    before it is made, and what was not spent returns when the run finishes. Concurrent runs of
    several guards therefore never overspend an account. A run that is opened again keeps its
    reservation, and spends each round once.

    Args:
        plan: the plan, or its file.
        ledger: the run folder.
        accounts: name of the account of each group.
        book: address of the book with the accounts.
        expires_in: seconds after which nothing more can be spent.
        options: of ``Guard``, without a book of runs.

    Raises:
        InfeasibleError: when an account has too little left for the plan.
        InputError: when a group has no account, or as ``Guard``.
    """

    def __init__(
        self,
        plan: Plan | Path | str,
        ledger: Path | str,
        accounts: Mapping[str, str],
        book: str,
        *,
        expires_in: float = 30 * DAY,
        **options: Any,
    ) -> None:
        super().__init__(plan, ledger, **options)
        try:
            names = [group.name for group in self.plan.groups]
            if set(accounts) != set(names):
                rule = f"must name an account for {', '.join(names)}"
                raise InputError.one("accounts", rule, list(accounts))
            self._accounts = dict(accounts)
            self._book_of_budgets = Budgets(book, existing=True)
            self._reservation = ""
            if not self.finished:
                self._reservation = self._reserved(expires_in)
        except BaseException:
            self._stack.close()
            raise

    def _reserved(self, expires_in: float) -> str:
        """The name of the run's reservation, which is made when the run starts."""
        path = self.folder / FOLDER / RESERVATION
        if not path.exists():
            write_text(path, uuid.uuid4().hex)
        charges: dict[str, History] = {}
        for group in self.plan.groups:
            account = self._accounts[group.name]
            charges[account] = charges.get(account, History()) + self.plan.history(group)
        name = read_text(path, "guard.reservation")
        return self._book_of_budgets.reserve(
            self.plan.spec.name, charges, expires_in=expires_in, reservation=name
        )

    def release(self, round_: int, sums: Sums | None = None) -> Released:
        """As ``Guard.release``, after the release was spent."""
        self._spend(round_)
        return super().release(round_, sums)

    def record_noised(self, round_: int, dimension: int, noise_std: float) -> None:
        """As ``Guard.record_noised``, after the release was spent."""
        self._spend(round_)
        super().record_noised(round_, dimension, noise_std)

    def finish(self) -> None:
        """As ``Guard.finish``; what was not spent returns to the accounts."""
        super().finish()
        if self._reservation:
            self._book_of_budgets.close(self._reservation)
            self._reservation = ""

    def _spend(self, round_: int) -> None:
        if round_ != self.round or self.refusal() is not None:
            return  # a repeated call, or one that is refused
        charges: dict[str, History] = {}
        for name, budget in self._budgets.groups.items():
            account = self._accounts[name]
            one = History([(budget.planned(round_), 1)])
            charges[account] = charges.get(account, History()) + one
        self._book_of_budgets.spend(self._reservation, charges, step=round_)
