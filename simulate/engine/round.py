"""Inputs of a round: cohort, released coordinates, personal state, and the participants' batches.

Cohort and released coordinates are drawn from the seed without access to data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.plan import GroupPlan
from privplan.streams import NoiseKey, Purpose, streams
from simulate.algorithm import groups_in_round
from simulate.components import ClientBatch, LocalResult, RecordNoiseEvidence, State
from simulate.data.augmentation import augmented
from simulate.data.dataset import Dataset
from simulate.data.partition.clients import ClientPartition
from simulate.engine.experiment import Experiment
from simulate.local.sgd import PADDING
from simulate.models.objective import SEED_BITS, with_seeds
from simulate.parallel import rank_slice
from simulate.postprocessing import public_coordinates

# --- Mini-batches of clients in a round, drawn from each client's own random stream. -------------

ABSENT = -1  # index of a padding row


def schedule(
    records: np.ndarray, steps: int, size: int, generator: np.random.Generator
) -> np.ndarray:
    """Indices of the records in a client's mini-batches [steps, size]; each epoch shuffles them."""
    chosen = np.full((steps, size), ABSENT, np.int64)
    batches_per_epoch = -(-len(records) // size)
    if batches_per_epoch == 1:
        filled = chosen[:, : len(records)]
        filled[:] = records
        generator.permuted(filled, axis=1, out=filled)
        return chosen
    for first in range(0, steps, batches_per_epoch):
        order = generator.permutation(records)
        for step in range(first, min(first + batches_per_epoch, steps)):
            batch = order[(step - first) * size : (step - first + 1) * size]
            chosen[step, : len(batch)] = batch
    return chosen


def poisson_schedule(
    records: np.ndarray, steps: int, ratio: float, generator: np.random.Generator
) -> list[np.ndarray]:
    """Indices of the records in a client's Poisson-sampled mini-batches."""
    return [records[generator.random(len(records)) < ratio] for _ in range(steps)]


def batches(
    data: Dataset,
    partition: ClientPartition,
    clients: np.ndarray,
    *,
    seed: int,
    round_: int,
    steps: int,
    size: int,
    device: torch.device,
    ratio: float | None = None,
    key: NoiseKey | None = None,
    placed: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """The mini-batches of several clients: shuffled epochs, or Poisson samples with a ratio.

    Records and labels are read from ``placed`` if given, for example from a copy on the device.
    """
    sources: Iterable[Any] = streams(seed, Purpose.CLIENT, round_, clients=clients)
    if key is not None:
        sources = (
            key.stream(int(Purpose.CLIENT), round_, int(client)) for client in clients
        )
    owned = [partition.records(int(client)) for client in clients]
    if ratio is None:
        rows = np.full((len(clients), steps, size), ABSENT, np.int64)
        for row, own, source in zip(rows, owned, sources, strict=True):
            row[:] = schedule(own, steps, size, source)
    else:
        drawn = [
            poisson_schedule(own, steps, ratio, source)
            for own, source in zip(owned, sources, strict=True)
        ]
        width = max(1, max(len(batch) for client in drawn for batch in client))
        rows = np.full((len(clients), steps, width), ABSENT, np.int64)
        for client, taken in enumerate(drawn):
            for step, batch in enumerate(taken):
                rows[client, step, : len(batch)] = batch
    records, labels = placed or (data.train_x, data.train_y)
    chosen = torch.from_numpy(rows).to(records.device)
    absent = chosen == ABSENT
    safe = chosen.clamp(min=0)
    x = data.inputs(records[safe].to(device))
    y = labels[safe].masked_fill(absent, PADDING).to(device)
    return x, y


# -------------------------------------------------------------------------------------------------
# Inputs of a round: cohort, released coordinates, personal state, and the participants' batches.

CHUNK_CLIENTS = 128
CHUNK_BYTES = 64 * 2**20
"""Most clients, and most bytes of their mini-batches, in one chunk of local training."""

PersonalState = Mapping[int, Tensor]
"""Personal vectors [p] by number of the client, on the CPU, of the clients that have taken part.

All other clients have the common initial vector, so memory does not grow with the population.
"""


@dataclass(frozen=True)
class RoundContext:
    """What clients receive at the start of a round."""

    round: int  # from 1
    theta: Tensor  # global vector [d]
    server: State
    released_coordinates: Tensor | None  # [k], sorted; None for all
    personal: PersonalState  # from earlier rounds


def personal_rows(
    personal: PersonalState,
    clients: np.ndarray,
    start: Tensor | None,
    device: torch.device,
) -> Tensor | None:
    """The personal vectors of some clients."""
    if start is None:
        return None
    if len(clients) == 0:
        return start.new_empty((0, len(start))).to(device)
    return torch.stack([personal.get(int(client), start) for client in clients]).to(
        device
    )


def released_coordinates(experiment: Experiment, round_: int) -> Tensor | None:
    """Coordinates that are released in a round [k], sorted; None for all; never by data."""
    algorithm, model = experiment.algorithm, experiment.model
    coordinates = public_coordinates(algorithm, model, experiment.seed, round_)
    return (
        None
        if coordinates is None
        else torch.from_numpy(coordinates).to(experiment.device)
    )


def positions(experiment: Experiment, round_: int) -> list[np.ndarray]:
    """Positions of a round's participants within each group, sorted."""
    algorithm, drawn = experiment.algorithm, []
    seats = experiment.partition.seats or [one.clients for one in algorithm.plan.groups]
    for index, group in enumerate(groups_in_round(algorithm, round_)):
        sampler = algorithm.sampler_of(group)
        first = round_ if sampler.law is None else sampler.law.law.stream_round(round_)
        source = experiment.private_stream(
            Purpose.SAMPLING, first, index, group=group.name
        )
        drawn.append(sampler.draw(source, seats[index], group.sampling_ratio, round_))
    return drawn


def participants(experiment: Experiment, round_: int) -> list[np.ndarray]:
    """Client numbers of a round's participants, per group."""
    drawn = positions(experiment, round_)
    return [
        np.asarray(members)[chosen]
        for members, chosen in zip(experiment.partition.members, drawn, strict=True)
    ]


def clients_per_chunk(experiment: Experiment) -> int:
    """Number of clients that are trained in one chunk, limited by the memory of their batches."""
    local = experiment.local
    pixels = int(np.prod(experiment.data.shape))
    dimension = max(experiment.model.parameters, experiment.dimension)
    bytes_per_client = 4 * local.steps * experiment.batch_rows * pixels + 16 * dimension
    most = CHUNK_BYTES
    if (
        experiment.device.type == "cuda"
    ):  # not of the free memory, on which results would depend
        most = max(
            most, torch.cuda.get_device_properties(experiment.device).total_memory // 64
        )
    return max(1, min(CHUNK_CLIENTS, most // bytes_per_client))


def client_batch(
    experiment: Experiment,
    context: RoundContext,
    group: GroupPlan,
    clients: np.ndarray,
    *,
    round_: int,
) -> ClientBatch:
    """Input of the local rule for clients of one group."""
    local, poisson = experiment.local, experiment.algorithm.local.poisson
    x, y = batches(
        experiment.data, experiment.partition, clients,
        seed=experiment.private_seed() if poisson else experiment.seed, round_=round_,
        steps=(group.steps or local.steps) if poisson else local.steps, size=experiment.batch_rows,
        device=experiment.device, ratio=group.record_sampling_ratio if poisson else None,
        key=experiment.key if poisson else None, placed=experiment.placed,
    )  # fmt: skip
    sources = streams(experiment.seed, Purpose.AUGMENTATION, round_, clients=clients)
    x = augmented(x, local.augmentation, sources)
    if experiment.model.stochastic:
        steps = y.shape[1]
        sources = streams(experiment.seed, Purpose.DROPOUT, round_, clients=clients)
        drawn = [source.integers(2**SEED_BITS, size=steps) for source in sources]
        seeds = np.stack(drawn) if drawn else np.zeros((0, steps), np.int64)
        y = with_seeds(y, torch.from_numpy(seeds))
    start = experiment.personal_start
    return ClientBatch(
        model=experiment.model, theta=context.theta,
        personal=personal_rows(context.personal, clients, start, experiment.device), x=x, y=y,
        learning_rate=experiment.learning_rate(context.round), momentum=local.momentum,
        workers=experiment.workers, round=context.round, server=context.server, group=group,
        clients=clients, records=experiment.partition.sizes(clients),
        noise=lambda client: experiment.private_stream(Purpose.RECORD_NOISE, round_, client),
    )  # fmt: skip


# --- Local training of a cohort in chunks of clients. --------------------------------------------


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
    """Train this rank's share of the cohort, and return it one chunk of one group at a time.

    Chunks of several small groups are trained in one batch where the local rule reads nothing of
    the group. The composition of the chunks, and with it every sum, does not depend on that.
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
    experiment: Experiment,
    context: RoundContext,
    drawn: Sequence[np.ndarray],
    step: int,
) -> Iterator[Chunk]:
    """This rank's participants of each group, at most ``step`` at a time."""
    groups = groups_in_round(experiment.algorithm, context.round)
    each = zip(groups, drawn, experiment.partition.members, strict=True)
    for index, (group, found, members) in enumerate(each):
        own = found[rank_slice(experiment.ranks, len(found), turn=index)]
        for first in range(0, len(own), step):
            chosen = own[first : first + step]
            yield Chunk(index, group, np.asarray(members)[chosen], chosen)


def _trained(
    experiment: Experiment, context: RoundContext, chunks: Sequence[Chunk]
) -> Iterator[TrainedChunk]:
    """Train the clients of some chunks in one batch, or in halves where the memory is too small.

    The result is cut into the chunks again.
    """
    clients = np.concatenate([chunk.clients for chunk in chunks])
    try:
        batch = client_batch(
            experiment, context, chunks[0].group, clients, round_=context.round
        )
        result = experiment.algorithm.local.train(batch)
    except torch.OutOfMemoryError:
        if len(clients) < 2:
            raise
        result = None
    if result is None:
        for chunk in chunks:
            for half in np.array_split(
                np.arange(len(chunk.clients)), min(2, len(chunk.clients))
            ):
                part = replace(
                    chunk, clients=chunk.clients[half], positions=chunk.positions[half]
                )
                yield from _trained(experiment, context, [part])
        return
    first = 0
    for chunk in chunks:
        rows = slice(first, first + len(chunk.clients))
        yield TrainedChunk(chunk, result if len(chunks) == 1 else rows_of(result, rows))
        first = rows.stop


def rows_of(result: LocalResult, rows: slice) -> LocalResult:
    """The result of some of the clients."""
    evidence = result.noise_evidence
    return LocalResult(
        result.updates[rows],
        None if result.personal is None else result.personal[rows],
        evidence
        and RecordNoiseEvidence(
            **{name: value[rows] for name, value in vars(evidence).items()}
        ),
    )
