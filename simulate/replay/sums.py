"""Noisy sums of clipped updates, executed again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from privplan.discrete_gaussian import discrete_gaussian
from privplan.evidence.measurement import along_sum
from privplan.record import ReleaseRecord, Residual
from simulate.models.basis import clients_at_once
from simulate.models.modular import forget
from simulate.replay.clipping import ClippedSum, Finish
from simulate.replay.lines import Line, Part
from simulate.replay.tolerance import ROUNDINGS, rounding_of, unit_of
from simulate.replay.training import Start, updates
from simulate.replay.world import World, mixture

Item = TypeVar("Item")
Result = TypeVar("Result")

# Keeps a clipped update within its bound, whatever the rounding to the grid.
BELOW_BOUND = 1 - 2.0**-30
# The least norm that is divided by.
TINY = 1e-300


@dataclass(frozen=True)
class Release:
    """A release, executed again."""

    vector: Tensor  # the replayed release [k], float32
    record: ReleaseRecord  # its ledger line
    near: int  # updates of which rounding decides whether they are clipped
    unit: float  # standard deviation of its noise, in which deviations are measured
    limit: float  # largest L2 deviation that agrees, in units
    sums: Sequence[Tensor] = ()  # the sum of each group, before they are mixed
    mixture_norm: float = math.inf  # L2 norm of their mixture, without noise
    is_faint: bool = False  # whether a usual update of a group is within the limit
    residual_scale: float = 1.0  # of a residual, over that of the release


def in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[Result]:
    """Results of a function on each item, in order, by threads of one core each."""
    with ThreadPoolExecutor(
        workers, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        yield from pool.map(function, items)


def _sums_of(
    world: World, line: Line, start: Start, workers: int, personal: dict[int, Tensor]
) -> list[ClippedSum]:
    """The sum of each part of a release, of participants that are trained again.

    Args:
        world: the run.
        line: the ledger line of the release.
        start: what its clients start from.
        workers: number of threads.
        personal: takes what clients keep.
    """
    norm = math.inf
    if world.clips:
        norm = start.clipping_norm or world.plan.spec.clipping_norm
    sums: list[ClippedSum] = []
    # (sum that a participant enters, its number) of all participants.
    members: list[tuple[ClippedSum, int]] = []
    for contribution in line.parts:
        bound = norm * world.plan.clip_factor(contribution.group)
        part_sum = ClippedSum(bound, _finish(world, line, contribution, bound))
        sums.append(part_sum)
        members += [(part_sum, client) for client in contribution.clients.tolist()]

    # Where noise protects somebody, no rounding of one client follows from another.
    in_chunk = 1
    alone = world.key is not None or world.secret
    if not alone:
        in_chunk = clients_at_once(
            world.parts.model,
            torch.device("cpu"),
            len(members),
            world.plan.spec.local.batch_size,
        )

    def trained(first_member: int) -> Iterable[tuple[Tensor, Tensor]]:
        """What each client of a chunk sends and keeps."""
        clients = [
            client for _, client in members[first_member : first_member + in_chunk]
        ]
        if alone:
            forget(world.parts.model)
        return updates(world, line.record.round, start, clients)

    firsts = range(0, len(members), in_chunk)
    of_all = chain.from_iterable(in_threads(trained, firsts, workers))
    for (part_sum, client), (sent, remains) in zip(members, of_all, strict=True):
        part_sum.add(sent)
        if world.recipe.personal:
            personal[client] = remains
    return sums


def noisy_sum(
    world: World,
    line: Line,
    place: int,
    start: Start,
    released: Tensor | None,
    workers: int,
    personal: dict[int, Tensor],
) -> Release:
    """A noisy sum of clipped updates, with its noise drawn again.

    Without the key of the noise, the run's release takes the place of the replayed one.

    Args:
        world: the run.
        line: its ledger line.
        place: of the release in its round, from 0.
        start: what its clients start from.
        released: the run's release [k]; None where it is not stored.
        workers: number of threads.
        personal: takes what clients keep.
    """
    size = len(world.released(line.record.round)) + (world.plan.clipping is not None)
    noise = np.zeros(size)
    if world.recipe.noisy and not world.secret:
        noise = noise_of(world, line, size)
    factors = mixture(world.plan, line.record.round)
    sums = _sums_of(world, line, start, workers, personal)
    total = _mixed(sums, place, start, factors, size)
    vector = (total + torch.from_numpy(noise)).float()
    unit = unit_of(line.record.noise_std, vector)
    summed_norms = sum(clipped_sum.summed_norms for clipped_sum in sums)
    limit = ROUNDINGS * rounding_of(vector, summed_norms, unit)
    # Another length is a difference.
    is_hidden = world.recipe.noisy and world.secret
    if is_hidden and released is not None and len(released) == size:
        vector = released

    return Release(
        vector=vector,
        record=_with_evidence(world, line, sums, total, noise, vector.double() - total),
        near=sum(clipped_sum.near for clipped_sum in sums),
        unit=unit,
        limit=limit,
        sums=[clipped_sum.total for clipped_sum in sums],
        mixture_norm=float(total.norm()),
        is_faint=any(clipped_sum.is_within(limit * unit) for clipped_sum in sums),
    )


def _mixed(
    sums: Sequence[ClippedSum],
    place: int,
    start: Start,
    factors: Sequence[float],
    size: int,
) -> Tensor:
    """The mixture of the sums of a round and of those before it, without noise [k]."""
    current = [clipped_sum.total for clipped_sum in sums]
    rounds = [current, *(past[place] for past in start.past)]
    total = torch.zeros(size, dtype=torch.float64)
    for factor, sums_of_round in zip(factors, rounds, strict=False):
        for sum_of_group in sums_of_round:
            total = total + factor * sum_of_group
    return total


def _with_evidence(
    world: World,
    line: Line,
    sums: Sequence[ClippedSum],
    total: Tensor,
    noise: np.ndarray,
    residual: Tensor,
) -> ReleaseRecord:
    """The ledger line with what training and noise give.

    Args:
        world: the run.
        line: the ledger line so far.
        sums: of the round, by part of the release.
        total: mixture of the sums of this round and of those before [k].
        noise: drawn again [k].
        residual: what rounding to float32 left of it [k].
    """
    shares = tuple(
        contribution.share.model_copy(update=clipped.evidence)
        for contribution, clipped in zip(line.parts, sums, strict=True)
    )
    if not world.recipe.noisy:
        return line.record.model_copy(update={"shares": shares})

    product = float(residual @ total)
    part = along_sum(product, float(total.norm()), residual.numpy())
    sum_squares = float(residual @ residual)
    changes = {
        "shares": shares,
        "noise_sum_squares": float(np.square(noise).sum()),
        "residual": Residual(sum_squares=sum_squares, along_sum=part),
    }
    return line.record.model_copy(update=changes)


def _finish(world: World, line: Line, contribution: Part, norm: float) -> Finish:
    """What follows clipping: count for an adaptive norm, scale of the group, grid."""
    clipping = world.plan.clipping
    grid = line.record.grid
    largest = (contribution.share.clip_bound or 0.0) * BELOW_BOUND

    def finish(sent: Tensor, exceeds: bool) -> Tensor:
        if clipping is not None:
            # The update in units of the norm, then half a count, by its sign: in these
            # units noise of one size serves both (Andrew et al., Differentially Private
            # Learning with Adaptive Clipping, 2021).
            half = (
                clipping.update_noise_multiplier / clipping.count_noise_multiplier / 2
            )
            count = sent.new_tensor([-half if exceeds else half])
            sent = torch.cat([sent / norm, count])
            sent = sent * world.plan.clip_factor(contribution.group)
        if world.recipe.scaled:
            sent = sent * contribution.group.scale
        if grid is None:
            return sent
        within = sent * min(1.0, largest / max(float(sent.norm()), TINY))
        return (within / grid).trunc() * grid

    return finish


def noise_of(world: World, line: Line, size: int) -> np.ndarray:
    """The noise of a line [size], drawn again."""
    source = world.source(*line.stream)
    grid = line.record.grid
    std = line.record.noise_std
    if grid is not None:
        return discrete_gaussian(source, std / grid, size) * grid
    return np.asarray(source.standard_normal(size) * std)
