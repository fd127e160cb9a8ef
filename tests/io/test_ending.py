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
        print("freed")

kept = Freed()
with end_at_once():
    import atexit, threading, time
    atexit.register(lambda: print("called"))
    threading.Thread(target=lambda: (time.sleep(0.2), print("joined"))).start()
    print("written", end=" ")
    {leave}
"""


def end(leave: str, stdout: object = subprocess.PIPE) -> tuple[str | None, str, int]:
    call = [sys.executable, "-c", ENDING.format(leave=leave)]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(call, stdout=stdout, stderr=subprocess.PIPE, text=True, env=buffered)
    return done.stdout, done.stderr, done.returncode


@pytest.mark.parametrize(("leave", "code"), [("sys.exit(7)", 7), ("sys.exit()", 0)])
def test_output_is_complete_but_nothing_is_freed(leave: str, code: int) -> None:
    assert end(leave) == ("written joined\ncalled\n", "", code)


def test_errors_and_output_that_cannot_be_written_end_as_python_ends_them() -> None:
    out, error, code = end("raise ValueError('found')")
    assert (out, code) == ("written joined\ncalled\nfreed\n", 1)
    assert "ValueError: found" in error
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as nowhere:
            _, error, code = end("sys.exit(0)", nowhere)
        assert code == 120
        assert "No space left" in error
