"""Kill -9 at random moments: the same command then gives the same files, to the bit."""

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

from privplan.evidence.rounds import EVIDENCE, VECTORS
from privplan.planning.solver import solve
from privplan.planning.sweep import JOURNAL, TABLE
from privplan.record import CHECKPOINT, LEDGER, PLAN, RECORD
from simulate.runs import checkpoint
from tests.faults.commands import finished, started
from tests.planning.problems import spec_data
from tests.simulate.conftest import digits_spec

SEED = 6
PROCESSES = "compare in processes"
SLOW = ("compare", "what-if", "solve")


@dataclass(frozen=True)
class Work:
    """One command that may be killed."""

    # Its words, with names for its input and output.
    arguments: str
    # Checks what a kill left, against an undisturbed output.
    sound: Callable[[Path, Path], None]
    # Checks the output in the end, against an undisturbed one.
    same: Callable[[Path, Path], None]
    # How many processes the long suite kills at work.
    kills: int

    def words(self, inputs, output):
        """The arguments for an output."""
        names = {"plan": inputs / PLAN, "spec": inputs / "spec.yaml", "output": output}
        return self.arguments.format(**names).split()


def _equal(folder, expected, *names, partly=False):
    """These files are those of the undisturbed output; some may be missing."""
    for name in names:
        if not partly or (folder / name).exists():
            assert (folder / name).read_bytes() == (expected / name).read_bytes(), name


def _begins(folder, expected, name):
    """A file that grows is the beginning of the undisturbed one."""
    if (folder / name).exists():
        assert (expected / name).read_bytes().startswith((folder / name).read_bytes())


def _run_is_sound(folder, expected):
    _begins(folder, expected, LEDGER)
    _equal(folder, expected, PLAN, partly=True)
    record = folder / RECORD
    if record.exists() and json.loads(record.read_text())["status"] == "complete":
        run_is_same(folder, expected)
    if (folder / CHECKPOINT).exists():
        state = checkpoint.load(folder, torch.device("cpu"))
        ledger = (folder / LEDGER).read_bytes()
        # No state is saved before its releases.
        assert state.chain.encode() in ledger


def run_is_same(folder, expected):
    """But for the seconds that it took."""
    _equal(folder, expected, EVIDENCE, VECTORS, LEDGER, PLAN)
    records = [
        json.loads((output / RECORD).read_text()) for output in (folder, expected)
    ]
    for record in records:
        del record["wall_seconds"]
    assert records[0] == records[1]


def _runs(folder):
    return sorted(path.parent for path in folder.glob("*/*/" + RECORD))


def _comparison_is_sound(folder, expected):
    for run in _runs(folder):
        _run_is_sound(run, expected / run.relative_to(folder))


def _comparison_is_same(folder, expected):
    assert len(_runs(folder)) == len(_runs(expected)) == 4
    for run in _runs(folder):
        run_is_same(run, expected / run.relative_to(folder))
    _equal(folder, expected, "results.csv")


def _sweep_is_sound(folder, expected):
    _begins(folder, expected, JOURNAL)
    _equal(folder, expected, TABLE, partly=True)


def _sweep_is_same(folder, expected):
    _equal(folder, expected, JOURNAL, TABLE)


def _plan_is_sound(folder, expected):
    _equal(folder, expected, PLAN, "plan.png", partly=True)


def _plan_is_same(folder, expected):
    assert {path.name for path in folder.iterdir()} == {PLAN, "plan.png"}
    _equal(folder, expected, PLAN, "plan.png")


COMPARE = "compare {plan} --algorithms GDPFed+,FedAvg --seeds 2 --jobs 1 -o {output}"
VARY = "--vary groups.strict.epsilon=0.5:2:6 --vary rounds=5:20:3"
WORK = {
    "simulate": Work(
        "simulate {plan} --algorithm GDPFed+ --seed 5 -o {output}", _run_is_sound, run_is_same, 20
    ),
    "compare": Work(COMPARE, _comparison_is_sound, _comparison_is_same, 5),
    PROCESSES: Work(f"{COMPARE} --jobs 2", _comparison_is_sound, _comparison_is_same, 5),
    "what-if": Work(
        f"what-if {{spec}} {VARY} --workers 1 -o {{output}}", _sweep_is_sound, _sweep_is_same, 10
    ),
    "solve": Work(
        "solve {spec} -o {output}/plan.json --plot {output}/plan.png",
        _plan_is_sound, _plan_is_same, 10,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with a plan on the digits and a small spec."""
    folder = tmp_path_factory.mktemp("inputs")
    solve(digits_spec(rounds=6)).save(folder / PLAN)
    data = spec_data(planning={"ratios": "balanced", "accountant": "pld"})
    (folder / "spec.yaml").write_text(yaml.safe_dump(data))
    return folder


def _free(folder):
    """Wait until no process locks the folder: workers end with their parent."""
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


CHAIN = 3  # most kills before an output is brought to its end and compared


@dataclass
class Count:
    """What a number of kills came to."""

    killed: int = 0  # processes killed before they had ended
    begun: int = 0  # those of them that had written something
    compared: int = 0  # outputs brought to their end and compared


def killed(name, kills, inputs, folder, generator):
    """Kill so many processes at work, each resuming what the one before left.

    The moment is uniform over the time that the work takes. After three kills, or when
    a process ended before its moment, the output is completed and compared, and another
    one begins.
    """
    work = WORK[name]
    expected = folder / "whole"
    messages = folder / "said"
    # The process that others are forked from loads everything.
    finished(["--version"], messages)
    seconds = finished(work.words(inputs, expected), messages)
    count = Count()
    chain = 0  # kills since the output was begun
    while count.killed < kills or chain:
        output = folder / str(count.compared)
        arguments = work.words(inputs, output)
        ended = count.killed == kills or chain == CHAIN
        if ended:
            finished(arguments, messages)
        else:
            process = started(arguments, messages, generator.choice([0.0, 2.0]))
            time.sleep(generator.uniform(0, seconds))
            process.kill()
            process.join()
            ended = process.exitcode != -9
            assert process.exitcode in (-9, 0), messages.read_text()
        if ended:
            work.same(output, expected)
            # Nothing half-written is left.
            assert not list(output.glob("**/*.tmp"))
            count.compared += 1
            chain = 0
            continue
        count.killed += 1
        chain += 1
        _free(output)
        if output.exists():
            count.begun += 1
            work.sound(output, expected)
    return count


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) for name in ("simulate", *SLOW)]
)
def test_killed_once(name, inputs, tmp_path):
    count = killed(name, 1, inputs, tmp_path, random.Random(SEED))
    assert count.killed == 1
    assert count.compared >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", WORK)
def test_killed_at_fifty_moments(name, inputs, tmp_path):
    assert sum(work.kills for work in WORK.values()) == 50
    count = killed(name, WORK[name].kills, inputs, tmp_path, random.Random(SEED))
    assert count.killed == WORK[name].kills
    print(f"{name}: {count}")
