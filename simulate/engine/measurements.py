"""Measurements of releases by the loop, independent of the algorithm's components."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from privplan.evidence.measurement import along_sum, measure_noise
from privplan.plan import GroupPlan
from privplan.record import Residual
from privplan.streams import Purpose, mask_digest
from simulate.components import GroupSum, Released
from simulate.engine.experiment import Experiment


def measure_releases(
    releases: Sequence[Released],
    sums: Sequence[GroupSum],
    coordinates: Tensor | None,
    layers: Sequence[int] = (),
) -> tuple[Released, ...]:
    """Releases with the residual and the noise that the loop measured.

    All numbers of a round come from the device in one copy, and all vectors in another.

    Args:
        releases: of a round.
        sums: what the plan says that they release, without noise.
        coordinates: the released coordinates of the global vector [k]; None for all.
        layers: lengths of the model's layers, whose noise is measured on its own.

    Raises:
        InputError: when a release is not finite.
    """
    noisy = [
        index for index, release in enumerate(releases) if release.record.noise.noisy
    ]
    if not noisy:
        return tuple(releases)

    totals = {group_sum.group.name: group_sum.total for group_sum in sums}
    residuals: list[Tensor] = []
    numbers: list[Tensor] = []
    for index in noisy:
        release = releases[index]
        totals_of_groups = [totals[share.group] for share in release.record.shares]
        total = torch.stack(totals_of_groups).sum(0)
        residual = release.vector.double() - total
        residuals.append(residual)
        numbers += [residual.square().sum(), total.norm(), residual @ total]
    measures = torch.stack(numbers).view(-1, 3).tolist()
    if residuals[0].device.type != "cpu":
        residuals = list(torch.stack(residuals).cpu())

    if coordinates is None:
        support = ""
    else:
        support = mask_digest(coordinates.cpu().numpy())
    result = list(releases)
    for index, residual, measure in zip(noisy, residuals, measures, strict=True):
        result[index] = _measured(
            releases[index], residual, measure, index, support, layers
        )
    return tuple(result)


def _measured(
    release: Released,
    residual: Tensor,
    measure: Sequence[float],
    index: int,
    support: str,
    layers: Sequence[int],
) -> Released:
    """A release with its residual, and its noise where that is normal.

    Args:
        release: of the mechanism.
        residual: release minus sum [k], on the CPU.
        measure: sum of squares of the residual, norm of the sum, inner product of both.
        index: of the release in the round.
        support: digest of the released coordinates; empty for all.
        layers: lengths of the model's layers.
    """
    sum_squares, sum_norm, product = measure
    record = release.record
    if not math.isfinite(sum_squares):
        rule = f"must release finite numbers, as round {record.round} did not"
        groups = ", ".join(share.group for share in record.shares)
        raise InputError.one("mechanism", rule, groups)
    noise = None
    if record.noise.normal and record.noise_std > 0:
        noise = measure_noise(
            residual.numpy(),
            record.noise_std,
            round_=record.round,
            index=index,
            sum_norm=sum_norm,
            layers=layers if sum(layers) == len(residual) else (),
        )
    changes = {
        "support": support,
        "residual": Residual(
            sum_squares=sum_squares,
            along_sum=along_sum(product, sum_norm, residual.numpy()),
        ),
    }
    return replace(release, record=record.model_copy(update=changes), noise=noise)


def measure_client_releases(
    experiment: Experiment, round_: int, releases: tuple[Released, ...]
) -> tuple[Released, ...]:
    """Clients' releases with what is left without their noise, which is drawn again.

    The numbers of all clients come from the device in one copy.
    """
    measures = [
        _squares_without_noise(experiment, round_, release) for release in releases
    ]
    of_noisy = [measure for measure in measures if measure is not None]
    if not of_noisy:
        return releases
    copied = iter(torch.stack(of_noisy).tolist())

    result = []
    for release, measure in zip(releases, measures, strict=True):
        if measure is not None:
            is_sent, squares = next(copied)
            if is_sent:  # else the update was not finite, so the client sent zero
                residual = Residual(sum_squares=squares, along_sum=None)
                record = release.record.model_copy(update={"residual": residual})
                release = replace(release, record=record)
        result.append(release)
    return tuple(result)


def _squares_without_noise(
    experiment: Experiment, round_: int, release: Released
) -> Tensor | None:
    """Whether a client's release is not zero, and its squares without its noise [2].

    None for a release that protects no records.
    """
    [group] = release.groups
    client = release.client
    batch = group.record_batch
    if release.record.unit != "record" or batch is None or client is None:
        return None

    # An update is minus the learning rate times the noisy sums of its steps, over the
    # planned batch.
    sums = release.vector.double() * -(batch / experiment.learning_rate(round_))
    noise = torch.from_numpy(_noise_as_sent(experiment, round_, group, client))
    shared = experiment.algorithm.split.shared(experiment.model)
    if shared is not None:
        noise = noise[shared]
    residual = sums - noise.to(sums)
    return torch.stack([release.vector.any().double(), residual.square().sum()])


def _noise_as_sent(
    experiment: Experiment, round_: int, group: GroupPlan, client: int
) -> np.ndarray:
    """The planned noise of a client's steps, as its momentum sends it, together [d]."""
    std = group.noise_multiplier * experiment.algorithm.plan.spec.clipping_norm
    source = experiment.private_stream(Purpose.RECORD_NOISE, round_, client)
    steps = group.steps or 0
    sent_noise = experiment.algorithm.local.sent_noise
    factors = [1.0] * steps if sent_noise is None else sent_noise(steps)

    speed = np.zeros(experiment.dimension)
    total = np.zeros(experiment.dimension)
    for factor in factors:
        drawn = std * source.standard_normal(experiment.dimension)
        speed = experiment.local.momentum * speed + drawn * (factor != 0)
        total = total + factor * speed
    return total
