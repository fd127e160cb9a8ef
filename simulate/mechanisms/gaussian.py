"""Gaussian noise on secure sums: one sum per group, or one joint sum of all groups.

The noise is drawn on the sum, with the planned standard deviation whatever the cohort's realised
size: clients who each add a share of variance C^2 sigma^2 / r would add up to it only when exactly
r of them report. The stream is named by the run's seed, so that a run can be repeated and
replayed: two runs with one seed share their noise, and whoever knows the seed knows the noise.
With a secret key (``privplan.secure_streams``) the stream is that of the key. Sums on a grid get
discrete Gaussian noise (``privplan.discrete_gaussian``), whose exact sampling leaves nothing to
find in the last digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from privplan.discrete_gaussian import discrete_gaussian, scale_for
from privplan.errors import InputError
from privplan.record import GroupShare, ReleaseRecord
from privplan.secure_streams import SecureStream
from privplan.seeded_streams import fingerprint
from simulate.components import GroupSum, Mechanism, Noise, Released


def share(part: GroupSum, weights: Mapping[str, float]) -> GroupShare:
    """The evidence of a group's sum.

    Args:
        part: the sum.
        weights: factor on the released sum, by name of the group.
    """
    return GroupShare(
        group=part.group.name,
        clients=part.group.clients,
        sampling=part.sampling,
        sampling_ratio=part.ratio,
        cohort=len(part.participants),
        participants=part.participants,
        clip_bound=part.bound,
        largest_norm=part.largest_norm,
        clipped=part.clipped,
        excluded=part.excluded,
        weight=weights[part.group.name],
        canaries=part.canaries or None,
    )


def gaussian_per_group() -> Mechanism:
    """One noisy sum per group, with standard deviation sigma_m times the bound of its clients."""

    def release(
        round_: int, sums: Sequence[GroupSum], weights: Mapping[str, float], noise: Noise
    ) -> tuple[Released, ...]:
        return tuple(
            _released(round_, [part], part.total, weights, noise(index))
            for index, part in enumerate(sums)
        )

    return Mechanism("secure sum per group, Gaussian", True, False, release)


def gaussian_joint() -> Mechanism:
    """One noisy sum of all groups, with noise enough for every group's multiplier and bound."""

    def release(
        round_: int, sums: Sequence[GroupSum], weights: Mapping[str, float], noise: Noise
    ) -> tuple[Released, ...]:
        total = torch.stack([part.total for part in sums]).sum(0)
        return (_released(round_, sums, total, weights, noise(0)),)

    return Mechanism("joint secure sum, Gaussian", True, True, release)


def _released(
    round_: int,
    sums: Sequence[GroupSum],
    total: Tensor,
    weights: Mapping[str, float],
    generator: np.random.Generator,
) -> Released:
    std = max(part.group.noise_multiplier * _bound(part) for part in sums)
    state, grid = fingerprint(generator), sums[0].grid
    if grid is None:
        family, drawn = "gaussian", generator.standard_normal(total.numel()) * std
    else:
        family, scale = "discrete_gaussian", scale_for(std)
        drawn, std = _on_grid(total, sums, grid, scale, generator), scale * grid
    record = ReleaseRecord(
        round=round_,
        family=family,
        noise_std=std,
        grid=grid,
        dimension=total.numel(),
        noise_sum_squares=float(np.square(drawn).sum()),
        noise_state=state,
        shares=tuple(share(part, weights) for part in sums),
    )
    vector = (total + torch.from_numpy(drawn).to(total.device)).float()
    return Released(vector, record, tuple(part.group for part in sums))


def _on_grid(
    total: Tensor, sums: Sequence[GroupSum], grid: float, scale: float, generator: object
) -> np.ndarray:
    """Discrete Gaussian noise [k] for a sum on a grid.

    Raises:
        InputError: when a sum is on another grid, or too large for exact addition, or the
            generator is not a secure stream.
    """
    if not isinstance(generator, SecureStream):
        raise InputError.one("noise", "must be secure to be discrete", type(generator).__name__)
    drawn = discrete_gaussian(generator, scale, total.numel())
    most = float(total.abs().max()) / grid + float(np.abs(drawn).max()) if len(drawn) else 0.0
    steps = total / grid
    if any(part.grid != grid for part in sums) or not bool((steps == steps.trunc()).all()):
        raise InputError.one("mechanism", "needs sums on one grid", grid)
    if most >= EXACT:
        rule = f"must have sums below {EXACT:g} steps of the grid"
        raise InputError.one("mechanism", rule, most)
    return drawn * grid


EXACT = 2.0**53
"""Steps of a grid up to which sums of floating-point numbers are exact."""


def _bound(part: GroupSum) -> float:
    if part.bound is None:
        raise InputError.one("mechanism", "needs updates with a proven bound", part.group.name)
    return part.bound
