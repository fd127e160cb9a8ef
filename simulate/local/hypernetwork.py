"""First the personal head, then hypernetwork and embedding together, through what they make."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from simulate.components import ClientBatch, Local, LocalResult, Split
from simulate.local.penalised import descend
from simulate.local.personal import plain, within
from simulate.local.sgd import PADDING, gradients_at, pixels
from simulate.models.hypernetwork import EMBEDDING, Hypernetwork, made, of_body, pull_back
from simulate.models.network import join_head, split_head
from simulate.parallel.threads import by_chunk

CHUNK_VALUES = 2**20
"""Parameters of hypernetworks that one core trains together: 4 MB."""


def hypernetwork_sgd(split: Split, *, hidden: int, head_rate: float) -> Local:
    """Local training of HyperFL (its Equations 4 and 5).

    The head takes SGD steps for one pass over the client's records; then hypernetwork and
    embedding take the round's local steps, with the new head fixed.

    Args:
        split: shares the hypernetwork.
        hidden: units of its hidden layer.
        head_rate: the head's learning rate as a multiple of the hypernetwork's.
    """

    def train(work: ClientBatch) -> LocalResult:
        its = of_body(work.model, hidden)
        heads = _heads(work, split, head_rate)
        own = work.theta[its.parameters :] if work.personal is None else work.personal
        embeddings = own.expand(len(work.clients), -1)[:, :EMBEDDING]

        def some(rows: slice) -> tuple[Tensor, Tensor]:
            return _descended(work, its, rows, embeddings[rows].clone(), heads[rows])

        count = max(1, CHUNK_VALUES // its.parameters)
        parts = by_chunk(some, len(work.clients), count, work.workers)
        updates, embeddings = (torch.cat(found) for found in zip(*parts, strict=True))
        return LocalResult(updates, torch.cat([embeddings, heads], 1))

    return Local("alternating, hypernetwork", train)


def _heads(work: ClientBatch, split: Split, head_rate: float) -> Tensor:
    """The clients' heads after one pass over their records, the body fixed [K, head]."""
    in_head = torch.zeros(work.model.parameters, device=work.theta.device)
    in_head[work.model.head] = 1.0
    batches = -(-torch.from_numpy(work.records) // work.y.shape[2])
    later = torch.arange(work.y.shape[1])[None, :, None] >= batches[:, None, None]
    first = replace(
        work,
        y=work.y.masked_fill(later.to(work.y.device), PADDING),
        learning_rate=head_rate * work.learning_rate,
    )
    start = split.use(work.model, work.theta, work.personal, work.clients)
    start = start.expand(len(work.clients), -1)
    return split_head(work.model, start + descend(first, start, within(in_head, plain)))[1]


def _descended(
    work: ClientBatch, its: Hypernetwork, rows: slice, embeddings: Tensor, heads: Tensor
) -> tuple[Tensor, Tensor]:
    """Updates [K, d] and embeddings [K, E] of some clients; changes ``embeddings`` in place."""
    model, x, y, rate = work.model, work.x[rows], work.y[rows], work.learning_rate
    ends = work.theta.repeat(len(y), 1)
    weights = ends[:, : its.parameters]
    speed = torch.zeros_like(weights) if work.momentum else weights
    speeds = torch.zeros_like(embeddings)
    for step in range(y.shape[1]):
        bodies = made(its, weights, embeddings[:, None])[:, 0]
        thetas = join_head(model, bodies, heads)
        slopes, _ = split_head(model, gradients_at(model, thetas, pixels(x[:, step]), y[:, step]))
        active = (y[:, step] != PADDING).any(1, keepdim=True)
        if work.momentum:
            speed.mul_(torch.where(active, work.momentum, 1.0))
        factor = 1.0 if work.momentum else -rate
        found = pull_back(its, weights, embeddings[:, None], slopes[:, None], speed, factor)[:, 0]
        if work.momentum:
            weights.addcmul_(speed, active.to(speed.dtype), value=-rate)
        speeds = torch.where(active, work.momentum * speeds + found, speeds)
        embeddings.sub_(rate * speeds * active)
    return ends.sub_(work.theta), embeddings
