"""Flower itself under a plan: its simulation, killed and resumed, and a deployment."""

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from privplan.contrib.adapters.export import export, package_of
from privplan.guard import Guard
from privplan.guard.storage import MODEL, Storage
from privplan.ledger import read_ledger
from privplan.record import LEDGER
from tests.contrib.adapters.environments import (
    ROOT,
    flower,
    kill_all,
    lines_of,
    run,
    started,
)
from tests.guard.plans import plan_of

pytestmark = pytest.mark.slow
PROJECT = ROOT / "tests" / "contrib" / "adapters" / "flower_project"
CLIENTS = 40
ROUNDS = 12


def plan(epsilon=20.0, rounds=ROUNDS):
    """A strict and a loose group of 20 clients each."""
    groups = {"strict": (20, 6.0, 0.2, 3.0), "loose": (20, epsilon, 0.4, 1.5)}
    return plan_of(groups, rounds, delta=1e-3)


def command(python, folder, strategy="FedAvg", rounds=ROUNDS):
    """The command of a run."""
    sizes = [str(CLIENTS), str(rounds), strategy]
    return [
        python,
        str(PROJECT / "run.py"),
        str(folder / "plan.json"),
        str(folder / "run"),
        *sizes,
    ]


def printed_accuracies(done):
    """The accuracies that a run printed, before the first round and after each."""
    lines = lines_of(done.stdout)
    return [line["accuracy"] for line in lines if "accuracy" in line]


@pytest.mark.parametrize("version", ["1.41", "1.42"])
def test_flower_runs_keep_their_plan(tmp_path, version):
    python = flower(version)
    the_plan = plan()
    the_plan.save(tmp_path / "plan.json")
    done = run(command(python, tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    accuracies = printed_accuracies(done)
    assert len(accuracies) == 1 + ROUNDS
    assert accuracies[-1] > 0.6 > 0.2 > accuracies[0]
    with Guard(the_plan, tmp_path / "run") as guard:
        verdict = guard.verdict()
    assert verdict.outcome == "kept"
    for group in verdict.groups:
        assert group.realised_upper == group.planned

    # A finished run, started again, returns its last model.
    again = run(command(python, tmp_path))
    assert lines_of(again.stdout)[-1] == {"saved": 2, "rounds": ROUNDS}
    assert printed_accuracies(again)[-1] == accuracies[-1]


def test_integer_arrays_stay_and_a_client_without_a_number_is_left_out(tmp_path):
    plan().save(tmp_path / "plan.json")
    script = str(PROJECT / "memory.py")
    places = [str(tmp_path / "plan.json"), str(tmp_path / "run")]
    done = run([flower("1.41"), script, *places])
    assert done.returncode == 0, done.stderr[-2000:]
    assert "node 3 is not used: it does not tell its client number" in done.stderr
    assert "no free client number" not in done.stderr
    assert lines_of(done.stdout) == [
        {"rounds": ROUNDS, "count": ["i", [], 5], "verdict": "kept"}
    ]
    ledger = read_ledger(tmp_path / "run", plan().digest)
    for line in ledger.records:
        for share in line.shares:
            assert share.excluded == 0
            assert share.drawn - share.cohort <= 1


MOMENTS = """
from types import SimpleNamespace
import numpy as np
from privplan.contrib.adapters.flower import restore_state, state_of
strategy = SimpleNamespace(m_t={"scale": np.float64(2.0), "weight": np.ones(3)})
restored = SimpleNamespace(m_t={})
restore_state(restored, state_of(strategy))
assert restored.m_t["scale"] == 2.0 and restored.m_t["scale"].shape == ()
assert sorted(restored.m_t) == ["scale", "weight"]
"""


def test_moments_of_single_numbers_come_back():
    """Arithmetic with arrays without dimensions gives numbers, which are no arrays."""
    done = run([flower("1.41"), "-c", MOMENTS])
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("strategy", ["FedAdam", "FedAvgM", "FedYogi", "FedAdagrad"])
def test_server_optimisers_work_on_the_noised_mean(tmp_path, strategy):
    python = flower("1.41")
    plan().save(tmp_path / "plan.json")
    done = run(command(python, tmp_path, strategy))
    assert done.returncode == 0, done.stderr[-2000:]
    accuracies = printed_accuracies(done)
    assert accuracies[-1] > 0.4


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ("Krum", "it compares the updates of single clients"),
        ("FedXgbBagging", "it collects trees"),
    ],
)
def test_strategies_that_need_single_updates_are_refused(tmp_path, strategy, reason):
    python = flower("1.41")
    plan().save(tmp_path / "plan.json")
    done = run(command(python, tmp_path, strategy))
    assert (
        f"strategy: must work on one noised mean; {reason}" in done.stderr + done.stdout
    )
    assert not (tmp_path / "run" / LEDGER).exists()


def test_training_ends_after_the_last_paid_round_with_its_model(tmp_path):
    python = flower("1.42")
    the_plan = plan(epsilon=2.5)
    the_plan.save(tmp_path / "plan.json")
    done = run(command(python, tmp_path))
    with Guard(the_plan, tmp_path / "run") as guard:
        booked = guard.round - 1
        assert 0 < booked < ROUNDS
        assert guard.epsilon("loose").upper <= 2.5
        assert not guard.may_release()
    output = done.stderr + done.stdout
    assert f"Training ends after round {booked}, the last that is paid: " in output
    assert f"with the release of round {booked + 1}, found" in output
    assert done.returncode == 0
    assert lines_of(done.stdout)[-1] == {"saved": 2, "rounds": booked}


def lines(ledger):
    """Number of lines of a ledger."""
    return len(ledger.read_text().splitlines())


def stored_model(folder, the_plan):
    """Hash of the last stored model, as the run prints it."""
    storage = Storage(folder, the_plan.digest, None)
    arrays = storage.model(storage.last(MODEL) or 0)
    return sha256(
        arrays["arrays/0"].tobytes() + arrays["arrays/1"].tobytes()
    ).hexdigest()


def test_killed_runs_go_on_from_the_last_release(tmp_path):
    """The process group is killed three times; no release is made twice or lost."""
    python = flower("1.41")
    the_plan = plan(40.0, 24)
    the_plan.save(tmp_path / "plan.json")
    ledger = tmp_path / "run" / LEDGER
    before = None
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

        # It goes on from the last stored model. A kill may tear the last printed line.
        printed = lines_of(output[: output.rfind("\n") + 1])
        assert before in (None, printed[0]["model"])
        before = stored_model(tmp_path / "run", the_plan)
    assert process.returncode == 0
    read = read_ledger(tmp_path / "run", the_plan.digest)
    assert read.fault is None
    assert [record.round for record in read.records] == list(range(1, 25))
    assert len({record.noise_state for record in read.records}) == 24
    assert printed[-2]["accuracy"] > 0.4
    with Guard(the_plan, tmp_path / "run") as guard:
        assert guard.verdict().outcome == "kept"


@pytest.mark.parametrize("version", ["1.41", "1.42"])
def test_the_accountant_of_a_group(version):
    """Flower's own figures for 120 of 6,000 clients, 50 rounds, beside the truth."""
    done = run([flower(version), str(PROJECT / "accountant.py")])
    assert done.returncode == 0, done.stderr
    [figures] = lines_of(done.stdout)
    assert figures["theirs"]["no-amplification"] == pytest.approx(30.17, abs=0.01)
    assert figures["theirs"]["without-replacement"] == pytest.approx(0.845, abs=0.001)
    assert 2.0351 <= figures["lower"] <= figures["ours"] <= 2.0353
    assert figures["replace_one"] == pytest.approx(2.125, abs=0.001)
    assert figures["again"] == pytest.approx(figures["ours"], rel=1e-4)
    assert figures["delta"] == pytest.approx(6.98e-5, rel=0.01)
    assert figures["refused_round"] == 47
    assert figures["releases"] == 46
    assert figures["before"] <= 2.0
    assert figures["error"].startswith("population_size: must be 6000")


NODES = 4
RELEASES = 8
PATIENCE = 240  # seconds to wait for a round; each message starts a process


def deployed_plan():
    """Two groups of two clients, all of which take part."""
    groups = {"strict": (2, 60.0, 1.0, 1.0), "loose": (2, 60.0, 1.0, 0.5)}
    return plan_of(groups, RELEASES, delta=1e-3, sampling="full")


def free_ports(count):
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


@contextmanager
def deployed(folder, version):
    """SuperLink, SuperNodes and a started run; at the end all processes are killed."""
    binaries = Path(flower(version)).parent
    link, *nodes = free_ports(1 + NODES)
    home = folder / "home"
    (home / ".flwr").mkdir(parents=True, exist_ok=True)
    (home / ".flwr" / "config.toml").write_text(
        f"""[superlink]
default = "here"
[superlink.here]
address = "127.0.0.1:{link}"
insecure = true
"""
    )
    environment = {
        **os.environ,
        "HOME": str(home),
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    processes: list[subprocess.Popen[bytes]] = []

    def start(name, *arguments):
        command = [str(binaries / name), "--insecure", *arguments]
        nothing = subprocess.DEVNULL
        processes.append(
            subprocess.Popen(command, env=environment, stdout=nothing, stderr=nothing)
        )

    try:
        start(
            "flower-superlink",
            "--port",
            str(link),
            "--disable-runtime-dependency-installation",
        )
        wait_for(lambda: listening(link))
        for number, port in enumerate(nodes):
            config = f"partition-id={number} num-partitions={NODES}"
            address = f"127.0.0.1:{link}"
            start(
                "flower-supernode",
                "--superlink",
                address,
                "--port",
                str(port),
                "--node-config",
                config,
            )
        done = subprocess.run(
            [str(binaries / "flwr"), "run", str(folder / "project"), "here"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert "Successfully started run" in done.stdout, done.stdout + done.stderr
        yield
    finally:
        for process in processes:
            kill_all(process)


def listening(port):
    """Whether somebody accepts connections."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition):
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def complete_lines(ledger):
    """Complete lines of a ledger."""
    text = ledger.read_text() if ledger.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


@pytest.mark.parametrize("version", ["1.41", "1.42"])
def test_a_deployment_is_killed_and_keeps_its_plan(tmp_path, version):
    project = tmp_path / "project"
    export(deployed_plan(), "flower", project)
    shutil.copy(
        Path(__file__).parent / "flower_project" / "task.py",
        project / package_of(deployed_plan()),
    )
    ledger = project / "run" / LEDGER
    before = []
    for target in (1, 3, 5, RELEASES):
        with deployed(tmp_path, version):
            wait_for(lambda target=target: len(complete_lines(ledger)) >= target)
            if target == RELEASES:
                wait_for((project / "run" / "guard" / f"model-{RELEASES}.bin").exists)
        assert complete_lines(ledger)[: len(before)] == before
        before = complete_lines(ledger)
    read = read_ledger(project / "run", deployed_plan().digest)
    assert [record.round for record in read.records] == list(range(1, RELEASES + 1))
    assert len({record.noise_state for record in read.records}) == RELEASES
    with Guard(deployed_plan(), project / "run") as guard:
        verdict = guard.verdict()
        model = guard.model
    assert verdict.outcome == "kept"
    for group in verdict.groups:
        assert group.realised_upper == group.planned
    # scikit-learn is not loaded where these tests are left out.
    from tests.contrib.adapters.flower_project.task import digits

    x, y = digits(4)
    predicted = (x @ model["arrays/weight"] + model["arrays/bias"]).argmax(1)
    # Chance is 0.1; the noise over four clients is large.
    assert (predicted == y).mean() > 0.2
