"""Projections of PFA, and aggregators that apply them to sums or to clients' updates.

The sums (or updates) of the strictest privacy preferences are projected onto a subspace
that the least strict ones span. Projection is post-processing of releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor

from simulate.client_aggregators import as_planned, client_mean, planned_weight
from simulate.components import Aggregator, Received, State, Step

# Key of the public sums [directions, k] in the server's state, the latest first.
PUBLIC = "public"


def project(vector: Tensor, rows: Tensor) -> Tensor:
    """The orthogonal projection of a vector [k] onto the span of some rows [n, k].

    It is computed in double precision.
    """
    wide = rows.double()
    gram = torch.linalg.pinv(wide @ wide.T, hermitian=True)
    projection: Tensor = (gram @ (wide @ vector.double())) @ wide
    return projection.to(vector.dtype)


def projected(inner: Aggregator, directions: int) -> Aggregator:
    """Project the sums of the groups with the smallest epsilon, then combine.

    The groups with the largest epsilon are public; their last noisy sums, including
    this round's, span the subspace. Other groups are not projected, and no group is if
    all have one epsilon.
    """

    def start(theta: Tensor) -> State:
        return {PUBLIC: theta.new_zeros(directions, len(theta)), **inner.start(theta)}

    def combine(releases: Sequence[Received], theta: Tensor, state: State) -> Step:
        epsilons = [release.groups[0].epsilon for release in releases]
        largest = max(epsilons)
        smallest = min(epsilons)
        fresh = [
            release.vector
            for release, epsilon in zip(releases, epsilons, strict=True)
            if epsilon == largest
        ]
        public = torch.cat([torch.stack(fresh), state[PUBLIC]])[:directions]

        changed = []
        for release, epsilon in zip(releases, epsilons, strict=True):
            if smallest == epsilon < largest:
                release = replace(release, vector=project(release.vector, public))
            changed.append(release)
        return inner.combine(changed, theta, {**state, PUBLIC: public})

    return Aggregator(f"projected, {inner.name}", inner.weight, combine, start)


def projected_clients(directions: int) -> Aggregator:
    """The weighted mean of updates, the strict clients' projected (original PFA)."""
    mean = client_mean("by epsilon", as_planned)

    def combine(releases: Sequence[Received], theta: Tensor, state: State) -> Step:
        return mean.combine(_projected(releases, directions), theta, state)

    return Aggregator("projected, by epsilon", planned_weight, combine)


def _projected(releases: Sequence[Received], directions: int) -> list[Received]:
    """The releases, with strict clients' on the main directions of public clients'."""
    if not releases:
        return []
    epsilons = [release.groups[0].epsilon for release in releases]
    public_epsilon = public_from(epsilons)
    public = [
        release.vector.double()
        for release, epsilon in zip(releases, epsilons, strict=True)
        if epsilon >= public_epsilon
    ]
    _, _, basis = torch.linalg.svd(torch.stack(public), full_matrices=False)
    basis = basis[:directions]

    changed = []
    for release, epsilon in zip(releases, epsilons, strict=True):
        if epsilon < public_epsilon:
            projection = (basis @ release.vector.double()) @ basis
            release = replace(release, vector=projection.float())
        changed.append(release)
    return changed


def public_from(epsilons: Sequence[float]) -> float:
    """The least epsilon of a public client: one of the upper of two clusters.

    The clusters are the two intervals with the least sum of squared deviations from
    their means, which is the optimum of 2-means on a line. Liu et al. cluster the
    clients by their privacy preferences; with budgets that all differ, the largest one
    alone would leave a single noisy update as the public subspace.
    """
    ordered = sorted(epsilons)

    def spread(cluster: Sequence[float]) -> float:
        middle = fmean(cluster)
        return sum((value - middle) ** 2 for value in cluster)

    def spread_at(cut: int) -> float:
        return spread(ordered[:cut]) + spread(ordered[cut:])

    cuts = [cut for cut in range(1, len(ordered)) if ordered[cut - 1] < ordered[cut]]
    return ordered[min(cuts, key=spread_at, default=0)]
