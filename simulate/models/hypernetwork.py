"""Hypernetworks: they generate the parameters of another network from an embedding.

One hidden layer and a linear head for each generated tensor, after A. Shamsian, A.
Navon, E. Fetaya, G. Chechik, Personalized Federated Learning using Hypernetworks, ICML
2021, and HyperFL, Appendix D.1. All heads read the same hidden layer, so they are
stored as one matrix.

``P`` parameters of the hypernetwork, ``E`` numbers of an embedding, ``H`` hidden units,
``D`` generated parameters, ``K`` hypernetworks, ``n`` embeddings for each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from simulate.models.network import Shapes

EMBEDDING = 64  # numbers of an embedding (HyperFL, Appendix D.1)


@dataclass(frozen=True)
class Hypernetwork:
    """The sizes of a hypernetwork; its parameters are an argument of each method.

    Attributes:
        generated_size: generated parameters (D).
        hidden: units of the hidden layer (H).
    """

    generated_size: int
    hidden: int

    @property
    def lengths(self) -> list[int]:
        """Numbers of the layer, its offsets, the heads and their biases, in order."""
        layer = self.hidden * EMBEDDING
        heads = self.generated_size * self.hidden
        return [layer, self.hidden, heads, self.generated_size]

    @property
    def parameters(self) -> int:
        """Length P of its own parameter vector."""
        return sum(self.lengths)

    def initial(
        self, start: Tensor, spreads: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Fresh parameters [P] that generate usual initial networks.

        The hidden layer has PyTorch's default initialisation. The biases of the heads
        are a usual initialisation of the network, ``start`` [D]; their weights are
        uniform with standard deviation ``spreads`` / sqrt(H).
        """

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator) * 2 - 1

        layer = uniform(self.hidden * (EMBEDDING + 1)) / math.sqrt(EMBEDDING)
        # A uniform number in (-1, 1) has variance 1/3.
        heads = uniform(self.generated_size, self.hidden) * math.sqrt(3 / self.hidden)
        return torch.cat([layer, (heads * spreads[:, None]).flatten(), start])

    def generated(self, weights: Tensor, embeddings: Tensor) -> Tensor:
        """Parameters [K, n, D] from weights [K, P] and embeddings [K, n, E]."""
        layer, offsets, heads, biases = self._parts(weights)
        hidden = torch.baddbmm(offsets, embeddings, layer.mT).relu_()
        return torch.baddbmm(biases, hidden, heads.mT)

    def pull_back(
        self,
        weights: Tensor,
        embeddings: Tensor,
        slopes: Tensor,
        into: Tensor,
        factor: float,
    ) -> Tensor:
        """Gradient by the embeddings, of slopes [K, n, D].

        Adds the gradient by the weights, times ``factor``, to ``into`` [K, P].
        """
        layer, offsets, heads, _ = self._parts(weights)
        hidden = torch.baddbmm(offsets, embeddings, layer.mT).relu_()
        inner = (slopes @ heads) * (hidden > 0)
        to_embeddings = inner @ layer
        to_layer, to_offsets, to_heads, to_biases = self._parts(into)
        to_layer.baddbmm_(inner.mT, embeddings, alpha=factor)
        to_offsets.add_(inner.sum(1, keepdim=True), alpha=factor)
        to_heads.baddbmm_(slopes.mT, hidden, alpha=factor)
        to_biases.add_(slopes.sum(1, keepdim=True), alpha=factor)
        return to_embeddings

    def _parts(self, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Layer [K, H, E], offsets [K, 1, H], heads [K, D, H] and biases [K, 1, D]."""
        hidden = self.hidden
        generated = self.generated_size
        layer, offsets, heads, biases = torch.split(weights, self.lengths, dim=1)
        return (
            torch.unflatten(layer, 1, (hidden, -1)),
            offsets.unsqueeze(1),
            torch.unflatten(heads, 1, (generated, hidden)),
            biases.unsqueeze(1),
        )


def fresh_embedding(generator: torch.Generator) -> Tensor:
    """A fresh embedding [E]: uniform, with mean zero and variance one."""
    return (torch.rand(EMBEDDING, generator=generator) * 2 - 1) * math.sqrt(3)


def spreads(shapes: Shapes, start: Tensor) -> Tensor:
    """Standard deviation of the tensor that each parameter belongs to [d]."""
    tensors = torch.split(start, [math.prod(shape) for _, shape in shapes])
    return torch.cat(
        [tensor.std(correction=0).expand(len(tensor)) for tensor in tensors]
    )
