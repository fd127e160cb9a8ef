"""Sweeps: items of work that Ctrl-C interrupts and the same command resumes.

A sweep holds a folder, computes the items that are not finished yet, in order or over
processes, and stores each result as soon as it is there: in a ``Journal``, or, where
items are runs, in their own folders, so that the work returns finished runs as they
are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from logging import getLogger
from pathlib import Path
from typing import Any, Generic, TypeVar

from privplan.errors import InputError, PrivplanError
from privplan.files import (
    LOCK,
    append_bytes,
    load_json,
    locked,
    missing_folders,
    read_text,
    remove_empty,
    write_text,
)
from privplan.processes import INTERRUPTED, LostWorkerError, Spread

Item = TypeVar("Item")
Result = TypeVar("Result")
Key = TypeVar("Key")

_LOG = getLogger(__name__)
# So many missing items fit a line.
_NAMED_ITEMS = 5

Progress = Callable[[int, int], None]
"""Called with the number of finished items and the number of all items."""


class InterruptedSweepError(PrivplanError):
    """A sweep was interrupted by Ctrl-C.

    Args:
        folder: where finished items are stored; None where they are lost.
    """

    exit_code = INTERRUPTED

    def __init__(self, folder: Path | None) -> None:
        advice = "name a folder with -o to resume"
        if folder:
            advice = f"what is done is kept in {folder}; the same command resumes"
        super().__init__(f"interrupted: {advice}")


class Journal(Generic[Result]):
    """Results of finished items in a file, one JSON line per item.

    Args:
        path: the file.
        sweep: digest of all that results depend on besides the item.
        check: takes the point (the key's JSON value) and the result of each line, and
            raises ``KeyError``, ``TypeError`` or ``ValueError`` for a line that the
            sweep cannot have written.
    """

    def __init__(
        self, path: Path, sweep: str, check: Callable[[Any, Any], None]
    ) -> None:
        self._path = path
        self._sweep = sweep
        self._check = check

    def load(self) -> dict[str, Result]:
        """Results by key; an incomplete last line is ignored."""
        return self._read()[0]

    def begin(self) -> dict[str, Result]:
        """Results by key, after an incomplete last line was removed from the file."""
        results, complete = self._read()
        # Where it does not exist the first result creates it.
        if self._path.exists():
            write_text(self._path, complete)
        return results

    def append(self, key: str, result: Result) -> None:
        """Store the result of an item."""
        line = {"sweep": self._sweep, "point": json.loads(key), "rows": result}
        text = json.dumps(line, allow_nan=False) + "\n"
        append_bytes(self._path, text.encode(), "output")

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
                sweep = entry["sweep"]
                point = entry["point"]
                result = entry["rows"]
                self._check(point, result)
            except (ValueError, KeyError, TypeError):
                rule = f"must be as it was written; line {number} is none of a sweep"
                raise InputError.one("output", rule, str(self._path)) from None
            if sweep != self._sweep:
                rule = (
                    "must not hold results of other settings; delete it or choose "
                    "another"
                )
                raise InputError.one("output", rule, str(self._path))
            results[key_of(point)] = result
        return results, complete


def key_of(point: Any) -> str:
    """The key of an item that is identified by JSON data."""
    return json.dumps(point, sort_keys=True)


@contextmanager
def resumable(folder: Path | None) -> Iterator[None]:
    """Hold the folder of a sweep until the block ends.

    Lock and folder, where they were created here, are removed when the block is refused
    before anything is stored in the folder.
    """
    if folder is None:
        try:
            yield
        except KeyboardInterrupt:
            raise InterruptedSweepError(None) from None
        return

    created = missing_folders(folder)
    earlier_names = _names_in(folder)
    with locked(folder):
        try:
            yield
        except KeyboardInterrupt:
            raise InterruptedSweepError(folder) from None
        except PrivplanError:
            if _names_in(folder) - earlier_names == {LOCK}:
                (folder / LOCK).unlink()
            remove_empty(created)
            raise


def _names_in(folder: Path) -> set[str]:
    """The names of a folder's files; none where it does not exist."""
    if folder.is_dir():
        return {path.name for path in folder.iterdir()}
    return set()


def finish(
    items: Mapping[str, Item],
    work: Callable[[Item], Result],
    *,
    spread: Spread,
    journal: Journal[Result] | None = None,
    progress: Progress = lambda done, total: None,
) -> dict[str, Result]:
    """Results of all items by key; those in the journal are not computed again.

    Args:
        items: what to work on, by key.
        work: the result of an item; a function that other processes can import.
        spread: in order, or over processes (``in_jobs``).
        journal: where results are stored as soon as they are there.
        progress: called before the first item and after each.

    Raises:
        LostWorkerError: when a worker was killed; names the missing items.
    """
    stored = {} if journal is None else journal.begin()
    results = {key: stored[key] for key in items if key in stored}
    progress(len(results), len(items))
    _LOG.info("%d of %d items are finished before the start", len(results), len(items))
    missing = [(work, key, item) for key, item in items.items() if key not in results]
    try:
        for key, result in spread(keyed, missing):
            results[key] = result
            if journal is not None:
                journal.append(key, result)
            _LOG.info("finished %s", key)
            progress(len(results), len(items))
    except LostWorkerError as lost:
        unfinished = [key for key in items if key not in results]
        names = ", ".join(unfinished[:_NAMED_ITEMS])
        if len(unfinished) > _NAMED_ITEMS:
            names += ", ..."
        raise LostWorkerError(
            f"{lost}; missing: {len(unfinished)} of {len(items)}: {names}"
        ) from None
    return results


def keyed(task: tuple[Callable[[Item], Result], Key, Item]) -> tuple[Key, Result]:
    """The key of a task and its result; a function that other processes import."""
    work, key, item = task
    return key, work(item)
