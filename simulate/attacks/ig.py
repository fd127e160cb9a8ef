"""The attack ``ig``: images whose gradients have the direction of the released ones.

J. Geiping, H. Bauermeister, H. Droege, M. Moeller, Inverting Gradients, NeurIPS 2020,
Eq. 4: minimise 1 - cosine(gradient of the dummy images, released gradient) + weight *
total variation, by Adam on the sign of the gradient. Where the input of the first dense
layer follows in closed form, the features and the gradients below that layer are
compared instead, and neither label nor head is needed; on a hypernetwork, after its
closed form. The learning rate falls from 0.2 as a half cosine, and the start is the
data set's public mean pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from simulate.attacks.bodies import body_gradient
from simulate.attacks.dense import labels_of
from simulate.attacks.feature_objective import dense_objective, rank_one_fit
from simulate.attacks.gradient_objective import Objective, gradient_objective
from simulate.attacks.view import Guess, Options, View, register

Progress = Callable[[int, int], None]


RATE = 0.2  # first learning rate of Adam
VARIATION = 1e-2  # weight of the total variation, of model inputs
MAX_RECORDS = 10  # most records that are reconstructed from one release


@register("ig", source="Geiping et al. 2020; with features, docs/attacks.md")
def ig(views: Sequence[View], options: Options, progress: Progress) -> list[Guess]:
    """Invert all releases at the same time."""
    first = views[0]
    if first.kind == "nothing":
        return [Guess(note="nothing is released") for _ in views]
    shape = (len(views), min(first.records, MAX_RECORDS), *first.model.input_shape)
    numbers: list[dict[str, float]] = [{} for _ in views]
    labels = [labels_of(view) for view in views]
    objective = None
    unknowns: list[Tensor] = []
    if first.kind == "hypernetwork":
        bodies = [body_gradient(view) for view in views]
        for further, body in zip(numbers, bodies, strict=True):
            further["residual"] = body.residual
            further["gradient_norm"] = float(body.gradient.norm())
        objective = dense_objective([body.view for body in bodies])
        if objective is None:
            return [Guess(note="the body has no dense layer") for _ in views]
    elif all(rank_one_fit(view) is not None for view in views):
        objective = dense_objective(views)
    if objective is None:
        inferred = [label[: shape[1]] for label in labels if label is not None]
        if len(inferred) == len(views):
            labels = list(inferred)
            objective = gradient_objective(views, torch.stack(inferred))
        else:
            # Labels are unknowns, too.
            unknowns = [_logits(first, shape)]
            objective = gradient_objective(views, unknowns[0])
    images, values = descend(objective, shape, first, options.steps, progress, unknowns)
    if unknowns:
        labels = list(unknowns[0].detach().argmax(2).cpu())
    return [
        _guess(*of_release)
        for of_release in zip(images, labels, values, numbers, strict=True)
    ]


def _logits(view: View, shape: tuple[int, ...]) -> Tensor:
    """Unknown logits of the labels [K, n, classes]."""
    logits = view.parameters.new_zeros(*shape[:2], view.model.classes)
    return logits.requires_grad_()


def _guess(
    image: Tensor, label: Tensor | None, value: Tensor, numbers: dict[str, float]
) -> Guess:
    """What was found in a release, with the last value of its objective."""
    # 2 is the largest cosine distance.
    reached = float(value) if bool(value.isfinite()) else 2.0
    labels = None if label is None else label.cpu()
    return Guess(image, labels, {"objective": reached, **numbers})


def descend(
    objective: Objective,
    shape: tuple[int, ...],
    view: View,
    steps: int,
    progress: Progress,
    unknowns: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor]:
    """Minimise an objective over inputs of pixels in [0, 1].

    Args:
        objective: of the inputs.
        shape: of the inputs [K, n, channels, height, width].
        view: that scales pixels, the same for all releases.
        steps: of Adam.
        progress: told of completed steps.
        unknowns: other tensors that the objective is minimised over.

    Returns:
        Pixels, and the last values of the objective [K].
    """
    black = torch.zeros(shape[2:], device=view.parameters.device)
    low = view.inputs(black)
    high = view.inputs(black + 1.0)
    # Zero is the public mean pixel; where it is black, the start is half white.
    grey = view.inputs(black + 0.5)
    start = grey if bool((low == 0).all()) else torch.zeros_like(grey)
    inputs = start.expand(shape).clone().requires_grad_()
    optimiser = torch.optim.Adam([inputs, *unknowns], lr=RATE)
    for step in range(steps):
        share = step / steps
        optimiser.param_groups[0]["lr"] = RATE * (1 + math.cos(math.pi * share)) / 2
        optimiser.zero_grad()
        values = objective(inputs, share) + VARIATION * total_variation(inputs)
        torch.autograd.backward(values.sum())
        if inputs.grad is not None:
            inputs.grad.sign_()
        optimiser.step()
        with torch.no_grad():
            inputs.copy_(torch.minimum(torch.maximum(inputs, low), high))
        progress(step + 1, steps)
    with torch.no_grad():
        values = objective(inputs, 1.0).cpu()
    pixels = view.outputs(inputs.detach()).clamp(0, 1).cpu()
    return pixels.nan_to_num(0.5), values


def total_variation(x: Tensor) -> Tensor:
    """Mean absolute difference of neighbouring pixels [K], of x [K, ...]."""
    down = (x[..., 1:, :] - x[..., :-1, :]).abs().flatten(1).mean(1)
    right = (x[..., 1:] - x[..., :-1]).abs().flatten(1).mean(1)
    return down + right
