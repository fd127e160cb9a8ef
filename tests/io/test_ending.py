"""The end of a command's process: at once, with all output and the right exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENDING = """
import sys
from privplan.processes import end_at_once

class Freed:
    def __del__(self):
        print("taken apart")

kept = Freed()
with end_at_once():
    import atexit, threading, time
    atexit.register(lambda: print("called"))
    threading.Thread(target=lambda: (time.sleep(0.2), print("joined"))).start()
    print("written", end=" ")
    {leave}
"""


def end(leave: str) -> tuple[str, str, int]:
    done = subprocess.run(
        [sys.executable, "-c", ENDING.format(leave=leave)], capture_output=True, text=True
    )
    return done.stdout, done.stderr, done.returncode


@pytest.mark.parametrize(("leave", "code"), [("sys.exit(7)", 7), ("sys.exit()", 0)])
def test_threads_end_and_output_is_complete_but_nothing_is_taken_apart(
    leave: str, code: int
) -> None:
    assert end(leave) == ("written joined\ncalled\n", "", code)


def test_an_error_and_a_message_end_as_python_ends_them() -> None:
    out, error, code = end("raise ValueError('found')")
    assert out == "written joined\ncalled\ntaken apart\n"
    assert "ValueError: found" in error
    assert code == 1
    assert end("sys.exit('no')") == ("written joined\ncalled\ntaken apart\n", "no\n", 1)


def test_output_that_cannot_be_written_is_not_hidden() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full")
    with full.open("w") as nowhere:
        done = subprocess.run(
            [sys.executable, "-c", ENDING.format(leave="sys.exit(0)")],
            stdout=nowhere,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
    assert done.returncode == 120
    assert "No space left" in done.stderr
