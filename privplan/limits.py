"""What a file from a stranger may be: limits on run folders, plans and archives, in one place.

Whoever receives a plan, a run or a data set risks an error message and nothing else: only regular
files are read, never links, pipes or devices; sizes are known before anything is read.
"""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

from privplan.errors import InputError

GIB = 2**30
MOST_BYTES = {".json": GIB // 4, ".jsonl": 4 * GIB, ".npz": GIB, ".pem": 2**16}
"""Most bytes of a file in a run folder by the end of its name."""
MOST_UNPACKED = GIB
"""Most bytes of the members of an archive."""
MOST_CLIENTS = 100_000_000
"""Most clients of a plan whose run is verified: their participations are counted one by one."""


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


def refuse_bomb(path: Path, field: str) -> None:
    """Raise InputError for an archive whose members unpack to more than the limit."""
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > MOST_UNPACKED:
        raise InputError.one(field, f"must unpack to at most {MOST_UNPACKED} bytes", size)
