"""Sums of clipped per-record gradients for a chain of layers, on a CPU.

Each record of a block is processed as a client with a mini-batch of one, so that per-record
gradients of convolutions come from one grouped convolution. A dense layer needs no per-record
gradients: its gradient is the outer product of slope and features, whose norm is the product of
their norms
(Goodfellow 2015, "Efficient per-example gradient computations"), and the clipped sum is one
matrix product with scaled slopes (ghost clipping: Li et al. 2022, "Large language
models can be strong differentially private learners").
"""

from __future__ import annotations

import torch
from torch import Tensor

from simulate.models import grouped
from simulate.models.layers import Conv, Layer, Linear
from simulate.models.network import Packed, Parts
from simulate.norms import factors

BLOCK = 16
"""Records whose gradients are in memory at a time: measured, they fit the caches."""

Layers = tuple[Layer, ...]


def clipped_sum(
    layers: Layers, packed: Packed, x: Tensor, y: Tensor, clipping_norm: float
) -> tuple[Packed, Tensor]:
    """Sum of the clipped gradients of one client's records.

    Args:
        layers: the layers in order.
        packed: parameters of one client, as `grouped.pack` returns them.
        x: records [B, *input_shape], float32.
        y: labels [B], int64, none of them padding.
        clipping_norm: L2 bound on the gradient of a record.

    Returns:
        The sum, packed, and the norms [B] before clipping, float64. A gradient that is not
        finite contributes 0.
    """
    total = [tuple(torch.zeros_like(value) for value in part) for part in packed]
    each = [_repeated(layer, part) for layer, part in zip(layers, packed, strict=True)]
    norms = [
        _add_block(layers, each, rows, labels, clipping_norm, total)
        for rows, labels in zip(torch.split(x, BLOCK), torch.split(y, BLOCK), strict=True)
    ]
    return total, torch.cat(norms)


def _repeated(layer: Layer, part: Parts) -> Parts:
    """One client's parameters repeated for a block of clients; dense ones are not copied."""
    match layer:
        case Conv():
            weight = part[0].repeat(BLOCK, 1, 1, 1)
            return weight.contiguous(memory_format=torch.channels_last), part[1].repeat(BLOCK)
        case _:
            return tuple(value.expand(BLOCK, -1, -1) for value in part)


def _add_block(
    layers: Layers, each: Packed, x: Tensor, y: Tensor, clipping_norm: float, total: Packed
) -> Tensor:
    """Add the clipped gradients of at most one block of records to `total`; return norms [B]."""
    repeated = [tuple(value[: len(value) // BLOCK * len(y)] for value in part) for part in each]
    gradients, norms = _by_record(layers, repeated, x, y)
    finite = norms.isfinite()
    if not finite.all():
        if finite.any():
            _add_block(layers, each, x[finite], y[finite], clipping_norm, total)
        return norms
    factor = factors(norms, clipping_norm)
    for layer, part, sums in zip(layers, gradients, total, strict=True):
        match layer:
            case Conv():
                for values, into in zip(part, sums, strict=True):
                    into.add_((factor @ values).view(into.shape))
            case Linear():
                features, slope = part
                slope = slope * factor.unsqueeze(1)
                sums[0][0].addmm_(slope.mT, features)
                sums[1][0, 0].add_(slope.sum(0))
    return norms


def _by_record(layers: Layers, each: Packed, x: Tensor, y: Tensor) -> tuple[Packed, Tensor]:
    """Factors of each record's gradient, and its norm [B], float64.

    Returns:
        For a convolution its gradients (weight [B, ...], bias [B, outputs]), for a dense layer
        (features [B, inputs], slope [B, outputs]), whose outer product is the gradient.
    """
    logits, saved = grouped.forward(layers, each, x[:, None])
    slope = grouped.slopes(logits, y[:, None])
    squares = torch.zeros(len(y), dtype=torch.float64)
    gradients: Packed = []
    for index in reversed(range(len(layers))):
        layer, tensors, needed = layers[index], saved[index], index > 0
        match layer:
            case Linear():
                part: Parts = (tensors[0].squeeze(1), slope.squeeze(1))
                squares += (_square(part[0]) + 1) * _square(part[1])
                if needed:
                    slope = grouped.slope_before(layer, each[index], tensors, slope)
            case _:
                slope, part = grouped.backward(layer, each[index], tensors, slope, needed=needed)
                part = tuple(value.reshape(len(y), -1) for value in part)
                squares += sum(map(_square, part))
        gradients.append(part)
    return gradients[::-1], squares.sqrt()


def _square(values: Tensor) -> Tensor:
    """Squared L2 norm of each record's values [B, n], float64."""
    norms: Tensor = torch.linalg.vector_norm(values, dim=1, dtype=torch.float64)
    return norms.square()
