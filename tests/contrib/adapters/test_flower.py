"""Flower itself: server, strategies and clients of flwr under a plan, killed and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from hashlib import sha256
from pathlib import Path

import pytest

from privplan.contrib.adapters.export import export
from privplan.guard import Guard
from privplan.guard.storage import MODEL, Storage
from privplan.ledger import read_ledger
from privplan.plan import Plan
from privplan.record import LEDGER
from tests.contrib.adapters.environments import ROOT, flower, lines_of, run, started
from tests.guard.plans import plan_of

pytestmark = pytest.mark.slow
PROJECT = ROOT / "tests" / "contrib" / "adapters" / "flower_project"
CLIENTS, ROUNDS = 40, 12


def plan(epsilon: float = 20.0, rounds: int = ROUNDS) -> Plan:
    """A strict and a loose group of 20 clients each."""
    groups = {"strict": (20, 6.0, 0.2, 3.0), "loose": (20, epsilon, 0.4, 1.5)}
    return plan_of(groups, rounds, delta=1e-3)


def command(python: str, folder: Path, strategy: str = "FedAvg", rounds: int = ROUNDS) -> list[str]:
    """The command of a run."""
    sizes = [str(CLIENTS), str(rounds), strategy]
    return [python, str(PROJECT / "run.py"), str(folder / "plan.json"), str(folder / "run"), *sizes]


@pytest.mark.parametrize("version", ["1.41", "1.42"])
def test_flower_runs_keep_their_plan(tmp_path, version):
    python, the_plan = flower(version), plan()
    the_plan.save(tmp_path / "plan.json")
    done = run(command(python, tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    accuracies = [line["accuracy"] for line in lines_of(done.stdout) if "accuracy" in line]
    assert len(accuracies) == 1 + ROUNDS
    assert accuracies[-1] > 0.6 > 0.2 > accuracies[0]
    with Guard(the_plan, tmp_path / "run") as guard:
        verdict = guard.verdict()
    assert verdict.outcome == "kept"
    for group in verdict.groups:
        assert group.realised_upper == group.planned


@pytest.mark.parametrize("strategy", ["FedAdam", "FedAvgM", "FedYogi", "FedAdagrad"])
def test_server_optimisers_work_on_the_noised_mean(tmp_path, strategy):
    python = flower("1.41")
    plan().save(tmp_path / "plan.json")
    done = run(command(python, tmp_path, strategy))
    assert done.returncode == 0, done.stderr[-2000:]
    accuracies = [line["accuracy"] for line in lines_of(done.stdout) if "accuracy" in line]
    assert accuracies[-1] > 0.4


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ("Krum", "it compares the updates of single clients"),
        ("FedMedian", "it compares the updates of single clients"),
        ("Bulyan", "it compares the updates of single clients"),
        ("FedXgbBagging", "it collects trees"),
    ],
)
def test_strategies_that_need_single_updates_are_refused(tmp_path, strategy, reason):
    python = flower("1.41")
    plan().save(tmp_path / "plan.json")
    done = run(command(python, tmp_path, strategy))
    assert f"strategy: must work on one noised mean; {reason}" in done.stderr + done.stdout
    assert not (tmp_path / "run" / LEDGER).exists()


def test_training_ends_after_the_last_paid_round_with_its_model(tmp_path):
    python, the_plan = flower("1.42"), plan(epsilon=2.5)
    the_plan.save(tmp_path / "plan.json")
    done = run(command(python, tmp_path))
    with Guard(the_plan, tmp_path / "run") as guard:
        booked = guard.round - 1
        assert 0 < booked < ROUNDS
        assert guard.epsilon("loose").upper <= 2.5
        assert not guard.may_release()
    said = done.stderr + done.stdout
    assert f"Training ends after round {booked}, the last that is paid: " in said
    assert f"with the release of round {booked + 1}, found" in said
    assert done.returncode == 0
    assert lines_of(done.stdout)[-1] == {"saved": 2, "rounds": booked}


def test_one_round_more_than_planned_is_refused(tmp_path):
    python, the_plan = flower("1.42"), plan(rounds=3)
    the_plan.save(tmp_path / "plan.json")
    done = run(command(python, tmp_path, rounds=4))
    assert "round: must be one of the 3 planned rounds, found 4" in done.stderr + done.stdout
    assert lines_of(done.stdout)[-1] == {"saved": 2, "rounds": 3}


def test_updates_that_are_not_finite_are_said(tmp_path, monkeypatch):
    monkeypatch.setenv("NOT_FINITE", "40")
    plan(rounds=2).save(tmp_path / "plan.json")
    done = run(command(flower("1.42"), tmp_path, rounds=2))
    assert done.returncode == 0, done.stderr[-2000:]
    records = read_ledger(tmp_path / "run", plan(rounds=2).digest).records
    for record in records:
        lost = sum(share.excluded or 0 for share in record.shares)
        assert f"{lost} of {lost} updates are not finite and count as zero" in done.stderr


def lines(ledger: Path) -> int:
    """Number of lines of a ledger."""
    return len(ledger.read_text().splitlines())


def stored_model(folder: Path, the_plan: Plan) -> str:
    """Hash of the last stored model, as the run prints it."""
    storage = Storage(folder, the_plan.digest, None)
    arrays = storage.model(storage.last(MODEL) or 0)
    return sha256(arrays["arrays/0"].tobytes() + arrays["arrays/1"].tobytes()).hexdigest()


def test_killed_runs_go_on_from_the_last_release(tmp_path):
    """The process group is killed three times; no release is made twice or lost."""
    python, the_plan = flower("1.41"), plan(40.0, 24)
    the_plan.save(tmp_path / "plan.json")
    ledger, before = tmp_path / "run" / LEDGER, None
    for target in (4, 10, 16, 24):
        process = started(command(python, tmp_path, "FedAdam", 24), subprocess.PIPE)
        deadline = time.monotonic() + 200
        while target < 24 and (not ledger.exists() or lines(ledger) < target):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        if target < 24:
            os.killpg(process.pid, signal.SIGKILL)
        output = process.communicate(timeout=200)[0].decode()
        first, *rest = lines_of(output[: output.rfind("\n") + 1])
        assert before in (None, first["model"])  # it goes on from the last stored model
        before = stored_model(tmp_path / "run", the_plan)
    assert process.returncode == 0
    read = read_ledger(tmp_path / "run", the_plan.digest)
    assert read.fault is None
    assert [record.round for record in read.records] == list(range(1, 25))
    assert len({record.noise_state for record in read.records}) == 24
    assert rest[-2]["accuracy"] > 0.4
    with Guard(the_plan, tmp_path / "run") as guard:
        assert guard.verdict().outcome == "kept"


def test_an_exported_project_runs(tmp_path):
    export(plan(), "flower", tmp_path / "project")
    script = str(PROJECT / "exported.py")
    done = run([flower("1.42"), script, str(tmp_path / "project"), str(CLIENTS)])
    assert done.returncode == 0, done.stderr[-2000:]
    assert "trained 12 rounds" in done.stdout
    with Guard(plan(), tmp_path / "project" / "run") as guard:
        assert guard.finished
        assert guard.verdict().outcome == "kept"


@pytest.mark.parametrize("version", ["1.41", "1.42"])
def test_the_accountant_of_a_group(version):
    """Flower's own figures for 120 of 6,000 clients, 50 rounds, beside the truth."""
    done = run([flower(version), str(PROJECT / "accountant.py")])
    assert done.returncode == 0, done.stderr
    [found] = lines_of(done.stdout)
    assert found["theirs"]["no-amplification"] == pytest.approx(30.17, abs=0.01)
    assert found["theirs"]["without-replacement"] == pytest.approx(0.845, abs=0.001)
    assert 2.0351 <= found["lower"] <= found["ours"] <= 2.0353
    assert found["replace_one"] == pytest.approx(2.125, abs=0.001)
    assert found["again"] == pytest.approx(found["ours"], rel=1e-4)
    assert found["delta"] == pytest.approx(6.98e-5, rel=1e-3)
    assert (found["refused_round"], found["releases"]) == (47, 46)
    assert found["before"] <= 2.0
    assert found["error"].startswith("population_size: must be 6000")
