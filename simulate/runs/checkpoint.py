"""Checkpoint files: the state of training on disk, while a run is not finished."""

from __future__ import annotations

import io
import sys
import warnings
import zipfile
from pathlib import Path

import torch

from privplan.errors import InputError
from privplan.files import write_bytes
from privplan.limits import regular
from privplan.record import CHECKPOINT, RoundMetrics
from simulate.engine.loop import Progress

VERSION = 3


def save(folder: Path, progress: Progress) -> None:
    """Write ``checkpoint.pt``; equal states give equal bytes."""
    content, scores, personal = io.BytesIO(), progress.canary_scores, progress.personal
    clients = sorted(personal)
    rows = {
        "clients": torch.tensor(clients, dtype=torch.int64),
        "rows": torch.stack([personal[client] for client in clients]),
    } if clients else {}  # fmt: skip
    data = {
        "version": VERSION,
        "round": progress.round,
        "theta": progress.theta.cpu().clone(),
        "server": {name: value.cpu().clone() for name, value in progress.server.items()},
        "personal": rows,
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
    """Returns the state in ``checkpoint.pt``; None without the file. Executes no code from it."""
    path = folder / CHECKPOINT
    try:
        with open(path, "rb", opener=regular(sys.maxsize)) as file:
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        rule = f"must be readable ({error.strerror})"
        raise InputError.one("checkpoint", rule, str(path)) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged file is reported below, in one line
            archive = zipfile.ZipFile(io.BytesIO(content))
            if sum(part.file_size for part in archive.infolist()) > len(content):
                raise ValueError("a part of the file is packed")
            if archive.testzip() is not None:
                raise ValueError("a part of the file does not have its checksum")
            data = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if data["version"] != VERSION or data["theta"].ndim != 1 or not _whole(data):
            raise ValueError(data["version"])
        mechanism = data.get("mechanism", {})
        personal = data["personal"] or {"clients": torch.empty(0), "rows": torch.empty(0)}
        pairs = zip(personal["clients"].tolist(), personal["rows"], strict=True)
        return Progress(
            round=int(data["round"]),
            theta=data["theta"].to(device),
            server={name: value.to(device) for name, value in data["server"].items()},
            personal={int(client): row.clone() for client, row in pairs},
            metrics=tuple(RoundMetrics(**point) for point in data["metrics"]),
            chain=str(data["chain"]),
            canary_scores=None if data["audit"] is None else data["audit"].numpy(),
            mechanism={name: value.to(device) for name, value in mechanism.items()},
        )
    except Exception:  # readers of a damaged file can fail in any way
        rule = "must be a sound checkpoint; remove it to replay the run from its first round"
        raise InputError.one("checkpoint", rule, str(path)) from None


def _whole(data: object) -> bool:
    """Whether no tensor has more numbers than are stored, so that copies are no larger."""
    if isinstance(data, torch.Tensor):
        return data.numel() * data.element_size() <= data.untyped_storage().nbytes()
    parts = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return all(map(_whole, parts))
