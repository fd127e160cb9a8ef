"""Processes: work over several, their end, their threads, and sweeps that go on."""

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from privplan import processes, sweeps
from privplan import processes as pool
from privplan.errors import Fault, InputError
from privplan.files import LOCK, locked


def square(number):
    return number**2


def linger(path):
    path.write_text(str(signal.getsignal(signal.SIGINT) is signal.SIG_IGN))
    time.sleep(60)


def die(number):
    processes.report(5)
    os._exit(3)


def test_an_interruption_ends_the_workers(tmp_path):
    started = time.monotonic()
    path = tmp_path / "worker"

    def alarm(number, frame):
        if not path.exists() or not path.read_text():
            # Wait until the worker is at work.
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            list(pool.in_processes(linger, [path], 1))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert path.read_text() == "True"  # the worker does not hear Ctrl-C
    assert time.monotonic() - started < 30
    assert not multiprocessing.active_children()


def test_a_worker_that_dies_is_one_line_that_says_what_is_missing(tmp_path):
    line = r"a worker process died .*; the same command resumes; missing: 2 of 3: \"b\", \"c\""
    done = json.dumps({"sweep": "one", "point": "a", "rows": 4})
    (tmp_path / "journal.jsonl").write_text(f"{done}\n")
    stored = sweeps.Journal(tmp_path / "journal.jsonl", "one", lambda point, rows: None)
    keys = {sweeps.key_of(name): 1 for name in "abc"}
    steps = []
    with pytest.raises(pool.LostWorkerError, match=line) as lost:
        sweeps.finish(keys, die, spread=pool.in_jobs(2, steps.append), journal=stored)
    assert lost.value.exit_code == 7
    assert set(steps) == {5}


def test_an_error_with_several_faults_crosses_processes_whole():
    faults = (Fault("a", "must be b", 1), Fault("c", "must be d", 2))
    error = pickle.loads(pickle.dumps(InputError(faults)))
    assert error.faults == faults
    assert str(error) == str(InputError(faults))


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


def end(leave, stdout=subprocess.PIPE):
    call = [sys.executable, "-c", ENDING.format(leave=leave)]
    buffered = {
        name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"
    }
    done = subprocess.run(
        call, stdout=stdout, stderr=subprocess.PIPE, text=True, env=buffered
    )
    return done.stdout, done.stderr, done.returncode


@pytest.mark.parametrize(("leave", "code"), [("sys.exit(7)", 7), ("sys.exit()", 0)])
def test_output_is_complete_but_nothing_is_freed(leave, code):
    assert end(leave) == ("written joined\ncalled\n", "", code)


def test_errors_and_output_that_cannot_be_written_end_as_python_ends_them():
    out, error, code = end("raise ValueError('found')")
    assert out == "written joined\ncalled\nfreed\n"
    assert code == 1
    assert "ValueError: found" in error
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as nowhere:
            _, error, code = end("sys.exit(0)", nowhere)
        assert code == 120
        assert "No space left" in error


STARTED = """
import os
from privplan.processes import one_blas_thread

one_blas_thread()
before = len(os.listdir("/proc/self/task"))
import numpy
print(len(os.listdir("/proc/self/task")) - before, os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="threads are counted by Linux"
)
@pytest.mark.parametrize(
    ("changes", "threads", "variable"),
    [
        ({}, 0, "1"),
        ({"OPENBLAS_NUM_THREADS": "2"}, min(2, os.cpu_count() or 1) - 1, "2"),
        ({"OMP_NUM_THREADS": "2"}, min(2, os.cpu_count() or 1) - 1, "None"),
    ],
)
def test_numpy_starts_no_threads_unless_asked(changes, threads, variable):
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    environment = {
        name: value for name, value in os.environ.items() if name not in names
    }
    command = [sys.executable, "-c", STARTED]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**environment, **changes}
    )
    started, setting = done.stdout.split()
    assert int(started) == threads
    assert setting == variable


POINTS = [{"number": number} for number in range(4)]
ITEMS = {sweeps.key_of(point): point["number"] for point in POINTS}
SQUARES = {sweeps.key_of(point): point["number"] ** 2 for point in POINTS}


def check(point, result):
    if result != point["number"] ** 2:
        raise ValueError


def journal(folder, sweep="one"):
    return sweeps.Journal(folder / "journal.jsonl", sweep, check)


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_by_key_whatever_the_order_of_completion(jobs, tmp_path):
    counts: list[tuple[int, int]] = []
    done = sweeps.finish(
        ITEMS,
        square,
        spread=pool.in_jobs(jobs),
        journal=journal(tmp_path),
        progress=lambda *count: counts.append(count),
    )
    assert done == SQUARES
    assert counts == [(number, 4) for number in range(5)]
    assert journal(tmp_path).load() == SQUARES


def test_only_missing_items_are_computed(tmp_path):
    first_items = dict(list(ITEMS.items())[:2])
    sweeps.finish(
        first_items, square, spread=pool.in_jobs(1), journal=journal(tmp_path)
    )
    computed: list[int] = []

    def recorded(number):
        computed.append(number)
        return square(number)

    spread = pool.in_jobs(1)
    done = sweeps.finish(ITEMS, recorded, spread=spread, journal=journal(tmp_path))
    assert done == SQUARES
    assert computed == [2, 3]


def test_ctrl_c_names_the_folder_and_releases_it(tmp_path):
    reason = f"kept in {tmp_path}; the same command"
    with (
        pytest.raises(sweeps.InterruptedSweepError, match=reason),
        sweeps.resumable(tmp_path),
    ):
        raise KeyboardInterrupt
    in_use = pytest.raises(InputError, match="must not be in use")
    with sweeps.resumable(tmp_path), in_use, locked(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    with (
        pytest.raises(sweeps.InterruptedSweepError, match="name a folder with -o"),
        sweeps.resumable(None),
    ):
        raise KeyboardInterrupt


def test_a_refused_sweep_leaves_nothing_behind(tmp_path):
    """Folders that it created, unless something was stored, and the lock of others."""

    def refused(number):
        if number == last_number:
            raise InputError.one("number", "must be another", number)
        return square(number)

    def run(folder):
        with (
            pytest.raises(InputError, match="must be another"),
            sweeps.resumable(folder),
        ):
            sweeps.finish(
                ITEMS, refused, spread=pool.in_jobs(1), journal=journal(folder)
            )

    last_number = 0
    run(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "own.txt").write_text("kept")
    run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["own.txt"]
    last_number = 2
    run(tmp_path / "a" / "b")
    assert len(journal(tmp_path / "a" / "b").load()) == 2


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("nothing", "line 1 is none of a sweep"),
        ("[]", "line 1 is none of a sweep"),
        (
            json.dumps({"sweep": "one", "point": {"number": 2}, "rows": 5}),
            "line 1 is none",
        ),
        (
            json.dumps({"sweep": "two", "point": {"number": 2}, "rows": 4}),
            "other settings",
        ),
    ],
)
def test_a_journal_of_another_sweep_is_refused(line, rule, tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InputError, match=rule):
        sweeps.finish(ITEMS, square, spread=pool.in_jobs(1), journal=journal(tmp_path))
    assert path.read_text() == line + "\n"


def test_an_incomplete_last_line_is_removed(tmp_path):
    path = tmp_path / "journal.jsonl"
    complete_line = (
        json.dumps({"sweep": "one", "point": {"number": 2}, "rows": 4}) + "\n"
    )
    path.write_text(complete_line + '{"sweep": "on')
    assert journal(tmp_path).load() == {sweeps.key_of({"number": 2}): 4}
    assert journal(tmp_path).begin() == {sweeps.key_of({"number": 2}): 4}
    assert path.read_text() == complete_line
