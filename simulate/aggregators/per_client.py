"""Aggregators of releases by single clients: weighted means and the update of a hypernetwork."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from privplan.plan import GroupPlan, Plan
from simulate.aggregators.robust_pca import pursuit
from simulate.components import Aggregator, Released, State
from simulate.models.hypernetwork import EMBEDDING, Hypernetwork, pull_back

BLOCK_CLIENTS = 200
"""Most clients in a decomposition: its time grows with the cube of their number."""
TOLERANCE = 1e-4
"""Accuracy of a decomposition: weights need no more."""

Weights = Callable[[Tensor, Sequence[Released]], Tensor]
"""(updates [K, k], releases) to the unnormalised weight of each client's update [K]."""


def client_mean(name: str, weights: Weights) -> Aggregator:
    """A weighted mean of clients' updates; post-processing, so it has no privacy cost.

    A zero update was not finite at its client and has weight 0.

    Args:
        name: for messages and records.
        weights: unnormalised weights of the updates.
    """

    def combine(releases: Sequence[Released], theta: Tensor, state: State) -> tuple[Tensor, State]:
        if not releases:
            return torch.zeros_like(theta), state
        updates = torch.stack([release.vector for release in releases])
        counts = torch.where(updates.any(1), weights(updates, releases).to(updates.device), 0.0)
        if not counts.any():
            return torch.zeros_like(updates[0]), state
        counts = counts.double() / counts.max()
        return (counts / counts.sum()).to(updates) @ updates, state

    return Aggregator(name, planned_weight, combine)


def planned_weight(group: GroupPlan, plan: Plan) -> float:
    """Planned weight of a group divided by its number of clients."""
    return group.weight / group.clients


def as_planned(updates: Tensor, releases: Sequence[Released]) -> Tensor:
    """The planned weights, as in the clients' ledger lines."""
    return torch.tensor([release.record.shares[0].weight for release in releases])


def by_noise(rows: int, matrices: int = 1) -> Weights:
    """Weights 1 / sigma_i^2 with noise estimated from the updates only (Robust-HDP, Algorithm 1).

    Args:
        rows: rows p' of the sub-matrices that are decomposed (Section 3.6).
        matrices: number Q of sub-matrices.
    """

    def weights(updates: Tensor, releases: Sequence[Released]) -> Tensor:
        return 1 / noise_estimates(updates, rows, matrices)

    return weights


def by_norm(updates: Tensor, releases: Sequence[Released]) -> Tensor:
    """Weights by the inverse of the squared norm of each update, without Robust PCA."""
    return 1 / updates.double().square().sum(1).clamp(min=torch.finfo(torch.float64).tiny)


def noise_estimates(updates: Tensor, rows: int, matrices: int = 1) -> Tensor:
    """Returns estimates of sigma_i^2 of each update up to a common factor [K], float64.

    Robust PCA splits sub-matrices of random rows, and of at most ``BLOCK_CLIENTS`` random clients,
    into a low-rank part, the common signal, and the rest, the noise. The share of a client's
    squared norm that is noise, times its squared norm over all rows, is the estimate: the norm is
    exact, and only the share has the error of a sample.

    Args:
        updates: noisy updates of K clients [K, k]; a column of the matrix M each.
        rows: rows p' of a sub-matrix; with fewer coordinates there is one matrix of all rows.
        matrices: number Q of sub-matrices, which are disjoint; fewer where the rows do not suffice.
    """
    clients, size = updates.shape
    width = min(rows, size)
    source = torch.Generator().manual_seed(size)  # public, the same in every run
    order = torch.randperm(size, generator=source) if width < size else torch.arange(size)
    parts = torch.split(order, width)[: min(matrices, size // width)]
    drawn = torch.randperm(clients, generator=source)
    blocks = torch.split(drawn, -(-clients // -(-clients // BLOCK_CLIENTS)))
    noise = torch.zeros(clients, dtype=torch.float64, device=updates.device)
    total = torch.zeros_like(noise)
    for part in parts:
        chosen = updates[:, part.to(updates.device)]
        total += chosen.double().square().sum(1)
        for block in blocks:
            members = block.to(updates.device)
            _, sparse = pursuit(chosen[members].T, tolerance=TOLERANCE)
            noise[members] += sparse.square().sum(0)
    smallest = torch.finfo(torch.float64).tiny
    share = noise / total.clamp(min=smallest)
    return (share * updates.double().square().sum(1)).clamp(min=smallest)


def through_hypernetwork(population: int, hidden: int, rate: float) -> Aggregator:
    """The chain rule of pFedHN (its Algorithm 1), for releases by single clients.

    The hypernetwork moves by ``rate`` times the mean, over the expected cohort, of the product of
    each client's change with the derivative of its model by the hypernetwork; the embedding of
    each participant moves by ``rate`` times the product with the derivative by the embedding.

    Args:
        population: clients in all groups.
        hidden: units of the hypernetwork's hidden layer.
        rate: the server's learning rate.
    """

    def weight(group: GroupPlan, plan: Plan) -> float:
        return 1.0 / sum(group.expected_cohort for group in plan.groups)

    def combine(releases: Sequence[Released], theta: Tensor, state: State) -> tuple[Tensor, State]:
        step = torch.zeros_like(theta)
        if not releases:
            return step, state
        changes = torch.stack([release.vector for release in releases])
        clients = torch.tensor([release.client for release in releases], device=theta.device)
        factor = releases[0].record.shares[0].weight * rate
        network = Hypernetwork(changes.shape[1], hidden)
        end = network.parameters + population * EMBEDDING
        embeddings = theta[network.parameters : end].view(population, -1)[None, clients]
        weights, to_weights = theta[None, : network.parameters], step[None, : network.parameters]
        slopes = pull_back(network, weights, embeddings, changes[None], to_weights, factor)[0]
        step[network.parameters : end].view(population, -1).index_add_(
            0, clients, slopes, alpha=rate
        )
        return step, state

    return Aggregator("through the hypernetwork", weight, combine)
