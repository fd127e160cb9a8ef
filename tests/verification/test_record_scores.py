"""The final accuracy against those by class and by group."""

from dataclasses import replace

import pytest

from privplan.record import RoundMetrics, RunRecord
from privplan.verification.checks.record import record_agrees
from privplan.verification.verify import load_run
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.replay.runs import short_plan
from tests.verification import honest_run

CLASSES = {"0": 0.2, "1": 0.6}  # by class; the accuracy is 0.4


def judged(folder, by_class, by_group):
    """The fault of an accuracy of 0.4 with these parts; empty when there is none."""
    honest_run.write_run(folder)
    record = RunRecord.load(folder)
    last_metrics = RoundMetrics(round=record.rounds_done, accuracy=0.4, loss=1.0)
    scores = {"accuracy_by_class": by_class, "accuracy_by_group": by_group}
    record.model_copy(
        update={"accuracy": 0.4, "metrics": (last_metrics,), **scores}
    ).save(folder)
    check = record_agrees(load_run(folder))
    return "" if check.passed else check.reason


@pytest.mark.parametrize(
    ("by_class", "by_group"),
    [
        (CLASSES, {"strict": 0.2, "loose": 0.6}),
        # One model: more labels of class 1 in training.
        (CLASSES, {"strict": 0.5, "loose": 0.6}),
        # None of the classes of strict was tested.
        (CLASSES, {"strict": 0.0, "loose": 0.6}),
        (CLASSES, {"strict": 0.0, "loose": 0.3}),
        # A model for each client, few records each.
        ({"0": 0.1, "1": 0.2}, {"strict": 0.3, "loose": 0.5}),
        (CLASSES, {}),
        ({}, {"strict": 0.4}),
    ],
)
def test_means_agree(by_class, by_group, tmp_path):
    assert judged(tmp_path, by_class, by_group) == ""


@pytest.mark.parametrize(
    ("by_class", "by_group", "rule"),
    [
        (
            CLASSES,
            {"strict": 0.1, "loose": 0.3},
            "by group, which are no means of those by class",
        ),
        (
            {"0": 0.99},
            {"strict": 0.1, "loose": 0.3},
            "a mean of those by class or by group",
        ),
        ({"0": 0.5, "1": 0.6}, {"strict": 0.5, "loose": 0.6}, "by class or by group"),
        ({}, {"strict": 0.5, "loose": 0.6}, "must be a mean of those by group"),
    ],
)
def test_what_is_no_mean_fails(by_class, by_group, rule, tmp_path):
    assert rule in judged(tmp_path, by_class, by_group)


@pytest.mark.parametrize("name", ["DP-FedAvg-FT", "GDPFed+"])
def test_runs_with_one_model_and_with_own_ones_agree(name, tmp_path):
    execute(Request(short_plan(), name, "digits", tmp_path / "run", seed=1))
    run = load_run(tmp_path / "run")
    assert record_agrees(run).passed
    *earlier, last_metrics = run.record.metrics
    # Both are of as many clients, of whom there are 300.
    assert last_metrics.accuracy == run.record.accuracy
    last_changed = last_metrics.model_copy(
        update={"accuracy": last_metrics.accuracy + 0.01}
    )
    changed = run.record.model_copy(update={"metrics": (*earlier, last_changed)})
    assert "the last evaluation" in record_agrees(replace(run, record=changed)).reason


def test_scores_by_round_have_the_name_of_their_metric(tmp_path):
    honest_run.write_run(tmp_path)
    record = RunRecord.load(tmp_path)
    assert list(load_run(tmp_path).metrics.columns) == ["round", "accuracy", "loss"]
    configuration = {**record.configuration, "metric": "auroc"}
    record.model_copy(update={"configuration": configuration}).save(tmp_path)
    scores = load_run(tmp_path).metrics
    assert list(scores.columns) == ["round", "auroc", "loss"]
    assert scores["auroc"].iloc[-1] == record.accuracy
