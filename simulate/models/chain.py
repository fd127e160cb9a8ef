"""A model that is a chain of layers: the images go through one after the other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from privplan.errors import InputError
from simulate.models import ghost, grouped
from simulate.models import layers as parts
from simulate.models.layers import Layer, Linear, Relu, features
from simulate.models.network import Packed, Shapes

CHUNK_VALUES = 512 * 1024
"""Values that the widest activation of a chunk may hold: measured, 2 MB fits the caches."""

CHUNK_CLIENTS = 64
"""Most clients of a chunk, so that small models still spread over the workers."""


@dataclass(frozen=True)
class Chain:
    """A `Model` made of convolutions, poolings, positive parts and dense layers.

    Attributes:
        name: as in the table of models.
        input_shape: shape of one record, such as (1, 28, 28).
        classes: number of logits.
        layers: the layers in order; the last is dense.
    """

    name: str
    input_shape: tuple[int, ...]
    classes: int
    layers: tuple[Layer, ...]

    @property
    def shapes(self) -> Shapes:
        """The parameter tensors by name, in the order of `module().named_parameters()`."""
        with torch.device("meta"):
            plain = self.module()
        return tuple((name, tuple(value.shape)) for name, value in plain.named_parameters())

    @property
    def parameters(self) -> int:
        """Length d of the parameter vector."""
        return parts.count(self.layers)

    @property
    def head(self) -> slice:
        """Where the flat vector holds the last dense layer, weight and bias."""
        size = sum(math.prod(shape) for shape in parts.shapes(self.layers[-1]))
        return slice(self.parameters - size, self.parameters)

    def initial(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters [d], float32, by He's initialisation."""
        return parts.initial(self.layers, generator)

    def logits(self, theta: Tensor, x: Tensor) -> Tensor:
        """One model: parameters [d] and records [B, *input_shape] to logits [B, classes]."""
        return parts.forward(self.layers, theta, x)

    def logits_each(self, thetas: Tensor, x: Tensor) -> Tensor:
        """One model a client: [K, d] and records [K, B, *input_shape] to [K, B, classes]."""
        return parts.forward_each(self.layers, thetas, x)

    def module(self) -> nn.Sequential:
        """The same network as a plain PyTorch module; parameters in the same order."""
        return parts.module(self.layers)

    def clients_per_chunk(self, batch: int) -> int:
        """Clients that are trained together on one core: 4 for `cnn-2` in batches of 10."""
        widest = max(map(math.prod, parts.input_shapes(self.layers, self.input_shape)))
        return min(CHUNK_CLIENTS, max(1, CHUNK_VALUES // (max(1, batch) * widest)))

    def pack(self, thetas: Tensor) -> Packed:
        """Parameters [K, d] as `simulate.models.grouped` lays them out; always a copy."""
        return grouped.pack(self.layers, self.input_shape, thetas)

    def unpack(self, packed: Packed, clients: int) -> Tensor:
        """The inverse of `pack`: a fresh [K, d]."""
        return grouped.unpack(self.layers, self.input_shape, packed, clients)

    def packed_gradients(self, packed: Packed, x: Tensor, y: Tensor) -> Packed:
        """Gradient of each client's mean cross-entropy over its unpadded rows, packed."""
        return grouped.gradients(self.layers, packed, x, y)

    def clipped_sum(
        self, theta: Tensor, x: Tensor, y: Tensor, clipping_norm: float
    ) -> tuple[Tensor, Tensor]:
        """Sum [d] of the clipped gradients of single records, and their norms before [B]."""
        packed = self.pack(theta[None])
        found, norms = ghost.clipped_sum(self.layers, packed, x, y, clipping_norm)
        return self.unpack(found, 1)[0], norms


def classifier(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    body: tuple[Layer, ...],
    hidden: tuple[int, ...] = (),
    leak: float = 0.0,
) -> Chain:
    """A chain whose dense layers fit what comes before them.

    Args:
        name: as in the table of models.
        shape: shape of one record.
        classes: number of logits.
        body: the layers before the first dense one.
        hidden: widths of the dense layers before the last, each followed by a positive part.
        leak: share of the negative part that these keep.

    Raises:
        InputError: the body leaves nothing of records of this shape.
    """
    width, dense = features(body, shape), []
    if min(map(min, parts.input_shapes((*body, Relu()), shape))) < 1:
        raise InputError.one("model.name", f"must have records large enough for {name}", shape)
    for units in hidden:
        dense += [Linear(width, units), Relu(leak)]
        width = units
    return Chain(name, shape, classes, (*body, *dense, Linear(width, classes)))
