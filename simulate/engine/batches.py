"""Mini-batches of clients in a round, drawn from each client's own random stream."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.secure_stream import NoiseKey
from privplan.streams import Purpose, streams
from simulate.data.dataset import Dataset
from simulate.data.partition.clients import ClientPartition
from simulate.local.sgd import PADDING

# Index of a padding row.
ABSENT = -1


def fill_schedule(
    chosen: np.ndarray, records: np.ndarray, generator: np.random.Generator
) -> None:
    """Write the records of a client's mini-batches, which each epoch shuffles.

    Args:
        chosen: indices [steps, size], all ``ABSENT``, as rows without a record stay.
        records: of the client.
        generator: of the order.
    """
    steps, size = chosen.shape
    batches_per_epoch = math.ceil(len(records) / size)
    if batches_per_epoch == 1:
        # Each step has all records, in an order of its own.
        filled = chosen[:, : len(records)]
        filled[:] = records
        generator.permuted(filled, axis=1, out=filled)
        return
    for epoch_start in range(0, steps, batches_per_epoch):
        order = generator.permutation(records)
        for step in range(epoch_start, min(epoch_start + batches_per_epoch, steps)):
            batch = order[(step - epoch_start) * size : (step - epoch_start + 1) * size]
            chosen[step, : len(batch)] = batch


def poisson_schedule(
    records: np.ndarray, steps: int, ratio: float, generator: np.random.Generator
) -> list[np.ndarray]:
    """Indices of the records in a client's Poisson-sampled mini-batches."""
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
    placed: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """The mini-batches of several clients, as shuffled epochs or Poisson samples.

    Args:
        data: all records.
        partition: which records a client has.
        clients: their numbers [K].
        seed: of the streams, unless there is a key.
        round_: from 1.
        steps: number of mini-batches of each client.
        size: rows of a mini-batch of an epoch.
        device: where the mini-batches are put.
        ratio: of Poisson samples; None for epochs.
        key: of the streams.
        placed: records and labels, for example a copy on the device; those of ``data``
            when None.

    Returns:
        Records [K, steps, B, ...] and labels [K, steps, B], ``PADDING`` where a row has
        no record.
    """
    client_records = partition.records_of(clients)
    if ratio is None:
        rows = np.full((len(clients), steps, size), ABSENT, np.int64)
        # A single record has one order, which needs no stream.
        is_drawn = np.array([len(records) > 1 for records in client_records], bool)
        sources = _sources(seed, round_, partition, clients[is_drawn], key)
        for row, records in zip(rows, client_records, strict=True):
            if len(records) > 1:
                fill_schedule(row, records, next(sources))
            else:
                row[:, : len(records)] = records
    else:
        sources = _sources(seed, round_, partition, clients, key)
        drawn = [
            poisson_schedule(records, steps, ratio, source)
            for records, source in zip(client_records, sources, strict=True)
        ]
        rows = _filled(drawn, steps)

    x, y = placed or (data.train_x, data.train_y)
    chosen = copied(torch.from_numpy(rows), x.device)
    safe = chosen.clamp(min=0)
    inputs = data.inputs(copied(x[safe], device))
    labels = copied(y[safe].masked_fill(chosen == ABSENT, PADDING), device)
    if (rows == ABSENT).any():
        inputs = _without_padding(inputs, copied(chosen == ABSENT, device))
    return inputs, labels


def _without_padding(inputs: Tensor, is_padding: Tensor) -> Tensor:
    """Inputs [K, steps, B, ...] with zeros in padding rows, of which a mask tells.

    Such a row holds nobody's record: one that overflows would spoil the updates of all
    clients with padding, though it enters no loss.
    """
    dimensions_of_record = [1] * (inputs.ndim - is_padding.ndim)
    mask = is_padding.reshape(*is_padding.shape, *dimensions_of_record)
    return inputs.masked_fill(mask, 0)


def _sources(
    seed: int,
    round_: int,
    partition: ClientPartition,
    clients: np.ndarray,
    key: NoiseKey | None,
) -> Iterator[Any]:
    """The generator of each client, until the next is asked for.

    Under a key the streams of all numbers are alike and secret, so that it does not
    matter which number a client has.
    """
    if key is None:
        keys = partition.stream_keys(clients)
        return streams(seed, Purpose.CLIENT, round_, clients=keys)
    return (key.stream(int(Purpose.CLIENT), round_, int(client)) for client in clients)


def copied(values: Tensor, device: torch.device) -> Tensor:
    """Values on a device; the host does not wait until a GPU has them.

    Pinned memory, which PyTorch keeps until the copy is done, allows that.
    """
    if device.type == "cuda" and values.device.type == "cpu":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)


def _filled(drawn: list[list[np.ndarray]], steps: int) -> np.ndarray:
    """Indices of records by client and step, as one array with padding rows."""
    width = 1
    for of_client in drawn:
        width = max(width, *map(len, of_client))
    rows = np.full((len(drawn), steps, width), ABSENT, np.int64)
    for client, of_client in enumerate(drawn):
        for step, batch in enumerate(of_client):
            rows[client, step, : len(batch)] = batch
    return rows
