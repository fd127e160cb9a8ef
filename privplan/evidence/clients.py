"""The assignment of clients to groups and training records, which a simulation stores.

``clients.npz`` holds three arrays of whole numbers: ``group`` has the index of the
group of each client, ``records`` the indices of the training records of all clients in
a row, and ``starts`` where in them each client's begin.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from privplan.errors import InputError
from privplan.limits import refuse_bomb

CLIENTS = "clients.npz"
# Most bytes of the archive beside its packed arrays: names and places of three.
MOST_FRAME = 1024
Arrays = Mapping[str, np.ndarray]


def clients_digest(clients: Arrays) -> str:
    """SHA-256 of the arrays of ``clients.npz``: group, starts and records, as int64."""
    content = hashlib.sha256()
    for name in ("group", "starts", "records"):
        array = np.ascontiguousarray(clients[name], "<i8")
        content.update(f"{name}:{len(array)}\n".encode())
        content.update(array.data)
    return content.hexdigest()


def read_clients(folder: Path) -> Arrays | None:
    """The arrays of ``clients.npz`` in a run folder; None without the file.

    Raises:
        InputError: when the file is damaged, or unpacks to more than a run writes.
    """
    path = folder / CLIENTS
    if not path.exists():
        return None
    try:
        refuse_bomb(path, "clients")
        content = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            packed = sum(member.compress_size for member in archive.infolist())
            if archive.comment or len(content) > packed + MOST_FRAME:
                raise ValueError("more than arrays")
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        is_whole = all(array.dtype.kind == "i" for array in arrays.values())
        if sorted(arrays) != ["group", "records", "starts"] or not is_whole:
            raise ValueError("other arrays")
        return arrays
    except InputError:
        raise
    # NumPy's reader of a damaged file can fail in any way.
    except Exception:
        rule = "must be the assignment of clients that the run wrote"
        raise InputError.one("clients", rule, str(path)) from None
