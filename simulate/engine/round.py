"""Inputs of a round: cohort, released coordinates, personal state, and the participants' batches.

Cohort and released coordinates are drawn from the seed without access to data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privplan.plan import GroupPlan
from simulate.algorithm import groups_in_round
from simulate.components import ClientBatch, State
from simulate.data.augmentation import augmented
from simulate.engine.batches import batches
from simulate.engine.experiment import Experiment
from simulate.engine.seeds import Purpose, stream, streams
from simulate.models.objective import SEED_BITS, with_seeds

CHUNK_CLIENTS = 128
CHUNK_BYTES = 64 * 2**20
"""Most clients, and most bytes of their mini-batches, in one chunk of local training."""

PersonalState = Mapping[int, Tensor]
"""Personal vectors [p] by number of the client, on the CPU, of the clients that have taken part.

All other clients have the common initial vector, so memory does not grow with the population.
"""


@dataclass(frozen=True)
class RoundContext:
    """What clients receive at the start of a round.

    Attributes:
        round: training round, from 1.
        theta: global vector [d].
        server: the server's state.
        released_coordinates: coordinates that are released [k], sorted; None for all.
        personal: personal vectors from earlier rounds, by number of the client.
    """

    round: int
    theta: Tensor
    server: State
    released_coordinates: Tensor | None
    personal: PersonalState


def personal_rows(
    personal: PersonalState, clients: np.ndarray, start: Tensor | None, device: torch.device
) -> Tensor | None:
    """Returns the personal vectors of some clients.

    Args:
        personal: personal vectors so far.
        clients: numbers of the clients [K].
        start: personal vector before a client's first round [p]; None when clients have none.
        device: device of the result.

    Returns:
        Personal vectors [K, p], or None when clients have none.
    """
    if start is None:
        return None
    if len(clients) == 0:
        return start.new_empty((0, len(start))).to(device)
    return torch.stack([personal.get(int(client), start) for client in clients]).to(device)


def released_coordinates(experiment: Experiment, round_: int) -> Tensor | None:
    """Coordinates that are released in a round [k], sorted; None for all.

    They depend on the model, the seed and the round, never on data.
    """
    algorithm, dimension = experiment.algorithm, experiment.dimension
    shared = algorithm.split.shared(experiment.model)
    coordinates = None if shared is None else shared.numpy()
    for index, transform in enumerate(algorithm.transforms):
        if transform.public_mask is not None:
            generator = stream(experiment.seed, Purpose.SUPPORT, round_, index)
            drawn = transform.public_mask(generator, dimension).numpy()
            coordinates = drawn if coordinates is None else np.intersect1d(coordinates, drawn)
    return None if coordinates is None else torch.from_numpy(coordinates).to(experiment.device)


def positions(experiment: Experiment, round_: int) -> list[np.ndarray]:
    """Positions of a round's participants within each group, sorted."""
    sampler = experiment.algorithm.sampler
    return [
        sampler.draw(
            experiment.private_stream(Purpose.SAMPLING, round_, index),
            group.clients,
            group.sampling_ratio,
            round_,
        )
        for index, group in enumerate(groups_in_round(experiment.algorithm, round_))
    ]


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
    bytes_per_client = 4 * local.steps * experiment.batch_rows * pixels + 16 * max(
        experiment.model.parameters, experiment.dimension
    )
    return max(1, min(CHUNK_CLIENTS, CHUNK_BYTES // bytes_per_client))


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
        context: what clients receive at the start of the round.
        group: the clients' group.
        clients: numbers of the clients [K].
        round_: round that names the random streams of mini-batches and of record noise.
    """
    local, poisson = experiment.local, experiment.algorithm.local.poisson
    x, y = batches(
        experiment.data,
        experiment.partition,
        clients,
        seed=experiment.seed,
        round_=round_,
        steps=(group.steps or local.steps) if poisson else local.steps,
        size=experiment.batch_rows,
        device=experiment.device,
        ratio=group.record_sampling_ratio if poisson else None,
        key=experiment.key if poisson else None,
    )
    sources = streams(experiment.seed, Purpose.AUGMENTATION, round_, clients=clients)
    x = augmented(x, local.augmentation, sources)
    if experiment.model.stochastic:
        y = with_seeds(y, _seeds(experiment, round_, clients, y.shape[1]))
    start = experiment.personal_start
    return ClientBatch(
        model=experiment.model,
        theta=context.theta,
        personal=personal_rows(context.personal, clients, start, experiment.device),
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
        noise=lambda client: experiment.private_stream(Purpose.RECORD_NOISE, round_, client),
    )


def _seeds(experiment: Experiment, round_: int, clients: np.ndarray, steps: int) -> Tensor:
    """Seeds of the random numbers in training [K, steps], from each client's own stream."""
    drawn = [
        source.integers(2**SEED_BITS, size=steps)
        for source in streams(experiment.seed, Purpose.DROPOUT, round_, clients=clients)
    ]
    return torch.from_numpy(np.stack(drawn)) if drawn else torch.zeros(0, steps, dtype=torch.int64)
