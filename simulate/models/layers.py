"""Layers as values, their forward passes, and their plain PyTorch counterparts.

A layer contains sizes only. Parameters live in one flat vector, in the order in which
`torch.nn.Sequential.parameters()` lists them: weight before bias, first layer first.
"""

from __future__ import annotations

import itertools
import math
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

# Records of a block when one model is evaluated on a CPU: measured, it fits the caches.
ROWS = 50

CLIENT_IMAGE_DIMENSIONS = 5  # of images of K models [K, B, channels, H, W]


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
    """Shape of a record after the layer, given that before it (no batch dimension)."""
    match layer:
        case Conv(_, outputs, size, padding):
            return (outputs, *(length + 2 * padding - size + 1 for length in shape[1:]))
        case Pool():
            return (shape[0], *(length // 2 for length in shape[1:]))
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
    total = 0
    for layer in layers:
        total += sum(math.prod(shape) for shape in shapes(layer))
    return total


def split(layers: tuple[Layer, ...], theta: Tensor) -> list[tuple[Tensor, ...]]:
    """Views of a flat vector: one tuple (weight, bias) or () per layer.

    Args:
        layers: the layers.
        theta: parameters [..., d] of one or several models.
    """
    layer_shapes = [shapes(layer) for layer in layers]
    sizes = [math.prod(shape) for shape in itertools.chain(*layer_shapes)]
    # A single split, because it is one step of the backward pass for all views.
    views = iter(torch.split(theta, sizes, -1))
    models = theta.shape[:-1]
    split_layers = []
    for parameter_shapes in layer_shapes:
        parameters = [next(views).view(*models, *shape) for shape in parameter_shapes]
        split_layers.append(tuple(parameters))
    return split_layers


def initial(layers: tuple[Layer, ...], generator: torch.Generator) -> Tensor:
    """He's initialisation: normal weights of variance 2 / fan in, biases zero.

    He et al. 2015, "Delving deep into rectifiers", Eq. 10. PyTorch's own default draws
    weights of a sixth of this variance; docs/evidence/gdpfed-readings.md compares the
    two.
    """
    vectors = []
    for weight, bias in filter(None, map(shapes, layers)):
        values = torch.empty(weight, device=generator.device)
        nn.init.kaiming_normal_(values, nonlinearity="relu", generator=generator)
        vectors += [values.flatten(), values.new_zeros(bias)]
    return torch.cat(vectors)


def module(layers: tuple[Layer, ...]) -> nn.Sequential:
    """The same network as a plain `torch.nn.Sequential`, for checks and for export."""
    modules: list[nn.Module] = []
    for layer in layers:
        match layer:
            case Conv(inputs, outputs, size, padding):
                modules.append(nn.Conv2d(inputs, outputs, size, padding=padding))
            case Pool():
                modules.append(nn.MaxPool2d(2))
            case Relu(leak):
                modules.append(nn.LeakyReLU(leak) if leak else nn.ReLU())
            case Linear(inputs, outputs):
                modules += [nn.Flatten(), nn.Linear(inputs, outputs)]
    return nn.Sequential(*modules)


def forward(layers: tuple[Layer, ...], theta: Tensor, x: Tensor) -> Tensor:
    """Logits [B, classes] of one model.

    On a CPU, records are read in blocks, and images in the faster `channels_last`
    format.
    """
    steps = list(zip(layers, split(layers, theta), strict=True))
    rows = ROWS if x.device.type == "cpu" else max(1, len(x))
    return torch.cat([_forward_block(steps, block) for block in torch.split(x, rows)])


def _forward_block(steps: list[Step], x: Tensor) -> Tensor:
    """Logits of one model on one block of records."""
    for layer, parameters in steps:
        match layer:
            case Conv():
                x = x.contiguous(memory_format=torch.channels_last)
                weight = parameters[0].contiguous(memory_format=torch.channels_last)
                x = functional.conv2d(x, weight, parameters[1], padding=layer.padding)
            case Pool():
                x = functional.max_pool2d(
                    x.contiguous(memory_format=torch.channels_last), 2
                )
            case Relu(leak):
                x = functional.leaky_relu(x, leak) if leak else x.relu()
            case Linear():
                x = functional.linear(x.flatten(1), *parameters)
    return x


def forward_each(layers: tuple[Layer, ...], thetas: Tensor, x: Tensor) -> Tensor:
    """Logits of many models on their own records; differentiable.

    A convolution of all models is one grouped convolution, whose channels are those of
    the first model, then those of the second, and so on.

    Args:
        layers: the layers of every model.
        thetas: parameters [K, d].
        x: records [K, B, *input_shape].

    Returns:
        Logits [K, B, classes].
    """
    models = len(x)
    images = x.dim() == CLIENT_IMAGE_DIMENSIONS
    if images:
        x = _as_images(x.transpose(0, 1).flatten(1, 2))
    for layer, parameters in zip(layers, split(layers, thetas), strict=True):
        match layer:
            case Conv():
                weight = _as_images(parameters[0].flatten(0, 1))
                bias = parameters[1].flatten()
                x = functional.conv2d(
                    x, weight, bias, padding=layer.padding, groups=models
                )
            case Pool():
                x = functional.max_pool2d(x, 2)
            case Relu(leak):
                x = functional.leaky_relu(x, leak) if leak else x.relu()
            case Linear():
                if images:
                    x = torch.unflatten(x, 1, (models, -1)).transpose(0, 1)
                    images = False
                weight, bias = parameters
                x = torch.baddbmm(
                    bias.unsqueeze(1), x.flatten(2), weight.transpose(1, 2)
                )
    return x


def _as_images(x: Tensor) -> Tensor:
    """Images or kernels [N, C, H, W] in the memory format that is faster there."""
    if x.device.type == "cpu":
        return x.movedim(1, -1).contiguous().movedim(-1, 1)
    return x
