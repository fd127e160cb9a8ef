"""How a cohort is trained: its clients in one batch, or one after another.

In one batch a small model's operations are started once for all clients. A large
model's parameters leave the caches between two steps of a client, and on a GPU its
convolutions become grouped ones, so its clients train one after another. This module
alone decides.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from simulate.models.network import Model

IN_SEQUENCE_FROM: dict[str, float] = {"cpu": 800_000, "cuda": 10**6}
"""Parameters from which clients train one after another, by type of device.

``benchmarks/bases.py`` measures where that begins to be faster: on a CPU between 407,050
parameters and 814,090, with the same bits; that of CUDA is a guess until a card says. No
run records it: all runs of a version have the same, and so has their replay.
"""


def trains_in_sequence(model: Model, device: torch.device) -> bool:
    """Whether clients of the model train one after another on a device."""
    return model.parameters >= IN_SEQUENCE_FROM.get(device.type, math.inf)


def clients_at_once(
    model: Model, device: torch.device, clients: int, batch: int
) -> int:
    """How many clients of a cohort are trained in one batch.

    Args:
        model: of the clients.
        device: where they are trained; on a CPU, in the caches of one core.
        clients: of the cohort.
        batch: rows of a mini-batch.
    """
    if trains_in_sequence(model, device):
        return 1
    if device.type == "cpu":
        return model.clients_per_chunk(batch)
    return max(1, clients)


def logits_of_clients(model: Model, thetas: Tensor, x: Tensor) -> Tensor:
    """Logits [K, B, classes] of one model per client, as a device computes them.

    Args:
        model: of the clients.
        thetas: parameters [K, d].
        x: records [K, B, ...].
    """
    if len(thetas) == 1 and trains_in_sequence(model, thetas.device):
        return model.logits(thetas[0], x[0])[None]
    return model.logits_each(thetas, x)
