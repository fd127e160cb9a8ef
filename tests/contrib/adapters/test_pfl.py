"""pfl-research itself: federated averaging under a plan."""

import pytest

from privplan.contrib.adapters.export import export
from privplan.guard import Guard
from tests.contrib.adapters.environments import ROOT, lines_of, python_of, run
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
    return [python, str(script), str(folder / "plan.json"), str(folder / "run"), str(iterations)]


def test_pfl_trains_under_the_plan_and_stops_with_it(tmp_path):
    the_plan = plan()
    the_plan.save(tmp_path / "plan.json")
    done = run(command(tmp_path, ROUNDS + 5))
    assert done.returncode == 0, done.stderr[-2000:]
    [found] = lines_of(done.stdout)
    assert found["rounds"] == ROUNDS
    assert found["weight"] == pytest.approx([2.0, -1.0], abs=0.6)
    with Guard(the_plan, tmp_path / "run") as guard:
        verdict = guard.verdict()
    assert verdict.outcome == "kept"
    assert [group.realised_upper == group.planned for group in verdict.groups] == [True, True]


def test_pfl_goes_on_with_what_is_left(tmp_path):
    the_plan = plan()
    the_plan.save(tmp_path / "plan.json")
    for iterations, rounds in ((4, 4), (100, ROUNDS)):
        done = run(command(tmp_path, iterations))
        assert done.returncode == 0, done.stderr[-2000:]
        assert lines_of(done.stdout)[0]["rounds"] == rounds


def test_pfl_halts_before_the_budget_is_exceeded(tmp_path):
    plan(epsilon=1.6).save(tmp_path / "plan.json")
    done = run(command(tmp_path, ROUNDS))
    assert done.returncode == 0, done.stderr[-2000:]
    rounds = lines_of(done.stdout)[0]["rounds"]
    assert 0 < rounds < ROUNDS
    with Guard(plan(epsilon=1.6), tmp_path / "run") as guard:
        assert guard.epsilon("loose").upper <= 1.6
        assert not guard.may_release()


def test_an_exported_project_runs(tmp_path):
    export(plan(), "pfl", tmp_path / "project")
    done = run([command(tmp_path, 1)[0], str(tmp_path / "project" / "train.py")])
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith(f"{ROUNDS} rounds\n")
