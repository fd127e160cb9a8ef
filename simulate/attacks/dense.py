"""The objective of IG below the first dense layer, whose input is known in closed form.

The ratio of the dense layer's weight and bias gradients is its input a, and its bias gradient is
delta = dL/dz (``closed_form``). A dummy image x is therefore compared with two things that the
release determines: the features a(x) with a, and the gradients by the layers below. The latter are
those of the pseudo-loss <W^T delta, a(x)>, so that neither label nor head is needed.

Maximum pooling makes the landscape non-convex: a wrong position of a maximum is a local minimum.
It is annealed (graduated non-convexity, Blake and Zisserman 1987): in the first half of the steps
a pool is the mean of its pixels weighted by softmax(pixels / temperature), and the temperature
falls to zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from simulate.attacks.closed_form import DenseInput, first_dense
from simulate.attacks.view import View
from simulate.models import layers as parts
from simulate.models.layers import Conv, Layer, Pool, Relu

Objective = Callable[[Tensor, float], Tensor]
"""(model inputs [K, n, channels, height, width], completed share of the steps) to values [K]."""

Heats = tuple[float, ...]
"""Temperature of each pool in order; at 0 it is the maximum."""

FEATURES = 0.3
"""Weight of the relative squared error of the features; the cosine distance has weight 1."""
ANNEALED = 0.5
"""Share of the steps in which the temperature of pooling falls; then pooling is exact."""
TEMPERATURES = (1.0, 0.02)
"""First and last temperature, in standard deviations of the pool's input on normal images."""
RANK_ONE = 0.5
"""Largest residual of the closed form at which features and slope are taken as known."""


@dataclass(frozen=True)
class _Below:
    """What the releases determine of the layers below the first dense layer.

    Attributes:
        layers: the layers below.
        parameters: their parameters [b], or [K, b] where clients' differ.
        target: gradients by them [K, b].
        mask: 1 where a gradient is released, else 0 [K, b].
        features: inputs of the dense layer [K, features].
        slopes: gradient by the features up to a factor [K, features].
    """

    layers: tuple[Layer, ...]
    parameters: Tensor
    target: Tensor
    mask: Tensor
    features: Tensor
    slopes: Tensor


def known(view: View) -> DenseInput | None:
    """Fit of the first dense layer where it determines one record; else None."""
    found = first_dense(view, view.gradient) if view.records == 1 else None
    return None if found is None or found[1].residual > RANK_ONE else found[1]


def dense_objective(views: Sequence[View]) -> Objective | None:
    """Distance of dummy images from the features and the gradients below the dense layer.

    Args:
        views: releases of parameters of one model; parameters may differ.

    Returns:
        The objective; None where a release has no dense layer. With several records per release
        only gradients are compared, because the closed form gives a mixture of their features.
    """
    found = [first_dense(view, view.gradient) for view in views]
    fits = [one for one in found if one is not None]
    if len(fits) < len(found):
        return None
    below = _below(views, fits[0][0], [fit for _, fit in fits])
    single, shared = views[0].records == 1, below.parameters.dim() == 1
    scales = _scales(below, views[0])
    squares = below.features.square().sum(1).clamp(min=1e-30)

    def pseudo(theta: Tensor, x: Tensor, slope: Tensor, heats: Heats) -> tuple[Tensor, Tensor]:
        outputs = _forward(below.layers, theta, x, heats).flatten(1)
        return (outputs @ slope).sum(), outputs

    def objective(inputs: Tensor, share: float) -> Tensor:
        heats = tuple(scale * _temperature(share) for scale in scales)
        gradients = vmap(
            grad(partial(pseudo, heats=heats), has_aux=True), in_dims=(None if shared else 0, 0, 0)
        )
        slopes, outputs = gradients(below.parameters, inputs, below.slopes)
        distance = inputs.new_zeros(len(inputs))
        if below.target.shape[1]:
            distance = 1 - functional.cosine_similarity(slopes * below.mask, below.target, dim=1)
        if single:
            errors = (outputs[:, 0] - below.features).square().sum(1) / squares
            distance = distance + FEATURES * errors
        return distance

    return objective


def _below(views: Sequence[View], index: int, fits: Sequence[DenseInput]) -> _Below:
    first = views[0]
    layers: tuple[Layer, ...] = first.model.layers  # type: ignore[attr-defined]  # a chain
    dense = layers[index]
    size = parts.count(layers[:index])
    weights = slice(size, parts.count((*layers[:index], dense)))
    features, slopes = torch.stack([fit.inputs for fit in fits]), []
    for view, fit in zip(views, fits, strict=True):
        weight = parts.split((dense,), view.parameters[weights])[0][0]
        slope = fit.slope @ weight
        slopes.append(slope / slope.norm().clamp(min=1e-30))
    bodies = [view.parameters[:size] for view in views]
    same = all(torch.equal(body, bodies[0]) for body in bodies)
    return _Below(
        layers=layers[:index],
        parameters=bodies[0] if same else torch.stack(bodies),
        target=torch.stack([view.gradient[:size] for view in views]),
        mask=torch.stack([view.mask[:size] for view in views]),
        features=features,
        slopes=torch.stack(slopes),
    )


def _temperature(share: float) -> float:
    """Temperature after a share of the steps; 0 means the maximum."""
    hot, cold = TEMPERATURES
    return 0.0 if share >= ANNEALED else float(hot * (cold / hot) ** (share / ANNEALED))


def _scales(below: _Below, view: View) -> Heats:
    """Standard deviation of each pool's input on normal images."""
    theta = below.parameters if below.parameters.dim() == 1 else below.parameters[0]
    source = torch.Generator().manual_seed(0)
    x = torch.randn(16, *view.model.input_shape, generator=source).to(theta.device)
    found = []
    for end, layer in enumerate(below.layers):
        if isinstance(layer, Pool):
            before = below.layers[:end]
            values = parts.forward(before, theta[: parts.count(before)], x)
            found.append(float(values.std()))
    return tuple(found)


def _forward(layers: tuple[Layer, ...], theta: Tensor, x: Tensor, heats: Heats) -> Tensor:
    """Outputs of layers below a dense one, each pool at its temperature."""
    remaining = iter(heats)
    for layer, part in zip(layers, parts.split(layers, theta), strict=True):
        match layer:
            case Conv():
                x = functional.conv2d(x, part[0], part[1], padding=layer.padding)
            case Relu(leak):
                x = functional.leaky_relu(x, leak)
            case Pool():
                x = _pooled(x, next(remaining))
    return x


def _pooled(x: Tensor, temperature: float) -> Tensor:
    """Mean over squares of 2 x 2 pixels weighted by softmax(pixels / temperature)."""
    if temperature == 0:
        return functional.max_pool2d(x, 2)
    height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
    corners = torch.stack([x[..., i:height:2, j:width:2] for i in (0, 1) for j in (0, 1)])
    return (corners * (corners / temperature).softmax(0)).sum(0)
