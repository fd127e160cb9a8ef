"""Inversion of gradients (IG): images whose gradient points in the direction of the released one.

J. Geiping, H. Bauermeister, H. Droege, M. Moeller, Inverting Gradients, NeurIPS 2020, Eq. 4:
minimise 1 - cosine(gradient of the dummy images, released gradient) + weight * total variation,
by Adam with the learning rate divided by 10 after 3/8, 5/8 and 7/8 of the steps.
``ig`` compares features and gradients below the first dense layer (``dense``) where its input
follows in closed form, takes the sign of the gradient, a total variation of 1e-2, a cosine
schedule from 0.2, and starts at grey; ``ig-paper`` has the settings of HyperFL, Appendix D.1 (all
gradients, no sign, 1e-6, 0.1 with steps, a normal start).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from simulate.attacks.closed_form import Objective, dense_objective, known, labels_of
from simulate.attacks.view import Guess, Options, View, generator, register
from simulate.models.network import Shapes, join_head, split_head

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Descent:
    """Settings of the optimisation.

    Attributes:
        rate: first learning rate of Adam.
        variation: weight of the total variation, of model inputs.
        signed: whether Adam receives the sign of the gradient.
        grey: whether the first start is at the data set's public mean pixel; else, and for
            restarts, at normal inputs.
        milestones: shares of the steps after which the rate is divided by 10; without any, it
            falls to zero as a half cosine.
        dense: whether the closed form of the first dense layer is used where there is one.
    """

    rate: float = 0.2
    variation: float = 1e-2
    signed: bool = True
    grey: bool = True
    milestones: tuple[float, ...] = ()
    dense: bool = True

    def rate_at(self, share: float) -> float:
        """Learning rate after a share of the steps."""
        if not self.milestones:
            return self.rate * (1 + math.cos(math.pi * share)) / 2
        return self.rate * 0.1 ** sum(share >= milestone for milestone in self.milestones)


OURS = Descent()
PAPER = Descent(
    rate=0.1,
    variation=1e-6,
    signed=False,
    grey=False,
    milestones=(3 / 8, 5 / 8, 7 / 8),
    dense=False,
)


def named_parameters(shapes: Shapes, theta: Tensor) -> dict[str, Tensor]:
    """Views of a flat parameter vector [..., D] by name, for ``functional_call``."""
    parts = torch.split(theta, [math.prod(shape) for _, shape in shapes], -1)
    return {
        name: part.view(*theta.shape[:-1], *shape)
        for (name, shape), part in zip(shapes, parts, strict=True)
    }


def total_variation(x: Tensor) -> Tensor:
    """Mean absolute difference of neighbouring pixels [K], for x [K, n, ..., height, width]."""
    rows = (x[..., 1:, :] - x[..., :-1, :]).abs().flatten(1).mean(1)
    return rows + (x[..., 1:] - x[..., :-1]).abs().flatten(1).mean(1)


def cosine_distance(
    found: Mapping[str, Tensor], target: Mapping[str, Tensor], masks: Mapping[str, Tensor] | None
) -> Tensor:
    """1 - cosine of gradients [K], each a mapping of tensors [K, ...]."""
    product = square = norm = torch.zeros(())
    for name, wanted in target.items():
        value = found[name] if masks is None else found[name] * masks[name]
        product = product + (value * wanted).flatten(1).sum(1)
        square = square + value.square().flatten(1).sum(1)
        norm = norm + wanted.square().flatten(1).sum(1)
    return 1 - product / (square * norm).clamp(min=1e-30).sqrt()


def gradient_objective(views: Sequence[View], labels: Tensor) -> Objective:
    """Cosine distance between the gradient of dummy inputs and the released gradients."""
    first = views[0]
    module, model = first.model.module(), first.model
    shapes = model.shapes
    same = all(torch.equal(view.parameters, first.parameters) for view in views)
    theta = first.parameters if same else torch.stack([view.parameters for view in views])
    parameters = named_parameters(shapes, theta)
    target = named_parameters(shapes, torch.stack([view.gradient for view in views]))
    whole = all(len(view.observed) == model.parameters for view in views)
    mask = None if whole else torch.stack([view.mask for view in views])
    masks = None if mask is None else named_parameters(shapes, mask)

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(module, values, (x,)), y)

    gradients = vmap(grad(loss), in_dims=(None if same else 0, 0, 0))

    def objective(inputs: Tensor, share: float) -> Tensor:
        found = gradients(parameters, inputs, labels)
        return cosine_distance(found, target, masks)

    return objective


def descend(
    objective: Objective,
    shape: tuple[int, ...],
    view: View,
    descent: Descent,
    options: Options,
    progress: Progress,
    extra: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor]:
    """Minimise an objective over model inputs of all releases at the same time.

    Inputs are limited to those of pixels in [0, 1] after every step.
    """
    device = view.parameters.device
    best, lowest = torch.zeros(shape), torch.full((shape[0],), math.inf)
    low, high = (view.inputs(torch.full(shape[2:], end, device=device)) for end in (0.0, 1.0))
    total = options.steps * options.restarts
    for start in range(options.restarts):
        source = generator(options, start)
        inputs = torch.randn(shape, generator=source)
        if descent.grey and start == 0:
            inputs = _grey(view, shape)
        inputs = inputs.to(device).requires_grad_()
        optimiser = torch.optim.Adam([inputs, *extra], lr=descent.rate)
        for step in range(options.steps):
            share = step / options.steps
            optimiser.param_groups[0]["lr"] = descent.rate_at(share)
            optimiser.zero_grad()
            values = objective(inputs, share)
            total_value = (values + descent.variation * total_variation(inputs)).sum()
            torch.autograd.backward(total_value)
            if descent.signed and inputs.grad is not None:
                inputs.grad.sign_()
            optimiser.step()
            with torch.no_grad():
                inputs.copy_(torch.minimum(torch.maximum(inputs, low), high))
            progress(start * options.steps + step + 1, total)
        with torch.no_grad():
            final = objective(inputs, 1.0).detach().cpu()
        final = torch.where(final.isfinite(), final, math.inf)
        improved = (final < lowest) | (start == 0)
        pixels = view.outputs(inputs.detach()).clamp(0, 1).cpu()
        best[improved] = pixels[improved].nan_to_num(0.5)
        lowest = torch.where(improved, final, lowest)
    return best, lowest


def _grey(view: View, shape: tuple[int, ...]) -> Tensor:
    """Inputs of zero, the public mean pixel; of half white where zero is black."""
    zero = torch.zeros(shape)
    black = view.inputs(torch.zeros(shape[2:]))
    return view.inputs(torch.full(shape, 0.5)) if bool((black == 0).all()) else zero


def invert(
    views: Sequence[View], options: Options, progress: Progress, descent: Descent
) -> list[Guess]:
    """IG on releases of model parameters.

    Labels are inferred, or unknowns where they cannot be. Where the input of the first dense layer
    is known of every release, neither label nor head is used.
    """
    count = min(views[0].records, options.records)
    shape = (len(views), count, *views[0].model.input_shape)
    inferred = [labels_of(view) for view in views]
    known_labels = [one for one in inferred if one is not None]
    complete = len(known_labels) == len(views)
    objective = None
    if descent.dense and all(known(view) is not None for view in views):
        objective = dense_objective(views)
    rows: Sequence[Tensor | None] = inferred
    if objective is not None:
        images, values = descend(objective, shape, views[0], descent, options, progress)
    elif complete:
        labels = torch.stack([one[:count] for one in known_labels])
        rows = list(labels.cpu())
        images, values = descend(
            gradient_objective(views, labels), shape, views[0], descent, options, progress
        )
    else:
        logits = torch.zeros(*shape[:2], views[0].model.classes).requires_grad_()
        soft = logits.to(views[0].parameters.device)
        images, values = descend(
            _soft_objective(views, soft), shape, views[0], descent, options, progress, [logits]
        )
        rows = list(logits.detach().argmax(2))
    return [
        Guess(image, label, {"objective": _finite(value)})
        for image, label, value in zip(images, rows, values, strict=True)
    ]


def _finite(value: Tensor) -> float:
    return float(value) if bool(value.isfinite()) else 2.0


def _soft_objective(views: Sequence[View], logits: Tensor) -> Objective:
    """As ``gradient_objective`` with labels that are unknowns too."""

    def objective(inputs: Tensor, share: float) -> Tensor:
        return gradient_objective(views, logits.softmax(2))(inputs, share)

    return objective


def _dispatch(
    views: Sequence[View], options: Options, progress: Progress, descent: Descent
) -> list[Guess]:
    from simulate.attacks.hyperfl import invert_hypernetwork

    if views[0].kind == "nothing":
        return [Guess(note="nothing is released") for _ in views]
    if views[0].kind == "hypernetwork":
        return invert_hypernetwork(views, options, progress, descent)
    return invert(views, options, progress, descent)


@register(
    "ig",
    iterative=True,
    source="Geiping et al. 2020; with features, docs/attacks.md",
)
def ig(views: Sequence[View], options: Options, progress: Progress) -> list[Guess]:
    """IG with this project's defaults; on a hypernetwork, after the closed form."""
    return _dispatch(views, options, progress, OURS)


@register("ig-paper", iterative=True, source="Geiping et al. 2020, as in HyperFL, Appendix D.1")
def ig_paper(views: Sequence[View], options: Options, progress: Progress) -> list[Guess]:
    """IG with the settings of HyperFL; on a hypernetwork, every unknown is optimised."""
    if views[0].kind == "hypernetwork":
        return joint(views, options, progress, PAPER)
    return _dispatch(views, options, progress, PAPER)


# --- The attacks of HyperFL's evaluation on its hypernetwork: every unknown is optimised. --------
#
# ``tailored``: first embedding and hypernetwork output are optimised until the hypernetwork
# gradient that they give has the direction of the released one (Eq. 10), then images (upper level
# of Eq. 9). Deviations from the paper, which states no settings for this attack: 1. Of the
# output, its difference to the generated body is the unknown. For a squared loss that
# difference is the loss's gradient by the output, so the minimisers are the same. 2. The upper
# level matches the body gradient that the first step found, as Eq. 9 is written. The    paper
# replaces it by model inversion (He et al. 2019), for it holds that this gradient cannot be
# obtained; model inversion needs the client's outputs, which are not released. 3. Distances are 1
# - cosine; half of the steps each, Adam at 0.01, then as IG in the paper; label    and head are
# unknowns of the second step. ``joint`` is IG with images, embedding, label and head as unknowns
# (Eq. 8), the paper's IG row. ``hyperfl.py`` has the closed form that makes both unnecessary.
#
# The gradient of a hypernetwork by its parameters is (s v^T, s, g h^T, g) with v the embedding,
# h the hidden layer, g the body gradient and s = (H^T g) [h > 0]; inner products with the released
# update are computed from these factors, never from the outer products.


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
