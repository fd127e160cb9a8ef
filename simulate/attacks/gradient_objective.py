"""The objective of IG on all gradients: their direction against the released one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from simulate.attacks.view import View
from simulate.models.network import Shapes

Objective = Callable[[Tensor, float], Tensor]
"""Takes inputs [K, n, ...] and the share of steps that are done to values [K]."""
TINY_SQUARE = 1e-30  # stands for a squared norm of zero


def named_parameters(shapes: Shapes, theta: Tensor) -> dict[str, Tensor]:
    """Views of a flat parameter vector [..., D] by name, for ``functional_call``."""
    flat = torch.split(theta, [math.prod(shape) for _, shape in shapes], -1)
    return {
        name: values.view(*theta.shape[:-1], *shape)
        for (name, shape), values in zip(shapes, flat, strict=True)
    }


def cosine_distance(
    gradients: Mapping[str, Tensor],
    target: Mapping[str, Tensor],
    masks: Mapping[str, Tensor],
) -> Tensor:
    """1 - cosine of gradients [K], each a mapping of tensors [K, ...]."""
    product = square = norm = torch.zeros(())
    for name, released in target.items():
        gradient = gradients[name] * masks[name]
        product = product + (gradient * released).flatten(1).sum(1)
        square = square + gradient.square().flatten(1).sum(1)
        norm = norm + released.square().flatten(1).sum(1)
    return 1 - product / (square * norm).clamp(min=TINY_SQUARE).sqrt()


def gradient_objective(views: Sequence[View], labels: Tensor) -> Objective:
    """Cosine distance of the gradients of dummy images to the released ones.

    Args:
        views: of the releases [K].
        labels: [K, n], or logits [K, n, classes] that are unknowns, too.
    """
    first = views[0]
    module = first.model.module()
    shapes = first.model.shapes
    is_shared = all(torch.equal(view.parameters, first.parameters) for view in views)
    theta = first.parameters
    if not is_shared:
        theta = torch.stack([view.parameters for view in views])
    parameters = named_parameters(shapes, theta)
    target = named_parameters(shapes, torch.stack([view.gradient for view in views]))
    masks = named_parameters(shapes, torch.stack([view.mask for view in views]))

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(module, values, (x,)), y)

    gradients = vmap(grad(loss), in_dims=(None if is_shared else 0, 0, 0))

    def objective(inputs: Tensor, share: float) -> Tensor:
        y = labels.softmax(2) if labels.is_floating_point() else labels
        return cosine_distance(gradients(parameters, inputs, y), target, masks)

    return objective
