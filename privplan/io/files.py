"""Reading and writing files so that nothing is lost and nothing is half written."""

from __future__ import annotations

import fcntl
import glob
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from privplan.errors import InputError


def read_text(path: Path | str, what: str) -> str:
    """The text of a file that a person named.

    Args:
        path: the file.
        what: what the file is, for the message, for example ``spec``.

    Raises:
        InputError: when there is no such file, it is a directory, or it is not UTF-8 text.
    """
    if path == "":
        raise InputError.one(what, "must be the name of a file", "")
    path = Path(path)
    try:
        return path.read_text(encoding="utf-8")
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


def keep(inputs: Iterable[Path | str], outputs: Iterable[Path | str | None]) -> None:
    """Refuse to write over a file that is read.

    Args:
        inputs: files that are read.
        outputs: files to write, None where none is asked for.

    Raises:
        InputError: naming the output that is an input, under whatever name.
    """
    read = {os.path.realpath(path) for path in inputs}
    for output in outputs:
        if output is not None and os.path.realpath(output) in read:
            rule = "must be another file than what is read"
            raise InputError.one("output", rule, str(output))


def write_bytes(path: Path | str, content: bytes) -> None:
    """Write beside, then rename: a reader sees the old file or the new one, never a part.

    What writers of the same file left beside it when they were killed is removed.

    Raises:
        InputError: when the file cannot be written there.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False
        ) as file:
            temporary = Path(file.name)
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed, so that nobody removes it
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.chmod(0o666 & ~_umask())
            os.replace(temporary, path)
        _remove_left_over(path)
    except OSError as error:
        raise InputError.one("output", f"must be writable ({error.strerror})", str(path)) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _remove_left_over(path: Path) -> None:
    """Remove parts of the file whose writers are gone; a writer holds a lock on its own."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with suppress(OSError), open(part, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size:  # an empty one may be about to be locked
                part.unlink(missing_ok=True)


def write_text(path: Path | str, content: str) -> None:
    """Like ``write_bytes``, for text in UTF-8."""
    write_bytes(path, content.encode("utf-8"))


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
