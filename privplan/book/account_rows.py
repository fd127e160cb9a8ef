"""Tables of budget accounts, and their rows within a transaction.

Books of earlier versions may have accounts with members, a refill period or declared
runs (rule ``exact``), which are refused; their columns are still written.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from privplan.accounting.accountant import at_most
from privplan.accounting.release import History, Release
from privplan.book import filters
from privplan.book.filters import Filter
from privplan.book.schema import column
from privplan.errors import InputError

METADATA = MetaData()

ACCOUNTS = Table(
    "privplan_budget_accounts",
    METADATA,
    Column("id", Integer, primary_key=True),
    column("name", String(400), unique=True),
    column("rule", String(16)),
    column("relation", String(16)),
    column("epsilon", Double),
    column("delta", Double),
    column("order", Integer),
    column("capacity", BigInteger),
    column("spent", BigInteger),
    column("reserved", BigInteger),
    column("members", BigInteger),
    Column("period", Double),
    column("started", Double),
    column("refills", BigInteger),
    column("sealed", Boolean),
    column("ceilings", Text),
)

RESERVATIONS = Table(
    "privplan_budget_reservations",
    METADATA,
    Column("id", String(40), primary_key=True),
    column("run", Text),
    column("expires", Double),
    column("status", String(16), index=True),
    column("step", BigInteger),
)

CHARGES = Table(
    "privplan_budget_charges",
    METADATA,
    Column("reservation", ForeignKey(RESERVATIONS.c.id), primary_key=True),
    Column("account", ForeignKey(ACCOUNTS.c.id), primary_key=True, autoincrement=False),
    column("reserved", BigInteger),
    column("spent", BigInteger),
    column("detail", Text),
)
"""What a reservation holds of an account; ``detail``: spent by each account below."""

STEPS = Table(
    "privplan_budget_steps",
    METADATA,
    Column("reservation", ForeignKey(RESERVATIONS.c.id), primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    column("releases", String(64)),
)
"""Hash of what each step of an open reservation spent."""

UNUSED_COLUMNS = {"members": 0, "refills": 0, "sealed": False}
"""Columns of accounts that only earlier versions used, but that must have a value."""


@dataclass(frozen=True)
class State:
    """An account at one moment.

    Attributes:
        epsilon: the budget.
        delta: its failure probability.
        spent: upper bound on the epsilon of what was spent, chosen adaptively.
        committed: the same for what was spent and what is reserved.
        capacity: the budget in units of the rule.
        spent_units: spent, in units.
        reserved_units: reserved, in units.
    """

    name: str
    rule: str
    relation: str
    epsilon: float
    delta: float
    spent: float
    committed: float
    capacity: int
    spent_units: int
    reserved_units: int


def find_account(connection: Connection, name: str) -> Row[Any] | None:
    """The row of an account; None without such an account."""
    return connection.execute(select(ACCOUNTS).where(ACCOUNTS.c.name == name)).first()


def account_by_id(connection: Connection, account: int) -> Row[Any]:
    """The row of an account to which a charge refers."""
    return connection.execute(select(ACCOUNTS).where(ACCOUNTS.c.id == account)).one()


def require_supported(row: Row[Any]) -> Row[Any]:
    """The row of an account, if it is of a kind that is still there.

    Raises:
        InputError: when it was made for members, a refill period or declared runs.
    """
    if row.members or row.period is not None:
        rule = (
            "with members or a refill period was removed in 0.2; use accounts of groups"
        )
        raise InputError.one("account", rule, row.name)
    if row.rule not in get_args(Filter):
        rule = (
            "of declared runs (exact) was removed in 0.2; use one with the rule renyi"
        )
        raise InputError.one("account", rule, row.name)
    return row


def state_of(row: Row[Any], run_units: int) -> State:
    """The state of an account's row.

    Args:
        row: of the account.
        run_units: what the runs of the book cost it, which were not reserved in it.
    """
    spent_units = min(row.spent + run_units, filters.MOST_UNITS)
    return State(
        name=row.name,
        rule=row.rule,
        relation=row.relation,
        epsilon=row.epsilon,
        delta=row.delta,
        spent=_epsilon_of(row, spent_units),
        committed=_epsilon_of(row, spent_units + row.reserved),
        capacity=row.capacity,
        spent_units=spent_units,
        reserved_units=row.reserved,
    )


def refusal(row: Row[Any], run_units: int, units: int) -> str:
    """Why further units do not fit into an account.

    Args:
        row: of the account.
        run_units: what the runs of the book cost it.
        units: the further ones.
    """
    spent_units = row.spent + run_units
    committed_units = spent_units + row.reserved
    spent = _epsilon_of(row, spent_units)
    committed = _epsilon_of(row, committed_units)
    with_run = _epsilon_of(row, committed_units + units)
    return (
        f"{row.name}: of epsilon {row.epsilon:g} at delta {row.delta:.4g} "
        f"({row.rule} filter), {at_most(spent, 6)} is spent and "
        f"{at_most(committed, 6)} with reservations; with this run it would be "
        f"{at_most(with_run, 6)}"
    )


def _epsilon_of(row: Row[Any], units: int) -> float:
    """Upper bound on the epsilon of so many units of an account."""
    return filters.spent_epsilon(row.rule, units, row.delta, row.order)


def change(
    connection: Connection, account: int, *, reserved: int = 0, spent: int = 0
) -> None:
    """Add units to what is reserved and spent of an account."""
    values = {
        "reserved": ACCOUNTS.c.reserved + reserved,
        "spent": ACCOUNTS.c.spent + spent,
    }
    connection.execute(
        update(ACCOUNTS).where(ACCOUNTS.c.id == account).values(**values)
    )


def open_reservation(connection: Connection, reservation: str) -> Row[Any]:
    """The row of a reservation that is open.

    Raises:
        InputError: when it is unknown, closed or expired.
    """
    row = connection.execute(
        select(RESERVATIONS).where(RESERVATIONS.c.id == reservation)
    ).first()
    if row is None or row.status != "open":
        status = "unknown" if row is None else row.status
        raise InputError.one("reservation", f"must be open, not {status}", reservation)
    return row


def charges_of(connection: Connection, reservation: str) -> Sequence[Row[Any]]:
    """What a reservation holds of each account."""
    chosen = select(CHARGES).where(CHARGES.c.reservation == reservation)
    return connection.execute(chosen.order_by(CHARGES.c.account)).all()


def end_reservation(connection: Connection, reservation: str, status: str) -> None:
    """End a reservation; what it did not spend returns to the accounts."""
    for charge in charges_of(connection, reservation):
        # Members of earlier versions had rows of their own, which nobody reads now.
        if not account_by_id(connection, charge.account).members:
            unspent = charge.reserved - charge.spent
            change(connection, charge.account, reserved=-unspent)
    connection.execute(delete(STEPS).where(STEPS.c.reservation == reservation))
    ended = update(RESERVATIONS).where(RESERVATIONS.c.id == reservation)
    connection.execute(ended.values(status=status))


def is_repeated(
    connection: Connection,
    reservation: Row[Any],
    step: int,
    charges: Mapping[str, History],
) -> bool:
    """Whether a step was spent already; a new one is noted with its releases.

    Args:
        connection: an open transaction.
        reservation: its row.
        step: the step, larger than those before it unless it is repeated.
        charges: account to releases.

    Raises:
        InputError: when the step was spent with other releases, or never and later ones
            were.
    """
    plain = {name: _text_of(charges[name]) for name in sorted(charges)}
    releases = hashlib.sha256(json.dumps(plain).encode()).hexdigest()
    if step > reservation.step:
        row = {"reservation": reservation.id, "step": step, "releases": releases}
        connection.execute(insert(STEPS).values(**row))
        return False

    where = (STEPS.c.reservation == reservation.id, STEPS.c.step == step)
    spent = connection.execute(select(STEPS.c.releases).where(*where)).scalar()
    if spent is None:
        rule = (
            f"must be larger than {reservation.step}, the last one that was spent, or "
            "one of those"
        )
        raise InputError.one("step", rule, step)
    if spent != releases:
        rule = (
            "was spent with other releases; it must be repeated with the same, or be a "
            "new one"
        )
        raise InputError.one("step", rule, step)
    return True


def _text_of(history: History) -> str:
    """A history as JSON text, of which a step's hash is taken."""
    rows = [[*_fields(release), count] for release, count in history]
    return json.dumps(rows, allow_nan=False)


def _fields(release: Release) -> list[Any]:
    noise: float | str = release.noise_multiplier
    if math.isinf(release.noise_multiplier):  # JSON has no number for it
        noise = "inf"
    return [noise, release.sampling_ratio, str(release.sampling), release.family]
