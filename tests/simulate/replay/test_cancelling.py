"""Updates that cancel exactly, whose sum is zero and has no direction."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import simulate
from privplan.evidence.measurement import along_sum
from privplan.ledger import read_ledger
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.verification.verify import judge, load_run
from simulate.cli.replay import OPTIONS, given_again
from simulate.models.own import OwnModel
from simulate.runs.request import Request, prepare
from simulate.runs.run import run_prepared
from tests.sabotage.fault import each_released

CLIENTS = 20


class Slope(nn.Module):
    """One parameter, which one half of the clients pushes up and the other down."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return torch.cat([-self.slope * x, self.slope * x], 1)


def opposite():
    """Records of clients whose clipped updates are opposite to each other."""
    client = np.arange(400) % CLIENTS
    return simulate.Data(np.ones((400, 1)), client % 2, client=client)


def plan():
    spec = {
        "name": "opposite",
        "groups": [{"name": "all", "clients": CLIENTS, "epsilon": 8.0}],
        "delta": 1e-3,
        "rounds": 5,
        "sampling": "full",
        "cohort": CLIENTS,
        "clipping_norm": 0.01,
        "local": {"steps": 3, "batch_size": 20, "learning_rate": 0.1},
        "model": {"name": "slope", "parameters": 1},
    }
    return solve(Spec.parse(spec))


def judged(folder, change):
    """The verdict on a run of changed releases, with all rounds executed again."""
    request = Request(
        plan(),
        "planned",
        "own",
        folder,
        seed=1,
        own_data=opposite(),
        own_model=OwnModel(Slope, {}, "Slope"),
        noise="secure",
    )
    run_prepared(request, each_released(change)(prepare(request)))
    return judge(load_run(folder), "all", options={OPTIONS: given_again(request)})


def test_an_honest_run_is_executed_again(tmp_path):
    folder = tmp_path / "run"
    verdict = judged(folder, lambda release, group_sum: release)
    assert (verdict.outcome, verdict.level) == ("kept", "executed")
    for release in read_ledger(folder, plan().digest).records:
        # Noise of one coordinate is its own part along any direction.
        residual = release.residual
        assert abs(residual.along_sum) == pytest.approx(residual.sum_squares**0.5)


def clear(release, group_sum):
    return replace(release, vector=group_sum.total.float())


def halved(release, group_sum):
    noise = release.vector - group_sum.total
    return replace(release, vector=(group_sum.total + noise / 2).float())


def pushed(release, group_sum):
    """As if one more client had pushed."""
    return replace(release, vector=release.vector + plan().spec.clipping_norm)


@pytest.mark.parametrize("change", [clear, halved, pushed])
def test_a_run_that_releases_anything_else_is_broken(change, tmp_path):
    verdict = judged(tmp_path / "run", change)
    assert verdict.outcome == "broken"


def test_a_sum_of_zero_has_the_direction_of_all_coordinates():
    residual = np.random.default_rng(0).normal(size=9)
    ones = np.ones(9)
    along_ones = along_sum(residual @ ones, np.linalg.norm(ones), residual)
    assert along_sum(0.0, 0.0, residual) == pytest.approx(along_ones)
