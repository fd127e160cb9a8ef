"""What a database must be to be read as a budget book: plain tables.

A view in the place of a table may never end, and a trigger may undo what was just
written; neither is part of any book that privplan made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, Connection, text

from privplan.errors import InputError

PREFIX = "privplan_"
"""How the names of all tables of a book begin; other tables are not its own."""

_SQLITE_OBJECTS = text(
    "SELECT type, name, tbl_name, coalesce(sql, '') AS statement FROM sqlite_master"
)
_SQLITE_COLUMNS = text("SELECT name, hidden FROM pragma_table_xinfo(:table)")
# Kinds of relations of PostgreSQL that a book may have: tables, indices, sequences.
_POSTGRES_RELATIONS = text(
    "SELECT c.relname AS name FROM pg_class c "
    "WHERE pg_table_is_visible(c.oid) AND c.relkind NOT IN ('r', 'i', 'S')"
)
_POSTGRES_TRIGGERS = text(
    "SELECT c.relname AS name, t.tgname AS trigger FROM pg_trigger t "
    "JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal"
)
_POSTGRES_RULES = text("SELECT tablename AS name, rulename AS rule FROM pg_rules")


def column(name: str, kind: Any, **options: Any) -> Column[Any]:
    """A column that has a value in every row.

    Args:
        name: of the column.
        kind: the type of its values, or a foreign key.
        **options: further arguments of ``sqlalchemy.Column``.
    """
    return Column(name, kind, nullable=False, **options)


def require_plain_tables(connection: Connection, shown: str) -> None:
    """Refuse a database whose tables of a book are anything but plain tables.

    Args:
        connection: to the database, in a transaction.
        shown: the address of the book, for the message.

    Raises:
        InputError: naming the first view, trigger, rule or computed column.
    """
    checks = {"sqlite": _odd_in_sqlite, "postgresql": _odd_in_postgres}
    check = checks.get(connection.dialect.name)
    if check is None:
        return
    odd = next(check(connection), None)
    if odd is not None:
        rule = f"must hold plain tables only, as privplan makes them; it has {odd}"
        raise InputError.one("book", rule, shown)


def _odd_in_sqlite(connection: Connection) -> Iterator[str]:
    """Views, triggers, virtual tables and computed columns under names of a book."""
    tables = []
    for row in connection.execute(_SQLITE_OBJECTS).all():
        if not (
            row.name.lower().startswith(PREFIX)
            or row.tbl_name.lower().startswith(PREFIX)
        ):
            continue
        if row.type not in ("table", "index"):
            yield f"the {row.type} {row.name!r}"
        elif row.statement.upper().startswith("CREATE VIRTUAL"):
            yield f"the virtual table {row.name!r}"
        elif row.type == "table":
            tables.append(row.name)
    for table in tables:
        for column in connection.execute(_SQLITE_COLUMNS, {"table": table}).all():
            if column.hidden:
                yield f"the computed column {column.name!r} of {table!r}"


def _odd_in_postgres(connection: Connection) -> Iterator[str]:
    """Views, triggers and rules under names of a book."""
    for relation in connection.execute(_POSTGRES_RELATIONS).all():
        if relation.name.startswith(PREFIX):
            yield f"the view {relation.name!r}"
    for trigger in connection.execute(_POSTGRES_TRIGGERS).all():
        if trigger.name.startswith(PREFIX):
            yield f"the trigger {trigger.trigger!r}"
    for rewriting in connection.execute(_POSTGRES_RULES).all():
        if rewriting.name.startswith(PREFIX):
            yield f"the rule {rewriting.rule!r}"
