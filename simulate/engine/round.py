"""Who takes part in a round, and which coordinates may leave them: drawn without any data.

What clients are told and given in a round, and how many of them are trained together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privplan.plan import GroupPlan
from simulate.algorithm import groups_in_round
from simulate.components import ClientBatch, State
from simulate.engine.batches import batches
from simulate.engine.client_state import PersonalState, rows_of
from simulate.engine.experiment import Experiment
from simulate.engine.seeds import Purpose, stream


def public_mask(setting: Experiment, round_: int) -> Tensor | None:
    """The coordinates that are released in a round [k], sorted; None for all.

    They depend on the model, the seed and the round, never on data.
    """
    algorithm, dimension = setting.algorithm, setting.dimension
    shared = algorithm.split.shared(setting.model)
    kept = None if shared is None else shared.numpy()
    for index, transform in enumerate(algorithm.transforms):
        if transform.support is not None:
            generator = stream(setting.seed, Purpose.SUPPORT, round_, index)
            drawn = transform.support(generator, dimension).numpy()
            kept = drawn if kept is None else np.intersect1d(kept, drawn)
    return None if kept is None else torch.from_numpy(kept).to(setting.device)


def positions(setting: Experiment, round_: int) -> list[np.ndarray]:
    """Who takes part in a round: positions within each group, sorted."""
    sampler = setting.algorithm.sampler
    return [
        sampler.draw(
            stream(setting.seed, Purpose.SAMPLING, round_, index),
            group.clients,
            group.sampling_ratio,
            round_,
        )
        for index, group in enumerate(groups_in_round(setting.algorithm, round_))
    ]


def participants(setting: Experiment, round_: int) -> list[np.ndarray]:
    """The clients of each group who take part in a round, by number."""
    drawn = positions(setting, round_)
    return [
        np.asarray(members)[chosen]
        for members, chosen in zip(setting.held.members, drawn, strict=True)
    ]


CHUNK_CLIENTS = 128
CHUNK_BYTES = 64 * 2**20
"""Most clients, and most bytes of their mini-batches, that are trained at a time."""


@dataclass(frozen=True)
class RoundContext:
    """What clients are told at the start of a round.

    Attributes:
        number: training round, from 1.
        theta: global vector [d].
        server: the server's state.
        kept: the coordinates that are released [k], sorted; None for all.
        personal: what clients keep from earlier rounds, by number.
    """

    number: int
    theta: Tensor
    server: State
    kept: Tensor | None
    personal: PersonalState


def clients_per_chunk(setting: Experiment) -> int:
    """How many clients are trained together."""
    local = setting.local
    pixels = int(np.prod(setting.data.shape))
    a_client = 4 * local.steps * local.batch_size * pixels + 16 * max(
        setting.model.parameters, setting.dimension
    )
    return max(1, min(CHUNK_CLIENTS, CHUNK_BYTES // a_client))


def client_batch(
    setting: Experiment, told: RoundContext, group: GroupPlan, clients: np.ndarray, *, round_: int
) -> ClientBatch:
    """What clients of one group are given.

    Args:
        setting: the run.
        told: what they are told.
        group: their group.
        clients: their numbers [K].
        round_: the round that names their stream of mini-batches.
    """
    local, drawn = setting.local, setting.algorithm.local.poisson
    x, y = batches(
        setting.data,
        setting.held,
        clients,
        seed=setting.seed,
        round_=round_,
        steps=(group.steps or local.steps) if drawn else local.steps,
        size=local.batch_size,
        device=setting.device,
        ratio=group.record_sampling_ratio if drawn else None,
    )
    return ClientBatch(
        model=setting.model,
        theta=told.theta,
        personal=rows_of(told.personal, clients, setting.personal_start, setting.device),
        x=x,
        y=y,
        learning_rate=setting.learning_rate(told.number),
        momentum=local.momentum,
        workers=setting.workers,
        round=told.number,
        server=told.server,
        group=group,
        clients=clients,
        records=setting.held.sizes(clients),
        noise=lambda client: stream(setting.seed, Purpose.RECORD_NOISE, round_, client),
    )
