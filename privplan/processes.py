"""Processes of the command line: Ctrl-C, how they end, and work spread over several.

Imports nothing heavy, because ``privplan.__main__`` handles SIGINT from here on before
it imports anything else.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import Any, TypeVar

from privplan.errors import InputError, PrivplanError

Item = TypeVar("Item")
Result = TypeVar("Result")

# Exit code of a command that Ctrl-C ended.
INTERRUPTED = 130
# Shows a cursor again that a progress bar may have hidden.
_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def exit_on_sigint() -> Iterator[None]:
    """Ctrl-C ends this process with one line and exit code 130, at any moment.

    Inside the block Ctrl-C raises ``KeyboardInterrupt``, and one that leaves the block
    ends the process. During the import of a module it ends the process at once, because
    libraries that are partly loaded swallow the exception or abort. After the block it
    also ends the process at once. A process that ignores SIGINT continues to ignore it.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _raise_or_exit)
    try:
        yield
    except KeyboardInterrupt:
        _exit()
    finally:
        signal.signal(signal.SIGINT, _exit)


def _raise_or_exit(number: int, frame: FrameType | None) -> None:
    if _importing(frame):
        _exit()
    raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    """Whether the stack contains the import of a module."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _exit(*_: object) -> None:
    """Write one line and end the process; nothing of this blocks or is interrupted."""
    cursor = _SHOW_CURSOR if os.isatty(2) else ""
    os.write(2, os.fsencode(f"{cursor}privplan: interrupted\n"))
    os._exit(INTERRUPTED)


@contextmanager
def end_at_once() -> Iterator[None]:
    """A command that leaves this block by ``SystemExit`` ends without freeing objects.

    With PyTorch imported, freeing takes a fifth of a short run. Threads are joined,
    functions of ``atexit`` called and streams flushed as always; errors are left to
    Python, and so is all where something has registered with ``atexit`` before, which
    would be skipped.
    """
    codes: list[int] = []

    def end() -> None:
        if not codes:
            return
        with suppress(OSError, ValueError):
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(codes[-1])

    # The first to register is the last to be called.
    if not atexit._ncallbacks():
        atexit.register(end)
    try:
        yield
    except SystemExit as leaving:
        # A text as code is printed by Python. Of a number the system keeps one byte.
        if leaving.code is None or isinstance(leaving.code, int):
            codes.append((leaving.code or 0) & 0xFF)
        raise


BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""How many threads NumPy's matrix products take, read when NumPy is imported."""


def one_blas_thread() -> None:
    """Let NumPy's matrix products take one thread unless the environment says more.

    Those of a command are small: more threads answer no sooner, and would spin while
    they wait for the next product, up to half of the processor time of a plan. PyTorch
    has threads of its own.
    """
    if os.environ.keys().isdisjoint((BLAS_THREADS, "OMP_NUM_THREADS")):
        os.environ[BLAS_THREADS] = "1"


OWN_MODULES: list[tuple[str, str]] = []
"""Folders and names of the user's modules that a command line named.

Workers import them too.
"""


@contextmanager
def importable(folder: str) -> Iterator[None]:
    """Modules of a folder can be imported in this block, after all others."""
    if folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        # Code of the user that was imported may have removed it.
        if folder in sys.path:
            sys.path.remove(folder)


@contextmanager
def ignore_sigint() -> Iterator[None]:
    """Ignore Ctrl-C in this block, and always in processes that start in it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)


class LostWorkerError(PrivplanError):
    """A worker process was killed from outside; what it was doing is not finished."""

    exit_code = 7


Steps = Callable[[int], None]
"""Called with a number of steps that some work has done."""


def _ignore_steps(steps: int) -> None:
    """Where nobody counts."""


# What work calls, in each process of the sweep that runs.
report: Steps = _ignore_steps


def in_processes(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    jobs: int,
    count: Steps = report,
) -> Iterator[Result]:
    """Results of work by several processes, in the order of completion.

    Ctrl-C reaches this process only. When the iteration ends early for any reason, or
    this process is killed, the workers are terminated, so ``work`` must survive that.

    Args:
        work: what to do with an item; a function that other processes can import.
        items: what to work on.
        jobs: the largest number of processes.
        count: gets the numbers of steps that the workers ``report``.

    Raises:
        LostWorkerError: when a worker was killed.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    earlier_children = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    size = max(1, min(jobs, len(items)))
    queue = context.SimpleQueue()
    threading.Thread(target=_count, args=(count, queue), daemon=True).start()
    with ProcessPoolExecutor(
        size, context, _begin_worker, (OWN_MODULES, queue)
    ) as pool:
        with ignore_sigint():
            running = [pool.submit(work, item) for item in items]
        try:
            for done in as_completed(running):
                yield done.result()
        except BrokenProcessPool:
            line = "a worker process died (out of memory?); the same command resumes"
            raise LostWorkerError(line) from None
        except BaseException:
            # A second Ctrl-C must not interrupt the clean-up.
            with ignore_sigint():
                workers = set(multiprocessing.active_children()) - earlier_children
                for worker in workers:
                    worker.terminate()
                pool.shutdown(wait=True, cancel_futures=True)
            raise
        # The end of what the thread reads. Not where a worker was killed: that may hold
        # the lock of the queue.
        queue.put(None)


def _count(count: Steps, queue: Any) -> None:
    for steps in iter(queue.get, None):
        count(steps)


def _begin_worker(user_modules: Sequence[tuple[str, str]], queue: Any) -> None:
    """Report to the parent process, and end with it; import the user's modules."""
    global report
    import multiprocessing

    report = queue.put
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    for folder, module in user_modules:
        with importable(folder):
            import_module(module)


@contextmanager
def limited(seconds: float, error: Exception) -> Iterator[None]:
    """Raise the error when the block needs more processor time.

    Without effect in a thread, where no signal arrives.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise error

    previous_handler = signal.signal(signal.SIGPROF, stop)
    # Raised again after the same time, if a callback hid the first error.
    signal.setitimer(signal.ITIMER_PROF, seconds, max(seconds, 0.1))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous_handler)


Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Calls a function that other processes can import with each task; results as they come."""


_clusters: list[Spread] = []  # of the commands that run, the last of which is used


@contextmanager
def spread_by(cluster: Spread) -> Iterator[None]:
    """Sweeps in this block are computed elsewhere."""
    _clusters.append(cluster)
    try:
        yield
    finally:
        _clusters.remove(cluster)


def has_cluster() -> bool:
    """Whether sweeps are computed elsewhere, where nothing counts their steps."""
    return bool(_clusters)


def require_one_process(jobs: int) -> None:
    """Raise for several processes of this machine beside a cluster."""
    if jobs > 1:
        raise InputError.one("jobs", "must be left out with --on", jobs)


def in_jobs(jobs: int, count: Steps = report) -> Spread:
    """Calls in order in this process with one job, else over that many processes.

    Where a command has named a cluster the calls are made there, and steps not counted.
    """
    if _clusters:
        require_one_process(jobs)
        return _clusters[-1]

    def spread(work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        global report
        report = count
        if jobs <= 1:
            return map(work, tasks)
        return in_processes(work, tasks, jobs, count)

    return spread
