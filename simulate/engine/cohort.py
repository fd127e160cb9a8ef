"""The clients' side of a round: local training, transforms, and what leaves the clients.

Secure aggregation is modelled by the one thing that ``play`` of an algorithm with sums is
handed: a sum a group. Single updates leave this file only where the algorithm's clients send
for themselves, and then each of them is a release.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privplan.accounting.release import SamplingLaw
from privplan.plan import GroupPlan
from simulate.algorithm import extra_coordinates, groups_in_round, sensitivity_bound
from simulate.components import (
    ClientUpdate,
    GroupSum,
    LocalResult,
    RecordNoiseEvidence,
    TransformContext,
)
from simulate.engine.client_state import PersonalState
from simulate.engine.experiment import Experiment
from simulate.engine.round import (
    CHUNK_CLIENTS,
    RoundContext,
    client_batch,
    clients_per_chunk,
    positions,
)
from simulate.norms import add_sum, norms
from simulate.parallel.distributed import gather, largest, share, total


@dataclass
class _Tally:
    """A group's sum in one process while the cohort is trained; never seen outside this file.

    Attributes:
        total: sum of the transformed updates [k], float64.
        participants: positions in the group of those who take part, in all processes.
        largest: largest norm among the summands, float64.
        counts: how many updates were shortened, and how many were not finite [2].
        canaries: how many canaries of an audit take part, in all processes.
        others: the total without the canaries [k]; None in a run without any.
    """

    total: Tensor
    participants: tuple[int, ...]
    largest: Tensor
    counts: Tensor
    canaries: int = 0
    others: Tensor | None = None


@dataclass(frozen=True)
class _Part:
    """Clients of one group who are trained together, and what came of it."""

    index: int
    group: GroupPlan
    clients: np.ndarray
    positions: np.ndarray
    trained: LocalResult


def group_sums(
    setting: Experiment, told: RoundContext
) -> tuple[tuple[GroupSum, ...], PersonalState]:
    """Train a round's cohort and sum its updates.

    Args:
        setting: the run.
        told: what clients are told.

    Returns:
        One sum a group of the plan, in the plan's order, zero for a group without participants;
        and what the participants keep.
    """
    groups = groups_in_round(setting.algorithm, told.number)
    size = setting.dimension if told.kept is None else len(told.kept)
    size += extra_coordinates(setting.algorithm)
    tallies = [_begun(setting, size, drawn) for drawn in positions(setting, told.number)]
    personal: dict[int, Tensor] = {}
    for part in _parts(setting, told):
        personal.update(_keeps(part))
        updates = _sent(part.trained.updates, told.kept)
        context = TransformContext(told.number, told.theta, told.server, part.group)
        _add(tallies[part.index], updates, setting, context)
    for index, group in enumerate(groups):
        _add_canaries(tallies[index], index, group, setting, told)
    sums = tuple(
        _closed(setting, group, tally) for group, tally in zip(groups, tallies, strict=True)
    )
    return sums, _of_all(setting, personal)


def client_updates(
    setting: Experiment, told: RoundContext
) -> tuple[tuple[ClientUpdate, ...], PersonalState]:
    """Train a round's cohort whose clients send for themselves.

    Args:
        setting: the run.
        told: what clients are told.

    Returns:
        One update a participant, and what the participants keep. An update that is not finite
        is sent as zero.
    """
    personal: dict[int, Tensor] = {}
    sent: list[ClientUpdate] = []
    for part in _parts(setting, told):
        personal.update(_keeps(part))
        updates = _sent(part.trained.updates, told.kept)
        context = TransformContext(told.number, told.theta, told.server, part.group)
        made = _transformed(updates, setting, context)
        for row, (client, position) in enumerate(zip(part.clients, part.positions, strict=True)):
            spent = None if part.trained.spent is None else _row(part.trained.spent, row)
            vector = made.updates[row].clone()
            whole = bool(made.finite[row])
            sent.append(
                ClientUpdate(part.group, int(client), int(position), vector, spent, not whole)
            )
    everybody = gather(setting.ranks, sent, setting.device)
    order = {group.name: index for index, group in enumerate(setting.algorithm.plan.groups)}
    everybody.sort(key=lambda one: (order[one.group.name], one.position))
    return tuple(everybody), _of_all(setting, personal)


def _parts(setting: Experiment, told: RoundContext) -> Iterator[_Part]:
    """Train this process's share of the cohort, a chunk of one group's clients at a time."""
    groups = groups_in_round(setting.algorithm, told.number)
    step = clients_per_chunk(setting)
    for index, (group, drawn, members) in enumerate(
        zip(groups, positions(setting, told.number), setting.held.members, strict=True)
    ):
        own = drawn[share(setting.ranks, len(drawn), turn=index)]
        for first in range(0, len(own), step):
            some = own[first : first + step]
            clients = np.asarray(members)[some]
            work = client_batch(setting, told, group, clients, round_=told.number)
            yield _Part(index, group, clients, some, setting.algorithm.local.train(work))


def _keeps(part: _Part) -> Mapping[int, Tensor]:
    """What the clients of a part keep, by number."""
    if part.trained.personal is None:
        return {}
    kept = part.trained.personal.cpu()
    return {int(client): row.clone() for client, row in zip(part.clients, kept, strict=True)}


def _of_all(setting: Experiment, personal: PersonalState) -> PersonalState:
    """What the participants of all processes keep, by number."""
    parts = gather(setting.ranks, [personal], torch.device("cpu"))
    return {client: row for part in parts for client, row in part.items()}


def _sent(updates: Tensor, kept: Tensor | None) -> Tensor:
    """The coordinates of the updates that may leave the clients [K, k]."""
    return updates if kept is None else updates.index_select(1, kept)


def _finite(updates: Tensor) -> tuple[Tensor, Tensor]:
    """The updates with zero in place of those that are not finite, and which were [K]."""
    finite = norms(updates).isfinite()
    return torch.where(finite[:, None], updates, 0.0), finite


def _begun(setting: Experiment, size: int, drawn: np.ndarray) -> _Tally:
    return _Tally(
        total=torch.zeros(size, dtype=torch.float64, device=setting.device),
        participants=tuple(int(one) for one in drawn),
        largest=torch.zeros((), dtype=torch.float64, device=setting.device),
        counts=torch.zeros(2, dtype=torch.int64, device=setting.device),
    )


@dataclass(frozen=True)
class _Made:
    """What transforms made of the updates of K clients.

    Attributes:
        updates: what they send [K, k]; zero where an update is not finite.
        norms: norms of these [K], float64.
        shortened: which of them a transform shortened [K].
        finite: which updates were finite, before the transforms and after them [K].
    """

    updates: Tensor
    norms: Tensor
    shortened: Tensor
    finite: Tensor


def _transformed(updates: Tensor, setting: Experiment, context: TransformContext) -> _Made:
    """Apply every transform; an update that is not finite, or is made so, becomes zero."""
    updates, sound = _finite(updates)
    shortened = torch.zeros_like(sound)
    for transform in setting.algorithm.transforms:
        updates, touched = transform.apply(updates, context)
        shortened = shortened if touched is None else shortened | touched
    lengths = norms(updates)
    finite = sound & lengths.isfinite()
    updates = torch.where(finite[:, None], updates, 0.0)
    return _Made(updates, torch.where(finite, lengths, 0.0), shortened & finite, finite)


def _add(tally: _Tally, updates: Tensor, setting: Experiment, context: TransformContext) -> None:
    """Transform the updates of one group and add them to this process's sum."""
    made = _transformed(updates, setting, context)
    add_sum(tally.total, made.updates)
    tally.largest = torch.maximum(tally.largest, made.norms.max())
    tally.counts += torch.stack([made.shortened.sum(), (~made.finite).sum()])


def _add_canaries(
    tally: _Tally, index: int, group: GroupPlan, setting: Experiment, told: RoundContext
) -> None:
    """Add the group's canaries to its sum, through the very transforms of clients, once."""
    if setting.canary is None:
        return
    sending = setting.canary.sending(setting.algorithm, index, group, told.number)
    tally.canaries, tally.others = len(sending), tally.total.clone()
    norm = group.clipping_norm or setting.algorithm.plan.spec.clipping_norm
    context = TransformContext(told.number, told.theta, told.server, group)
    if not setting.ranks.leads:
        return
    for first in range(0, len(sending), CHUNK_CLIENTS):
        rows = setting.canary.updates(index, sending[first : first + CHUNK_CLIENTS], norm)
        updates = torch.from_numpy(rows).to(setting.device)
        _add(tally, _sent(updates, told.kept), setting, context)


def _closed(setting: Experiment, group: GroupPlan, tally: _Tally) -> GroupSum:
    """The group's sum over all processes."""
    sampler, ranks = setting.algorithm.sampler, setting.ranks
    clipped, excluded = total(ranks, tally.counts).tolist()
    return GroupSum(
        group=group,
        total=total(ranks, tally.total),
        sampling=sampler.law or SamplingLaw.FULL,
        ratio=sampler.ratio(group.clients, group.sampling_ratio),
        participants=tally.participants,
        bound=sensitivity_bound(setting.algorithm, group),
        largest_norm=float(largest(ranks, tally.largest)),
        clipped=clipped,
        excluded=excluded,
        canaries=tally.canaries,
        others=None if tally.others is None else total(ranks, tally.others),
    )


def _row(spent: RecordNoiseEvidence, row: int) -> RecordNoiseEvidence:
    """The evidence of one client."""
    return RecordNoiseEvidence(
        **{name: value[row : row + 1] for name, value in vars(spent).items()}
    )
