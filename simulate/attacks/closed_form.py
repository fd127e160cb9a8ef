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

import torch
from torch import Tensor

from simulate.attacks.registry import Guess, Options, register
from simulate.attacks.view import View
from simulate.models.layers import Conv, Linear
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
    """Least squares fit of weight = bias inputs^T, in float64.

    Args:
        weight: gradient (or update) of the weight [outputs, inputs].
        bias: gradient (or update) of the bias [outputs].

    Returns:
        The fit; zeros with residual 1 where the bias gradient is zero.
    """
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
