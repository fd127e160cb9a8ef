"""Noisy sums of clipped updates, executed again, and the examination of training at kinks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from privplan.discrete_gaussian import discrete_gaussian
from privplan.record import ReleaseRecord, Residual
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
"""Relative changes of a model, for each client and size along a random vector of its own."""
EXPLAINED = (
    0.95  # part of a gap that another update may leave at most, to take its place
)
KEPT = 2**26  # most values of updates that are kept in memory for another look: 256 MB


@dataclass(frozen=True)
class Release:
    """A release, executed again."""

    vector: Tensor  # the replayed release [k], float32
    record: ReleaseRecord  # its ledger line
    near: int  # updates of which rounding decides whether they are clipped
    unit: float  # standard deviation of its noise, in which deviations are measured
    limit: float  # largest L2 deviation that agrees, in units
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
        self._world, self._round, self._start = world, line.record.round, start
        self._workers = workers
        norm = math.inf
        if world.clips:
            norm = start.clipping_norm or world.plan.spec.clipping_norm
        self._empty = list[Callable[[], ClippedSum]]()
        self._members = list[
            tuple[int, int]
        ]()  # (part of the release, number of the client)
        for place, part in enumerate(line.parts):
            bound = norm * world.plan.clip_factor(part.group)
            self._empty.append(
                partial(ClippedSum, bound, _finish(world, line, part, bound))
            )
            self._members += [(place, client) for client in part.clients.tolist()]
        size = world.plan.spec.local.batch_size
        self._chunk = world.parts.model.clients_per_chunk(size)
        self._changed = dict[tuple[int, int], tuple[Tensor, Tensor]]()
        self._kept = dict[tuple[int, float], list[tuple[Tensor, Tensor]]]()

    def sums(self, personal: dict[int, Tensor]) -> list[ClippedSum]:
        """The sum of each part; what clients keep is written to ``personal``."""
        sums = [empty() for empty in self._empty]
        firsts = range(0, len(self._members), self._chunk)
        for first, sent in zip(
            firsts, in_threads(self._trained, firsts, self._workers), strict=True
        ):
            for member, update in zip(self._chunk_of(first), sent, strict=True):
                vector, kept = self._changed.get(member, update)
                sums[member[0]].add(vector)
                if self._world.recipe.personal:
                    personal[member[1]] = kept
        return sums

    def explain(self, gap: Tensor, factor: float, enough: float) -> bool:
        """Change updates by their rounding as long as that explains a part of a gap [k].

        Returns whether an update was changed.

        Args:
            gap: the run's release minus the replayed one.
            factor: on the round's own sums in what is released.
            enough: the norm of a gap that needs no explanation.
        """
        for change, first in product(
            CHANGES, range(0, len(self._members), self._chunk)
        ):
            if gap.norm() <= enough:
                break
            pairs = zip(self._trained(first), self._trained(first, change), strict=True)
            for member, (now, other) in zip(self._chunk_of(first), pairs, strict=True):
                clipped = self._empty[member[0]]()
                used, _ = self._changed.get(member, now)
                difference = clipped.summand(used) - clipped.summand(other[0])
                rest = gap + factor * difference
                if rest.norm() < EXPLAINED * gap.norm():
                    self._changed[member], gap = other, rest
        return bool(self._changed)

    def _chunk_of(self, first: int) -> list[tuple[int, int]]:
        return self._members[first : first + self._chunk]

    def _trained(self, first: int, change: float = 0.0) -> list[tuple[Tensor, Tensor]]:
        """What the clients of a chunk send and keep, kept in memory where it has room."""
        if (first, change) in self._kept:
            return self._kept[first, change]
        clients = [client for _, client in self._chunk_of(first)]
        found = [*updates(self._world, self._round, self._start, clients, change)]
        if len(self._kept) < KEPT // max(
            1, self._chunk * self._world.parts.model.parameters
        ):
            self._kept[first, change] = found
        return found


def noisy_sum(
    world: World,
    line: Line,
    place: int,
    start: Start,
    released: Tensor | None,
    workers: int,
    personal: dict[int, Tensor],
) -> Release:
    """A noisy sum of clipped updates; the noise is drawn again, or, without the key, not known.

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
    known = not (world.recipe.noisy and world.secret)
    noise = np.zeros(size)
    if world.recipe.noisy and known:
        noise = noise_of(world, line, size)
    factors = mixture(world.plan, line.record.round)
    cohort = Cohort(world, line, start, workers)
    sums = cohort.sums(personal)
    total = _mixed(sums, place, start, factors, size)
    vector = (total + torch.from_numpy(noise)).float()
    unit = unit_of(line.record.noise_std, vector)
    summed_norms = sum(one.summed_norms for one in sums)
    limit = ROUNDINGS * rounding_of(vector, summed_norms, unit)
    if released is not None and not known:
        vector = released
    elif released is not None:
        off = deviation(released, vector, unit).norm
        if limit < off < EXAMINED:
            gap = released.double() - total - torch.from_numpy(noise)
            explained = cohort.explain(gap, factors[0], limit / 2 * unit)
            limit *= AT_KINKS / ROUNDINGS if explained else 1
            sums = cohort.sums(personal)
            total = _mixed(sums, place, start, factors, size)
            vector = (total + torch.from_numpy(noise)).float()
    record = _with_evidence(world, line, sums, total, vector, noise)
    near = sum(one.near for one in sums)
    return Release(vector, record, near, unit, limit, [one.total for one in sums])


def _mixed(
    sums: Sequence[ClippedSum],
    place: int,
    start: Start,
    factors: Sequence[float],
    size: int,
) -> Tensor:
    """The mixture of the sums of a round and of those before it, without noise [k]."""
    total = torch.zeros(size, dtype=torch.float64)
    rounds = [[one.total for one in sums], *(past[place] for past in start.past)]
    for factor, of_round in zip(factors, rounds, strict=False):
        for of_group in of_round:
            total = total + factor * of_group
    return total


def _with_evidence(
    world: World,
    line: Line,
    sums: Sequence[ClippedSum],
    total: Tensor,
    vector: Tensor,
    noise: np.ndarray,
) -> ReleaseRecord:
    """The ledger line with what training and noise give."""
    shares = [
        part.share.model_copy(update=one.evidence)
        for part, one in zip(line.parts, sums, strict=True)
    ]
    if not world.recipe.noisy:
        return line.record.model_copy(update={"shares": tuple(shares)})
    rest, length = vector.double() - total, float(total.norm())
    along = float(rest @ total) / length if length else None
    changes = {
        "shares": tuple(shares),
        "noise_sum_squares": float(np.square(noise).sum()),
        "residual": Residual(sum_squares=float(rest @ rest), along_sum=along),
    }
    return line.record.model_copy(update=changes)


def _finish(world: World, line: Line, part: Part, norm: float) -> Finish:
    """What follows clipping: the count for an adaptive norm, the group's scale, the grid."""
    rule, grid = world.plan.clipping, line.record.grid
    largest = (part.share.clip_bound or 0.0) * (1 - 2.0**-30)

    def finish(sent: Tensor, exceeds: bool) -> Tensor:
        if rule is not None:
            half = rule.update_noise_multiplier / rule.count_noise_multiplier / 2
            sent = torch.cat(
                [sent / norm, sent.new_tensor([-half if exceeds else half])]
            )
            sent = sent * world.plan.clip_factor(part.group)
        if world.recipe.scaled:
            sent = sent * part.group.scale
        if grid is None:
            return sent
        within = sent * min(1.0, largest / max(float(sent.norm()), 1e-300))
        return (within / grid).trunc() * grid

    return finish


def noise_of(world: World, line: Line, size: int) -> np.ndarray:
    """The noise of a line [size], drawn again."""
    source, grid, std = (
        world.source(*line.stream),
        line.record.grid,
        line.record.noise_std,
    )
    if grid is not None:
        return discrete_gaussian(source, std / grid, size) * grid
    return np.asarray(source.standard_normal(size) * std)
