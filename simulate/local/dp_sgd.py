"""DP-SGD: each step clips the gradient of every record, sums, adds noise and steps.

M. Abadi et al., Deep Learning with Differential Privacy, CCS 2016, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from simulate.components import ClientBatch, LocalResult, LocalRule, RecordNoiseEvidence
from simulate.local.per_record import RecordSums, clipped_sums
from simulate.mechanisms.record_noise import RecordNoise


def dp_sgd(clipping_norm: float) -> LocalRule:
    """DP-SGD on Poisson samples of a client's records, with the noise of the client's group plan.

    A step is the noisy sum divided by the planned batch size, independent of the drawn batch and
    of the client's number of records, which a divisor derived from them would reveal. Momentum
    acts on noisy steps, so it has no privacy cost.

    Args:
        clipping_norm: bound on the norm of a record's gradient.
    """

    def train(batch: ClientBatch) -> LocalResult:
        return noisy_descent(batch, batch.theta, clipping_norm)

    return LocalRule("dp-sgd", train, poisson=True)


def noisy_descent(
    batch: ClientBatch,
    start: Tensor,
    clipping_norm: float,
    rates: Callable[[int], Tensor] | None = None,
    sent: Tensor | None = None,
) -> LocalResult:
    """Returns the movement [K, d] of clients by DP-SGD from a start, and the evidence.

    Args:
        batch: input of the local rule.
        start: parameters [d] or [K, d] at the start.
        clipping_norm: bound on the norm of a record's gradient, over all coordinates.
        rates: step, from 0, to the factor on the learning rate of each coordinate [d]; 0 for those
            that the step does not train, which also keep no momentum of it. 1 when None.
        sent: coordinates that may leave the client; None for all.
    """
    batch_size = batch.group.record_batch
    if batch_size is None:
        raise InputError.one("plan.unit", "must be record for DP-SGD", "client")
    std = batch.group.noise_multiplier * clipping_norm
    shown = None if sent is None else sent.cpu().numpy()
    noise = [RecordNoise(batch.noise(int(client)), std, shown) for client in batch.clients]
    start = start.expand(len(batch.clients), -1)
    thetas, speed, counts = start.clone(), torch.zeros_like(start), _Counts(len(start))
    for step in range(batch.y.shape[1]):
        sums = clipped_sums(
            batch.model,
            thetas,
            batch.x[:, step],
            batch.y[:, step],
            clipping_norm=clipping_norm,
            workers=batch.workers,
        )
        counts.add(sums, batch.y[:, step])
        drawn = torch.stack(
            [source.like(row) for source, row in zip(noise, sums.total, strict=True)]
        )
        noisy = (sums.total + drawn) / batch_size
        if rates is None:
            speed = batch.momentum * speed + noisy
            thetas = thetas - batch.learning_rate * speed
        else:
            factors = rates(step)
            speed = batch.momentum * speed + noisy * (factors != 0)
            thetas = thetas - batch.learning_rate * factors * speed
    return LocalResult(thetas - start, noise_evidence=counts.evidence(noise, batch, clipping_norm))


class _Counts:
    """Counts and largest norms over the steps of K clients."""

    def __init__(self, clients: int) -> None:
        self.largest = np.zeros(clients)
        self.clipped = np.zeros(clients, np.int64)
        self.excluded = np.zeros(clients, np.int64)
        self.taken = np.zeros(clients, np.int64)

    def add(self, sums: RecordSums, labels: Tensor) -> None:
        """Add the counts of one step."""
        self.largest = np.maximum(self.largest, sums.largest.cpu().numpy())
        self.clipped += sums.clipped.cpu().numpy()
        self.excluded += sums.excluded.cpu().numpy()
        self.taken += (labels >= 0).sum(1).cpu().numpy()

    def evidence(
        self, noise: list[RecordNoise], batch: ClientBatch, clipping_norm: float
    ) -> RecordNoiseEvidence:
        """The evidence that is written to the ledger."""
        clients = len(noise)
        return RecordNoiseEvidence(
            noise_std=np.array([source.std for source in noise]),
            bound=np.full(clients, clipping_norm),
            noise_sum_squares=np.array([source.squares for source in noise]),
            noise_state=tuple(source.state for source in noise),
            drawn=np.array([source.drawn for source in noise]),
            steps=np.full(clients, batch.y.shape[1]),
            records=batch.records,
            taken=self.taken,
            largest_norm=self.largest,
            clipped=self.clipped,
            excluded=self.excluded,
        )
