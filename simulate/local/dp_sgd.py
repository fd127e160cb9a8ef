"""DP-SGD: each step clips the gradient of every record, sums, adds noise and steps.

M. Abadi et al., Deep Learning with Differential Privacy, CCS 2016, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from privplan.errors import InputError
from simulate.components import (
    ClientBatch,
    LocalResult,
    LocalRule,
    RecordNoiseEvidence,
    Split,
)
from simulate.local.sgd import PADDING, pixels
from simulate.mechanisms import RecordNoise
from simulate.models.chain import SUM_VALUES, Chain
from simulate.models.network import Model
from simulate.models.objective import CROSS_ENTROPY
from simulate.norms import factors
from simulate.parallel import by_chunk

# --- Clipped per-record gradients and their sums: a DP-SGD step without its noise. ----

# Most values for per-record gradients in a device's memory at a time: 1 GiB.
BLOCK_VALUES = 2**28


class RecordSums(NamedTuple):
    """Sums of clipped per-record gradients of K clients.

    No record adds more than the clipping norm; one whose gradient is not finite adds
    nothing.
    """

    total: Tensor  # [K, d], float32
    largest: Tensor  # norm of a clipped gradient [K], float64; 0 without records
    clipped: Tensor  # clipped records [K], int64
    excluded: Tensor  # records whose gradient is not finite [K], int64


def clipped_sums(
    model: Model,
    thetas: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    clipping_norm: float,
    workers: int | None = None,
) -> RecordSums:
    """Sum of each client's clipped record gradients; no result depends on threads.

    Args:
        model: of the parameters.
        thetas: parameters of each client [K, d].
        x: records [K, B, ...].
        y: labels [K, B], ``PADDING`` where a row has no record.
        clipping_norm: largest norm of a record's gradient.
        workers: number of threads; those of PyTorch when None.

    Raises:
        InputError: when the clipping norm is not positive and finite.
    """
    if not 0 < clipping_norm < float("inf"):
        raise InputError.one(
            "clipping_norm", "must be above 0 and finite", clipping_norm
        )
    thetas = thetas.detach()
    if len(y) == 0 or thetas.device.type != "cpu":
        return _sums_on_device(model, thetas, x, y, clipping_norm)
    if isinstance(model, Chain):
        return _sums_of_chain(model, thetas, x, y, clipping_norm, workers)

    def of_client(rows: slice) -> tuple[Tensor, Tensor]:
        client = rows.start
        present = y[client] != PADDING
        norms = torch.zeros(y.shape[1], dtype=torch.float64)
        if not present.any():
            return torch.zeros_like(thetas[client]), norms
        total, norms[present] = model.clipped_sum(
            thetas[client],
            pixels(x[client][present]),
            y[client][present],
            clipping_norm,
        )
        return total, norms

    totals, norms = zip(*by_chunk(of_client, len(y), 1, workers), strict=True)
    return _with_evidence(torch.stack(totals), torch.stack(norms), clipping_norm)


def _sums_of_chain(
    model: Chain,
    thetas: Tensor,
    x: Tensor,
    y: Tensor,
    clipping_norm: float,
    workers: int | None,
) -> RecordSums:
    """Sums of clients on a CPU, of several at once where they are small."""

    def of_chunk(rows: slice) -> tuple[Tensor, Tensor]:
        records = pixels(x[rows])
        return model.clipped_sums(
            thetas[rows], records, y[rows], clipping_norm, SUM_VALUES
        )

    clients = max(1, SUM_VALUES // max(1, y.shape[1] * model.values_per_record))
    totals, norms = zip(*by_chunk(of_chunk, len(y), clients, workers), strict=True)
    return _with_evidence(torch.cat(totals), torch.cat(norms), clipping_norm)


def _with_evidence(total: Tensor, norms: Tensor, clipping_norm: float) -> RecordSums:
    """Sums [K, d] with the evidence of clipping.

    It follows from the norms before clipping [K, B], which are 0 for a padding row.
    """
    finite = norms.isfinite()
    of_added = torch.where(finite, norms, 0.0)
    # The column of zeros is the largest norm of a client without records.
    largest = torch.cat([of_added, of_added.new_zeros(len(of_added), 1)], 1).amax(1)
    return RecordSums(
        total=total,
        largest=largest.clamp(max=clipping_norm),
        clipped=(of_added > clipping_norm).sum(1),
        excluded=(~finite).sum(1),
    )


def _sums_on_device(
    model: Model, thetas: Tensor, x: Tensor, y: Tensor, clipping_norm: float
) -> RecordSums:
    """Sums of the whole cohort in blocks of rows; the host waits for no device."""
    if isinstance(model, Chain):
        total, of_records = model.clipped_sums(
            thetas, pixels(x), y, clipping_norm, BLOCK_VALUES
        )
        return _with_evidence(total, of_records, clipping_norm)
    values_per_row = max(1, len(y) * thetas.shape[1])
    size = max(1, BLOCK_VALUES // values_per_row)
    total = torch.zeros_like(thetas)
    norms: list[Tensor] = []
    for start in range(0, y.shape[1], size):
        block = slice(start, start + size)
        records = pixels(x[:, block])
        sums, block_norms = sums_by_vmap(
            model, thetas, records, y[:, block], clipping_norm
        )
        total += sums
        norms.append(block_norms)
    of_all = torch.zeros(y.shape, dtype=torch.float64)
    if norms:
        of_all = torch.cat(norms, 1)
    return _with_evidence(total, of_all, clipping_norm)


def sums_by_vmap(
    model: Model, thetas: Tensor, x: Tensor, y: Tensor, clipping_norm: float
) -> tuple[Tensor, Tensor]:
    """Clipped sums [K, d] and norms before clipping [K, B], for any model.

    The gradient of each record is in memory.
    """

    def loss(theta: Tensor, record: Tensor, label: Tensor) -> Tensor:
        logits = model.logits_each(theta[None], record[None, None])[0]
        if model.objective is not CROSS_ENTROPY:
            return model.objective(logits, label.clamp(min=0)[None]) * (label >= 0)
        return functional.cross_entropy(
            logits, label[None], ignore_index=PADDING, reduction="sum"
        )

    gradients = vmap(vmap(grad(loss), (None, 0, 0)), (0, 0, 0))(thetas, x, y)
    norms = torch.linalg.vector_norm(gradients, dim=2, dtype=torch.float64)
    factor = factors(norms, clipping_norm)
    gradients = torch.where(factor.unsqueeze(2) > 0, gradients, 0.0)
    return torch.einsum("kb,kbd->kd", factor, gradients), norms


# --- The rule of a client without personal parameters. --------------------------------


def dp_sgd(clipping_norm: float) -> LocalRule:
    """DP-SGD on Poisson samples of a client's records, with the noise of its group.

    A step is the noisy sum divided by the planned batch size, independent of the drawn
    batch and of the client's number of records, which a divisor derived from them would
    reveal. Momentum acts on noisy steps, so it has no privacy cost.
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
    """The movement [K, d] of clients by DP-SGD from a start, and the evidence.

    Args:
        batch: models, mini-batches and group of the clients.
        start: their first parameters [d] or [K, d].
        clipping_norm: largest norm of a record's gradient.
        rates: a step to factors on the learning rate [d]; 1 when None. A coordinate
            with 0 does not move, and its momentum forgets the step.
        sent: coordinates that may leave a client; None for all.

    Raises:
        InputError: when the plan protects clients.
    """
    batch_size = batch.group.record_batch
    if batch_size is None:
        raise InputError.one("plan.unit", "must be record for DP-SGD", "client")
    std = batch.group.noise_multiplier * clipping_norm
    noise = _noise_sources(batch, std, sent)

    start = start.expand(len(batch.clients), -1)
    # Kept apart from the parameters, whose rounding may be more than a step moves: what
    # a client sends beside its noise has to be as short as its records allow.
    movement = torch.zeros_like(start)
    speed = torch.zeros_like(start)
    # Largest norm, clipped and excluded records of each client, by step.
    of_steps: list[tuple[Tensor, Tensor, Tensor]] = []
    for step in range(batch.y.shape[1]):
        sums = clipped_sums(
            batch.model,
            start + movement,
            batch.x[:, step],
            batch.y[:, step],
            clipping_norm=clipping_norm,
            workers=batch.workers,
        )
        of_steps.append((sums.largest, sums.clipped, sums.excluded))
        drawn = [
            source.like(row) for source, row in zip(noise, sums.total, strict=True)
        ]
        noisy = (sums.total + torch.stack(drawn)) / batch_size
        factors = 1.0 if rates is None else rates(step)
        speed = batch.momentum * speed + noisy * (factors != 0)
        movement = movement - batch.learning_rate * factors * speed
    evidence = _evidence(batch, clipping_norm, noise, of_steps)
    return LocalResult(movement, noise_evidence=evidence)


def _noise_sources(
    batch: ClientBatch, std: float, sent: Tensor | None
) -> list[RecordNoise]:
    """The source of noise of each client, which tells of the coordinates it sends."""
    coordinates = None if sent is None else sent.cpu().numpy()
    return [
        RecordNoise(batch.noise(int(client)), std, coordinates)
        for client in batch.clients
    ]


def _evidence(
    batch: ClientBatch,
    clipping_norm: float,
    noise: Sequence[RecordNoise],
    of_steps: Sequence[tuple[Tensor, Tensor, Tensor]],
) -> RecordNoiseEvidence:
    """The evidence of the clients' steps; all counts come in one copy.

    ``of_steps`` has largest norm, clipped and excluded records of each step.
    """
    norms, clipped_records, excluded_records = zip(*of_steps, strict=True)
    measured = [
        (batch.y >= 0).sum((1, 2)),
        torch.stack(clipped_records).sum(0),
        torch.stack(excluded_records).sum(0),
        torch.stack(norms).amax(0),
    ]
    copied = torch.stack([values.double() for values in measured]).cpu().numpy()
    batch_records, clipped, excluded, largest = copied
    clients = len(batch.clients)
    return RecordNoiseEvidence(
        noise_std=np.array([source.std for source in noise]),
        bound=np.full(clients, clipping_norm),
        noise_sum_squares=np.array([source.squares for source in noise]),
        noise_state=tuple(source.state for source in noise),
        drawn=np.array([source.drawn for source in noise]),
        steps=np.full(clients, batch.y.shape[1]),
        records=batch.records,
        batch_records=batch_records.astype(np.int64),
        largest_norm=largest,
        clipped=clipped.astype(np.int64),
        excluded=excluded.astype(np.int64),
    )


# --- Clients with personal parameters: all that they learn from records is noisy. -----
# Personal parameters stay at the client, but the gradients of the shared ones depend on
# them. Were they trained without noise, a record would change every other record's
# clipped gradient through them, and no multiple of the clipping norm would bound its
# effect on a sum. So each step on personal parameters is a step of DP-SGD, too, and is
# counted like the others.


def head_then_body(clipping_norm: float, split: Split, head_rate: float) -> LocalRule:
    """The first half of a round's noisy steps trains the head, the others the body.

    Each step clips the whole gradient of a record and adds noise to all coordinates;
    the step then uses those of the part that it trains. With an odd number of steps the
    body takes one more; with one step per round the head is never trained.
    """

    def train(batch: ClientBatch) -> LocalResult:
        head = batch.model.head
        in_head = torch.zeros_like(batch.theta)
        in_head[head] = 1.0
        head_steps = (batch.group.steps or batch.y.shape[1]) // 2
        start = split.use(batch.model, batch.theta, batch.personal, batch.clients)

        def rates(step: int) -> Tensor:
            if step < head_steps:
                return head_rate * in_head
            return 1 - in_head

        moved = noisy_descent(
            batch, start, clipping_norm, rates, split.shared(batch.model)
        )
        heads = (start + moved.updates)[:, head]
        return LocalResult(moved.updates * (1 - in_head), heads, moved.noise_evidence)

    def sent_noise(steps: int) -> list[float]:
        return [0.0] * (steps // 2) + [1.0] * (steps - steps // 2)

    return LocalRule(
        "dp-sgd, head then body", train, poisson=True, sent_noise=sent_noise
    )


def noisy_sum(clipping_norm: float, alpha: float) -> LocalRule:
    """DP-SGD at the sum of shared and personal parameters.

    Both move along one noisy sum.

    Args:
        clipping_norm: largest norm of a record's gradient.
        alpha: step size of the shared part, divided by that of the personal part.
    """
    shared = min(1.0, alpha)
    personal = min(1.0, 1 / alpha) if alpha else 1.0

    def train(batch: ClientBatch) -> LocalResult:
        offset = batch.personal
        if offset is None:
            offset = torch.zeros_like(batch.theta)
        start = batch.theta + offset
        factors = torch.full_like(batch.theta, shared + personal)
        moved = noisy_descent(batch, start, clipping_norm, lambda step: factors)
        movement = moved.updates / (shared + personal)
        new_offset = offset + personal * movement
        return LocalResult(shared * movement, new_offset, moved.noise_evidence)

    def sent_noise(steps: int) -> list[float]:
        return [shared] * steps

    return LocalRule("dp-sgd at the sum", train, poisson=True, sent_noise=sent_noise)
