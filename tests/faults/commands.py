"""Commands in processes that are made by forking one that has loaded everything.

So a kill falls on the work, not on loading libraries, and fifty of them take minutes.
"""

import multiprocessing
import os
import sys
import time

import torch

from privplan.cli import main
from simulate.runs import run

__all__ = ["finished", "started"]


def _call(arguments, output, save_seconds):
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w")
    torch.set_num_threads(1)
    run.SAVE_SECONDS = save_seconds
    main(list(arguments))


def started(arguments, output, save_seconds=2.0):
    """A command that has begun, whose words go to the file ``output``."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_call, args=(arguments, output, save_seconds))
    process.start()
    return process


def finished(arguments, output):
    """Run a command to its end; returns the seconds that it took."""
    process = started(arguments, output)
    begun = time.monotonic()
    process.join()
    assert process.exitcode == 0, output.read_text()
    return time.monotonic() - begun
