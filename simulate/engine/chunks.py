"""Local training of a cohort in chunks of clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from privplan.plan import GroupPlan
from simulate.algorithm import groups_in_round
from simulate.components import LocalResult, RecordNoiseEvidence
from simulate.engine.experiment import Experiment
from simulate.engine.round import RoundContext, client_batch, clients_per_chunk
from simulate.parallel.distributed import rank_slice


@dataclass(frozen=True)
class Chunk:
    """Participants of one group.

    Attributes:
        index: index of the group in the plan.
        group: the group in this round.
        clients: numbers of the clients [K].
        positions: their positions in the group [K].
    """

    index: int
    group: GroupPlan
    clients: np.ndarray
    positions: np.ndarray


@dataclass(frozen=True)
class TrainedChunk:
    """A chunk, and the result of the local rule."""

    chunk: Chunk
    result: LocalResult


def trained_chunks(
    experiment: Experiment, context: RoundContext, drawn: Sequence[np.ndarray]
) -> Iterator[TrainedChunk]:
    """Train this rank's share of the cohort, and return it one chunk of one group at a time.

    Chunks of several small groups are trained in one batch where the local rule reads nothing of
    the group. The composition of the chunks, and with it every sum, does not depend on that.

    Args:
        experiment: the run.
        context: what clients receive at the start of the round.
        drawn: the cohort, as ``positions`` returns it.
    """
    step, waiting, size = clients_per_chunk(experiment), list[Chunk](), 0
    across_groups = experiment.algorithm.local.across_groups
    for chunk in _chunks(experiment, context, drawn, step):
        if waiting and (not across_groups or size + len(chunk.clients) > step):
            yield from _trained(experiment, context, waiting)
            waiting, size = [], 0
        waiting.append(chunk)
        size += len(chunk.clients)
    if waiting:
        yield from _trained(experiment, context, waiting)


def _chunks(
    experiment: Experiment, context: RoundContext, drawn: Sequence[np.ndarray], step: int
) -> Iterator[Chunk]:
    """This rank's participants of each group, at most ``step`` at a time."""
    groups = groups_in_round(experiment.algorithm, context.round)
    for index, (group, found, members) in enumerate(
        zip(groups, drawn, experiment.partition.members, strict=True)
    ):
        own = found[rank_slice(experiment.ranks, len(found), turn=index)]
        for first in range(0, len(own), step):
            chosen = own[first : first + step]
            yield Chunk(index, group, np.asarray(members)[chosen], chosen)


def _trained(
    experiment: Experiment, context: RoundContext, chunks: Sequence[Chunk]
) -> Iterator[TrainedChunk]:
    """Train the clients of some chunks in one batch; the result is cut into the chunks again."""
    clients = np.concatenate([chunk.clients for chunk in chunks])
    batch = client_batch(experiment, context, chunks[0].group, clients, round_=context.round)
    result = experiment.algorithm.local.train(batch)
    first = 0
    for chunk in chunks:
        rows = slice(first, first + len(chunk.clients))
        yield TrainedChunk(chunk, result if len(chunks) == 1 else _rows_of(result, rows))
        first = rows.stop


def _rows_of(result: LocalResult, rows: slice) -> LocalResult:
    """The result of some of the clients."""
    evidence = result.noise_evidence
    return LocalResult(
        result.updates[rows],
        None if result.personal is None else result.personal[rows],
        None if evidence is None else evidence_rows(evidence, rows),
    )


def evidence_rows(evidence: RecordNoiseEvidence, rows: slice) -> RecordNoiseEvidence:
    """The noise evidence of some of the clients."""
    return RecordNoiseEvidence(**{name: value[rows] for name, value in vars(evidence).items()})
