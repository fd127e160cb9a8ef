"""Hypernetworks: networks that generate the parameters of another from an embedding of a client.

One hidden layer and a linear head for each generated tensor, after A. Shamsian, A. Navon,
E. Fetaya, G. Chechik, Personalized Federated Learning using Hypernetworks, ICML 2021, and HyperFL,
Appendix D.1. All heads read the same hidden layer, so they are stored as one matrix.

Vectors: ``P`` parameters of the hypernetwork, ``E`` numbers of an embedding, ``H`` hidden units,
``D`` generated parameters, ``K`` hypernetworks, ``n`` embeddings for each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from simulate.models.network import Model, Shapes
from simulate.models.network import body_size as size

EMBEDDING = 64
"""Numbers of an embedding (HyperFL, Appendix D.1)."""


@dataclass(frozen=True)
class Hypernetwork:
    """The sizes of a hypernetwork."""

    made: int  # generated parameters (D)
    hidden: int  # units of its hidden layer (H)
    embedding: int = EMBEDDING  # numbers of an embedding (E)

    @property
    def parameters(self) -> int:
        """Length P of its own parameter vector."""
        return self.hidden * (self.embedding + 1) + self.made * (self.hidden + 1)


def of_body(model: Model, hidden: int) -> Hypernetwork:
    """The hypernetwork that generates a model's body."""
    return Hypernetwork(size(model), hidden)


def embedding(generator: torch.Generator, size: int = EMBEDDING) -> Tensor:
    """A fresh embedding [E]: uniform, with mean zero and variance one."""
    return (torch.rand(size, generator=generator) * 2 - 1) * math.sqrt(3)


def initial(
    sizes: Hypernetwork, start: Tensor, spreads: Tensor, generator: torch.Generator
) -> Tensor:
    """Fresh parameters [P] of a hypernetwork that generates usual initial networks.

    The hidden layer has PyTorch's default initialisation. The biases of the heads are a usual
    initialisation of the network; their weights are uniform with standard deviation
    ``spreads`` / sqrt(H).
    """

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator) * 2 - 1

    layer = uniform(sizes.hidden * (sizes.embedding + 1)) / math.sqrt(sizes.embedding)
    heads = uniform(sizes.made, sizes.hidden) * math.sqrt(3 / sizes.hidden)
    return torch.cat([layer, (heads * spreads[:, None]).flatten(), start])


def spreads(shapes: Shapes, start: Tensor) -> Tensor:
    """Standard deviation of the tensor that each parameter belongs to [d]."""
    parts = torch.split(start, [math.prod(shape) for _, shape in shapes])
    return torch.cat([part.std(correction=0).expand(len(part)) for part in parts])


def generated(sizes: Hypernetwork, weights: Tensor, embeddings: Tensor) -> Tensor:
    """Numbers that hypernetworks generate from embeddings."""
    _, _, heads, biases = _parts(sizes, weights)
    return torch.baddbmm(biases, _hidden(sizes, weights, embeddings), heads.mT)


def pull_back(
    sizes: Hypernetwork,
    weights: Tensor,
    embeddings: Tensor,
    slopes: Tensor,
    into: Tensor,
    factor: float,
) -> Tensor:
    """The backward pass: gradients w.r.t. parameters and embeddings of hypernetworks."""
    layer, _, heads, _ = _parts(sizes, weights)
    hidden = _hidden(sizes, weights, embeddings)
    inner = (slopes @ heads) * (hidden > 0)
    to_embeddings = inner @ layer
    to_layer, to_offsets, to_heads, to_biases = _parts(sizes, into)
    to_layer.baddbmm_(inner.mT, embeddings, alpha=factor)
    to_offsets.add_(inner.sum(1, keepdim=True), alpha=factor)
    to_heads.baddbmm_(slopes.mT, hidden, alpha=factor)
    to_biases.add_(slopes.sum(1, keepdim=True), alpha=factor)
    return to_embeddings


def _hidden(sizes: Hypernetwork, weights: Tensor, embeddings: Tensor) -> Tensor:
    layer, offsets, _, _ = _parts(sizes, weights)
    return torch.baddbmm(offsets, embeddings, layer.mT).relu_()


def _parts(sizes: Hypernetwork, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Views: hidden layer [K, H, E], its offsets [K, 1, H]; heads [K, D, H], biases [K, 1, D]."""
    inner, outer = sizes.hidden, sizes.made
    lengths = [inner * sizes.embedding, inner, outer * inner, outer]
    layer, offsets, heads, biases = torch.split(weights, lengths, dim=1)
    return (
        torch.unflatten(layer, 1, (inner, -1)),
        offsets.unsqueeze(1),
        torch.unflatten(heads, 1, (outer, inner)),
        biases.unsqueeze(1),
    )
