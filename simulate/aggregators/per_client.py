"""Aggregators of releases by single clients: weighted means and the update of a hypernetwork."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from privplan.plan import GroupPlan, Plan
from simulate.aggregators.robust_pca import pursuit
from simulate.components import Aggregator, Released, State
from simulate.models.hypernetwork import EMBEDDING, Hypernetwork, pull_back

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
            return torch.zeros_like(theta), state
        counts = counts.double() / counts.max()
        return (counts / counts.sum()).to(updates) @ updates, state

    return Aggregator(name, planned_weight, combine)


def planned_weight(group: GroupPlan, plan: Plan) -> float:
    """Planned weight of a group divided by its number of clients."""
    return group.weight / group.clients


def as_planned(updates: Tensor, releases: Sequence[Released]) -> Tensor:
    """The planned weights, as in the clients' ledger lines."""
    return torch.tensor([release.record.shares[0].weight for release in releases])


def by_noise(rows: int) -> Weights:
    """Weights 1 / sigma_i^2 with noise estimated from the updates only (Robust-HDP, Algorithm 1).

    Args:
        rows: rows p' of the sub-matrices that are decomposed (Section 3.6).
    """

    def weights(updates: Tensor, releases: Sequence[Released]) -> Tensor:
        return 1 / noise_estimates(updates, rows)

    return weights


def noise_estimates(updates: Tensor, rows: int) -> Tensor:
    """Returns estimates of sigma_i^2 of each update up to a common factor [K], float64.

    Args:
        updates: noisy updates of K clients [K, k]; a column of the matrix M each.
        rows: rows p' of a sub-matrix; with fewer coordinates there is one matrix.
    """
    size = updates.shape[1]
    width = min(rows, size)
    parts = size // width
    estimate = torch.zeros(len(updates), dtype=torch.float64, device=updates.device)
    for part in range(parts):
        _, sparse = pursuit(updates[:, part * width : (part + 1) * width].T)
        estimate += sparse.square().sum(0)
    smallest = torch.finfo(torch.float64).tiny
    return (estimate / parts * (size / width)).clamp(min=smallest)


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
