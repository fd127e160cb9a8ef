"""Sweeps: stored results are not computed again, in order and over processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from privplan.errors import InputError
from privplan.files import LOCK, locked
from privplan.processes import InterruptedSweepError, Journal, finish, in_jobs, key_of, resumable

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
