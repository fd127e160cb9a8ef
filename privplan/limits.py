"""What a file from a stranger may be: limits on run folders, plans and archives.

Whoever receives a plan, a run or a data set risks an error message and nothing else:
only regular files are read, never links, pipes or devices; sizes are known before
anything is read.
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
# Most bytes of a file by the end of its name. What is parsed at once takes much more
# memory.
MOST_BYTES = {
    ".json": 2**24,
    ".jsonl": GIB // 2,
    ".npz": GIB,
    ".pem": 2**16,
    ".csv": 8 * GIB,
    ".py": 2**20,
}
# The same of any other file.
MOST_OTHERS = GIB // 4
# Most letters of a YAML text, whose reader takes some ten seconds for them.
MOST_YAML = 2**19
# Most letters of a line of a file that is read line by line.
MOST_LINE = 2**24
# Bytes that a packed file becomes, or ``PACKED`` times its own if these are more.
MOST_UNPACKED = 2**25
PACKED = 50
# Most pixels of an image.
MOST_PIXELS = 2**24
# Of a plan that is verified: cohorts that are drawn again take a number for each.
MOST_CLIENTS = 30_000_000


def regular(limit: int | None = None) -> Callable[[str, int], int]:
    """An opener for ``open``: a regular file, for which no read waits.

    Args:
        limit: most bytes of it; by the end of its name when None.
    """

    def opened(path: str, flags: int) -> int:
        descriptor = os.open(path, flags | os.O_NONBLOCK)
        status = os.fstat(descriptor)
        largest = limit or MOST_BYTES.get(Path(path).suffix, MOST_OTHERS)
        if stat.S_ISREG(status.st_mode) and status.st_size <= largest:
            return descriptor
        os.close(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        line = f"no regular file of at most {largest} bytes"
        raise OSError(errno.EINVAL, line, path)

    return opened


def refuse_strange(folder: Path) -> None:
    """Refuse a run folder with other than regular files of usual sizes.

    Raises:
        InputError: for the first other one by name.
    """
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            status = entry.stat(follow_symlinks=False)
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                rule = "must hold regular files, no links, pipes or devices"
                raise InputError.one("run", rule, entry.path)
            largest = MOST_BYTES.get(Path(entry.name).suffix)
            if largest is not None and status.st_size > largest:
                rule = f"must hold {entry.name} of at most {largest} bytes"
                raise InputError.one("run", rule, status.st_size)


def most_unpacked(size: int) -> int:
    """Most bytes that a packed file of so many bytes may become."""
    return max(MOST_UNPACKED, PACKED * size)


def refuse_bomb(path: Path, field: str) -> None:
    """Refuse an archive that unpacks to more than the limit.

    Raises:
        InputError: with the size.
    """
    largest = most_unpacked(path.stat().st_size)
    with (
        open(path, "rb", opener=regular(sys.maxsize)) as file,
        zipfile.ZipFile(file) as archive,
    ):
        size = sum(member.file_size for member in archive.infolist())
    if size > largest:
        rule = (
            f"must unpack to at most {largest} bytes, {PACKED} times its own if they "
            "are more"
        )
        raise InputError.one(field, rule, size)
