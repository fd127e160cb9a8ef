"""Kill -9 at random moments: the same command then gives the same files, bit for bit."""

from __future__ import annotations

import fcntl
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import yaml

from privplan.planning.solver import solve
from privplan.planning.sweep import JOURNAL, TABLE
from privplan.record import CHECKPOINT, LEDGER, PLAN, RECORD
from simulate.runs import run as checkpoint
from tests.faults.commands import Arguments, finished, started
from tests.planning.problems import spec_data
from tests.simulate.conftest import digits_spec

SEED = 6
PROCESSES = "compare in processes"


@dataclass(frozen=True)
class Work:
    """One command that may be killed."""

    arguments: Callable[[Path, Path], Arguments]  # its arguments for an output
    # checks what a killed process left, against an output that nothing disturbed
    sound: Callable[[Path, Path], None]
    same: Callable[[Path, Path], None]  # checks the output in the end against the same
    kills: int  # how many processes the long suite kills at work


def _simulate(inputs: Path, output: Path) -> Arguments:
    plan = str(inputs / PLAN)
    return ["simulate", plan, "--algorithm", "GDPFed+", "--seed", "5", "-o", str(output)]


def _compare(inputs: Path, output: Path) -> Arguments:
    plan = str(inputs / PLAN)
    named = ["--algorithms", "GDPFed+,FedAvg", "--seeds", "2"]
    return ["compare", plan, *named, "--jobs", "1", "-o", str(output)]


def _compare_in_processes(inputs: Path, output: Path) -> Arguments:
    return [*_compare(inputs, output), "--jobs", "2"]


def _what_if(inputs: Path, output: Path) -> Arguments:
    varied = ["--vary", "groups.strict.epsilon=0.5:2:6", "--vary", "rounds=5:20:3"]
    return ["what-if", str(inputs / "spec.yaml"), *varied, "--workers", "1", "-o", str(output)]


def _solve(inputs: Path, output: Path) -> Arguments:
    plan = ["-o", str(output / PLAN), "--plot", str(output / "plan.png"), "--no-second-opinion"]
    return ["solve", str(inputs / "spec.yaml"), *plan]


def _run_is_sound(folder: Path, whole: Path) -> None:
    """Every file is whole, and the ledger is the beginning of the undisturbed one."""
    ledger, expected = folder / LEDGER, (whole / LEDGER).read_bytes()
    if ledger.exists():
        assert expected.startswith(ledger.read_bytes())
    if (folder / PLAN).exists():
        assert (folder / PLAN).read_bytes() == (whole / PLAN).read_bytes()
    if (folder / RECORD).exists():
        record = json.loads((folder / RECORD).read_text())
        if record["status"] == "complete":
            _run_is_same(folder, whole)
    if (folder / CHECKPOINT).exists():
        found = checkpoint.load(folder, torch.device("cpu"))
        assert found is not None
        assert found.chain.encode() in ledger.read_bytes()  # no state before its releases


def _run_is_same(folder: Path, whole: Path) -> None:
    for name in (CHECKPOINT, LEDGER, PLAN):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    records = [json.loads((one / RECORD).read_text()) for one in (folder, whole)]
    for record in records:
        del record["wall_seconds"]
    assert records[0] == records[1]


def _runs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("*/*/" + RECORD))


def _comparison_is_sound(folder: Path, whole: Path) -> None:
    for run in _runs(folder):
        _run_is_sound(run, whole / run.relative_to(folder))


def _comparison_is_same(folder: Path, whole: Path) -> None:
    assert len(_runs(folder)) == len(_runs(whole)) == 4
    for run in _runs(folder):
        _run_is_same(run, whole / run.relative_to(folder))
    for name in ("results.csv", "accuracy.csv"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


def _sweep_is_sound(folder: Path, whole: Path) -> None:
    if (folder / JOURNAL).exists():
        assert (whole / JOURNAL).read_bytes().startswith((folder / JOURNAL).read_bytes())
    if (folder / TABLE).exists():
        assert (folder / TABLE).read_bytes() == (whole / TABLE).read_bytes()


def _sweep_is_same(folder: Path, whole: Path) -> None:
    for name in (JOURNAL, TABLE):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


def _plan_is_sound(folder: Path, whole: Path) -> None:
    for name in (PLAN, "plan.png"):
        if (folder / name).exists():
            assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


def _plan_is_same(folder: Path, whole: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {PLAN, "plan.png"}
    _plan_is_sound(folder, whole)


WORK = {
    "simulate": Work(_simulate, _run_is_sound, _run_is_same, 20),
    "compare": Work(_compare, _comparison_is_sound, _comparison_is_same, 5),
    PROCESSES: Work(_compare_in_processes, _comparison_is_sound, _comparison_is_same, 5),
    "what-if": Work(_what_if, _sweep_is_sound, _sweep_is_same, 10),
    "solve": Work(_solve, _plan_is_sound, _plan_is_same, 10),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a plan on the digits and a small spec."""
    folder = tmp_path_factory.mktemp("inputs")
    solve(digits_spec(rounds=6)).save(folder / PLAN)
    data = spec_data(planning={"ratios": "balanced", "accountant": "pld"})
    (folder / "spec.yaml").write_text(yaml.safe_dump(data))
    return folder


def _free(folder: Path) -> None:
    """Wait until no process holds anything of the folder: workers end with their parent."""
    deadline = time.monotonic() + 60
    for path in folder.glob("**/.lock"):
        with path.open("a") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    assert time.monotonic() < deadline, f"an orphan holds {path}"
                    time.sleep(0.01)


CHAIN = 3
"""Most kills before an output is brought to its end and compared."""


@dataclass
class Count:
    """What a number of kills came to."""

    killed: int = 0  # processes killed before they had ended
    begun: int = 0  # those of them that had written something
    compared: int = 0  # outputs brought to their end and compared


def killed(name: str, kills: int, inputs: Path, folder: Path, generator: random.Random) -> Count:
    """Kill so many processes at work, each resuming what the one before left.

    The moment is uniform over the time that the work takes. After three kills, or when a process
    ended before its moment, the output is completed and compared, and another one begins.
    """
    work, whole, said = WORK[name], folder / "whole", folder / "said"
    finished(["--version"], said)  # the process that others are forked from loads everything
    seconds = finished(work.arguments(inputs, whole), said)
    count, chain = Count(), 0
    while count.killed < kills or chain:
        output = folder / str(count.compared)
        arguments = work.arguments(inputs, output)
        ended = count.killed == kills or chain == CHAIN
        if ended:
            finished(arguments, said)
        else:
            process = started(arguments, said, generator.choice([0.0, 2.0]))
            time.sleep(generator.uniform(0, seconds))
            process.kill()
            process.join()
            ended = process.exitcode != -9
            assert process.exitcode in (-9, 0), said.read_text()
        if ended:
            work.same(output, whole)
            assert not list(output.glob("**/*.tmp"))  # nothing half-written is left
            count.compared, chain = count.compared + 1, 0
            continue
        count.killed, chain = count.killed + 1, chain + 1
        _free(output)
        if output.exists():
            count.begun += 1
            work.sound(output, whole)
    return count


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.slow if name in ("what-if", "solve", "compare") else ()
        )
        for name in WORK
        if name != PROCESSES
    ],
)
def test_killed_once(name: str, inputs: Path, tmp_path: Path) -> None:
    count = killed(name, 1, inputs, tmp_path, random.Random(SEED))
    assert count.killed == 1
    assert count.compared >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", WORK)
def test_killed_at_fifty_moments(name: str, inputs: Path, tmp_path: Path) -> None:
    assert sum(work.kills for work in WORK.values()) == 50
    count = killed(name, WORK[name].kills, inputs, tmp_path, random.Random(SEED))
    assert count.killed == WORK[name].kills
    print(f"{name}: {count}")
