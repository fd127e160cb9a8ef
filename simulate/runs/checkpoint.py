"""Checkpoint files: the state of training on disk."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from privplan.errors import InputError
from privplan.io.files import write_bytes
from privplan.record import CHECKPOINT, RoundMetrics
from simulate.engine.loop import Progress
from simulate.engine.round import PersonalState

VERSION = 3


def save(folder: Path, progress: Progress) -> None:
    """Write ``checkpoint.pt``; equal states give equal bytes.

    Raises:
        InputError: when it cannot be written.
    """
    content, scores = io.BytesIO(), progress.canary_scores
    data = {
        "version": VERSION,
        "round": progress.round,
        "theta": progress.theta.cpu().clone(),
        "server": {name: value.cpu().clone() for name, value in progress.server.items()},
        "personal": _to_tensors(progress.personal),
        "metrics": [point.model_dump() for point in progress.metrics],
        "chain": progress.chain,
        "audit": None if scores is None else torch.from_numpy(scores),
    }
    if progress.mechanism:
        state = progress.mechanism.items()
        data["mechanism"] = {name: value.cpu().clone() for name, value in state}
    torch.save(data, content)
    write_bytes(folder / CHECKPOINT, content.getvalue())


def load(folder: Path, device: torch.device) -> Progress | None:
    """Returns the state in ``checkpoint.pt``; None without the file. Executes no code from it.

    Raises:
        InputError: when the file is damaged or has another version.
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
            warnings.simplefilter("ignore")  # a damaged file is reported below, in one line
            if zipfile.ZipFile(io.BytesIO(content)).testzip() is not None:
                raise ValueError("a part of the file does not have its checksum")
            data = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
        return _progress(data)
    except Exception:  # readers of a damaged file can fail in any way
        rule = "must be a sound checkpoint; remove it to replay the run from its first round"
        raise InputError.one("checkpoint", rule, str(path)) from None


def _progress(data: Any) -> Progress:
    if data["version"] != VERSION or data["theta"].ndim != 1:
        raise ValueError(data["version"])
    return Progress(
        round=int(data["round"]),
        theta=data["theta"],
        server=dict(data["server"]),
        personal=_from_tensors(data["personal"]),
        metrics=tuple(RoundMetrics(**point) for point in data["metrics"]),
        chain=str(data["chain"]),
        canary_scores=None if data["audit"] is None else data["audit"].cpu().numpy(),
        mechanism=dict(data.get("mechanism", {})),
    )


def _to_tensors(personal: PersonalState) -> dict[str, Tensor]:
    """Personal state as tensors in the order of the client numbers, for a checkpoint."""
    clients = sorted(personal)
    if not clients:
        return {}
    rows = torch.stack([personal[client] for client in clients])
    return {"clients": torch.tensor(clients, dtype=torch.int64), "rows": rows}


def _from_tensors(data: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """The inverse of ``_to_tensors``."""
    if not data:
        return {}
    pairs = zip(data["clients"].tolist(), data["rows"].cpu(), strict=True)
    return {int(client): row.clone() for client, row in pairs}
