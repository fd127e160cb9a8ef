"""The tests of the device, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "selection", ["not slow", pytest.param("slow", marks=pytest.mark.slow)]
)
def test_the_engine_runs_on_a_device_that_is_not_there(selection):
    file = Path(__file__).with_name("test_device.py")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-m",
        selection,
        "-p",
        "no:cacheprovider",
        str(file),
    ]
    environment = {**os.environ, "PRIVPLAN_PRETEND_DEVICE": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
