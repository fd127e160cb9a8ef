"""One round of a run, executed again up to its releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from privplan.record import ReleaseRecord
from simulate.postprocessing import ModelState
from simulate.replay.clients import client_release
from simulate.replay.lines import planned_lines
from simulate.replay.sums import Release, in_threads, noisy_sum
from simulate.replay.training import LAST_STEP, NORM, Start, Sums
from simulate.replay.world import World


@dataclass(frozen=True)
class Recorded:
    """What a run recorded of a round."""

    lines: Sequence[ReleaseRecord]  # of the ledger
    releases: Sequence[
        Tensor
    ] = ()  # the stored releases [k]; empty where they are not stored


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


def start_of(state: ModelState, before: Replayed | None) -> Start:
    """What the clients of a round start from.

    Args:
        state: the model and the server's state before the round.
        before: the round before, executed again; None where nothing of it is needed.
    """
    norm = state.server.get(NORM)
    return Start(
        theta=state.theta,
        clipping_norm=None if norm is None else float(norm),
        last_step=state.server.get(LAST_STEP),
        past=() if before is None else before.past,
        personal={} if before is None or before.personal is None else before.personal,
    )


def replay_round(
    world: World, round_: int, start: Start, recorded: Recorded, workers: int
) -> Replayed:
    """Execute a round again: its releases, from what its clients start from."""
    lines = planned_lines(world, round_, recorded.lines)
    personal = dict(start.personal)
    if world.recipe.release == "per_client":
        results = in_threads(
            lambda line: client_release(world, line, start), lines, workers
        )
        releases = list[Release]()
        for line, (release, own_part) in zip(lines, results, strict=True):
            releases.append(release)
            if own_part is not None:
                personal[line.parts[0].clients.item()] = own_part
        return Replayed(releases, (), personal)
    releases = []
    for place, line in enumerate(lines):
        stored = recorded.releases[place] if place < len(recorded.releases) else None
        releases.append(noisy_sum(world, line, place, start, stored, workers, personal))
    depth = 0 if world.recipe.personal else world.before
    past = [[release.sums for release in releases], *start.past][:depth]
    return Replayed(releases, past, personal)
