"""What the engine trains and evaluates: a network whose parameters are one flat vector."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Name and shape of each parameter tensor, in the order in which the flat vector holds them."""

Parts = tuple[Tensor, ...]
"""Parameters of one layer of several clients, or nothing; gradients have the same shapes."""

Packed = list[Parts]
"""Parameters of several clients, laid out as a model trains them fastest on a CPU.

The first dimension of each tensor is a multiple of the number of clients, client by client.
"""


class Model(Protocol):
    """A network as a value; its parameters are given to each call.

    ``d`` is the number of parameters, ``K`` a number of clients, ``B`` of records.
    """

    @property
    def name(self) -> str:
        """As in the table of models."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one record, such as (1, 28, 28)."""

    @property
    def classes(self) -> int:
        """Number of logits."""

    @property
    def shapes(self) -> Shapes:
        """The parameter tensors by name, in the order of `module().named_parameters()`."""

    @property
    def parameters(self) -> int:
        """Length d of the parameter vector."""

    @property
    def head(self) -> slice:
        """Where the flat vector holds the last dense layer, weight and bias."""

    def initial(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters [d], float32, drawn on the generator's device."""

    def logits(self, theta: Tensor, x: Tensor) -> Tensor:
        """One model: parameters [d] and records [B, *input_shape] to logits [B, classes]."""

    def logits_each(self, thetas: Tensor, x: Tensor) -> Tensor:
        """One model a client: [K, d] and records [K, B, *input_shape] to [K, B, classes]."""

    def module(self) -> nn.Module:
        """The same network as a plain PyTorch module; parameters in the same order."""

    def clients_per_chunk(self, batch: int) -> int:
        """How many clients are trained together on one core of a CPU, in batches of a size.

        It depends on the model and the batch alone, never on the machine.
        """

    def pack(self, thetas: Tensor) -> Packed:
        """A copy of parameters [K, d], for many steps of training on a CPU."""

    def unpack(self, packed: Packed, clients: int) -> Tensor:
        """The inverse of `pack`: a fresh [K, d], for parameters or for their gradients."""

    def packed_gradients(self, packed: Packed, x: Tensor, y: Tensor) -> Packed:
        """Gradient of each client's mean cross-entropy over its unpadded rows.

        Args:
            packed: parameters of K clients, as `pack` returns them.
            x: records [K, B, *input_shape].
            y: labels [K, B], int64, negative for a padding row.
        """

    def clipped_sum(
        self, theta: Tensor, x: Tensor, y: Tensor, clipping_norm: float
    ) -> tuple[Tensor, Tensor]:
        """Sum of the gradients of single records, each shortened to the clipping norm, on a CPU.

        Args:
            theta: parameters [d] of one client.
            x: records [B, *input_shape].
            y: labels [B], int64, none of them padding.
            clipping_norm: L2 bound on what a record adds, above 0.

        Returns:
            The sum [d], and the norm of each record's gradient before it was shortened [B],
            float64. A gradient that is not finite adds nothing.
        """


def body_size(model: Model) -> int:
    """Number of parameters of the body."""
    return model.parameters - (model.head.stop - model.head.start)


def split_head(model: Model, thetas: Tensor) -> tuple[Tensor, Tensor]:
    """Body and head of parameters [..., d]."""
    before, after = thetas[..., : model.head.start], thetas[..., model.head.stop :]
    return torch.cat([before, after], -1), thetas[..., model.head]


def join_head(model: Model, bodies: Tensor, heads: Tensor) -> Tensor:
    """The inverse of ``split_head``: parameters [..., d]."""
    before, after = bodies[..., : model.head.start], bodies[..., model.head.start :]
    return torch.cat([before, heads, after], -1)
