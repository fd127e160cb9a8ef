"""Work that workers of a cluster import."""

import os
import signal
import time
from pathlib import Path

from privplan.errors import InputError


def squared(number):
    """The square, a little later for smaller numbers."""
    if number < 0:
        raise InputError.one("number", "must be 0 or more", number)
    time.sleep(0.02)
    return number**2


def killed_once(name):
    """Kill the worker at the first call; the second leaves a result."""
    file = Path(name)
    if not file.exists():
        file.write_text("begun")
        os.kill(os.getpid(), signal.SIGKILL)
    return file.read_text()


def killed(name):
    """Kill the worker at every call but those after a file is there."""
    if Path(name).exists():
        return name
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError
