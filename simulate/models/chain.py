"""Models that are a sequence of layers, with gradients of several clients at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from simulate.models import layers as parts
from simulate.models.clipped_sums import (
    clipped_sums_of_clients,
    values_per_record,
)
from simulate.models.kernels import Layers, backward, forward, slopes
from simulate.models.layers import Conv, Linear, Pool, input_shapes, split
from simulate.models.network import Packed, Shapes
from simulate.models.objective import CROSS_ENTROPY, Objective

CHUNK_VALUES = 512 * 1024  # of the widest activation of a chunk: 2 MB fits the caches
SUM_VALUES = 2**22  # of records whose clipped gradients a core sums at once: 16 MB
CHUNK_CLIENTS = 64  # most of a chunk, so that small models are still distributed
CHUNK_OF_FEW = 128  # most clients of models for which two threads are slower than one


@dataclass(frozen=True)
class Chain:
    """A `Model` of convolutions, poolings, rectifiers and dense layers.

    Attributes:
        name: as in the spec.
        input_shape: of one record, such as (1, 28, 28).
        classes: number of logits.
        layers: in order; the last is dense.
    """

    name: str
    input_shape: tuple[int, ...]
    classes: int
    layers: Layers

    objective: ClassVar[Objective] = CROSS_ENTROPY
    stochastic: ClassVar[bool] = False

    @property
    def shapes(self) -> Shapes:
        """The parameters by name, as `module().named_parameters()` lists them."""
        with torch.device("meta"):
            parameters = self.module().named_parameters()
        return tuple((name, tuple(value.shape)) for name, value in parameters)

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
        """One model: parameters [d] and records [B, ...] to logits [B, classes]."""
        return parts.forward(self.layers, theta, x)

    def logits_each(self, thetas: Tensor, x: Tensor) -> Tensor:
        """One model per client: [K, d], records [K, B, ...] to [K, B, classes]."""
        return parts.forward_each(self.layers, thetas, x)

    def module(self) -> nn.Sequential:
        """The same network as a plain PyTorch module; parameters in the same order."""
        return parts.module(self.layers)

    def clients_per_chunk(self, batch: int) -> int:
        """Clients trained at once on one core: 4 for `cnn-2` in batches of 10."""
        widest = max(map(math.prod, input_shapes(self.layers, self._shape)))
        in_caches = max(1, CHUNK_VALUES // (max(1, batch) * widest))
        limit = max(CHUNK_CLIENTS, min(CHUNK_OF_FEW, CHUNK_VALUES // self.parameters))
        return min(limit, in_caches)

    @property
    def _shape(self) -> tuple[int, ...]:
        """Shape of one record in the three dimensions that the kernels expect."""
        images = any(isinstance(layer, Conv | Pool) for layer in self.layers)
        if images:
            return self.input_shape
        return (math.prod(self.input_shape), 1, 1)

    def pack(self, thetas: Tensor) -> Packed:
        """Parameters [K, d] as the packed tensors of each layer; always a copy."""
        packed: Packed = []
        # The faster format of kernels there.
        memory_format = torch.contiguous_format
        if thetas.device.type == "cpu":
            memory_format = torch.channels_last
        shapes = input_shapes(self.layers, self._shape)
        by_layer = split(self.layers, thetas)
        for layer, shape, parameters in zip(self.layers, shapes, by_layer, strict=True):
            match layer:
                case Conv():
                    weight, bias = parameters
                    weight = weight.flatten(0, 1)
                    weight = weight.to(memory_format=memory_format, copy=True)
                    packed.append((weight, bias.flatten().clone()))
                case Linear():
                    weight, bias = parameters
                    weight = torch.unflatten(weight, 2, shape)
                    weight = weight.movedim(2, -1).flatten(2)
                    packed.append((weight.clone(), bias.unsqueeze(1).clone()))
                case _:
                    packed.append(())
        return packed

    def unpack(self, packed: Packed, clients: int) -> Tensor:
        """The inverse of `pack`: a fresh [K, d], for parameters or their gradients."""
        flat = []
        shapes = input_shapes(self.layers, self._shape)
        for layer, shape, parameters in zip(self.layers, shapes, packed, strict=True):
            match layer:
                case Conv():
                    weight, bias = parameters
                    flat += [weight.reshape(clients, -1), bias.view(clients, -1)]
                case Linear():
                    weight, bias = parameters
                    # In memory the channels come last.
                    weight = torch.unflatten(weight, 2, (*shape[1:], shape[0]))
                    weight = weight.movedim(-1, 2)
                    flat += [weight.reshape(clients, -1), bias.view(clients, -1)]
        return torch.cat(flat, 1)

    def packed_gradients(self, packed: Packed, x: Tensor, y: Tensor) -> Packed:
        """Gradient of each client's mean cross-entropy over unpadded rows, packed."""
        if len(y) == 1:
            # A padding row has no slope, but where it overflows, 0 times it is NaN.
            present = y[0] >= 0
            if present.any():
                x = x[:, present]
                y = y[:, present]
        logits, saved = forward(self.layers, packed, x.reshape(*y.shape, *self._shape))
        slope = slopes(logits, y)
        slope.div_((y >= 0).sum(1).clamp(min=1).view(-1, 1, 1))
        gradients: Packed = []
        pooled: Tensor | None = None
        for index in reversed(range(len(saved))):
            layer = self.layers[index]
            before, gradient = backward(
                layer,
                packed[index],
                saved[index],
                slope,
                is_needed=index > 0,
                pooled=pooled,
            )
            pooled = slope if isinstance(layer, Pool) else None
            slope = before
            gradients.append(gradient)
        return gradients[::-1]

    @property
    def values_per_record(self) -> int:
        """Values in memory for the clipped gradient of one record."""
        return values_per_record(self.layers, self._shape)

    def clipped_sum(
        self, theta: Tensor, x: Tensor, y: Tensor, clipping_norm: float
    ) -> tuple[Tensor, Tensor]:
        """Sum [d] of clipped gradients of records, and norms [B] before clipping."""
        batch = (theta[None], x[None], y[None])
        total, norms = self.clipped_sums(*batch, clipping_norm, SUM_VALUES)
        return total[0], norms[0]

    def clipped_sums(
        self,
        thetas: Tensor,
        x: Tensor,
        y: Tensor,
        clipping_norm: float,
        values: int,
    ) -> tuple[Tensor, Tensor]:
        """Sums of clipped gradients of K clients' records, on any device.

        Args:
            thetas: parameters [K, d].
            x: records [K, B, *input_shape].
            y: labels [K, B], negative where a row has no record.
            clipping_norm: largest norm of a record's gradient in a sum.
            values: most that are in memory at a time.

        Returns:
            The sums [K, d], and the norms [K, B] before clipping, float64.
        """
        total = torch.zeros_like(thetas)
        if y.numel() == 0:
            return total, torch.zeros(y.shape, dtype=torch.float64, device=y.device)
        packed = self.pack(thetas)
        per_row = len(y) * self.values_per_record
        rows = max(1, values // per_row)
        norms: list[Tensor] = []
        blocks = (torch.split(x, rows, 1), torch.split(y, rows, 1))
        for records, labels in zip(*blocks, strict=True):
            records = records.reshape(*labels.shape, *self._shape)
            sums, of_block = clipped_sums_of_clients(
                self.layers, packed, records, labels, clipping_norm
            )
            total += self.unpack(sums, len(y))
            norms.append(of_block)
        return total, torch.cat(norms, 1)
