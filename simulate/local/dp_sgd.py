"""DP-SGD: each step clips the gradient of every record, sums, adds noise and steps.

M. Abadi et al., Deep Learning with Differential Privacy, CCS 2016, Algorithm 1.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from simulate.components import ClientBatch, Local, LocalResult, RecordNoiseEvidence
from simulate.local.per_record import RecordSums, clipped_sums
from simulate.mechanisms.record_noise import RecordNoise


def dp_sgd(clipping_norm: float) -> Local:
    """DP-SGD on Poisson samples of a client's records, noised as the client's group plans.

    A step is the noisy sum over the planned batch, whatever the realised one and whatever the
    client really holds: a divisor that followed its records would give their number away.
    Momentum acts on noisy steps, so it costs no privacy.

    Args:
        clipping_norm: bound on the norm of a record's gradient.
    """

    def train(work: ClientBatch) -> LocalResult:
        batch = work.group.record_batch
        if batch is None:
            raise InputError.one("plan.unit", "must be record for DP-SGD", "client")
        std = work.group.noise_multiplier * clipping_norm
        noise = [RecordNoise(work.noise(int(client)), std) for client in work.clients]
        start = work.theta.expand(len(work.clients), -1)
        thetas, speed, tally = start.clone(), torch.zeros_like(start), _Tally(len(start))
        for step in range(work.y.shape[1]):
            sums = clipped_sums(
                work.model,
                thetas,
                work.x[:, step],
                work.y[:, step],
                clipping_norm=clipping_norm,
                workers=work.workers,
            )
            tally.add(sums, work.y[:, step])
            drawn = torch.stack([one.like(row) for one, row in zip(noise, sums.total, strict=True)])
            speed = work.momentum * speed + (sums.total + drawn) / batch
            thetas = thetas - work.learning_rate * speed
        return LocalResult(thetas - start, spent=tally.spent(noise, work, clipping_norm))

    return Local("dp-sgd", train, poisson=True)


class _Tally:
    """What the steps of K clients leave as evidence."""

    def __init__(self, clients: int) -> None:
        self.largest = np.zeros(clients)
        self.clipped = np.zeros(clients, np.int64)
        self.excluded = np.zeros(clients, np.int64)
        self.taken = np.zeros(clients, np.int64)

    def add(self, sums: RecordSums, labels: Tensor) -> None:
        """Count one step."""
        self.largest = np.maximum(self.largest, sums.largest.cpu().numpy())
        self.clipped += sums.clipped.cpu().numpy()
        self.excluded += sums.excluded.cpu().numpy()
        self.taken += (labels >= 0).sum(1).cpu().numpy()

    def spent(
        self, noise: list[RecordNoise], work: ClientBatch, clipping_norm: float
    ) -> RecordNoiseEvidence:
        """The evidence as the ledger needs it."""
        clients = len(noise)
        return RecordNoiseEvidence(
            noise_std=np.array([one.std for one in noise]),
            bound=np.full(clients, clipping_norm),
            noise_sum_squares=np.array([one.squares for one in noise]),
            noise_state=tuple(one.state for one in noise),
            drawn=np.array([one.drawn for one in noise]),
            steps=np.full(clients, work.y.shape[1]),
            records=work.records,
            taken=self.taken,
            largest_norm=self.largest,
            clipped=self.clipped,
            excluded=self.excluded,
        )
