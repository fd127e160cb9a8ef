"""Adding runs to a book, each once, and reading all runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from sqlalchemy import URL, Connection, insert, inspect, select, text, update

from privplan.book.database import engine_of, refusing, repeated, shown
from privplan.book.entry import (
    FOR_GOOD,
    NO_STATE,
    STATE,
    BookedRun,
    Booking,
    link_after,
)
from privplan.book.run_rows import (
    FENCES,
    LEVELS,
    LONGEST_LAW,
    METADATA,
    RELEASES,
    RUNS,
    SCHEMA_VERSION,
    SOUND,
    VERDICTS,
    VERSIONS,
    booked_runs,
    check_version,
    insert_run,
    remove_run,
)
from privplan.errors import InputError
from privplan.ledger import LINK

WRITABLE = "must be a budget book that can be written"

# How strongly a level of a verdict shows that a run was kept; 0 for all others.
_STRENGTH = {"executed": 2, "recorded": 1}


Outcome = Literal["added", "replaced", "known", "judged", "longer"]


@dataclass(frozen=True)
class Added:
    """The outcome of adding a run.

    Attributes:
        outcome: ``added``; ``replaced`` an earlier state of it; ``known`` when the book
            has the same state; ``judged`` when it has, and the new verdict counts more
            or is better shown; ``longer`` when the book has a later state.
        lines: number of its releases in the book before, 0 when none.
        run: as it was to be added; at infinite epsilon where the book has it so for
            good.
    """

    outcome: Outcome
    lines: int
    run: BookedRun


def add(url: URL, booking: Booking) -> Added:
    """Add a run to the book, unless the book has it; the book is created if missing.

    Safe with concurrent writers: search and insertion are one transaction.

    Raises:
        InputError: when the book cannot be written, is damaged or of another version,
            has the run under another population, or has a run with the same noise.
    """

    def work(connection: Connection) -> Added:
        prepare(url, connection)
        return update_run(connection, booking, None)

    engine = engine_of(url, write=True)
    with refusing(url, WRITABLE):
        return repeated(engine, work)


def take_out(connection: Connection, name: str) -> int | None:
    """Remove a reservation, and return its place; None where there is none."""
    chosen = select(RUNS.c.id).where(RUNS.c.chain == name)
    place = connection.execute(chosen).scalar()
    if place is not None:
        remove_run(connection, place)
    return place


def prepare(url: URL, connection: Connection) -> None:
    """Create the tables that are missing, and bring older ones up to date."""
    METADATA.create_all(connection)
    if connection.execute(select(VERSIONS)).first() is None:
        connection.execute(insert(VERSIONS).values(schema_version=SCHEMA_VERSION))
        return
    check_version(url, connection)

    # Earlier books have room for short laws only. SQLite ignores the length of a text.
    if connection.dialect.name == "postgresql":
        columns = inspect(connection).get_columns(RELEASES.name)
        types = {column["name"]: column["type"] for column in columns}
        if (getattr(types["sampling"], "length", None) or 0) < LONGEST_LAW:
            wider = f"ALTER COLUMN sampling TYPE VARCHAR({LONGEST_LAW})"
            connection.execute(text(f"ALTER TABLE {RELEASES.name} {wider}"))
    connection.execute(update(VERSIONS).values(schema_version=SCHEMA_VERSION))


def update_run(connection: Connection, booking: Booking, place: int | None) -> Added:
    """Add a run, or replace its shorter self.

    Args:
        connection: an open transaction.
        booking: the run.
        place: in the order of the book; by default that of its shorter self, or the
            end.

    Raises:
        InputError: when the book has the run under another population, or a later state
            of one to be booked at infinite epsilon, or has a run with the same noise,
            or a copy of it that went apart.
    """
    lines_before = 0
    is_judged_anew = False
    of_reservation = select(RUNS.c.population).where(RUNS.c.chain == booking.reserved)
    for population in connection.execute(of_reservation).scalars():
        _refuse_other_population(booking.run, population)
    of_plan = select(RUNS).where(RUNS.c.plan == booking.run.plan)
    for row in connection.execute(of_plan).all():
        run = booking.run
        # Equal ledgers are both: each continues the other by no line.
        continues_row = booking.continues(row.chain, row.lines)
        row_continues = link_after(row.links, run.lines) == run.chain
        if not (continues_row or row_continues):
            continue
        _refuse_other_population(run, row.population)
        is_for_good = _is_for_good(connection, row.id)
        if is_for_good:
            run = booking.for_good().run
        if row_continues and not continues_row:
            if run.cost == FOR_GOOD and not is_for_good:
                rule = (
                    f"must be the one that the book holds, of {row.lines} releases, to "
                    "be booked at infinite epsilon"
                )
                raise InputError.one("run", rule, f"its first {run.lines}")
            return Added("longer", row.lines, run)
        if is_for_good:
            booking = booking.for_good()
        elif row_continues and _is_of_guard(connection, booking, row.id):
            run = run.model_copy(update={"cost": "recorded"})
            return Added("known", row.lines, run)
        if row_continues:
            has_ended = run.status == "complete" and row.status == "running"
            if not _counts_more(connection, row.id, run, has_ended):
                return Added("known", row.lines, run)
            is_judged_anew = True
        remove_run(connection, row.id)
        lines_before = max(lines_before, row.lines)
        place = row.id if place is None else min(place, row.id)

    _refuse_repeated_noise(connection, booking)
    insert_run(connection, booking, place)
    outcome: Outcome = "replaced" if lines_before else "added"
    if is_judged_anew:
        outcome = "judged"
    return Added(outcome, lines_before, booking.run)


def _refuse_other_population(run: BookedRun, population: str) -> None:
    """Refuse to add a run as one of other people than the book has it, or reserves."""
    if run.population != population:
        rule = f"must be {population!r}, under which the book holds the run"
        raise InputError.one("population", rule, run.population)


def _counts_more(
    connection: Connection, run_id: int, run: BookedRun, has_ended: bool
) -> bool:
    """Whether a new verdict on a run counts more, or shows more, than the book's.

    Of a run that has ended since, one that counts as much says more: no further
    release follows.
    """
    chosen = select(VERDICTS).where(VERDICTS.c.run == run_id)
    verdict = connection.execute(chosen).first()
    if verdict is None:  # of version 0.1.0
        return run.verdict is not None
    if run.cost != "recorded":
        return bool(verdict.cost != run.cost) or has_ended
    if verdict.cost == "infinite":  # for want of what is there now
        return True

    # Books before levels executed nothing again.
    of_run = select(LEVELS.c.level).where(LEVELS.c.run == run_id)
    level = connection.execute(of_run).scalar()
    if not level and verdict.verdict == "kept":
        level = "recorded"
    strength = _STRENGTH.get(run.level or "", 0)
    booked_strength = _STRENGTH.get(level or "", 0)
    return strength > booked_strength or (has_ended and strength == booked_strength)


def _is_of_guard(connection: Connection, booking: Booking, run_id: int) -> bool:
    """Whether a run that lacks evidence was booked by the guard that executed it."""
    of_run = select(VERDICTS.c.cost).where(VERDICTS.c.run == run_id)
    is_booked = connection.execute(of_run).scalar() == "recorded"
    of_guard = select(FENCES.c.chain).where(FENCES.c.name == booking.reserved)
    fence = connection.execute(of_guard).scalar()
    # The name is in a file of the folder; the fence is after one of the run's lines.
    hashes = {link_after(booking.links, 1 + line) for line in range(booking.run.lines)}
    return booking.run.cost == "infinite" and is_booked and fence in hashes


def _is_for_good(connection: Connection, run_id: int) -> bool:
    """Whether somebody booked a run at infinite epsilon, which no evidence takes back.

    Whoever removes the evidence of a fault, adds a line to the ledger, or executes
    another round than the one with the fault, would make it cost less.
    """
    chosen = select(VERDICTS).where(VERDICTS.c.run == run_id)
    verdict = connection.execute(chosen).first()
    if verdict is None:  # of version 0.1.0
        return False
    # Earlier books say infinite of both kinds; without evidence it was unverified.
    was_chosen = verdict.cost == "infinite" and verdict.verdict != "unverified"
    return bool(was_chosen or verdict.cost == FOR_GOOD)


def _refuse_repeated_noise(connection: Connection, booking: Booking) -> None:
    """Refuse a run whose noise or cohorts another run of the book has.

    Subtracting two releases with equal noise cancels it: runs of one seed have it.
    Lines that both runs have in common are one release, not two; only lines after those
    are compared. Two copies of a folder that went apart have cohorts in common, those
    of the round that was open, so that their releases do not compose as independent
    draws.

    Raises:
        InputError: naming the other run.
    """
    states = _pieces(booking.states, STATE)
    links = _pieces(booking.links, LINK)
    runs_with_verdicts = RUNS.join(VERDICTS, VERDICTS.c.run == RUNS.c.id)
    columns = (RUNS.c.source, RUNS.c.links, VERDICTS.c.states)
    chosen = select(*columns).select_from(runs_with_verdicts)
    for row in connection.execute(chosen):
        common = _common_lines(links, _pieces(row.links, LINK))
        booked_states = set(_pieces(row.states, STATE)[common:]) - {NO_STATE}
        equal = sum(state in booked_states for state in states[common:])
        if equal:
            rule = (
                f"must have noise of its own, not that of {row.source} (the same seed?)"
            )
            counted = f"{booking.run.source}: {equal} equal noise states"
            raise InputError.one("run", rule, counted)
        if common and booking.run.cost == "recorded":
            rule = (
                f"must not be a copy of {row.source} that went apart from it, since "
                "both have drawn some cohorts together (--infinite books it)"
            )
            raise InputError.one("run", rule, f"{common} equal rounds")


def _common_lines(links: Sequence[bytes], booked_links: Sequence[bytes]) -> int:
    """With how many equal lines two ledgers begin."""
    pairs = zip(links, booked_links, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _pieces(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


def runs(url: URL) -> tuple[BookedRun, ...]:
    """All runs of the book, in the order in which they were added.

    Raises:
        InputError: when there is no such book, it cannot be read, or a row was edited.
    """
    engine = engine_of(url, write=False)
    with refusing(url, SOUND), engine.begin() as connection:
        if not inspect(connection).has_table(VERSIONS.name):
            rule = f"{SOUND} (it has no table of runs)"
            raise InputError.one("book", rule, shown(url))
        return booked_runs(url, connection)


def has_runs(url: URL) -> bool:
    """Whether a book that exists has a table of runs; one of accounts only has none."""
    with refusing(url, SOUND):
        return inspect(engine_of(url, write=False)).has_table(VERSIONS.name)
