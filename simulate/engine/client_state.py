"""Personal state of clients between rounds, and its form in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

PersonalState = Mapping[int, Tensor]
"""Personal vectors [p] by number of the client, on the CPU, of the clients that have taken part.

All other clients have the common initial vector, so memory does not grow with the population.
"""


def personal_rows(
    personal: PersonalState, clients: np.ndarray, start: Tensor | None, device: torch.device
) -> Tensor | None:
    """Returns the personal vectors of some clients.

    Args:
        personal: personal vectors so far.
        clients: numbers of the clients [K].
        start: personal vector before a client's first round [p]; None when clients have none.
        device: device of the result.

    Returns:
        Personal vectors [K, p], or None when clients have none.
    """
    if start is None:
        return None
    if len(clients) == 0:
        return start.new_empty((0, len(start))).to(device)
    return torch.stack([personal.get(int(client), start) for client in clients]).to(device)


def to_tensors(personal: PersonalState) -> dict[str, Tensor]:
    """Personal state as tensors in the order of the client numbers, for a checkpoint."""
    clients = sorted(personal)
    if not clients:
        return {}
    rows = torch.stack([personal[client] for client in clients])
    return {"clients": torch.tensor(clients, dtype=torch.int64), "rows": rows}


def from_tensors(data: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """The inverse of ``to_tensors``."""
    if not data:
        return {}
    pairs = zip(data["clients"].tolist(), data["rows"].cpu(), strict=True)
    return {int(client): row.clone() for client, row in pairs}
