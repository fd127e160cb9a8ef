"""Where training amplifies rounding, an honest run is not broken, nor is it shown.

The verifier nudges its own start by rounding: what this moves cannot be told from
another device's rounding. A fault that is larger stays one.
"""

from dataclasses import replace

import pytest
import torch

from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.verification.verify import judge, load_run
from simulate.engine import round as engine_round
from simulate.replay import sums as again
from simulate.replay.replay import Replay
from simulate.replay.training import Nudge, Start, descended
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute, run_prepared
from tests.sabotage.fault import each_released
from tests.simulate.replay.runs import names_of, replayed, short_plan

CHAOTIC = {"steps": 50, "batch_size": 10, "learning_rate": 0.5, "momentum": 0.9}
"""Local training in which rounding moves a sum by a large part of its noise."""
CALM = {"steps": 3, "batch_size": 10, "learning_rate": 0.1}


def plan_of(local, **changes):
    """Two rounds of eight of twenty clients."""
    spec = {
        "name": "nudged",
        "groups": [{"name": "all", "clients": 20, "epsilon": 8.0}],
        "delta": 1e-2,
        "rounds": 2,
        "cohort": 8,
        "clipping_norm": 1.0,
        "local": local,
        "model": {"name": "mlp-digits", "parameters": 2410},
        "planning": {"ratios": "uniform", "release": "joint"},
    }
    return solve(Spec.parse({**spec, **changes}))


def plan_of_records(**local):
    """One round of DP-SGD by three of twelve clients, with 40 records each."""
    group = {"name": "all", "clients": 12, "records": 40, "epsilon": 6.0}
    return plan_of(
        local, unit="record", groups=[group], rounds=1, cohort=3, planning={}
    )


def test_an_honest_run_whose_training_is_chaotic_is_kept_as_recorded(tmp_path):
    folder = tmp_path / "run"
    execute(Request(plan_of(CHAOTIC), "planned", "digits", folder, seed=3))
    report = replayed(folder)
    assert report.outcome == "not shown", report.reason
    assert (
        "they differ as much where the verifier's own start is nudged" in report.reason
    )
    assert judge(load_run(folder)).level == "recorded"


def test_an_honest_run_of_chaotic_clients_is_kept_as_recorded(tmp_path):
    folder = tmp_path / "run"
    plan = plan_of_records(batch_size=1, learning_rate=0.3, momentum=0.9)
    execute(Request(plan, "DPFedAvg", "digits", folder, seed=2))
    report = replayed(folder)
    assert report.outcome == "not shown", report.reason
    assert judge(load_run(folder)).level == "recorded"


def test_noise_that_is_halved_breaks_a_chaotic_run(tmp_path):
    """Half the noise is further off than training could move the sum."""

    def halved(release, group_sum):
        noise = release.vector - group_sum.total
        return replace(release, vector=(group_sum.total + noise / 2).float())

    plan = plan_of(CHAOTIC)
    request = Request(plan, "planned", "digits", tmp_path / "run", seed=3)
    run_prepared(request, each_released(halved)(prepare(request)))
    report = replayed(tmp_path / "run")
    assert report.outcome == "failed"
    assert "releases" in names_of(report.differences)


@pytest.mark.parametrize(
    ("plan", "algorithm"),
    [
        (plan_of(CALM), "planned"),
        (plan_of_records(batch_size=10, learning_rate=0.1), "DPFedAvg"),
    ],
    ids=["sums", "clients"],
)
def test_one_wrong_label_breaks_a_run_whose_training_is_calm(
    plan, algorithm, tmp_path, monkeypatch
):
    honest = tmp_path / "honest"
    execute(Request(plan, algorithm, "digits", honest, seed=3))
    assert replayed(honest).outcome == "passed"

    batches = engine_round._mini_batches

    def with_a_wrong_label(*arguments):
        """The first participant of each chunk learns one other label in each step."""
        x, y = batches(*arguments)
        y = y.clone()
        y[0, :, 0] = (y[0, :, 0] + 1) % 10
        return x, y

    monkeypatch.setattr(engine_round, "_mini_batches", with_a_wrong_label)
    execute(Request(plan, algorithm, "digits", tmp_path / "run", seed=3))
    report = replayed(tmp_path / "run")
    assert report.outcome == "failed"
    assert "releases" in names_of(report.differences)


@pytest.mark.parametrize(("share", "outcome"), [(1.0, "not shown"), (0.01, "failed")])
def test_a_kink_explains_what_a_nudge_across_it_moves(
    share, outcome, tmp_path, monkeypatch
):
    """The run is on a kink's other side, to which one of two opposite nudges leads.

    Whoever wrote the run could choose the side by what it knows of the clients. A run
    that is a hundred times further off is not on that side.
    """
    folder = tmp_path / "run"
    execute(Request(short_plan(), "planned", "digits", folder, seed=3))
    trained = again.updates

    def elsewhere(world, round_, start, clients):
        [first_client, *later] = trained(world, round_, start, clients)
        sent, remains = first_client
        jump = torch.full_like(sent, 0.2 * float(sent.norm()) / len(sent) ** 0.5)
        if start.nudge and start.nudge.roundings < 0:
            jump = (1 - share) * jump
        return iter([(sent + jump, remains), *later])

    monkeypatch.setattr(again, "updates", elsewhere)
    report = replayed(folder)
    assert report.outcome == outcome, report.reason


def test_nudges_are_drawn_by_the_verifier_and_are_of_the_size_of_rounding(tmp_path):
    """Each replay draws other ones; opposite ones add up to nothing."""
    folder = tmp_path / "run"
    execute(Request(plan_of(CALM), "planned", "digits", folder, seed=3))
    first_replay = Replay(folder)
    second_replay = Replay(folder)
    seeds = {nudge.seed for nudge in first_replay.nudges}
    assert len(seeds) == len(first_replay.nudges) / 2
    assert not seeds & {nudge.seed for nudge in second_replay.nudges}

    theta = first_replay.world.parts.model.initial(torch.Generator().manual_seed(1))
    rounded = Start(theta, nudge=Nudge(1, 1.0)).rounding([5]).of_parameters
    opposite = Start(theta, nudge=Nudge(1, -1.0)).rounding([5]).of_parameters
    forth = rounded(theta) - theta
    back = opposite(theta) - theta
    assert float(forth.norm() / theta.norm()) * 2**24 == pytest.approx(1, rel=0.2)
    assert float((forth + back).norm()) < float(forth.norm()) / 2
    # Each step has a direction of its own.
    assert float((rounded(theta) - theta - forth).norm()) > float(forth.norm()) / 2


def test_what_begins_at_zero_is_nudged_as_soon_as_it_moves():
    """Rounding in a step is relative to where the step leads."""
    plan = plan_of(CALM)
    start = torch.zeros(1, 100)
    rounding = Start(start[0], nudge=Nudge(1, 1.0)).rounding([5])
    assert torch.equal(rounding.of_parameters(start), start)

    def slope(theta, step, moves):
        return torch.ones_like(theta)

    plain = descended(plan, 1, start, slope, [1.0])
    nudged = descended(plan, 1, start, slope, [1.0], rounding=rounding)
    relative = float((nudged - plain).norm() / plain.norm()) * 2**24
    assert relative == pytest.approx(1, rel=0.3)
