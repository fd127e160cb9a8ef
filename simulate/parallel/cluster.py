"""Work spread over a Ray cluster, ended at once when it is interrupted."""

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
"""The address of a cluster of this machine alone, which ends with the command."""

PAUSE = 1.0
"""Seconds between two looks at whether Ctrl-C was pressed."""


def ray_library() -> ModuleType:
    """The library Ray.

    Raises:
        InputError: when it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        rule = "needs the library Ray: pip install 'privplan[cluster]'"
        raise InputError.one("cluster", rule, "no module named ray") from None
    return ray  # type: ignore[no-any-return]


def on_cluster(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    jobs: int,
    *,
    address: str,
    gpus: int = 0,
) -> Iterator[Result]:
    """Results of ``work``, each as soon as it is there; as ``in_processes``, over a cluster.

    When the iteration ends early for any reason, tasks are ended where they are, so what they do
    must survive that.

    Args:
        work: a function that the machines of the cluster can import.
        items: what it is called with.
        jobs: tasks at a time, at least 1; the cluster runs as many of them as it has cores.
        address: ``auto`` for the cluster that this machine belongs to, ``local`` for one of this
            machine alone, or an address as Ray takes it.
        gpus: GPUs of each task.

    Raises:
        InputError: when Ray is not installed, or no cluster answers.
        PrivplanError: when a worker dies; or what a task raised.
    """
    ray = ray_library()
    with _connected(ray, address), _heard() as check:
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(work)
        waiting, running = list(reversed(items)), []
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(task.remote(waiting.pop()))
                done, running = ray.wait(running, timeout=PAUSE)
                check()
                for one in done:
                    yield ray.get(one)
        except ray.exceptions.RayError as error:
            raise _told(error) from None
        finally:
            for one in running:
                ray.cancel(one, force=True)


def _told(error: Any) -> Exception:
    """What a task raised, or that its worker is gone."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return cause
    line = f"a worker of the cluster was lost ({type(error).__name__}); the same command resumes"
    return PrivplanError(line)


@contextmanager
def _heard() -> Iterator[Callable[[], None]]:
    """A check that raises where Ctrl-C was pressed, though the library swallowed it."""
    pressed = threading.Event()

    def hear(number: int, frame: object) -> None:
        pressed.set()
        raise KeyboardInterrupt

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    before = signal.signal(signal.SIGINT, hear)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _connected(ray: ModuleType, address: str) -> Iterator[None]:
    """A connection to the cluster; one that stands already is used and kept."""
    if ray.is_initialized():
        yield
        return
    own = {"include_dashboard": False} if address == LOCAL else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
    except (ConnectionError, OSError, RuntimeError, ValueError):
        rule = f"must be the address of a Ray cluster that runs, auto or {LOCAL}"
        raise InputError.one("cluster", rule, address) from None
    try:
        yield
    finally:
        ray.shutdown()
