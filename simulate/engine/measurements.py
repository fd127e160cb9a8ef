"""Measurements of releases by the training loop, independent of the algorithm's components."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from privplan import streams as public_mask
from privplan.errors import InputError
from privplan.evidence import measure_noise
from privplan.plan import GroupPlan
from privplan.record import Executed, Mask, Residual
from simulate.algorithm import extra_coordinates
from simulate.components import GroupSum, Released
from simulate.engine.experiment import Experiment
from simulate.streams import Purpose, stream


def executed(experiment: Experiment) -> Executed:
    """Properties that the algorithm declares before it has access to any data."""
    algorithm, dimension = experiment.algorithm, experiment.dimension
    shared, extra = algorithm.split.shared(experiment.model), extra_coordinates(algorithm)
    masks = []
    for index, transform in enumerate(algorithm.transforms):
        if transform.public_mask is not None:
            generator = stream(experiment.seed, Purpose.SUPPORT, 1, index)
            size = len(transform.public_mask(generator, dimension))
            masks.append(Mask(index=index, name=transform.name, size=size))
    return Executed(
        aggregator=algorithm.aggregator.name,
        coordinates=dimension + extra,
        shared=(dimension if shared is None else len(shared)) + extra,
        masks=tuple(masks),
        appended=extra if masks else 0,
    )


def measure_releases(
    releases: Sequence[Released],
    sums: Sequence[GroupSum],
    coordinates: Tensor | None,
    layers: Sequence[int] = (),
) -> tuple[Released, ...]:
    """Releases with the residual and the noise that the loop measured."""
    digest = "" if coordinates is None else public_mask.mask_digest(coordinates.cpu().numpy())
    totals = {part.group.name: part.total for part in sums}
    return tuple(
        _with_residual(release, totals, digest, index, layers)
        for index, release in enumerate(releases)
    )


def _with_residual(
    release: Released,
    totals: dict[str, Tensor],
    digest: str,
    index: int,
    layers: Sequence[int],
) -> Released:
    record = release.record
    if not record.noise.noisy:
        return release
    total = torch.stack([totals[share.group] for share in record.shares]).sum(0)
    difference, length = release.vector.double() - total, float(total.norm())
    squares = float(difference.square().sum())
    if not math.isfinite(squares):
        rule = f"must release finite numbers, as round {record.round} did not"
        raise InputError.one("mechanism", rule, ", ".join(share.group for share in record.shares))
    residual = Residual(
        sum_squares=squares,
        along_sum=float(difference @ total) / length if length > 0 else None,
    )
    changes = {"support": digest, "residual": residual}
    measured = None
    if record.noise.normal and record.noise_std > 0 and bool(difference.isfinite().all()):
        measured = measure_noise(
            difference.cpu().numpy(),
            record.noise_std,
            round_=record.round,
            index=index,
            sum_norm=length,
            layers=layers if sum(layers) == len(difference) else (),
        )
    return replace(release, record=record.model_copy(update=changes), noise=measured)


def measure_client_release(experiment: Experiment, round_: int, release: Released) -> Released:
    """A client's release with residual after subtracting its noise, which is generated again."""
    [group], client = release.groups, release.client
    batch = group.record_batch
    if release.record.unit != "record" or batch is None or client is None:
        return release
    if not release.vector.any():  # the update was not finite, so the client sent zero
        return release
    steps = release.vector.double() * -(batch / experiment.learning_rate(round_))
    again = _noise_again(experiment, round_, group, client)
    shared = experiment.algorithm.split.shared(experiment.model)
    difference = steps - (again if shared is None else again[shared]).to(steps)
    residual = Residual(sum_squares=float(difference.square().sum()), along_sum=None)
    return replace(release, record=release.record.model_copy(update={"residual": residual}))


def _noise_again(experiment: Experiment, round_: int, group: GroupPlan, client: int) -> Tensor:
    """The planned noise of a client's steps as its momentum sends it, all together [d], float64."""
    std = group.noise_multiplier * experiment.algorithm.plan.spec.clipping_norm
    source = experiment.private_stream(Purpose.RECORD_NOISE, round_, client)
    speed = total = np.zeros(experiment.dimension)
    steps, sent = group.steps or 0, experiment.algorithm.local.sent_noise
    for factor in [1.0] * steps if sent is None else sent(steps):
        drawn = std * source.standard_normal(experiment.dimension)
        speed = experiment.local.momentum * speed + drawn * (factor != 0)
        total = total + factor * speed
    return torch.from_numpy(total)
