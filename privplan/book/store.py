"""The book in a database: adding a run once, and reading every run."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from sqlalchemy import URL, Engine, Insert, Row, delete, insert, inspect, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError

from privplan.book.database import (
    METADATA,
    RELEASES,
    RUNS,
    SCHEMA_VERSION,
    SHARES,
    VERSIONS,
    engine_of,
    refusing,
    shown,
)
from privplan.book.entry import LINK, BookedRun, Booking
from privplan.errors import InputError
from privplan.values import parse

_ATTEMPTS = 60
_COLLISIONS = ("40001", "40P01", "42P07", "42710", "23505")
"""SQLSTATEs of two writers in each other's way: serialization, deadlock, equal names."""
_SOUND = "must be a sound budget book that can be read"
_WRITABLE = "must be a budget book that can be written"

T = TypeVar("T")


@dataclass(frozen=True)
class Added:
    """What became of a run that was to be added.

    Attributes:
        outcome: ``added``; ``replaced`` its shorter self; ``known`` already; ``longer`` in the
            book than in the folder.
        lines: releases that the book held of it before, 0 when none.
    """

    outcome: Literal["added", "replaced", "known", "longer"]
    lines: int


def add(url: URL, booking: Booking) -> Added:
    """Add a run to the book, once: making the book when there is none.

    Safe beside other writers: the look for the run and its insertion are one transaction.

    Raises:
        InputError: when the book cannot be written, is damaged or of another version, or holds
            the run under another population.
    """
    engine = engine_of(url, write=True)
    with refusing(url, _WRITABLE):
        return _repeated(engine, lambda connection: _add(url, connection, booking))


def _repeated(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Do the work in a transaction, again while other writers are in the way."""
    for attempt in range(_ATTEMPTS):
        try:
            with engine.begin() as connection:
                return work(connection)
        except DBAPIError as error:
            state = getattr(error.orig, "sqlstate", None)
            collided = isinstance(error, IntegrityError) or state in _COLLISIONS
            if not collided or attempt == _ATTEMPTS - 1:
                raise
        time.sleep(0.005 * 2 ** min(attempt, 6))
    raise AssertionError("the last attempt returns or raises")


def _add(url: URL, connection: Connection, booking: Booking) -> Added:
    METADATA.create_all(connection)
    if connection.execute(select(VERSIONS)).first() is None:
        connection.execute(insert(VERSIONS).values(schema_version=SCHEMA_VERSION))
    _check_version(url, connection)
    run, before = booking.run, 0
    columns = (RUNS.c.id, RUNS.c.chain, RUNS.c.lines, RUNS.c.population, RUNS.c.links)
    for known in connection.execute(select(*columns).where(RUNS.c.plan == run.plan)).all():
        grown = booking.continues(known.chain, known.lines)
        older = known.links[(run.lines - 1) * LINK : run.lines * LINK].hex() == run.chain
        if not (grown or older):
            continue
        if known.population != run.population:
            rule = f"must be {known.population!r}, under which the book holds the run"
            raise InputError.one("population", rule, run.population)
        if older:
            return Added("known" if grown else "longer", known.lines)
        _remove(connection, known.id)
        before = max(before, known.lines)
    _insert(connection, booking)
    return Added("replaced" if before else "added", before)


def _remove(connection: Connection, run: int) -> None:
    of_run = select(SHARES.c.id).where(SHARES.c.run == run)
    connection.execute(delete(RELEASES).where(RELEASES.c.share.in_(of_run)))
    connection.execute(delete(SHARES).where(SHARES.c.run == run))
    connection.execute(delete(RUNS).where(RUNS.c.id == run))


def _insert(connection: Connection, booking: Booking) -> None:
    run = booking.run
    row = run.model_dump(mode="json", exclude={"shares"})
    added = insert(RUNS).values(**row, digest=run.digest, links=booking.links)
    number = _key(connection, added)
    for share in run.shares:
        row = share.model_dump(mode="json", exclude={"releases"})
        key = _key(connection, insert(SHARES).values(**row, run=number))
        releases = [{**one.model_dump(mode="json"), "share": key} for one in share.releases]
        if releases:
            connection.execute(insert(RELEASES), releases)


def _key(connection: Connection, statement: Insert) -> int:
    """Insert a row; its primary key."""
    key = connection.execute(statement).inserted_primary_key
    return int(key[0]) if key is not None else 0


def runs(url: URL) -> tuple[BookedRun, ...]:
    """Every run of the book, in the order in which they were added.

    Raises:
        InputError: when there is no such book, it cannot be read, or a row was edited.
    """
    engine = engine_of(url, write=False)
    with refusing(url, _SOUND), engine.begin() as connection:
        if not inspect(connection).has_table(VERSIONS.name):
            raise InputError.one("book", f"{_SOUND} (it has no table of runs)", shown(url))
        _check_version(url, connection)
        columns = [column for column in RUNS.c if column is not RUNS.c.links]
        found = connection.execute(select(*columns).order_by(RUNS.c.id)).all()
        shares = connection.execute(select(SHARES).order_by(SHARES.c.id)).all()
        releases = connection.execute(select(RELEASES).order_by(RELEASES.c.id)).all()
    return _assembled(url, found, shares, releases)


def _check_version(url: URL, connection: Connection) -> None:
    version = connection.execute(select(VERSIONS)).scalar()
    if version != SCHEMA_VERSION:
        rule = f"must be of schema version {SCHEMA_VERSION}, not {version}"
        raise InputError.one("book", rule, shown(url))


def _assembled(url: URL, found: Any, shares: Any, releases: Any) -> tuple[BookedRun, ...]:
    """Rows into values, each compared with the digest that it was written with."""
    of_share, of_run = defaultdict(list), defaultdict(list)
    for row in releases:
        of_share[row.share].append(_plain(row, "id", "share"))
    for row in shares:
        parts = {**_plain(row, "id", "run"), "releases": of_share[row.id]}
        of_run[row.run].append(parts)
    made = []
    for row in found:
        run = parse(BookedRun, {**_plain(row, "id", "digest"), "shares": of_run[row.id]})
        if run.digest != row.digest:
            rule = f"{_SOUND} (run {row.id}, of {run.source}, was edited)"
            raise InputError.one("book", rule, shown(url))
        made.append(run)
    return tuple(made)


def _plain(row: Row[Any], *without: str) -> dict[str, Any]:
    return {key: value for key, value in row._mapping.items() if key not in without}
