"""The objective of IG on all gradients: their direction against the released one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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


Gradients = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Gradients [K, D] by parameters [K, D] or [D], of inputs [K, n, ...] and the shares of
labels [K, n, classes].
"""


def gradients_of(view: View, *, is_shared: bool = False) -> Gradients:
    """Gradients of releases with a view's network; of one parameter vector if shared.

    Parameters and gradients are flat: an operation for each tensor takes longer than
    the arithmetic of a small network.
    """
    module = view.model.module()
    shapes = view.model.shapes

    def loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(module, named_parameters(shapes, theta), (x,))
        return functional.cross_entropy(logits, y)

    by_release: Gradients = vmap(grad(loss), in_dims=(None if is_shared else 0, 0, 0))
    return by_release


def gradient_objective(views: Sequence[View], labels: Tensor) -> Objective:
    """1 - cosine of the gradients of dummy images and the released ones.

    Args:
        views: of the releases [K].
        labels: [K, n], or logits [K, n, classes] that are unknowns, too.
    """
    first_view = views[0]
    theta = first_view.parameters
    is_shared = all(torch.equal(view.parameters, theta) for view in views)
    if not is_shared:
        theta = torch.stack([view.parameters for view in views])
    target = torch.stack([view.gradient for view in views])
    mask = torch.stack([view.mask for view in views])
    norms = target.norm(dim=1)
    gradients = gradients_of(first_view, is_shared=is_shared)
    shares = None
    if not labels.is_floating_point():
        shares = functional.one_hot(labels, first_view.model.classes).to(theta)

    def objective(inputs: Tensor, share: float) -> Tensor:
        y = labels.softmax(2) if shares is None else shares
        released = gradients(theta, inputs, y) * mask
        product = (released * target).sum(1)
        square = released.square().sum(1).clamp(min=TINY_SQUARE)
        scale = (square.sqrt() * norms).clamp(min=TINY_SQUARE)
        distance: Tensor = 1 - product / scale
        return distance

    return objective
