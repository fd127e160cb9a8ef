"""What replay finds, refuses or cannot show."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan.errors import InputError
from privplan.evidence import CLIENTS, EVIDENCE, VECTORS, ReplayReport
from privplan.ledger import chained
from privplan.record import LEDGER, PLAN, RunRecord
from privplan.verification.verify import judge, load_run
from simulate.cli.replay import command
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.replay.runs import ROUNDS, comparison, replayed, short_plan


def forge(folder: Path) -> None:
    """A complete run folder from the plan and random numbers; nothing is trained."""
    plan, source, chain, text = short_plan(), random.Random(1), "", ""
    folder.mkdir()
    plan.save(folder / PLAN)
    chain = plan.digest
    for round_ in range(1, ROUNDS + 1):
        for group in plan.groups:
            chosen = [one for one in range(group.clients) if source.random() < group.sampling_ratio]
            norm, std = plan.clip_bound(group), plan.clip_bound(group) * group.noise_multiplier
            line = {
                "round": round_, "family": "gaussian", "noise_std": std, "dimension": 2410,
                "noise_sum_squares": std**2 * 2410 * (1 + 0.01 * source.gauss(0, 1)),
                "noise_state": f"{source.getrandbits(96):024x}",
                "shares": [{
                    "group": group.name, "clients": group.clients, "sampling": "poisson",
                    "sampling_ratio": group.sampling_ratio, "cohort": len(chosen),
                    "participants": chosen, "clip_bound": norm, "largest_norm": norm * 0.999999,
                    "clipped": len(chosen), "weight": group.weight / group.expected_cohort,
                }],
            }  # fmt: skip
            record = planned_record(line)
            written, chain = chained(record, chain)
            text += written
    (folder / LEDGER).write_text(text)
    RunRecord(
        plan_digest=plan.digest, algorithm="planned", dataset="digits", partition="iid",
        model="mlp-digits", seed=3, device="cpu", versions={}, status="complete",
        configuration={"aggregation": "paper", "data": digits_digest(), "canaries": 0},
        rounds_done=ROUNDS, metrics=(), accuracy=0.999, accuracy_by_class={},
        accuracy_by_group={}, wall_seconds=10.0, chain=chain,
    ).save(folder)  # fmt: skip


def planned_record(data: dict[str, object]):
    from privplan.record import ReleaseRecord

    return ReleaseRecord.model_validate(data)


@cache
def digits_digest() -> str:
    from simulate.data.registry import load

    return load("digits").digest


def test_a_run_that_never_happened_fails(tmp_path):
    forge(tmp_path / "run")
    report = replayed(tmp_path / "run", rounds=1)
    assert report.outcome == "failed"
    names = {one.name for one in report.differences}
    assert {"participants", "noise_state", "noise_sum_squares"} <= names
    done = CliRunner().invoke(command, [str(tmp_path / "run"), "--rounds", "1"])
    assert done.exit_code == 4, done.output


def test_an_accuracy_that_was_not_reached_fails(run):
    RunRecord.load(run).model_copy(update={"accuracy": 0.999}).save(run)
    report = replayed(run, rounds=1)
    assert report.outcome == "failed"
    assert [one.name for one in report.differences] == ["accuracy"]


EDITS = {
    "accuracy_by_class": {"accuracy_by_class": {"3": 0.99}},
    "accuracy_by_group": {"accuracy_by_group": {"strict": 0.99}},
    "rounds done": {"rounds_done": 1},
    "evaluated rounds": {"metrics": ()},
}


@pytest.mark.parametrize("name", EDITS)
def test_a_record_that_was_edited_fails(name, run):
    RunRecord.load(run).model_copy(update=EDITS[name]).save(run)
    report = replayed(run, rounds=1)
    assert report.outcome == "failed"
    assert {one.name for one in report.differences} == {name}


@pytest.mark.parametrize("field", ["accuracy", "loss"])
def test_an_evaluation_of_any_round_that_was_not_reached_fails(field, run):
    record = RunRecord.load(run)
    assert [one.round for one in record.metrics] == [1, 2, 3]
    for at in range(ROUNDS):
        changed = [*record.metrics]
        changed[at] = changed[at].model_copy(update={field: 0.99})
        record.model_copy(update={"metrics": tuple(changed)}).save(run)
        [difference] = replayed(run, rounds=1).differences
        assert (difference.round, difference.name) == (at + 1, "metrics")


def test_a_replay_counts_for_the_record_that_it_was_made_of(run):
    report = replayed(run, rounds=1)
    report.save(run)
    assert "replayed" in judge(load_run(run)).evidence
    record = RunRecord.load(run)
    record.model_copy(update={"wall_seconds": 7.0}).save(run)
    assert "replayed" in judge(load_run(run)).evidence
    record.model_copy(update={"algorithm": "another"}).save(run)
    verdict = judge(load_run(run))
    assert [check.name for check in verdict.failed] == ["replay"]
    assert "replayed" not in verdict.evidence
    other = replayed(run)  # not supported, and of another record: the earlier report goes
    assert other.outcome == "not shown"
    assert other.save(run)
    record.save(run)
    report.model_copy(update={"record": ""}).save(run)
    assert "replayed" not in judge(load_run(run)).evidence


def test_a_changed_vector_does_not_have_its_hash(run):
    content = bytearray((run / VECTORS).read_bytes())
    content[43] ^= 64  # in the initial model
    (run / VECTORS).write_bytes(bytes(content))
    report = replayed(run)
    assert report.outcome == "failed"
    assert {"stored vector's hash", "initial model"} <= {one.name for one in report.differences}


@pytest.mark.parametrize("name", [VECTORS, CLIENTS])
def test_a_damaged_file_is_one_line(name, run):
    (run / name).write_bytes((run / name).read_bytes()[:50])
    with pytest.raises(InputError, match=r"^(vectors|clients): must "):
        replayed(run)


def test_without_evidence_nothing_is_shown_and_nothing_differs(run):
    for name in (EVIDENCE, VECTORS, CLIENTS):
        (run / name).unlink()
    done = CliRunner().invoke(command, [str(run), "--rounds", "all"])
    assert done.exit_code == 5, done.output
    report = ReplayReport.load(run)
    assert report.outcome == "not shown"
    assert "evidence.jsonl" in report.reason
    assert comparison(report, "noise_sum_squares") == (3 * ROUNDS, 0)


def test_an_algorithm_that_is_not_supported_is_not_shown(tmp_path):
    execute(Request(short_plan(), "CENTAUR", "digits", tmp_path / "run", own_unit=True))
    report = replayed(tmp_path / "run")
    assert (report.outcome, report.exit_code) == ("not shown", 5)
    assert "a run with CENTAUR" in report.reason


def test_other_data_are_refused(run):
    record = RunRecord.load(run)
    changed = {**record.configuration, "data": "0" * 64}
    record.model_copy(update={"configuration": changed}).save(run)
    with pytest.raises(InputError, match=r"^dataset: must be the data of the run"):
        replayed(run)
