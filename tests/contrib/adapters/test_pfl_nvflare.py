"""pfl-research and NVFlare themselves: federated averaging under a plan."""

import time

import numpy as np
import pytest

from privplan.contrib.adapters.export import export
from privplan.guard import Guard
from privplan.ledger import read_ledger
from privplan.record import LEDGER
from tests.contrib.adapters.environments import (
    ROOT,
    kill_all,
    lines_of,
    python_of,
    run,
    started,
)
from tests.guard.plans import plan_of

pytestmark = pytest.mark.slow
ROUNDS = 15


def plan(epsilon=60.0):
    """Two groups of 100 users."""
    groups = {"strict": (100, 60.0, 0.2, 3.0), "loose": (100, epsilon, 0.3, 2.0)}
    return plan_of(groups, ROUNDS, delta=1e-3)


def command(folder, iterations):
    """The command of a run."""
    python = python_of("pfl-0.6", ("pfl==0.6.*",))
    script = ROOT / "tests" / "contrib" / "adapters" / "pfl_run.py"
    return [
        python,
        str(script),
        str(folder / "plan.json"),
        str(folder / "run"),
        str(iterations),
    ]


def test_pfl_trains_under_the_plan_and_stops_with_it(tmp_path):
    the_plan = plan()
    the_plan.save(tmp_path / "plan.json")
    done = run(command(tmp_path, ROUNDS + 5))
    assert done.returncode == 0, done.stderr[-2000:]
    [result] = lines_of(done.stdout)
    assert result["rounds"] == ROUNDS
    assert result["weight"] == pytest.approx([2.0, -1.0], abs=0.6)
    # Nothing that users measured: no loss, no number of users or of their records.
    assert result["metrics"] == ["Learning rate", "Number of parameters"]
    with Guard(the_plan, tmp_path / "run") as guard:
        verdict = guard.verdict()
    assert verdict.outcome == "kept"
    for group in verdict.groups:
        assert group.realised_upper == group.planned


def test_pfl_goes_on_with_what_is_left(tmp_path):
    plan().save(tmp_path / "plan.json")
    for iterations, rounds in ((4, 4), (100, ROUNDS)):
        done = run(command(tmp_path, iterations))
        assert done.returncode == 0, done.stderr[-2000:]
        assert lines_of(done.stdout)[0]["rounds"] == rounds


def test_pfl_halts_before_the_budget_is_exceeded(tmp_path):
    plan(epsilon=1.6).save(tmp_path / "plan.json")
    done = run(command(tmp_path, ROUNDS))
    assert done.returncode == 0, done.stderr[-2000:]
    assert 0 < lines_of(done.stdout)[0]["rounds"] < ROUNDS
    with Guard(plan(epsilon=1.6), tmp_path / "run") as guard:
        assert guard.epsilon("loose").upper <= 1.6
        assert not guard.may_release()


def test_pfl_without_the_mechanism_is_refused(tmp_path):
    """Users that were drawn for a round that nothing releases are not drawn again."""
    export(plan(), "pfl", tmp_path / "project")
    script = tmp_path / "project" / "train.py"
    text = script.read_text()
    assert "[GuardedMechanism(guard)]" in text
    script.write_text(text.replace("[GuardedMechanism(guard)]", "[]"))
    done = run([command(tmp_path, 1)[0], str(script)])
    assert "postprocessors: must have the GuardedMechanism of this guard" in done.stderr


def sites_plan(rounds):
    """Four sites in two groups, all of which take part."""
    groups = {"strict": (2, 60.0, 1.0, 6.0), "loose": (2, 60.0, 1.0, 3.0)}
    return plan_of(groups, rounds, delta=1e-3, sampling="full")


def job(folder):
    """The command of the job."""
    python = python_of("nvflare-2.9", ("nvflare==2.9.*",))
    script = ROOT / "tests" / "contrib" / "adapters" / "nvflare_project" / "run.py"
    return [
        python,
        str(script),
        *(str(folder / name) for name in ("plan.json", "run", "space")),
    ]


def test_a_killed_job_goes_on_and_keeps_its_plan(tmp_path):
    the_plan = sites_plan(5)
    ledger = tmp_path / "run" / LEDGER
    the_plan.save(tmp_path / "plan.json")
    process = started(job(tmp_path))
    deadline = time.monotonic() + 200
    while not ledger.exists() or len(ledger.read_text().splitlines()) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kill_all(process)
    lines = ledger.read_text().splitlines()
    assert 2 <= len(lines) < 5
    done = run(job(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    assert ledger.read_text().splitlines()[: len(lines)] == lines
    with Guard(the_plan, tmp_path / "run") as guard:
        verdict = guard.verdict()
        model = guard.model
    assert verdict.outcome == "kept"
    for group in verdict.groups:
        assert group.realised_upper == group.planned
    assert model["w"].dtype == np.float32
    assert "round 5: released and booked, 4 sites drawn" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("sites", "message", "booked"),
    [
        ("full", "params_type is FULL: the controller clips this site's update", 2),
        ("none", "no site reported an update in 2 rounds: only noise", 0),
    ],
)
def test_whole_models_and_lost_sites(tmp_path, monkeypatch, sites, message, booked):
    monkeypatch.setenv("SITES", sites)
    sites_plan(2).save(tmp_path / "plan.json")
    done = run(job(tmp_path))
    assert message in done.stdout + done.stderr
    with Guard(sites_plan(2), tmp_path / "run") as guard:
        assert guard.finished
        verdict = guard.verdict()
    records = read_ledger(tmp_path / "run", sites_plan(2).digest).records
    assert not any(record.failure for record in records)
    # Two sites of each group report, or none.
    for record in records:
        assert {share.cohort for share in record.shares} == {booked}
    assert verdict.outcome == "kept"
    assert (done.returncode == 0) == (booked > 0)
