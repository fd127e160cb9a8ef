"""Work distributed over a Ray cluster, cancelled at once when it is interrupted."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

from privplan.errors import InputError, PrivplanError

Item = TypeVar("Item")
Result = TypeVar("Result")

LOCAL = "local"
"""Address of a cluster that consists of this machine only and ends with the command."""

POLL_SECONDS = 1.0
"""Seconds between two checks for Ctrl-C."""


def ray_library() -> ModuleType:
    """Returns the library Ray.

    Raises:
        InputError: when it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        rule = "needs the library Ray: pip install 'privplan[cluster]'"
        raise InputError.one("cluster", rule, "no module named ray") from None
    library: ModuleType = ray
    return library


def on_cluster(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    jobs: int,
    *,
    address: str,
    gpus: int = 0,
) -> Iterator[Result]:
    """Yields the results of ``function`` as they arrive; as ``in_processes``, over a cluster.

    When the iteration ends early for any reason, running tasks are killed, so they must be
    resumable.

    Args:
        function: a function that the machines of the cluster can import.
        items: its arguments, one per task.
        jobs: largest number of concurrent tasks, at least 1; the cluster runs as many of them as
            it has cores.
        address: ``auto`` for the cluster that this machine belongs to, ``local`` for a cluster of
            this machine only, or an address in Ray's format.
        gpus: GPUs per task.

    Raises:
        InputError: when Ray is not installed, or no cluster answers.
        PrivplanError: when a worker dies; any exception of a task is raised as it is.
    """
    ray = ray_library()
    with _connected(ray, address), _exit_on_sigint() as check:
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(function)
        waiting = list(reversed(items))
        running: list[Any] = []
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(task.remote(waiting.pop()))
                done, running = ray.wait(running, timeout=POLL_SECONDS)
                check()
                for result in done:
                    yield ray.get(result)
        except ray.exceptions.RayError as error:
            raise _task_error(error) from None
        finally:
            for result in running:
                ray.cancel(result, force=True)


def _task_error(error: Any) -> Exception:
    """The exception that a task raised, or an error that names its lost worker."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return cause
    line = f"a worker of the cluster was lost ({type(error).__name__}); the same command resumes"
    return PrivplanError(line)


@contextmanager
def _exit_on_sigint() -> Iterator[Callable[[], None]]:
    """Yields a check that raises KeyboardInterrupt after SIGINT, even if Ray suppressed it."""
    pressed = threading.Event()

    def on_sigint(number: int, frame: object) -> None:
        pressed.set()
        raise KeyboardInterrupt

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    before = signal.signal(signal.SIGINT, on_sigint)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _connected(ray: ModuleType, address: str) -> Iterator[None]:
    """A connection to the cluster; an existing connection is used and left open."""
    if ray.is_initialized():
        yield
        return
    options = {"include_dashboard": False} if address == LOCAL else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except (ConnectionError, OSError, RuntimeError, ValueError):
        rule = f"must be the address of a Ray cluster that runs, auto or {LOCAL}"
        raise InputError.one("cluster", rule, address) from None
    try:
        yield
    finally:
        ray.shutdown()
