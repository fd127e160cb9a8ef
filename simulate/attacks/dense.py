"""Closed forms of gradients: the input of a dense layer, and labels.

For a dense layer z = W a + b and one record, the gradients are dL/db = delta and dL/dW
= delta a^T, so a = (dL/dW)^T delta / |delta|^2: the ratio of weight to bias gradient
(Phong et al. 2018, Section 4; Geiping et al. 2020, Proposition 3.1). Where the dense
layer is the first layer, a is the record. With several records or steps the same
expression is the least squares fit of one input to the sum, and its residual says how
far the update is from rank one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from simulate.attacks.view import View
from simulate.models import layers as parts
from simulate.models.layers import Linear
from simulate.models.network import Model

BLOCK_ROWS = 4096  # of a weight matrix that are copied in float64 at a time
_TINY = 1e-300  # stands for the norm of a gradient of zeros


@dataclass(frozen=True)
class DenseInput:
    """A dense layer's input and the gradient above it.

    Attributes:
        inputs: of the layer [inputs].
        slope: gradient by the layer's output [outputs].
        residual: norm of what the rank-one fit leaves of the weight gradient, over its
            norm.
    """

    inputs: Tensor
    slope: Tensor
    residual: float


def ratio(weight: Tensor, bias: Tensor) -> DenseInput:
    """Least squares fit of weight = bias inputs^T, in float64."""
    squares = float(bias.double().square().sum())
    if squares == 0:
        return DenseInput(torch.zeros_like(weight[0]), bias, 1.0)
    # [outputs] @ [outputs, inputs]: no copy.
    inputs = (bias @ weight).double() / squares
    # In blocks of rows: a copy of a large matrix in float64 needs too much memory.
    blocks = torch.split(weight, BLOCK_ROWS)
    norm = math.sqrt(sum(float(block.double().square().sum()) for block in blocks))
    explained = float(inputs.square().sum()) * squares
    unexplained = math.sqrt(max(0.0, norm * norm - explained))
    return DenseInput(inputs.to(weight.dtype), bias, unexplained / max(norm, _TINY))


class DenseLayer(NamedTuple):
    """A dense layer of a chain: its number, and its slices of the flat parameters."""

    number: int
    weight: slice
    bias: slice
    shape: tuple[int, int]

    def fit(self, gradient: Tensor) -> DenseInput:
        """The input that a gradient [D] tells."""
        return ratio(gradient[self.weight].view(self.shape), gradient[self.bias])


def dense_layers(model: Model) -> list[DenseLayer]:
    """Dense layers of a chain of layers; none of other models."""
    dense = []
    start = 0
    for index, layer in enumerate(getattr(model, "layers", ())):
        if isinstance(layer, Linear):
            weight = slice(start, start + layer.inputs * layer.outputs)
            bias = slice(weight.stop, weight.stop + layer.outputs)
            shape = (layer.outputs, layer.inputs)
            dense.append(DenseLayer(index, weight, bias, shape))
        start += parts.count((layer,))
    return dense


def labels_of(view: View) -> Tensor | None:
    """Labels by the gradient of the head's bias [records]; None if not released.

    The gradient of the summed cross-entropy by the bias of class c is the sum over
    records of (probability of c - 1[label is c]). With one record its only negative
    entry is the label (Zhao, Mopuri and Bilen 2020). With several, labels are assigned
    one after another to the class with the smallest remaining entry, and each
    assignment adds one (Geng et al. 2021, with the mean probability 1 / classes of an
    untrained network).
    """
    classes = view.model.classes
    bias = slice(view.model.head.stop - classes, view.model.head.stop)
    if view.kind != "parameters" or not bool(view.mask[bias].all()):
        return None
    slopes = view.gradient[bias].double().clone()
    if view.records == 1:
        return slopes.argmin().reshape(1)
    # A client's gradient is a mean over its records.
    per_client = view.records / max(1, view.clients)
    slopes = slopes * per_client - view.records / classes
    labels = []
    for _ in range(view.records):
        label = int(slopes.argmin())
        labels.append(label)
        slopes[label] += 1.0
    return torch.tensor(sorted(labels), device=slopes.device)


def first_dense(view: View, gradient: Tensor) -> tuple[int, DenseInput] | None:
    """Index and fit of the first dense layer of body or head that is released."""
    for layer in dense_layers(view.model):
        is_weight_released = bool(view.mask[layer.weight].all())
        if is_weight_released and bool(view.mask[layer.bias].all()):
            return layer.number, layer.fit(gradient)
    return None
