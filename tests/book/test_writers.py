"""Concurrent writers: runs are in the book once, and killed ones overspend nothing."""

import json
import multiprocessing
import random
import time
from collections import Counter, defaultdict
from functools import partial

import pytest
from sqlalchemy import select

from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.book import filters
from privplan.book.account_rows import ACCOUNTS as TABLE
from privplan.book.account_rows import CHARGES, RESERVATIONS
from privplan.book.accounts import Budgets
from privplan.book.database import address_of
from privplan.book.entry import booking_of
from privplan.book.store import add, runs
from privplan.errors import InfeasibleError
from tests.book.runs import run

WRITERS = 4
RUNS_OF_WRITER = 3  # that no other writer has


def _write(barrier, results, address, bookings):
    url = address_of(address)
    barrier.wait()
    results.put([add(url, booking).outcome for booking in bookings])


def write_at_once(address, work):
    """Let a process for each list of bookings add them; counts of the outcomes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    barrier = context.Barrier(len(work))
    results = context.Queue()
    processes = [
        context.Process(target=_write, args=(barrier, results, address, bookings))
        for bookings in work
    ]
    for process in processes:
        process.start()
    outcomes: Counter[str] = Counter()
    for _ in processes:
        outcomes.update(results.get(timeout=120))
    for process in processes:
        process.join()
    results.close()
    assert [process.exitcode for process in processes] == [0] * len(work)
    return outcomes


@pytest.mark.slow
def test_every_run_is_in_the_book_once(address, tmp_path):
    shared = booking_of(run(tmp_path / "shared", 900), "")
    first_booking = booking_of(run(tmp_path / "first", 902), "")
    assert add(address_of(address), first_booking).outcome == "added"
    grown = [
        booking_of(run(tmp_path / f"g{n}", 901, rounds=n), "")
        for n in range(5, 5 + WRITERS)
    ]
    expected = {first_booking.run.chain, shared.run.chain, grown[-1].run.chain}
    work = []
    for writer in range(WRITERS):
        first_seed = 1 + writer * RUNS_OF_WRITER
        seeds = range(first_seed, first_seed + RUNS_OF_WRITER)
        bookings = [
            booking_of(run(tmp_path / f"{seed}", seed, rounds=2), "") for seed in seeds
        ]
        expected |= {booking.run.chain for booking in bookings}
        work.append([grown[writer], shared, *bookings, shared])
    outcomes = write_at_once(address, work)
    chains = Counter(booked.chain for booked in runs(address_of(address)))
    assert chains == Counter(expected)
    assert outcomes["known"] == 2 * WRITERS - 1
    assert outcomes["replaced"] + outcomes["longer"] == WRITERS - 1
    assert outcomes["added"] == WRITERS * RUNS_OF_WRITER + 2


PROCESSES = 8
ACCOUNTS = ("a", "b", "site")
CASES = [
    ("sqlite", 24),
    *(
        pytest.param(kind, 1000, marks=pytest.mark.slow)
        for kind in ("sqlite", "postgres")
    ),
]


def _history(count):
    return History.repeated(Release(30.0, 1.0, SamplingLaw.FULL), count)


def _operate(address, log, seed, runs):
    """Random runs; the log has a line before every operation and one after it."""
    budgets = Budgets(address)
    draw = random.Random(seed)
    with log.open("a") as lines:

        def note(*words):
            lines.write(json.dumps(words) + "\n")
            lines.flush()

        def logged(operation, kind, name, count):
            note(name, kind, count, False)
            operation()
            note(name, kind, count, True)

        for number in range(runs):
            name = f"{seed}-{number}"
            account = draw.choice("ab")
            planned = draw.randint(1, 6)
            release = {account: _history(1)}
            reserve = partial(
                budgets.reserve, name, {account: _history(planned)}, reservation=name
            )
            try:
                logged(reserve, account, name, planned)
            except InfeasibleError:
                note(name, "refused", planned, True)
                continue
            for step in range(draw.randint(0, planned)):
                logged(
                    partial(budgets.spend, name, release, step=step),
                    "spend",
                    name,
                    step + 1,
                )
            if draw.random() < 0.8:
                logged(partial(budgets.close, name), "close", name, 0)


@pytest.mark.parametrize(("kind", "runs"), CASES)
def test_nothing_is_overspent_and_nothing_lost(request, tmp_path, kind, runs):
    sqlite = kind == "sqlite"
    address = str(
        tmp_path / "book.sqlite" if sqlite else request.getfixturevalue("postgres")
    )
    budgets = Budgets(address)
    budgets.open("site", 2.0, 1e-5, rule="gaussian")
    for name in "ab":
        budgets.open(name, 1.0, 1e-5, rule="gaussian", ceilings=["site"])
    writers = Writers(address, tmp_path, runs)
    while writers.are_needed:
        writers.start()
        time.sleep(writers.draw.uniform(0.0, 0.05))
        if writers.kills < max(MIN_KILLS, runs // 20) and writers.living:
            for state in budgets.states():
                assert state.spent_units + state.reserved_units <= state.capacity
            writers.kill_one()
        writers.join_finished()
    _check(Budgets(address), tmp_path)


MIN_KILLS = 6


class Writers:
    """Processes that write to a book, some of which are killed."""

    def __init__(self, address, folder, runs):
        self.draw = random.Random(runs)
        self.kills = 0
        self.living = {}
        self._context = multiprocessing.get_context("fork")
        self._address = address
        self._folder = folder
        self._runs = runs
        self._seed = 0
        self._finished = 0

    @property
    def are_needed(self):
        """Writers may finish before they are killed, so two kills are waited for."""
        return self._finished < PROCESSES or self.living or self.kills < 2

    def start(self):
        """Replace those that are gone, until as many as planned have finished."""
        while len(self.living) < PROCESSES and (
            self._seed < PROCESSES + self.kills or self.kills < 2
        ):
            log = self._folder / f"{self._seed}.log"
            arguments = (self._address, log, self._seed, self._runs // PROCESSES)
            process = self._context.Process(target=_operate, args=arguments)
            process.start()
            self.living[self._seed] = process
            self._seed += 1

    def kill_one(self):
        """Kill one of them, which may have just ended."""
        victim = self.living.pop(self.draw.choice(list(self.living)))
        victim.kill()
        victim.join()
        self._finished += victim.exitcode == 0
        self.kills += victim.exitcode != 0

    def join_finished(self):
        """Count those that ended by themselves, which none may do by an error."""
        for seed, process in list(self.living.items()):
            if process.exitcode is not None:
                assert process.exitcode == 0
                self._finished += 1
                process.join()
                del self.living[seed]


def _logged(folder):
    """By run and kind of operation: its count, and whether it was acknowledged."""
    logged = defaultdict(dict)
    for log in folder.glob("*.log"):
        for line in log.read_text().splitlines():
            name, kind, count, acknowledged = json.loads(line)
            logged[name][kind] = (count, acknowledged)
    return logged


def _stored(budgets):
    """The rows of reservations, and what each reserved and spent of each account."""
    charges = defaultdict(dict)
    with budgets._engine.begin() as connection:
        names = {row.id: row.name for row in connection.execute(select(TABLE))}
        reservations = {row.id: row for row in connection.execute(select(RESERVATIONS))}
        for row in connection.execute(select(CHARGES)):
            charges[row.reservation][names[row.account]] = (row.reserved, row.spent)
    return reservations, charges


def _check_reservation(row, kinds, charges):
    """What a reservation holds is what was logged; its units that are spent and left.

    An operation that was acknowledged is there, another one is whole or absent.
    """
    unit = filters.cost("gaussian", _history(1), Relation.ADD_REMOVE, 0)
    account = "a" if "a" in kinds else "b"
    planned, _ = kinds[account]
    assert "refused" not in kinds
    spent, acknowledged = kinds.get("spend", (0, True))
    at_least = spent if acknowledged else spent - 1
    _, done = charges[account]
    assert charges == dict.fromkeys((account, "site"), (planned * unit, done))
    assert done in (at_least * unit, spent * unit)
    assert row.step == done // unit - 1
    statuses = {
        None: ("open",),
        (0, True): ("closed",),
        (0, False): ("open", "closed"),
    }
    assert row.status in statuses[kinds.get("close")]
    return done, planned * unit - done if row.status == "open" else 0


def _check(budgets, folder):
    """The accounts hold the sums of what the writers did."""
    logged = _logged(folder)
    reservations, charges = _stored(budgets)
    assert set(reservations) == set(charges) <= set(logged)
    spent_units = Counter()
    reserved_units = Counter()
    for name, kinds in logged.items():
        if name not in reservations:
            account = "a" if "a" in kinds else "b"
            _, acknowledged = kinds[account]
            assert not acknowledged
            continue
        done, reserved = _check_reservation(reservations[name], kinds, charges[name])
        for account in charges[name]:
            spent_units[account] += done
            reserved_units[account] += reserved
    for name in ACCOUNTS:
        state = budgets.state(name)
        assert state.spent_units == spent_units[name]
        assert state.reserved_units == reserved_units[name]
        assert state.spent_units + state.reserved_units <= state.capacity
