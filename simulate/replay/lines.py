"""The ledger lines that a round should have, as far as they do not depend on training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privplan.accounting.release import SamplingLaw
from privplan.discrete_gaussian import grid_of, scale_for
from privplan.plan import GroupPlan, Plan
from privplan.record import GroupShare, ReleaseRecord
from privplan.secure_streams import NoiseKey, SecureStream
from simulate.data.dataset import Dataset
from simulate.data.partition.clients import ClientPartition
from simulate.models.network import Model
from simulate.replay import randomness as draw
from simulate.replay.method import Method, groups_in_round, weight


@dataclass(frozen=True)
class World:
    """What a run starts from.

    Attributes:
        key: secret of cohorts, noise and Poisson batches; None for those of the seed.
        secret: whether there is such a key, which is not known.
        discrete: whether sums and noise are on a grid.
    """

    plan: Plan
    method: Method
    model: Model
    data: Dataset
    partition: ClientPartition
    seed: int
    key: NoiseKey | None = None
    secret: bool = False
    discrete: bool = False

    def source(self, purpose: int, *indices: int) -> Any:
        """The generator of a private stream, from its start."""
        if self.key is not None:
            return self.key.stream(purpose, *indices)
        return draw.stream(self.seed, purpose, *indices)


@dataclass(frozen=True)
class Part:
    """The participants of one group in one release: the group, their numbers, a ledger share."""

    group: GroupPlan
    clients: np.ndarray
    share: GroupShare


@dataclass(frozen=True)
class Line:
    """A ledger line, the parts of its release, and the stream of its noise."""

    record: ReleaseRecord
    parts: tuple[Part, ...]
    stream: tuple[int, ...]

    def noise(self, world: World) -> Any:
        """The generator of the noise, from its start."""
        return world.source(*self.stream)


def planned_lines(world: World, round_: int, recorded: Sequence[ReleaseRecord] = ()) -> list[Line]:
    """The lines of a round; fields that depend on training are zero.

    Args:
        world: what the run starts from.
        round_: the round, from 1.
        recorded: the lines of the run, whose participants are taken where a key is not known.
    """
    by_client, noisy = world.method.release == "per_client", world.method.noisy
    size, lines = world.model.parameters + (world.plan.clipping is not None), []
    parts = list(_parts(world, round_, recorded))
    joint = world.method.release == "joint"
    for index, together in enumerate([parts] if joint else [[part] for part in parts]):
        first = together[0]
        stream = (draw.NOISE, round_, index)
        if by_client:
            stream = (draw.RECORD_NOISE, round_, int(first.clients[0]))
        steps = first.group.steps or 1
        stds = [part.group.noise_multiplier * (part.share.clip_bound or 0) for part in together]
        state = _state(world.source(*stream)) if noisy and not world.secret else ""
        std, grid, family = max(stds), None, "gaussian" if noisy else "none"
        if world.discrete:
            family, grid = "discrete_gaussian", grid_of(std)
            std = scale_for(std) * grid
        record = ReleaseRecord(
            round=round_,
            unit="record" if by_client else "client",
            family=family,
            steps=steps,
            noise_std=std,
            grid=grid,
            dimension=size * steps if noisy else 0,
            noise_sum_squares=0.0,
            noise_state=state,
            shares=tuple(part.share for part in together),
        )
        lines.append(Line(record, tuple(together), stream))
    return lines


def _state(source: Any) -> str:
    """The hash of a stream's state, as in the ledger's ``noise_state``."""
    return source.fingerprint() if isinstance(source, SecureStream) else draw.state_hash(source)


def _parts(world: World, round_: int, recorded: Sequence[ReleaseRecord]) -> Iterator[Part]:
    """Participants of each group, or of each release of one client, in the order of the ledger."""
    named = {one.group: one.participants for line in recorded for one in line.shares}
    plan, method, law = world.plan, world.method, str(world.plan.spec.sampling)
    for index, group in enumerate(groups_in_round(plan, round_)):
        source = world.source(draw.SAMPLING, round_, index)
        ratio = draw.executed_ratio(law, group.clients, group.sampling_ratio)
        if method.release == "per_client":
            law, ratio = "poisson", group.record_sampling_ratio or 1.0
            chosen = list(draw.turn(group.clients, group.sampling_ratio, round_)[:, None])
        else:
            chosen = [draw.cohort(law, source, group.clients, group.sampling_ratio)]
            if world.secret:
                within = [one for one in named.get(group.name) or () if one < group.clients]
                chosen = [np.array(within, np.int64)]
        norm = plan.spec.clipping_norm if plan.clipping is None else plan.clipping.bound
        for positions in chosen:
            clients = np.asarray(world.partition.members[index])[positions]
            owned = len(world.partition.records(int(clients[0]))) if group.records else None
            share = GroupShare(
                group=group.name,
                clients=group.clients,
                sampling=SamplingLaw(law),
                sampling_ratio=ratio,
                cohort=len(positions),
                participants=tuple(positions.tolist()),
                records=owned,
                clip_bound=norm * (group.scale if method.scaled else 1) if method.noisy else None,
                largest_norm=0.0,
                clipped=0,
                weight=weight(plan, group, method.weight),
            )
            yield Part(group, clients, share)
