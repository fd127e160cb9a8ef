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
from privplan.secure_stream import SecureStream
from privplan.streams import mask_digest
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
    """The participants of one group in one release."""

    group: GroupPlan
    clients: np.ndarray  # their numbers
    share: GroupShare  # of the ledger line


@dataclass(frozen=True)
class Line:
    """A ledger line, the parts of its release, and the stream of its noise."""

    record: ReleaseRecord
    parts: list[Part]
    stream: tuple[int, ...]  # purpose and indices


def planned_lines(
    world: World, round_: int, recorded: Sequence[ReleaseRecord] = ()
) -> list[Line]:
    """The lines of a round; fields that depend on training are zero.

    Args:
        world: the run.
        round_: from 1.
        recorded: the run's lines of the round, which name the participants where
            cohorts are drawn with a key that is not known.
    """
    contributions = list(_parts(world, round_, recorded))
    releases = [contributions]
    if world.recipe.release != "joint":
        releases = [[contribution] for contribution in contributions]
    released = world.released(round_)
    return [
        _planned_line(world, round_, index, parts_of_release, released)
        for index, parts_of_release in enumerate(releases)
    ]


def _planned_line(
    world: World,
    round_: int,
    index: int,
    contributions: list[Part],
    released: np.ndarray,
) -> Line:
    """The line of one release, from its parts and the released coordinates [k]."""
    by_client = world.recipe.release == "per_client"
    noisy = world.recipe.noisy
    steps = contributions[0].group.steps or 1

    # A client that adds noise itself draws it from a stream of its own.
    stream: tuple[int, ...] = (NOISE, round_, index)
    if by_client:
        stream = (RECORD_NOISE, round_, int(contributions[0].clients[0]))
    noise_state = ""
    if noisy and not world.secret:
        source = world.source(*stream)
        is_secure = isinstance(source, SecureStream)
        if is_secure:
            noise_state = source.fingerprint()
        else:
            noise_state = hashed(source)

    # The server names the coordinates of its noise where they are not all of them.
    support = ""
    is_partial = len(released) < world.parts.model.parameters or world.recipe.masked
    if is_partial and noisy and not by_client:
        support = mask_digest(released)

    # One noise covers all groups of a joint release: the largest that any of them asks.
    std = 0.0
    dimension = 0
    if noisy:
        std = max(
            contribution.group.noise_multiplier * (contribution.share.clip_bound or 0)
            for contribution in contributions
        )
        # An adaptive clipping norm needs one more number: the count of small updates.
        dimension = (len(released) + (world.plan.clipping is not None)) * steps
    grid = None
    family = "gaussian" if noisy else "none"
    if world.discrete:
        family = "discrete_gaussian"
        grid = grid_of(std)
        std = scale_for(std) * grid

    record = ReleaseRecord(
        round=round_,
        unit="record" if by_client else "client",
        family=family,
        steps=steps,
        noise_std=std,
        grid=grid,
        support=support,
        dimension=dimension,
        noise_sum_squares=0.0,
        noise_state=noise_state,
        shares=tuple(contribution.share for contribution in contributions),
    )
    return Line(record, contributions, stream)


def _parts(
    world: World, round_: int, recorded: Sequence[ReleaseRecord]
) -> Iterator[Part]:
    """The parts of a round in the order of the ledger, group by group.

    Where each client releases for itself, each participant is a part.
    """
    recorded_participants: dict[str, Sequence[int] | None] = {}
    for line in recorded:
        for share in line.shares:
            recorded_participants[share.group] = share.participants

    for index, planned in enumerate(world.plan.groups):
        group = _in_round(world, planned, round_)
        named = recorded_participants.get(group.name) or ()
        members = np.asarray(world.parts.partition.members[index])
        for positions in _cohorts(world, index, group, round_, named):
            clients = members[positions]
            yield Part(group, clients, _share(world, group, positions, clients))


def _in_round(world: World, planned: GroupPlan, round_: int) -> GroupPlan:
    """A group with the ratio, expected cohort and noise multiplier of a round."""
    ratio, noise_multiplier = world.plan.at_round(planned, round_)
    cohort = planned.expected_cohort
    if planned.segments is not None:
        cohort = ratio * planned.clients
    changes = {
        "sampling_ratio": ratio,
        "expected_cohort": cohort,
        "noise_multiplier": noise_multiplier,
    }
    return planned.model_copy(update=changes)


def _cohorts(
    world: World, index: int, group: GroupPlan, round_: int, named: Sequence[int]
) -> list[np.ndarray]:
    """Positions in a group of the participants of each release of a round.

    Args:
        world: the run.
        index: of the group in the plan.
        group: with its values of the round.
        round_: from 1.
        named: positions that the ledger names; taken where cohorts cannot be drawn
            again.
    """
    if world.recipe.release == "per_client":
        return list(turn(group.clients, group.sampling_ratio, round_)[:, None])
    if world.secret:
        present = [position for position in named if position < group.clients]
        return [np.array(present, np.int64)]
    law: str = group.sampling or world.plan.spec.sampling
    stream_round = SamplingLaw(law).law.stream_round(round_)
    source = world.source(SAMPLING, stream_round, index)
    seats = world.parts.partition.seats[index]
    return [drawn_cohort(law, source, seats, group.sampling_ratio, round_)]


def _share(
    world: World, group: GroupPlan, positions: np.ndarray, clients: np.ndarray
) -> GroupShare:
    """The share of a group in a ledger line, without what training gives.

    Args:
        world: the run.
        group: with its values of the round.
        positions: of the participants in the group.
        clients: their numbers.
    """
    plan = world.plan
    law: str = group.sampling or plan.spec.sampling
    ratio = group.sampling_ratio
    if world.recipe.release == "per_client":
        # What protects is then the sampling of records within a client.
        law = "poisson"
        ratio = group.record_sampling_ratio or 1.0

    records = None
    if group.records:
        records = len(world.parts.partition.records(int(clients[0])))

    clip_bound = None
    if world.clips:
        norm = plan.spec.clipping_norm
        if plan.clipping is not None:
            norm = plan.clipping.bound
        clip_bound = norm * plan.clip_factor(group)
        if world.recipe.scaled:
            clip_bound *= group.scale

    weight = rule_of(world.recipe.weight, plan)
    return GroupShare(
        group=group.name,
        clients=group.clients,
        sampling=SamplingLaw(law).of_person(group.contributions, plan.unit),
        factor=1.0 if weight is None else weight(group, plan),
        sampling_ratio=executed_ratio(law, group.clients, ratio),
        cohort=len(positions),
        participants=tuple(positions.tolist()),
        records=records,
        largest_norm=0.0,
        clipped=0,
        clip_bound=clip_bound,
    )
