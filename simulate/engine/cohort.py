"""The clients' side of a round: local training, transforms, and what leaves the clients.

Secure aggregation is modelled by its result: an algorithm with sums receives one sum per group.
Updates of single clients leave this module only where the algorithm's clients send their own
releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from privplan.accounting.release import SamplingLaw
from privplan.plan import GroupPlan
from simulate.algorithm import extra_coordinates, groups_in_round, sensitivity_bound
from simulate.components import ClientUpdate, GroupSum, TransformContext
from simulate.engine.experiment import Experiment
from simulate.engine.round import (
    CHUNK_CLIENTS,
    PersonalState,
    RoundContext,
    positions,
    rows_of,
    trained_chunks,
)
from simulate.norms import Measured, add_grid_sum, add_sum, norms
from simulate.parallel import all_gather, all_reduce_max, all_reduce_sum


@dataclass
class _PartialSum:
    """One rank's part of a group's sum while the cohort is trained."""

    total: Tensor  # [k], float64
    participants: tuple[int, ...]  # positions in the group, of all ranks
    largest_norm: Tensor
    counts: Tensor  # clipped updates, and updates that were not finite [2]
    canaries: int = 0  # those that take part, over all ranks
    others: Tensor | None = None  # the total without the canaries [k]


class _Transformed(NamedTuple):
    """Updates of K clients after all transforms."""

    updates: Tensor  # [K, k]; zero where an update is not finite
    norms: Tensor  # [K], float64
    clipped: Tensor  # whether a transform shortened the update [K]
    finite: Tensor  # whether it was finite before and after the transforms [K]


def group_sums(
    experiment: Experiment, context: RoundContext
) -> tuple[tuple[GroupSum, ...], PersonalState]:
    """Train a round's cohort and sum its updates."""
    groups = groups_in_round(experiment.algorithm, context.round)
    coordinates = context.released_coordinates
    size = experiment.dimension if coordinates is None else len(coordinates)
    size += extra_coordinates(experiment.algorithm)
    drawn = positions(experiment, context.round)
    sums = [
        _PartialSum(
            total=torch.zeros(size, dtype=torch.float64, device=experiment.device),
            participants=tuple(found.tolist()),
            largest_norm=torch.zeros((), dtype=torch.float64, device=experiment.device),
            counts=torch.zeros(2, dtype=torch.int64, device=experiment.device),
        )
        for found in drawn
    ]
    personal: list[tuple[np.ndarray, Tensor]] = []
    for trained in trained_chunks(experiment, context, drawn):
        chunk = trained.chunk
        if trained.result.personal is not None:
            personal.append((chunk.clients, trained.result.personal))
        _add(
            sums[chunk.index], trained.result.updates, experiment, context, chunk.group
        )
    for index, group in enumerate(groups):
        _add_canaries(sums[index], index, group, experiment, context)
    counts = all_reduce_sum(
        experiment.ranks, torch.stack([part.counts for part in sums])
    )
    largest = all_reduce_max(
        experiment.ranks, torch.stack([part.largest_norm for part in sums])
    )
    measured = torch.cat([counts.double(), largest[:, None]], 1).tolist()
    totals = tuple(
        _reduced(experiment, context.round, *of_group)
        for of_group in zip(groups, sums, measured, strict=True)
    )
    return totals, _from_all_ranks(experiment, _personal_vectors(personal))


def client_updates(
    experiment: Experiment, context: RoundContext
) -> tuple[tuple[ClientUpdate, ...], PersonalState]:
    """Train a round's cohort whose clients send their own releases."""
    personal: list[tuple[np.ndarray, Tensor]] = []
    sent: list[ClientUpdate] = []
    for trained in trained_chunks(
        experiment, context, positions(experiment, context.round)
    ):
        chunk = trained.chunk
        if trained.result.personal is not None:
            personal.append((chunk.clients, trained.result.personal))
        transformed = _transformed(
            trained.result.updates, experiment, context, chunk.group
        )
        rows = transformed.updates
        lengths = torch.stack([row.double().norm() for row in rows])
        measured = torch.stack([lengths, transformed.finite.double()], 1).tolist()
        for row, (client, position) in enumerate(
            zip(chunk.clients, chunk.positions, strict=True)
        ):
            sent.append(
                ClientUpdate(
                    group=chunk.group,
                    client=int(client),
                    position=int(position),
                    vector=rows[row].clone(),
                    norm=measured[row][0],
                    noise_evidence=rows_of(
                        trained.result, slice(row, row + 1)
                    ).noise_evidence,
                    excluded=not measured[row][1],
                )
            )
    updates_of_all = all_gather(experiment.ranks, sent, experiment.device)
    order = {
        group.name: index
        for index, group in enumerate(experiment.algorithm.plan.groups)
    }
    updates_of_all.sort(key=lambda update: (order[update.group.name], update.position))
    return tuple(updates_of_all), _from_all_ranks(
        experiment, _personal_vectors(personal)
    )


def _personal_vectors(chunks: Sequence[tuple[np.ndarray, Tensor]]) -> PersonalState:
    """Personal vectors by number of the client, in one copy from the device."""
    if not chunks:
        return {}
    clients = np.concatenate([found for found, _ in chunks])
    rows = torch.cat([found for _, found in chunks]).cpu()
    return {int(client): row.clone() for client, row in zip(clients, rows, strict=True)}


def _from_all_ranks(experiment: Experiment, personal: PersonalState) -> PersonalState:
    """Personal vectors of the participants of all ranks, by number of the client."""
    parts = all_gather(experiment.ranks, [personal], torch.device("cpu"))
    return {client: row for part in parts for client, row in part.items()}


def _transformed(
    updates: Tensor, experiment: Experiment, sent: RoundContext, group: GroupPlan
) -> _Transformed:
    """Apply every transform to what may leave the clients, with zero where it is not finite."""
    if sent.released_coordinates is not None:
        updates = updates.index_select(1, sent.released_coordinates)
    measured = Measured(updates)
    finite_before = measured.norms.isfinite()
    context = TransformContext(sent.round, sent.theta, sent.server, group, measured)
    updates = _without(updates, finite_before)
    clipped = torch.zeros_like(finite_before)
    for transform in experiment.algorithm.transforms:
        updates, touched = transform.apply(updates, context)
        clipped = clipped if touched is None else clipped | touched
    lengths = norms(updates)  # measured anew, whatever the transforms say that they did
    finite = finite_before & lengths.isfinite()
    lengths = torch.where(finite, lengths, 0.0)
    return _Transformed(_without(updates, finite), lengths, clipped & finite, finite)


def _without(updates: Tensor, finite: Tensor) -> Tensor:
    """The updates with zeros in rows that are not finite; no copy on a CPU where all rows are."""
    whole = updates.device.type == "cpu" and bool(finite.all())
    return updates if whole else torch.where(finite[:, None], updates, 0.0)


def _add(
    partial: _PartialSum,
    updates: Tensor,
    experiment: Experiment,
    context: RoundContext,
    group: GroupPlan,
) -> None:
    """Transform updates of one group and add them to this rank's sum."""
    transformed = _transformed(updates, experiment, context, group)
    grid = experiment.grid(context.round, group)
    if grid is None:
        add_sum(partial.total, transformed.updates)
    else:
        bound = sensitivity_bound(experiment.algorithm, group) or 0.0
        add_grid_sum(partial.total, transformed.updates, transformed.norms, bound, grid)
    partial.largest_norm = torch.maximum(partial.largest_norm, transformed.norms.max())
    partial.counts += torch.stack(
        [transformed.clipped.sum(), (~transformed.finite).sum()]
    )


def _add_canaries(
    partial: _PartialSum,
    index: int,
    group: GroupPlan,
    experiment: Experiment,
    context: RoundContext,
) -> None:
    """Add the group's canaries to its sum, once over all ranks, by the clients' transforms."""
    if experiment.canary is None:
        return
    sending = experiment.canary.sending(
        experiment.algorithm, index, group, context.round
    )
    partial.canaries, partial.others = len(sending), partial.total.clone()
    norm = group.clipping_norm or experiment.algorithm.plan.spec.clipping_norm
    if not experiment.ranks.is_main:
        return
    for first in range(0, len(sending), CHUNK_CLIENTS):
        rows = experiment.canary.updates(
            index, sending[first : first + CHUNK_CLIENTS], norm
        )
        _add(
            partial,
            torch.from_numpy(rows).to(experiment.device),
            experiment,
            context,
            group,
        )


def _reduced(
    experiment: Experiment,
    round_: int,
    group: GroupPlan,
    partial: _PartialSum,
    measured: Sequence[float],
) -> GroupSum:
    """The group's sum over all ranks, with its clipped and excluded updates and largest norm."""
    sampler, ranks = experiment.algorithm.sampler_of(group), experiment.ranks
    clipped, excluded, largest = measured
    return GroupSum(
        group=group,
        total=all_reduce_sum(ranks, partial.total),
        sampling=(sampler.law or SamplingLaw.FULL).of_person(group.contributions),
        ratio=sampler.ratio(group.clients, group.sampling_ratio),
        participants=partial.participants,
        bound=sensitivity_bound(experiment.algorithm, group),
        largest_norm=largest,
        clipped=int(clipped),
        excluded=int(excluded),
        canaries=partial.canaries,
        others=None
        if partial.others is None
        else all_reduce_sum(ranks, partial.others),
        grid=experiment.grid(round_, group),
    )
