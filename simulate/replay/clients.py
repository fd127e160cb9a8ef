"""Releases of single clients by DP-SGD, executed again record by record.

M. Abadi et al., Deep Learning with Differential Privacy, CCS 2016, Algorithm 1.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from privplan.record import Residual
from simulate.replay.clipping import ClippedSum
from simulate.replay.draws import CLIENT, poisson_batches
from simulate.replay.lines import Line
from simulate.replay.sums import Release
from simulate.replay.tolerance import ROUNDINGS, TINY, rounding_of
from simulate.replay.training import (
    Batch,
    Start,
    descended,
    gradients,
    learning_rate,
    mini_batches,
    step_factors,
)
from simulate.replay.world import World


def client_release(world: World, line: Line, start: Start) -> tuple[Release, Tensor | None]:
    """The release of one client, and what it keeps [d]; None where it keeps nothing."""
    [part], [client], plan = line.parts, line.parts[0].clients.tolist(), world.plan
    round_, steps, size = line.record.round, line.record.steps, part.group.record_batch or 1.0
    theta, coordinates = start.of_client(client), torch.from_numpy(world.released(round_))
    source, records = world.source(CLIENT, round_, client), world.parts.partition.records(client)
    batches = poisson_batches(records, steps, part.share.sampling_ratio, source)
    generator, clipped = world.source(*line.stream), ClippedSum(plan.spec.clipping_norm)
    std = line.record.noise_std
    noise = [torch.from_numpy(generator.standard_normal(len(theta)) * std) for _ in range(steps)]
    examples = list(mini_batches(world, round_, [client], [batches]))
    factors, share = step_factors(world, steps)

    def slope(now: Tensor, step: int, moves: Tensor | bool) -> Tensor:
        """The noisy sum of the clipped gradients of single records, over the batch size."""
        clipped.total = noise[step]
        for record in _single_records(examples[step]):
            clipped.add(gradients(world, now[None], record)[0])
        return (clipped.total / size).float() * moves

    movement = descended(plan, round_, theta, slope, factors)
    update = (movement * share)[coordinates]
    finite = bool(update.isfinite().all())
    vector = update if finite else torch.zeros_like(update)
    kept = theta - start.theta + movement * (1 - share) if world.recipe.personal else None

    # The same steps of the noise alone give what the noise moves: linear, as SGD with
    # momentum is.
    still = torch.zeros_like(theta, dtype=torch.float64)
    of_noise = descended(plan, round_, still, lambda _, step, moves: noise[step] * moves, factors)
    sent_noise = (of_noise * share)[coordinates]
    rest = (sent_noise - vector.double() * size) / learning_rate(plan, round_)
    of_share = {**clipped.evidence, "cohort": sum(map(len, batches))}
    of_share["excluded"] += not finite
    squares = Residual(sum_squares=float(rest @ rest), along_sum=None)
    drawn = [one[coordinates].numpy() for one in noise]
    changes = {
        "noise_sum_squares": float(sum(np.square(one).sum() for one in drawn)),
        "residual": squares if vector.any() else None,
        "shares": (part.share.model_copy(update=of_share),),
    }
    record = line.record.model_copy(update=changes)
    # The noise of a coordinate of what is sent: the root mean square of what was drawn.
    unit = max(float(sent_noise.norm()) / size / math.sqrt(len(sent_noise)), TINY)
    limit = ROUNDINGS * rounding_of(vector, clipped.summed_norms / size, unit)
    return Release(vector, record, clipped.near, unit, limit), kept


def _single_records(batch: Batch) -> list[Batch]:
    """The records of a mini-batch of one client, each as a batch of its own."""
    [size] = batch.sizes
    return [Batch(batch.x[:, [place]], batch.y[:, [place]], (1,)) for place in range(size)]
