"""Sweeps: independent items of work, interrupted by Ctrl-C and resumed by the same command.

``privplan what-if`` and ``privplan compare`` are sweeps. A sweep holds a folder, computes the
items that are not finished yet, in order or over processes, and stores each result as soon as it
is there. What-if stores results in a ``Journal``; the items of compare are runs, whose own
folders are the durable store, so its work function returns finished runs as they are.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from privplan.errors import InputError, PrivplanError
from privplan.files import (
    LOCK,
    load_json,
    locked,
    missing_folders,
    read_text,
    remove_empty,
    write_text,
)
from privplan.processes import INTERRUPTED, in_processes, interruption

_log = logging.getLogger(__name__)
Item = TypeVar("Item")
Result = TypeVar("Result")
Task = TypeVar("Task")
Outcome = TypeVar("Outcome")
Options = ParamSpec("Options")

Progress = Callable[[int, int], None]
"""Called with the number of finished items and the number of all items."""


class Spread(Protocol):
    """Calls a function that other processes can import with each task, in any order."""

    def __call__(
        self, work: Callable[[Task], Outcome], tasks: Sequence[Task], /
    ) -> Iterator[Outcome]:
        """Yield the outcomes, each as soon as it is there."""


class InterruptedSweepError(PrivplanError):
    """A sweep was interrupted by Ctrl-C.

    Args:
        folder: where finished items are stored; None when they are not.
    """

    exit_code = INTERRUPTED

    def __init__(self, folder: Path | None) -> None:
        stored = _kept_in(folder) if folder else ": name a folder with -o to resume"
        super().__init__(f"interrupted{stored}")


def _kept_in(folder: Path) -> str:
    return f": what is done is kept in {folder}; the same command resumes"


def sweeps_in(
    folder: Callable[[Mapping[str, Any]], Path | None],
) -> Callable[[Callable[Options, Outcome]], Callable[Options, Outcome]]:
    """A decorator of a command that executes a sweep: Ctrl-C names its folder once it has begun.

    ``resumable`` does so during the sweep; this does while the command imports modules, before the
    sweep and after it, too. It stands below the options of the command.
    """

    def decorate(command: Callable[Options, Outcome]) -> Callable[Options, Outcome]:
        @wraps(command)
        def run(*args: Options.args, **options: Options.kwargs) -> Outcome:
            where = folder(options)

            def begun() -> str:
                return _kept_in(where) if where and (where / LOCK).exists() else ""

            with interruption(begun):
                try:
                    return command(*args, **options)
                except KeyboardInterrupt:
                    if begun():
                        raise InterruptedSweepError(where) from None
                    raise

        return run

    return decorate


class Journal(Generic[Result]):
    """Results of finished items in a file, one JSON line per item.

    Args:
        path: the file.
        sweep: digest of everything that the results depend on, besides the item.
        check: called with the point (the key's JSON value) and the result of each line; raises
            ``KeyError``, ``TypeError`` or ``ValueError`` for a line that the sweep cannot have
            written.
    """

    def __init__(self, path: Path, sweep: str, check: Callable[[Any, Any], None]) -> None:
        self._path = path
        self._sweep = sweep
        self._check = check

    def load(self) -> dict[str, Result]:
        """Results by key; an incomplete last line is ignored."""
        return self._read()[0]

    def begin(self) -> dict[str, Result]:
        """Results by key, after an incomplete last line was removed from the file."""
        results, complete = self._read()
        if self._path.exists():  # else the first result creates it
            write_text(self._path, complete)
        return results

    def append(self, key: str, result: Result) -> None:
        """Store the result of an item."""
        line = {"sweep": self._sweep, "point": json.loads(key), "rows": result}
        try:
            with self._path.open("a", encoding="utf-8") as journal:
                journal.write(json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            rule = f"must be writable ({error.strerror})"
            raise InputError.one("output", rule, str(self._path)) from None

    def _read(self) -> tuple[dict[str, Result], str]:
        """Results by key, and the complete lines of the file."""
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
    with nullcontext() if folder is None else _held(folder):
        try:
            yield
        except KeyboardInterrupt:
            raise InterruptedSweepError(folder) from None


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Lock a folder, and remove what was created for that when nothing else was."""
    created = missing_folders(folder)
    before = {one.name for one in folder.iterdir()} if folder.is_dir() else set()
    with locked(folder):
        try:
            yield
        except InterruptedSweepError:
            raise
        except PrivplanError:
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
    stored = {} if journal is None else journal.begin()
    results = {key: stored[key] for key in items if key in stored}
    progress(len(results), len(items))
    _log.info("%d of %d items are finished before the start", len(results), len(items))
    missing = [(work, key, item) for key, item in items.items() if key not in results]
    for key, result in spread(_with_key, missing):
        results[key] = result
        if journal is not None:
            journal.append(key, result)
        _log.info("finished %s", key)
        progress(len(results), len(items))
    return results


def _with_key(task: tuple[Callable[[Item], Result], str, Item]) -> tuple[str, Result]:
    work, key, item = task
    return key, work(item)


def in_jobs(jobs: int) -> Spread:
    """Calls in order in this process with one job, else over that many processes."""

    def spread(work: Callable[[Task], Outcome], tasks: Sequence[Task], /) -> Iterator[Outcome]:
        return map(work, tasks) if jobs <= 1 else in_processes(work, tasks, jobs)

    return spread
