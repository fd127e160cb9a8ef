"""Tables of the runs of a book, and their rows within a transaction."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

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
    column("chain", sa.String(64), unique=True),
    column("plan", sa.String(64), index=True),
    column("lines", sa.BigInteger),
    column("population", sa.Text),
    column("source", sa.Text),
    column("algorithm", sa.Text),
    column("dataset", sa.Text),
    column("seed", sa.BigInteger),
    column("status", sa.String(16)),
    column("digest", sa.String(64)),
    column("links", sa.LargeBinary),
)

VERDICTS = sa.Table(
    "privplan_book_verdicts",
    METADATA,
    sa.Column("run", sa.ForeignKey(RUNS.c.id), primary_key=True, autoincrement=False),
    column("verdict", sa.String(16)),
    column("cost", sa.String(32)),
    column("states", sa.LargeBinary),
)

SHARES = sa.Table(
    "privplan_book_shares",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    column("run", sa.ForeignKey(RUNS.c.id), index=True),
    column("group", sa.Text),
    column("unit", sa.String(16)),
    column("relation", sa.String(16)),
    column("clients", sa.BigInteger),
    sa.Column("epsilon", sa.Double),
    sa.Column("delta", sa.Double),
)

LONGEST_LAW = 100  # letters of a sampling law; earlier books had room for 16
RELEASES = sa.Table(
    "privplan_book_releases",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    column("share", sa.ForeignKey(SHARES.c.id), index=True),
    column("noise_multiplier", sa.Double),
    column("sampling_ratio", sa.Double),
    column("sampling", sa.String(LONGEST_LAW)),
    column("count", sa.BigInteger),
)

FAMILIES = sa.Table(
    "privplan_book_families",
    METADATA,
    sa.Column(
        "release", sa.ForeignKey(RELEASES.c.id), primary_key=True, autoincrement=False
    ),
    column("family", sa.String(32)),
)
"""Noise of releases that is not Gaussian."""

LEVELS = sa.Table(
    "privplan_book_levels",
    METADATA,
    sa.Column("run", sa.ForeignKey(RUNS.c.id), primary_key=True, autoincrement=False),
    column("level", sa.String(16)),
)
"""How strongly the verdict of a run was checked; no rows for runs of earlier versions."""

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
    row = run.model_dump(mode="json", exclude={"shares", "verdict", "cost", "level"})
    row["seed"] = _NO_SEED if run.seed is None else run.seed
    if place is not None:
        row["id"] = place
    inserted = sa.insert(RUNS).values(**row, digest=run.digest, links=booking.links)
    number = _key(connection, inserted)
    verdict = {"verdict": run.verdict, "cost": run.cost, "states": booking.states}
    connection.execute(sa.insert(VERDICTS).values(run=number, **verdict))
    if run.level is not None:
        connection.execute(sa.insert(LEVELS).values(run=number, level=run.level))
    for share in run.shares:
        _insert_share(connection, number, share)


def _insert_share(connection: Connection, run: int, share: Share) -> None:
    row = share.model_dump(mode="json", exclude={"releases"})
    key = _key(connection, sa.insert(SHARES).values(**row, run=run))
    for releases in share.releases:
        row = releases.model_dump(mode="json", exclude={"family"})
        release = _key(connection, sa.insert(RELEASES).values(**row, share=key))
        if releases.family != GAUSSIAN:
            noise = {"release": release, "family": releases.family}
            connection.execute(sa.insert(FAMILIES).values(**noise))


def _refuse_look_alikes(connection: Connection, run: BookedRun) -> None:
    """Refuse a population or group that a reader takes for another one of the book."""
    distinct_populations = sa.select(RUNS.c.population).distinct()
    populations = connection.execute(distinct_populations).scalars().all()
    refuse_look_alike("population", run.population, populations)

    shares_of_runs = SHARES.join(RUNS, RUNS.c.id == SHARES.c.run)
    of_population = RUNS.c.population == run.population
    chosen = sa.select(SHARES.c.group).select_from(shares_of_runs).where(of_population)
    groups = connection.execute(chosen.distinct()).scalars().all()
    for share in run.shares:
        refuse_look_alike("group", share.group, groups)


def _key(connection: Connection, statement: sa.Insert) -> int:
    """Insert a row and return its primary key."""
    key = connection.execute(statement).inserted_primary_key
    return int(key[0]) if key is not None else 0


def remove_run(connection: Connection, run: int) -> None:
    """Remove all rows of a run, from those that refer to others on."""
    of_run = sa.select(SHARES.c.id).where(SHARES.c.run == run)
    of_shares = sa.select(RELEASES.c.id).where(RELEASES.c.share.in_(of_run))
    connection.execute(sa.delete(FAMILIES).where(FAMILIES.c.release.in_(of_shares)))
    connection.execute(sa.delete(RELEASES).where(RELEASES.c.share.in_(of_run)))
    connection.execute(sa.delete(SHARES).where(SHARES.c.run == run))
    connection.execute(sa.delete(VERDICTS).where(VERDICTS.c.run == run))
    connection.execute(sa.delete(LEVELS).where(LEVELS.c.run == run))
    connection.execute(sa.delete(RUNS).where(RUNS.c.id == run))


def check_version(url: sa.URL, connection: Connection) -> None:
    """Refuse a book of a later version than this one."""
    version = connection.execute(sa.select(VERSIONS)).scalar()
    if version not in READABLE:
        rule = f"must be of schema version {SCHEMA_VERSION} or earlier, not {version}"
        raise InputError.one("book", rule, shown(url))


def booked_runs(url: sa.URL, connection: Connection) -> tuple[BookedRun, ...]:
    """All runs, in the order in which they were added.

    Raises:
        InputError: when the book is of a later version, or a row was edited.
    """
    check_version(url, connection)
    columns = [column for column in RUNS.c if column is not RUNS.c.links]
    rows = connection.execute(sa.select(*columns).order_by(RUNS.c.id)).all()
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
    if sa.inspect(connection).has_table(FAMILIES.name):
        for row in connection.execute(sa.select(FAMILIES)):
            families[row.release] = _fields(row, "release")

    releases: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in connection.execute(sa.select(RELEASES).order_by(RELEASES.c.id)):
        fields = {**_fields(row, "id", "share"), **families.get(row.id, {})}
        releases[row.share].append(fields)

    shares: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in connection.execute(sa.select(SHARES).order_by(SHARES.c.id)):
        fields = {**_fields(row, "id", "run"), "releases": releases[row.id]}
        shares[row.run].append(fields)
    return shares


def _verdict_fields(connection: Connection) -> dict[int, dict[str, Any]]:
    """What is known of the verdicts, by run."""
    verdicts: dict[int, dict[str, Any]] = {}
    if sa.inspect(connection).has_table(VERDICTS.name):  # not in books of version 1
        columns = [VERDICTS.c.run, VERDICTS.c.verdict, VERDICTS.c.cost]
        for row in connection.execute(sa.select(*columns)):
            verdicts[row.run] = _fields(row, "run")
    if sa.inspect(connection).has_table(LEVELS.name):  # nor in those of version 2
        for row in connection.execute(sa.select(LEVELS)):
            verdicts.setdefault(row.run, {})["level"] = row.level
    return verdicts


def _fields(row: sa.Row[Any], *without: str) -> dict[str, Any]:
    """The columns of a row by name, but for some."""
    return {key: value for key, value in row._mapping.items() if key not in without}
