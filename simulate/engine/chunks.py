"""Local training of a cohort, in chunks of clients that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch

from privplan.errors import InputError
from privplan.plan import GroupPlan
from simulate.algorithm import groups_in_round
from simulate.components import ClientBatch, LocalResult, LocalRule, RecordNoiseEvidence
from simulate.engine.experiment import Experiment
from simulate.engine.round import RoundContext, client_batch, clients_per_chunk
from simulate.models.modular import forget
from simulate.own_state import is_own
from simulate.parallel import by_chunk, rank_slice

Item = TypeVar("Item")
Result = TypeVar("Result")

# Where a thread assembles the next batch while one is trained. On a CPU it would take a
# core from training.
AHEAD_ON = "cuda"


@dataclass(frozen=True)
class Chunk:
    """Participants of one group."""

    index: int  # of the group in the plan
    group: GroupPlan  # as in this round
    clients: np.ndarray  # numbers of the clients [K]
    positions: np.ndarray  # their positions in the group [K]


@dataclass(frozen=True)
class TrainedChunk:
    """A chunk, and the result of the local rule."""

    chunk: Chunk
    result: LocalResult


def trained_chunks(
    experiment: Experiment, context: RoundContext, drawn: Sequence[np.ndarray]
) -> Iterator[TrainedChunk]:
    """Train this rank's share of the cohort, one chunk of one group after another.

    Chunks of several small groups are trained in one batch where the local rule reads
    nothing of the group. The composition of the chunks, and with it every sum, does not
    depend on that.

    Args:
        experiment: the run.
        context: what clients receive.
        drawn: positions of the participants in each group.
    """
    if experiment.trains_alone:
        yield from _trained_alone(experiment, context, drawn)
        return
    together = _trained_together(experiment, context, drawn)
    for batch in _assembled(experiment, context, together):
        yield from _trained(experiment, context, *batch)


def _trained_alone(
    experiment: Experiment, context: RoundContext, drawn: Sequence[np.ndarray]
) -> Iterator[TrainedChunk]:
    """Train each client by itself: no tensor of its training knows of another one."""
    rule = experiment.algorithm.local

    def trained(chunk: Chunk, rows: slice) -> LocalResult:
        clients = chunk.clients[rows]
        forget(experiment.model)
        batch = client_batch(
            experiment, context, chunk.group, clients, round_=context.round
        )
        return _result(rule, batch)

    workers = experiment.workers if experiment.device.type == "cpu" else 1
    limit = clients_per_chunk(experiment)
    for chunk in _chunks(experiment, context, drawn, limit):
        function = partial(trained, chunk)
        results = by_chunk(function, len(chunk.clients), 1, workers)
        yield TrainedChunk(chunk, _joined(results))


def _trained_together(
    experiment: Experiment, context: RoundContext, drawn: Sequence[np.ndarray]
) -> Iterator[list[Chunk]]:
    """The chunks of each batch."""
    limit = clients_per_chunk(experiment)
    across_groups = experiment.algorithm.local.across_groups
    waiting: list[Chunk] = []
    clients = 0  # in the chunks that wait
    for chunk in _chunks(experiment, context, drawn, limit):
        is_full = clients + len(chunk.clients) > limit
        if waiting and (not across_groups or is_full):
            yield waiting
            waiting = []
            clients = 0
        waiting.append(chunk)
        clients += len(chunk.clients)
    if waiting:
        yield waiting


Assembly = Callable[[], ClientBatch]
"""Returns the input of the local rule, or raises where the memory is too small."""


def _assembled(
    experiment: Experiment, context: RoundContext, together: Iterable[list[Chunk]]
) -> Iterator[tuple[list[Chunk], Assembly]]:
    """The chunks of each batch, with the assembly of their mini-batches."""

    def assemble(chunks: Sequence[Chunk]) -> ClientBatch:
        clients = np.concatenate([chunk.clients for chunk in chunks])
        group = chunks[0].group
        return client_batch(experiment, context, group, clients, round_=context.round)

    if experiment.device.type != AHEAD_ON:
        for chunks in together:
            yield chunks, partial(assemble, chunks)
        return
    with ThreadPoolExecutor(1, "batches") as thread:
        yield from one_ahead(thread, assemble, together)


def one_ahead(
    thread: Executor, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[tuple[Item, Callable[[], Result]]]:
    """Items with a function's results, of which the next is begun when one is used.

    What returns a result does so once, and then keeps no memory.
    """

    def begun(item: Item) -> tuple[Item, Callable[[], Result]]:
        futures = [thread.submit(function, item)]
        return item, lambda: futures.pop().result()

    previous: tuple[Item, Callable[[], Result]] | None = None
    for item in items:
        following = begun(item)
        if previous is not None:
            yield previous
        previous = following
    if previous is not None:
        yield previous


def _chunks(
    experiment: Experiment,
    context: RoundContext,
    drawn: Sequence[np.ndarray],
    limit: int,
) -> Iterator[Chunk]:
    """This rank's participants of each group, at most ``limit`` at a time."""
    groups = groups_in_round(experiment.algorithm, context.round)
    for index, group in enumerate(groups):
        members = np.asarray(experiment.partition.members[index])
        cohort = drawn[index]
        of_rank = cohort[rank_slice(experiment.ranks, len(cohort), turn=index)]
        for start in range(0, len(of_rank), limit):
            positions = of_rank[start : start + limit]
            yield Chunk(index, group, members[positions], positions)


def _trained(
    experiment: Experiment,
    context: RoundContext,
    chunks: Sequence[Chunk],
    assemble: Assembly,
) -> Iterator[TrainedChunk]:
    """Train the clients of some chunks in one batch, and cut the result into chunks.

    Where the memory is too small for that, each chunk is trained in halves.
    """
    # A retry within the handler would keep the failed batch in memory.
    result: LocalResult | None = None
    try:
        result = _result(experiment.algorithm.local, assemble())
    except torch.OutOfMemoryError:
        if sum(len(chunk.clients) for chunk in chunks) < 2:
            raise
    if result is None:
        halves = ([half] for half in chain.from_iterable(map(_halves, chunks)))
        for batch in _assembled(experiment, context, halves):
            yield from _trained(experiment, context, *batch)
        return

    start = 0
    for chunk in chunks:
        rows = slice(start, start + len(chunk.clients))
        yield TrainedChunk(chunk, result if len(chunks) == 1 else rows_of(result, rows))
        start = rows.stop


def _result(rule: LocalRule, batch: ClientBatch) -> LocalResult:
    """What a local rule makes of a batch, checked where the rule is the user's."""
    result = rule.train(batch)
    if is_own(rule.train):
        return checked_result(rule.name, result, batch)
    return result


def checked_result(name: str, result: object, batch: ClientBatch) -> LocalResult:
    """The result of a local rule, as one of the user's may not return it.

    Raises:
        InputError: where it is no ``LocalResult``, or its updates are not [K, d].
    """
    if not isinstance(result, LocalResult):
        rule = "must return a LocalResult"
        raise InputError.one(f"local.train of {name}", rule, result)
    expected = (len(batch.clients), len(batch.theta))
    shape = tuple(result.updates.shape)
    if shape != expected:
        rule = f"must return a row of d numbers per client, [K, d] = {list(expected)}"
        raise InputError.one(f"local.train of {name}", rule, shape)
    return result


def _halves(chunk: Chunk) -> Iterator[Chunk]:
    """A chunk in two, unless it has a single client."""
    clients = len(chunk.clients)
    for rows in np.array_split(np.arange(clients), min(2, clients)):
        yield replace(
            chunk, clients=chunk.clients[rows], positions=chunk.positions[rows]
        )


def _joined(results: Sequence[LocalResult]) -> LocalResult:
    """The results of single clients as one; all have the same parts."""
    personal = [result.personal for result in results if result.personal is not None]
    noise = [result.noise_evidence for result in results if result.noise_evidence]
    evidence = None
    if noise:
        values: dict[str, Any] = {}
        for name in vars(noise[0]):
            of_clients = [getattr(of_client, name) for of_client in noise]
            values[name] = np.concatenate(of_clients)
        values["noise_state"] = tuple(map(str, values["noise_state"]))
        evidence = RecordNoiseEvidence(**values)
    return LocalResult(
        torch.cat([result.updates for result in results]),
        torch.cat(personal) if personal else None,
        evidence,
    )


def rows_of(result: LocalResult, rows: slice) -> LocalResult:
    """The result of some of the clients."""
    personal = None if result.personal is None else result.personal[rows]
    evidence = result.noise_evidence
    if evidence is not None:
        values = {name: value[rows] for name, value in vars(evidence).items()}
        evidence = RecordNoiseEvidence(**values)
    return LocalResult(result.updates[rows], personal, evidence)
