"""Sums of clipped per-record gradients for a chain of layers, by ghost clipping.

One pass gives the slopes of all records at each layer's output; norms and clipped sums
follow from them (Li et al. 2022, "Large language models can be strong differentially
private learners"; without a second backward pass: Bu et al. 2023, "Differentially
private optimization on large foundation models").

A dense layer needs no per-record gradients: its gradient is the outer product of slope
and features, whose norm is the product of their norms (Goodfellow 2015, "Efficient
per-example gradient computations"), and the clipped sum is one matrix product with
scaled slopes. The gradient of a convolution is a product of slopes and patches. It is
kept: it is small, and what is added is then what was measured, rounding included.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from simulate.models.kernels import (
    Layers,
    forward,
    slope_before,
    slopes,
)
from simulate.models.layers import Conv, Linear, input_shapes, shape_after
from simulate.models.network import Packed
from simulate.norms import factors


class Gradients(NamedTuple):
    """Gradients of a layer of K clients by record, as two factors of a product.

    Attributes:
        slope: that by the output of a dense layer [K, B, outputs], or that by the bias
            of a convolution, which has the same shape.
        features: of a dense layer [K, B, inputs]; of a convolution the gradient by its
            weight, flat: [K, B, outputs * size * size * inputs].
    """

    slope: Tensor
    features: Tensor


def values_per_record(layers: Layers, input_shape: tuple[int, ...]) -> int:
    """Values in memory for one record: gradients of convolutions, widest patches."""
    gradients = 0
    widest = 1
    for layer, shape in zip(layers, input_shapes(layers, input_shape), strict=True):
        widest = max(widest, math.prod(shape))
        if isinstance(layer, Conv):
            kernel = layer.inputs * layer.size**2
            places = math.prod(shape_after(layer, shape)[1:])
            gradients += layer.outputs * kernel
            widest = max(widest, places * kernel)
    return gradients + widest


def clipped_sums_of_clients(
    layers: Layers, packed: Packed, x: Tensor, y: Tensor, clipping_norm: float
) -> tuple[Packed, Tensor]:
    """Sums of the clipped gradients of the records of K clients.

    A gradient that is not finite adds nothing. The host waits for no device.

    Args:
        layers: of the model.
        packed: parameters of the clients.
        x: records [K, B, channels, rows, columns].
        y: labels [K, B], negative where a row has no record.
        clipping_norm: largest norm of a record's gradient.

    Returns:
        The packed sums, and the norms [K, B] before clipping, float64.
    """
    of_layers, norms = _by_record(layers, packed, x, y)
    factor = factors(norms, clipping_norm)
    # Zero times a value that is not finite would be NaN.
    is_added = ((factor > 0) & (y >= 0)).unsqueeze(2)
    total: Packed = []
    for layer, gradients in zip(layers, of_layers, strict=True):
        if gradients is None:
            total.append(())
            continue
        slope = torch.where(is_added, gradients.slope * factor.unsqueeze(2), 0.0)
        features = torch.where(is_added, gradients.features, 0.0)
        if isinstance(layer, Conv):
            weight = factor.unsqueeze(1) @ features
            weight = weight.view(-1, layer.size, layer.size, layer.inputs)
            total.append((weight.movedim(3, 1), slope.sum(1).flatten()))
        else:
            total.append((slope.mT @ features, slope.sum(1, keepdim=True)))
    return total, norms


def _by_record(
    layers: Layers, packed: Packed, x: Tensor, y: Tensor
) -> tuple[list[Gradients | None], Tensor]:
    """Each layer's gradients by record, and their norms together [K, B], float64."""
    logits, saved = forward(layers, packed, x)
    slope = slopes(logits, y)
    squares = torch.zeros(y.shape, dtype=torch.float64, device=y.device)
    of_layers: list[Gradients | None] = []
    for index in reversed(range(len(layers))):
        gradients: Gradients | None = None
        match layers[index]:
            case Linear():
                gradients = Gradients(slope, saved[index][0])
                # The features with a 1 for the bias.
                squares += (_square(gradients.features) + 1) * _square(slope)
            case Conv() as layer:
                gradients = _of_convolution(layer, saved[index][0], slope, len(y))
                squares += _square(gradients.features) + _square(gradients.slope)
        of_layers.append(gradients)
        if index > 0:
            slope = slope_before(layers[index], packed[index], saved[index], slope)
    return of_layers[::-1], torch.where(y >= 0, squares.sqrt(), 0.0)


def _of_convolution(layer: Conv, x: Tensor, slope: Tensor, clients: int) -> Gradients:
    """Gradients by record of one convolution of several clients.

    Args:
        layer: the convolution.
        x: its input [B, K * inputs, rows, columns].
        slope: gradient by its output [B, K * outputs, rows, columns].
        clients: their number K.
    """
    # Places are the rows of one matrix a record, [K, B, places, outputs].
    slope = (
        torch.unflatten(slope, 1, (clients, -1)).permute(1, 0, 3, 4, 2).flatten(2, 3)
    )
    images = torch.unflatten(x, 1, (clients, -1)).permute(1, 0, 3, 4, 2)
    padding = [0, 0, layer.padding, layer.padding, layer.padding, layer.padding]
    images = functional.pad(images, padding)
    # [K, B, rows, columns, inputs, size, size], a view.
    patches = images.unfold(2, layer.size, 1).unfold(3, layer.size, 1)
    patches = patches.movedim(4, 6).flatten(4).flatten(2, 3)
    return Gradients(slope.sum(2), (slope.mT @ patches).flatten(2))


def _square(values: Tensor) -> Tensor:
    """Squared L2 norm of each record's values [K, B, n]: [K, B], float64."""
    norms: Tensor = torch.linalg.vector_norm(values, dim=2, dtype=torch.float64)
    return norms.square()
