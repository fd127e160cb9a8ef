"""Rows of budget accounts and reservations, and the changes that keep them consistent."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Row, delete, inspect, select, update
from sqlalchemy.engine import Connection

from privplan.accounting.release import History, Relation
from privplan.book import filters, members
from privplan.book.budget_tables import ACCOUNTS, CHARGES, METADATA, RESERVATIONS, STEPS
from privplan.book.database import address_of, engine_of, refusing, shown
from privplan.book.store import repeated
from privplan.errors import InputError

_USABLE = "must be a budget book that can be read and written"

T = TypeVar("T")


def has_accounts(address: str | None) -> bool:
    """Whether a book that exists has budget accounts; nothing is written."""
    url = address_of(address)
    with refusing(url, _USABLE):
        return inspect(engine_of(url, write=False)).has_table(ACCOUNTS.name)


class Rows:
    """Transactions on the tables of budgets.

    Args:
        address: a file or SQLAlchemy address; ``PRIVPLAN_BOOK``, or ``book.sqlite``, by default.
        clock: the time in seconds; for expiry and refills.
        existing: whether the book must have accounts already; otherwise the first transaction
            makes their tables.

    Raises:
        InputError: when the book must exist and does not, or cannot be used.
    """

    def __init__(
        self,
        address: str | None = None,
        clock: Callable[[], float] = time.time,
        *,
        existing: bool = False,
    ) -> None:
        self._url = address_of(address)
        self._clock = clock
        if existing and not has_accounts(address):
            rule = "must be a book with budget accounts (privplan book open makes them)"
            raise InputError.one("book", rule, shown(self._url))
        self._engine = engine_of(self._url, write=True)
        self._tables = False

    def _run(self, work: Callable[[Connection], T]) -> T:
        with refusing(self._url, _USABLE):
            if not self._tables:
                repeated(self._engine, METADATA.create_all)
                self._tables = True
            return repeated(self._engine, work)

    def _account(self, connection: Connection, name: str) -> Row[Any]:
        """The row of an account, refilled where a period has ended."""
        chosen = select(ACCOUNTS).where(ACCOUNTS.c.name == name)
        row = connection.execute(chosen).first()
        if row is None:
            raise InputError.one("account", f"must be in the book {shown(self._url)}", name)
        if row.period is not None:
            ended = math.floor((self._clock() - row.started) / row.period)
            if ended > 0:
                values = {"spent": 0, "started": row.started + ended * row.period}
                one = update(ACCOUNTS).where(ACCOUNTS.c.id == row.id)
                connection.execute(one.values(**values, refills=row.refills + ended))
                if row.members:
                    members.refill(connection, row.id)
                return connection.execute(chosen).one()
        return row

    def _open(self, connection: Connection, reservation: str) -> Row[Any]:
        held = connection.execute(
            select(RESERVATIONS).where(RESERVATIONS.c.id == reservation)
        ).first()
        if held is None or held.status != "open":
            found = "unknown" if held is None else held.status
            raise InputError.one("reservation", f"must be open, not {found}", reservation)
        return held

    def _charges(self, connection: Connection, reservation: str) -> Sequence[Row[Any]]:
        chosen = select(CHARGES).where(CHARGES.c.reservation == reservation)
        return connection.execute(chosen.order_by(CHARGES.c.account)).all()

    def _cost(self, row: Row[Any], history: History) -> int:
        return filters.cost(row.rule, history, Relation(row.relation), row.order)

    def _move(
        self,
        connection: Connection,
        row: Row[Any],
        bits: bytes | None,
        *,
        reserved: int = 0,
        spent: int = 0,
    ) -> None:
        if bits is not None:
            mask = members.unpacked(bits, row.members)
            members.change(connection, row.id, mask, reserved=reserved, spent=spent)
        else:
            self._change(connection, row, reserved=reserved, spent=spent)

    def _change(
        self, connection: Connection, row: Row[Any], *, reserved: int = 0, spent: int = 0
    ) -> None:
        values = {
            "reserved": ACCOUNTS.c.reserved + reserved,
            "spent": ACCOUNTS.c.spent + spent,
        }
        connection.execute(update(ACCOUNTS).where(ACCOUNTS.c.id == row.id).values(**values))

    def _return(self, connection: Connection, reservation: str, status: str) -> None:
        for charge in self._charges(connection, reservation):
            row = connection.execute(select(ACCOUNTS).where(ACCOUNTS.c.id == charge.account)).one()
            left = charge.reserved - charge.spent
            if left:
                self._move(connection, row, charge.bits, reserved=-left)
        connection.execute(delete(STEPS).where(STEPS.c.reservation == reservation))
        held = update(RESERVATIONS).where(RESERVATIONS.c.id == reservation)
        connection.execute(held.values(status=status))

    def _expire(self, connection: Connection) -> None:
        """Return what expired reservations did not spend."""
        late = (RESERVATIONS.c.status == "open", RESERVATIONS.c.expires <= self._clock())
        for name in connection.execute(select(RESERVATIONS.c.id).where(*late)).scalars().all():
            self._return(connection, name, "expired")
