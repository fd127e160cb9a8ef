"""The objective of IG below the first dense layer, whose input has a closed form.

The ratio of the dense layer's weight and bias gradients is its input a, and its bias
gradient is delta = dL/dz. A dummy image x is therefore compared with two things that
the release determines: the features a(x) with a, and the gradients by the layers below.
The latter are those of the pseudo-loss <W^T delta, a(x)>, so that neither label nor
head is needed.

Maximum pooling makes the landscape non-convex: a wrong position of a maximum is a local
minimum. It is annealed (graduated non-convexity, Blake and Zisserman 1987): in the
first half of the steps a pool is the mean of its pixels weighted by softmax(pixels /
temperature), and the temperature falls to zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from simulate.attacks.dense import DenseInput, first_dense
from simulate.attacks.gradient_objective import TINY_SQUARE, Objective
from simulate.attacks.view import View
from simulate.models import layers as parts
from simulate.models.layers import Conv, Layer, Pool, Relu

FEATURES = 0.3  # weight of the squared error of the features; the cosine distance has 1
# Share of the steps in which pooling's temperature falls; then it is exact.
ANNEALED = 0.5
TEMPERATURES = (1.0, 0.02)  # first and last, in deviations of the pool's input
# Largest residual of the closed form at which features and slope are taken as known.
RANK_ONE = 0.5
_NORMAL_IMAGES = 16  # by which the deviation of a pool's input is estimated


def rank_one_fit(view: View) -> DenseInput | None:
    """Fit of the first dense layer where it determines one record; else None."""
    dense = first_dense(view, view.gradient) if view.records == 1 else None
    if dense is None:
        return None
    _, fit = dense
    if fit.residual > RANK_ONE:
        return None
    return fit


def dense_objective(views: Sequence[View]) -> Objective | None:
    """Distance of dummy images from features and gradients below the dense layer.

    None where a release has no dense layer.
    """
    dense = [first_dense(view, view.gradient) for view in views]
    fits = [layer_fit[1] for layer_fit in dense if layer_fit is not None]
    if len(fits) < len(dense) or dense[0] is None:
        return None
    index, _ = dense[0]
    chain: tuple[Layer, ...] = views[0].model.layers  # type: ignore[attr-defined]
    layers = chain[:index]
    size = parts.count(layers)
    bodies = torch.stack([view.parameters[:size] for view in views])
    slopes = [
        _slope(view, chain[index], size, fit)
        for view, fit in zip(views, fits, strict=True)
    ]
    return _BelowDense(
        layers,
        bodies,
        target=torch.stack([view.gradient[:size] for view in views]),
        mask=torch.stack([view.mask[:size] for view in views]),
        features=torch.stack([fit.inputs for fit in fits]),
        slopes=torch.stack(slopes),
        pool_scales=_pool_scales(layers, bodies, views[0].model.input_shape),
        has_one_record=views[0].records == 1,
    )


@dataclass(frozen=True)
class _BelowDense:
    """The objective of releases [K]: a function of inputs and the share of steps.

    Attributes:
        layers: below the dense one.
        bodies: their parameters [K, d].
        target: released gradients by these [K, d].
        mask: 1 where a gradient is released [K, d].
        features: inputs of the dense layer [K, features].
        slopes: gradients by these, up to a factor [K, features].
        pool_scales: standard deviations of the inputs of pools [K, pools].
        has_one_record: whether the features are those of an image.
    """

    layers: tuple[Layer, ...]
    bodies: Tensor
    target: Tensor
    mask: Tensor
    features: Tensor
    slopes: Tensor
    pool_scales: Tensor
    has_one_record: bool

    def __call__(self, inputs: Tensor, share: float) -> Tensor:
        """Distance of dummy images [K] from what is released."""
        gradient = grad(
            partial(self._pseudo_loss, temperature=_temperature(share)), has_aux=True
        )
        # One body of all releases is not copied for each.
        bodies = self.bodies[0] if self._is_shared else self.bodies
        by_release = vmap(gradient, in_dims=(None if self._is_shared else 0, 0, 0, 0))
        gradients, outputs = by_release(bodies, inputs, self.slopes, self.pool_scales)
        distance = inputs.new_zeros(len(inputs))
        if self.bodies.shape[1]:
            released = gradients * self.mask
            distance = 1 - functional.cosine_similarity(released, self.target, dim=1)
        if self.has_one_record:
            squares = self.features.square().sum(1).clamp(min=TINY_SQUARE)
            errors = (outputs[:, 0] - self.features).square().sum(1) / squares
            distance = distance + FEATURES * errors
        return distance

    @cached_property
    def _is_shared(self) -> bool:
        """Whether all releases have one body."""
        return bool((self.bodies == self.bodies[0]).all())

    def _pseudo_loss(
        self,
        theta: Tensor,
        x: Tensor,
        slope: Tensor,
        scales: Tensor,
        temperature: float,
    ) -> tuple[Tensor, Tensor]:
        """<slope, features>, whose gradient is the released one; and the features."""
        outputs = _forward(self.layers, theta, x, scales, temperature).flatten(1)
        return (outputs @ slope).sum(), outputs


def _slope(view: View, dense: Layer, size: int, fit: DenseInput) -> Tensor:
    """The gradient by the features, up to a factor [features].

    ``size`` parameters stand before those of the dense layer.
    """
    end = size + parts.count((dense,))
    weight = parts.split((dense,), view.parameters[size:end])[0][0]
    slope = fit.slope @ weight
    direction: Tensor = slope / slope.norm().clamp(min=TINY_SQUARE)
    return direction


def _temperature(share: float) -> float:
    """Of pooling after a share of the steps, in deviations of the pool's input."""
    if share >= ANNEALED:
        return 0.0
    hot, cold = TEMPERATURES
    fall: float = (cold / hot) ** (share / ANNEALED)
    return hot * fall


def _pool_scales(
    layers: tuple[Layer, ...], bodies: Tensor, shape: tuple[int, ...]
) -> Tensor:
    """Standard deviations of the inputs of pools on normal images [K, pools].

    Args:
        layers: below the dense layer.
        bodies: their parameters [K, d].
        shape: of an image.
    """
    source = torch.Generator().manual_seed(0)
    normal = torch.randn(_NORMAL_IMAGES, *shape, generator=source).to(bodies.device)
    pools = [index for index, layer in enumerate(layers) if isinstance(layer, Pool)]
    scales = bodies.new_zeros(len(bodies), len(pools))
    for release, theta in enumerate(bodies):
        for pool, index in enumerate(pools):
            before = layers[:index]
            values = parts.forward(before, theta[: parts.count(before)], normal)
            scales[release, pool] = values.std()
    return scales


def _forward(
    layers: tuple[Layer, ...],
    theta: Tensor,
    x: Tensor,
    scales: Tensor,
    temperature: float,
) -> Tensor:
    """Outputs of layers below a dense one, each pool at a temperature of its scale."""
    remaining = iter(scales)
    for layer, parameters in zip(layers, parts.split(layers, theta), strict=True):
        match layer:
            case Conv():
                x = functional.conv2d(
                    x, parameters[0], parameters[1], padding=layer.padding
                )
            case Relu(leak):
                x = functional.leaky_relu(x, leak)
            case Pool():
                x = _pooled(x, next(remaining), temperature)
    return x


def _pooled(x: Tensor, scale: Tensor, temperature: float) -> Tensor:
    """Mean over squares of 2 x 2 pixels weighted by softmax(pixels / temperature).

    The temperature is in units of the scale; at 0 the mean is the maximum.
    """
    if temperature == 0:
        return functional.max_pool2d(x, 2)
    # An odd last row or column is dropped.
    height = x.shape[-2] // 2 * 2
    width = x.shape[-1] // 2 * 2
    upper = x[..., 0:height:2, :]
    lower = x[..., 1:height:2, :]
    corners = [
        upper[..., 0:width:2],
        upper[..., 1:width:2],
        lower[..., 0:width:2],
        lower[..., 1:width:2],
    ]
    # A softmax of four values per square, by its definition: PyTorch's own, of a
    # batched function of which gradients are taken twice, takes three times as long.
    # The largest is subtracted so that no exponential overflows; it cancels.
    largest = functional.max_pool2d(x.detach(), 2)
    sharpness = 1 / (temperature * scale)
    total = torch.zeros_like(largest)
    weights = torch.zeros_like(largest)
    for corner in corners:
        weight = ((corner - largest) * sharpness).exp()
        total = total + corner * weight
        weights = weights + weight
    return total / weights
