"""Accuracy by class and by group, and how often it is measured."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from simulate.data.registry import load
from simulate.engine import loop
from simulate.engine.evaluation import (
    AccuracyMeasures,
    by_group,
    measure,
)
from simulate.models.registry import model
from simulate.runs import run as checkpoint
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute
from simulate.tasks import records_within_share

FOUND = AccuracyMeasures(correct=np.array([8, 5, 0]), total=np.array([10, 10, 0]), loss=1.0)


def test_accuracy_overall_and_by_class():
    assert FOUND.accuracy == 13 / 20
    np.testing.assert_array_equal(FOUND.by_class, [0.8, 0.5, np.nan])


def test_a_group_is_judged_on_the_labels_that_it_holds():
    shares = {
        "first": np.array([1.0, 0.0, 0.0]),
        "mixed": np.array([0.25, 0.75, 0.0]),
        "absent": np.array([0.0, 0.0, 1.0]),
    }
    assert by_group(FOUND, shares) == pytest.approx(
        {"first": 0.8, "mixed": 0.25 * 0.8 + 0.75 * 0.5, "absent": 0.0}
    )


def test_measuring_against_plain_predictions_on_any_number_of_threads():
    data, network = load("digits"), model("mlp-digits")
    theta = network.initial(torch.Generator().manual_seed(0))
    found = measure(network, theta, data)
    predicted = network.logits(theta, data.inputs(data.test_x)).argmax(1)
    for label in range(10):
        of_class = data.test_y == label
        assert found.correct[label] == int((predicted[of_class] == label).sum())
        assert found.total[label] == int(of_class.sum())
    again = measure(network, theta, data, workers=2)
    np.testing.assert_array_equal(found.correct, again.correct)
    assert found.loss == again.loss


def test_all_test_records_are_evaluated_in_the_end_only(short_plan, tmp_path, monkeypatch):
    plain = execute(Request(short_plan, "FedAvg", "digits", tmp_path / "plain", seed=4)).record
    monkeypatch.setattr(loop, "EVALUATED_RECORDS", 100)
    asked = Request(short_plan, "FedAvg", "digits", tmp_path / "part", seed=4)
    part, setting = execute(asked).record, prepare(asked)
    assert part.accuracy == plain.accuracy == plain.metrics[-1].accuracy
    assert part.accuracy_by_class == plain.accuracy_by_class
    rows = loop.evaluation_rows(setting, 100)
    assert torch.equal(rows, loop.evaluation_rows(setting, 100))
    assert len(rows) == len(rows.unique()) == 100
    assert not torch.equal(rows, loop.evaluation_rows(replace(setting, seed=5), 100))
    theta = checkpoint.load(tmp_path / "part", torch.device("cpu")).theta
    assert part.metrics[-1].accuracy == measure(setting.model, theta, setting.data).accuracy
    state = replace(loop.initial_state(setting), round=1)
    every, records = loop.evaluation_schedule(setting)
    assert (every, records) == (1, 100)
    earlier = loop.evaluate_if_due(setting, state, every, records)
    expected = measure(setting.model, state.theta, setting.data, 1, rows)
    assert earlier.metrics[-1].accuracy == expected.accuracy
    assert earlier.measures is None
    assert loop.evaluation_rows(setting, len(setting.data.test_y)) is None


@pytest.mark.parametrize(
    ("rounds", "every", "cohort", "images", "test", "expected"),
    [
        (16, 3, 120, 50, 10_000, 4912),  # with 10,000 in the end 12% of 288,000 passes
        (50, 5, 120, 50, 10_000, 10_888),
        (8, 1, 10, 5, 10_000, 1000),  # too short a run: at least so many
        (1, 1, 120, 50, 100, 2060),
    ],
)
def test_the_records_of_an_evaluation_during_training(
    rounds, every, cohort, images, test, expected
):
    assert records_within_share(rounds, every, cohort, images, test) == expected
