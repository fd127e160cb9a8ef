"""Processes of the command line: Ctrl-C, work spread over several of them, and resumable sweeps.

Imports nothing heavy, because ``privplan.__main__`` handles SIGINT from here on before it imports
anything else.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

from privplan.errors import InputError, PrivplanError

Item = TypeVar("Item")
Result = TypeVar("Result")
Key = TypeVar("Key")

INTERRUPTED = 130  # exit code of a command that Ctrl-C ended
_SHOW_CURSOR = "\x1b[?25h"  # shows a cursor again that a progress bar may have hidden


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
    os.write(2, os.fsencode(f"{cursor}privplan: interrupted\n"))
    os._exit(INTERRUPTED)


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


OWN_MODULES: list[tuple[str, str]] = []
"""Folder and name of the user's modules that a command line named; workers import them too."""


@contextmanager
def importable(folder: str) -> Iterator[None]:
    """Modules of a folder can be imported in this block, after all others, and not behind it."""
    known = folder in sys.path
    sys.path.extend([] if known else [folder])
    try:
        yield
    finally:
        if not known and folder in sys.path:
            sys.path.remove(folder)


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


class LostWorkerError(PrivplanError):
    """A worker process was killed from outside; what it was doing is not finished."""

    exit_code = 7


Steps = Callable[[int], None]  # called with a number of steps that some work has done
report: Steps = lambda steps: None  # noqa: E731  # of the sweep that runs, in each of its processes


def in_processes(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    jobs: int,
    count: Steps = report,
) -> Iterator[Result]:
    """Results of ``work`` in the order of completion; ``count`` gets what the workers ``report``.

    Ctrl-C reaches this process only. When the iteration ends early for any reason, or this
    process is killed, the workers are terminated, so ``work`` must survive that.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    size, queue = max(1, min(jobs, len(items))), context.SimpleQueue()
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
            with ignore_sigint():  # a second Ctrl-C must not interrupt the clean-up
                for child in set(multiprocessing.active_children()) - others:
                    child.terminate()
                pool.shutdown(wait=True, cancel_futures=True)
            raise
        queue.put(
            None
        )  # not where a worker was killed, which may hold the lock of the queue


def _count(count: Steps, queue: Any) -> None:
    for steps in iter(queue.get, None):
        count(steps)


def _begin_worker(own: Sequence[tuple[str, str]], queue: Any) -> None:
    """Report to the parent process, and end with it; import the user's modules."""
    global report
    import multiprocessing

    report, parent = queue.put, multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    for folder, module in own:
        with importable(folder):
            import_module(module)


@contextmanager
def limited(seconds: float, error: Exception) -> Iterator[None]:
    """Raise the error when the block needs more processor time; without effect in a thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise error

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(
        signal.ITIMER_PROF, seconds, max(seconds, 0.1)
    )  # again, if a callback hid it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# --- Sweeps: items of work that Ctrl-C interrupts and the same command resumes. ------------------
# A sweep holds a folder, computes the items that are not finished yet, in order or over processes,
# and stores each result as soon as it is there: in a ``Journal``, or, where items are runs, in
# their own folders, so that the work returns finished runs as they are.

Progress = Callable[[int, int], None]  # number of finished items, number of all items


Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Calls a function that other processes can import with each task; its results, as they come."""


class InterruptedSweepError(PrivplanError):
    """A sweep was interrupted by Ctrl-C; the folder is where finished items are stored, if any."""

    exit_code = INTERRUPTED

    def __init__(self, folder: Path | None) -> None:
        kept = f"what is done is kept in {folder}; the same command resumes"
        super().__init__(
            f"interrupted: {kept if folder else 'name a folder with -o to resume'}"
        )


class Journal(Generic[Result]):
    """Results of finished items in a file, one JSON line per item.

    ``sweep`` is the digest of all that results depend on besides the item. ``check`` takes the
    point (the key's JSON value) and the result of each line, and raises ``KeyError``,
    ``TypeError`` or ``ValueError`` for a line that the sweep cannot have written.
    """

    def __init__(
        self, path: Path, sweep: str, check: Callable[[Any, Any], None]
    ) -> None:
        self._path, self._sweep, self._check = path, sweep, check

    def load(self) -> dict[str, Result]:
        """Results by key; an incomplete last line is ignored."""
        return self._read()[0]

    def begin(self) -> dict[str, Result]:
        """Results by key, after an incomplete last line was removed from the file."""
        from privplan.files import write_text

        results, complete = self._read()
        if self._path.exists():  # else the first result creates it
            write_text(self._path, complete)
        return results

    def append(self, key: str, result: Result) -> None:
        """Store the result of an item."""
        from privplan.files import append_bytes

        line = {"sweep": self._sweep, "point": json.loads(key), "rows": result}
        append_bytes(
            self._path, (json.dumps(line, allow_nan=False) + "\n").encode(), "output"
        )

    def _read(self) -> tuple[dict[str, Result], str]:
        """Results by key, and the complete lines of the file."""
        from privplan.files import load_json, read_text

        if not self._path.exists():
            return {}, ""
        text = read_text(self._path, "output")
        complete = text[: text.rfind("\n") + 1]
        results: dict[str, Result] = {}
        for number, line in enumerate(complete.split("\n")[:-1], start=1):
            try:
                entry = load_json(line)
                sweep, point, result = entry["sweep"], entry["point"], entry["rows"]
                self._check(point, result)
            except (ValueError, KeyError, TypeError):
                rule = f"must be as it was written; line {number} is none of a sweep"
                raise InputError.one("output", rule, str(self._path)) from None
            if sweep != self._sweep:
                rule = "must not hold results of other settings; delete it or choose another"
                raise InputError.one("output", rule, str(self._path))
            results[key_of(point)] = result
        return results, complete


def key_of(point: Any) -> str:
    """The key of an item that is identified by JSON data."""
    return json.dumps(point, sort_keys=True)


@contextmanager
def resumable(folder: Path | None) -> Iterator[None]:
    """Hold the folder of a sweep until the block ends.

    Lock and folder, where they were created here, are removed when the block is refused before
    anything is stored in the folder.
    """
    from privplan.files import LOCK, locked, missing_folders, remove_empty

    created = [] if folder is None else missing_folders(folder)
    before = (
        {one.name for one in folder.iterdir()} if folder and folder.is_dir() else set()
    )
    with nullcontext() if folder is None else locked(folder):
        try:
            yield
        except KeyboardInterrupt:
            raise InterruptedSweepError(folder) from None
        except PrivplanError:
            if folder is not None:
                if {one.name for one in folder.iterdir()} - before == {LOCK}:
                    (folder / LOCK).unlink()
                remove_empty(created)
            raise


def finish(
    items: Mapping[str, Item],
    work: Callable[[Item], Result],
    *,
    spread: Spread,
    journal: Journal[Result] | None = None,
    progress: Progress = lambda done, total: None,
) -> dict[str, Result]:
    """Results of all items by key; those in the journal are not computed again."""
    from logging import (
        getLogger,
    )  # not before ``end_at_once``: it registers with ``atexit``

    log, stored = getLogger(__name__), {} if journal is None else journal.begin()
    results = {key: stored[key] for key in items if key in stored}
    progress(len(results), len(items))
    log.info("%d of %d items are finished before the start", len(results), len(items))
    missing = [(work, key, item) for key, item in items.items() if key not in results]
    try:
        for key, result in spread(keyed, missing):
            results[key] = result
            if journal is not None:
                journal.append(key, result)
            log.info("finished %s", key)
            progress(len(results), len(items))
    except LostWorkerError as lost:
        left = [key for key in items if key not in results]
        named = ", ".join(left[:5]) + (", ..." if len(left) > 5 else "")
        raise LostWorkerError(
            f"{lost}; missing: {len(left)} of {len(items)}: {named}"
        ) from None
    return results


def keyed(task: tuple[Callable[[Item], Result], Key, Item]) -> tuple[Key, Result]:
    """The key of a task and its result; a function that other processes import."""
    work, key, item = task
    return key, work(item)


def in_jobs(jobs: int, count: Steps = report) -> Spread:
    """Calls in order in this process with one job, else over that many processes."""

    def spread(work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        global report
        report = count
        return map(work, tasks) if jobs <= 1 else in_processes(work, tasks, jobs, count)

    return spread
