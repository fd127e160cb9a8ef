"""Losses and metrics of tasks against closed forms, and what is refused."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import simulate
from privplan.errors import InputError
from simulate.models.network import Objective, with_seeds, without_seeds
from simulate.models.own import OwnModel
from simulate.tasks import TASKS, is_accuracy, metric_of, objective_of, task_of

LOGITS = torch.tensor([[2.0], [-1.0], [0.5], [-3.0]])
LABELS = torch.tensor([1.0, 1.0, 0.0, 0.0])


def test_binary_loss_and_metrics():
    loss = objective_of("binary", None, LABELS)(LOGITS, torch.arange(4))
    probabilities = 1 / (1 + np.exp(-LOGITS[:, 0].double().numpy()))
    expected = -np.log(
        [probabilities[0], probabilities[1], 1 - probabilities[2], 1 - probabilities[3]]
    )
    assert float(loss) == pytest.approx(expected.mean(), rel=1e-6)
    assert metric_of("binary", None)(LOGITS, LABELS) == 0.5
    # one true positive, one false positive, one false negative
    assert metric_of("binary", "f1")(LOGITS, LABELS) == 0.5


def test_multi_label_metrics_count_all_labels():
    outputs = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])
    targets = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    assert metric_of("multi-label", None)(outputs, targets) == pytest.approx(2 / 3)
    assert metric_of("multi-label", "accuracy")(outputs, targets) == pytest.approx(4 / 6)


def test_regression_metrics():
    outputs, targets = torch.tensor([[1.0], [2.0], [6.0]]), torch.tensor([1.0, 4.0, 4.0])
    assert metric_of("regression", None)(outputs, targets) == pytest.approx(math.sqrt(8 / 3))
    assert metric_of("regression", "mae")(outputs, targets) == pytest.approx(4 / 3)
    assert metric_of("regression", "r2")(outputs, targets) == pytest.approx(1 - 8 / 6)
    # [3, 1] and [3] are not broadcast to [3, 3]
    loss = objective_of("regression", None, targets)(outputs, torch.tensor([0, 1, 2]))
    assert float(loss) == pytest.approx(8 / 3)


def test_next_token_loss_is_a_mean_over_records():
    outputs = torch.zeros(2, 3, 4)
    targets = torch.tensor([[1, 2, 3], [0, -100, -100]])
    outputs[1, 0, 0] = 2.0
    objective = objective_of("next-token", None, targets)
    second = -2 + math.log(math.exp(2) + 3)
    expected = (math.log(4) + second) / 2
    assert float(objective(outputs, torch.arange(2))) == pytest.approx(expected, rel=1e-6)
    tokens = (3 * math.log(4) + second) / 4
    assert metric_of("next-token", None)(outputs, targets) == pytest.approx(math.exp(tokens))
    # ties of equal logits are won by token 0, which only the second record has
    assert metric_of("next-token", "accuracy")(outputs, targets) == 0.25


def test_every_default_loss_is_a_mean_over_records():
    generator = torch.Generator().manual_seed(0)
    for name, task in TASKS.items():
        outputs = torch.randn(4, 5, 6, generator=generator)
        targets = torch.randint(0, 6, (4, 5), generator=generator)
        if name == "multi-class":
            outputs, targets = outputs[:, 0], targets[:, 0]
        elif name != "next-token":
            outputs, targets = outputs[..., 0], (targets % 2).float()
        each = [float(task.loss(outputs[i : i + 1], targets[i : i + 1])) for i in range(4)]
        assert float(task.loss(outputs, targets)) == pytest.approx(np.mean(each), rel=1e-6)


def test_labels_and_seeds_come_back():
    y = torch.tensor([[[3, 2**32 - 1, -1], [0, 1, 2]]])
    seeds = torch.tensor([[2**31 - 1, 0]])
    packed = with_seeds(y, seeds)
    assert packed[0, 0, 2] == -1
    labels, seed = without_seeds(packed[0, 0, :2])
    assert labels.tolist() == [3, 2**32 - 1]
    assert seed == 2**31 - 1
    assert without_seeds(packed[0, 1])[1] == 0


WRONG = [
    ("task", lambda: task_of("ranking")), ("metric", lambda: metric_of("regression", "accuracy")),
    ("metric", lambda: metric_of("regression", 3)),
    ("loss", lambda: objective_of("regression", 3, None)),
    ("loss", lambda: objective_of("regression", nn.Linear, None)),
    ("metric", lambda: metric_of("regression", lambda o, t: o[9])(LOGITS, LABELS)),
    ("metric", lambda: metric_of("regression", lambda o, t: o)(LOGITS, LABELS)),
]  # fmt: skip


@pytest.mark.parametrize(("field", "make"), WRONG)
def test_wrong_tasks_losses_and_metrics(field, make):
    with pytest.raises(InputError, match=f"^{field}: "):
        make()


X = np.random.default_rng(0).normal(size=(12, 4))
REAL = {"y": np.ones(12), "task": "regression"}
WRONG_DATA = [
    ("data.y", {"y": np.arange(12) % 3, "task": "binary"}),
    ("data.y", {"y": ["a", "b"] * 6, "task": "binary"}),
    ("data.y", {"y": np.ones(12), "task": "multi-label"}),
    ("data.y", {"y": np.ones((12, 2, 2)), "task": "regression"}),
    ("data.y", {"y": np.where(np.arange(12) == 7, np.nan, 1.0), "task": "regression"}),
    ("data.y", {"task": "regression"}), ("task", {"y": np.ones(12), "task": "rank"}),
    ("data.x", {"task": "next-token"}),
    ("data.classes", {"y": np.ones(12), "task": "regression", "classes": ["a"]}),
    ("data.y", {"y": np.ones(11), "task": "regression"}),
    ("data.test", {**REAL, "test": simulate.Data(X, np.arange(12) % 2)}),
    ("data.test", {**REAL, "test": simulate.Data(X, np.ones((12, 2)), task="regression")}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "changes"), WRONG_DATA)
def test_wrong_labels(field, changes):
    with pytest.raises(InputError, match=f"^{field}: "):
        simulate.Data(X, **changes)


def _first(outputs, targets):
    return nn.functional.mse_loss(outputs, targets, reduction="none")


def _square_of_mean(outputs, targets):
    return (outputs - targets).mean().square()


WRONG_LOSSES = [
    ("loss", _first, False), ("loss", lambda o, t: torch.tensor(1.0), False),
    ("loss", lambda o, t: 1.0, False), ("loss", lambda o, t: (o - t).square().mean() / 0, False),
    ("loss", lambda o: o, False), ("loss", _square_of_mean, True),
]  # fmt: skip


@pytest.mark.parametrize(("field", "loss", "by_record"), WRONG_LOSSES)
def test_wrong_losses(field, loss, by_record):
    dataset, _ = simulate.Data(X, X[:, 0], task="regression").prepared(())
    objective = Objective(loss, dataset.targets)
    model = OwnModel(nn.Linear, {"in_features": 4, "out_features": 1}, "Linear")
    with pytest.raises(InputError, match=f"^{field}: "):
        model.model("linear", dataset, objective=objective, by_record=by_record)
    if by_record:  # a client's loss may be any function of its records
        model.model("linear", dataset, objective=objective)


def test_metrics_of_torchmetrics():
    library = pytest.importorskip("torchmetrics", reason="pip install 'privplan[metrics]'")
    outputs, targets = torch.tensor([[1.0], [2.0], [6.0]]), torch.tensor([1.0, 4.0, 4.0])
    kind = library.regression.MeanAbsoluteError
    for given in (kind, kind()):
        metric = metric_of("regression", given)
        assert metric.name == "MeanAbsoluteError"
        assert metric(outputs, targets) == pytest.approx(4 / 3)
        assert metric(outputs[:1], targets[:1]) == 0.0  # nothing is left from the call before
    f1 = library.classification.MulticlassF1Score(num_classes=2)
    assert not is_accuracy("multi-class", f1)  # ``f1 == "accuracy"`` is a metric, and so true
    with pytest.raises(InputError, match="must be built without arguments"):
        metric_of("multi-class", library.classification.MulticlassF1Score)
