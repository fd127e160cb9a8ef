"""The interface of models: networks whose parameters are one flat vector."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from simulate.models.objective import Objective

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Name and shape of each parameter tensor, in the order of the flat vector."""

Parts = tuple[Tensor, ...]
"""Parameters of one layer of several clients, or (); gradients have the same shapes."""

Packed = list[Parts]
"""Parameters of several clients in the layout that a model trains fastest on a CPU.

The first dimension of each tensor is a multiple of the number of clients, client by client.
"""


class Model(Protocol):
    """A network without parameters: they are an argument of each method.

    ``d`` is the number of parameters, ``K`` a number of clients, ``B`` of records.
    """

    @property
    def name(self) -> str:
        """Name in the spec, with shape and classes where they are not the defaults."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one record, such as (1, 28, 28)."""

    @property
    def classes(self) -> int:
        """Number of logits."""

    @property
    def objective(self) -> Objective:
        """The loss."""

    @property
    def stochastic(self) -> bool:
        """Whether training draws random numbers; labels of mini-batches then carry seeds."""

    @property
    def shapes(self) -> Shapes:
        """The parameter tensors by name, in the order of `module().named_parameters()`."""

    @property
    def parameters(self) -> int:
        """Length d of the parameter vector."""

    @property
    def head(self) -> slice:
        """Slice of the flat vector with the last dense layer, weight and bias."""

    def initial(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters [d], float32, drawn on the generator's device."""

    def logits(self, theta: Tensor, x: Tensor) -> Tensor:
        """One model: parameters [d] and records [B, *input_shape] to logits [B, classes]."""

    def logits_each(self, thetas: Tensor, x: Tensor) -> Tensor:
        """One model per client: [K, d] and records [K, B, *input_shape] to [K, B, classes]."""

    def module(self) -> nn.Module:
        """The same network as a plain PyTorch module; parameters in the same order."""

    def clients_per_chunk(self, batch: int) -> int:
        """Number of clients that are trained at once on one core of a CPU, in batches of a size.

        It depends on the model and the batch only, never on the machine.
        """

    def pack(self, thetas: Tensor) -> Packed:
        """A copy of parameters [K, d] in the layout of `packed_gradients`."""

    def unpack(self, packed: Packed, clients: int) -> Tensor:
        """The inverse of `pack`: a fresh [K, d], for parameters or for their gradients."""

    def packed_gradients(self, packed: Packed, x: Tensor, y: Tensor) -> Packed:
        """Gradient of each client's mean loss over its unpadded rows.

        Args:
            packed: parameters of K clients, as `pack` returns them.
            x: records [K, B, *input_shape].
            y: labels [K, B], int64, negative for a padding row.
        """

    def clipped_sum(
        self, theta: Tensor, x: Tensor, y: Tensor, clipping_norm: float
    ) -> tuple[Tensor, Tensor]:
        """Sum of the per-record gradients, each clipped, on a CPU.

        Args:
            theta: parameters [d] of one client.
            x: records [B, *input_shape].
            y: labels [B], int64, none of them padding.
            clipping_norm: L2 bound on the gradient of a record, above 0.

        Returns:
            The sum [d], and the norm of each record's gradient before clipping [B], float64. A
            gradient that is not finite contributes 0.
        """


def body_size(model: Model) -> int:
    """Number of parameters of the body."""
    head = model.head
    return model.parameters - int(head.stop - head.start)


def split_head(model: Model, thetas: Tensor) -> tuple[Tensor, Tensor]:
    """Body and head of parameters [..., d]."""
    before, after = thetas[..., : model.head.start], thetas[..., model.head.stop :]
    return torch.cat([before, after], -1), thetas[..., model.head]


def join_head(model: Model, bodies: Tensor, heads: Tensor) -> Tensor:
    """The inverse of ``split_head``: parameters [..., d]."""
    before, after = bodies[..., : model.head.start], bodies[..., model.head.start :]
    return torch.cat([before, heads, after], -1)
