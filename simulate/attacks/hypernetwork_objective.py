"""Distance of a guessed hypernetwork's gradient to the released one.

With the embedding v, the hidden layer h = relu(V v + c) and the generated body theta =
H h + b, the gradient of the loss by (V, c, H, b) is (s v^T, s, g h^T, g), where g is
the gradient by the body and s = (H^T g) [h > 0]. Inner products with a released update
are computed from these factors, never from the outer products.

``K`` releases of one hypernetwork, ``E`` numbers of an embedding, ``H`` hidden units,
``D`` generated parameters, ``n`` images of a release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from privplan.streams import Purpose, stream
from simulate.attacks.gradient_objective import (
    TINY_SQUARE,
    Objective,
    gradients_of,
)
from simulate.attacks.view import View
from simulate.models.network import join_head, split_head

# Standard deviation of the numbers of an unknown head: that of a layer with some
# hundred inputs at PyTorch's default initialisation.
_HEAD_SPREAD = 0.05
_UNIFORM_SPREAD = 3**0.5  # a uniform number in (-1, 1) times this has variance one
START = 31  # names the streams from which attacks draw their first unknowns


@dataclass(frozen=True)
class HypernetworkUpdates:
    """A hypernetwork, and the gradients by it that several releases hold.

    Attributes:
        layer: weights of the hidden layer [H, E].
        offsets: of the hidden layer [H].
        heads: weights of the heads [D, H].
        biases: of the heads [D].
        to_layer: released gradient by ``layer`` [K, H, E].
        to_offsets: by ``offsets`` [K, H].
        to_heads: by ``heads`` [K, D, H].
        to_biases: by ``biases`` [K, D].
        norms: of the released gradients [K].
    """

    layer: Tensor
    offsets: Tensor
    heads: Tensor
    biases: Tensor
    to_layer: Tensor
    to_offsets: Tensor
    to_heads: Tensor
    to_biases: Tensor
    norms: Tensor

    def body(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden layers [K, H] and bodies [K, D] of embeddings [K, E]."""
        hidden = (embeddings @ self.layer.T + self.offsets).relu()
        return hidden, hidden @ self.heads.T + self.biases

    def distance(self, embeddings: Tensor, hidden: Tensor, slopes: Tensor) -> Tensor:
        """1 - cosine of guessed and released gradients [K].

        Args:
            embeddings: guessed [K, E].
            hidden: their hidden layers [K, H].
            slopes: guessed gradients by the body [K, D].
        """
        inner = (slopes @ self.heads) * (hidden > 0)
        through_heads = _products(self.to_heads, hidden)
        through_layer = _products(self.to_layer, embeddings)
        product = (slopes * (through_heads + self.to_biases)).sum(1)
        product = product + (inner * (through_layer + self.to_offsets)).sum(1)
        square = slopes.square().sum(1) * (hidden.square().sum(1) + 1)
        square = square + inner.square().sum(1) * (embeddings.square().sum(1) + 1)
        norms = square.clamp(min=TINY_SQUARE).sqrt() * self.norms
        return 1 - product / norms.clamp(min=TINY_SQUARE)


def _products(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Products [K, D] of matrices [K, D, H] and vectors [K, H], one after another.

    PyTorch's batched product and its gradient take several times as long on a CPU.
    """
    products = [
        matrix @ vector for matrix, vector in zip(matrices, vectors, strict=True)
    ]
    return torch.stack(products)


def updates_of(views: Sequence[View]) -> HypernetworkUpdates:
    """The hypernetwork of some releases, which is the same, and their gradients."""
    first = views[0]
    sizes = first.hypernetwork
    layer, offsets, heads, biases = torch.split(first.parameters, sizes.lengths)
    moved = torch.stack([view.gradient for view in views])
    to_layer, to_offsets, to_heads, to_biases = torch.split(moved, sizes.lengths, 1)
    return HypernetworkUpdates(
        layer.view(sizes.hidden, sizes.embedding),
        offsets,
        heads.view(sizes.generated_size, sizes.hidden),
        biases,
        to_layer.reshape(len(views), sizes.hidden, sizes.embedding),
        to_offsets,
        to_heads.reshape(len(views), sizes.generated_size, sizes.hidden),
        to_biases,
        moved.norm(dim=1),
    )


def first_embeddings(views: Sequence[View], seed: int) -> Tensor:
    """Embeddings drawn as fresh ones are, uniform with variance one [K, E]."""
    view = views[0]
    source = generator(seed, 0)
    drawn = torch.rand(len(views), view.hypernetwork.embedding, generator=source)
    return ((drawn * 2 - 1) * _UNIFORM_SPREAD).to(view.parameters.device)


def generator(seed: int, number: int) -> torch.Generator:
    """The random generator of an attack's unknowns, by their number."""
    drawn = stream(seed, Purpose.OWN_TEST, START, number).integers(2**62)
    return torch.Generator().manual_seed(int(drawn))


def joint_objective(
    views: Sequence[View], images: int, seed: int
) -> tuple[Objective, list[Tensor]]:
    """The objective of HyperFL, Eq. 8, and its unknowns beside the images.

    Embedding, head and labels of each client are unknowns (Appendix D.1: all unknown
    variables are learnable and optimised simultaneously).

    Args:
        views: of the releases, of one hypernetwork [K].
        images: of each release (n).
        seed: of the first unknowns.
    """
    updates = updates_of(views)
    model = views[0].model
    embeddings = first_embeddings(views, seed)
    size = model.head.stop - model.head.start
    drawn = torch.randn(len(views), size, generator=generator(seed, 1))
    heads = (_HEAD_SPREAD * drawn).to(embeddings.device)
    logits = embeddings.new_zeros(len(views), images, model.classes)
    unknowns = [values.requires_grad_() for values in (embeddings, heads, logits)]
    gradients = gradients_of(views[0])

    def objective(inputs: Tensor, share: float) -> Tensor:
        hidden, bodies = updates.body(embeddings)
        thetas = join_head(model, bodies, heads)
        slopes, _ = split_head(model, gradients(thetas, inputs, logits.softmax(2)))
        return updates.distance(embeddings, hidden, slopes)

    return objective, unknowns
