"""Files: reading with one-line errors, atomic writing, and locked folders."""

from __future__ import annotations

import fcntl
import glob
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from privplan.errors import InputError
from privplan.limits import MOST_LINE, regular

# Name of the file in a folder that is locked while a process uses the folder.
LOCK = ".lock"
TEMPORARY = re.compile(r"\.(?P<name>.+)\.[A-Za-z0-9_]+\.tmp")
"""What ``write_bytes`` names a file until it is complete."""
# Letters of a key that a line names.
_LONGEST_KEY = 40
# Seconds in which a writer locks a temporary file that it made.
LOCKED_WITHIN = 60.0


def read_text(path: Path | str, what: str) -> str:
    """The text of a file."""
    with (
        _one_line_errors(path, what),
        open(path, encoding="utf-8", opener=regular()) as file,
    ):
        return file.read()


def read_lines(path: Path | str, what: str) -> Iterator[str]:
    """The lines of a file one after another, each with its line feed."""
    with (
        _one_line_errors(path, what),
        open(path, encoding="utf-8", newline="\n", opener=regular()) as file,
    ):
        while line := file.readline(MOST_LINE):
            yield line


@contextmanager
def _one_line_errors(path: Path | str, what: str) -> Iterator[None]:
    """Convert errors of reading a file to one-line errors."""
    # A number is a file that is open, such as 1 for what is printed.
    if path == "" or not isinstance(path, str | os.PathLike):
        raise InputError.one(what, "must be the name of a file", path)
    try:
        yield
    except FileNotFoundError:
        raise InputError.one(what, "must be a file that exists", str(path)) from None
    except IsADirectoryError:
        raise InputError.one(
            what, "must be a file, not a directory", str(path)
        ) from None
    except UnicodeDecodeError:
        raise InputError.one(what, "must be UTF-8 text", str(path)) from None
    except ValueError:
        raise InputError.one(what, "must be the name of a file", str(path)) from None
    except OSError as error:
        raise InputError.one(
            what, f"must be readable ({error.strerror})", str(path)
        ) from None


def refuse_overwriting(
    inputs: Iterable[Path | str], outputs: Iterable[Path | str | None]
) -> None:
    """Raise an error when an output is one of the inputs."""
    read = {os.path.realpath(path) for path in inputs}
    for output in outputs:
        if output is not None and os.path.realpath(output) in read:
            raise InputError.one(
                "output", "must be another file than what is read", str(output)
            )


def write_bytes(path: Path | str, content: bytes, *, private: bool = False) -> None:
    """Replace a file atomically: a reader sees the old content or the new one.

    The content is written to a temporary file in the same folder, which is then
    renamed. Temporary files of writers that were killed are removed. Of a link the file
    it leads to is replaced; a device or a pipe is not a file to replace: the content is
    written into it.

    Args:
        path: the file.
        content: what it holds afterwards.
        private: whether only its owner may read it (mode 600), from the first byte on.
    """
    path = Path(os.path.realpath(path))
    temporary = None
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(content)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False
        ) as file:
            temporary = Path(file.name)
            # The lock is held until the file is closed, so that no other writer removes
            # it.
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            # Temporary files have mode 600.
            if not private:
                temporary.chmod(0o666 & ~_umask())
            os.replace(temporary, path)
        _remove_temporary_files(path)
    except OSError as error:
        raise InputError.one(
            "output", f"must be writable ({error.strerror})", str(path)
        ) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _remove_temporary_files(path: Path) -> None:
    """Remove temporary files of a file whose writers have ended."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        _remove_if_ended(temporary)


def _remove_if_ended(temporary: Path) -> None:
    """Remove a temporary file unless its writer, who holds a lock on it, goes on."""
    with suppress(OSError), open(temporary, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        state = os.fstat(file.fileno())
        # An empty one may not be locked yet.
        if state.st_size or time.time() - state.st_mtime > LOCKED_WITHIN:
            temporary.unlink(missing_ok=True)


def remove_file(path: Path) -> None:
    """Remove a file, if it exists, with what killed writers left of it."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError.one(
            "output", f"must be removable ({error.strerror})", str(path)
        ) from None
    _remove_temporary_files(path)


def write_text(path: Path | str, content: str) -> None:
    """Replace a file atomically by UTF-8 text, as ``write_bytes``."""
    write_bytes(path, content.encode("utf-8"))


def append_bytes(path: Path, content: bytes, what: str, *, sync: bool = False) -> None:
    """Append to a file.

    Args:
        path: the file.
        content: what to append.
        what: the field that an error names.
        sync: whether the content is on disk, and not only with the system, afterwards.
    """
    try:
        with open(path, "ab") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise InputError.one(
            what, f"must be writable ({error.strerror})", str(path)
        ) from None


def _umask() -> int:
    # The system has no call that only reads it.
    current = os.umask(0)
    os.umask(current)
    return current


@contextmanager
def locked(folder: Path) -> Iterator[Callable[[], bool]]:
    """Hold an exclusive lock on the folder until the block or the process ends.

    What killed writers left in the folder is removed.

    Yields:
        Whether the lock is still held and that of the folder; False once somebody
        removed its file, so that another one could be locked.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / LOCK, "a")  # noqa: SIM115
    except OSError as error:
        rule = f"must be a folder that can be written ({error.strerror})"
        raise InputError.one("output", rule, str(folder)) from None

    def is_held() -> bool:
        if file.closed:
            return False
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(folder / LOCK))
        except OSError:
            return False

    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_held():
                # Another run has just removed it.
                raise OSError
        except OSError:
            rule = (
                "must not be in use by another run or guard; wait until it ends, or "
                "end it (close() of a guard)"
            )
            raise InputError.one("output", rule, str(folder)) from None
        _remove_parts(folder)
        process = os.getpid()
        try:
            yield is_held
        finally:
            # A forked child has the same lock, and would keep it after its parent.
            if os.getpid() == process:
                fcntl.flock(file, fcntl.LOCK_UN)


def _remove_parts(folder: Path) -> None:
    """Remove what killed writers left in a folder."""
    for temporary in folder.glob(".*.tmp"):
        if TEMPORARY.fullmatch(temporary.name):
            _remove_if_ended(temporary)


def missing_folders(folder: Path) -> list[Path]:
    """The folder and those above it that do not exist, the innermost first."""
    paths = (folder, *folder.parents)
    return [path for path in paths if not os.path.exists(path)]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders that are empty."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def load_json(text: str) -> Any:
    """Plain data from JSON text."""
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_unique
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path | str, field: str) -> Any:
    """Plain data from a JSON file."""
    try:
        return load_json(read_text(path, field))
    except ValueError as error:
        raise InputError.one(field, f"must be JSON ({error})", str(path)) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"the key {key[:_LONGEST_KEY]!a} stands twice")
        mapping[key] = value
    return mapping


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")
