"""Runs in their folders: interrupted, crashed, killed, resumed, reused and refused."""

import json
import os
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from privplan.errors import InputError
from privplan.evidence.clients import CLIENTS
from privplan.evidence.noise import NOISE_EVIDENCE
from privplan.evidence.rounds import EVIDENCE, VECTORS
from privplan.ledger import read_ledger
from privplan.plan import BookBudget, Plan
from privplan.record import CHECKPOINT, LEDGER, PLAN, RECORD, RunRecord
from privplan.verification.verify import load_run
from simulate.algorithms.registry import Hyperparameters
from simulate.engine import round
from simulate.runs import run
from simulate.runs.compare import compare
from simulate.runs.ledger_writer import FileLedger
from simulate.runs.records import PLOT
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute
from tests.simulate.conftest import interrupt

MOMENTS = sorted(random.Random(20).sample(range(1, 8), 2))


class CrashError(Exception):
    """A stand-in for the machine going down."""


@pytest.fixture(scope="module")
def reference(short_plan, tmp_path_factory):
    """The folder of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("reference") / "run"
    execute(request_for(short_plan, folder))
    return folder


def request_for(plan, folder, **changes):
    return replace(Request(plan, "GDPFed+", "digits", folder, seed=5), **changes)


def crash_after(round_):
    """A report that raises once a round is done."""

    def report(done, rounds):
        if done == round_:
            raise CrashError

    return report


def assert_same(folder, reference):
    """Ledger, evidence with its vectors, plan and metrics are the same, bit for bit."""
    for name in (LEDGER, EVIDENCE, VECTORS, NOISE_EVIDENCE, PLAN):
        assert (folder / name).read_bytes() == (reference / name).read_bytes(), name
    record = json.loads((folder / RECORD).read_text())
    expected = json.loads((reference / RECORD).read_text())
    del record["wall_seconds"], expected["wall_seconds"]
    assert record == expected


def test_a_folder_holds_what_it_should(reference, short_plan):
    names = {path.name for path in reference.iterdir() if not path.name.startswith(".")}
    evidence = {NOISE_EVIDENCE, EVIDENCE, VECTORS, CLIENTS}
    assert names == {PLAN, RECORD, LEDGER, PLOT} | evidence
    record = RunRecord.load(reference)
    assert record.status == "complete"
    assert record.rounds_done == record.metrics[-1].round == 8
    assert record.metrics[-1].accuracy == record.accuracy
    assert set(record.accuracy_by_group) == {"strict", "medium", "loose"}
    assert len(record.accuracy_by_class) == 10
    assert Plan.load(reference / PLAN) == short_plan
    assert len(read_ledger(reference, short_plan.digest).records) == 24


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_then_the_same_request(moment, short_plan, tmp_path, reference):
    request = request_for(short_plan, tmp_path / "run")
    interrupt(request, moment)
    assert RunRecord.load(tmp_path / "run").rounds_done == moment
    assert not execute(request).reused
    assert_same(tmp_path / "run", reference)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_crash_without_a_checkpoint_replays_the_ledger(
    moment, short_plan, tmp_path, reference
):
    request = request_for(short_plan, tmp_path / "run")
    with pytest.raises(CrashError):
        execute(request, crash_after(moment))
    assert not (tmp_path / "run" / CHECKPOINT).exists()
    execute(request)
    assert_same(tmp_path / "run", reference)


@pytest.mark.parametrize(
    ("commit_every", "pause", "commits"),
    [
        (3, 1000.0, 1),  # after round 3
        (3, 0.0, 5),  # and before the checkpoints of rounds 1 to 4
        (1, 0.0, 4),  # each line of the ledger is on disk by itself
    ],
)
def test_a_power_failure_between_commits_loses_only_what_is_repeated(
    commit_every, pause, commits, short_plan, tmp_path, reference, monkeypatch
):
    """What was written since the last commit is gone; no checkpoint is ahead of it."""
    folder = tmp_path / "run"
    names = [EVIDENCE, VECTORS]
    if commit_every > 1:
        names.append(LEDGER)
    on_disk = []
    commit = run.put_on_disk

    def noticed(of_run):
        commit(of_run)
        on_disk.append({name: (of_run / name).stat().st_size for name in names})

    monkeypatch.setattr(run, "put_on_disk", noticed)
    monkeypatch.setattr(run, "SAVE_SECONDS", pause)
    monkeypatch.setattr(run, "SAVE_SHARE", np.inf)
    request = request_for(short_plan, folder, commit_every=commit_every)
    with pytest.raises(CrashError):
        execute(request, crash_after(5))
    assert len(on_disk) == commits
    assert (folder / CHECKPOINT).exists() == (pause == 0)
    for name in names:
        assert (folder / name).stat().st_size > on_disk[-1][name]
        os.truncate(folder / name, on_disk[-1][name])
    execute(request)
    assert_same(folder, reference)


@pytest.mark.parametrize("changes", [{"commit_every": 0}, {"track": ("mlflow",)}])
def test_a_round_that_may_be_seen_is_on_disk_before(changes, short_plan, tmp_path):
    request = request_for(short_plan, tmp_path / "run", commit_every=2)
    with pytest.raises(InputError, match=r"^commit-every: must be 1 or more, and 1 wi"):
        execute(replace(request, **changes))
    assert not (tmp_path / "run").exists()


def test_a_crash_between_the_ledger_and_the_step(
    short_plan, tmp_path, reference, monkeypatch
):
    append = FileLedger.append
    request = request_for(short_plan, tmp_path / "run")

    def crash(ledger, records, measured):
        append(ledger, records, measured)
        if records[0].round == 4:
            raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(FileLedger, "append", crash)
        with pytest.raises(CrashError):
            execute(request)
    path = tmp_path / "run" / LEDGER
    # The release counts, though nothing used it; and its last line was torn.
    assert path.read_bytes().count(b"\n") == 12
    path.write_bytes(path.read_bytes()[:-40])
    execute(request)
    assert_same(tmp_path / "run", reference)


def test_no_step_before_its_release_is_on_disk(short_plan, tmp_path, monkeypatch):
    """And nothing else of a round waits for the disk."""
    synced: list[int] = []
    by_round: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(number))

    def report(done, rounds):
        by_round.append(len(synced))
        lines = (tmp_path / "run" / LEDGER).read_bytes().count(b"\n") if done else 0
        assert lines == 3 * done
        assert len(synced) >= done

    execute(request_for(short_plan, tmp_path / "run"), report)
    assert set(np.diff(by_round)) == {1}


def test_results_do_not_depend_on_batching_or_threads(
    short_plan, tmp_path, reference, monkeypatch
):
    threads = torch.get_num_threads()
    monkeypatch.setattr(round, "CHUNK_CLIENTS", 7)
    torch.set_num_threads(3)
    try:
        execute(request_for(short_plan, tmp_path / "run"))
    finally:
        torch.set_num_threads(threads)
    vectors = np.fromfile(tmp_path / "run" / VECTORS, "<f4")
    expected = np.fromfile(reference / VECTORS, "<f4")
    assert_allclose(vectors, expected, rtol=0, atol=1e-6)
    assert cohorts(tmp_path / "run", short_plan) == cohorts(reference, short_plan)


def cohorts(folder, plan):
    """Cohort sizes of the first group, by round."""
    records = read_ledger(folder, plan.digest).records
    return [record.shares[0].cohort for record in records]


def test_a_finished_run_is_not_trained_again(short_plan, reference):
    before = {path.name: path.stat().st_mtime_ns for path in reference.iterdir()}
    outcome = execute(request_for(short_plan, reference), crash_after(1))
    assert outcome.reused
    assert outcome.record == RunRecord.load(reference)
    after = {path.name: path.stat().st_mtime_ns for path in reference.iterdir()}
    assert {**after, ".lock": 0} == {**before, ".lock": 0}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"seed": 6}, "seed"),
        ({"algorithm": "planned"}, "algorithm"),
        ({"partition": "dirichlet:1"}, "partition"),
        ({"hyperparameters": Hyperparameters("mean")}, "aggregation"),
    ],
)
def test_a_folder_of_another_run_is_refused(changes, field, short_plan, reference):
    with pytest.raises(InputError) as caught:
        execute(request_for(short_plan, reference, **changes))
    assert [fault.field for fault in caught.value.faults] == [field]


def test_a_folder_that_is_no_run_is_left_alone(short_plan, tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(
        InputError, match="output: must be a run folder, a new folder or an empty"
    ):
        execute(request_for(short_plan, tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(InputError, match="output: must be a folder"):
        execute(request_for(short_plan, tmp_path / "thesis.tex"))


@pytest.mark.parametrize("method", ["GDPFed+", "FedAvg"])
def test_a_plan_from_a_book_is_spent_by_its_own_releases(method, short_plan, tmp_path):
    """Others compose with what the book holds to more than was planned."""
    budgets = [
        BookBudget(
            group=group.name,
            rule="exact",
            phrase="exact",
            budget=20.0,
            spent=1.0,
            total=15.0,
            noise_multiplier=group.noise_multiplier,
        )
        for group in short_plan.groups
    ]
    plan = short_plan.model_copy(update={"book": tuple(budgets)})
    request = request_for(plan, tmp_path / "run", algorithm=method)
    if method == "GDPFed+":
        # The method that the plan is of.
        assert prepare(request).algorithm.plan.book == plan.book
        request = replace(request, algorithm="IDP-FedAvg-Scale")
    with pytest.raises(InputError, match=r"algorithm: must release what its plan does"):
        prepare(request)
    assert not request.folder.exists()


def test_a_plan_that_is_not_executed_is_not_written_over(
    short_plan, middle_plan, tmp_path
):
    middle_plan.save(tmp_path / PLAN)
    with pytest.raises(
        InputError, match="must not hold a plan that the executed one would"
    ):
        execute(request_for(short_plan, tmp_path))
    assert Plan.load(tmp_path / PLAN) == middle_plan


@pytest.mark.parametrize(
    ("lines", "reason"),
    [(None, "no .*ledger.jsonl"), (-1, "only 23 releases"), (-1.5, "line 23 is torn")],
)
def test_a_run_with_a_damaged_ledger_is_refused(
    lines, reason, short_plan, reference, tmp_path
):
    folder = tmp_path / "run"
    shutil.copytree(reference, folder)
    path = folder / LEDGER
    first_lines = path.read_bytes().splitlines(keepends=True)[: int(lines or 0)]
    path.unlink()
    if lines is not None:
        path.write_bytes(b"".join(first_lines)[: -1 if lines % 1 else None])
    with pytest.raises(
        InputError, match=rf"choose another folder \(-o, folder=\), found '{reason}"
    ):
        execute(request_for(short_plan, folder))
    if reason.endswith("torn"):
        with pytest.raises(
            InputError, match="cannot be recovered; run it in another folder"
        ):
            load_run(folder)


def test_a_folder_in_use_is_refused(short_plan, tmp_path):
    request = request_for(short_plan, tmp_path / "run")

    def report(done, rounds):
        if done == 1:
            with pytest.raises(InputError, match="must not be in use by another run"):
                execute(request)
            raise CrashError

    with pytest.raises(CrashError):
        execute(request, report)


@pytest.mark.slow
def test_a_comparison_counts_rounds_and_those_of_finished_runs(short_plan, tmp_path):
    request = request_for(short_plan, tmp_path / "both")
    rounds = short_plan.spec.rounds
    # The second time, the run is there.
    for first_count in (0, rounds):
        counts = counts_of_a_comparison(request)
        done = [count for count, _ in counts]
        assert {total for _, total in counts} == {rounds}
        assert done[0] == first_count
        assert done[-1] == rounds
        assert done == sorted(done)


def counts_of_a_comparison(request):
    """Rounds done and all rounds, as a comparison reports them."""
    counts = []
    compare(request, ["GDPFed+"], [1], 1, lambda *count: counts.append(count))
    return counts
