"""Closed-form attacks: labels from the head's bias, dense inputs and HyperFL's body by ratios.

For a dense layer z = W a + b and one record, the gradients are dL/db = delta and
dL/dW = delta a^T, so a = (dL/dW)^T delta / |delta|^2: the ratio of weight to bias gradient
(Phong et al. 2018, Section 4; Geiping et al. 2020, Proposition 3.1). Where the dense layer is the
first layer, a is the record. With several records or steps the same expression is the least
squares fit of one input to the sum, and its residual says how far the update is from rank one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from simulate.attacks.view import Guess, Options, View, register
from simulate.models.layers import Conv, Linear
from simulate.models.network import Model, join_head, split_head


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
    # In blocks of rows: a copy of a large matrix in float64 needs too much memory.
    parts = torch.split(weight, 4096)
    norm = math.sqrt(sum(float(part.double().square().sum()) for part in parts))
    explained = float(inputs.square().sum()) * squares
    rest = max(0.0, norm * norm - explained)
    return DenseInput(inputs.to(weight.dtype), bias, math.sqrt(rest) / max(norm, 1e-300))


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


# --- HyperFL: a client's private body, embedding and gradient from its hypernetwork's update. -----
#
# A client's hypernetwork generates its body theta = H h + b from the hidden layer
# h = relu(V v + c) of its private embedding v. After one SGD step at rate eta with body gradient
# g, the updates are -eta g for b and -eta g h^T for H, and likewise -eta s v^T for V and -eta s
# for c with s the gradient above the hidden layer. So g is the update of b over -eta, and h, theta
# and v are ratios: everything private but the head. docs/hyperfl.md has the derivation.
#
# The body's last dense layer z = W a + w gives a and delta = dL/dz by the same ratio. The gradient
# of the pseudo-loss <delta, z(x)> by the body's parameters is g at the client's image x, so that
# inversion of gradients on the pseudo-loss needs neither embedding, head nor label.


@dataclass(frozen=True)
class Body:
    """What the update of a hypernetwork reveals of a client.

    Attributes:
        hidden: hidden layer of the hypernetwork [H].
        embedding: the client's embedding [E].
        body: the client's private body [made].
        gradient: gradient of the loss by the body [made].
        residual: norm of what the rank-one fit leaves of the heads' update, over its norm; far
            above 0 for one record and step, the gradient vanished.
        view: the release as a view of model parameters: body known, head unknown (zero).
    """

    hidden: Tensor
    embedding: Tensor
    body: Tensor
    gradient: Tensor
    residual: float
    view: View


def body_gradient(view: View) -> Body:
    """Recover hidden layer, embedding, body and body gradient from a hypernetwork's update."""
    sizes = view.hypernetwork
    lengths = [sizes.hidden * sizes.embedding, sizes.hidden, sizes.made * sizes.hidden, sizes.made]
    _, _, heads, own = torch.split(view.parameters, lengths)
    moved = view.update / (-view.learning_rate * view.steps)
    to_layer, to_offsets, to_heads, gradient = torch.split(moved, lengths)
    inner = ratio(to_layer.view(sizes.hidden, sizes.embedding), to_offsets)
    fit = ratio(to_heads.view(sizes.made, sizes.hidden), gradient)
    body = heads.view(sizes.made, sizes.hidden) @ fit.inputs + own
    head = torch.zeros(view.model.head.stop - view.model.head.start, device=body.device)
    as_parameters = replace(
        view,
        kind="parameters",
        parameters=join_head(view.model, body, head),
        observed=split_head(view.model, torch.arange(view.model.parameters, device=body.device))[0],
        update=gradient * (-view.learning_rate * view.steps),
    )
    return Body(fit.inputs, inner.inputs, body, gradient, fit.residual, as_parameters)


def last_dense(body: Body) -> tuple[int, DenseInput] | None:
    """Index among the layers and fit of the body's last dense layer; None without one."""
    model, gradient = body.view.model, body.view.gradient
    found = [dense for dense in dense_layers(model) if dense[1].stop <= model.head.start]
    if not found:
        return None
    index, weight, bias, shape = found[-1]
    return index, ratio(gradient[weight].view(shape), gradient[bias])


# -------------------------------------------------------------------------------------------------


@register("closed", iterative=False, source="Phong et al. 2018; Zhao, Mopuri, Bilen 2020")
def closed(
    views: Sequence[View], options: Options, progress: Callable[[int, int], None]
) -> list[Guess]:
    """Label and dense input of each release; the image where the first layer is dense."""
    guesses = []
    for done, view in enumerate(views, start=1):
        guesses.append(_guess(view))
        progress(done, len(views))
    return guesses


def _guess(view: View) -> Guess:
    if view.kind == "nothing":
        return Guess(note="nothing is released")
    numbers: dict[str, float] = {}
    labels = labels_of(view)
    if view.kind == "hypernetwork":
        found = body_gradient(view)
        view = found.view
        numbers = {"residual": found.residual, "gradient_norm": float(found.gradient.norm())}
    dense = first_dense(view, view.gradient)
    if dense is None:
        note = "" if labels is not None else "no dense layer is released"
        return Guess(labels=labels, numbers=numbers, note=note)
    index, fit = dense
    numbers["dense_residual"] = fit.residual
    if index > 0:
        return Guess(labels=labels, numbers=numbers)
    pixels = view.outputs(fit.inputs.view(view.model.input_shape))
    return Guess(pixels.clamp(0, 1)[None], labels, numbers)
