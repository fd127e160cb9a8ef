"""The size budget: new lines in the core need lines that go.

A number here is lowered when the code falls below it, and never raised without a decision in
``docs/decisions`` that says what the users get for it. The aim: core 190 files and 48,000 lines,
optional parts 60 and 11,000, tests 32,000, and 42, 70 and 42 files entered.
"""

import subprocess
from pathlib import Path

import pytest

from benchmarks import structure

ROOT = Path(__file__).parents[2]
FILES = structure.tracked(ROOT)
OPTIONAL = [name for name in FILES if "/contrib/" in name]
CORE = [name for name in FILES if name not in OPTIONAL]
ENTERED = {"solve": 42, "simulate": 70, "verify": 42}  # files of which a command enters a function


def _lines(names):
    return sum(len((ROOT / name).read_bytes().splitlines()) for name in names)


def test_the_core_keeps_its_size():
    assert len(CORE) <= 190
    assert _lines(CORE) <= 48_000


def test_the_optional_parts_keep_their_size():
    assert len(OPTIONAL) <= 60
    assert _lines(OPTIONAL) <= 11_000


def test_the_tests_keep_their_size():
    listed = subprocess.check_output(["git", "ls-files", "tests/*.py"], cwd=ROOT, text=True)
    assert _lines([name for name in listed.split() if (ROOT / name).is_file()]) <= 32_000


@pytest.fixture(scope="module")
def entered():
    return structure.entered(ROOT)


@pytest.mark.parametrize("command", ENTERED)
def test_commands_enter_few_files(command, entered):
    assert entered[command]["function_files"] <= ENTERED[command]
