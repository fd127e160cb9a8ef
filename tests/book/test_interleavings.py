"""Eight writers that are killed at random: nothing is overspent, nothing acknowledged is lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.book import filters
from privplan.book.budgets import Budgets
from privplan.errors import InfeasibleError, InputError

WRITERS = 8
ACCOUNTS = ("a", "b", "site")
CASES = [
    ("sqlite", 48),
    *(pytest.param(kind, 1000, marks=pytest.mark.slow) for kind in ("sqlite", "postgres")),
]


def _history(count: int) -> History:
    return History.repeated(Release(30.0, 1.0, SamplingLaw.FULL), count)


def _write(address: str, log: Path, seed: int, runs: int) -> None:
    """Random runs; every operation that returned is a line of the log."""
    budgets, draw = Budgets(address), random.Random(seed)
    with log.open("a") as lines:

        def done(*words: object) -> None:
            lines.write(json.dumps(words) + "\n")
            lines.flush()

        for number in range(runs):
            name, account = f"{seed}-{number}", draw.choice("ab")
            planned, used = draw.randint(1, 6), 0
            try:
                budgets.reserve(name, {account: _history(planned)}, reservation=name)
                done("reserved", name, account, planned)
                for step in range(draw.randint(0, planned)):
                    budgets.spend(name, {account: _history(1)}, step=step)
                    used += 1
                    done("spent", name, account, used)
                if draw.random() < 0.8:
                    budgets.close(name)
                    done("closed", name, account, used)
            except InfeasibleError:
                done("refused", name, account, planned)
        done("finished", seed, "", runs)


@pytest.mark.parametrize(("kind", "runs"), CASES)
def test_nothing_is_overspent_and_nothing_lost(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, runs: int
) -> None:
    sqlite = kind == "sqlite"
    address = str(tmp_path / "book.sqlite" if sqlite else request.getfixturevalue("postgres"))
    budgets = Budgets(address)
    budgets.open("site", 2.0, 1e-5, rule="gaussian")
    for name in "ab":
        budgets.open(name, 1.0, 1e-5, rule="gaussian", ceilings=["site"])
    context, draw = multiprocessing.get_context("fork"), random.Random(runs)
    kills, seed, living = 0, 0, {}
    finished = 0
    while finished < WRITERS or living:
        while len(living) < WRITERS and seed < WRITERS + kills:
            log = tmp_path / f"{seed}.log"
            one = context.Process(target=_write, args=(address, log, seed, runs // WRITERS))
            one.start()
            living[seed], seed = one, seed + 1
        time.sleep(draw.uniform(0.0, 0.05))
        if kills < max(6, runs // 20) and living:
            victim = living.pop(draw.choice(list(living)))
            os.kill(victim.pid, signal.SIGKILL)
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
    assert kills >= 5


def _check(budgets: Budgets, folder: Path) -> None:
    unit = filters.cost("gaussian", _history(1), Relation.ADD_REMOVE, 0)
    told: dict[str, tuple[str, int]] = {}
    last: dict[str, str] = {}
    for log in folder.glob("*.log"):
        for line in log.read_text().splitlines():
            kind, name, account, count = json.loads(line)
            last[name] = kind
            if kind == "spent":
                told[name] = (account, count)
    for name in ACCOUNTS:
        state = budgets.state(name)
        assert 0 <= state.spent_units + state.reserved_units <= state.capacity
        expected = sum(n for account, n in told.values() if name in (account, "site")) * unit
        # A killed writer may have spent one release that it could not write down.
        assert expected <= state.spent_units <= expected + unit * 1000
    for name, kind in last.items():
        if kind == "closed":
            with pytest.raises(InputError, match="not closed"):
                budgets.close(name)
        elif kind in ("reserved", "spent"):
            with suppress(InputError):  # closed by a writer that was killed before its line
                budgets.close(name)
    for name in ACCOUNTS:
        state = budgets.state(name)
        unknown = state.reserved_units  # reserved by a writer that was killed before its line
        assert unknown % unit == 0
        assert state.spent_units + unknown <= state.capacity
