"""The database of a budget book: a file, or any database of SQLAlchemy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, make_url
from sqlalchemy.pool import NullPool

from privplan.book.schema import require_plain_tables
from privplan.errors import InputError

VARIABLE = "PRIVPLAN_BOOK"
DEFAULT = "book.sqlite"
_WAIT = 60  # seconds to wait for another writer, or for a server to answer
_LONGEST = 200  # most letters of a database's error message that are shown

_ATTEMPTS = 60  # with pauses of 17 seconds in all
_SHORTEST_PAUSE = 0.005  # seconds; each pause is twice the last one
_MOST_DOUBLINGS = 6  # up to a third of a second

# SQLSTATEs of conflicts between writers: serialization, deadlock, equal names.
_CONFLICTS = ("40001", "40P01", "42P07", "42710", "23505")

T = TypeVar("T")


def address_of(address: str | None) -> URL:
    """URL of a book: the address, else ``PRIVPLAN_BOOK``, else ``book.sqlite``.

    Args:
        address: a file name, or an SQLAlchemy URL; None or empty for the default.

    Raises:
        InputError: when it is not an address, or is that of a database in memory.
    """
    text = address or os.environ.get(VARIABLE) or DEFAULT
    if "://" not in text and text != ":memory:":
        return URL.create("sqlite", database=text)
    try:
        url = make_url(text)
    except (exc.ArgumentError, ValueError):
        # Only the scheme is shown: what follows may be a password.
        scheme = text.partition("://")[0]
        rule = "must be a file or an SQLAlchemy address"
        raise InputError.one("book", rule, scheme) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        rule = "must be a file, since a book in memory is lost"
        raise InputError.one("book", rule, text)
    return url


def shown(url: URL) -> str:
    """The address as text for messages: a file name, or a URL without its password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.render_as_string(hide_password=True)


def is_missing(url: URL) -> bool:
    """Whether a book is a plain file that does not exist."""
    is_file = url.get_backend_name() == "sqlite"
    is_plain_file = is_file and not str(url.database).startswith("file:")
    return is_plain_file and not Path(str(url.database)).exists()


def engine_of(url: URL, *, write: bool) -> Engine:
    """An engine whose transactions are safe with concurrent writers.

    SQLite: a writer takes the lock when its transaction begins and waits for other
    writers. Every other database: serializable transactions, which the caller repeats
    on conflicts.

    Args:
        url: the book.
        write: whether transactions write.

    Raises:
        InputError: when the kind of database is unknown, its driver is not installed,
            or there is no such file to read.
    """
    try:
        if url.get_backend_name() == "sqlite":
            return _sqlite_engine(url, write=write)
        return _server_engine(url)
    except exc.NoSuchModuleError:
        rule = "must be of a kind of database that SQLAlchemy knows"
        raise InputError.one("book", rule, url.drivername) from None
    except ImportError as error:
        hint = str(error)
        if "psycopg" in hint:
            hint = "pip install 'privplan[postgres]'"
        rule = f"needs the driver of its database: {hint}"
        raise InputError.one("book", rule, url.drivername) from None
    except (exc.SQLAlchemyError, TypeError, ValueError) as error:
        rule = f"must be a usable address ({error})"
        raise InputError.one("book", rule, shown(url)) from None


def _sqlite_engine(url: URL, *, write: bool) -> Engine:
    """An engine of a file that begins transactions itself, in place of the driver.

    The driver would begin them at the first statement that writes, after others have
    read what the transaction depends on.
    """
    if not write and is_missing(url):
        rule = (
            "must be a book that exists; privplan book open, add or declare begins one"
        )
        raise InputError.one("book", rule, shown(url))

    waiting = {"timeout": _WAIT}
    engine = create_engine(url, poolclass=NullPool, connect_args=waiting)
    begin = "BEGIN IMMEDIATE" if write else "BEGIN"

    @event.listens_for(engine, "connect")
    def _disable_driver_transactions(connection: object, _record: object) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined]

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)
        require_plain_tables(connection, shown(url))

    return engine


def _server_engine(url: URL) -> Engine:
    """An engine of a database server."""
    waiting = {}
    if url.get_backend_name() == "postgresql":
        waiting = {"connect_timeout": _WAIT}
    engine = create_engine(
        url, poolclass=NullPool, isolation_level="SERIALIZABLE", connect_args=waiting
    )

    @event.listens_for(engine, "begin")
    def _check(connection: Connection) -> None:
        require_plain_tables(connection, shown(url))

    return engine


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
    except (exc.SQLAlchemyError, UnicodeError, OverflowError) as error:
        if isinstance(error, exc.DBAPIError):
            cause = error.orig
        else:
            cause = error
        line = " ".join(str(cause).split())[:_LONGEST]
        raise InputError.one("book", f"{rule} ({line})", shown(url)) from None


def repeated(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Do the work in a transaction, again on conflicts with other writers."""
    for attempt in range(_ATTEMPTS):
        try:
            with engine.begin() as connection:
                return work(connection)
        except exc.DBAPIError as error:
            state = getattr(error.orig, "sqlstate", None)
            is_integrity_error = isinstance(error, exc.IntegrityError)
            is_conflict = is_integrity_error or state in _CONFLICTS
            if not is_conflict or attempt == _ATTEMPTS - 1:
                raise
        time.sleep(_SHORTEST_PAUSE * 2 ** min(attempt, _MOST_DOUBLINGS))
    raise AssertionError("the last attempt returns or raises")
