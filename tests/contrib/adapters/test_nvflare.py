"""NVFlare itself: a job in its simulator, run again after it was killed."""

import time

import numpy as np
import pytest

from privplan.contrib.adapters.export import export
from privplan.guard import Guard
from privplan.ledger import read_ledger
from privplan.record import LEDGER
from tests.contrib.adapters.environments import ROOT, kill_all, python_of, run, started
from tests.guard.plans import plan_of

pytestmark = pytest.mark.slow


def plan(rounds):
    """Four sites in two groups, all of which take part."""
    groups = {"strict": (2, 60.0, 1.0, 6.0), "loose": (2, 60.0, 1.0, 3.0)}
    return plan_of(groups, rounds, delta=1e-3, sampling="full")


def command(folder):
    """The command of the job."""
    python = python_of("nvflare-2.9", ("nvflare==2.9.*",))
    script = ROOT / "tests" / "contrib" / "adapters" / "nvflare_project" / "run.py"
    return [python, str(script), *(str(folder / name) for name in ("plan.json", "run", "space"))]


def test_a_killed_job_goes_on_and_keeps_its_plan(tmp_path):
    the_plan, ledger = plan(5), tmp_path / "run" / LEDGER
    the_plan.save(tmp_path / "plan.json")
    process, deadline = started(command(tmp_path)), time.monotonic() + 200
    while not ledger.exists() or len(ledger.read_text().splitlines()) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kill_all(process)
    lines = ledger.read_text().splitlines()
    assert 2 <= len(lines) < 5
    done = run(command(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    assert ledger.read_text().splitlines()[: len(lines)] == lines
    with Guard(the_plan, tmp_path / "run") as guard:
        verdict = guard.verdict()
        model = guard.model
    assert verdict.outcome == "kept"
    assert {group.realised_upper == group.planned for group in verdict.groups} == {True}
    assert model["w"].dtype == np.float32
    assert "round 5: released and booked, 4 sites drawn" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("sites", "said", "booked"),
    [
        ("full", "params_type is FULL: the controller clips this site's update", 2),
        ("none", "none of 2 rounds was released: no site reported an update", 0),
    ],
)
def test_whole_models_and_lost_sites(tmp_path, monkeypatch, sites, said, booked):
    monkeypatch.setenv("SITES", sites)
    plan(2).save(tmp_path / "plan.json")
    done = run(command(tmp_path))
    assert said in done.stdout + done.stderr
    with Guard(plan(2), tmp_path / "run") as guard:
        assert guard.finished
        verdict = guard.verdict()
    records = read_ledger(tmp_path / "run", plan(2).digest).records
    assert sum(not record.failure for record in records) == booked
    assert verdict.outcome == ("kept" if booked else "unverified")
    assert (done.returncode == 0) == (booked > 0)


def test_an_exported_project_runs(tmp_path):
    plan(2).save(tmp_path / "plan.json")
    export(plan(2), "nvflare", tmp_path / "project")
    python, _, *_ = command(tmp_path)
    done = run([python, str(tmp_path / "project" / "job.py")])
    assert done.returncode == 0, done.stderr[-2000:]
    with Guard(plan(2), tmp_path / "project" / "run") as guard:
        assert guard.finished
        assert guard.verdict().outcome == "kept"
