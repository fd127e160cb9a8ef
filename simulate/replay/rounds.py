"""One round of a run, executed again up to its releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from privplan.record import ReleaseRecord
from simulate.postprocessing import ModelState
from simulate.replay.clients import client_release
from simulate.replay.lines import planned_lines
from simulate.replay.sums import Release, in_threads, noisy_sum
from simulate.replay.training import LAST_STEP, NORM, Nudge, Start, Sums
from simulate.replay.world import World

NUDGED_NUMBERS = 2**27
"""Most numbers of nudged rounds that are kept: half a gigabyte of float32."""


@dataclass(frozen=True)
class Recorded:
    """What a run recorded of a round."""

    lines: Sequence[ReleaseRecord]  # of the ledger
    releases: Sequence[
        Tensor
    ] = ()  # the stored releases [k]; empty where they are not stored

    def release(self, place: int) -> Tensor | None:
        """The release at a place; None where it is not stored."""
        return self.releases[place] if place < len(self.releases) else None


@dataclass(frozen=True)
class Replayed:
    """A round executed again, and what later rounds need of it."""

    releases: list[Release]  # in the order of the ledger
    # sums of the round and of those before it, the latest first: by release, then by
    # group
    past: Sequence[Sequence[Sums]] = ()
    personal: dict[int, Tensor] | None = (
        None  # what clients have kept so far, by their number
    )


@dataclass
class RoundReplay:
    """A round executed again, also from starts that are nudged.

    Attributes:
        world: the run.
        state: the model and the server's state before the round.
        recorded: what the run recorded of it.
        before: the round before; None where nothing of it is needed, or kept.
        workers: number of threads.
        done: the replays so far, by nudge.
        base: what the round builds on, where the round before is not kept.
    """

    world: World
    state: ModelState
    recorded: Recorded
    before: RoundReplay | None
    workers: int
    done: dict[Nudge | None, Replayed] = field(default_factory=dict)
    base: Replayed = field(default_factory=lambda: Replayed([]))

    def replayed(self, nudge: Nudge | None = None) -> Replayed:
        """The round, with a nudge in it and in all rounds that it builds on."""
        rounds = [self]
        while rounds[-1].before and nudge not in rounds[-1].before.done:
            rounds.append(rounds[-1].before)
        for turn in reversed(rounds):
            if nudge not in turn.done:
                turn.done[nudge] = turn._executed(turn._start(nudge))
        return self.done[nudge]

    def keep(self, nudges: int) -> None:
        """Keep as many rounds before this one as fit into memory with their nudges.

        Nudges then change the rounds that are kept, and none before them.
        """
        cohort = sum(group.expected_cohort for group in self.world.plan.groups)
        numbers = nudges * max(1.0, cohort) * self.world.parts.model.parameters
        replay = self
        for _ in range(min(self.world.before, int(NUDGED_NUMBERS / numbers))):
            if replay.before is None:
                return
            replay = replay.before
        if replay.before is not None:
            replay.base = replay.before.done[None]
            replay.before = None

    def _start(self, nudge: Nudge | None) -> Start:
        """What its clients start from, once the round before is done."""
        before = self.before.done[nudge] if self.before else self.base
        norm = self.state.server.get(NORM)
        return Start(
            theta=self.state.theta,
            clipping_norm=None if norm is None else float(norm),
            last_step=self.state.server.get(LAST_STEP),
            past=before.past,
            personal=before.personal or {},
            nudge=nudge,
        )

    def _executed(self, start: Start) -> Replayed:
        """Its releases, from what its clients start from."""
        world = self.world
        recorded = self.recorded
        lines = planned_lines(world, self.state.round + 1, recorded.lines)
        personal = dict(start.personal)
        releases = list[Release]()
        if world.recipe.release == "per_client":
            results = in_threads(
                lambda line: client_release(world, line, start), lines, self.workers
            )
            for line, (release, own_part) in zip(lines, results, strict=True):
                releases.append(release)
                if own_part is not None:
                    personal[line.parts[0].clients.item()] = own_part
            return Replayed(releases, (), personal)

        for place, line in enumerate(lines):
            stored = recorded.release(place)
            releases.append(
                noisy_sum(world, line, place, start, stored, self.workers, personal)
            )
        depth = 0 if world.recipe.personal else world.before
        past = [[release.sums for release in releases], *start.past][:depth]
        return Replayed(releases, past, personal)
