"""Members of a budget account: what each of up to millions of people has spent and reserved.

Members are numbered from 0. Their units are stored as arrays of 65,536 members per row, so that a
reservation for a million members reads and writes 16 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Row, insert, select, update
from sqlalchemy.engine import Connection

from privplan.book.budget_tables import MEMBERS
from privplan.errors import InfeasibleError, InputError

CHUNK = 65_536
Mask = NDArray[np.bool_]


def mask_of(count: int, members: Sequence[int] | NDArray[np.integer] | None) -> Mask:
    """Which members take part, shape (count,); all of them for None.

    Raises:
        InputError: when a number is not a member.
    """
    if members is None:
        return np.ones(count, dtype=np.bool_)
    chosen = np.asarray(members)
    if chosen.size and (chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= count):
        raise InputError.one("members", f"must be whole numbers below {count}", members)
    mask = np.zeros(count, dtype=np.bool_)
    mask[chosen.astype(np.int64)] = True
    return mask


def packed(mask: Mask) -> bytes:
    """The mask as bits."""
    return np.packbits(mask).tobytes()


def unpacked(bits: bytes, count: int) -> Mask:
    """The mask from bits."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=count).astype(np.bool_)


def create(connection: Connection, account: int, count: int) -> None:
    """Rows for all members of an account, nothing spent."""
    for chunk in range(-(-count // CHUNK)):
        size = min(CHUNK, count - chunk * CHUNK)
        empty = np.zeros(size, dtype="<i8").tobytes()
        row = {"account": account, "chunk": chunk, "spent": empty, "reserved": empty}
        connection.execute(insert(MEMBERS).values(**row))


def change(
    connection: Connection,
    account: int,
    mask: Mask,
    *,
    reserved: int = 0,
    spent: int = 0,
    capacity: int | None = None,
) -> None:
    """Add units to the members of a mask.

    Args:
        connection: an open transaction.
        account: key of the account.
        mask: whom to change.
        reserved: units to add to what is reserved; negative to take away.
        spent: units to add to what is spent.
        capacity: refuse when a member has less than ``reserved`` left of this; None: no limit.

    Raises:
        InfeasibleError: when a member has too little left.
    """
    for chunk, row in _rows(connection, account):
        part = mask[chunk * CHUNK : (chunk + 1) * CHUNK]
        if not part.any():
            continue
        used = np.frombuffer(row.spent, "<i8").copy()
        held = np.frombuffer(row.reserved, "<i8").copy()
        if capacity is not None:
            short = part & (capacity - used - held < reserved)
            if short.any():
                first = chunk * CHUNK + int(np.flatnonzero(short)[0])
                raise InfeasibleError(f"member {first}: the budget left is less than the cost")
        held[part] += reserved
        used[part] += spent
        _write(connection, account, chunk, used, held)


def refill(connection: Connection, account: int) -> None:
    """Set what all members have spent to nothing; reservations stay."""
    for chunk, row in _rows(connection, account):
        held = np.frombuffer(row.reserved, "<i8")
        _write(connection, account, chunk, np.zeros_like(held), held)


def totals(connection: Connection, account: int) -> tuple[int, int]:
    """The most that any member has spent, and the most that any has spent and reserved."""
    most = both = 0
    for _, row in _rows(connection, account):
        used, held = np.frombuffer(row.spent, "<i8"), np.frombuffer(row.reserved, "<i8")
        most, both = max(most, int(used.max())), max(both, int((used + held).max()))
    return most, both


def _rows(connection: Connection, account: int) -> list[tuple[int, Row[Any]]]:
    chosen = select(MEMBERS).where(MEMBERS.c.account == account).order_by(MEMBERS.c.chunk)
    return [(row.chunk, row) for row in connection.execute(chosen).all()]


def _write(
    connection: Connection,
    account: int,
    chunk: int,
    used: NDArray[np.int64],
    held: NDArray[np.int64],
) -> None:
    connection.execute(
        update(MEMBERS)
        .where(MEMBERS.c.account == account, MEMBERS.c.chunk == chunk)
        .values(spent=used.tobytes(), reserved=held.tobytes())
    )
