"""What clients keep between rounds: personal vectors, by number of the client."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

PersonalState = Mapping[int, Tensor]
"""Personal vectors [p] of the clients who took part so far, on the CPU. The others still hold
the start that all have in common, so nothing grows with the population."""


def rows_of(
    kept: PersonalState, clients: np.ndarray, start: Tensor | None, device: torch.device
) -> Tensor | None:
    """The personal vectors of some clients.

    Args:
        kept: what clients kept so far.
        clients: their numbers [K].
        start: what a client holds before its first round [p]; None when clients keep nothing.
        device: where the vectors are needed.

    Returns:
        Personal vectors [K, p], or None.
    """
    if start is None:
        return None
    if len(clients) == 0:
        return start.new_empty((0, len(start))).to(device)
    return torch.stack([kept.get(int(client), start) for client in clients]).to(device)


def packed(kept: PersonalState) -> dict[str, Tensor]:
    """As tensors, in the order of the clients, for a checkpoint."""
    clients = sorted(kept)
    if not clients:
        return {}
    rows = torch.stack([kept[client] for client in clients])
    return {"clients": torch.tensor(clients, dtype=torch.int64), "rows": rows}


def unpacked(data: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """The inverse of ``packed``."""
    if not data:
        return {}
    found = zip(data["clients"].tolist(), data["rows"].cpu(), strict=True)
    return {int(client): row.clone() for client, row in found}
