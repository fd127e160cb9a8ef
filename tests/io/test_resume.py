"""Sweeps: stored results are not computed again, in order and over processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from privplan.errors import InputError
from privplan.files import LOCK, locked
from privplan.sweeps import (
    InterruptedSweepError,
    Journal,
    finish,
    in_jobs,
    key_of,
    resumable,
    sweeps_in,
)

ROOT = Path(__file__).parents[2]
POINTS = [{"number": number} for number in range(4)]
ITEMS = {key_of(point): point["number"] for point in POINTS}
SQUARES = {key_of(point): point["number"] ** 2 for point in POINTS}


def square(number: int) -> int:
    return number**2


def check(point: dict[str, int], result: int) -> None:
    if result != point["number"] ** 2:
        raise ValueError


def journal(folder: Path, sweep: str = "one") -> Journal[int]:
    return Journal(folder / "journal.jsonl", sweep, check)


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_by_key_whatever_the_order_of_completion(jobs: int, tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []
    done = finish(
        ITEMS, square, spread=in_jobs(jobs), journal=journal(tmp_path),
        progress=lambda *count: counts.append(count),
    )  # fmt: skip
    assert done == SQUARES
    assert counts == [(number, 4) for number in range(5)]
    assert journal(tmp_path).load() == SQUARES


def test_only_missing_items_are_computed(tmp_path: Path) -> None:
    first = dict(list(ITEMS.items())[:2])
    finish(first, square, spread=in_jobs(1), journal=journal(tmp_path))
    asked: list[int] = []

    def recorded(number: int) -> int:
        asked.append(number)
        return square(number)

    assert finish(ITEMS, recorded, spread=in_jobs(1), journal=journal(tmp_path)) == SQUARES
    assert asked == [2, 3]


def test_an_error_leaves_finished_items_stored(tmp_path: Path) -> None:
    def failing(number: int) -> int:
        if number == 2:
            raise InputError.one("number", "must not be 2", number)
        return square(number)

    with pytest.raises(InputError, match="must not be 2"):
        finish(ITEMS, failing, spread=in_jobs(1), journal=journal(tmp_path))
    assert journal(tmp_path).load() == dict(list(SQUARES.items())[:2])


def test_ctrl_c_names_the_folder_and_releases_it(tmp_path: Path) -> None:
    said = f"kept in {tmp_path}; the same command"
    with pytest.raises(InterruptedSweepError, match=said), resumable(tmp_path):
        raise KeyboardInterrupt
    in_use = pytest.raises(InputError, match="must not be in use")
    with resumable(tmp_path), in_use, locked(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    with pytest.raises(InterruptedSweepError, match="name a folder with -o"), resumable(None):
        raise KeyboardInterrupt


def test_a_refused_sweep_leaves_nothing_behind(tmp_path: Path) -> None:
    """Folders that it created, unless something was stored, and the lock of others."""

    def refused(number: int) -> int:
        if number == last:
            raise InputError.one("number", "must be another", number)
        return square(number)

    def run(folder: Path) -> None:
        with pytest.raises(InputError, match="must be another"), resumable(folder):
            finish(ITEMS, refused, spread=in_jobs(1), journal=journal(folder))

    last = 0
    run(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "own.txt").write_text("kept")
    run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["own.txt"]
    last = 2
    run(tmp_path / "a" / "b")
    assert len(journal(tmp_path / "a" / "b").load()) == 2


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("nothing", "line 1 is none of a sweep"),
        ("[]", "line 1 is none of a sweep"),
        (json.dumps({"sweep": "one", "point": {"number": 2}, "rows": 5}), "line 1 is none"),
        (json.dumps({"sweep": "two", "point": {"number": 2}, "rows": 4}), "other settings"),
    ],
)
def test_a_journal_of_another_sweep_is_refused(line: str, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InputError, match=rule):
        finish(ITEMS, square, spread=in_jobs(1), journal=journal(tmp_path))
    assert path.read_text() == line + "\n"


def test_an_incomplete_last_line_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    whole = json.dumps({"sweep": "one", "point": {"number": 2}, "rows": 4}) + "\n"
    path.write_text(whole + '{"sweep": "on')
    assert journal(tmp_path).load() == {key_of({"number": 2}): 4}
    assert journal(tmp_path).begin() == {key_of({"number": 2}): 4}
    assert path.read_text() == whole


STOP = """
import os, runpy, signal, sys

class Stop:
    def find_spec(name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # also in a background job of a shell
module, sys.argv = sys.argv[1], ["privplan", *sys.argv[2:]]
sys.meta_path.insert(0, Stop)
runpy.run_module("privplan", run_name="__main__")
"""
"""Ctrl-C while a command imports a module, where Python's own exception would be swallowed."""
PROXY = "--dataset digits -o out.yaml"
SWEEPS = {
    "tune": (f"tune spec.yaml {PROXY}", "simulate.proxy.search", "out.yaml.trials"),
    "forecast-proxy": (
        f"forecast-proxy spec.yaml {PROXY}", "simulate.proxy.search", "out.yaml.runs",
    ),
    "pretrain": (
        f"pretrain spec.yaml {PROXY}", "simulate.proxy.pretraining", "out.yaml.pretraining",
    ),
    "compare": (
        "compare plan.json --algorithms FedAvg --dataset digits -o out", "simulate.runs.compare",
        "out",
    ),
    "what-if": (
        "what-if spec.yaml --vary rounds=1:2:2 -o out", "privplan.planning.sweep", "out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("name", SWEEPS)
def test_ctrl_c_before_a_begun_sweep_goes_on_names_its_folder(
    name: str, begun: bool, tmp_path: Path
) -> None:
    arguments, module, folder = SWEEPS[name]
    if begun:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / LOCK).touch()
    done = subprocess.run(
        [sys.executable, "-c", STOP, module, *arguments.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    kept = f": what is done is kept in {folder}; the same command resumes" if begun else ""
    assert (done.returncode, done.stderr) == (130, f"privplan: interrupted{kept}\n")


def test_ctrl_c_outside_the_sweep_of_a_command_names_its_folder(tmp_path: Path) -> None:
    @sweeps_in(lambda options: options["output"])
    def command(output: Path | None) -> None:
        raise KeyboardInterrupt

    for output in (tmp_path, None):
        with pytest.raises(KeyboardInterrupt):
            command(output=output)
    (tmp_path / LOCK).touch()
    with pytest.raises(InterruptedSweepError, match=f"kept in {tmp_path}; the same command"):
        command(output=tmp_path)
