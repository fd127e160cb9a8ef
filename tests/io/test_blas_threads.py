"""Threads of NumPy's matrix products in a command: one, unless the environment says how many."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STARTED = """
import os
from privplan.processes import one_blas_thread

one_blas_thread()
before = len(os.listdir("/proc/self/task"))
import numpy
print(len(os.listdir("/proc/self/task")) - before, os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted by Linux")
@pytest.mark.parametrize(
    ("asked", "threads", "variable"),
    [
        ({}, 0, "1"),
        ({"OPENBLAS_NUM_THREADS": "2"}, min(2, os.cpu_count() or 1) - 1, "2"),
        ({"OMP_NUM_THREADS": "2"}, min(2, os.cpu_count() or 1) - 1, "None"),
    ],
)
def test_numpy_starts_no_threads_unless_asked(
    asked: dict[str, str], threads: int, variable: str
) -> None:
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, "-c", STARTED]
    done = subprocess.run(command, capture_output=True, text=True, env={**environment, **asked})
    started, setting = done.stdout.split()
    assert int(started) == threads
    assert setting == variable
