"""One run over two processes: the same result, and what happens when a process dies."""

import itertools
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from privplan.errors import InputError
from privplan.evidence.rounds import VECTORS
from privplan.ledger import read_ledger
from privplan.planning.solver import solve
from privplan.record import LEDGER, RunRecord
from privplan.secure_stream import NoiseKey
from privplan.verification.verify import judge, load_run
from simulate.engine import cohort
from simulate.engine.round import RoundContext, released_coordinates
from simulate.parallel import Ranks, rank_slice
from simulate.replay.replay import Replay
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute
from tests.simulate.conftest import digits_spec
from tests.simulate.parallel import rank

TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node=2",
]
SECURE = (
    pytest.param("GDPFed+:secure", marks=pytest.mark.slow),
    "planned:secure-discrete",
    pytest.param("DPFedAvg:secure", marks=pytest.mark.slow),
)
NAMES = ("GDPFed+", "planned", "P-FedSAM", "Local-only", "DPFedAvg")
TOLERANCE = 1e-6
PATIENCE = 120.0  # seconds that a hanging test is given before it fails


@pytest.fixture(scope="module")
def plan():
    """Three rounds of the digits."""
    return solve(digits_spec(rounds=3))


def over_two_processes(plan, folder, *names):
    """The folder, with a run of each algorithm over two processes."""
    plan.save(folder / "plan.json")
    command = [*TORCHRUN, rank.__file__, str(folder / "plan.json"), str(folder), *names]
    done = subprocess.run(
        command, env=_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def distributed_folder(plan, tmp_path_factory):
    return over_two_processes(plan, tmp_path_factory.mktemp("two"), *NAMES)


@pytest.fixture(scope="module")
def secure_run(plan, tmp_path_factory, request):
    """The folder of a run over two processes, whose key has its name."""
    folder = tmp_path_factory.mktemp("secure")
    plan.save(folder / "plan.json")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([rank.__name__])
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    arguments = (port, str(folder / "plan.json"), str(folder), request.param)
    ranks = [
        context.Process(target=rank.forked, args=(number, *arguments))
        for number in (0, 1)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(PATIENCE)
    assert [process.exitcode for process in ranks] == [0, 0]
    return folder / request.param


def _environment():
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_two_processes_give_what_one_gives(name, plan, distributed_folder, tmp_path):
    execute(Request(plan, name, "digits", tmp_path / "one", seed=5, own_unit=True))
    folders = (distributed_folder / name, tmp_path / "one")
    stored = [
        torch.from_numpy(np.fromfile(folder / VECTORS, "<f4")) for folder in folders
    ]
    _close(stored[0], stored[1])
    records = [RunRecord.load(folder) for folder in folders]
    assert [record.configuration["processes"] for record in records] == [2, 1]
    assert records[0].accuracy == pytest.approx(records[1].accuracy, abs=0.01)
    ledgers = [read_ledger(folder, plan.digest).records for folder in folders]
    assert len(ledgers[0]) == len(ledgers[1])
    for ours, expected in zip(*ledgers, strict=True):
        assert ours.noise_sum_squares == pytest.approx(
            expected.noise_sum_squares, rel=1e-12
        )
        for share, expected_share in zip(ours.shares, expected.shares, strict=True):
            near = pytest.approx(expected_share.largest_norm, rel=1e-5)
            norm = {"largest_norm": 0.0}
            assert share.model_copy(update=norm) == expected_share.model_copy(
                update=norm
            )
            assert share.largest_norm == near


def _close(ours, expected):
    assert_close(ours, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("secure_run", SECURE, indirect=True)
def test_all_processes_draw_from_the_key_of_the_main_one(secure_run):
    folder = secure_run
    key = folder.with_name(f"{folder.name}.key")
    record = RunRecord.load(folder)
    assert record.configuration["processes"] == 2
    assert record.configuration["noise_commitment"] == NoiseKey.load(key).commitment
    verdict = judge(load_run(folder), 0)
    assert verdict.kept, [check.reason for check in verdict.failed]
    rounds = 1 if folder.name.startswith("DPFedAvg") else None
    report = Replay(folder, noise_key=key).run(rounds, 1, lambda done, total: None)
    assert report.outcome == "passed", report.reason
    names = {comparison.name for comparison in report.comparisons}
    assert {"participants", "noise_state", "noise_sum_squares", "releases"} <= names


def test_a_run_goes_on_with_as_many_processes_as_it_began(plan, tmp_path):
    request = Request(plan, "planned", "digits", tmp_path / "run", seed=5)

    def crash(done, rounds):
        if done == 1:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        execute(request, crash)
    record = RunRecord.load(request.folder)
    changed = {**record.configuration, "processes": 2}
    record.model_copy(update={"configuration": changed}).save(request.folder)
    with pytest.raises(
        InputError, match=r"processes: must be 2, as when the run in .* began"
    ):
        execute(request)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1, "agent"])
def test_a_process_that_is_killed(victim, tmp_path):
    solve(digits_spec(rounds=40)).save(tmp_path / "plan.json")
    arguments = [
        "-m",
        "simulate",
        str(tmp_path / "plan.json"),
        "--algorithm=P-FedSAM",
        "--seed=5",
    ]
    undisturbed = tmp_path / "whole"
    broken = tmp_path / "broken"
    subprocess.run(
        [*TORCHRUN, *arguments, "-o", str(undisturbed)], env=_environment(), check=True
    )
    command = [*TORCHRUN, *arguments, "-o", str(broken)]
    running = subprocess.Popen(
        command, env=_environment(), stderr=subprocess.PIPE, text=True
    )
    rank = _rank_of(running.pid, 0 if victim == "agent" else victim, broken / LEDGER)
    os.kill(running.pid if victim == "agent" else rank, signal.SIGKILL)
    # This waits until all processes have ended.
    _, standard_error = running.communicate(timeout=PATIENCE)
    assert running.returncode != 0
    if victim != "agent":
        [line] = [
            text
            for text in standard_error.splitlines()
            if text.startswith("privplan: ")
        ]
        assert "another process of this run ended" in line
        assert line.endswith("the same command resumes")
        assert ("rounds are saved in" in line) == (victim == 1)
    assert RunRecord.load(broken).status == "running"
    subprocess.run(command, env=_environment(), check=True)
    for name in (VECTORS, LEDGER):
        assert (broken / name).read_bytes() == (undisturbed / name).read_bytes()


def _rank_of(agent, number, ledger):
    """The process of a rank, once training has begun."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if ledger.exists() and ledger.stat().st_size:
            for task in Path(f"/proc/{agent}/task").iterdir():
                for child in (task / "children").read_text().split():
                    if f"RANK={number}".encode() in _variables(child):
                        return int(child)
        time.sleep(0.005)
    raise AssertionError("it never trained")


def _variables(process):
    return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")


@given(st.integers(1, 9), st.integers(0, 40), st.integers(0, 5))
def test_shares_hold_every_item_once(size, count, turn):
    shares = [
        range(count)[rank_slice(Ranks(rank, size), count, turn)] for rank in range(size)
    ]
    assert sorted(itertools.chain.from_iterable(shares)) == list(range(count))
    lengths = [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= 1


def test_each_process_trains_a_share_only(plan, monkeypatch):
    for exchange in ("all_reduce_sum", "all_reduce_max"):
        monkeypatch.setattr(cohort, exchange, lambda ranks, values: values)
    monkeypatch.setattr(cohort, "all_gather", lambda ranks, items, device: list(items))
    experiment = prepare(Request(plan, "P-FedSAM", "digits", Path("run"), seed=5))
    context = RoundContext(
        1, experiment.start, {}, released_coordinates(experiment, 1), {}
    )
    halves = [
        cohort.group_sums(replace(experiment, ranks=Ranks(rank, 2)), context)
        for rank in (0, 1)
    ]
    sums, personal = cohort.group_sums(experiment, context)
    assert len(halves[0][1]) + len(halves[1][1]) == len(personal)
    assert halves[0][1].keys() | halves[1][1].keys() == personal.keys()
    assert abs(len(halves[0][1]) - len(halves[1][1])) <= len(sums)
    for first_half, second_half, whole_sum in zip(
        halves[0][0], halves[1][0], sums, strict=True
    ):
        assert_close(
            first_half.total + second_half.total,
            whole_sum.total,
            rtol=0,
            atol=TOLERANCE,
        )
