"""A sweep over a Ray cluster, here of one machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from privplan.cli import main
from privplan.errors import InputError, PrivplanError
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.record import CHECKPOINT, LEDGER, RunRecord
from simulate.parallel import on_cluster
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.conftest import digits_spec

PATIENCE = 180.0
"""Seconds that a hanging test is given before it fails."""


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of two cores, to which this process is connected."""
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield "auto"
    ray.shutdown()


@pytest.mark.slow
def test_a_comparison_over_a_cluster_gives_the_same(
    cluster: str, short_path: Path, tmp_path: Path
) -> None:
    common = ("compare", short_path, "--algorithms", "planned,FedAvg", "--seeds", 2)
    for folder, options in (("one", ()), ("cluster", ("--cluster", cluster))):
        done = call(*common, *options, "-o", tmp_path / folder)
        assert done.exit_code == 0, done.stderr
    one, many = ((tmp_path / name / "results.csv").read_text() for name in ("one", "cluster"))
    assert one == many
    record = RunRecord.load(tmp_path / "cluster" / "planned" / "seed-1")
    assert record.status == "complete"


def refuse(number: int) -> int:
    raise InputError.one("number", "must be even", number)


def die(number: int) -> None:
    os._exit(3)


@pytest.mark.slow
def test_what_a_task_says_and_what_it_cannot_say(cluster: str) -> None:
    with pytest.raises(PrivplanError, match="number: must be even, found 3"):
        list(on_cluster(refuse, [3], 1, address=cluster))
    with pytest.raises(PrivplanError, match=r"a worker of the cluster was lost .*resumes"):
        list(on_cluster(die, [3], 1, address=cluster))


def test_ctrl_c_that_the_library_swallows_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = []

    def wait(tasks: list[int], timeout: float) -> tuple[list[int], list[int]]:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        return [], tasks

    library = ModuleType("ray")
    for name, value in {
        "is_initialized": lambda: True,
        "remote": lambda **options: lambda work: SimpleNamespace(remote=lambda item: item),
        "wait": wait,
        "cancel": lambda task, force: cancelled.append(task),
        "exceptions": SimpleNamespace(RayError=RuntimeError),
    }.items():
        monkeypatch.setattr(library, name, value, raising=False)
    monkeypatch.setitem(sys.modules, "ray", library)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(on_cluster(refuse, [3], 1, address="auto"))
    assert cancelled == [3]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_ctrl_c_ends_the_tasks_and_the_same_command_resumes(tmp_path: Path) -> None:
    plan = solve(digits_spec(rounds=600))
    plan.save(tmp_path / "plan.json")
    folder = tmp_path / "results" / "planned" / "seed-0"
    command = [sys.executable, "-m", "privplan", "compare", str(tmp_path / "plan.json")]
    options = ["--algorithms=planned", "--seeds=1", "--cluster=local", "-o"]
    running = subprocess.Popen(
        [*command, *options, str(tmp_path / "results")], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + PATIENCE
    while not (folder / LEDGER).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130, said
    assert "the same command resumes" in said
    assert RunRecord.load(folder).status == "running"
    _resumed(plan, folder)
    execute(Request(plan, "planned", "digits", tmp_path / "whole"))
    for name in (CHECKPOINT, LEDGER):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def _resumed(plan: Plan, folder: Path) -> None:
    """Go on with the run, once the task that was ended has let go of its folder."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            execute(Request(plan, "planned", "digits", folder))
            return
        except InputError as error:
            if "in use" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
