"""What a run executes, and the ledger lines that it should have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privplan.accounting.release import SamplingLaw
from privplan.discrete_gaussian import grid_of, scale_for
from privplan.plan import GroupPlan, Plan
from privplan.planning.error import RULES
from privplan.record import GroupShare, ReleaseRecord, RunRecord
from privplan.streams import NoiseKey, SecureStream
from simulate.own_parts import RunParts
from simulate.replay import randomness as draw


@dataclass(frozen=True)
class Method:
    """An algorithm that can be replayed.

    Attributes:
        release: ``joint`` (one sum of all groups), ``per_group`` or ``per_client``.
        weight: rule of the factor on each release.
        noisy: whether updates are clipped and noise is added.
        scaled: whether updates are multiplied by the group's scale.
        top_k: whether each released sum is sparsified.
    """

    release: str
    weight: str = "mean"
    noisy: bool = True
    scaled: bool = False
    top_k: bool = False


def method_of(plan: Plan, record: RunRecord) -> Method | None:
    """The method of a run's algorithm under the executed plan; None when it is not supported."""
    rule = "literal" if record.configuration.get("aggregation") == "paper" else "normalised"
    return {
        "FedAvg": Method("joint", noisy=False),
        "DP-FedAvg": Method("joint"),
        "GDPFed": Method("per_group", rule),
        "GDPFed-op": Method("per_group", rule),
        "GDPFed+": Method("per_group", rule, top_k=True),
        "planned": Method("per_group", "normalised", scaled=True, top_k=True)
        if plan.release == "per_group"
        else Method("joint", scaled=True),
        "DPFedAvg": Method("per_client", "client"),
    }.get(record.algorithm)


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
    run: RunParts
    seed: int
    key: NoiseKey | None = None
    secret: bool = False
    discrete: bool = False

    def source(self, purpose: int, *at: int) -> Any:
        """The generator of a private stream, from its start."""
        return self.key.stream(purpose, *at) if self.key else draw.stream(self.seed, purpose, *at)


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
    parts: list[Part]
    stream: tuple[int, ...]


def planned_lines(world: World, round_: int, recorded: Sequence[ReleaseRecord] = ()) -> list[Line]:
    """The lines of a round; fields that depend on training are zero."""
    by_client, noisy = world.method.release == "per_client", world.method.noisy
    size = world.run.model.parameters + (world.plan.clipping is not None)
    parts, lines = list(_parts(world, round_, recorded)), []
    releases = [parts] if world.method.release == "joint" else [[part] for part in parts]
    for index, of_release in enumerate(releases):
        first, stream = of_release[0], (draw.NOISE, round_, index)
        if by_client:
            stream = (draw.RECORD_NOISE, round_, int(first.clients[0]))
        steps, source = first.group.steps or 1, world.source(*stream)
        state = source.fingerprint() if isinstance(source, SecureStream) else draw.hashed(source)
        stds = [one.group.noise_multiplier * (one.share.clip_bound or 0) for one in of_release]
        std, grid, family = max(stds), None, "gaussian" if noisy else "none"
        if world.discrete:
            family, grid = "discrete_gaussian", grid_of(std)
            std = scale_for(std) * grid
        record = ReleaseRecord(
            round=round_, unit="record" if by_client else "client", family=family, steps=steps,
            noise_std=std, grid=grid, dimension=size * steps if noisy else 0,
            noise_sum_squares=0.0, noise_state=state if noisy and not world.secret else "",
            shares=tuple(part.share for part in of_release),
        )  # fmt: skip
        lines.append(Line(record, of_release, stream))
    return lines


def _parts(world: World, round_: int, recorded: Sequence[ReleaseRecord]) -> Iterator[Part]:
    """Participants of each group, or of each release of one client, in the order of the ledger."""
    named = {one.group: one.participants for line in recorded for one in line.shares}
    plan, method = world.plan, world.method
    for index, planned in enumerate(plan.groups):
        (ratio, sigma), size = plan.at_round(planned, round_), planned.clients
        law: str = plan.spec.sampling
        cohort = planned.expected_cohort if planned.segments is None else ratio * size
        changes = {"sampling_ratio": ratio, "expected_cohort": cohort, "noise_multiplier": sigma}
        group = planned.model_copy(update=changes)
        if method.release == "per_client":
            law, ratio = "poisson", group.record_sampling_ratio or 1.0
            chosen = list(draw.turn(size, group.sampling_ratio, round_)[:, None])
        elif world.secret:
            within = [one for one in named.get(group.name) or () if one < size]
            chosen = [np.array(within, np.int64)]
        else:
            chosen = [draw.cohort(law, world.source(draw.SAMPLING, round_, index), size, ratio)]
        norm = plan.spec.clipping_norm if plan.clipping is None else plan.clipping.bound
        of_client, rule = group.weight / size, RULES.get(method.weight)
        for positions in chosen:
            clients = np.asarray(world.run.partition.members[index])[positions]
            owned = len(world.run.partition.records(int(clients[0]))) if group.records else None
            share = GroupShare(
                group=group.name, clients=size, sampling=SamplingLaw(law),
                weight=of_client if rule is None else rule(group, plan),
                sampling_ratio=draw.executed_ratio(law, size, ratio), cohort=len(positions),
                participants=tuple(positions.tolist()), records=owned, largest_norm=0.0, clipped=0,
                clip_bound=norm * (group.scale if method.scaled else 1) if method.noisy else None,
            )  # fmt: skip
            yield Part(group, clients, share)
