"""Distance of a guessed hypernetwork's gradient to the released one.

With the embedding v, the hidden layer h = relu(V v + c) and the generated body theta =
H h + b, the gradient of the loss by (V, c, H, b) is (s v^T, s, g h^T, g), where g is
the gradient by the body and s = (H^T g) [h > 0]. Inner products with a released update
are computed from these factors, never from the outer products.

A released matrix is factored once, by its singular values. That of a client with one
record and step has rank one but for rounding, so that a product takes hundreds of
times less than with the whole matrix; that with noise keeps its full rank.

``K`` releases of one hypernetwork, ``E`` numbers of an embedding, ``H`` hidden units,
``D`` generated parameters, ``n`` images of a release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from privplan.streams import Purpose, stream
from simulate.attacks.dense import BLOCK_ROWS
from simulate.attacks.gradient_objective import (
    TINY_SQUARE,
    Objective,
    gradients_of,
)
from simulate.attacks.view import View
from simulate.models.hypernetwork import EMBEDDING
from simulate.models.network import join_head, split_head

# Standard deviation of the numbers of an unknown head: that of a layer with some
# hundred inputs at PyTorch's default initialisation.
_HEAD_SPREAD = 0.05
_UNIFORM_SPREAD = 3**0.5  # a uniform number in (-1, 1) times this has variance one
HALF_ULP = 2.0**-24  # largest relative error of a number rounded to float32
START = 31  # names the streams from which attacks draw their first unknowns


MatrixFactors = tuple[Tensor, Tensor]
"""Left [D, r] and right factor [r, H] of a matrix [D, H] of rank r."""


def factored(matrix: Tensor, rounding: float) -> MatrixFactors:
    """A matrix by its singular values; those that rounding explains are left out.

    Args:
        matrix: [D, H].
        rounding: an upper bound of the norm of what rounding changed. A release is a
            difference of float32 numbers, known to half a unit in their last place.
            The singular values left out have together at most this norm.
    """
    # In float64 the squares resolve singular values to 1e-8 of the largest.
    squares, right = torch.linalg.eigh(_gram(matrix))  # in ascending order
    below = squares.clamp(min=0).cumsum(0) <= rounding**2
    # At least one is kept.
    lowest_kept = min(int(below.sum()), len(squares) - 1)
    directions = right[:, lowest_kept:].to(matrix)
    return matrix @ directions, directions.T


def _gram(matrix: Tensor) -> Tensor:
    """The products of the columns with each other [H, H], in float64."""
    gram = torch.zeros(matrix.shape[1], matrix.shape[1], dtype=torch.float64)
    gram = gram.to(matrix.device)
    # In blocks of rows: a copy of a large matrix in float64 needs too much memory.
    for block in torch.split(matrix, BLOCK_ROWS):
        rows = block.double()
        gram += rows.T @ rows
    return gram


@dataclass(frozen=True)
class Factors:
    """Matrices [D, H] of several releases, each as the product of two factors.

    Attributes:
        left: [K, D, r], for the largest rank r; columns of zeros fill the others up.
        right: [K, r, H].
    """

    left: Tensor
    right: Tensor

    @classmethod
    def of(cls, pairs: Sequence[MatrixFactors]) -> Factors:
        """The factors of several matrices."""
        rank = max(right.shape[0] for _, right in pairs)
        lefts = [functional.pad(left, (0, rank - left.shape[1])) for left, _ in pairs]
        rights = [
            functional.pad(right, (0, 0, 0, rank - right.shape[0]))
            for _, right in pairs
        ]
        return cls(torch.stack(lefts), torch.stack(rights))

    def products(self, vectors: Tensor) -> Tensor:
        """Products [K, D] with vectors [K, H], a pair of products per release.

        PyTorch's batched product and its gradient take several times as long on a CPU.
        """
        products = [
            left @ (right @ vector)
            for left, right, vector in zip(self.left, self.right, vectors, strict=True)
        ]
        return torch.stack(products)


@dataclass(frozen=True)
class HypernetworkUpdates:
    """A hypernetwork, and the gradients by it that several releases hold.

    Attributes:
        layer: weights of the hidden layer [H, E].
        offsets: of the hidden layer [H].
        heads: weights of the heads [D, H].
        biases: of the heads [D].
        to_layer: released gradients by ``layer``, matrices [H, E].
        to_offsets: by ``offsets`` [K, H].
        to_heads: by ``heads``, matrices [D, H].
        to_biases: by ``biases`` [K, D].
        norms: of the released gradients [K].
    """

    layer: Tensor
    offsets: Tensor
    heads: Tensor
    biases: Tensor
    to_layer: Factors
    to_offsets: Tensor
    to_heads: Factors
    to_biases: Tensor
    norms: Tensor

    def hidden(self, embeddings: Tensor) -> Tensor:
        """Hidden layers [K, H] of embeddings [K, E]."""
        return (embeddings @ self.layer.T + self.offsets).relu()

    def bodies(self, hidden: Tensor) -> Tensor:
        """Bodies [K, D] of hidden layers [K, H]."""
        return hidden @ self.heads.T + self.biases

    def distance(self, embeddings: Tensor, hidden: Tensor, slopes: Tensor) -> Tensor:
        """1 - cosine of guessed and released gradients [K].

        Args:
            embeddings: guessed [K, E].
            hidden: their hidden layers [K, H].
            slopes: guessed gradients by the body [K, D].
        """
        inner = (slopes @ self.heads) * (hidden > 0)
        through_heads = self.to_heads.products(hidden)
        through_layer = self.to_layer.products(embeddings)
        product = (slopes * (through_heads + self.to_biases)).sum(1)
        product = product + (inner * (through_layer + self.to_offsets)).sum(1)
        square = slopes.square().sum(1) * (hidden.square().sum(1) + 1)
        square = square + inner.square().sum(1) * (embeddings.square().sum(1) + 1)
        norms = square.clamp(min=TINY_SQUARE).sqrt() * self.norms
        return 1 - product / norms.clamp(min=TINY_SQUARE)


class _Gradient(NamedTuple):
    """What a release tells of the gradient by each part of the hypernetwork."""

    layer: MatrixFactors
    offsets: Tensor
    heads: MatrixFactors
    biases: Tensor
    norm: Tensor  # of the whole gradient


def _gradient_of(view: View, layer: Tensor, heads: Tensor) -> _Gradient:
    """The gradient of a release, by a hypernetwork with this layer and these heads."""
    gradient = view.gradient
    pieces = torch.split(gradient, view.hypernetwork.lengths)
    of_layer, of_offsets, of_heads, of_biases = pieces
    # By how much rounding changes a gradient, over the parameters' size.
    share = HALF_ULP / (view.learning_rate * view.steps)
    return _Gradient(
        factored(of_layer.view_as(layer), share * float(layer.norm())),
        of_offsets.clone(),
        factored(of_heads.view_as(heads), share * float(heads.norm())),
        of_biases.clone(),
        gradient.norm(),
    )


def updates_of(views: Sequence[View]) -> HypernetworkUpdates:
    """The hypernetwork of some releases, which is the same, and their gradients."""
    first_view = views[0]
    sizes = first_view.hypernetwork
    layer, offsets, heads, biases = torch.split(first_view.parameters, sizes.lengths)
    layer = layer.view(sizes.hidden, EMBEDDING)
    heads = heads.view(sizes.generated_size, sizes.hidden)
    # One after another: a release has as many numbers as a hundred networks.
    gradients = [_gradient_of(view, layer, heads) for view in views]
    return HypernetworkUpdates(
        layer,
        offsets,
        heads,
        biases,
        Factors.of([gradient.layer for gradient in gradients]),
        torch.stack([gradient.offsets for gradient in gradients]),
        Factors.of([gradient.heads for gradient in gradients]),
        torch.stack([gradient.biases for gradient in gradients]),
        torch.stack([gradient.norm for gradient in gradients]),
    )


def first_embeddings(views: Sequence[View], seed: int) -> Tensor:
    """Embeddings drawn as fresh ones are, uniform with variance one [K, E]."""
    view = views[0]
    drawn = [
        torch.rand(EMBEDDING, generator=source)
        for source in generators(seed, 0, len(views))
    ]
    stacked = torch.stack(drawn).to(view.parameters.device)
    return (stacked * 2 - 1) * _UNIFORM_SPREAD


def first_normals(
    releases: int, shape: Sequence[int], seed: int, number: int
) -> Tensor:
    """Standard normal numbers [K, ...], those of a release from its own generator."""
    drawn = [
        torch.randn(tuple(shape), generator=source)
        for source in generators(seed, number, releases)
    ]
    return torch.stack(drawn)


def generators(seed: int, number: int, releases: int) -> list[torch.Generator]:
    """Of the unknowns of releases: each is drawn as if it were attacked alone."""
    return [generator(seed + index, number) for index in range(releases)]


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
    drawn = first_normals(len(views), (size,), seed, 1)
    heads = (_HEAD_SPREAD * drawn).to(embeddings.device)
    logits = embeddings.new_zeros(len(views), images, model.classes)
    unknowns = [values.requires_grad_() for values in (embeddings, heads, logits)]
    gradients = gradients_of(views[0])

    def objective(inputs: Tensor, share: float) -> Tensor:
        hidden = updates.hidden(embeddings)
        thetas = join_head(model, updates.bodies(hidden), heads)
        slopes, _ = split_head(model, gradients(thetas, inputs, logits.softmax(2)))
        return updates.distance(embeddings, hidden, slopes)

    return objective, unknowns
