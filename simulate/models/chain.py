"""Models that are a sequence of layers, with gradients of several clients at once on a CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simulate.models import ghost, grouped
from simulate.models import layers as parts
from simulate.models.layers import Layer
from simulate.models.network import Packed, Shapes
from simulate.models.objective import CROSS_ENTROPY, Objective

CHUNK_VALUES = 512 * 1024
"""Most values of the widest activation of a chunk: measured, 2 MB fits the caches."""

CHUNK_CLIENTS = 64
"""Most clients of a chunk, so that small models are still distributed over the workers."""
CHUNK_OF_FEW = 128
"""Most clients whose models have so few parameters that two threads are slower than one."""


@dataclass(frozen=True)
class Chain:
    """A `Model` of convolutions, poolings, rectifiers and dense layers.

    Attributes:
        name: as in the spec.
        input_shape: shape of one record, such as (1, 28, 28).
        classes: number of logits.
        layers: the layers in order; the last is dense.
    """

    name: str
    input_shape: tuple[int, ...]
    classes: int
    layers: tuple[Layer, ...]

    @property
    def objective(self) -> Objective:
        """Cross-entropy, whose gradient the layers compute."""
        return CROSS_ENTROPY

    @property
    def stochastic(self) -> bool:
        """Whether training draws random numbers: it does not."""
        return False

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
        """Slice of the flat vector with the last dense layer, weight and bias."""
        size = sum(math.prod(shape) for shape in parts.shapes(self.layers[-1]))
        return slice(self.parameters - size, self.parameters)

    def initial(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters [d], float32, by He's initialisation."""
        return parts.initial(self.layers, generator)

    def logits(self, theta: Tensor, x: Tensor) -> Tensor:
        """One model: parameters [d] and records [B, *input_shape] to logits [B, classes]."""
        return parts.forward(self.layers, theta, x)

    def logits_each(self, thetas: Tensor, x: Tensor) -> Tensor:
        """One model per client: [K, d] and records [K, B, *input_shape] to [K, B, classes]."""
        return parts.forward_each(self.layers, thetas, x)

    def module(self) -> nn.Sequential:
        """The same network as a plain PyTorch module; parameters in the same order."""
        return parts.module(self.layers)

    def clients_per_chunk(self, batch: int) -> int:
        """Clients trained at once on one core: 4 for `cnn-2` in batches of 10."""
        widest = max(map(math.prod, parts.input_shapes(self.layers, self.input_shape)))
        most = max(CHUNK_CLIENTS, min(CHUNK_OF_FEW, CHUNK_VALUES // self.parameters))
        return min(most, max(1, CHUNK_VALUES // (max(1, batch) * widest)))

    def pack(self, thetas: Tensor) -> Packed:
        """Parameters [K, d] in the layout of `simulate.models.grouped`; always a copy."""
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
        """Sum [d] of the clipped per-record gradients, and their norms [B] before clipping."""
        packed = self.pack(theta[None])
        total, norms = ghost.clipped_sum(self.layers, packed, x, y, clipping_norm)
        return self.unpack(total, 1)[0], norms
