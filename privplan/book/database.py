"""Addresses, engines and tables of a budget book: a file, or any database of SQLAlchemy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Double,
    Engine,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.engine import Connection
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from privplan.errors import InputError

VARIABLE = "PRIVPLAN_BOOK"
DEFAULT = "book.sqlite"
_WAIT = 60
"""Seconds to wait for another writer, or for a server to answer."""
_LONGEST = 200
"""Most letters of a database's error message that are shown."""


def address_of(given: str | None) -> URL:
    """URL of a book: the given address, else ``PRIVPLAN_BOOK``, else ``book.sqlite``.

    Args:
        given: a file name, or an SQLAlchemy URL; None or empty for the default.

    Raises:
        InputError: when it is not an address, or is that of a database in memory.
    """
    text = given or os.environ.get(VARIABLE) or DEFAULT
    if "://" not in text:
        return URL.create("sqlite", database=text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        scheme = text.partition("://")[0]
        raise InputError.one("book", "must be a file or an SQLAlchemy address", scheme) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise InputError.one("book", "must be a file, since a book in memory is lost", text)
    return url


def shown(url: URL) -> str:
    """The address as text for messages: a file name, or a URL without its password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.render_as_string(hide_password=True)


def engine_of(url: URL, *, write: bool) -> Engine:
    """An engine whose transactions are safe with concurrent writers.

    SQLite: a writer takes the lock when its transaction begins and waits for other writers. Every
    other database: serializable transactions, which the caller repeats on conflicts.

    Args:
        url: the book.
        write: whether transactions write.

    Raises:
        InputError: when the kind of database is unknown, its driver is not installed, or
            there is no such file to read.
    """
    sqlite = url.get_backend_name() == "sqlite"
    file = sqlite and not str(url.database).startswith("file:")
    if file and not write and not Path(str(url.database)).exists():
        rule = "must be a book that exists (privplan book add makes it)"
        raise InputError.one("book", rule, shown(url))
    try:
        if sqlite:
            engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": _WAIT})
            _begin_with(engine, "BEGIN IMMEDIATE" if write else "BEGIN")
            return engine
        waiting = {"connect_timeout": _WAIT} if url.get_backend_name() == "postgresql" else {}
        return create_engine(
            url, poolclass=NullPool, isolation_level="SERIALIZABLE", connect_args=waiting
        )
    except NoSuchModuleError:
        rule = "must be of a kind of database that SQLAlchemy knows"
        raise InputError.one("book", rule, url.drivername) from None
    except ImportError as error:
        hint = "pip install 'privplan[postgres]'" if "psycopg" in str(error) else str(error)
        rule = f"needs the driver of its database: {hint}"
        raise InputError.one("book", rule, url.drivername) from None
    except (SQLAlchemyError, TypeError, ValueError) as error:
        raise InputError.one("book", f"must be a usable address ({error})", shown(url)) from None


def _begin_with(engine: Engine, statement: str) -> None:
    """Begin SQLite transactions by this statement, in SQLAlchemy instead of in the driver."""

    @event.listens_for(engine, "connect")
    def _disable_driver_transactions(connection: object, _record: object) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined]

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(statement)


@contextmanager
def refusing(url: URL, rule: str) -> Iterator[None]:
    """Convert errors of a database to one-line errors.

    Args:
        url: the book.
        rule: what the book must be, for the message.

    Raises:
        InputError: for any error of the database or its driver.
    """
    try:
        yield
    except DBAPIError as error:
        raise InputError.one("book", f"{rule} ({_line(error.orig)})", shown(url)) from None
    except (SQLAlchemyError, UnicodeError, OverflowError) as error:
        raise InputError.one("book", f"{rule} ({_line(error)})", shown(url)) from None


def _line(error: BaseException | None) -> str:
    return " ".join(str(error).split())[:_LONGEST]


SCHEMA_VERSION = 2
READABLE = (1, 2)
"""Versions that can be read; adding a run upgrades a book of version 1, which has no verdicts."""

METADATA = MetaData()

VERSIONS = Table(
    "privplan_book",
    METADATA,
    Column("schema_version", Integer, primary_key=True, autoincrement=False),
)

RUNS = Table(
    "privplan_book_runs",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("chain", String(64), nullable=False, unique=True),
    Column("plan", String(64), nullable=False, index=True),
    Column("lines", BigInteger, nullable=False),
    Column("population", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("algorithm", Text, nullable=False),
    Column("dataset", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("status", String(16), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("links", LargeBinary, nullable=False),
)

VERDICTS = Table(
    "privplan_book_verdicts",
    METADATA,
    Column("run", ForeignKey(RUNS.c.id), primary_key=True, autoincrement=False),
    Column("verdict", String(16), nullable=False),
    Column("cost", String(32), nullable=False),
    Column("states", LargeBinary, nullable=False),
)

SHARES = Table(
    "privplan_book_shares",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run", ForeignKey(RUNS.c.id), nullable=False, index=True),
    Column("group", Text, nullable=False),
    Column("unit", String(16), nullable=False),
    Column("relation", String(16), nullable=False),
    Column("clients", BigInteger, nullable=False),
    Column("epsilon", Double),
    Column("delta", Double),
)

RELEASES = Table(
    "privplan_book_releases",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("share", ForeignKey(SHARES.c.id), nullable=False, index=True),
    Column("noise_multiplier", Double, nullable=False),
    Column("sampling_ratio", Double, nullable=False),
    Column("sampling", String(16), nullable=False),
    Column("count", BigInteger, nullable=False),
)

FAMILIES = Table(
    "privplan_book_families",
    METADATA,
    Column("release", ForeignKey(RELEASES.c.id), primary_key=True, autoincrement=False),
    Column("family", String(32), nullable=False),
)
"""Noise of releases that is not Gaussian."""
