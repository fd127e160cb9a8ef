"""Models by name: built-in convolutional, residual and recurrent networks, and those on disk.

Other modules of this package may register more; other packages register theirs in the entry-point
group ``privplan.models``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from privplan.errors import InputError, did_you_mean
from privplan.registry import Registry, function_of
from simulate.models.adapters import PREFIX, adapted
from simulate.models.fast import Chain
from simulate.models.layers import (
    Conv,
    Layer,
    Linear,
    Pool,
    Relu,
    features,
    input_shapes,
)
from simulate.models.modular import WIDE, Modular
from simulate.models.network import Model
from simulate.models.transformers import PRETRAINED


class Architecture(Protocol):
    """A function that builds a model for records of any shape and any number of classes."""

    def __call__(
        self, name: str, *, shape: tuple[int, ...] = ..., classes: int = ...
    ) -> Model:
        """The model of a name; shape of a record and number of logits have defaults."""


MODELS: Registry[Architecture] = Registry(
    "model.name",
    "privplan.models",
    "simulate.models",
    function_of("name, shape and classes"),
)


def model(name: str) -> Model:
    """The model of a name, also ``vit:FOLDER`` or ``roberta:FOLDER`` for weights on disk.

    Shape of a record and number of classes follow where they differ from the defaults:
    ``resnet-18:100``, ``cnn-2:1x32x32:62``, ``roberta:weights:x64:2``. ``adapters:`` before any
    of these freezes the body and inserts adapters.
    """
    if name.startswith(PREFIX):
        return adapted(model(name.removeprefix(PREFIX)))
    base, *rest = name.split(":")
    sizes: dict[str, Any] = {}
    least = 1 if base in PRETRAINED else 0
    while len(rest) > least and re.fullmatch(r"[0-9x]*[1-9][0-9]*", rest[-1]):
        size = rest.pop()
        sides = tuple(int(side) for side in size.split("x") if side)
        sizes |= {"shape": sides} if "x" in size else {"classes": sides[0]}
    if base in PRETRAINED and rest:
        return PRETRAINED[base](name=name, folder=":".join(rest), **sizes)
    if not MODELS.has_exactly(base):
        known = [*sorted(MODELS), *(f"{kind}:FOLDER" for kind in sorted(PRETRAINED))]
        rule = f"must be one of {', '.join(known)}{did_you_mean(name, MODELS)}"
        raise InputError.one("model.name", rule, name)
    if rest:
        rule = "must be a name, then at most a shape such as 3x32x32 and a number of classes"
        raise InputError.one("model.name", rule, name)
    return MODELS.get(base)(name, **sizes)


# --- Convolutional networks and perceptrons, one row each. ---------------------------------------

GREY, COLOUR, DIGITS = (1, 28, 28), (3, 32, 32), (1, 8, 8)
LEAK = 0.01  # negative slope of HyperFL's activations, PyTorch's default


@dataclass(frozen=True)
class ConvNet:
    """Convolutions, each with pooling, then a rectifier (on a quarter), and dense layers."""

    shape: tuple[int, ...]  # default shape of one record
    convolutions: tuple[
        tuple[int, int, int], ...
    ] = ()  # (output channels, kernel side, padding)
    hidden: tuple[
        int, ...
    ] = ()  # widths of the dense layers before the last, with rectifiers
    leak: float = 0.0  # negative slope of the rectifiers

    def __call__(
        self, name: str, *, shape: tuple[int, ...] | None = None, classes: int = 10
    ) -> Chain:
        """The network for records of a shape."""
        shape = shape or self.shape
        layers: list[Layer] = []
        channels = shape[0]
        for outputs, size, padding in self.convolutions:
            layers += [Conv(channels, outputs, size, padding), Pool(), Relu(self.leak)]
            channels = outputs
        width = features(tuple(layers), shape)
        if min(map(min, input_shapes((*layers, Relu()), shape))) < 1:
            raise InputError.one(
                "model.name", f"must have records large enough for {name}", shape
            )
        for units in self.hidden:
            layers += [Linear(width, units), Relu(self.leak)]
            width = units
        return Chain(name, shape, classes, (*layers, Linear(width, classes)))


NETWORKS: Mapping[str, ConvNet] = MappingProxyType(
    {
        # Robust-HDP, Table 5, for MNIST and Fashion-MNIST.
        "cnn-2": ConvNet(GREY, ((16, 5, 2), (32, 5, 2))),
        # Its accuracy without privacy is nearest to that published for GDPFed+.
        "cnn-2-valid": ConvNet(GREY, ((16, 5, 0), (32, 5, 0))),
        # 2-layer and 3-layer CNNs of GDPFed+, which states neither widths nor parameters.
        "cnn-2-wide": ConvNet(GREY, ((32, 5, 0), (64, 5, 0))),
        "cnn-3": ConvNet(COLOUR, ((32, 3, 1), (16, 3, 1), (48, 3, 1)), (64,)),
        # DP2-FedSAM, Section 5.1, for CIFAR-10.
        "cnn-dp2-fedsam": ConvNet(
            COLOUR, ((64, 3, 0), (128, 3, 0), (256, 3, 0)), (256, 128)
        ),
        # HyperFL's appendix states channels, dense layers and activation; kernels and padding are
        # those of the work that it follows (Xu, Tong and Huang 2023).
        "cnn-hyperfl-2": ConvNet(GREY, ((16, 5, 0), (32, 5, 1)), (128,), LEAK),
        "cnn-hyperfl-3": ConvNet(
            COLOUR, ((16, 5, 0), (32, 5, 1), (64, 3, 1)), (128,), LEAK
        ),
        # Small enough to train on scikit-learn's digits in seconds.
        "cnn-digits": ConvNet(DIGITS, ((16, 3, 1),)),
        "mlp-digits": ConvNet(DIGITS, hidden=(32,)),
    }
)
for _name, _network in NETWORKS.items():
    MODELS.register(_name, _network)


# --- Residual networks with group normalisation, for colour images of 32 x 32 pixels. ------------
# He et al. 2016, "Deep residual learning for image recognition", with the batch normalisation
# replaced by groups of channels (Wu and He 2018, "Group normalization"), since statistics over a
# mini-batch would mix records. `resnet-10` (DP-FedPGN), `resnet-18` (GDPFed+, DP-FedPGN) and
# `resnet-34` begin with a 3x3 convolution, as is usual for small images; `resnet-18-imagenet`
# (DP2-FedSAM, Robust-HDP) and `resnet-34-imagenet` (Robust-HDP) begin with the original 7x7
# convolution and pooling, both with stride two. Table 6 of Robust-HDP counts 17,024 parameters
# fewer for the latter: the scales and shifts of the normalisation.

GROUPS = 32  # groups of channels of every normalisation, the default of Wu and He

WIDTHS = (64, 128, 256, 512)  # channels of the four stages


class Block(nn.Module):
    """Two 3x3 convolutions with a shortcut; the stride is that of the first one."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2, self.shortcut = nn.GroupNorm(GROUPS, outputs), nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.GroupNorm(GROUPS, outputs),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Images [B, inputs, H, W] to [B, outputs, H / stride, W / stride]."""
        if self.conv1.out_channels >= WIDE:
            x = x.contiguous()
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y)).add_(self.shortcut(x))
        return functional.relu(y, inplace=True)


class ResNet(nn.Module):
    """A residual network with ``blocks`` in each of four stages."""

    def __init__(
        self, blocks: tuple[int, ...], channels: int, classes: int, imagenet: bool
    ) -> None:
        super().__init__()
        size, stride, padding = (7, 2, 3) if imagenet else (3, 1, 1)
        self.conv = nn.Conv2d(channels, WIDTHS[0], size, stride, padding, bias=False)
        self.norm = nn.GroupNorm(GROUPS, WIDTHS[0])
        self.pool = nn.MaxPool2d(3, 2, 1) if imagenet else nn.Identity()
        stages, inputs = [], WIDTHS[0]
        for stage, (outputs, count) in enumerate(zip(WIDTHS, blocks, strict=True)):
            for index in range(count):
                stages.append(Block(inputs, outputs, 2 if stage and not index else 1))
                inputs = outputs
        self.stages, self.head = nn.Sequential(*stages), nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images [B, channels, H, W] to logits [B, classes]."""
        x = self.pool(functional.relu(self.norm(self.conv(x)), inplace=True))
        logits: Tensor = self.head(self.stages(x).mean((2, 3)))
        return logits


def resnet(
    name: str,
    *,
    shape: tuple[int, ...] = (3, 32, 32),
    classes: int = 10,
    blocks: tuple[int, ...],
    imagenet: bool = False,
) -> Modular:
    """A residual network."""
    return Modular(
        name, shape, classes, partial(ResNet, blocks, shape[0], classes, imagenet)
    )


for _layers, _blocks in ((10, (1, 1, 1, 1)), (18, (2, 2, 2, 2)), (34, (3, 4, 6, 3))):
    MODELS.register(f"resnet-{_layers}", partial(resnet, blocks=_blocks))
    if _layers > 10:
        of_layers = partial(resnet, blocks=_blocks, imagenet=True)
        MODELS.register(f"resnet-{_layers}-imagenet", of_layers)


# --- `lstm`: two layers of 256 over 80 characters, 819,920 parameters, for the next character. ---
# The network of LEAF's Shakespeare task (Caldas et al. 2018): an alphabet of 80 characters,
# embedded in 8 dimensions, which GDPFed+ follows.

ALPHABET, EMBEDDING, UNITS, LAYERS = 80, 8, 256, 2


class Lstm(nn.Module):
    """Embedding, recurrent layers, and a dense layer on the last step."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ALPHABET, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, UNITS, LAYERS, batch_first=True)
        self.head = nn.Linear(UNITS, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Characters [B, T], int64, to logits [B, classes]."""
        logits: Tensor = self.head(self.recur(self.embedding(x))[:, -1])
        return logits

    def recur(self, x: Tensor) -> Tensor:
        """Steps [B, T, EMBEDDING] through all layers to [B, T, UNITS]."""
        output: Tensor = self.lstm(x)[0]
        return output


class StepwiseLstm(Lstm):
    """The same function step by step, in operations that `vmap` supports; slower on a CPU."""

    def recur(self, x: Tensor) -> Tensor:
        """Steps [B, T, EMBEDDING] through all layers to [B, T, UNITS]."""
        for layer in range(LAYERS):
            inner = getattr(self.lstm, f"weight_hh_l{layer}")
            bias = getattr(self.lstm, f"bias_ih_l{layer}") + getattr(
                self.lstm, f"bias_hh_l{layer}"
            )
            inputs = functional.linear(
                x, getattr(self.lstm, f"weight_ih_l{layer}"), bias
            )
            hidden = cell = torch.zeros_like(inputs[:, 0, :UNITS])
            steps = []
            for step in inputs.unbind(1):
                enter, forget, new, output = (step + hidden @ inner.T).chunk(4, -1)
                cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
                hidden = output.sigmoid() * cell.tanh()
                steps.append(hidden)
            x = torch.stack(steps, 1)
        return x


def lstm(
    name: str, *, shape: tuple[int, ...] = (80,), classes: int = ALPHABET
) -> Modular:
    """A network that predicts the next character of a record of `shape[0]` characters."""
    return Modular(
        name, shape, classes, partial(Lstm, classes), partial(StepwiseLstm, classes)
    )


MODELS.register("lstm", lstm)
