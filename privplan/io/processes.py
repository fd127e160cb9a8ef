"""Work spread over processes of this machine, stopped at once when it is interrupted."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from privplan.errors import PrivplanError

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[Result]:
    """Results of ``work``, each as soon as it is there.

    Ctrl-C reaches this process only. When the iteration ends early for any reason, or this process
    is killed, the workers are ended where they are, so what they do must survive that.

    Args:
        work: a function that a fresh process can import.
        items: what it is called with.
        jobs: processes at a time, at least 1.

    Raises:
        PrivplanError: when a worker dies.
    """
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    size = max(1, min(jobs, len(items)))
    with ProcessPoolExecutor(size, mp_context=context, initializer=_follow) as pool:
        with ignore_sigint():
            running = [pool.submit(work, item) for item in items]
        try:
            for done in as_completed(running):
                yield done.result()
        except BrokenProcessPool:
            line = "a worker process died (out of memory?); the same command resumes"
            raise PrivplanError(line) from None
        except BaseException:
            with ignore_sigint():  # a second Ctrl-C must not disturb the end
                for child in set(multiprocessing.active_children()) - others:
                    child.terminate()
                pool.shutdown(wait=True, cancel_futures=True)
            raise


def _follow() -> None:
    """End this worker as soon as the process that it works for is gone."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def ignore_sigint() -> Iterator[None]:
    """Ctrl-C is not heard in this block, nor ever by processes that start in it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
