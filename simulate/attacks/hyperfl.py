"""The closed form on HyperFL, and IG on the pseudo-loss that follows from it.

A client's hypernetwork generates its body theta = H h + b from the hidden layer
h = relu(V v + c) of its private embedding v. After one SGD step at rate eta with body gradient g,
the updates are -eta g for b and -eta g h^T for H, and likewise -eta s v^T for V and -eta s for c
with s the gradient above the hidden layer. So g is the update of b over -eta, and h, theta and v
are ratios: everything private but the head. docs/hyperfl.md has the derivation.

The body's last dense layer z = W a + w gives a and delta = dL/dz by the same ratio. The gradient
of the pseudo-loss <delta, z(x)> by the body's parameters is g at the client's image x, so that IG
on the pseudo-loss needs neither embedding, head nor label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from simulate.attacks.closed_form import DenseInput, dense_layers, ratio
from simulate.attacks.dense import dense_objective
from simulate.attacks.inversion import Descent, descend
from simulate.attacks.registry import Guess, Options
from simulate.attacks.view import View
from simulate.models.network import join_head, split_head

VANISHED = 0.1
"""Residual of the rank-one fit of one step on one record, without noise, above which the update
is dominated by rounding: the gradient vanished."""


@dataclass(frozen=True)
class Body:
    """What the update of a hypernetwork reveals of a client.

    Attributes:
        hidden: hidden layer of the hypernetwork [H].
        embedding: the client's embedding [E].
        body: the client's private body [made].
        gradient: gradient of the loss by the body [made].
        residual: norm of what the rank-one fit leaves of the heads' update, over its norm.
        view: the release as a view of model parameters: body known, head unknown (zero).
        vanished: whether the gradient is below the resolution of the update.
    """

    hidden: Tensor
    embedding: Tensor
    body: Tensor
    gradient: Tensor
    residual: float
    view: View
    vanished: bool


def body_gradient(view: View, *, biases: bool = True) -> Body:
    """Recover hidden layer, embedding, body and body gradient from a hypernetwork's update.

    Args:
        view: a release of kind ``hypernetwork``.
        biases: whether the hypernetwork's heads have biases whose update is used; without them
            the embedding is recovered from the hidden layer's own weights and biases first.
    """
    sizes = view.hypernetwork
    lengths = [sizes.hidden * sizes.embedding, sizes.hidden, sizes.made * sizes.hidden, sizes.made]
    layer, offsets, heads, own = torch.split(view.parameters, lengths)
    moved = view.update / (-view.learning_rate * view.steps)
    to_layer, to_offsets, to_heads, to_own = torch.split(moved, lengths)
    matrix = to_heads.view(sizes.made, sizes.hidden)
    inner = ratio(to_layer.view(sizes.hidden, sizes.embedding), to_offsets)
    if biases:
        fit = ratio(matrix, to_own)
        hidden, gradient, residual = fit.inputs, to_own, fit.residual
    else:
        hidden = (layer.view(sizes.hidden, -1) @ inner.inputs + offsets).relu()
        gradient = matrix @ hidden / hidden.square().sum().clamp(min=1e-30)
        left = (matrix - gradient[:, None] * hidden).norm()
        residual = float(left / matrix.norm().clamp(min=1e-30))
    body = heads.view(sizes.made, sizes.hidden) @ hidden + own
    alone = view.clients == view.records == view.steps == 1 and view.noise_std == 0
    return Body(
        hidden=hidden,
        embedding=inner.inputs,
        body=body,
        gradient=gradient,
        residual=residual,
        view=_as_parameters(view, body, gradient),
        vanished=bool(gradient.abs().max() == 0) or (alone and residual > VANISHED),
    )


def _as_parameters(view: View, body: Tensor, gradient: Tensor) -> View:
    """A view of the body's parameters, with a head of zeros that is not released."""
    size = view.model.head.stop - view.model.head.start
    indices = torch.arange(view.model.parameters, device=body.device)
    return replace(
        view,
        kind="parameters",
        parameters=join_head(view.model, body, torch.zeros(size, device=body.device)),
        observed=split_head(view.model, indices)[0],
        update=gradient * (-view.learning_rate * view.steps),
    )


def last_dense(body: Body) -> tuple[int, DenseInput] | None:
    """Index among the layers and fit of the body's last dense layer; None without one."""
    found = [
        dense
        for dense in dense_layers(body.view.model)
        if dense[1].stop <= body.view.model.head.start
    ]
    if not found:
        return None
    index, weight, bias, shape = found[-1]
    gradient = body.view.gradient
    return index, ratio(gradient[weight].view(shape), gradient[bias])


def invert_hypernetwork(
    views: Sequence[View],
    options: Options,
    progress: Callable[[int, int], None],
    descent: Descent,
) -> list[Guess]:
    """The closed form on each release, then IG on the pseudo-loss."""
    bodies = [body_gradient(view) for view in views]
    objective = dense_objective([body.view for body in bodies])
    if objective is None:
        return [Guess(note="the body has no dense layer") for _ in views]
    count = min(views[0].records, options.records)
    shape = (len(views), count, *views[0].model.input_shape)
    images, values = descend(objective, shape, views[0], descent, options, progress)
    return [
        Guess(
            image,
            None,
            {
                "objective": float(value) if bool(value.isfinite()) else 2.0,
                "residual": body.residual,
                "gradient_norm": float(body.gradient.norm()),
                "vanished": float(body.vanished),
            },
        )
        for image, value, body in zip(images, values, bodies, strict=True)
    ]
