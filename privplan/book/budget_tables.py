"""Tables of budgets over time: accounts, their members, reservations and charges."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData()

ACCOUNTS = Table(
    "privplan_budget_accounts",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", String(400), nullable=False, unique=True),
    Column("rule", String(16), nullable=False),
    Column("relation", String(16), nullable=False),
    Column("epsilon", Double, nullable=False),
    Column("delta", Double, nullable=False),
    Column("order", Integer, nullable=False),
    Column("capacity", BigInteger, nullable=False),
    Column("spent", BigInteger, nullable=False),
    Column("reserved", BigInteger, nullable=False),
    Column("members", BigInteger, nullable=False),
    Column("period", Double),
    Column("started", Double, nullable=False),
    Column("refills", BigInteger, nullable=False),
    Column("sealed", Boolean, nullable=False),
    Column("ceilings", Text, nullable=False),
)

MEMBERS = Table(
    "privplan_budget_members",
    METADATA,
    Column("account", ForeignKey(ACCOUNTS.c.id), primary_key=True, autoincrement=False),
    Column("chunk", Integer, primary_key=True, autoincrement=False),
    Column("spent", LargeBinary, nullable=False),
    Column("reserved", LargeBinary, nullable=False),
)

RESERVATIONS = Table(
    "privplan_budget_reservations",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("run", Text, nullable=False),
    Column("expires", Double, nullable=False),
    Column("status", String(16), nullable=False, index=True),
    Column("step", BigInteger, nullable=False),
)

CHARGES = Table(
    "privplan_budget_charges",
    METADATA,
    Column("reservation", ForeignKey(RESERVATIONS.c.id), primary_key=True),
    Column("account", ForeignKey(ACCOUNTS.c.id), primary_key=True, autoincrement=False),
    Column("reserved", BigInteger, nullable=False),
    Column("spent", BigInteger, nullable=False),
    Column("detail", Text, nullable=False),
    Column("bits", LargeBinary),
)

STEPS = Table(
    "privplan_budget_steps",
    METADATA,
    Column("reservation", ForeignKey(RESERVATIONS.c.id), primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("releases", String(64), nullable=False),
)
"""Hash of what each step of an open reservation spent."""

DECLARED = Table(
    "privplan_budget_declared",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("account", ForeignKey(ACCOUNTS.c.id), nullable=False),
    Column("run", String(400), nullable=False),
    Column("history", Text, nullable=False),
    Column("commitment", String(64), nullable=False),
    Column("used", Boolean, nullable=False),
    UniqueConstraint("account", "run"),
)
