"""Kills a guarded run again and again.

    python -m tests.guard.kills FOLDER KILLS SEED

Half of the kills come after a random time, half at a random write of the process, of
which a part may be on disk. Each process writes what it released, and what it sent
after the release was booked, to a log that only grows.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from privplan import files
from privplan.guard import Guard, guard, storage
from tests.guard.plans import SIZE, plan_of


def plan_for(kills, signers=()):
    """A plan with more rounds than that many processes finish."""
    groups = {"strict": (60, 2.0, 0.1, 12.0), "loose": (40, 4.0, 0.2, 8.0)}
    return plan_of(groups, 40 + 4 * kills, signers=signers)


def logged(path, kind, round_, vector):
    """Add a line with the hash of a vector to a log."""
    digest = hashlib.sha256(vector.tobytes()).hexdigest()
    with open(path, "a") as file:
        file.write(json.dumps([kind, round_, digest]) + "\n")


def train(plan, folder, log, witnessing):
    """Train to the last round, from what the folder holds."""
    with Guard(plan, folder, keep=None, witnessing=witnessing) as running:
        model = np.zeros(SIZE) if running.model is None else running.model["model"]
        interrupted = running.interrupted
        if interrupted is not None:
            logged(log, "released", interrupted.round, interrupted.mean)
            model = model + interrupted.mean
            running.record(interrupted.round, model)
            logged(log, "sent", interrupted.round, model)
        while not running.finished:
            round_ = running.round
            running.draw(round_)
            mean = running.release(round_, {"strict": np.full(SIZE, 0.1)}).mean
            logged(log, "released", round_, mean)
            model = model + mean
            running.record(round_, model)
            logged(log, "sent", round_, model)


def kill_at(write):
    """Make this process kill itself at a durable write, maybe after a part of it."""
    count = 0

    def counted(call):
        def wrapped(*args, **extra):
            nonlocal count
            count += 1
            if count == write:
                if call is append:
                    torn = args[1][: random.randrange(len(args[1]) + 1)]
                    append(args[0], torn, *args[2:], **extra)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **extra)

        return wrapped

    append = files.append_bytes
    storage.append_bytes = counted(append)  # type: ignore[attr-defined]
    os.replace = counted(os.replace)  # type: ignore[assignment]
    os.fsync = counted(os.fsync)  # type: ignore[assignment]


def main(signers=(), witnessing=None):
    """Kill as often as asked, then let one process finish."""
    folder = Path(sys.argv[1])
    kills = int(sys.argv[2])
    seed = int(sys.argv[3])
    random.seed(seed)
    plan = plan_for(kills, signers)
    # Imported before the fork, so that a kill hits the run and not the imports.
    assert guard
    done = hits = 0
    while done <= kills:
        child = os.fork()
        if child == 0:
            random.seed(seed * 1_000_003 + done)
            if done < kills and done % 2:
                kill_at(random.randrange(1, 14))
            train(plan, folder / "run", folder / "log.jsonl", witnessing)
            os._exit(0)
        if done < kills and not done % 2:
            time.sleep(random.uniform(0.0, 0.04))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, -signal.SIGKILL):
            sys.exit(f"a process failed with exit code {code}")
        hits += code == -signal.SIGKILL
        done += 1
    print(hits)


if __name__ == "__main__":
    main()
