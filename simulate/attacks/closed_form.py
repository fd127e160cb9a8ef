"""Closed-form attacks: labels from the head's bias, the input of a dense layer from its update.

For a dense layer z = W a + b and one record, the gradients are dL/db = delta and
dL/dW = delta a^T, so a = (dL/dW)^T delta / |delta|^2: the ratio of weight to bias gradient
(Phong et al. 2018, Section 4; Geiping et al. 2020, Proposition 3.1). Where the dense layer is the
first layer, a is the record. With several records or steps the same expression is the least
squares fit of one input to the sum, and its residual says how far the update is from rank one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from simulate.attacks.view import Guess, Options, View, register
from simulate.models import layers as parts
from simulate.models.layers import Conv, Layer, Linear, Pool, Relu
from simulate.models.network import Model


@dataclass(frozen=True)
class DenseInput:
    """A dense layer's input and the gradient above it.

    Attributes:
        inputs: the input [inputs].
        slope: gradient by the layer's output [outputs].
        residual: norm of what the rank-one fit leaves of the weight gradient, over its norm.
    """

    inputs: Tensor
    slope: Tensor
    residual: float


def ratio(weight: Tensor, bias: Tensor) -> DenseInput:
    """Least squares fit of weight = bias inputs^T, in float64."""
    squares = float(bias.double().square().sum())
    if squares == 0:
        return DenseInput(torch.zeros_like(weight[0]), bias, 1.0)
    inputs = (bias @ weight).double() / squares  # [outputs] @ [outputs, inputs]: no copy
    norm = float(weight.double().norm()) if weight.numel() < 2**22 else _norm(weight)
    explained = float(inputs.square().sum()) * squares
    rest = max(0.0, norm * norm - explained)
    return DenseInput(inputs.to(weight.dtype), bias, math.sqrt(rest) / max(norm, 1e-300))


def _norm(weight: Tensor) -> float:
    """Norm of a large matrix, summed in float64 row block by row block."""
    return math.sqrt(sum(float(part.double().square().sum()) for part in torch.split(weight, 4096)))


def dense_layers(model: Model) -> list[tuple[int, slice, slice, tuple[int, int]]]:
    """Dense layers of a chain of layers: (index, weight slice, bias slice, (outputs, inputs))."""
    layers = getattr(model, "layers", ())
    found, start = [], 0
    for index, layer in enumerate(layers):
        match layer:
            case Linear(inputs, outputs):
                end = start + inputs * outputs
                found.append(
                    (index, slice(start, end), slice(end, end + outputs), (outputs, inputs))
                )
                start = end + outputs
            case Conv(inputs, outputs, size, _):
                start += outputs * (inputs * size * size + 1)
    return found


def labels_of(view: View) -> Tensor | None:
    """Labels inferred from the gradient of the head's bias [records]; None when not released.

    The gradient of the summed cross-entropy by the bias of class c is the sum over records of
    (probability of c - 1[label is c]). With one record its only negative entry is the label
    (Zhao, Mopuri and Bilen 2020). With several, labels are assigned one after another to the
    class with the smallest remaining entry, and each assignment adds one (Geng et al. 2021,
    with the mean probability 1 / classes of an untrained network).
    """
    classes = view.model.classes
    bias = slice(view.model.head.stop - classes, view.model.head.stop)
    if view.kind != "parameters" or not bool(view.mask[bias].all()):
        return None
    slopes = view.gradient[bias].double().clone()
    if view.records == 1:
        return slopes.argmin().reshape(1)
    per_client = view.records / max(1, view.clients)  # a client's gradient is a mean over records
    slopes = slopes * per_client - view.records / classes
    labels = []
    for _ in range(view.records):
        label = int(slopes.argmin())
        labels.append(label)
        slopes[label] += 1.0
    return torch.tensor(sorted(labels), device=slopes.device)


def first_dense(view: View, gradient: Tensor) -> tuple[int, DenseInput] | None:
    """Index and fit of the first dense layer of the body or head whose update is released."""
    for index, weight, bias, shape in dense_layers(view.model):
        if bool(view.mask[weight].all()) and bool(view.mask[bias].all()):
            return index, ratio(gradient[weight].view(shape), gradient[bias])
    return None


@register("closed", iterative=False, source="Phong et al. 2018; Zhao, Mopuri, Bilen 2020")
def closed(
    views: Sequence[View], options: Options, progress: Callable[[int, int], None]
) -> list[Guess]:
    """Label and dense input of each release; the image where the first layer is dense."""
    from simulate.attacks.hyperfl import body_gradient

    guesses = []
    for done, view in enumerate(views, start=1):
        if view.kind == "nothing":
            guesses.append(Guess(note="nothing is released"))
        elif view.kind == "hypernetwork":
            found = body_gradient(view)
            numbers = {"residual": found.residual, "gradient_norm": float(found.gradient.norm())}
            guesses.append(_dense_guess(view, found.view, None, numbers))
        else:
            guesses.append(_dense_guess(view, view, labels_of(view), {}))
        progress(done, len(views))
    return guesses


def _dense_guess(
    view: View, public: View, labels: Tensor | None, numbers: dict[str, float]
) -> Guess:
    """The guess from the first dense layer of parameters and their gradient."""
    dense = first_dense(public, public.gradient)
    if dense is None:
        note = "" if labels is not None else "no dense layer is released"
        return Guess(labels=labels, numbers=numbers, note=note)
    index, fit = dense
    numbers = {**numbers, "dense_residual": fit.residual}
    if index > 0:
        return Guess(labels=labels, numbers=numbers)
    pixels = view.outputs(fit.inputs.view(view.model.input_shape))
    return Guess(pixels.clamp(0, 1)[None], labels, numbers)


# --- The objective of IG below the first dense layer, whose input is known in closed form. -------
#
# The ratio of the dense layer's weight and bias gradients is its input a, and its bias gradient
# is delta = dL/dz (``closed_form``). A dummy image x is therefore compared with two things that
# the release determines: the features a(x) with a, and the gradients by the layers below. The
# latter are those of the pseudo-loss <W^T delta, a(x)>, so that neither label nor head is needed.
#
# Maximum pooling makes the landscape non-convex: a wrong position of a maximum is a local
# minimum. It is annealed (graduated non-convexity, Blake and Zisserman 1987): in the first half
# of the steps a pool is the mean of its pixels weighted by softmax(pixels / temperature), and the
# temperature falls to zero.

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
    """Distance of dummy images from the features and the gradients below the dense layer."""
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
