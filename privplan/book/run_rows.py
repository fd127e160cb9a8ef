"""Tables of the runs of a book, and their rows within a transaction."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Double,
    ForeignKey,
    Insert,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    Text,
    delete,
    insert,
    inspect,
    select,
)

from privplan.accounting.release import GAUSSIAN
from privplan.book.database import shown
from privplan.book.entry import BookedRun, Booking, Share
from privplan.book.schema import column
from privplan.errors import InputError
from privplan.names import refuse_look_alike
from privplan.values import parse

SCHEMA_VERSION = 3
# Adding a run upgrades a book of version 1, without verdicts, or 2, without levels.
READABLE = (1, 2, 3)
SOUND = "must be a sound budget book that can be read"

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
    column("chain", String(64), unique=True),
    column("plan", String(64), index=True),
    column("lines", BigInteger),
    column("population", Text),
    column("source", Text),
    column("algorithm", Text),
    column("dataset", Text),
    column("seed", BigInteger),
    column("status", String(16)),
    column("digest", String(64)),
    column("links", LargeBinary),
)

VERDICTS = Table(
    "privplan_book_verdicts",
    METADATA,
    Column("run", ForeignKey(RUNS.c.id), primary_key=True, autoincrement=False),
    column("verdict", String(16)),
    column("cost", String(32)),
    column("states", LargeBinary),
)

SHARES = Table(
    "privplan_book_shares",
    METADATA,
    Column("id", Integer, primary_key=True),
    column("run", ForeignKey(RUNS.c.id), index=True),
    column("group", Text),
    column("unit", String(16)),
    column("relation", String(16)),
    column("clients", BigInteger),
    Column("epsilon", Double),
    Column("delta", Double),
)

LONGEST_LAW = 100  # letters of a sampling law; earlier books had room for 16
RELEASES = Table(
    "privplan_book_releases",
    METADATA,
    Column("id", Integer, primary_key=True),
    column("share", ForeignKey(SHARES.c.id), index=True),
    column("noise_multiplier", Double),
    column("sampling_ratio", Double),
    column("sampling", String(LONGEST_LAW)),
    column("count", BigInteger),
)

FAMILIES = Table(
    "privplan_book_families",
    METADATA,
    Column("release", ForeignKey(RELEASES.c.id), primary_key=True, autoincrement=False),
    column("family", String(32)),
)
"""Noise of releases that is not Gaussian."""

LEVELS = Table(
    "privplan_book_levels",
    METADATA,
    Column("run", ForeignKey(RUNS.c.id), primary_key=True, autoincrement=False),
    column("level", String(16)),
)
"""How strongly the verdict of a run was checked; no rows for runs of earlier versions."""

PERSONS = Table(
    "privplan_book_persons",
    METADATA,
    Column("run", ForeignKey(RUNS.c.id), primary_key=True, autoincrement=False),
    column("person", Text),
)
"""The word of a run's plan for whom it protects; no rows where it has none."""

HOLDER_BYTES = 16  # of a token that no other process has
FENCES = Table(
    "privplan_book_fences",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("holder", String(2 * HOLDER_BYTES), nullable=False),
    Column("counter", BigInteger, nullable=False),
    Column("chain", String(64), nullable=False),
)
"""The guard that may release in each reserved run, and how far it is."""

_NO_SEED = -1  # in a column that must hold a number, for a run without a seed


def insert_run(connection: Connection, booking: Booking, place: int | None) -> None:
    """Insert a run.

    Args:
        connection: an open transaction.
        booking: the run.
        place: in the order of the book; at the end where it is None. A run that grew
            keeps its place, since the first run fixes the filter's order.

    Raises:
        InputError: when a name looks like another one of the book.
    """
    run = booking.run
    _refuse_look_alikes(connection, run)
    in_other_tables = {"shares", "verdict", "cost", "level", "person"}
    row = run.model_dump(mode="json", exclude=in_other_tables)
    row["seed"] = _NO_SEED if run.seed is None else run.seed
    if place is not None:
        row["id"] = place
    inserted = insert(RUNS).values(**row, digest=run.digest, links=booking.links)
    number = _key(connection, inserted)
    verdict = {"verdict": run.verdict, "cost": run.cost, "states": booking.states}
    connection.execute(insert(VERDICTS).values(run=number, **verdict))
    if run.level is not None:
        connection.execute(insert(LEVELS).values(run=number, level=run.level))
    if run.person is not None:
        connection.execute(insert(PERSONS).values(run=number, person=run.person))
    for share in run.shares:
        _insert_share(connection, number, share)


def _insert_share(connection: Connection, run: int, share: Share) -> None:
    row = share.model_dump(mode="json", exclude={"releases"})
    key = _key(connection, insert(SHARES).values(**row, run=run))
    for releases in share.releases:
        row = releases.model_dump(mode="json", exclude={"family"})
        release = _key(connection, insert(RELEASES).values(**row, share=key))
        if releases.family != GAUSSIAN:
            noise = {"release": release, "family": releases.family}
            connection.execute(insert(FAMILIES).values(**noise))


def _refuse_look_alikes(connection: Connection, run: BookedRun) -> None:
    """Refuse a population or group that a reader takes for another one of the book."""
    distinct_populations = select(RUNS.c.population).distinct()
    populations = connection.execute(distinct_populations).scalars().all()
    refuse_look_alike("population", run.population, populations)

    shares_of_runs = SHARES.join(RUNS, RUNS.c.id == SHARES.c.run)
    of_population = RUNS.c.population == run.population
    chosen = select(SHARES.c.group).select_from(shares_of_runs).where(of_population)
    groups = connection.execute(chosen.distinct()).scalars().all()
    for share in run.shares:
        refuse_look_alike("group", share.group, groups)


def _key(connection: Connection, statement: Insert) -> int:
    """Insert a row and return its primary key."""
    key = connection.execute(statement).inserted_primary_key
    if key is not None:
        return int(key[0])
    return 0


def remove_run(connection: Connection, run: int) -> None:
    """Remove all rows of a run, from those that refer to others on."""
    of_run = select(SHARES.c.id).where(SHARES.c.run == run)
    of_shares = select(RELEASES.c.id).where(RELEASES.c.share.in_(of_run))
    connection.execute(delete(FAMILIES).where(FAMILIES.c.release.in_(of_shares)))
    connection.execute(delete(RELEASES).where(RELEASES.c.share.in_(of_run)))
    connection.execute(delete(SHARES).where(SHARES.c.run == run))
    connection.execute(delete(VERDICTS).where(VERDICTS.c.run == run))
    connection.execute(delete(LEVELS).where(LEVELS.c.run == run))
    connection.execute(delete(PERSONS).where(PERSONS.c.run == run))
    connection.execute(delete(RUNS).where(RUNS.c.id == run))


def check_version(url: URL, connection: Connection) -> None:
    """Refuse a book of a later version than this one."""
    version = connection.execute(select(VERSIONS)).scalar()
    if version not in READABLE:
        rule = f"must be of schema version {SCHEMA_VERSION} or earlier, not {version}"
        raise InputError.one("book", rule, shown(url))


def booked_runs(url: URL, connection: Connection) -> tuple[BookedRun, ...]:
    """All runs, in the order in which they were added.

    Raises:
        InputError: when the book is of a later version, or a row was edited.
    """
    check_version(url, connection)
    columns = [column for column in RUNS.c if column is not RUNS.c.links]
    rows = connection.execute(select(*columns).order_by(RUNS.c.id)).all()
    shares = _share_fields(connection)
    verdicts = _verdict_fields(connection)
    booked = []
    for row in rows:
        fields = {**_fields(row, "id", "digest"), "shares": shares[row.id]}
        fields |= verdicts.get(row.id, {})
        if fields["seed"] == _NO_SEED:
            fields["seed"] = None
        run = parse(BookedRun, fields)
        if run.digest != row.digest:
            rule = f"{SOUND} (run {row.id}, of {run.source}, was edited)"
            raise InputError.one("book", rule, shown(url))
        booked.append(run)
    return tuple(booked)


def _share_fields(connection: Connection) -> dict[int, list[dict[str, Any]]]:
    """The fields of all shares with their releases, by run."""
    families: dict[int, dict[str, Any]] = {}
    if inspect(connection).has_table(FAMILIES.name):
        for row in connection.execute(select(FAMILIES)):
            families[row.release] = _fields(row, "release")

    releases: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in connection.execute(select(RELEASES).order_by(RELEASES.c.id)):
        fields = {**_fields(row, "id", "share"), **families.get(row.id, {})}
        releases[row.share].append(fields)

    shares: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in connection.execute(select(SHARES).order_by(SHARES.c.id)):
        fields = {**_fields(row, "id", "run"), "releases": releases[row.id]}
        shares[row.run].append(fields)
    return shares


def _verdict_fields(connection: Connection) -> dict[int, dict[str, Any]]:
    """What is known of the verdicts and of whom plans protect, by run."""
    verdicts: dict[int, dict[str, Any]] = {}
    if inspect(connection).has_table(VERDICTS.name):  # not in books of version 1
        columns = [VERDICTS.c.run, VERDICTS.c.verdict, VERDICTS.c.cost]
        for row in connection.execute(select(*columns)):
            verdicts[row.run] = _fields(row, "run")
    if inspect(connection).has_table(LEVELS.name):  # nor in those of version 2
        for row in connection.execute(select(LEVELS)):
            verdicts.setdefault(row.run, {})["level"] = row.level
    if inspect(connection).has_table(PERSONS.name):
        for row in connection.execute(select(PERSONS)):
            verdicts.setdefault(row.run, {})["person"] = row.person
    return verdicts


def _fields(row: Row[Any], *without: str) -> dict[str, Any]:
    """The columns of a row by name, but for some."""
    return {key: value for key, value in row._mapping.items() if key not in without}
