"""Layers as values, their forward passes, and their plain PyTorch counterparts.

A layer contains sizes only. Parameters live in one flat vector, in the order in which
`torch.nn.Sequential.parameters()` lists them: weight before bias, first layer first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Conv:
    """A square convolution of stride one with a bias."""

    inputs: int  # input channels
    outputs: int  # output channels
    size: int  # side of the square kernel, in pixels
    padding: int  # zeros added on every side, in pixels


@dataclass(frozen=True)
class Pool:
    """Maximum over squares of 2 x 2 pixels; an odd last row or column is dropped."""


@dataclass(frozen=True)
class Relu:
    """A (leaky) rectifier, elementwise."""

    leak: float = 0.0  # slope for negative values, at least 0


@dataclass(frozen=True)
class Linear:
    """A dense layer with a bias over the flattened values of a record."""

    inputs: int  # features in
    outputs: int  # features out


Layer = Conv | Pool | Relu | Linear
Step = tuple[Layer, tuple[Tensor, ...]]  # a layer and its parameters

ROWS = 50  # records of a block when one model is evaluated on a CPU: measured, it fits the caches


def shapes(layer: Layer) -> tuple[tuple[int, ...], ...]:
    """Shapes of the layer's parameters: (weight, bias), or nothing."""
    match layer:
        case Conv(inputs, outputs, size, _):
            return ((outputs, inputs, size, size), (outputs,))
        case Linear(inputs, outputs):
            return ((outputs, inputs), (outputs,))
        case _:
            return ()


def shape_after(layer: Layer, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of a record after the layer, given its shape before it (no batch dimension)."""
    match layer:
        case Conv(_, outputs, size, padding):
            return (outputs, *(side + 2 * padding - size + 1 for side in shape[1:]))
        case Pool():
            return (shape[0], *(side // 2 for side in shape[1:]))
        case Linear(_, outputs):
            return (outputs,)
        case _:
            return shape


def input_shapes(
    layers: tuple[Layer, ...], input_shape: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    """Shape of a record before each layer, for records of `input_shape`."""
    result = [input_shape]
    for layer in layers[:-1]:
        result.append(shape_after(layer, result[-1]))
    return tuple(result)


def features(layers: tuple[Layer, ...], input_shape: tuple[int, ...]) -> int:
    """Values of a record after the layers, for records of `input_shape`."""
    shape = input_shape
    for layer in layers:
        shape = shape_after(layer, shape)
    return math.prod(shape)


def count(layers: tuple[Layer, ...]) -> int:
    """Number of parameters of all layers."""
    return sum(math.prod(shape) for layer in layers for shape in shapes(layer))


def split(layers: tuple[Layer, ...], theta: Tensor) -> list[tuple[Tensor, ...]]:
    """Views of a flat vector: one tuple (weight, bias) or () per layer."""
    wanted = [shapes(layer) for layer in layers]
    sizes = [math.prod(shape) for of_layer in wanted for shape in of_layer]
    views = iter(
        torch.split(theta, sizes, -1)
    )  # one step of the backward pass for all of them
    lead = theta.shape[:-1]
    return [tuple(next(views).view(*lead, *shape) for shape in one) for one in wanted]


def initial(layers: tuple[Layer, ...], generator: torch.Generator) -> Tensor:
    """He's initialisation: normal weights of variance 2 / fan in, biases zero.

    He et al. 2015, "Delving deep into rectifiers", Eq. 10. PyTorch's own default draws weights of
    a sixth of this variance; docs/evidence/gdpfed-readings.md compares the two.
    """
    parts = []
    for weight, bias in filter(None, map(shapes, layers)):
        values = torch.empty(weight, device=generator.device)
        nn.init.kaiming_normal_(values, nonlinearity="relu", generator=generator)
        parts += [values.flatten(), values.new_zeros(bias)]
    return torch.cat(parts)


def module(layers: tuple[Layer, ...]) -> nn.Sequential:
    """The same network as a plain `torch.nn.Sequential`, for checks and for export."""
    parts: list[nn.Module] = []
    for layer in layers:
        match layer:
            case Conv(inputs, outputs, size, padding):
                parts.append(nn.Conv2d(inputs, outputs, size, padding=padding))
            case Pool():
                parts.append(nn.MaxPool2d(2))
            case Relu(leak):
                parts.append(nn.LeakyReLU(leak) if leak else nn.ReLU())
            case Linear(inputs, outputs):
                parts += [nn.Flatten(), nn.Linear(inputs, outputs)]
    return nn.Sequential(*parts)


def forward(layers: tuple[Layer, ...], theta: Tensor, x: Tensor) -> Tensor:
    """Logits of one model, images in blocks of records and in the faster `channels_last` format."""
    steps = _pooled_first(zip(layers, split(layers, theta), strict=True))
    rows = ROWS if x.device.type == "cpu" else max(1, len(x))
    return torch.cat([_forward_block(steps, block) for block in torch.split(x, rows)])


def _pooled_first(steps: Iterable[Step]) -> list[Step]:
    """Steps with each ReLU after a pooling that follows it: equal values, a quarter of the work."""
    ordered = list(steps)
    for at in range(len(ordered) - 1):
        first, second = ordered[at : at + 2]
        if isinstance(first[0], Relu) and isinstance(second[0], Pool):
            ordered[at : at + 2] = second, first
    return ordered


def _forward_block(steps: list[Step], x: Tensor) -> Tensor:
    """Logits of one model on one block of records."""
    for layer, part in steps:
        match layer:
            case Conv():
                x = x.contiguous(memory_format=torch.channels_last)
                weight = part[0].contiguous(memory_format=torch.channels_last)
                x = functional.conv2d(x, weight, part[1], padding=layer.padding)
            case Pool():
                x = functional.max_pool2d(
                    x.contiguous(memory_format=torch.channels_last), 2
                )
            case Relu(leak):
                x = functional.leaky_relu(x, leak) if leak else x.relu()
            case Linear():
                x = functional.linear(x.flatten(1), *part)
    return x


def forward_each(layers: tuple[Layer, ...], thetas: Tensor, x: Tensor) -> Tensor:
    """Logits of many models on their own records, by grouped convolutions; differentiable."""
    models, images = len(x), x.dim() == 5
    if images:
        x = _as_images(x.transpose(0, 1).flatten(1, 2))
    for layer, part in zip(layers, split(layers, thetas), strict=True):
        match layer:
            case Conv():
                weight, bias = _as_images(part[0].flatten(0, 1)), part[1].flatten()
                x = functional.conv2d(
                    x, weight, bias, padding=layer.padding, groups=models
                )
            case Pool():
                x = functional.max_pool2d(x, 2)
            case Relu(leak):
                x = functional.leaky_relu(x, leak) if leak else x.relu()
            case Linear():
                if images:
                    x, images = (
                        torch.unflatten(x, 1, (models, -1)).transpose(0, 1),
                        False,
                    )
                weight, bias = part
                x = torch.baddbmm(
                    bias.unsqueeze(1), x.flatten(2), weight.transpose(1, 2)
                )
    return x


def _as_images(x: Tensor) -> Tensor:
    """Images or kernels [N, C, H, W] in the memory format that is faster on their device."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1) if x.device.type == "cpu" else x
