"""Projection of the strictest groups' sums onto what the loosest groups release (PFA)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from simulate.components import Aggregator, Released, State

PUBLIC = "public"
"""Name of the public sums [directions, k] in the server's state, the latest first."""


def project(vector: Tensor, rows: Tensor) -> Tensor:
    """The orthogonal projection of a vector onto the span of some rows, in double precision.

    Args:
        vector: [k].
        rows: [n, k]; they may depend on each other or be zero, n is small.
    """
    wide = rows.double()
    gram = torch.linalg.pinv(wide @ wide.T, hermitian=True)
    return ((gram @ (wide @ vector.double())) @ wide).to(vector.dtype)


def projected(inner: Aggregator, directions: int) -> Aggregator:
    """Project the sums of the groups of least epsilon, then combine.

    Public are the groups of the largest epsilon; the subspace is spanned by their last noisy
    sums, this round's first. Groups in between stay as they are, and so does everybody where
    all have one epsilon. Everything here is made of releases.

    Args:
        inner: the aggregator that combines the sums.
        directions: how many of the last public sums span the subspace, at least 1.
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
