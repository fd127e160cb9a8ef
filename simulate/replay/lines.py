"""The ledger lines that a run should have, as far as they do not depend on training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from privplan.accounting.release import SamplingLaw
from privplan.discrete_gaussian import grid_of, scale_for
from privplan.plan import GroupPlan
from privplan.planning.factors import rule_of
from privplan.record import GroupShare, ReleaseRecord
from privplan.streams import SecureStream, mask_digest
from simulate.replay.draws import (
    NOISE,
    RECORD_NOISE,
    SAMPLING,
    drawn_cohort,
    executed_ratio,
    hashed,
    turn,
)
from simulate.replay.world import World


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


def planned_lines(
    world: World, round_: int, recorded: Sequence[ReleaseRecord] = ()
) -> list[Line]:
    """The lines of a round; fields that depend on training are zero."""
    by_client, noisy = world.recipe.release == "per_client", world.recipe.noisy
    released, whole = world.released(round_), world.parts.model.parameters
    size = len(released) + (world.plan.clipping is not None)
    parts, lines = list(_parts(world, round_, recorded)), []
    releases = (
        [parts] if world.recipe.release == "joint" else [[part] for part in parts]
    )
    for index, of_release in enumerate(releases):
        first, at = of_release[0], (NOISE, round_, index)
        if by_client:
            at = (RECORD_NOISE, round_, int(first.clients[0]))
        steps, source = first.group.steps or 1, world.source(*at)
        state = (
            source.fingerprint() if isinstance(source, SecureStream) else hashed(source)
        )
        partly = len(released) < whole or world.recipe.masked
        support = mask_digest(released) if partly and noisy and not by_client else ""
        stds = [
            one.group.noise_multiplier * (one.share.clip_bound or 0)
            for one in of_release
        ]
        std, grid, family = max(stds) * noisy, None, "gaussian" if noisy else "none"
        if world.discrete:
            family, grid = "discrete_gaussian", grid_of(std)
            std = scale_for(std) * grid
        record = ReleaseRecord(
            round=round_, unit="record" if by_client else "client", family=family, steps=steps,
            noise_std=std, grid=grid, support=support, dimension=size * steps if noisy else 0,
            noise_sum_squares=0.0, noise_state=state if noisy and not world.secret else "",
            shares=tuple(part.share for part in of_release),
        )  # fmt: skip
        lines.append(Line(record, of_release, at))
    return lines


def _parts(
    world: World, round_: int, recorded: Sequence[ReleaseRecord]
) -> Iterator[Part]:
    """Participants of each group, or of each release of one client, in the order of the ledger."""
    named = {one.group: one.participants for line in recorded for one in line.shares}
    plan, recipe = world.plan, world.recipe
    for index, planned in enumerate(plan.groups):
        (ratio, sigma), size = plan.at_round(planned, round_), planned.clients
        law: str = planned.sampling or plan.spec.sampling
        cohort = planned.expected_cohort if planned.segments is None else ratio * size
        changes = {
            "sampling_ratio": ratio,
            "expected_cohort": cohort,
            "noise_multiplier": sigma,
        }
        group = planned.model_copy(update=changes)
        if recipe.release == "per_client":
            law, ratio = "poisson", group.record_sampling_ratio or 1.0
            chosen = list(turn(size, group.sampling_ratio, round_)[:, None])
        elif world.secret:
            within = [one for one in named.get(group.name) or () if one < size]
            chosen = [np.array(within, np.int64)]
        else:
            source = world.source(
                SAMPLING, SamplingLaw(law).law.stream_round(round_), index
            )
            chosen = [
                drawn_cohort(
                    law, source, world.parts.partition.seats[index], ratio, round_
                )
            ]
        norm = plan.spec.clipping_norm if plan.clipping is None else plan.clipping.bound
        norm, rule = norm * plan.clip_factor(group), rule_of(recipe.weight, plan)
        for positions in chosen:
            clients = np.asarray(world.parts.partition.members[index])[positions]
            owned = (
                len(world.parts.partition.records(int(clients[0])))
                if group.records
                else None
            )
            share = GroupShare(
                group=group.name, clients=size,
                sampling=SamplingLaw(law).of_person(group.contributions, plan.unit),
                factor=1.0 if rule is None else rule(group, plan),
                sampling_ratio=executed_ratio(law, size, ratio), cohort=len(positions),
                participants=tuple(positions.tolist()), records=owned, largest_norm=0.0, clipped=0,
                clip_bound=norm * (group.scale if recipe.scaled else 1) if world.clips else None,
            )  # fmt: skip
            yield Part(group, clients, share)
