"""Local SGD: plain, and the rules of clients with personal parameters (heads, offsets, models)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from simulate.components import ClientBatch, LocalResult, LocalRule, Split
from simulate.local.penalised import Direction, Gradient, descend, sharpness_aware
from simulate.local.sgd import batch_sgd
from simulate.models.network import split_head


def plain_sgd() -> LocalRule:
    """Plain mini-batch SGD from the global model."""
    return LocalRule(
        "sgd", lambda batch: LocalResult(batch_sgd(batch, batch.theta)), across_groups=True
    )


def private_sgd() -> LocalRule:
    """Plain mini-batch SGD from the client's own parameters; it sends nothing."""

    def train(batch: ClientBatch) -> LocalResult:
        start = batch.personal
        if start is None:
            start = batch.theta.expand(len(batch.clients), -1)
        updates = batch_sgd(batch, start)
        return LocalResult(updates, start + updates)

    return LocalRule("private sgd", train, across_groups=True)


def additive_sgd(alpha: float) -> LocalRule:
    """Each step moves the shared and the personal offset along the same gradient.

    The larger of the two step sizes is the learning rate; ``alpha`` is the step size of the shared
    part divided by that of the personal part: 0 trains only the personal part, infinity only the
    shared one.

    Args:
        alpha: ratio of step sizes, at least 0; may be infinite.
    """
    shared = min(1.0, alpha)
    personal = min(1.0, 1 / alpha) if alpha else 1.0

    def train(batch: ClientBatch) -> LocalResult:
        offset = torch.zeros_like(batch.theta) if batch.personal is None else batch.personal
        start = (batch.theta + offset).expand(len(batch.clients), -1)
        moved = batch_sgd(batch, start, shared + personal)
        moved /= shared + personal
        return LocalResult(shared * moved, offset + personal * moved)

    return LocalRule("sgd at the sum", train, across_groups=True)


def alternating(split: Split, *, rho: float = 0.0, head_rate: float = 1.0) -> LocalRule:
    """Local training of DP2-FedSAM (its Algorithm 2, lines 5 to 17).

    The head takes plain SGD steps on the round's mini-batches. The body then takes as many SAM
    steps on the same mini-batches, whose ascent moves only the body (Equations 11 and 12).

    Args:
        split: shares the body; the head is personal.
        rho: radius of the ascent, called q in the paper; with 0 the body takes plain SGD steps.
        head_rate: the head's learning rate as a multiple of the body's.
    """
    of_body = sharpness_aware(rho) if rho else plain

    def train(batch: ClientBatch) -> LocalResult:
        head = batch.model.head
        in_head = torch.zeros_like(batch.theta)
        in_head[head] = 1.0
        start = split.use(batch.model, batch.theta, batch.personal, batch.clients)
        for_head = replace(batch, learning_rate=head_rate * batch.learning_rate)
        with_new_head = start + descend(for_head, start, within(in_head, plain))
        updates = descend(batch, with_new_head, within(1 - in_head, of_body))
        return LocalResult(updates, with_new_head[:, head])

    return LocalRule("alternating, SAM" if rho else "alternating", train, across_groups=True)


def plain(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
    """The gradient itself."""
    return gradient(thetas)


def within(part: Tensor, direction: Direction) -> Direction:
    """A direction restricted to some coordinates.

    Args:
        part: 1 for a coordinate that is trained, 0 for one that is fixed [d].
        direction: direction as a function of the gradient of the trained coordinates.
    """

    def masked(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
        return direction(thetas, starts, lambda at: gradient(at) * part)

    return masked


def generated_sgd(split: Split) -> LocalRule:
    """Plain SGD on the whole model that the server generated; a personal head is trained too.

    The updates have the length of the vectors that the clients received.

    Args:
        split: generates the clients' parameters.
    """

    def train(batch: ClientBatch) -> LocalResult:
        start = split.use(batch.model, batch.theta, batch.personal, batch.clients)
        updates = batch_sgd(batch, start)
        if batch.personal is None:
            return LocalResult(updates)
        bodies, heads = split_head(batch.model, updates)
        return LocalResult(bodies, batch.personal + heads)

    return LocalRule("sgd from what was made", train, across_groups=True)
