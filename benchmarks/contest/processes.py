"""A process for each contestant, and what its runs cost."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import torch
from contest.workloads import NOISE, WORKLOADS


def spent(work: Callable[[], object]) -> tuple[float, object]:
    """CPU seconds of the process during `work`, and its result."""
    before = time.process_time()
    result = work()
    return time.process_time() - before, result


def peak_megabytes() -> float:
    """Largest resident memory of the process so far."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6


def contest(key: str, threads: int, name: str, line: Connection) -> None:
    """Be a contestant: send a result without noise, then the seconds of each run."""
    torch.set_num_threads(1)
    run = WORKLOADS[key](threads).contestants[name]
    line.send((run(0.0).numpy(), peak_megabytes()))
    while line.recv():
        line.send(spent(lambda: run(NOISE))[0])


class Contestant:
    """One contestant, in a process of its own.

    Attributes:
        result: of its first run.
        memory: peak of its process after that run, in megabytes.
    """

    def __init__(self, key: str, threads: int, name: str) -> None:
        context = get_context("spawn")
        self._line, process_end = context.Pipe()
        self._process = context.Process(
            target=contest,
            args=(key, threads, name, process_end),
            name=name,
            daemon=True,
        )
        self._process.start()
        # So that nothing is waited for once the contestant is gone.
        process_end.close()
        result, self.memory = self._heard()
        self.result = torch.from_numpy(result)

    def seconds(self) -> float:
        """CPU seconds of one more run."""
        self._line.send(True)
        return float(self._heard())

    def leave(self) -> None:
        """End the process."""
        self._line.send(False)
        self._process.join()
        self._line.close()

    def _heard(self) -> Any:
        """What the process says next.

        Raises:
            RuntimeError: when it has died.
        """
        try:
            return self._line.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode
            raise RuntimeError(
                f"{self._process.name} died with exit code {code}"
            ) from None
