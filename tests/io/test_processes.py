"""Work over processes: all results, and an end at once when it is interrupted."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from pathlib import Path

import pytest

from privplan.errors import Fault, InputError, PrivplanError
from privplan.processes import in_processes


def square(number: int) -> int:
    return number**2


def linger(path: Path) -> None:
    path.write_text(str(signal.getsignal(signal.SIGINT) is signal.SIG_IGN))
    time.sleep(60)


def die(number: int) -> None:
    os._exit(3)


def test_every_result_comes_once() -> None:
    assert sorted(in_processes(square, [1, 2, 3], 2)) == [1, 4, 9]


def test_an_interruption_ends_the_workers(tmp_path: Path) -> None:
    started = time.monotonic()
    path = tmp_path / "worker"

    def alarm(number: int, frame: object) -> None:
        if not path.exists() or not path.read_text():
            signal.setitimer(signal.ITIMER_REAL, 0.1)  # wait until the worker is at work
            return
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            list(in_processes(linger, [path], 1))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert path.read_text() == "True"  # the worker does not hear Ctrl-C
    assert time.monotonic() - started < 30
    assert not multiprocessing.active_children()


def test_a_worker_that_dies_is_one_line() -> None:
    with pytest.raises(PrivplanError, match="a worker process died"):
        list(in_processes(die, [1], 1))


def test_an_error_with_several_faults_crosses_processes_whole() -> None:
    faults = (Fault("a", "must be b", 1), Fault("c", "must be d", 2))
    error = pickle.loads(pickle.dumps(InputError(faults)))
    assert error.faults == faults
    assert str(error) == str(InputError(faults))
