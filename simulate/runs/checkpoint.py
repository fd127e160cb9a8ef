"""Checkpoint files: the state of training on disk, while a run is not finished.

A checkpoint holds what no budget pays for: personal parameters of clients and, under
correlated noise, the last clear sums. Only its owner may read it, it holds no more than
the next round needs, and it is removed as soon as the run is finished.
"""

from __future__ import annotations

import io
import sys
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch

from privplan.errors import InputError
from privplan.files import remove_file, write_bytes
from privplan.limits import regular
from privplan.record import CHECKPOINT, RoundMetrics
from simulate.engine.loop import Progress
from simulate.engine.round import PersonalState

VERSION = 3


def save(folder: Path, progress: Progress, rounds: int) -> None:
    """Write ``checkpoint.pt``; equal states give equal bytes.

    Args:
        folder: the run folder.
        progress: the state of training.
        rounds: of the plan. After the last one nothing is released, so the mechanism's
            state, the clear sums of earlier rounds, is left out.
    """
    data: dict[str, object] = {
        "version": VERSION,
        "round": progress.round,
        "theta": progress.theta.cpu().clone(),
        "server": _on_cpu(progress.server),
        "personal": _personal_rows(progress.personal),
        "metrics": [point.model_dump() for point in progress.metrics],
        "chain": progress.chain,
        "audit": None,
    }
    if progress.canary_scores is not None:
        data["audit"] = torch.from_numpy(progress.canary_scores)
    if progress.mechanism and progress.round < rounds:
        data["mechanism"] = _on_cpu(progress.mechanism)
    content = io.BytesIO()
    torch.save(data, content)
    write_bytes(folder / CHECKPOINT, content.getvalue(), private=True)


def remove(folder: Path) -> None:
    """Remove ``checkpoint.pt`` with what killed writers left of it."""
    remove_file(folder / CHECKPOINT)


def _on_cpu(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies on the CPU."""
    return {name: value.cpu().clone() for name, value in state.items()}


def _personal_rows(personal: PersonalState) -> dict[str, torch.Tensor]:
    """Clients in order, each with a row of personal parameters; empty without any."""
    clients = sorted(personal)
    if not clients:
        return {}
    return {
        "clients": torch.tensor(clients, dtype=torch.int64),
        "rows": torch.stack([personal[client] for client in clients]),
    }


def load(folder: Path, device: torch.device) -> Progress | None:
    """The state in ``checkpoint.pt``, or None; executes no code from the file."""
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
            # A damaged file is reported below, in one line.
            warnings.simplefilter("ignore")
            archive = zipfile.ZipFile(io.BytesIO(content))
            if sum(member.file_size for member in archive.infolist()) > len(content):
                raise ValueError("a part of the file is packed")
            if archive.testzip() is not None:
                raise ValueError("a part of the file does not have its checksum")
            data = torch.load(
                io.BytesIO(content), map_location="cpu", weights_only=True
            )
        if data["version"] != VERSION or data["theta"].ndim != 1 or not _whole(data):
            raise ValueError(data["version"])
        mechanism = data.get("mechanism", {})
        personal = data["personal"] or {
            "clients": torch.empty(0),
            "rows": torch.empty(0),
        }
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
    """Whether no tensor has more numbers than are stored: copies are no larger."""
    if isinstance(data, torch.Tensor):
        return data.numel() * data.element_size() <= data.untyped_storage().nbytes()
    if isinstance(data, dict):
        return all(map(_whole, data.values()))
    return not isinstance(data, list) or all(map(_whole, data))
