"""Mini-batches of clients in a round, drawn from each client's own random stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.secure_streams import NoiseKey
from simulate.data.dataset import Dataset
from simulate.data.partition.clients import ClientPartition
from simulate.engine.seeds import Purpose, streams
from simulate.local.sgd import PADDING

ABSENT = -1
"""Index of a padding row."""


def schedule(
    records: np.ndarray, steps: int, size: int, generator: np.random.Generator
) -> np.ndarray:
    """Indices of the records in a client's mini-batches.

    Each epoch shuffles the client's records and cuts them into batches of ``size``; the last
    batch of an epoch may be shorter.

    Args:
        records: indices of the client's records [n].
        steps: number of batches.
        size: rows of a batch.
        generator: the client's stream for this round.

    Returns:
        Indices [steps, size], ``ABSENT`` where a batch is shorter.
    """
    chosen = np.full((steps, size), ABSENT, np.int64)
    _fill(chosen, records, generator)
    return chosen


def _fill(chosen: np.ndarray, records: np.ndarray, generator: np.random.Generator) -> None:
    """Write the schedule of a client into an array [steps, size] of ``ABSENT``."""
    steps, size = chosen.shape
    batches_per_epoch = -(-len(records) // size)
    if batches_per_epoch == 1:
        filled = chosen[:, : len(records)]
        filled[:] = records
        generator.permuted(filled, axis=1, out=filled)
        return
    for first in range(0, steps, batches_per_epoch):
        order = generator.permutation(records)
        for step in range(first, min(first + batches_per_epoch, steps)):
            batch = order[(step - first) * size : (step - first + 1) * size]
            chosen[step, : len(batch)] = batch


def poisson_schedule(
    records: np.ndarray, steps: int, ratio: float, generator: np.random.Generator
) -> list[np.ndarray]:
    """Indices of the records in a client's Poisson-sampled mini-batches.

    Args:
        records: indices of the client's records [n].
        steps: number of batches.
        ratio: sampling probability of each record in each batch.
        generator: the client's stream for this round.

    Returns:
        One array of indices per batch; any of them may be empty.
    """
    return [records[generator.random(len(records)) < ratio] for _ in range(steps)]


def batches(
    data: Dataset,
    partition: ClientPartition,
    clients: np.ndarray,
    *,
    seed: int,
    round_: int,
    steps: int,
    size: int,
    device: torch.device,
    ratio: float | None = None,
    key: NoiseKey | None = None,
) -> tuple[Tensor, Tensor]:
    """The mini-batches of several clients.

    Args:
        data: the data set.
        partition: assignment of training records to clients.
        clients: numbers of the clients [K].
        seed: the run's seed.
        round_: training round, from 1.
        steps: batches per client.
        size: rows of a batch (B).
        device: device of the result.
        ratio: sampling probability of each record in each batch, for Poisson sampling, where B
            is the largest batch drawn; shuffled epochs when None.
        key: secret from which Poisson samples are drawn; None to draw from the seed.

    Returns:
        Records [K, steps, B, *shape] as ``Dataset.inputs`` gives them and labels [K, steps, B],
        int64, with ``PADDING`` where a batch is shorter; they depend on seed, round and client
        only.
    """
    sources: Iterable[Any] = streams(seed, Purpose.CLIENT, round_, clients=clients)
    if key is not None:
        sources = (key.stream(int(Purpose.CLIENT), round_, int(client)) for client in clients)
    owned = [partition.records(int(client)) for client in clients]
    if ratio is None:
        rows = np.full((len(clients), steps, size), ABSENT, np.int64)
        for row, own, source in zip(rows, owned, sources, strict=True):
            _fill(row, own, source)
    else:
        drawn = [
            poisson_schedule(own, steps, ratio, source)
            for own, source in zip(owned, sources, strict=True)
        ]
        rows = np.stack(_padded(drawn))
    chosen = torch.from_numpy(rows)
    absent = chosen == ABSENT
    safe = chosen.clamp(min=0)
    x = data.inputs(data.train_x[safe].to(device))
    y = data.train_y[safe].masked_fill(absent, PADDING).to(device)
    return x, y


def _padded(drawn: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Batches as one array [steps, B] per client, filled up with ``ABSENT``."""
    width = max(1, max(len(batch) for client in drawn for batch in client))
    rows = []
    for client in drawn:
        row = np.full((len(client), width), ABSENT, np.int64)
        for step, batch in enumerate(client):
            row[step, : len(batch)] = batch
        rows.append(row)
    return rows
