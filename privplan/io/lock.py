"""A folder belongs to one process at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from privplan.errors import InputError

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder, made when it is not there, until the block ends.

    The operating system lets go of the lock when a process dies, so none is left behind.

    Raises:
        InputError: when another process holds it, or it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / LOCK, "a")  # noqa: SIM115
    except OSError as error:
        rule = f"must be a folder that can be written ({error.strerror})"
        raise InputError.one("output", rule, str(folder)) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            rule = "must not be in use by another run"
            raise InputError.one("output", rule, str(folder)) from None
        yield
