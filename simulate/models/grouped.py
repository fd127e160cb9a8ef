"""Gradients of several models at once on a CPU: grouped convolutions, explicit backward passes.

The clients of a chunk are concatenated along the channels of one `channels_last` tensor
[B, K * C, H, W], so that a convolution of all of them is one grouped convolution that reads
memory in order. Compared with autograd this saves the gradient with respect to the images and
most changes of layout. Parameters are packed once for many steps: [K * out, in, k, k] for a
convolution, [K, out, in] for a dense layer, whose inputs are in the order of memory
(row, column, channel).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from simulate.models.layers import Conv, Layer, Linear, Pool, Relu, input_shapes, split
from simulate.models.network import Packed, Parts

_ops = torch.ops.aten


Layers = tuple[Layer, ...]


def pack(layers: Layers, input_shape: tuple[int, ...], thetas: Tensor) -> Packed:
    """Parameters [K, d] as the packed tensors of each layer; always copies."""
    packed: Packed = []
    shapes = input_shapes(layers, input_shape)
    for layer, shape, part in zip(layers, shapes, split(layers, thetas), strict=True):
        match layer:
            case Conv():
                weight = part[0].flatten(0, 1)
                weight = weight.to(memory_format=torch.channels_last, copy=True)
                packed.append((weight, part[1].flatten().clone()))
            case Linear():
                weight = torch.unflatten(part[0], 2, shape).movedim(2, -1).flatten(2)
                packed.append((weight.clone(), part[1].unsqueeze(1).clone()))
            case _:
                packed.append(())
    return packed


def unpack(layers: Layers, input_shape: tuple[int, ...], packed: Packed, clients: int) -> Tensor:
    """The inverse of `pack`: a fresh [K, d], for parameters or for their gradients."""
    flat = []
    shapes = input_shapes(layers, input_shape)
    for layer, shape, part in zip(layers, shapes, packed, strict=True):
        match layer:
            case Conv():
                flat += [part[0].reshape(clients, -1), part[1].view(clients, -1)]
            case Linear():
                weight = torch.unflatten(part[0], 2, (*shape[1:], shape[0])).movedim(-1, 2)
                flat += [weight.reshape(clients, -1), part[1].view(clients, -1)]
    return torch.cat(flat, 1)


def gradients(layers: Layers, packed: Packed, x: Tensor, y: Tensor) -> Packed:
    """Gradient of each client's mean cross-entropy over its unpadded rows, packed.

    Args:
        layers: the layers in order.
        packed: parameters of K clients, as `pack` returns them.
        x: records [K, B, *input_shape], float32.
        y: labels [K, B], int64, negative for a padding row.

    Returns:
        One (weight, bias) or () per layer.
    """
    logits, saved = forward(layers, packed, x)
    slope = slopes(logits, y)
    slope.div_((y >= 0).sum(1).clamp(min=1).view(-1, 1, 1))
    result: Packed = []
    pooled: Tensor | None = None
    for index in reversed(range(len(saved))):
        layer, part, tensors = layers[index], packed[index], saved[index]
        before, part = backward(layer, part, tensors, slope, needed=index > 0, pooled=pooled)
        pooled = slope if isinstance(layer, Pool) else None
        slope = before
        result.append(part)
    return result[::-1]


def forward(layers: Layers, packed: Packed, x: Tensor) -> tuple[Tensor, list[Parts]]:
    """Logits [K, B, classes], and for each layer the tensors that its backward pass needs."""
    value = _flat(x) if isinstance(layers[0], Linear) else _wide(x)
    saved: list[Parts] = []
    for layer, part in zip(layers, packed, strict=True):
        value, tensors = _forward(layer, part, value, len(x))
        saved.append(tensors)
    return value, saved


def _wide(x: Tensor) -> Tensor:
    """Images [K, B, C, H, W] with concatenated clients: [B, K * C, H, W].

    Always a copy: with one channel flattening would return a view, which is slower to convolve.
    """
    return x.permute(1, 3, 4, 0, 2).contiguous().flatten(3).permute(0, 3, 1, 2)


def _flat(x: Tensor) -> Tensor:
    """Records [K, B, C, H, W] as the features of a dense layer [K, B, H * W * C]."""
    return x.movedim(2, -1).flatten(2)


def slopes(logits: Tensor, y: Tensor) -> Tensor:
    """Gradient of each record's cross-entropy w.r.t. its logits [..., classes]; 0 for padding."""
    slope, present = torch.softmax(logits, -1), y >= 0
    slope.add_(y.unsqueeze(-1) == torch.arange(logits.shape[-1]), alpha=-1)
    return slope if present.all() else slope.mul_(present.unsqueeze(-1))


def _forward(layer: Layer, part: Parts, x: Tensor, clients: int) -> tuple[Tensor, Parts]:
    """Output of one layer, and the tensors that its backward pass needs."""
    match layer:
        case Conv():
            y = functional.conv2d(x, part[0], part[1], padding=layer.padding, groups=clients)
            return y, (x,)
        case Pool():
            y, where = _ops.max_pool2d_with_indices(x, 2)
            return y, (x, where)
        case Relu(leak):
            y = functional.leaky_relu(x, leak) if leak else x.relu()
            return y, (y,)
        case Linear():
            features = _tall(x, clients) if x.dim() == 4 else x
            return torch.baddbmm(part[1], features, part[0].mT), (features, x)


def _tall(x: Tensor, clients: int) -> Tensor:
    """Wide values [B, K * C, H, W] as the features of each client [K, B, H * W * C]."""
    return torch.unflatten(x, 1, (clients, -1)).permute(1, 0, 3, 4, 2).flatten(2)


def _untall(features: Tensor, like: Tensor) -> Tensor:
    """The inverse of `_tall`: [K, B, H * W * C] as `like`, [B, K * C, H, W]."""
    rows, columns = like.shape[2:]
    return (
        torch.unflatten(features, 2, (rows, columns, -1))
        .permute(1, 2, 3, 0, 4)
        .flatten(3)
        .permute(0, 3, 1, 2)
    )


def backward(
    layer: Layer,
    part: Parts,
    saved: Parts,
    slope: Tensor,
    *,
    needed: bool,
    pooled: Tensor | None = None,
) -> tuple[Tensor, Parts]:
    """Gradients w.r.t. a layer's input (unspecified unless `needed`) and its parameters.

    Args:
        layer: the layer.
        part: its packed parameters.
        saved: its tensors from `forward`.
        slope: gradient with respect to its output.
        needed: whether the gradient with respect to the input is wanted.
        pooled: where a pooling follows, the gradient w.r.t. the output of the pooling: it has the
            same sum as `slope`, which is the gradient of a convolution's bias, in a quarter of
            the values.
    """
    match layer:
        case Conv():
            wanted = [needed, True, pooled is None]
            grad, weight, bias = _conv_backward(layer, part, saved[0], slope, wanted)
            return grad, (weight, bias if pooled is None else pooled.sum((0, 2, 3)))
        case Linear():
            parts = (slope.mT @ saved[0], slope.sum(1, keepdim=True))
            return slope_before(layer, part, saved, slope) if needed else slope, parts
        case _:
            return slope_before(layer, part, saved, slope), ()


def slope_before(layer: Layer, part: Parts, saved: Parts, slope: Tensor) -> Tensor:
    """Gradient with respect to the input of a layer.

    Args:
        layer: the layer.
        part: its packed parameters.
        saved: its tensors from `forward`.
        slope: gradient with respect to its output.
    """
    match layer:
        case Conv():
            grad = _conv_backward(layer, part, saved[0], slope, [True, False, False])[0]
        case Pool():
            x, where = saved
            two, zero, one = [2, 2], [0, 0], [1, 1]
            grad = _ops.max_pool2d_with_indices_backward(
                slope, x, two, two, zero, one, False, where
            )
        case Relu(0.0):
            grad = _ops.threshold_backward(slope, saved[0], 0)
        case Relu(leak):
            grad = _ops.leaky_relu_backward(slope, saved[0], leak, True)
        case Linear():
            x, grad = saved[1], slope @ part[0]
            grad = _untall(grad, x) if x.dim() == 4 else grad
    return grad


def _conv_backward(
    layer: Conv, part: Parts, x: Tensor, slope: Tensor, wanted: list[bool]
) -> tuple[Tensor, ...]:
    """Gradients of a grouped convolution w.r.t. input, weight and bias, where wanted."""
    weight, bias = part
    padding = [layer.padding, layer.padding]
    gradients: tuple[Tensor, ...] = _ops.convolution_backward(
        slope, x, weight, bias.shape,
        [1, 1], padding, [1, 1], False, [0, 0], len(bias) // layer.outputs, wanted,
    )  # fmt: skip
    return gradients
