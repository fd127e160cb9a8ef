"""Gradients of single records, clipped and summed: the step of DP-SGD before its noise."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from privplan.errors import InputError
from simulate.local.sgd import PADDING, check_shapes, pixels
from simulate.models.network import Model
from simulate.norms import factors
from simulate.parallel.threads import by_chunk

BLOCK_VALUES = 2**28
"""Most values of the gradients of single records that are held at a time on a device: 1 GiB."""


@dataclass(frozen=True)
class RecordSums:
    """Clipped gradients of single records, summed for each of K clients.

    Attributes:
        total: the sums [K, d], float32; each record adds a vector of norm at most the clipping
            norm, and of exactly that norm (to rounding, never above) when it was shortened.
        largest: the largest norm that a record added [K], float64; 0 for a client without any.
        clipped: how many records were shortened [K], int64.
        excluded: how many records had a gradient that is not finite and added nothing [K], int64.
    """

    total: Tensor
    largest: Tensor
    clipped: Tensor
    excluded: Tensor


def clipped_sums(
    model: Model,
    thetas: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    clipping_norm: float,
    workers: int | None = None,
) -> RecordSums:
    """Sums over each client's records of their gradients, each shortened to the clipping norm.

    The loss of a record is its cross-entropy (Abadi et al. 2016, Algorithm 1, without the noise
    and the division by the batch). On a CPU the result is the same to the bit whatever the
    number of threads.

    Args:
        model: the network.
        thetas: parameters [K, d].
        x: records [K, B, *input_shape], float32, integers for token models, or uint8 (divided
            by 255).
        y: labels [K, B], int64, -1 for a padding row.
        clipping_norm: L2 bound on what a record adds, above 0 and finite.
        workers: threads on a CPU; PyTorch's number of threads when not given.

    Returns:
        The sums, and evidence beside them.

    Raises:
        InputError: a shape does not fit, or the clipping norm is out of range.
    """
    check_shapes(model, thetas, x, y, dimensions=2)
    if not 0 < clipping_norm < float("inf"):
        raise InputError.one("clipping_norm", "must be above 0 and finite", clipping_norm)
    thetas = thetas.detach()
    if len(y) == 0 or thetas.device.type != "cpu":
        return _whole(model, thetas, x, y, clipping_norm)

    def work(rows: slice) -> tuple[Tensor, Tensor]:
        client = rows.start
        present = y[client] != PADDING
        norms = torch.zeros(y.shape[1], dtype=torch.float64)
        if not present.any():
            return torch.zeros_like(thetas[client]), norms
        records = pixels(x[client][present])
        total, norms[present] = model.clipped_sum(
            thetas[client], records, y[client][present], clipping_norm
        )
        return total, norms

    totals, norms = zip(*by_chunk(work, len(y), 1, workers), strict=True)
    return _with_evidence(torch.stack(totals), torch.stack(norms), clipping_norm)


def _with_evidence(total: Tensor, norms: Tensor, clipping_norm: float) -> RecordSums:
    """Sums [K, d] with what the norms before clipping [K, B] say; 0 for a padding row."""
    finite = norms.isfinite()
    added = torch.where(finite, norms, 0.0)
    largest = torch.cat([added, added.new_zeros(len(added), 1)], 1).amax(1)
    return RecordSums(
        total,
        largest.clamp(max=clipping_norm),
        (added > clipping_norm).sum(1),
        (~finite).sum(1),
    )


def _whole(model: Model, thetas: Tensor, x: Tensor, y: Tensor, clipping_norm: float) -> RecordSums:
    """The whole cohort in batches over all clients, without waiting for the device."""
    held = max(1, len(y) * thetas.shape[1])
    total, norms = torch.zeros_like(thetas), []
    for rows in torch.arange(y.shape[1]).split(max(1, BLOCK_VALUES // held)):
        block = slice(int(rows[0]), int(rows[-1]) + 1)
        sums, found = _whole_block(model, thetas, pixels(x[:, block]), y[:, block], clipping_norm)
        total += sums
        norms.append(found)
    joined = torch.cat(norms, 1) if norms else torch.zeros(y.shape, dtype=torch.float64)
    return _with_evidence(total, joined, clipping_norm)


def _whole_block(
    model: Model, thetas: Tensor, x: Tensor, y: Tensor, clipping_norm: float
) -> tuple[Tensor, Tensor]:
    """Clipped sums [K, d] and norms before clipping [K, B] of one batch over all clients."""

    def loss(theta: Tensor, record: Tensor, label: Tensor) -> Tensor:
        logits = model.logits_each(theta[None], record[None, None])[0]
        return functional.cross_entropy(logits, label[None], ignore_index=PADDING, reduction="sum")

    found = vmap(vmap(grad(loss), (None, 0, 0)), (0, 0, 0))(thetas, x, y)
    norms = torch.linalg.vector_norm(found, dim=2, dtype=torch.float64)
    factor = factors(norms, clipping_norm)
    found = torch.where(factor.unsqueeze(2) > 0, found, 0.0)
    return torch.einsum("kb,kbd->kd", factor, found), norms
