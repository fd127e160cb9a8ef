"""Clipped per-record gradients and their sums: a DP-SGD step without its noise."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from privplan.errors import InputError
from simulate.local.sgd import PADDING, check_shapes, pixels
from simulate.models.network import Model
from simulate.models.objective import CROSS_ENTROPY
from simulate.norms import factors
from simulate.parallel.threads import by_chunk

BLOCK_VALUES = 2**28
"""Most values of per-record gradients in a device's memory at a time: 1 GiB."""


@dataclass(frozen=True)
class RecordSums:
    """Sums of clipped per-record gradients of K clients.

    Attributes:
        total: the sums [K, d], float32; each record adds a vector of norm at most the clipping
            norm, which a clipped one reaches up to rounding, never above.
        largest: largest norm of a clipped gradient [K], float64; 0 for a client without records.
        clipped: number of clipped records [K], int64.
        excluded: number of records whose gradient is not finite, which add nothing [K], int64.
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
    """Returns the sum over each client's records of their clipped gradients.

    The loss of a record is its cross-entropy (Abadi et al. 2016, Algorithm 1, without the noise
    and the division by the batch). On a CPU the result is the same to the bit whatever the
    number of threads.

    Args:
        model: the network.
        thetas: parameters [K, d].
        x: records [K, B, *input_shape], float32, integers for token models, or uint8 (divided
            by 255).
        y: labels [K, B], int64, -1 for a padding row.
        clipping_norm: L2 bound on a record's gradient, above 0 and finite.
        workers: number of threads on a CPU; PyTorch's number of threads when None.

    Returns:
        The sums with their evidence.

    Raises:
        InputError: a shape does not match, or the clipping norm is out of range.
    """
    check_shapes(model, thetas, x, y, dimensions=2)
    if not 0 < clipping_norm < float("inf"):
        raise InputError.one("clipping_norm", "must be above 0 and finite", clipping_norm)
    thetas = thetas.detach()
    if len(y) == 0 or thetas.device.type != "cpu":
        return _sums_on_device(model, thetas, x, y, clipping_norm)

    def of_chunk(rows: slice) -> tuple[Tensor, Tensor]:
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

    totals, norms = zip(*by_chunk(of_chunk, len(y), 1, workers), strict=True)
    return _with_evidence(torch.stack(totals), torch.stack(norms), clipping_norm)


def _with_evidence(total: Tensor, norms: Tensor, clipping_norm: float) -> RecordSums:
    """Sums [K, d] with the evidence from the norms before clipping [K, B], 0 for a padding row."""
    finite = norms.isfinite()
    added = torch.where(finite, norms, 0.0)
    largest = torch.cat([added, added.new_zeros(len(added), 1)], 1).amax(1)
    return RecordSums(
        total,
        largest.clamp(max=clipping_norm),
        (added > clipping_norm).sum(1),
        (~finite).sum(1),
    )


def _sums_on_device(
    model: Model, thetas: Tensor, x: Tensor, y: Tensor, clipping_norm: float
) -> RecordSums:
    """Sums of the whole cohort in blocks of rows, without synchronising with the device."""
    values_per_row = max(1, len(y) * thetas.shape[1])
    total, norms = torch.zeros_like(thetas), []
    for rows in torch.split(torch.arange(y.shape[1]), max(1, BLOCK_VALUES // values_per_row)):
        block = slice(int(rows[0]), int(rows[-1]) + 1)
        sums, block_norms = _block_sums(
            model, thetas, pixels(x[:, block]), y[:, block], clipping_norm
        )
        total += sums
        norms.append(block_norms)
    joined = torch.cat(norms, 1) if norms else torch.zeros(y.shape, dtype=torch.float64)
    return _with_evidence(total, joined, clipping_norm)


def _block_sums(
    model: Model, thetas: Tensor, x: Tensor, y: Tensor, clipping_norm: float
) -> tuple[Tensor, Tensor]:
    """Clipped sums [K, d] and norms before clipping [K, B] of one block of all clients."""

    def loss(theta: Tensor, record: Tensor, label: Tensor) -> Tensor:
        logits = model.logits_each(theta[None], record[None, None])[0]
        if model.objective is not CROSS_ENTROPY:
            return model.objective(logits, label.clamp(min=0)[None]) * (label >= 0)
        return functional.cross_entropy(logits, label[None], ignore_index=PADDING, reduction="sum")

    gradients = vmap(vmap(grad(loss), (None, 0, 0)), (0, 0, 0))(thetas, x, y)
    norms = torch.linalg.vector_norm(gradients, dim=2, dtype=torch.float64)
    factor = factors(norms, clipping_norm)
    gradients = torch.where(factor.unsqueeze(2) > 0, gradients, 0.0)
    return torch.einsum("kb,kbd->kd", factor, gradients), norms
