"""Inputs of a round: cohort, released coordinates, personal vectors, mini-batches.

Cohort and released coordinates are drawn from the seed without access to data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privplan.plan import GroupPlan
from privplan.streams import Purpose, streams
from simulate.algorithm import groups_in_round
from simulate.components import ClientBatch, State
from simulate.data.augmentation import augmented
from simulate.engine.batches import batches
from simulate.engine.experiment import Experiment
from simulate.models.objective import SEED_BITS, with_seeds
from simulate.postprocessing import public_coordinates

# Most clients in one chunk of local training, and most bytes of their mini-batches.
CHUNK_CLIENTS = 128
CHUNK_BYTES = 64 * 2**20
# A GPU may have chunks of this part of its memory: not of the free memory, on which
# results would depend.
CHUNKS_IN_MEMORY = 64

PersonalState = Mapping[int, Tensor]
"""Personal vectors [p] by number of the client, on the CPU, of past participants.

All other clients have the common initial vector, so memory does not grow with the
population.
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
    """The personal vectors of some clients [K, p].

    Args:
        personal: of past participants.
        clients: their numbers [K].
        start: of all others [p]; None without personal vectors.
        device: where the vectors are put.
    """
    if start is None:
        return None
    if len(clients) == 0:
        return start.new_empty((0, len(start))).to(device)
    rows = [personal.get(int(client), start) for client in clients]
    return torch.stack(rows).to(device)


def released_coordinates(experiment: Experiment, round_: int) -> Tensor | None:
    """Coordinates that are released in a round [k], sorted; None for all.

    They never depend on data.
    """
    coordinates = public_coordinates(
        experiment.algorithm, experiment.model, experiment.seed, round_
    )
    if coordinates is None:
        return None
    return torch.from_numpy(coordinates).to(experiment.device)


def positions(experiment: Experiment, round_: int) -> list[np.ndarray]:
    """Positions of a round's participants within each group, sorted."""
    algorithm = experiment.algorithm
    seats = experiment.partition.seats
    if not seats:
        seats = tuple(group.clients for group in algorithm.plan.groups)
    drawn = []
    for index, group in enumerate(groups_in_round(algorithm, round_)):
        sampler = algorithm.sampler_of(group)
        # A law may draw once for several rounds, from the stream of the first of them.
        stream_round = round_
        if sampler.law is not None:
            stream_round = sampler.law.law.stream_round(round_)
        source = experiment.private_stream(
            Purpose.SAMPLING, stream_round, index, group=group.name
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
    """Number of clients in one chunk, limited by the memory of their mini-batches."""
    local = experiment.local
    values = int(np.prod(experiment.data.shape))
    dimension = max(experiment.model.parameters, experiment.dimension)
    # 4 bytes a value: those of the records, and of four vectors of parameters.
    batch_bytes = 4 * local.steps * experiment.batch_rows * values
    bytes_per_client = batch_bytes + 16 * dimension
    chunk_bytes = CHUNK_BYTES
    if experiment.device.type == "cuda":
        memory = torch.cuda.get_device_properties(experiment.device).total_memory
        chunk_bytes = max(chunk_bytes, memory // CHUNKS_IN_MEMORY)
    return max(1, min(CHUNK_CLIENTS, chunk_bytes // bytes_per_client))


def client_batch(
    experiment: Experiment,
    context: RoundContext,
    group: GroupPlan,
    clients: np.ndarray,
    *,
    round_: int,
) -> ClientBatch:
    """Input of the local rule for clients of one group.

    Args:
        experiment: the run.
        context: what clients receive.
        group: as in this round.
        clients: their numbers [K].
        round_: that names the streams, from 1.
    """
    local = experiment.local
    x, y = _mini_batches(experiment, group, clients, round_)
    return ClientBatch(
        model=experiment.model,
        theta=context.theta,
        personal=personal_rows(
            context.personal, clients, experiment.personal_start, experiment.device
        ),
        x=x,
        y=y,
        learning_rate=experiment.learning_rate(context.round),
        momentum=local.momentum,
        workers=experiment.workers,
        round=context.round,
        server=context.server,
        group=group,
        clients=clients,
        records=experiment.partition.sizes(clients),
        noise=lambda client: experiment.private_stream(
            Purpose.RECORD_NOISE, round_, client
        ),
    )


def _mini_batches(
    experiment: Experiment, group: GroupPlan, clients: np.ndarray, round_: int
) -> tuple[Tensor, Tensor]:
    """Records [K, steps, B, ...] and labels [K, steps, B], augmented and seeded."""
    local = experiment.local
    steps = local.steps
    seed = experiment.seed
    ratio = None
    key = None
    if experiment.algorithm.local.poisson:
        # Who is in a Poisson sample is secret, as a cohort is.
        steps = group.steps or local.steps
        seed = experiment.private_seed()
        ratio = group.record_sampling_ratio
        key = experiment.key
    rows = experiment.batch_rows
    if experiment.trains_alone:
        rows = experiment.rows_of(clients)
    x, y = batches(
        experiment.data,
        experiment.partition,
        clients,
        seed=seed,
        round_=round_,
        steps=steps,
        size=rows,
        device=experiment.device,
        ratio=ratio,
        key=key,
        placed=experiment.placed,
    )
    keys = experiment.partition.stream_keys(clients)
    sources = streams(experiment.seed, Purpose.AUGMENTATION, round_, clients=keys)
    x = augmented(x, local.augmentation, sources)

    # A module with dropout draws from seeds that travel with the labels.
    if experiment.model.stochastic:
        steps = y.shape[1]
        sources = streams(experiment.seed, Purpose.DROPOUT, round_, clients=keys)
        drawn = [source.integers(2**SEED_BITS, size=steps) for source in sources]
        if drawn:
            seeds = np.stack(drawn)
        else:
            seeds = np.zeros((0, steps), np.int64)
        y = with_seeds(y, torch.from_numpy(seeds))
    return x, y
