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
OWN = 3


def _write(barrier, results, address, bookings):
    url = address_of(address)
    barrier.wait()
    results.put([add(url, booking).outcome for booking in bookings])


def write_at_once(address, work):
    """Let one process a list of bookings add them, all at once; counts of the outcomes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    barrier, results = context.Barrier(len(work)), context.Queue()
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


def test_every_run_is_in_the_book_once(address, tmp_path):
    shared = booking_of(run(tmp_path / "shared", 900), "")
    first = booking_of(run(tmp_path / "first", 902), "")
    assert add(address_of(address), first).outcome == "added"
    grown = [
        booking_of(run(tmp_path / f"g{n}", 901, rounds=n), "")
        for n in range(5, 5 + WRITERS)
    ]
    work, expected = [], {first.run.chain, shared.run.chain, grown[-1].run.chain}
    for writer in range(WRITERS):
        seeds = range(1 + writer * OWN, 1 + (writer + 1) * OWN)
        own = [booking_of(run(tmp_path / f"{s}", s, rounds=2), "") for s in seeds]
        expected |= {booking.run.chain for booking in own}
        work.append([grown[writer], shared, *own, shared])
    outcomes = write_at_once(address, work)
    assert Counter(one.chain for one in runs(address_of(address))) == Counter(expected)
    assert outcomes["known"] == 2 * WRITERS - 1
    assert outcomes["replaced"] + outcomes["longer"] == WRITERS - 1
    assert outcomes["added"] == WRITERS * OWN + 2


PROCESSES = 8
ACCOUNTS = ("a", "b", "site")
CASES = [
    ("sqlite", 48),
    *(
        pytest.param(kind, 1000, marks=pytest.mark.slow)
        for kind in ("sqlite", "postgres")
    ),
]


def _history(count):
    return History.repeated(Release(30.0, 1.0, SamplingLaw.FULL), count)


def _operate(address, log, seed, runs):
    """Random runs; the log has a line before every operation and one after it."""
    budgets, draw = Budgets(address), random.Random(seed)
    with log.open("a") as lines:

        def note(*words):
            lines.write(json.dumps(words) + "\n")
            lines.flush()

        def logged(operation, kind, name, count):
            note(name, kind, count, False)
            operation()
            note(name, kind, count, True)

        for number in range(runs):
            name, account = f"{seed}-{number}", draw.choice("ab")
            planned, one = draw.randint(1, 6), {account: _history(1)}
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
                    partial(budgets.spend, name, one, step=step),
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
    context, draw = multiprocessing.get_context("fork"), random.Random(runs)
    kills, seed, living = 0, 0, {}
    finished = 0
    while (
        finished < PROCESSES or living or kills < 2
    ):  # writers may finish before they are killed
        while len(living) < PROCESSES and (seed < PROCESSES + kills or kills < 2):
            log = tmp_path / f"{seed}.log"
            one = context.Process(
                target=_operate, args=(address, log, seed, runs // PROCESSES)
            )
            one.start()
            living[seed], seed = one, seed + 1
        time.sleep(draw.uniform(0.0, 0.05))
        if kills < max(6, runs // 20) and living:
            for one in budgets.states():
                assert one.spent_units + one.reserved_units <= one.capacity
            victim = living.pop(draw.choice(list(living)))
            victim.kill()  # does nothing to one that has just ended
            victim.join()
            finished += victim.exitcode == 0
            kills += victim.exitcode != 0
        for key, one in list(living.items()):
            if one.exitcode is not None:
                finished += one.exitcode == 0
                assert one.exitcode == 0
                one.join()
                del living[key]
    _check(Budgets(address), tmp_path)


def _check(budgets, folder):
    """Acknowledged operations are there, others are whole or absent, and the sums are theirs."""
    unit = filters.cost("gaussian", _history(1), Relation.ADD_REMOVE, 0)
    logged: dict[str, dict[str, tuple[int, bool]]] = defaultdict(dict)
    for log in folder.glob("*.log"):
        for line in log.read_text().splitlines():
            name, kind, count, acknowledged = json.loads(line)
            logged[name][kind] = (count, acknowledged)
    with budgets._engine.begin() as connection:
        names = {row.id: row.name for row in connection.execute(select(TABLE))}
        found = {row.id: row for row in connection.execute(select(RESERVATIONS))}
        charges: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
        for row in connection.execute(select(CHARGES)):
            charges[row.reservation][names[row.account]] = (row.reserved, row.spent)
    assert set(found) == set(charges) <= set(logged)
    sums = {name: [0, 0] for name in ACCOUNTS}
    for name, kinds in logged.items():
        account = next(one for one in "ab" if one in kinds)
        planned, reserved = kinds[account]
        if name not in found:
            assert not reserved
            continue
        assert "refused" not in kinds
        spent, acknowledged = kinds.get("spend", (0, True))
        at_least = spent if acknowledged else spent - 1
        _, done = charges[name][account]
        assert charges[name] == dict.fromkeys((account, "site"), (planned * unit, done))
        assert done in (at_least * unit, spent * unit)
        assert found[name].step == done // unit - 1
        assert found[name].status in {
            None: ("open",), (0, True): ("closed",), (0, False): ("open", "closed")
        }[kinds.get("close")]  # fmt: skip
        for one in (account, "site"):
            sums[one][0] += done
            sums[one][1] += planned * unit - done if found[name].status == "open" else 0
    for name, (spent_units, reserved_units) in sums.items():
        state = budgets.state(name)
        assert (state.spent_units, state.reserved_units) == (
            spent_units,
            reserved_units,
        )
        assert spent_units + reserved_units <= state.capacity
