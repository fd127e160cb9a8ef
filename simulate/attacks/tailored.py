"""The attacks of HyperFL's evaluation on its hypernetwork: every unknown is optimised.

``tailored``: first embedding and hypernetwork output are optimised until the hypernetwork gradient
that they give has the direction of the released one (Eq. 10), then images (upper level of Eq. 9).
Deviations from the paper, which states no settings for this attack:
1. Of the output, its difference to the generated body is the unknown. For a squared loss that
   difference is the loss's gradient by the output, so the minimisers are the same.
2. The upper level matches the body gradient that the first step found, as Eq. 9 is written. The
   paper replaces it by model inversion (He et al. 2019), for it holds that this gradient cannot be
   obtained; model inversion needs the client's outputs, which are not released.
3. Distances are 1 - cosine; half of the steps each, Adam at 0.01, then as IG in the paper; label
   and head are unknowns of the second step.
``joint`` is IG with images, embedding, label and head as unknowns (Eq. 8), the paper's IG row.
``hyperfl.py`` has the closed form that makes both unnecessary.

The gradient of a hypernetwork by its parameters is (s v^T, s, g h^T, g) with v the embedding,
h the hidden layer, g the body gradient and s = (H^T g) [h > 0]; inner products with the released
update are computed from these factors, never from the outer products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from simulate.attacks.dense import Objective
from simulate.attacks.inversion import PAPER, Descent, descend, named_parameters
from simulate.attacks.registry import Guess, Options, generator, register
from simulate.attacks.view import View
from simulate.models.network import join_head, split_head

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class _Released:
    """Parts of several hypernetworks' parameters, which are the same, and of their updates.

    Attributes:
        layer: weights of the hidden layer [H, E]; ``offsets`` [H], ``heads`` [made, H],
            ``biases`` [made].
        to_layer: gradient by them [K, H, E], and likewise for the other parts.
        norm: norm of the whole gradient [K].
    """

    layer: Tensor
    offsets: Tensor
    heads: Tensor
    biases: Tensor
    to_layer: Tensor
    to_offsets: Tensor
    to_heads: Tensor
    to_biases: Tensor
    norm: Tensor

    def body(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden layers [K, H] and bodies [K, made] of embeddings [K, E]."""
        hidden = (embeddings @ self.layer.T + self.offsets).relu()
        return hidden, hidden @ self.heads.T + self.biases

    def distance(self, embeddings: Tensor, hidden: Tensor, slopes: Tensor) -> Tensor:
        """1 - cosine of the gradient of embeddings and body gradients with the released one [K]."""
        inner = (slopes @ self.heads) * (hidden > 0)
        through = torch.bmm(self.to_heads, hidden[:, :, None])[:, :, 0] + self.to_biases
        product = (slopes * through).sum(1)
        outer = torch.bmm(self.to_layer, embeddings[:, :, None])[:, :, 0] + self.to_offsets
        product = product + (inner * outer).sum(1)
        square = slopes.square().sum(1) * (hidden.square().sum(1) + 1)
        square = square + inner.square().sum(1) * (embeddings.square().sum(1) + 1)
        return 1 - product / (square.clamp(min=1e-30).sqrt() * self.norm.clamp(min=1e-30))


def _released(views: Sequence[View]) -> _Released:
    sizes = views[0].hypernetwork
    lengths = [sizes.hidden * sizes.embedding, sizes.hidden, sizes.made * sizes.hidden, sizes.made]
    layer, offsets, heads, biases = torch.split(views[0].parameters, lengths)
    moved = torch.stack([view.gradient for view in views])
    norm = moved.norm(dim=1)
    unit = moved / norm.clamp(min=1e-30)[:, None]
    to_layer, to_offsets, to_heads, to_biases = torch.split(unit, lengths, 1)
    return _Released(
        layer.view(sizes.hidden, -1),
        offsets,
        heads.view(sizes.made, -1),
        biases,
        to_layer.view(len(views), sizes.hidden, -1),
        to_offsets,
        to_heads.view(len(views), sizes.made, -1),
        to_biases,
        torch.ones_like(norm),
    )


def joint(
    views: Sequence[View], options: Options, progress: Progress, descent: Descent
) -> list[Guess]:
    """IG with images, labels, embedding and head as unknowns (Eq. 8)."""
    first = views[0]
    shape = (len(views), min(first.records, options.records), *first.model.input_shape)
    objective, unknowns = joint_objective(views, options)
    images, values = descend(objective, shape, first, descent, options, progress, unknowns)
    return _guesses(images, values)


def joint_objective(views: Sequence[View], options: Options) -> tuple[Objective, Sequence[Tensor]]:
    """The objective of Eq. 8, and its unknowns beside the images."""
    released, first = _released(views), views[0]
    model, count = first.model, min(first.records, options.records)
    source = generator(options, 7)
    embeddings = _start(len(views), first, source)
    size = model.head.stop - model.head.start
    heads = (0.05 * torch.randn(len(views), size, generator=source)).to(embeddings.device)
    logits = torch.zeros(len(views), count, model.classes, device=embeddings.device)
    unknowns = [value.requires_grad_() for value in (embeddings, heads, logits)]
    gradients = _body_gradients(first)

    def objective(inputs: Tensor, share: float) -> Tensor:
        hidden, bodies = released.body(embeddings)
        thetas = join_head(model, bodies, heads)
        slopes = split_head(model, gradients(thetas, inputs, logits.softmax(2)))[0]
        return released.distance(embeddings, hidden, slopes)

    return objective, unknowns


def _start(count: int, view: View, source: torch.Generator) -> Tensor:
    """Embeddings drawn as fresh ones are, uniform with variance one [K, E]."""
    drawn = (torch.rand(count, view.hypernetwork.embedding, generator=source) * 2 - 1) * 3**0.5
    return drawn.to(view.parameters.device)


def _body_gradients(view: View) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """(parameters [K, D], inputs [K, n, ...], label probabilities) to gradients [K, D]."""
    module, shapes = view.model.module(), view.model.shapes

    def loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(module, named_parameters(shapes, theta), (x,))
        return functional.cross_entropy(logits, y)

    found: Callable[[Tensor, Tensor, Tensor], Tensor] = vmap(grad(loss))
    return found


def _guesses(images: Tensor, values: Tensor) -> list[Guess]:
    return [
        Guess(image, None, {"objective": float(value) if bool(value.isfinite()) else 2.0})
        for image, value in zip(images, values, strict=True)
    ]


@register("tailored", iterative=True, source="HyperFL, Eq. 10 and 9 and Appendix D.1")
def tailored(views: Sequence[View], options: Options, progress: Progress) -> list[Guess]:
    """Embedding and body gradient by optimisation, then images against them."""
    if views[0].kind != "hypernetwork":
        return [Guess(note="only for hypernetworks at the clients") for _ in views]
    released, first = _released(views), views[0]
    source = generator(options, 8)
    embeddings = _start(len(views), first, source)
    slopes = 1e-2 * torch.randn(len(views), first.hypernetwork.made, generator=source)
    unknowns = [embeddings.requires_grad_(), slopes.to(embeddings.device).requires_grad_()]
    optimiser = torch.optim.Adam(unknowns, lr=0.01)
    half = max(1, options.steps // 2)
    for step in range(half):
        optimiser.zero_grad()
        hidden, _ = released.body(unknowns[0])
        torch.autograd.backward(released.distance(unknowns[0], hidden, unknowns[1]).sum())
        optimiser.step()
        progress(step + 1, 2 * half)
    with torch.no_grad():
        hidden, bodies = released.body(unknowns[0])
        reached = released.distance(unknowns[0], hidden, unknowns[1])
    found = _invert_body(views, options, bodies, unknowns[1].detach(), half, progress)
    return [
        Guess(guess.images, None, {**guess.numbers, "lower_objective": float(value)})
        for guess, value in zip(found, reached.nan_to_num(2.0), strict=True)
    ]


def _invert_body(
    views: Sequence[View],
    options: Options,
    bodies: Tensor,
    slopes: Tensor,
    half: int,
    progress: Progress,
) -> list[Guess]:
    """Images whose body gradient has the direction of the recovered one; head unknown."""
    first = views[0]
    model, count = first.model, min(first.records, options.records)
    shape = (len(views), count, *model.input_shape)
    size = model.head.stop - model.head.start
    source = generator(options, 9)
    heads = (0.05 * torch.randn(len(views), size, generator=source)).to(bodies.device)
    logits = torch.zeros(*shape[:2], model.classes, device=bodies.device)
    unknowns = [heads.requires_grad_(), logits.requires_grad_()]
    gradients = _body_gradients(first)

    def objective(inputs: Tensor, share: float) -> Tensor:
        found = split_head(
            model, gradients(join_head(model, bodies, heads), inputs, logits.softmax(2))
        )[0]
        return 1 - functional.cosine_similarity(found, slopes, dim=1)

    def shifted(done: int, total: int) -> None:
        progress(half + half * done // total, 2 * half)

    images, values = descend(objective, shape, first, PAPER, options, shifted, unknowns)
    return _guesses(images, values)
