"""Local training of HyperFL: first the personal head, then hypernetwork and embedding."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from simulate.components import ClientBatch, LocalResult, LocalRule, Split
from simulate.local.sgd import PADDING, descend, gradients_at, pixels, plain, within
from simulate.models.hypernetwork import EMBEDDING, Hypernetwork, generated, of_body, pull_back
from simulate.models.network import join_head, split_head
from simulate.parallel import by_chunk

CHUNK_VALUES = 2**20
"""Parameters of hypernetworks per chunk of one core: 4 MB."""


def hypernetwork_sgd(split: Split, *, hidden: int, head_rate: float) -> LocalRule:
    """Local training of HyperFL (its Equations 4 and 5).

    The head takes SGD steps for one epoch over the client's records; then hypernetwork and
    embedding take the round's local steps, with the new head fixed.
    """

    def train(batch: ClientBatch) -> LocalResult:
        network = of_body(batch.model, hidden)
        heads = _heads(batch, split, head_rate)
        personal = batch.theta[network.parameters :] if batch.personal is None else batch.personal
        embeddings = personal.expand(len(batch.clients), -1)[:, :EMBEDDING]

        def train_rows(rows: slice) -> tuple[Tensor, Tensor]:
            return _descended(batch, network, rows, embeddings[rows].clone(), heads[rows])

        size = max(1, CHUNK_VALUES // network.parameters)
        parts = by_chunk(train_rows, len(batch.clients), size, batch.workers)
        updates, embeddings = (torch.cat(rows) for rows in zip(*parts, strict=True))
        return LocalResult(updates, torch.cat([embeddings, heads], 1))

    return LocalRule("alternating, hypernetwork", train)


def _heads(batch: ClientBatch, split: Split, head_rate: float) -> Tensor:
    """The clients' heads after one epoch over their records with a fixed body [K, head]."""
    in_head = torch.zeros(batch.model.parameters, device=batch.theta.device)
    in_head[batch.model.head] = 1.0
    batches = -(-torch.from_numpy(batch.records) // batch.y.shape[2])
    later = torch.arange(batch.y.shape[1])[None, :, None] >= batches[:, None, None]
    first = replace(
        batch,
        y=batch.y.masked_fill(later.to(batch.y.device), PADDING),
        learning_rate=head_rate * batch.learning_rate,
    )
    start = split.use(batch.model, batch.theta, batch.personal, batch.clients)
    start = start.expand(len(batch.clients), -1)
    return split_head(batch.model, start + descend(first, start, within(in_head, plain)))[1]


def _descended(
    batch: ClientBatch, network: Hypernetwork, rows: slice, embeddings: Tensor, heads: Tensor
) -> tuple[Tensor, Tensor]:
    """Updates [K, d] and embeddings [K, E] of some clients; changes ``embeddings`` in place."""
    model, x, y, rate = batch.model, batch.x[rows], batch.y[rows], batch.learning_rate
    ends = batch.theta.repeat(len(y), 1)
    weights = ends[:, : network.parameters]
    speed = torch.zeros_like(weights) if batch.momentum else weights
    speeds = torch.zeros_like(embeddings)
    for step in range(y.shape[1]):
        bodies = generated(network, weights, embeddings[:, None])[:, 0]
        thetas = join_head(model, bodies, heads)
        slopes, _ = split_head(model, gradients_at(model, thetas, pixels(x[:, step]), y[:, step]))
        active = (y[:, step] != PADDING).any(1, keepdim=True)
        if batch.momentum:
            speed.mul_(torch.where(active, batch.momentum, 1.0))
        factor = 1.0 if batch.momentum else -rate
        embedding_slopes = pull_back(
            network, weights, embeddings[:, None], slopes[:, None], speed, factor
        )[:, 0]
        if batch.momentum:
            weights.addcmul_(speed, active.to(speed.dtype), value=-rate)
        speeds = torch.where(active, batch.momentum * speeds + embedding_slopes, speeds)
        embeddings.sub_(rate * speeds * active)
    return ends.sub_(batch.theta), embeddings
