"""Processes of the command line: work spread over several of them, and Ctrl-C.

Imports nothing heavy, because ``privplan.__main__`` handles SIGINT from here on before it imports
anything else.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""
_more: Callable[[], str] = str
"""What the line of an interrupted command ends with, made at that moment."""
_SHOW_CURSOR = "\x1b[?25h"
"""Shows the cursor of a terminal again, which a progress bar may have hidden."""


@contextmanager
def exit_on_sigint() -> Iterator[None]:
    """Ctrl-C ends this process with one line and exit code 130, at any moment.

    Inside the block Ctrl-C raises ``KeyboardInterrupt``, and one that leaves the block ends the
    process. During the import of a module it ends the process at once, because libraries that are
    partly loaded swallow the exception or abort. After the block it also ends the process at
    once. A process that ignores SIGINT continues to ignore it.
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
    """Write one line and end the process without anything that could block or be interrupted."""
    cursor = _SHOW_CURSOR if os.isatty(2) else ""
    os.write(2, os.fsencode(f"{cursor}privplan: interrupted{_more()}\n"))
    os._exit(INTERRUPTED)


@contextmanager
def interruption(more: Callable[[], str]) -> Iterator[None]:
    """In this block the line of a command that Ctrl-C ends at once goes on with ``more()``."""
    global _more
    before, _more = _more, more
    try:
        yield
    finally:
        _more = before


@contextmanager
def end_at_once() -> Iterator[None]:
    """A command that leaves this block by ``SystemExit`` ends without freeing objects one by one.

    With PyTorch imported, that takes a fifth of a short run. Threads are joined, functions of
    ``atexit`` called and streams flushed as always; errors are left to Python, and so is all where
    something has registered with ``atexit`` before, which would be skipped.
    """
    codes: list[int] = []

    def end() -> None:
        if not codes:
            return
        with suppress(OSError, ValueError):
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(codes[-1])

    if not atexit._ncallbacks():
        atexit.register(end)  # the first to register is the last to be called
    try:
        yield
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            codes.append((leaving.code or 0) & 0xFF)
        raise


BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""How many threads NumPy's matrix products take, read when NumPy is imported."""


def one_blas_thread() -> None:
    """Let NumPy's matrix products take one thread, unless the environment says how many.

    Those of a command are small: more threads answer no sooner, and would spin while they wait for
    the next product, up to half of the processor time of a plan. PyTorch has threads of its own.
    """
    if os.environ.keys().isdisjoint((BLAS_THREADS, "OMP_NUM_THREADS")):
        os.environ[BLAS_THREADS] = "1"


@contextmanager
def ignore_sigint() -> Iterator[None]:
    """Ignore Ctrl-C in this block, and always in processes that start in it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int
) -> Iterator[Result]:
    """Results of ``work`` in the order of completion.

    Ctrl-C reaches this process only. When the iteration ends early for any reason, or this
    process is killed, the workers are terminated, so ``work`` must survive that.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    from privplan.errors import PrivplanError

    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    size = max(1, min(jobs, len(items)))
    with ProcessPoolExecutor(size, mp_context=context, initializer=_begin_worker) as pool:
        with ignore_sigint():
            running = [pool.submit(work, item) for item in items]
        try:
            for done in as_completed(running):
                yield done.result()
        except BrokenProcessPool:
            line = "a worker process died (out of memory?); the same command resumes"
            raise PrivplanError(line) from None
        except BaseException:
            with ignore_sigint():  # a second Ctrl-C must not interrupt the clean-up
                for child in set(multiprocessing.active_children()) - others:
                    child.terminate()
                pool.shutdown(wait=True, cancel_futures=True)
            raise


def _begin_worker() -> None:
    """End this worker as soon as its parent process has ended."""
    import multiprocessing

    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def limited(seconds: float, error: Exception) -> Iterator[None]:
    """Raise the error when the block needs more processor time; without effect in a thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise error

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
