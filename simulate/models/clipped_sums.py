"""Sums of clipped per-record gradients for a chain of layers, on a CPU.

Each record of a block is processed as a client with a mini-batch of one, so that
per-record gradients of convolutions come from one grouped convolution. A dense layer
needs no per-record gradients: its gradient is the outer product of slope and features,
whose norm is the product of their norms (Goodfellow 2015, "Efficient per-example
gradient computations"), and the clipped sum is one matrix product with scaled slopes
(ghost clipping: Li et al. 2022, "Large language models can be strong differentially
private learners").
"""

from __future__ import annotations

import torch
from torch import Tensor

from simulate.models.kernels import (
    Layers,
    backward,
    forward,
    slope_before,
    slopes,
)
from simulate.models.layers import Conv, Linear
from simulate.models.network import Packed, Parts
from simulate.norms import factors

# Records whose gradients are in memory at a time: measured, they fit the caches.
BLOCK = 16


def clipped_sum(
    layers: Layers, packed: Packed, x: Tensor, y: Tensor, clipping_norm: float
) -> tuple[Packed, Tensor]:
    """Sum of the clipped gradients of one client's records."""
    total: Packed = [tuple(map(torch.zeros_like, part)) for part in packed]
    # The parameters once per record of a block; dense ones are not copied.
    repeated: Packed = []
    for layer, part in zip(layers, packed, strict=True):
        if isinstance(layer, Conv):
            weight, bias = part
            weight = weight.repeat(BLOCK, 1, 1, 1)
            weight = weight.contiguous(memory_format=torch.channels_last)
            repeated.append((weight, bias.repeat(BLOCK)))
        else:
            repeated.append(tuple(value.expand(BLOCK, -1, -1) for value in part))
    blocks = zip(torch.split(x, BLOCK), torch.split(y, BLOCK), strict=True)
    norms = [
        _add_block(layers, repeated, records, labels, clipping_norm, total)
        for records, labels in blocks
    ]
    return total, torch.cat(norms)


def _add_block(
    layers: Layers,
    repeated: Packed,
    x: Tensor,
    y: Tensor,
    clipping_norm: float,
    total: Packed,
) -> Tensor:
    """Add the clipped gradients of a block of records to `total`; their norms [B].

    A gradient that is not finite adds nothing.
    """
    # Clients stand one after another, so the first of them are the first values.
    of_records: Packed = []
    for part in repeated:
        of_records.append(
            tuple(value[: len(value) // BLOCK * len(y)] for value in part)
        )
    gradients, norms = _by_record(layers, of_records, x, y)
    finite = norms.isfinite()
    if not finite.all():
        if finite.any():
            _add_block(layers, repeated, x[finite], y[finite], clipping_norm, total)
        return norms
    factor = factors(norms, clipping_norm)
    for layer, part, sums in zip(layers, gradients, total, strict=True):
        match layer:
            case Conv():
                for values, sum_ in zip(part, sums, strict=True):
                    sum_.add_((factor @ values).view(sum_.shape))
            case Linear():
                features, slope = part
                slope = slope * factor.unsqueeze(1)
                sums[0][0].addmm_(slope.mT, features)
                sums[1][0, 0].add_(slope.sum(0))
    return norms


def _by_record(
    layers: Layers, packed: Packed, x: Tensor, y: Tensor
) -> tuple[Packed, Tensor]:
    """Factors of each record's gradient, and its norm [B], float64."""
    logits, saved = forward(layers, packed, x[:, None])
    slope = slopes(logits, y[:, None])
    squares = torch.zeros(len(y), dtype=torch.float64)
    gradients: Packed = []
    for index in reversed(range(len(layers))):
        layer = layers[index]
        is_needed = index > 0
        match layer:
            case Linear():
                features = saved[index][0].squeeze(1)
                part: Parts = (features, slope.squeeze(1))
                # The features with a 1 for the bias.
                squares += (_square(features) + 1) * _square(part[1])
                if is_needed:
                    slope = slope_before(layer, packed[index], saved[index], slope)
            case _:
                slope, part = backward(
                    layer, packed[index], saved[index], slope, is_needed=is_needed
                )
                part = tuple(value.reshape(len(y), -1) for value in part)
                squares += sum(map(_square, part))
        gradients.append(part)
    return gradients[::-1], squares.sqrt()


def _square(values: Tensor) -> Tensor:
    """Squared L2 norm of each record's values [B, n], float64."""
    norms: Tensor = torch.linalg.vector_norm(values, dim=1, dtype=torch.float64)
    return norms.square()
