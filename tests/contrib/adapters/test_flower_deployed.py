"""A SuperLink, four SuperNodes and ``flwr run`` on an exported project, killed three times."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from privplan.contrib.adapters.export import export
from privplan.guard import Guard
from privplan.ledger import read_ledger
from privplan.plan import Plan
from privplan.record import LEDGER
from tests.contrib.adapters.environments import ROOT, flower, kill_all
from tests.contrib.adapters.flower_project.task import digits
from tests.guard.plans import plan_of

pytestmark = pytest.mark.slow
CLIENTS, ROUNDS = 4, 8
PATIENCE = 240
"""Seconds to wait for a round; each message starts a process."""


def plan() -> Plan:
    """Two groups of two clients, all of which take part."""
    groups = {"strict": (2, 60.0, 1.0, 3.0), "loose": (2, 60.0, 1.0, 1.5)}
    return plan_of(groups, ROUNDS, delta=1e-3, sampling="full")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def deployed(folder: Path, version: str) -> Iterator[None]:
    """SuperLink, SuperNodes and a started run; all their processes are killed at the end."""
    binaries = Path(flower(version)).parent
    link, *nodes = free_ports(1 + CLIENTS)
    home = folder / "home"
    (home / ".flwr").mkdir(parents=True, exist_ok=True)
    address = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\n'
    (home / ".flwr" / "config.toml").write_text(f"{address}insecure = true\n")
    environment = {
        **os.environ, "HOME": str(home), "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0",
        "GUARDED_FOLDER": str(folder / "project"),
    }  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        command = [str(binaries / name), "--insecure", *arguments]
        nothing = subprocess.DEVNULL
        started.append(subprocess.Popen(command, env=environment, stdout=nothing, stderr=nothing))

    try:
        start("flower-superlink", "--port", str(link), "--disable-runtime-dependency-installation")
        wait_for(lambda: listening(link))
        for number, port in enumerate(nodes):
            config = f"partition-id={number} num-partitions={CLIENTS}"
            here = f"127.0.0.1:{link}"
            start(
                "flower-supernode", "--superlink", here, "--port", str(port), "--node-config",
                config,
            )  # fmt: skip
        done = subprocess.run(
            [str(binaries / "flwr"), "run", str(folder / "project"), "here"], env=environment,
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert "Successfully started run" in done.stdout, done.stdout + done.stderr
        yield
    finally:
        for process in started:
            kill_all(process)


def listening(port: int) -> bool:
    """Whether somebody accepts connections."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def lines(ledger: Path) -> list[str]:
    """Complete lines of a ledger."""
    text = ledger.read_text() if ledger.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


@pytest.mark.parametrize("version", ["1.41", "1.42"])
def test_a_deployment_is_killed_and_keeps_its_plan(tmp_path, version):
    project = tmp_path / "project"
    export(plan(), "flower", project)
    shutil.copy(Path(__file__).parent / "flower_project" / "task.py", project / "guarded")
    ledger, before = project / "run" / LEDGER, []
    for target in (1, 3, 5, ROUNDS):
        with deployed(tmp_path, version):
            wait_for(lambda target=target: len(lines(ledger)) >= target)
            if target == ROUNDS:
                with_model = project / "run" / "guard" / f"model-{ROUNDS}.bin"
                wait_for(with_model.exists)
        assert lines(ledger)[: len(before)] == before
        before = lines(ledger)
    read = read_ledger(project / "run", plan().digest)
    assert [record.round for record in read.records] == list(range(1, ROUNDS + 1))
    assert len({record.noise_state for record in read.records}) == ROUNDS
    with Guard(plan(), project / "run") as guard:
        verdict, model = guard.verdict(), guard.model
    assert verdict.outcome == "kept"
    assert [group.realised_upper == group.planned for group in verdict.groups] == [True, True]
    x, y = digits(4)
    found = (x @ model["arrays/weight"] + model["arrays/bias"]).argmax(1)
    assert (found == y).mean() > 0.2  # chance is 0.1; the noise of four clients is large
