"""Where rounding decides a tie in one client's training, replay takes the side of the run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from privplan.ledger import read_ledger
from simulate.replay import rounds as again
from simulate.replay.replay import Replay
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.replay.runs import short_plan


@pytest.mark.parametrize(("size", "explained"), [(1e-3, True), (0.9, False)])
def test_another_side_of_a_tie_is_found_and_a_larger_difference_is_not(
    size, explained, tmp_path, monkeypatch
):
    folder = tmp_path / "run"
    execute(Request(short_plan(planning="joint"), "DP-FedAvg", "digits", folder, seed=3))
    replay = Replay(folder)
    world = replay.world
    start, plan = again.first_round(world), world.plan
    lines = read_ledger(folder, plan.digest).records[:1]
    honest = again.replay_round(world, 1, start, 1, (lines, [])).releases[0].vector
    chosen: list[Any] = []
    direction = torch.randn(len(start.theta), generator=torch.Generator().manual_seed(1))
    jump = direction * size * honest.norm() / direction.norm()
    plain = again._updates

    def with_tie(world, line, theta, chunk, scale=0):
        updates = plain(world, line, theta, chunk, scale)
        if not scale and not chosen:
            chosen.append(chunk[-1])
        if scale == -3e-7 and chosen[0] in chunk:
            row = chunk.index(chosen[0])
            updates[row] *= 0.1  # within the clipping norm, as without the jump
            updates[row] += jump
        if not scale and chosen[0] in chunk:
            updates[chunk.index(chosen[0])] *= 0.1
        return updates

    monkeypatch.setattr(again, "_updates", with_tie)
    before = again.replay_round(world, 1, start, 1, (lines, [])).releases[0].vector
    chosen_again = again.replay_round(world, 1, start, 1, (lines, [before + jump]))
    found = chosen_again.releases[0].vector
    expected = before + jump if explained else before
    assert float((found - expected).norm() / expected.norm()) < again.KINKS
