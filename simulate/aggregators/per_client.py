"""Weighted means of what clients sent for themselves; weights add up to 1 over a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from privplan.plan import GroupPlan, Plan
from simulate.aggregators.robust_pca import pursuit
from simulate.components import Aggregator, Released, State

Weights = Callable[[Tensor, Sequence[Released]], Tensor]
"""(updates [K, k], releases) to what each client's update counts [K], to be normalised."""


def client_mean(name: str, weights: Weights) -> Aggregator:
    """The mean of clients' updates by some weights: post-processing, so it costs no privacy.

    An update that is zero was not finite at its client, and does not count.

    Args:
        name: for messages and records.
        weights: what each update counts.
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


def projected_clients(directions: int) -> Aggregator:
    """The mean by weights as planned, of updates projected as in the original PFA.

    Public are the clients of the largest epsilon; the others' updates are projected onto the
    leading directions of the public ones.

    Args:
        directions: most directions of the public subspace, at least 1.
    """

    def combine(releases: Sequence[Released], theta: Tensor, state: State) -> tuple[Tensor, State]:
        projected = _projected(releases, directions)
        return client_mean("by epsilon", as_planned).combine(projected, theta, state)

    return Aggregator("projected, by epsilon", planned_weight, combine)


def _projected(releases: Sequence[Released], directions: int) -> list[Released]:
    epsilons = [release.groups[0].epsilon for release in releases]
    public = [
        release.vector.double()
        for release, epsilon in zip(releases, epsilons, strict=True)
        if epsilon == max(epsilons)
    ]
    if not public:
        return list(releases)
    _, _, basis = torch.linalg.svd(torch.stack(public), full_matrices=False)
    basis = basis[:directions]
    return [
        release
        if epsilon == max(epsilons)
        else replace(release, vector=((basis @ release.vector.double()) @ basis).float())
        for release, epsilon in zip(releases, epsilons, strict=True)
    ]


def planned_weight(group: GroupPlan, plan: Plan) -> float:
    """A client's share of its group's planned weight."""
    return group.weight / group.clients


def as_planned(updates: Tensor, releases: Sequence[Released]) -> Tensor:
    """Each client counts what the plan says, which its ledger line repeats."""
    return torch.tensor([release.record.shares[0].weight for release in releases])


def by_noise(rows: int) -> Weights:
    """1 / sigma_i^2, with the noise estimated from the updates alone (Robust-HDP, Algorithm 1).

    Args:
        rows: rows p' of the sub-matrices that are decomposed (Section 3.6).
    """

    def weights(updates: Tensor, releases: Sequence[Released]) -> Tensor:
        return 1 / noise_estimates(updates, rows)

    return weights


def noise_estimates(updates: Tensor, rows: int) -> Tensor:
    """Estimates of sigma_i^2 of each update, up to one common factor [K], float64.

    Args:
        updates: noisy updates of K clients [K, k]; a column of the matrix M each.
        rows: rows p' of a sub-matrix; with fewer coordinates there is one matrix.
    """
    size = updates.shape[1]
    width = min(rows, size)
    parts = size // width
    found = torch.zeros(len(updates), dtype=torch.float64, device=updates.device)
    for part in range(parts):
        _, sparse = pursuit(updates[:, part * width : (part + 1) * width].T)
        found += sparse.square().sum(0)
    smallest = torch.finfo(torch.float64).tiny
    return (found / parts * (size / width)).clamp(min=smallest)
