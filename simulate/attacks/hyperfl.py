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

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from privplan.errors import InputError
from simulate.attacks.closed_form import (
    DenseInput,
    Objective,
    dense_layers,
    dense_objective,
    labels_of,
    ratio,
)
from simulate.attacks.inversion import (
    Descent,
    Progress,
    descend,
    gradient_objective,
    joint_objective,
)
from simulate.attacks.view import Guess, Options, View, register
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
    """Recover hidden layer, embedding, body and body gradient from a hypernetwork's update."""
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


# --- ROG: gradients matched by a small image, which a network then enlarges. ---------------------
#
# K. Yue, R. Jin, C.-W. Wong, D. Baron, H. Dai, Gradient Obfuscation Gives a False Sense of
# Security in Federated Learning, USENIX Security 2023: images of half the side are optimised so
# that their bicubic enlargement has the released gradient, then a network trained on public
# images restores detail. As in HyperFL, Appendix D.1: Adam at 0.05, 100 steps. The network is a
# file of the user's, written by ``torch.export.save``, from the pixels in [0, 1] of one image,
# shape [1, channels, height, width], to the same; it is never downloaded.

STEPS = 100
DESCENT = Descent(
    rate=0.05, variation=0.0, signed=False, grey=False, milestones=(1.0,), dense=False
)
"""A constant rate: the only milestone is the end."""
NOT_AVAILABLE = "not available: its network is not on disk (--rog-network)"
FIELD = "rog-network"


def network(path: Path) -> Callable[[Tensor], Tensor]:
    """The enlarging network of a file."""
    rule = "must be a file written by torch.export.save"
    if not path.is_file():
        raise InputError.one(FIELD, rule, str(path))
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            logging.disable()  # the loader writes a traceback of its own to the log
            loaded: Callable[[Tensor], Tensor] = torch.export.load(path).module()
    except Exception:  # the loader raises errors of many kinds
        raise InputError.one(FIELD, rule, str(path)) from None
    finally:
        logging.disable(logging.NOTSET)
    return loaded


def restored(images: Tensor, restore: Callable[[Tensor], Tensor]) -> Tensor:
    """Pixels of the network, in [0, 1], of images [n, channels, height, width]."""
    try:
        with torch.no_grad():
            found: object = torch.cat([restore(image[None]) for image in images])
    except (RuntimeError, TypeError, AssertionError) as error:
        found = str(error).strip().splitlines()[-1]
    if not isinstance(found, Tensor) or found.shape != images.shape:
        shape = list(found.shape) if isinstance(found, Tensor) else found
        raise InputError.one(FIELD, f"must return images of shape {list(images.shape)}", shape)
    return found.clamp(0, 1).nan_to_num(0.5)


@register("rog", iterative=True, source="Yue et al. 2023, as in HyperFL, Appendix D.1")
def rog(views: Sequence[View], options: Options, progress: Progress) -> list[Guess]:
    """Half-size images by inversion of gradients, enlarged by a network from disk."""
    first = views[0]
    if first.kind == "nothing":
        return [Guess(note="nothing is released") for _ in views]
    if not options.rog_network:
        return [Guess(note=NOT_AVAILABLE) for _ in views]
    restore = network(Path(options.rog_network))
    count = min(first.records, options.records)
    channels, height, width = first.model.input_shape
    objective, extra = _objective(views, options, count)

    def enlarged(small: Tensor) -> Tensor:
        wide = functional.interpolate(
            small.flatten(0, 1), (height, width), mode="bicubic", align_corners=False
        )
        return wide.view(*small.shape[:2], channels, height, width)

    def from_small(small: Tensor, share: float) -> Tensor:
        return objective(enlarged(small), share)

    shape = (len(views), count, channels, (height + 1) // 2, (width + 1) // 2)
    own = replace(options, steps=STEPS)
    images, values = descend(from_small, shape, first, DESCENT, own, progress, extra)
    return [
        Guess(restored(image, restore), labels_of(view), {"objective": float(value)})
        for image, value, view in zip(
            enlarged(images).clamp(0, 1), values.nan_to_num(2.0), views, strict=True
        )
    ]


def _objective(
    views: Sequence[View], options: Options, count: int
) -> tuple[Objective, Sequence[Tensor]]:
    """Distance of gradients, and its unknowns beside the images."""
    if views[0].kind == "hypernetwork":
        return joint_objective(views, options)
    inferred = [labels_of(view) for view in views]
    labels = [one[:count] for one in inferred if one is not None]
    if len(labels) == len(views):
        return gradient_objective(views, torch.stack(labels)), ()
    device = views[0].parameters.device
    logits = torch.zeros(len(views), count, views[0].model.classes, device=device)
    logits.requires_grad_()

    def objective(inputs: Tensor, share: float) -> Tensor:
        return gradient_objective(views, logits.softmax(2))(inputs, share)

    return objective, [logits]
