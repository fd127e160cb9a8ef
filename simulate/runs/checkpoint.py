"""Where training stands, on disk."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from privplan.errors import InputError
from privplan.io.files import write_bytes
from privplan.record import CHECKPOINT, RoundMetrics
from simulate.engine.client_state import packed, unpacked
from simulate.engine.loop import Progress

VERSION = 3


def save(folder: Path, progress: Progress) -> None:
    """Write ``checkpoint.pt``: equal states give equal bytes.

    Raises:
        InputError: when it cannot be written.
    """
    content = io.BytesIO()
    torch.save(
        {
            "version": VERSION,
            "round": progress.round,
            "theta": progress.theta.cpu().clone(),
            "server": {name: value.cpu().clone() for name, value in progress.server.items()},
            "personal": packed(progress.personal),
            "metrics": [point.model_dump() for point in progress.metrics],
            "chain": progress.chain,
            "audit": None if progress.audit is None else torch.from_numpy(progress.audit),
        },
        content,
    )
    write_bytes(folder / CHECKPOINT, content.getvalue())


def load(folder: Path, device: torch.device) -> Progress | None:
    """Read ``checkpoint.pt``; None when there is none. Runs no code that the file may hold.

    Raises:
        InputError: when the file is damaged or of another version.
    """
    path = folder / CHECKPOINT
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError.one(
            "checkpoint", f"must be readable ({error.strerror})", str(path)
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged file is refused below, in one line
            if zipfile.ZipFile(io.BytesIO(content)).testzip() is not None:
                raise ValueError("a part of the file does not have its checksum")
            data = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
        return _progress(data)
    except Exception:  # a damaged file can make its readers fail in any way
        rule = "must be a sound checkpoint; remove it to replay the run from its first round"
        raise InputError.one("checkpoint", rule, str(path)) from None


def _progress(data: Any) -> Progress:
    if data["version"] != VERSION or data["theta"].ndim != 1:
        raise ValueError(data["version"])
    return Progress(
        round=int(data["round"]),
        theta=data["theta"],
        server=dict(data["server"]),
        personal=unpacked(data["personal"]),
        metrics=tuple(RoundMetrics(**point) for point in data["metrics"]),
        chain=str(data["chain"]),
        audit=None if data["audit"] is None else data["audit"].cpu().numpy(),
    )
