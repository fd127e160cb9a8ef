"""What a guard may still release: its reservation in a book, with a fence around it.

A run folder can be copied, and both copies can be opened with one book. Each would
release what the book counts once. So a reservation has a fence with

- a holder: a random token of the guard process that opened a copy last; no file has it;
- a chain: the hash of the run's ledger after the last release;
- a counter of openings and releases.

A guard becomes the holder when it opens a folder whose ledger contains that hash. A
folder that lacks a release of its run is an old copy, and is refused. Each release
moves chain and counter in one transaction, by compare-and-set on holder and counter,
before anybody gets the release. A guard that is the holder no longer is refused there,
and leaves the reservation to the one that is.

A fence outlives its reservation, so that an old copy of a finished run is refused, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection

from sqlalchemy import (
    URL,
    Connection,
    Row,
    insert,
    inspect,
    select,
    update,
)

from privplan.book.database import engine_of, is_missing, refusing, repeated
from privplan.book.entry import BookedRun, Booking
from privplan.book.run_rows import (
    FENCES,
    HOLDER_BYTES,
    RUNS,
    SOUND,
    booked_runs,
    insert_run,
)
from privplan.book.store import WRITABLE, prepare, take_out, update_run
from privplan.errors import InputError


def has_reserved(url: URL, name: str) -> bool:
    """Whether a run reserved in a book under a name; nothing is written.

    Args:
        url: address of the book, which may be missing.
        name: of the reservation.
    """
    if is_missing(url):
        return False

    def work(connection: Connection) -> bool:
        # Books of earlier versions have no fences, but the reservation itself.
        for column in (FENCES.c.name, RUNS.c.chain):
            if inspect(connection).has_table(column.table.name):
                chosen = select(column).where(column == name)
                if connection.execute(chosen).first() is not None:
                    return True
        return False

    with refusing(url, SOUND):
        return repeated(engine_of(url, write=False), work)


class FencedError(InputError):
    """A guard was refused: another copy of its run folder goes on with the run."""


class Reservation:
    """The reservation of one guard process in a book.

    Args:
        url: address of the book.
        name: under which the book holds what the run may still release; the run folder
            has it.
        folder: the run folder, for messages.
    """

    def __init__(self, url: URL, name: str, folder: str) -> None:
        self._url = url
        self._name = name
        self._folder = folder
        self._holder = secrets.token_hex(HOLDER_BYTES)
        self._counter = 0
        self._engine = engine_of(url, write=True)

    def take(
        self,
        chains: Collection[str],
        last_hash: str,
        decide: Callable[[Connection, tuple[BookedRun, ...]], Booking | None],
    ) -> None:
        """Become the holder, and reserve what ``decide`` makes of the book's runs.

        Args:
            chains: the hashes of the ledger that the fence may have.
            last_hash: the hash after the last line.
            decide: returns what to reserve, of the open transaction, and of all runs
                of the book with what this one reserved before; None for nothing.

        Raises:
            FencedError: when the fence has another hash.
        """

        def work(connection: Connection) -> int:
            prepare(self._url, connection)
            fence = self._fence(connection)
            booked = booked_runs(self._url, connection)
            place = take_out(connection, self._name)
            if fence is None:
                connection.execute(
                    insert(FENCES).values(
                        name=self._name, holder=self._holder, counter=0, chain=last_hash
                    )
                )
                counter = 0
            else:
                if fence.chain not in chains:
                    rule = (
                        "must hold every release of its run, and at most one that the "
                        "book did not see: another copy released since, or the book was "
                        "restored (privplan book add counts what it lacks)"
                    )
                    raise FencedError.one("ledger", rule, self._folder)
                counter = fence.counter + 1
                mine = update(FENCES).where(FENCES.c.name == self._name)
                connection.execute(
                    mine.values(holder=self._holder, counter=counter, chain=last_hash)
                )
            booking = decide(connection, booked)
            if booking is not None:
                insert_run(connection, booking, place)
            return counter

        with refusing(self._url, WRITABLE):
            self._counter = repeated(self._engine, work)

    def move(self, chain: str) -> None:
        """Move the fence past a release, before it is handed out.

        A call whose answer was lost can be repeated.

        Args:
            chain: the hash of the ledger with the lines of the release.

        Raises:
            FencedError: when another copy of the folder was opened since.
        """

        def work(connection: Connection) -> int:
            fence = self._fence(connection)
            if fence is None or fence.holder != self._holder:
                return -1
            if fence.chain == chain:  # moved, and the answer was lost
                return int(fence.counter)
            compared = (
                (FENCES.c.name == self._name)
                & (FENCES.c.holder == self._holder)
                & (FENCES.c.counter == self._counter)
            )
            moved = update(FENCES).where(compared)
            done = connection.execute(
                moved.values(counter=self._counter + 1, chain=chain)
            )
            if done.rowcount == 1:
                return self._counter + 1
            return -1

        with refusing(self._url, WRITABLE):
            counter = repeated(self._engine, work)
        if counter < 0:
            rule = "must be the only open copy of its run; another one was opened since"
            raise FencedError.one("ledger", rule, self._folder)
        self._counter = counter

    def settle(self, booking: Booking | None, to_come: Booking | None) -> None:
        """Add the run, and keep reserved what it may still release.

        Nothing is done where another guard is the holder.

        Args:
            booking: the run as far as it is; None where nothing was released.
            to_come: what it may still release; None for nothing.
        """

        def work(connection: Connection) -> None:
            prepare(self._url, connection)
            fence = self._fence(connection)
            if fence is None or fence.holder != self._holder:
                return
            place = take_out(connection, self._name)
            if booking is not None:
                update_run(connection, booking, place)
                place = None
            if to_come is not None:
                insert_run(connection, to_come, place)

        with refusing(self._url, WRITABLE):
            repeated(self._engine, work)

    def _fence(self, connection: Connection) -> Row[tuple[str, str, int, str]] | None:
        return connection.execute(
            select(FENCES).where(FENCES.c.name == self._name)
        ).first()
