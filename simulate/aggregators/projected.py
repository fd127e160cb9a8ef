"""Projections of PFA, and aggregators that apply them to sums or to clients' updates.

The sums (or updates) of the strictest privacy preferences are projected onto a subspace that the
least strict ones span. Projection is post-processing of releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor

from simulate.aggregators.per_client import as_planned, client_mean, planned_weight
from simulate.components import Aggregator, Released, State

PUBLIC = "public"
"""Key of the public sums [directions, k], latest first, in the server's state."""


def project(vector: Tensor, rows: Tensor) -> Tensor:
    """The orthogonal projection of a vector onto the span of some rows, in double precision.

    Args:
        vector: [k].
        rows: [n, k]; they may be linearly dependent or zero, n is small.
    """
    wide = rows.double()
    gram = torch.linalg.pinv(wide @ wide.T, hermitian=True)
    projection: Tensor = (gram @ (wide @ vector.double())) @ wide
    return projection.to(vector.dtype)


def projected(inner: Aggregator, directions: int) -> Aggregator:
    """Project the sums of the groups with the smallest epsilon, then combine.

    The groups with the largest epsilon are public; their last noisy sums, including this round's,
    span the subspace. Other groups are not projected, and no group is if all have one epsilon.

    Args:
        inner: aggregator of the sums.
        directions: number of the last public sums that span the subspace, at least 1.
    """

    def start(theta: Tensor) -> State:
        return {PUBLIC: theta.new_zeros(directions, len(theta)), **inner.start(theta)}

    def combine(releases: Sequence[Released], theta: Tensor, state: State) -> tuple[Tensor, State]:
        epsilons = [part.groups[0].epsilon for part in releases]
        fresh = [
            part.vector
            for part, epsilon in zip(releases, epsilons, strict=True)
            if epsilon == max(epsilons)
        ]
        public = torch.cat([torch.stack(fresh), state[PUBLIC]])[:directions]
        parts = [
            replace(part, vector=project(part.vector, public))
            if min(epsilons) == epsilon < max(epsilons)
            else part
            for part, epsilon in zip(releases, epsilons, strict=True)
        ]
        return inner.combine(parts, theta, {**state, PUBLIC: public})

    return Aggregator(f"projected, {inner.name}", inner.weight, combine, start)


def projected_clients(directions: int) -> Aggregator:
    """The mean by planned weights of updates that are projected as in the original PFA.

    The clients in the upper of two clusters of budgets are public; the others' updates are
    projected onto the leading singular directions of the public ones.

    Args:
        directions: most directions of the public subspace, at least 1.
    """

    def combine(releases: Sequence[Released], theta: Tensor, state: State) -> tuple[Tensor, State]:
        projected = _projected(releases, directions)
        return client_mean("by epsilon", as_planned).combine(projected, theta, state)

    return Aggregator("projected, by epsilon", planned_weight, combine)


def _projected(releases: Sequence[Released], directions: int) -> list[Released]:
    if not releases:
        return []
    epsilons = [release.groups[0].epsilon for release in releases]
    least = public_from(epsilons)
    public = [
        release.vector.double()
        for release, epsilon in zip(releases, epsilons, strict=True)
        if epsilon >= least
    ]
    _, _, basis = torch.linalg.svd(torch.stack(public), full_matrices=False)
    basis = basis[:directions]
    return [
        release
        if epsilon >= least
        else replace(release, vector=((basis @ release.vector.double()) @ basis).float())
        for release, epsilon in zip(releases, epsilons, strict=True)
    ]


def public_from(epsilons: Sequence[float]) -> float:
    """Returns the least epsilon of a public client: that of the upper of two clusters of budgets.

    The clusters are the two intervals with the least sum of squared deviations from their means,
    which is the optimum of 2-means on a line. Liu et al. cluster the clients by their privacy
    preferences; with budgets that all differ, the largest one alone would leave a single noisy
    update as the public subspace.

    Args:
        epsilons: budgets of the clients who take part, at least one.
    """
    ordered = sorted(epsilons)

    def spread(part: Sequence[float]) -> float:
        middle = fmean(part)
        return sum((value - middle) ** 2 for value in part)

    cuts = [cut for cut in range(1, len(ordered)) if ordered[cut - 1] < ordered[cut]]
    best = min(cuts, key=lambda cut: spread(ordered[:cut]) + spread(ordered[cut:]), default=0)
    return ordered[best]
