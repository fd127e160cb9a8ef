"""The book in a database: adding runs, each once, and reading all runs."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.pool import NullPool

from privplan.accounting.release import GAUSSIAN
from privplan.book.entry import STATE, BookedRun, Booking
from privplan.book.schema import require_plain_tables
from privplan.errors import InputError
from privplan.ledger import LINK
from privplan.names import refuse_look_alike
from privplan.values import parse

# --- Addresses, engines and tables of a budget book: a file, or any database of SQLAlchemy. ------

VARIABLE = "PRIVPLAN_BOOK"
DEFAULT = "book.sqlite"
_WAIT = 60  # seconds to wait for another writer, or for a server to answer
_LONGEST = 200  # most letters of a database's error message that are shown


def address_of(given: str | None) -> sa.URL:
    """URL of a book: the given address, else ``PRIVPLAN_BOOK``, else ``book.sqlite``."""
    text = given or os.environ.get(VARIABLE) or DEFAULT
    if "://" not in text:
        return sa.URL.create("sqlite", database=text)
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        scheme = text.partition("://")[0]
        raise InputError.one(
            "book", "must be a file or an SQLAlchemy address", scheme
        ) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise InputError.one(
            "book", "must be a file, since a book in memory is lost", text
        )
    return url


def shown(url: sa.URL) -> str:
    """The address as text for messages: a file name, or a URL without its password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.render_as_string(hide_password=True)


def engine_of(url: sa.URL, *, write: bool) -> sa.Engine:
    """An engine whose transactions are safe with concurrent writers.

    SQLite: a writer takes the lock when its transaction begins and waits for other writers. Every
    other database: serializable transactions, which the caller repeats on conflicts.
    """
    sqlite = url.get_backend_name() == "sqlite"
    file = sqlite and not str(url.database).startswith("file:")
    if file and not write and not Path(str(url.database)).exists():
        rule = (
            "must be a book that exists; privplan book open, add or declare begins one"
        )
        raise InputError.one("book", rule, shown(url))
    try:
        if sqlite:
            engine = sa.create_engine(
                url, poolclass=NullPool, connect_args={"timeout": _WAIT}
            )
            begin = "BEGIN IMMEDIATE" if write else "BEGIN"

            @sa.event.listens_for(engine, "connect")
            def _disable_driver_transactions(
                connection: object, _record: object
            ) -> None:
                connection.isolation_level = None  # type: ignore[attr-defined]

            @sa.event.listens_for(engine, "begin")
            def _begin(connection: Connection) -> None:
                connection.exec_driver_sql(begin)
                require_plain_tables(connection, shown(url))

            return engine
        waiting = (
            {"connect_timeout": _WAIT} if url.get_backend_name() == "postgresql" else {}
        )
        engine = sa.create_engine(
            url,
            poolclass=NullPool,
            isolation_level="SERIALIZABLE",
            connect_args=waiting,
        )

        @sa.event.listens_for(engine, "begin")
        def _check(connection: Connection) -> None:
            require_plain_tables(connection, shown(url))

        return engine
    except sa.exc.NoSuchModuleError:
        rule = "must be of a kind of database that SQLAlchemy knows"
        raise InputError.one("book", rule, url.drivername) from None
    except ImportError as error:
        hint = (
            "pip install 'privplan[postgres]'"
            if "psycopg" in str(error)
            else str(error)
        )
        rule = f"needs the driver of its database: {hint}"
        raise InputError.one("book", rule, url.drivername) from None
    except (sa.exc.SQLAlchemyError, TypeError, ValueError) as error:
        raise InputError.one(
            "book", f"must be a usable address ({error})", shown(url)
        ) from None


@contextmanager
def refusing(url: sa.URL, rule: str) -> Iterator[None]:
    """Convert errors of a database to one-line errors."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, UnicodeError, OverflowError) as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        line = " ".join(str(cause).split())[:_LONGEST]
        raise InputError.one("book", f"{rule} ({line})", shown(url)) from None


SCHEMA_VERSION = 3
# Versions; adding a run upgrades a book of version 1, without verdicts, or 2, without levels.
READABLE = (1, 2, 3)

METADATA = sa.MetaData()

VERSIONS = sa.Table(
    "privplan_book",
    METADATA,
    sa.Column("schema_version", sa.Integer, primary_key=True, autoincrement=False),
)

RUNS = sa.Table(
    "privplan_book_runs",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("chain", sa.String(64), nullable=False, unique=True),
    sa.Column("plan", sa.String(64), nullable=False, index=True),
    sa.Column("lines", sa.BigInteger, nullable=False),
    sa.Column("population", sa.Text, nullable=False),
    *(
        sa.Column(name, sa.Text, nullable=False)
        for name in ("source", "algorithm", "dataset")
    ),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("links", sa.LargeBinary, nullable=False),
)

VERDICTS = sa.Table(
    "privplan_book_verdicts",
    METADATA,
    sa.Column("run", sa.ForeignKey(RUNS.c.id), primary_key=True, autoincrement=False),
    sa.Column("verdict", sa.String(16), nullable=False),
    sa.Column("cost", sa.String(32), nullable=False),
    sa.Column("states", sa.LargeBinary, nullable=False),
)

SHARES = sa.Table(
    "privplan_book_shares",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("run", sa.ForeignKey(RUNS.c.id), nullable=False, index=True),
    sa.Column("group", sa.Text, nullable=False),
    sa.Column("unit", sa.String(16), nullable=False),
    sa.Column("relation", sa.String(16), nullable=False),
    sa.Column("clients", sa.BigInteger, nullable=False),
    sa.Column("epsilon", sa.Double),
    sa.Column("delta", sa.Double),
)

_LONGEST_LAW = 100
RELEASES = sa.Table(
    "privplan_book_releases",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("share", sa.ForeignKey(SHARES.c.id), nullable=False, index=True),
    sa.Column("noise_multiplier", sa.Double, nullable=False),
    sa.Column("sampling_ratio", sa.Double, nullable=False),
    sa.Column("sampling", sa.String(_LONGEST_LAW), nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
)

FAMILIES = sa.Table(
    "privplan_book_families",
    METADATA,
    sa.Column(
        "release", sa.ForeignKey(RELEASES.c.id), primary_key=True, autoincrement=False
    ),
    sa.Column("family", sa.String(32), nullable=False),
)
"""Noise of releases that is not Gaussian."""

LEVELS = sa.Table(
    "privplan_book_levels",
    METADATA,
    sa.Column("run", sa.ForeignKey(RUNS.c.id), primary_key=True, autoincrement=False),
    sa.Column("level", sa.String(16), nullable=False),
)
"""How strongly the verdict of a run was checked; without rows for runs of earlier versions."""


# --- The book in a database: adding runs, each once, and reading all runs. -----------------------

_ATTEMPTS = 60
_CONFLICTS = ("40001", "40P01", "42P07", "42710", "23505")
"""SQLSTATEs of conflicts between writers: serialization, deadlock, equal names."""
_NO_SEED = -1  # what a column that must hold a number holds for a run without a seed
_SOUND = "must be a sound budget book that can be read"
WRITABLE = "must be a budget book that can be written"

T = TypeVar("T")


@dataclass(frozen=True)
class Added:
    """The outcome of adding a run."""

    # ``added``; ``replaced`` an earlier state of it; ``known`` when the book has the same state;
    # ``judged`` when it has, and the new verdict counts more or is better shown; ``longer`` when
    # the book has a later state
    outcome: Literal["added", "replaced", "known", "judged", "longer"]
    lines: int  # number of its releases in the book before, 0 when none


def add(url: sa.URL, booking: Booking) -> Added:
    """Add a run; one transaction, safe for writers."""

    def work(connection: Connection) -> Added:
        prepare(url, connection)
        return update_run(connection, booking, None)

    engine = engine_of(url, write=True)
    with refusing(url, WRITABLE):
        return repeated(engine, work)


def take_out(connection: Connection, name: str) -> int | None:
    """Remove a reservation, and return its place; None where there is none."""
    known = connection.execute(
        sa.select(RUNS.c.id).where(RUNS.c.chain == name)
    ).scalar()
    if known is not None:
        _remove(connection, known)
    return known


def repeated(engine: sa.Engine, work: Callable[[Connection], T]) -> T:
    """Do the work in a transaction, which is repeated on conflicts with other writers."""
    for attempt in range(_ATTEMPTS):
        try:
            with engine.begin() as connection:
                return work(connection)
        except sa.exc.DBAPIError as error:
            state = getattr(error.orig, "sqlstate", None)
            conflict = isinstance(error, sa.exc.IntegrityError) or state in _CONFLICTS
            if not conflict or attempt == _ATTEMPTS - 1:
                raise
        time.sleep(0.005 * 2 ** min(attempt, 6))
    raise AssertionError("the last attempt returns or raises")


def prepare(url: sa.URL, connection: Connection) -> None:
    """Create the tables that are missing, and bring older ones up to date."""
    METADATA.create_all(connection)
    if connection.execute(sa.select(VERSIONS)).first() is None:
        connection.execute(sa.insert(VERSIONS).values(schema_version=SCHEMA_VERSION))
    else:
        _check_version(url, connection)
        if (
            connection.dialect.name == "postgresql"
        ):  # earlier books have room for short laws only
            columns = sa.inspect(connection).get_columns(RELEASES.name)
            known = {
                one["name"]: getattr(one["type"], "length", None) for one in columns
            }
            if (known["sampling"] or 0) < _LONGEST_LAW:
                wider = f"ALTER COLUMN sampling TYPE VARCHAR({_LONGEST_LAW})"
                connection.execute(sa.text(f"ALTER TABLE {RELEASES.name} {wider}"))
        connection.execute(sa.update(VERSIONS).values(schema_version=SCHEMA_VERSION))


def update_run(connection: Connection, booking: Booking, place: int | None) -> Added:
    """Add a run, or replace its shorter self; at a place in the order of the book, if given."""
    run, before, judged = booking.run, 0, False
    columns = (RUNS.c.id, RUNS.c.chain, RUNS.c.lines, RUNS.c.population, RUNS.c.links)
    for known in connection.execute(
        sa.select(*columns).where(RUNS.c.plan == run.plan)
    ).all():
        grown = booking.continues(known.chain, known.lines)
        older = (
            known.links[(run.lines - 1) * LINK : run.lines * LINK].hex() == run.chain
        )
        if not (grown or older):
            continue
        if known.population != run.population:
            rule = f"must be {known.population!r}, under which the book holds the run"
            raise InputError.one("population", rule, run.population)
        if older and not grown:
            return Added("longer", known.lines)
        if older and not _judged_anew(connection, known.id, run):
            return Added("known", known.lines)
        judged = judged or older
        _remove(connection, known.id)
        before = max(before, known.lines)
        place = known.id if place is None else min(place, known.id)
    _refuse_repeated_noise(connection, booking)
    insert_run(connection, booking, place)
    if judged:
        return Added("judged", before)
    return Added("replaced" if before else "added", before)


_STRENGTH = {"executed": 2, "recorded": 1}
"""How strongly a level of a verdict shows that a run was kept; 0 for all others."""


def _judged_anew(connection: Connection, known: int, run: BookedRun) -> bool:
    """Whether a verdict on a run that the book holds counts more, or shows more, than its own."""
    chosen = sa.select(VERDICTS).where(VERDICTS.c.run == known)
    verdict = connection.execute(chosen).first()
    if verdict is None:  # of version 0.1.0
        return run.verdict is not None
    if run.cost == "infinite":
        return bool(verdict.cost != "infinite")
    chosen = sa.select(LEVELS.c.level).where(LEVELS.c.run == known)
    level = connection.execute(chosen).scalar() or (
        "recorded" if verdict.verdict == "kept" else ""
    )
    return _STRENGTH.get(run.level or "", 0) > _STRENGTH.get(level, 0)


def _refuse_look_alikes(connection: Connection, run: BookedRun) -> None:
    """Refuse a population or group whose name a reader takes for another one of the book."""
    populations = (
        connection.execute(sa.select(RUNS.c.population).distinct()).scalars().all()
    )
    refuse_look_alike("population", run.population, populations)
    joined = SHARES.join(RUNS, RUNS.c.id == SHARES.c.run)
    of_population = RUNS.c.population == run.population
    chosen = (
        sa.select(SHARES.c.group).select_from(joined).where(of_population).distinct()
    )
    groups = connection.execute(chosen).scalars().all()
    for share in run.shares:
        refuse_look_alike("group", share.group, groups)


def _refuse_repeated_noise(connection: Connection, booking: Booking) -> None:
    """Refuse a run whose noise another run of the book has, as runs of one seed do.

    Subtracting two releases with equal noise cancels it. Lines that both runs have in common
    are one release, not two; only lines after those are compared.
    """
    own = _pieces(booking.states, STATE)
    joined = RUNS.join(VERDICTS, VERDICTS.c.run == RUNS.c.id)
    columns = (RUNS.c.source, RUNS.c.links, VERDICTS.c.states)
    for other in connection.execute(sa.select(*columns).select_from(joined)):
        links = zip(
            _pieces(booking.links, LINK), _pieces(other.links, LINK), strict=False
        )
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], links))
        theirs = set(_pieces(other.states, STATE)[common:]) - {bytes(STATE)}
        equal = sum(state in theirs for state in own[common:])
        if equal:
            rule = f"must have noise of its own, not that of {other.source} (the same seed?)"
            raise InputError.one(
                "run", rule, f"{booking.run.source}: {equal} equal noise states"
            )


def _pieces(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


def _remove(connection: Connection, run: int) -> None:
    of_run = sa.select(SHARES.c.id).where(SHARES.c.run == run)
    of_shares = sa.select(RELEASES.c.id).where(RELEASES.c.share.in_(of_run))
    connection.execute(sa.delete(FAMILIES).where(FAMILIES.c.release.in_(of_shares)))
    connection.execute(sa.delete(RELEASES).where(RELEASES.c.share.in_(of_run)))
    connection.execute(sa.delete(SHARES).where(SHARES.c.run == run))
    connection.execute(sa.delete(VERDICTS).where(VERDICTS.c.run == run))
    connection.execute(sa.delete(LEVELS).where(LEVELS.c.run == run))
    connection.execute(sa.delete(RUNS).where(RUNS.c.id == run))


def insert_run(connection: Connection, booking: Booking, place: int | None) -> None:
    """Insert a run; one that grew keeps its place, since the first run fixes the filter's order."""
    run = booking.run
    _refuse_look_alikes(connection, run)
    row = run.model_dump(mode="json", exclude={"shares", "verdict", "cost", "level"})
    row["seed"] = _NO_SEED if run.seed is None else run.seed
    row |= {} if place is None else {"id": place}
    number = _key(
        connection,
        sa.insert(RUNS).values(**row, digest=run.digest, links=booking.links),
    )
    judged = {"verdict": run.verdict, "cost": run.cost, "states": booking.states}
    connection.execute(sa.insert(VERDICTS).values(run=number, **judged))
    if run.level is not None:
        connection.execute(sa.insert(LEVELS).values(run=number, level=run.level))
    for share in run.shares:
        row = share.model_dump(mode="json", exclude={"releases"})
        key = _key(connection, sa.insert(SHARES).values(**row, run=number))
        for one in share.releases:
            row = one.model_dump(mode="json", exclude={"family"})
            release = _key(connection, sa.insert(RELEASES).values(**row, share=key))
            if one.family != GAUSSIAN:
                noise = {"release": release, "family": one.family}
                connection.execute(sa.insert(FAMILIES).values(**noise))


def _key(connection: Connection, statement: sa.Insert) -> int:
    """Insert a row and return its primary key."""
    key = connection.execute(statement).inserted_primary_key
    return int(key[0]) if key is not None else 0


def runs(url: sa.URL) -> tuple[BookedRun, ...]:
    """All runs of the book, in the order in which they were added."""
    engine = engine_of(url, write=False)
    with refusing(url, _SOUND), engine.begin() as connection:
        if not sa.inspect(connection).has_table(VERSIONS.name):
            raise InputError.one(
                "book", f"{_SOUND} (it has no table of runs)", shown(url)
            )
        return booked_runs(url, connection)


def booked_runs(url: sa.URL, connection: Connection) -> tuple[BookedRun, ...]:
    """All runs, within a transaction."""
    _check_version(url, connection)
    columns = [column for column in RUNS.c if column is not RUNS.c.links]
    booked = connection.execute(sa.select(*columns).order_by(RUNS.c.id)).all()
    shares = connection.execute(sa.select(SHARES).order_by(SHARES.c.id)).all()
    releases = connection.execute(sa.select(RELEASES).order_by(RELEASES.c.id)).all()
    verdicts: dict[int, dict[str, Any]] = {}
    families: dict[int, dict[str, Any]] = {}
    if sa.inspect(connection).has_table(VERDICTS.name):  # not in books of version 1
        columns = [VERDICTS.c.run, VERDICTS.c.verdict, VERDICTS.c.cost]
        verdicts = {
            r.run: _plain(r, "run") for r in connection.execute(sa.select(*columns))
        }
    if sa.inspect(connection).has_table(
        LEVELS.name
    ):  # not in books of versions 1 and 2
        for row in connection.execute(sa.select(LEVELS)):
            verdicts.setdefault(row.run, {})["level"] = row.level
    if sa.inspect(connection).has_table(FAMILIES.name):
        rows = connection.execute(sa.select(FAMILIES))
        families = {row.release: _plain(row, "release") for row in rows}
    of_share, of_run = defaultdict(list), defaultdict(list)
    for row in releases:
        of_share[row.share].append(
            {**_plain(row, "id", "share"), **families.get(row.id, {})}
        )
    for row in shares:
        of_run[row.run].append(
            {**_plain(row, "id", "run"), "releases": of_share[row.id]}
        )
    found = []
    for row in booked:
        parts = {**_plain(row, "id", "digest"), "shares": of_run[row.id]}
        parts |= verdicts.get(row.id, {})
        parts["seed"] = None if parts["seed"] == _NO_SEED else parts["seed"]
        run = parse(BookedRun, parts)
        if run.digest != row.digest:
            rule = f"{_SOUND} (run {row.id}, of {run.source}, was edited)"
            raise InputError.one("book", rule, shown(url))
        found.append(run)
    return tuple(found)


def has_runs(url: sa.URL) -> bool:
    """Whether a book that exists has a table of runs; one of budget accounts only has none."""
    with refusing(url, _SOUND):
        return sa.inspect(engine_of(url, write=False)).has_table(VERSIONS.name)


def _check_version(url: sa.URL, connection: Connection) -> None:
    version = connection.execute(sa.select(VERSIONS)).scalar()
    if version not in READABLE:
        rule = f"must be of schema version {SCHEMA_VERSION} or earlier, not {version}"
        raise InputError.one("book", rule, shown(url))


def _plain(row: sa.Row[Any], *without: str) -> dict[str, Any]:
    return {key: value for key, value in row._mapping.items() if key not in without}
