"""Evidence that no slot of an algorithm gives of itself: taken by the loop, from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from privplan.plan import GroupPlan
from privplan.record import Executed, Residual
from privplan.verification import public_mask
from simulate.algorithm import extra_coordinates
from simulate.components import GroupSum, Released
from simulate.engine.experiment import Experiment
from simulate.engine.seeds import Purpose, stream


def executed(setting: Experiment) -> Executed:
    """What the algorithm says of itself before it sees any data."""
    algorithm, dimension = setting.algorithm, setting.dimension
    shared, extra = algorithm.split.shared(setting.model), extra_coordinates(algorithm)
    masks = []
    for index, transform in enumerate(algorithm.transforms):
        if transform.support is not None:
            kept = transform.support(stream(setting.seed, Purpose.SUPPORT, 1, index), dimension)
            masks.append(public_mask.Mask(index=index, name=transform.name, size=len(kept)))
    return Executed(
        aggregator=algorithm.aggregator.name,
        coordinates=dimension + extra,
        shared=(dimension if shared is None else len(shared)) + extra,
        masks=tuple(masks),
    )


def measure_releases(
    releases: Sequence[Released], sums: Sequence[GroupSum], kept: Tensor | None
) -> tuple[Released, ...]:
    """The releases with what the loop itself saw of each.

    Args:
        releases: what the mechanism made of the sums.
        sums: what the clients handed in, a sum a group.
        kept: the coordinates that were released, sorted; None for all.
    """
    name = "" if kept is None else public_mask.mask_digest(kept.cpu().numpy())
    totals = {part.group.name: part.total for part in sums}
    return tuple(_witnessed(release, totals, name) for release in releases)


def _witnessed(release: Released, totals: dict[str, Tensor], name: str) -> Released:
    record = release.record
    if record.family != "gaussian":
        return release
    total = torch.stack([totals[share.group] for share in record.shares]).sum(0)
    rest, length = release.vector.double() - total, float(total.norm())
    residual = Residual(
        sum_squares=float(rest.square().sum()),
        along_sum=float(rest @ total) / length if length > 0 else None,
    )
    changes = {"support": name, "residual": residual}
    return replace(release, record=record.model_copy(update=changes))


def measure_client_release(setting: Experiment, round_: int, release: Released) -> Released:
    """A client's own release with what is in it beside its noise, which is drawn again.

    Args:
        setting: the run.
        round_: training round, from 1.
        release: what the client sent; without noise of its own it is handed back as it is.
    """
    [group], client = release.groups, release.client
    batch = group.record_batch
    if release.record.unit != "record" or batch is None or client is None:
        return release
    if not release.vector.any():  # not finite at the client
        return release
    steps = release.vector.double() * -(batch / setting.learning_rate(round_))
    rest = steps - _noise_again(setting, round_, group, client).to(steps)
    residual = Residual(sum_squares=float(rest.square().sum()), along_sum=None)
    return replace(release, record=release.record.model_copy(update={"residual": residual}))


def _noise_again(setting: Experiment, round_: int, group: GroupPlan, client: int) -> Tensor:
    """The planned noise of a client's steps, summed as its momentum sums steps [d], float64."""
    std = group.noise_multiplier * setting.algorithm.plan.spec.clipping_norm
    source = stream(setting.seed, Purpose.RECORD_NOISE, round_, client)
    speed = total = np.zeros(setting.dimension)
    for _ in range(group.steps or 0):
        speed = setting.local.momentum * speed + std * source.standard_normal(setting.dimension)
        total = total + speed
    return torch.from_numpy(total)
