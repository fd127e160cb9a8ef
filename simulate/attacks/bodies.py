"""HyperFL: a client's private body, embedding and gradient from its update.

A client's hypernetwork generates its body theta = H h + b from the hidden layer h =
relu(V v + c) of its private embedding v. After one SGD step at rate eta with body
gradient g, the updates are -eta g for b and -eta g h^T for H, and likewise -eta s v^T
for V and -eta s for c with s the gradient above the hidden layer. So g is the update of
b over -eta, and h, theta and v are ratios: everything private but the head.
docs/evidence/hyperfl.md has the derivation.

The body's last dense layer z = W a + w gives a and delta = dL/dz by the same ratio. The
gradient of the pseudo-loss <delta, z(x)> by the body's parameters is g at the client's
image x, so that inversion of gradients on the pseudo-loss needs neither embedding, head
nor label.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from simulate.attacks.dense import ratio
from simulate.attacks.view import View
from simulate.models.hypernetwork import EMBEDDING
from simulate.models.network import join_head, split_head


@dataclass(frozen=True)
class Body:
    """What the update of a hypernetwork reveals of a client.

    Attributes:
        hidden: hidden layer of the hypernetwork [H].
        embedding: of the client [E].
        body: the client's private body [D].
        gradient: of the loss by the body [D].
        residual: norm of what the rank-one fit leaves of the heads' update, over its
            norm; far above 0 for one record and step, the gradient vanished.
        view: the release as a view of model parameters, of which the head is unknown
            (zero).
    """

    hidden: Tensor
    embedding: Tensor
    body: Tensor
    gradient: Tensor
    residual: float
    view: View

    @property
    def numbers(self) -> dict[str, float]:
        """Further findings: the residual, and the norm of the gradient."""
        norm = float(self.gradient.norm())
        return {"residual": self.residual, "gradient_norm": norm}


def body_gradient(view: View) -> Body:
    """Hidden layer, embedding, body and body gradient from a hypernetwork's update."""
    sizes = view.hypernetwork
    _, _, heads, biases = torch.split(view.parameters, sizes.lengths)
    moved = view.update / (-view.learning_rate * view.steps)
    to_layer, to_offsets, to_heads, gradient = torch.split(moved, sizes.lengths)
    inner = ratio(to_layer.view(sizes.hidden, EMBEDDING), to_offsets)
    fit = ratio(to_heads.view(sizes.generated_size, sizes.hidden), gradient)
    body = heads.view(sizes.generated_size, sizes.hidden) @ fit.inputs + biases
    as_parameters = of_parameters(view, body, gradient)
    return Body(fit.inputs, inner.inputs, body, gradient, fit.residual, as_parameters)


def of_parameters(view: View, body: Tensor, gradient: Tensor) -> View:
    """The release as an update of the body [D], under a head of zeros."""
    model = view.model
    head = body.new_zeros(model.head.stop - model.head.start)
    positions = torch.arange(model.parameters, device=body.device)
    of_body, _ = split_head(model, positions)
    return replace(
        view,
        kind="parameters",
        parameters=join_head(model, body, head),
        observed=of_body,
        update=gradient * (-view.learning_rate * view.steps),
    )
