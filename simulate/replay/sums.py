"""Noisy sums of clipped updates, executed again.

Where training falls on the other side of a kink than the run did, it is examined: such
a run is not broken. Nor is it shown, since whoever wrote it could choose the side of
each kink by what it knows of the clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from privplan.discrete_gaussian import discrete_gaussian
from privplan.record import ReleaseRecord, Residual
from simulate.models.basis import clients_at_once
from simulate.replay.clipping import ClippedSum, Finish
from simulate.replay.lines import Line, Part
from simulate.replay.tolerance import (
    AT_KINKS,
    EXAMINED,
    ROUNDINGS,
    deviation,
    rounding_of,
    unit_of,
)
from simulate.replay.training import Start, updates
from simulate.replay.world import World, mixture

Item = TypeVar("Item")
Result = TypeVar("Result")

# Where one direction keeps to a side of a kink, the opposite one crosses it. A first
# kink of little weight leaves more than rounding does.
CHANGES = (1e-7, -1e-7, 1e-6, -1e-6, 2e-6, -2e-6, 3e-6, -3e-6, 5e-6, -5e-6, 1e-5, -1e-5)
"""Relative changes of a model along a random vector, another for each client and size."""
# Part of a gap that another update may leave at most, to take its place.
EXPLAINED = 0.95
# Numbers in updates that are kept in memory for another look: 256 MB.
CACHED_NUMBERS = 2**26
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
    # L2 deviation from the run's release, in units, that only another side of a kink
    # explains; 0 where rounding does.
    at_kink: float = 0.0
    sums: Sequence[Tensor] = ()  # the sum of each group, before they are mixed


def in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[Result]:
    """Results of a function on each item, in order, by threads of one core each."""
    with ThreadPoolExecutor(
        workers, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        yield from pool.map(function, items)


class Cohort:
    """The participants of one release, trained again.

    Two float32 kernels may fall on different sides of a rectifier or a maximum whose
    arguments differ by rounding, and then give other updates. ``explain`` replaces a
    client's update by one from a start that differs by rounding, if that explains a
    part of a gap.

    Args:
        world: the run.
        line: the ledger line of the release.
        start: what its clients start from.
        workers: number of threads.
    """

    def __init__(self, world: World, line: Line, start: Start, workers: int) -> None:
        self._world = world
        self._round = line.record.round
        self._start = start
        self._workers = workers

        norm = math.inf
        if world.clips:
            norm = start.clipping_norm or world.plan.spec.clipping_norm
        # Each makes an empty sum, for one part of the release.
        self._empty: list[Callable[[], ClippedSum]] = []
        # (part of the release, number of the client) of all participants.
        self._members: list[tuple[int, int]] = []
        for place, part in enumerate(line.parts):
            bound = norm * world.plan.clip_factor(part.group)
            finish = _finish(world, line, part, bound)
            self._empty.append(partial(ClippedSum, bound, finish))
            self._members += [(place, client) for client in part.clients.tolist()]

        size = world.plan.spec.local.batch_size
        cpu = torch.device("cpu")
        clients = len(self._members)
        self._chunk = clients_at_once(world.parts.model, cpu, clients, size)
        # What a client sends and keeps: where another side of a kink explains the run,
        # and for chunks (first client, relative change of the start) that were trained.
        self._changed: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self._cache: dict[tuple[int, float], list[tuple[Tensor, Tensor]]] = {}

    def sums(self, personal: dict[int, Tensor]) -> list[ClippedSum]:
        """The sum of each part; what clients keep is written to ``personal``."""
        sums = [empty() for empty in self._empty]
        firsts = range(0, len(self._members), self._chunk)
        results = in_threads(self._trained, firsts, self._workers)
        for first, updates_of_chunk in zip(firsts, results, strict=True):
            members = self._chunk_of(first)
            for member, update in zip(members, updates_of_chunk, strict=True):
                place, client = member
                sent, remains = self._changed.get(member, update)
                sums[place].add(sent)
                if self._world.recipe.personal:
                    personal[client] = remains
        return sums

    def explain(self, gap: Tensor, factor: float, enough: float) -> bool:
        """Change updates by their rounding, as long as that explains a part of a gap.

        Args:
            gap: the run's release minus the replayed one [k].
            factor: on the round's own sums in what is released.
            enough: the norm of a gap that needs no explanation.

        Returns:
            Whether an update was changed.
        """
        firsts = range(0, len(self._members), self._chunk)
        for change, first in product(CHANGES, firsts):
            if gap.norm() <= enough:
                break
            trained = self._trained(first)
            nudged = self._trained(first, change)
            members = self._chunk_of(first)
            for member, update, candidate in zip(members, trained, nudged, strict=True):
                clipped = self._empty[member[0]]()
                used, _ = self._changed.get(member, update)
                difference = clipped.summand(used) - clipped.summand(candidate[0])
                remaining_gap = gap + factor * difference
                if remaining_gap.norm() < EXPLAINED * gap.norm():
                    self._changed[member] = candidate
                    gap = remaining_gap
        return bool(self._changed)

    def _chunk_of(self, first: int) -> list[tuple[int, int]]:
        return self._members[first : first + self._chunk]

    def _trained(self, first: int, change: float = 0.0) -> list[tuple[Tensor, Tensor]]:
        """What each client of a chunk sends and keeps; cached while there is room."""
        key = (first, change)
        if key in self._cache:
            return self._cache[key]
        clients = [client for _, client in self._chunk_of(first)]
        trained = list(updates(self._world, self._round, self._start, clients, change))
        numbers = max(1, self._chunk * self._world.parts.model.parameters)
        if len(self._cache) < CACHED_NUMBERS // numbers:
            self._cache[key] = trained
        return trained


@dataclass(frozen=True)
class _NoisySum:
    """A noisy sum, and what it is made of."""

    sums: list[ClippedSum]  # of the round, by part of the release
    total: Tensor  # mixture of the sums of this round and of those before [k]
    vector: Tensor  # the total with noise [k], float32


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
    if released is not None and len(released) != size:
        released = None  # another length is a difference
    noise_is_known = not (world.recipe.noisy and world.secret)
    noise = np.zeros(size)
    if world.recipe.noisy and noise_is_known:
        noise = noise_of(world, line, size)
    factors = mixture(world.plan, line.record.round)
    cohort = Cohort(world, line, start, workers)

    def replayed() -> _NoisySum:
        """The noisy sum of the cohort's updates, as far as they are explained."""
        sums = cohort.sums(personal)
        total = _mixed(sums, place, start, factors, size)
        return _NoisySum(sums, total, (total + torch.from_numpy(noise)).float())

    result = replayed()
    unit = unit_of(line.record.noise_std, result.vector)
    summed_norms = sum(part.summed_norms for part in result.sums)
    limit = ROUNDINGS * rounding_of(result.vector, summed_norms, unit)
    at_kink = 0.0
    if released is not None and not noise_is_known:
        result = replace(result, vector=released)
    elif released is not None:
        # A deviation beyond rounding may come from a kink, unless it is too large.
        distance = deviation(released, result.vector, unit).norm
        if limit < distance < EXAMINED and cohort.explain(
            released.double() - result.total - torch.from_numpy(noise),
            factors[0],
            enough=limit / 2 * unit,
        ):
            limit *= AT_KINKS / ROUNDINGS
            result = replayed()
            at_kink = distance

    return Release(
        vector=result.vector,
        record=_with_evidence(world, line, result, noise),
        near=sum(part.near for part in result.sums),
        unit=unit,
        limit=limit,
        at_kink=at_kink,
        sums=[part.total for part in result.sums],
    )


def _mixed(
    sums: Sequence[ClippedSum],
    place: int,
    start: Start,
    factors: Sequence[float],
    size: int,
) -> Tensor:
    """The mixture of the sums of a round and of those before it, without noise [k]."""
    current = [part.total for part in sums]
    rounds = [current, *(past[place] for past in start.past)]
    total = torch.zeros(size, dtype=torch.float64)
    for factor, sums_of_round in zip(factors, rounds, strict=False):
        for sum_of_group in sums_of_round:
            total = total + factor * sum_of_group
    return total


def _with_evidence(
    world: World, line: Line, result: _NoisySum, noise: np.ndarray
) -> ReleaseRecord:
    """The ledger line with what training and noise [k] give."""
    shares = tuple(
        part.share.model_copy(update=clipped.evidence)
        for part, clipped in zip(line.parts, result.sums, strict=True)
    )
    if not world.recipe.noisy:
        return line.record.model_copy(update={"shares": shares})

    # What rounding to float32 left of the noise, and its projection on the sum.
    residual = result.vector.double() - result.total
    length = float(result.total.norm())
    along_sum = float(residual @ result.total) / length if length else None
    sum_squares = float(residual @ residual)
    changes = {
        "shares": shares,
        "noise_sum_squares": float(np.square(noise).sum()),
        "residual": Residual(sum_squares=sum_squares, along_sum=along_sum),
    }
    return line.record.model_copy(update=changes)


def _finish(world: World, line: Line, part: Part, norm: float) -> Finish:
    """What follows clipping: count for an adaptive norm, scale of the group, grid."""
    clipping = world.plan.clipping
    grid = line.record.grid
    largest = (part.share.clip_bound or 0.0) * BELOW_BOUND

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
            sent = sent * world.plan.clip_factor(part.group)
        if world.recipe.scaled:
            sent = sent * part.group.scale
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
