"""Aggregators of releases by single clients: weighted means, and a hypernetwork's step.

The weights are planned, or follow from the updates alone, as in Robust-HDP: both are
functions of releases, so they have no privacy cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from privplan.plan import GroupPlan, Plan
from simulate.aggregators import WEIGHT
from simulate.components import Aggregator, Received, State, Step
from simulate.models.hypernetwork import EMBEDDING, Hypernetwork
from simulate.pursuit import pursuit

# Most clients in a decomposition: its time grows with the cube of their number.
BLOCK_CLIENTS = 200
# Accuracy of a decomposition: weights need no more.
WEIGHT_TOLERANCE = 1e-4

Weights = Callable[[Tensor, Sequence[Received]], Tensor]
"""(updates [K, k], releases) to the unnormalised weight of each client's update [K]."""


def client_mean(name: str, weights: Weights) -> Aggregator:
    """A weighted mean of clients' updates.

    A zero update was not finite, and has weight 0. Weights that follow from the
    updates, and so are in no plan, are summed in the state.
    """

    def combine(releases: Sequence[Received], theta: Tensor, state: State) -> Step:
        if not releases:
            return torch.zeros_like(theta), state
        updates = torch.stack([release.vector for release in releases])
        unnormalised = weights(updates, releases).to(updates.device)
        counts = torch.where(updates.any(1), unnormalised, 0.0)
        if not counts.any():
            return torch.zeros_like(updates[0]), state

        # The largest becomes 1 first: weights far from 1 would overflow in their sum.
        counts = counts.double() / counts.max()
        shares = counts / counts.sum()
        sums = dict(state)
        if weights is not as_planned:
            for release, share in zip(releases, shares, strict=False):
                key = WEIGHT + release.groups[0].name
                sums[key] = sums.get(key, 0.0) + share
        return shares.to(updates) @ updates, sums

    return Aggregator(name, planned_weight, combine)


def planned_weight(group: GroupPlan, plan: Plan) -> float:
    """Planned weight of a group divided by its number of clients."""
    return group.weight / group.clients


def as_planned(updates: Tensor, releases: Sequence[Received]) -> Tensor:
    """The planned weights."""
    return torch.tensor([release.factor for release in releases])


def by_noise(rows: int, matrices: int = 1) -> Weights:
    """Weights 1 / sigma_i^2, the noise as estimated (Robust-HDP, Algorithm 1)."""

    def weights(updates: Tensor, releases: Sequence[Received]) -> Tensor:
        return 1 / noise_estimates(updates, rows, matrices)

    return weights


def by_norm(updates: Tensor, releases: Sequence[Received]) -> Tensor:
    """Weights by the inverse of the squared norm of each update, without Robust PCA."""
    squares = updates.double().square().sum(1)
    return 1 / squares.clamp(min=torch.finfo(torch.float64).tiny)


def noise_estimates(updates: Tensor, rows: int, matrices: int = 1) -> Tensor:
    """Estimates of sigma_i^2 of each update up to a common factor [K], float64.

    Robust PCA splits sub-matrices of random rows, and of at most ``BLOCK_CLIENTS``
    random clients, into a low-rank part, the common signal, and a sparse part, the
    noise. The share of a client's squared norm that is noise, times its squared norm
    over all rows, is the estimate: the norm is exact, and only the share has the error
    of a sample.

    Args:
        updates: of the clients [K, k].
        rows: coordinates of each sub-matrix.
        matrices: largest number of sub-matrices.
    """
    clients, size = updates.shape
    # A public seed: the rows and blocks are the same in every run.
    source = torch.Generator().manual_seed(size)
    samples = _rows(size, rows, matrices, source)
    blocks = _blocks(clients, source)

    noise = torch.zeros(clients, dtype=torch.float64, device=updates.device)
    total = torch.zeros_like(noise)
    for sample in samples:
        chosen = updates[:, sample.to(updates.device)]
        total += chosen.double().square().sum(1)
        for block in blocks:
            members = block.to(updates.device)
            _, sparse = pursuit(chosen[members].T, tolerance=WEIGHT_TOLERANCE)
            noise[members] += sparse.square().sum(0)

    smallest = torch.finfo(torch.float64).tiny
    share = noise / total.clamp(min=smallest)
    return (share * updates.double().square().sum(1)).clamp(min=smallest)


def _rows(
    size: int, rows: int, matrices: int, source: torch.Generator
) -> Sequence[Tensor]:
    """Random coordinates of each sub-matrix; all of them, if they are few."""
    width = min(rows, size)
    order = torch.arange(size)
    if width < size:
        order = torch.randperm(size, generator=source)
    return torch.split(order, width)[: min(matrices, size // width)]


def _blocks(clients: int, source: torch.Generator) -> Sequence[Tensor]:
    """Random clients of each decomposition: as few blocks as the limit allows."""
    blocks = math.ceil(clients / BLOCK_CLIENTS)
    order = torch.randperm(clients, generator=source)
    return torch.split(order, math.ceil(clients / blocks))


def through_hypernetwork(population: int, hidden: int, rate: float) -> Aggregator:
    """The chain rule of pFedHN (its Algorithm 1), for releases by single clients.

    The hypernetwork moves by ``rate`` times the mean, over the expected cohort, of the
    product of each client's change with the derivative of its model by the
    hypernetwork; the embedding of each participant moves by ``rate`` times the product
    with the derivative by the embedding.

    Args:
        population: number of clients.
        hidden: width of the hypernetwork.
        rate: learning rate of the server.
    """

    def weight(group: GroupPlan, plan: Plan) -> float:
        return 1.0 / sum(group.expected_cohort for group in plan.groups)

    def combine(releases: Sequence[Received], theta: Tensor, state: State) -> Step:
        step = torch.zeros_like(theta)
        if not releases:
            return step, state
        changes = torch.stack([release.vector for release in releases])
        numbers = [release.client for release in releases]
        clients = torch.tensor(numbers, device=theta.device)

        # Both the vector and the step are (hypernetwork, embeddings, head).
        network = Hypernetwork(changes.shape[1], hidden)
        of_network = slice(network.parameters)
        end = network.parameters + population * EMBEDDING
        of_embeddings = slice(network.parameters, end)
        embeddings = theta[of_embeddings].view(population, -1)[None, clients]

        # ``pull_back`` adds to the hypernetwork's part of the step in place.
        slopes = network.pull_back(
            theta[None, of_network],
            embeddings,
            changes[None],
            step[None, of_network],
            releases[0].factor * rate,
        )[0]
        moves = step[of_embeddings].view(population, -1)
        moves.index_add_(0, clients, slopes, alpha=rate)
        return step, state

    return Aggregator("through the hypernetwork", weight, combine)
