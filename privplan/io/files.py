"""Files: reading with one-line errors, atomic writing, and folders locked by one process."""

from __future__ import annotations

import fcntl
import glob
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from privplan.errors import InputError

LOCK = ".lock"
"""Name of the file in a folder that is locked while a process uses the folder."""


def read_text(path: Path | str, what: str) -> str:
    """The text of a file.

    Args:
        path: the file.
        what: the field that error messages name, for example ``spec``.

    Raises:
        InputError: when there is no such file, it is a directory, or it is not UTF-8 text.
    """
    with _one_line_errors(path, what):
        return Path(path).read_text(encoding="utf-8")


def read_lines(path: Path | str, what: str) -> Iterator[str]:
    """The lines of a file one after another, each with its line feed.

    Args:
        path: the file.
        what: the field that error messages name.

    Raises:
        InputError: as ``read_text``.
    """
    with _one_line_errors(path, what), open(path, encoding="utf-8", newline="\n") as file:
        yield from file


@contextmanager
def _one_line_errors(path: Path | str, what: str) -> Iterator[None]:
    """Convert errors of reading a file to one-line errors."""
    if path == "":
        raise InputError.one(what, "must be the name of a file", "")
    try:
        yield
    except FileNotFoundError:
        raise InputError.one(what, "must be a file that exists", str(path)) from None
    except IsADirectoryError:
        raise InputError.one(what, "must be a file, not a directory", str(path)) from None
    except UnicodeDecodeError:
        raise InputError.one(what, "must be UTF-8 text", str(path)) from None
    except ValueError:
        raise InputError.one(what, "must be the name of a file", str(path)) from None
    except OSError as error:
        raise InputError.one(what, f"must be readable ({error.strerror})", str(path)) from None


def refuse_overwriting(inputs: Iterable[Path | str], outputs: Iterable[Path | str | None]) -> None:
    """Raise an error when an output is one of the inputs.

    Args:
        inputs: files that are read.
        outputs: files that will be written; None for those that are not.

    Raises:
        InputError: naming the output that is an input, also through links.
    """
    read = {os.path.realpath(path) for path in inputs}
    for output in outputs:
        if output is not None and os.path.realpath(output) in read:
            rule = "must be another file than what is read"
            raise InputError.one("output", rule, str(output))


def write_bytes(path: Path | str, content: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new one, never a part.

    The content is written to a temporary file in the same folder, which is then renamed.
    Temporary files of writers that were killed are removed. Of a link the file it leads to is
    replaced; a device or a pipe is not a file to replace: the content is written into it.

    Raises:
        InputError: when the file cannot be written there.
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
            fcntl.flock(
                file, fcntl.LOCK_EX
            )  # held until the file is closed, so that no other writer removes it
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.chmod(0o666 & ~_umask())
            os.replace(temporary, path)
        _remove_temporary_files(path)
    except OSError as error:
        raise InputError.one("output", f"must be writable ({error.strerror})", str(path)) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _remove_temporary_files(path: Path) -> None:
    """Remove temporary files whose writers have ended; a writer holds a lock on its own."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with suppress(OSError), open(part, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size:  # an empty one may not be locked yet
                part.unlink(missing_ok=True)


def write_text(path: Path | str, content: str) -> None:
    """Replace a file atomically by UTF-8 text, as ``write_bytes``."""
    write_bytes(path, content.encode("utf-8"))


def append_bytes(path: Path, content: bytes, what: str, *, sync: bool = False) -> None:
    """Append to a file.

    Args:
        path: the file, created if missing.
        content: what is appended.
        what: the field that error messages name.
        sync: whether the file is synchronised to disk before the function returns.

    Raises:
        InputError: when the file cannot be written.
    """
    try:
        with open(path, "ab") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise InputError.one(what, f"must be writable ({error.strerror})", str(path)) from None


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on the folder, which is created if missing, until the block ends.

    The operating system releases the lock when a process dies.

    Raises:
        InputError: when another process holds the lock, or the folder cannot be written.
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
            if not os.path.samestat(os.fstat(file.fileno()), os.stat(folder / LOCK)):
                raise OSError  # another run has just removed it
        except OSError:
            rule = "must not be in use by another run"
            raise InputError.one("output", rule, str(folder)) from None
        yield


def missing_folders(folder: Path) -> list[Path]:
    """The folder and those above it that do not exist, the innermost first."""
    return [one for one in (folder, *folder.parents) if not os.path.exists(one)]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders that are empty.

    Args:
        folders: each before those that hold it.
    """
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
