"""The neutral local rule: plain mini-batch SGD on what the client uses.

Local SGD of clients who keep every parameter.

Local SGD at the sum of shared and personal parameters, which both take the gradient there.

First the personal head with the body fixed, then the body with the new head fixed.

Local SGD from what the server made for each client.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from simulate.components import ClientBatch, Local, LocalResult, Split
from simulate.local.penalised import Direction, Gradient, descend, sharpness_aware
from simulate.local.sgd import local_sgd
from simulate.models.network import split_head


def plain_sgd() -> Local:
    """Plain mini-batch SGD from the global model."""

    def train(work: ClientBatch) -> LocalResult:
        updates = local_sgd(
            work.model,
            work.theta,
            work.x,
            work.y,
            learning_rate=work.learning_rate,
            momentum=work.momentum,
            workers=work.workers,
        )
        return LocalResult(updates)

    return Local("sgd", train)


def private_sgd() -> Local:
    """Plain mini-batch SGD from the client's own parameters; it sends nothing."""

    def train(work: ClientBatch) -> LocalResult:
        start = work.theta.expand(len(work.clients), -1) if work.personal is None else work.personal
        updates = local_sgd(
            work.model,
            start,
            work.x,
            work.y,
            learning_rate=work.learning_rate,
            momentum=work.momentum,
            workers=work.workers,
        )
        return LocalResult(updates, start + updates)

    return Local("private sgd", train)


def additive_sgd(alpha: float) -> Local:
    """Each step moves the shared and the personal part along the same gradient.

    The larger of the two step sizes is the learning rate and ``alpha`` is the shared one divided
    by the personal one: 0 learns at the client alone, infinity learns the global model alone.

    Args:
        alpha: from 0 on; may be infinite.
    """
    shared = min(1.0, alpha)
    personal = min(1.0, 1 / alpha) if alpha else 1.0

    def train(work: ClientBatch) -> LocalResult:
        kept = torch.zeros_like(work.theta) if work.personal is None else work.personal
        moved = local_sgd(
            work.model,
            (work.theta + kept).expand(len(work.clients), -1),
            work.x,
            work.y,
            learning_rate=(shared + personal) * work.learning_rate,
            momentum=work.momentum,
            workers=work.workers,
        )
        moved /= shared + personal
        return LocalResult(shared * moved, kept + personal * moved)

    return Local("sgd at the sum", train)


def alternating(split: Split, *, rho: float = 0.0, head_rate: float = 1.0) -> Local:
    """Local training of DP2-FedSAM (its Algorithm 2, lines 5 to 17).

    The head takes plain SGD steps on the round's mini-batches. The body then takes as many SAM
    steps on the same mini-batches, whose ascent moves the body alone (Equations 11 and 12).

    Args:
        split: shares the body and keeps the head.
        rho: radius of the ascent, called q in the paper; with 0 the body takes plain SGD steps.
        head_rate: the head's learning rate as a multiple of the body's.
    """
    of_body = sharpness_aware(rho) if rho else plain

    def train(work: ClientBatch) -> LocalResult:
        head = work.model.head
        in_head = torch.zeros_like(work.theta)
        in_head[head] = 1.0
        start = split.use(work.model, work.theta, work.personal, work.clients)
        for_head = replace(work, learning_rate=head_rate * work.learning_rate)
        begun = start + descend(for_head, start, within(in_head, plain))
        moved = descend(work, begun, within(1 - in_head, of_body))
        return LocalResult(moved, begun[:, head])

    return Local("alternating, SAM" if rho else "alternating", train)


def plain(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
    """The gradient itself."""
    return gradient(thetas)


def within(part: Tensor, direction: Direction) -> Direction:
    """A direction that sees and moves some coordinates alone.

    Args:
        part: 1 for a coordinate that moves, 0 for one that is fixed [d].
        direction: what it does with the gradient of these coordinates.
    """

    def masked(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
        return direction(thetas, starts, lambda at: gradient(at) * part)

    return masked


def generated_sgd(split: Split) -> Local:
    """Plain SGD on the whole model; a head that is the client's own moves with the rest.

    The updates are as long as what the clients were sent.

    Args:
        split: makes the clients' parameters.
    """

    def train(work: ClientBatch) -> LocalResult:
        start = split.use(work.model, work.theta, work.personal, work.clients)
        updates = local_sgd(
            work.model,
            start,
            work.x,
            work.y,
            learning_rate=work.learning_rate,
            momentum=work.momentum,
            workers=work.workers,
        )
        if work.personal is None:
            return LocalResult(updates)
        bodies, heads = split_head(work.model, updates)
        return LocalResult(bodies, work.personal + heads)

    return Local("sgd from what was made", train)
