"""What a file from a stranger may be: limits on run folders, plans and archives, in one place.

Whoever receives a plan, a run or a data set risks an error message and nothing else: only regular
files are read, never links, pipes or devices; sizes are known before anything is read.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from privplan.errors import InputError

GIB = 2**30
MOST_BYTES = {
    ".json": 2**24, ".jsonl": GIB // 2, ".npz": GIB, ".pem": 2**16, ".csv": 8 * GIB, ".py": 2**20,
}  # fmt: skip
"""Most bytes of a file by the end of its name; what is parsed at once takes much more memory."""
MOST_YAML = (
    2**19
)  # most letters of a YAML text, whose reader takes some ten seconds for them
MOST_LINE = 2**24  # most letters of a line of a file that is read line by line
MOST_OTHERS = GIB // 4
MOST_UNPACKED = (
    2**25
)  # bytes that a packed file becomes, or ``PACKED`` times its own if more
PACKED = 50
MOST_PIXELS = 2**24  # most pixels of an image
MOST_CLIENTS = (
    30_000_000  # of a plan that is verified: redrawn cohorts take a number for each
)


def regular(most: int | None = None) -> Callable[[str, int], int]:
    """An opener for ``open``: a regular file of at most so many bytes, for which no read waits."""

    def opened(path: str, flags: int) -> int:
        known = os.open(path, flags | os.O_NONBLOCK)
        found, limit = (
            os.fstat(known),
            most or MOST_BYTES.get(Path(path).suffix, MOST_OTHERS),
        )
        if stat.S_ISREG(found.st_mode) and found.st_size <= limit:
            return known
        os.close(known)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        raise OSError(errno.EINVAL, f"no regular file of at most {limit} bytes", path)

    return opened


def refuse_strange(folder: Path) -> None:
    """Raise InputError for a run folder that holds other than regular files of usual sizes."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            found = entry.stat(follow_symlinks=False)
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                rule = "must hold regular files, no links, pipes or devices"
                raise InputError.one("run", rule, entry.path)
            most = MOST_BYTES.get(Path(entry.name).suffix)
            if most is not None and found.st_size > most:
                raise InputError.one("run", f"must hold {entry.name} of at most {most} bytes",
                                     found.st_size)  # fmt: skip


def most_unpacked(size: int) -> int:
    """Most bytes that a packed file of so many bytes may become."""
    return max(MOST_UNPACKED, PACKED * size)


def refuse_bomb(path: Path, field: str) -> None:
    """Raise InputError for an archive that unpacks to more than the limit."""
    most = most_unpacked(path.stat().st_size)
    with (
        open(path, "rb", opener=regular(sys.maxsize)) as file,
        zipfile.ZipFile(file) as archive,
    ):
        size = sum(member.file_size for member in archive.infolist())
    if size > most:
        rule = f"must unpack to at most {most} bytes, {PACKED} times its own if they are more"
        raise InputError.one(field, rule, size)
