"""The interface of models: networks whose parameters are one flat vector."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from simulate.models.objective import Objective

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Names and shapes of parameters, in the order of the flat vector."""

Parts = tuple[Tensor, ...]
"""Parameters of one layer of several clients, or (); gradients have the same shapes."""

Packed = list[Parts]
"""Parameters of several clients in the layout that a model trains fastest on a CPU.

The first dimension of each tensor is a multiple of the number of clients, client by
client.
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
        """Whether training draws random numbers; labels of batches then carry seeds."""

    @property
    def shapes(self) -> Shapes:
        """The parameters by name, as `module().named_parameters()` lists them."""

    @property
    def parameters(self) -> int:
        """Length d of the parameter vector."""

    @property
    def head(self) -> slice:
        """Slice of the flat vector with the last dense layer, weight and bias."""

    def initial(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters [d], float32, drawn on the generator's device."""

    def logits(self, theta: Tensor, x: Tensor) -> Tensor:
        """One model: parameters [d] and records [B, ...] to logits [B, classes]."""

    def logits_each(self, thetas: Tensor, x: Tensor) -> Tensor:
        """One model per client: [K, d], records [K, B, ...] to [K, B, classes]."""

    def module(self) -> nn.Module:
        """The same network as a plain PyTorch module; parameters in the same order."""

    def clients_per_chunk(self, batch: int) -> int:
        """Clients trained at once on a core of any machine, in batches of a size."""

    def pack(self, thetas: Tensor) -> Packed:
        """A copy of parameters [K, d] in the layout of `packed_gradients`."""

    def unpack(self, packed: Packed, clients: int) -> Tensor:
        """The inverse of `pack`: a fresh [K, d], for parameters or their gradients."""

    def packed_gradients(self, packed: Packed, x: Tensor, y: Tensor) -> Packed:
        """Gradient of each client's mean loss over its unpadded rows."""

    def clipped_sum(
        self, theta: Tensor, x: Tensor, y: Tensor, clipping_norm: float
    ) -> tuple[Tensor, Tensor]:
        """Sum of the per-record gradients, each clipped, on a CPU."""


def body_size(model: Model) -> int:
    """Number of parameters of the body."""
    head = model.head
    return model.parameters - int(head.stop - head.start)


def split_head(model: Model, thetas: Tensor) -> tuple[Tensor, Tensor]:
    """Body and head of parameters [..., d]."""
    head = model.head
    body = torch.cat([thetas[..., : head.start], thetas[..., head.stop :]], -1)
    return body, thetas[..., head]


def join_head(model: Model, bodies: Tensor, heads: Tensor) -> Tensor:
    """The inverse of ``split_head``: parameters [..., d]."""
    start = model.head.start
    return torch.cat([bodies[..., :start], heads, bodies[..., start:]], -1)
