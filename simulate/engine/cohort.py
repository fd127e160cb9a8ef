"""The clients' side of a round: local training, transforms, and what leaves clients.

Secure aggregation is modelled by its result: an algorithm with sums receives one sum
per group. Updates of single clients leave this module only where the algorithm's
clients send their own releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from privplan.accounting.release import SamplingLaw
from privplan.errors import InputError
from privplan.plan import GroupPlan
from simulate.algorithm import extra_coordinates, groups_in_round, sensitivity_bound
from simulate.components import ClientUpdate, GroupSum, TransformContext
from simulate.engine.chunks import TrainedChunk, rows_of, trained_chunks
from simulate.engine.experiment import Experiment
from simulate.engine.round import (
    CHUNK_CLIENTS,
    PersonalState,
    RoundContext,
    positions,
)
from simulate.norms import Measured, add_grid_sum, add_sum, norms
from simulate.parallel import Ranks, all_gather, all_reduce_max, all_reduce_sum


@dataclass
class _PartialSum:
    """One rank's part of a group's sum while the cohort is trained."""

    total: Tensor  # [k], float64
    participants: tuple[int, ...]  # positions in the group, of all ranks
    largest_norm: Tensor
    counts: Tensor  # clipped updates, and updates that were not finite [2]
    canaries: int = 0  # those that take part, over all ranks
    without_canaries: Tensor | None = None  # the total before they are added [k]


class _Transformed(NamedTuple):
    """Updates of K clients after all transforms."""

    updates: Tensor  # [K, k]; zero where an update is not finite
    norms: Tensor  # [K], float64
    clipped: Tensor  # whether a transform shortened the update [K]
    finite: Tensor  # whether it was finite before and after the transforms [K]


def group_sums(
    experiment: Experiment, context: RoundContext
) -> tuple[tuple[GroupSum, ...], PersonalState]:
    """Train a round's cohort and sum its updates, one sum for each group."""
    drawn = positions(experiment, context.round)
    sums = [_empty_sum(experiment, context, cohort) for cohort in drawn]
    personal: list[tuple[np.ndarray, Tensor]] = []
    for trained in trained_chunks(experiment, context, drawn):
        chunk = trained.chunk
        result = trained.result
        if result.personal is not None:
            personal.append((chunk.clients, result.personal))
        partial = sums[chunk.index]
        _add(partial, result.updates, experiment, context, chunk.group)

    groups = groups_in_round(experiment.algorithm, context.round)
    for index, group in enumerate(groups):
        _add_canaries(sums[index], index, group, experiment, context)

    evidence = _evidence(experiment.ranks, sums)
    totals = tuple(
        _reduced(experiment, context.round, *of_group)
        for of_group in zip(groups, sums, evidence, strict=True)
    )
    return totals, _from_all_ranks(experiment, _personal_vectors(personal))


def _evidence(ranks: Ranks, sums: Sequence[_PartialSum]) -> list[list[float]]:
    """Clipped updates, excluded ones and the largest norm of each sum, of all ranks.

    They come from the device in one copy.
    """
    counts = all_reduce_sum(
        ranks, torch.stack([partial_sum.counts for partial_sum in sums])
    )
    norms = torch.stack([partial_sum.largest_norm for partial_sum in sums])
    largest = all_reduce_max(ranks, norms)
    evidence: list[list[float]] = torch.cat(
        [counts.double(), largest[:, None]], 1
    ).tolist()
    return evidence


def _empty_sum(
    experiment: Experiment, context: RoundContext, cohort: np.ndarray
) -> _PartialSum:
    """The sum of a group before any update, with the positions of its participants."""
    coordinates = context.released_coordinates
    if coordinates is None:
        size = experiment.dimension
    else:
        size = len(coordinates)
    size += extra_coordinates(experiment.algorithm)
    device = experiment.device
    return _PartialSum(
        total=torch.zeros(size, dtype=torch.float64, device=device),
        participants=tuple(cohort.tolist()),
        largest_norm=torch.zeros((), dtype=torch.float64, device=device),
        counts=torch.zeros(2, dtype=torch.int64, device=device),
    )


def client_updates(
    experiment: Experiment, context: RoundContext
) -> tuple[tuple[ClientUpdate, ...], PersonalState]:
    """Train a round's cohort whose clients send their own releases."""
    drawn = positions(experiment, context.round)
    personal: list[tuple[np.ndarray, Tensor]] = []
    sent: list[ClientUpdate] = []
    for trained in trained_chunks(experiment, context, drawn):
        if trained.result.personal is not None:
            personal.append((trained.chunk.clients, trained.result.personal))
        sent += _sent_by(trained, experiment, context)

    # In the order of the plan's groups, whichever rank trained a client.
    of_all = all_gather(experiment.ranks, sent, experiment.device)
    groups = experiment.algorithm.plan.groups
    places = {group.name: index for index, group in enumerate(groups)}
    of_all.sort(key=lambda update: (places[update.group.name], update.position))
    return tuple(of_all), _from_all_ranks(experiment, _personal_vectors(personal))


def _sent_by(
    trained: TrainedChunk, experiment: Experiment, context: RoundContext
) -> list[ClientUpdate]:
    """The updates of a chunk's clients, as each sends its own."""
    chunk = trained.chunk
    updates = trained.result.updates
    transformed = _transformed(updates, experiment, context, chunk.group)
    lengths = torch.stack([row.double().norm() for row in transformed.updates])
    finite = transformed.finite.double()
    evidence = torch.stack([lengths, finite], 1).tolist()
    sent = []
    for row, (norm, is_finite) in enumerate(evidence):
        of_client = rows_of(trained.result, slice(row, row + 1))
        sent.append(
            ClientUpdate(
                group=chunk.group,
                client=int(chunk.clients[row]),
                position=int(chunk.positions[row]),
                vector=transformed.updates[row].clone(),
                norm=norm,
                noise_evidence=of_client.noise_evidence,
                excluded=not is_finite,
            )
        )
    return sent


def _personal_vectors(chunks: Sequence[tuple[np.ndarray, Tensor]]) -> PersonalState:
    """Personal vectors by number of the client, in one copy from the device."""
    if not chunks:
        return {}
    clients = np.concatenate([numbers for numbers, _ in chunks])
    rows = torch.cat([vectors for _, vectors in chunks]).cpu()
    return {int(client): row.clone() for client, row in zip(clients, rows, strict=True)}


def _from_all_ranks(experiment: Experiment, personal: PersonalState) -> PersonalState:
    """Personal vectors of the participants of all ranks, by number of the client."""
    of_all: dict[int, Tensor] = {}
    for of_rank in all_gather(experiment.ranks, [personal], torch.device("cpu")):
        of_all.update(of_rank)
    return of_all


def _transformed(
    updates: Tensor, experiment: Experiment, sent: RoundContext, group: GroupPlan
) -> _Transformed:
    """Apply every transform to what may leave the clients [K, d]."""
    if sent.released_coordinates is not None:
        updates = updates.index_select(1, sent.released_coordinates)
    measured = Measured(updates)
    finite_before = measured.norms.isfinite()
    context = TransformContext(sent.round, sent.theta, sent.server, group, measured)
    updates = _without(updates, finite_before)
    clipped = torch.zeros_like(finite_before)
    for transform in experiment.algorithm.transforms:
        result = transform.apply(updates, context)
        if not isinstance(result, tuple):
            rule = "must return the updates, and whether each was clipped or None"
            field = f"transform.apply of {transform.name}"
            raise InputError.one(field, rule, type(result).__name__)
        updates, touched = result
        clipped = clipped if touched is None else clipped | touched

    # Norms are measured anew, whatever the transforms say that they did.
    lengths = norms(updates)
    finite = finite_before & lengths.isfinite()
    lengths = torch.where(finite, lengths, 0.0)
    return _Transformed(_without(updates, finite), lengths, clipped & finite, finite)


def _without(updates: Tensor, finite: Tensor) -> Tensor:
    """The updates [K, k] with zeros in rows that are not finite [K]."""
    # To ask a GPU would take longer than the copy.
    all_finite = updates.device.type == "cpu" and bool(finite.all())
    if all_finite:
        return updates
    return torch.where(finite[:, None], updates, 0.0)


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
    excluded = (~transformed.finite).sum()
    partial.counts += torch.stack([transformed.clipped.sum(), excluded])


def _add_canaries(
    partial: _PartialSum,
    index: int,
    group: GroupPlan,
    experiment: Experiment,
    context: RoundContext,
) -> None:
    """Add a group's canaries to its sum, through the clients' transforms.

    One rank adds them, for all ranks.

    Args:
        partial: the group's sum of this rank.
        index: of the group in the plan.
        group: as in this round.
        experiment: the run.
        context: what clients receive.
    """
    canary = experiment.canary
    if canary is None:
        return
    sending = canary.sending(experiment.algorithm, index, group, context.round)
    partial.canaries = len(sending)
    partial.without_canaries = partial.total.clone()
    if not experiment.ranks.is_main:
        return
    norm = group.clipping_norm or experiment.algorithm.plan.spec.clipping_norm
    for start in range(0, len(sending), CHUNK_CLIENTS):
        chunk = sending[start : start + CHUNK_CLIENTS]
        rows = torch.from_numpy(canary.updates(index, chunk, norm))
        _add(partial, rows.to(experiment.device), experiment, context, group)


def _reduced(
    experiment: Experiment,
    round_: int,
    group: GroupPlan,
    partial: _PartialSum,
    evidence: Sequence[float],
) -> GroupSum:
    """The group's sum over all ranks.

    Args:
        experiment: the run.
        round_: from 1.
        group: as in this round.
        partial: the group's sum of this rank.
        evidence: clipped updates, excluded updates and the largest norm, of all ranks.
    """
    clipped, excluded, largest_norm = evidence
    without_canaries = partial.without_canaries
    if without_canaries is not None:
        without_canaries = all_reduce_sum(experiment.ranks, without_canaries)
    sampler = experiment.algorithm.sampler_of(group)
    return GroupSum(
        group=group,
        total=all_reduce_sum(experiment.ranks, partial.total),
        sampling=(sampler.law or SamplingLaw.FULL).of_person(group.contributions),
        ratio=sampler.ratio(group.clients, group.sampling_ratio),
        participants=partial.participants,
        bound=sensitivity_bound(experiment.algorithm, group),
        largest_norm=largest_norm,
        clipped=int(clipped),
        excluded=int(excluded),
        canaries=partial.canaries,
        without_canaries=without_canaries,
        grid=experiment.grid(round_, group),
    )
