"""Plans, runs, ledgers and books of earlier versions are read, verified and booked.

``stored/VERSION`` was written by that version; ``expected.json`` is what version
0.2.0-dev answered on all of them. Run this file to write the answers of the present
code.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.command import answer, privplan, verify

STORED = Path(__file__).parent / "stored"
EXPECTED = STORED / "expected.json"
RUNS = sorted(str(path.relative_to(STORED)) for path in STORED.glob("v*/run-*"))
BOOKS = sorted(str(path.relative_to(STORED)) for path in STORED.glob("v*/book.sqlite"))
ADDED_RUNS = ("run-cyclic", "run-gdpfed")
OF_GROUP = (
    "group",
    "budget",
    "planned",
    "realised_lower",
    "realised_upper",
    "delta",
    "sampling",
)
OF_BOOK = (
    "group",
    "sampling",
    "delta",
    "runs",
    "releases",
    "epsilon_lower",
    "epsilon_upper",
)


def _fields(row, names):
    return {name: row[name] for name in names}


def verified(name, folder):
    """Exit code of ``verify`` and what each group spent."""
    shutil.copytree(STORED / name, folder / "run")
    done = verify(folder / "run", "--format=json")
    groups = json.loads(done.stdout)["groups"]
    return {
        "exit": done.exit_code,
        "groups": [_fields(group, OF_GROUP) for group in groups],
    }


def booked(name, folder):
    """What a stored book says after one more run of its version was added."""
    book = folder / "book.sqlite"
    run = folder / "added"
    shutil.copy(STORED / name, book)
    # A run of a seed that the book does not have yet.
    runs = [(STORED / name).with_name(run_name) for run_name in ADDED_RUNS]
    shutil.copytree(next(path for path in runs if path.exists()), run)
    answer("book", "add", run, "--address", book)
    shown = json.loads(answer("book", "show", "--address", book, "--format", "json"))
    return [_fields(row, OF_BOOK) for row in shown]


def _compare(value, stored):
    if isinstance(stored, dict):
        assert value.keys() == stored.keys()
        for key in stored:
            _compare(value[key], stored[key])
    elif isinstance(stored, list):
        assert len(value) == len(stored)
        for item, stored_item in zip(value, stored, strict=True):
            _compare(item, stored_item)
    elif isinstance(stored, float):
        assert value == pytest.approx(stored, rel=1e-6)
    else:
        assert value == stored


@pytest.mark.parametrize("name", RUNS)
def test_runs_of_earlier_versions_are_verified_as_before(name, tmp_path):
    _compare(verified(name, tmp_path), json.loads(EXPECTED.read_text())[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_runs_of_earlier_versions_are_not_executed_again(name, tmp_path):
    """Their evidence does not hold all releases, from which models follow."""
    shutil.copytree(STORED / name, tmp_path / "run")
    assert privplan("replay", tmp_path / "run", "--rounds=all").exit_code == 5


@pytest.mark.parametrize("name", BOOKS)
def test_books_of_earlier_versions_are_continued_as_before(name, tmp_path):
    _compare(booked(name, tmp_path), json.loads(EXPECTED.read_text())[name])


if __name__ == "__main__":
    answers: dict[str, Any] = {}
    for name in RUNS:
        with tempfile.TemporaryDirectory() as scratch:
            answers[name] = verified(name, Path(scratch))
    for name in BOOKS:
        with tempfile.TemporaryDirectory() as scratch:
            answers[name] = booked(name, Path(scratch))
    EXPECTED.write_text(json.dumps(answers, indent=1) + "\n")
