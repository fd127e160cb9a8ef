"""Copies a guarded run and kills the copies: ``python -m tests.guard.copies``.

The arguments are a folder, a number of kills and a seed. Processes train in copies of
one run folder, two at a time, with one book. Each is killed at a random write or after
a random time; folders are copied meanwhile, also while a process writes to one. Each
process writes what its guard handed out to a log that only grows.
"""

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np

from privplan.book.reservations import FencedError
from privplan.errors import InputError
from privplan.guard import Guard, booked
from tests.guard.kills import kill_at, logged
from tests.guard.plans import SIZE, plan_of

ROUNDS = 60
LONGEST = 0.6  # seconds that a process has before it is killed
REFUSED = 3  # exit code of a process whose folder is an old copy, or is a torn one
MOST_COPIES = 12  # folders, after which the oldest ones are trained on
PLAN = plan_of({"strict": (60, 2.0, 0.1, 12.0), "loose": (40, 4.0, 0.2, 8.0)}, ROUNDS)


def train(folder, book, log):
    """Train to the last round, from what the folder holds."""
    with Guard(PLAN, folder, book) as guard:
        interrupted = guard.interrupted
        if interrupted is not None:
            logged(log, "released", interrupted.round, interrupted.mean)
            guard.record(interrupted.round, interrupted.mean)
        while not guard.finished:
            round_ = guard.round
            guard.draw(round_)
            mean = guard.release(round_, {"strict": np.full(SIZE, 0.1)}).mean
            logged(log, "released", round_, mean)
            guard.record(round_, mean)


def started(folder, book, log, seed):
    """A process that trains in a folder, and may kill itself at one of its writes."""
    child = os.fork()
    if child == 0:
        random.seed(seed)
        if random.random() < 0.5:
            kill_at(random.randrange(1, 20))
        try:
            train(folder, book, log)
        except (FencedError, InputError):
            os._exit(REFUSED)
        os._exit(0)
    return child


def copied(folder, target):
    """A copy of a folder, made while a process may write to it."""
    try:
        shutil.copytree(folder, target)
    except (OSError, shutil.Error):  # a file went away meanwhile
        shutil.rmtree(target, ignore_errors=True)


def kill_and_copy(base, book, log, kills, seed):
    """Train, copy and kill so often; the folders and how many processes were killed."""
    folders = [base / "run"]
    killed = 0
    for number in range(kills):
        pair = random.choices(folders, k=2)
        children = [
            started(folder, book, log, seed * 1_000_003 + 2 * number + place)
            for place, folder in enumerate(pair)
        ]
        time.sleep(random.uniform(0.0, LONGEST / 2))
        target = base / f"copy{number}"
        copied(random.choice(pair), target)
        if target.exists() and len(folders) < MOST_COPIES:
            folders.append(target)
        time.sleep(random.uniform(0.0, LONGEST / 2))
        for child in children:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            killed += os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    return folders, killed


def finished(folder, book, log):
    """Whether a process finishes the run of a folder, and is not refused."""
    child = os.fork()
    if child == 0:
        try:
            train(folder, book, log)
        except FencedError:
            os._exit(REFUSED)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, REFUSED):
        sys.exit(f"a process failed with exit code {code} in {folder}")
    return code == 0


def main():
    """Kill and copy as often as asked, then let one process after another finish."""
    base = Path(sys.argv[1])
    seed = int(sys.argv[3])
    random.seed(seed)
    # Imported before the fork, so that a kill hits the run and not the imports.
    assert booked
    book = str(base / "book.sqlite")
    log = base / "log.jsonl"
    with Guard(PLAN, base / "run", book):
        pass  # a copy from before the reservation would be a run of its own
    folders, killed = kill_and_copy(base, book, log, int(sys.argv[2]), seed)
    refused = [folder for folder in folders if not finished(folder, book, log)]
    print(killed, len(refused), len(folders))


if __name__ == "__main__":
    main()
