"""Gradients of several models at once on a CPU, by grouped convolutions.

The clients of a chunk are concatenated along the channels of one `channels_last` tensor
[B, K * C, H, W], so that a convolution of all of them is one grouped convolution that
reads memory in order. Compared with autograd this saves the gradient with respect to
the images and most changes of layout. Parameters are packed once for many steps: [K *
out, in, k, k] for a convolution, [K, out, in] for a dense layer, whose inputs are in
the order of memory (row, column, channel).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from simulate.models.layers import Conv, Layer, Linear, Pool, Relu
from simulate.models.network import Packed, Parts

_ops = torch.ops.aten
_IMAGE_DIMENSIONS = 4  # of the images of all clients [B, K * C, H, W]

Layers = tuple[Layer, ...]
"""Of a model, in order."""


def forward(layers: Layers, packed: Packed, x: Tensor) -> tuple[Tensor, list[Parts]]:
    """Logits [K, B, classes], and what the backward pass of each layer needs."""
    if isinstance(layers[0], Linear):
        # Features [K, B, H * W * C].
        value = x.movedim(2, -1).flatten(2)
    elif x.device.type == "cpu":
        # [B, K * C, H, W], a copy also with one channel: a view is slower to convolve.
        value = x.permute(1, 3, 4, 0, 2).contiguous().flatten(3).permute(0, 3, 1, 2)
    else:
        value = x.transpose(0, 1).flatten(1, 2)
    saved: list[Parts] = []
    for layer, parameters in zip(layers, packed, strict=True):
        match layer:
            case Conv():
                saved.append((value,))
                weight, bias = parameters
                value = functional.conv2d(
                    value, weight, bias, padding=layer.padding, groups=len(x)
                )
            case Pool():
                maxima, where = _ops.max_pool2d_with_indices(value, 2)
                saved.append((value, where))
                value = maxima
            case Relu(leak):
                if leak:
                    value = functional.leaky_relu(value, leak)
                else:
                    value = value.relu()
                saved.append((value,))
            case Linear():
                features = value
                if value.dim() == _IMAGE_DIMENSIONS:
                    # Of each client [K, B, H * W * C].
                    images = torch.unflatten(value, 1, (len(x), -1))
                    features = images.permute(1, 0, 3, 4, 2).flatten(2)
                saved.append((features, value))
                value = torch.baddbmm(parameters[1], features, parameters[0].mT)
    return value, saved


def slopes(logits: Tensor, y: Tensor) -> Tensor:
    """Gradient of records' cross-entropy by logits [..., classes]; 0 for padding."""
    slope = torch.softmax(logits, -1)
    present = y >= 0
    classes = torch.arange(logits.shape[-1], device=y.device)
    slope.add_(y.unsqueeze(-1) == classes, alpha=-1)
    if y.device.type == "cpu" and present.all():
        return slope
    return slope.mul_(present.unsqueeze(-1))


def backward(
    layer: Layer,
    parameters: Parts,
    saved: Parts,
    slope: Tensor,
    *,
    is_needed: bool,
    pooled: Tensor | None = None,
) -> tuple[Tensor, Parts]:
    """Gradients with respect to a layer's input and to its parameters.

    Args:
        layer: of several clients.
        parameters: its packed parameters.
        saved: what its forward pass has kept.
        slope: gradient with respect to its output.
        is_needed: whether the gradient by the input is; else it is unspecified.
        pooled: gradient with respect to the output of a pooling that follows.
    """
    match layer:
        case Conv():
            mask = [is_needed, True, pooled is None]
            before, weight, bias = _conv_backward(
                layer, parameters, saved[0], slope, mask
            )
            # A pooling only moves slopes, and those before it are fewer to sum.
            if pooled is not None:
                bias = pooled.sum((0, 2, 3))
            return before, (weight, bias)
        case Linear():
            gradients = (slope.mT @ saved[0], slope.sum(1, keepdim=True))
            if is_needed:
                slope = slope_before(layer, parameters, saved, slope)
            return slope, gradients
        case _:
            return slope_before(layer, parameters, saved, slope), ()


def slope_before(
    layer: Layer, parameters: Parts, saved: Parts, slope: Tensor
) -> Tensor:
    """Gradient with respect to the input of a layer."""
    match layer:
        case Conv():
            mask = [True, False, False]
            before, *_ = _conv_backward(layer, parameters, saved[0], slope, mask)
        case Pool():
            x, where = saved
            before = _ops.max_pool2d_with_indices_backward(
                slope, x, [2, 2], [2, 2], [0, 0], [1, 1], False, where
            )
        case Relu(0.0):
            before = _ops.threshold_backward(slope, saved[0], 0)
        case Relu(leak):
            before = _ops.leaky_relu_backward(slope, saved[0], leak, True)
        case Linear():
            x = saved[1]
            before = slope @ parameters[0]
            if x.dim() == _IMAGE_DIMENSIONS:
                # [K, B, H * W * C] as x [B, K * C, H, W].
                images = torch.unflatten(before, 2, (*x.shape[2:], -1))
                images = images.permute(1, 2, 3, 0, 4)
                before = images.flatten(3).permute(0, 3, 1, 2)
    return before


def _conv_backward(
    layer: Conv, parameters: Parts, x: Tensor, slope: Tensor, mask: list[bool]
) -> tuple[Tensor, ...]:
    """Gradients of a grouped convolution by input, weight and bias, where masked."""
    weight, bias = parameters
    gradients: tuple[Tensor, ...] = _ops.convolution_backward(
        slope,
        x,
        weight,
        bias.shape,
        [1, 1],  # stride
        [layer.padding, layer.padding],
        [1, 1],  # dilation
        False,  # not transposed
        [0, 0],  # padding of the output
        len(bias) // layer.outputs,  # groups: the clients
        mask,
    )
    return gradients
