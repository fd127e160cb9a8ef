"""Metrics for rare classes, beside those of scikit-learn and torchmetrics."""

import math

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from simulate.rare_classes import CALIBRATION_BINS
from simulate.tasks import metric_of

RECORDS = 400


def imbalanced(classes, digits=1):
    """Outputs that know a little of rare classes, rounded so that many are equal."""
    generator = torch.Generator().manual_seed(3)
    shares = torch.tensor([0.9] + [0.1 / (classes - 1)] * (classes - 1))
    labels = torch.multinomial(shares, RECORDS, replacement=True, generator=generator)
    outputs = torch.randn(RECORDS, classes, generator=generator)
    outputs[torch.arange(RECORDS), labels] += 1.0
    return outputs.round(decimals=digits), labels


@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_of_classes_are_those_of_scikit_learn(classes):
    outputs, labels = imbalanced(classes)
    probabilities = outputs.double().softmax(1)
    scores = probabilities[:, 1] if classes == 2 else probabilities
    expected = roc_auc_score(labels, scores, multi_class="ovr", average="macro")
    assert metric_of("multi-class", "auroc")(outputs, labels) == pytest.approx(expected)
    balanced = metric_of("multi-class", "balanced_accuracy")
    assert balanced.name == "balanced-accuracy"
    score = balanced(outputs, labels)
    predicted = outputs.argmax(1)
    assert score == pytest.approx(balanced_accuracy_score(labels, predicted))


def test_metrics_of_binary_and_several_labels_are_those_of_scikit_learn():
    outputs, labels = imbalanced(2)
    logits = outputs[:, 1:] - outputs[:, :1]
    targets = labels.float()
    expected = roc_auc_score(labels, logits[:, 0])
    assert metric_of("binary", "auroc")(logits, targets) == pytest.approx(expected)
    score = metric_of("binary", "balanced-accuracy")(logits, targets)
    expected = balanced_accuracy_score(labels, logits[:, 0] > 0)
    assert score == pytest.approx(expected)
    complementary = torch.stack([targets, 1 - targets], 1)
    several = metric_of("multi-label", "auroc")(outputs, complementary)
    by_label = [
        roc_auc_score(complementary[:, label], outputs[:, label]) for label in (0, 1)
    ]
    assert several == pytest.approx(sum(by_label) / 2)


def test_calibration_error_is_that_of_torchmetrics():
    library = pytest.importorskip("torchmetrics.functional.classification")
    outputs, labels = imbalanced(3, digits=4)
    expected = library.multiclass_calibration_error(
        outputs.softmax(1), labels, num_classes=3, n_bins=CALIBRATION_BINS
    )
    score = metric_of("multi-class", "calibration-error")(outputs, labels)
    assert score == pytest.approx(float(expected), abs=1e-5)
    logits = outputs[:, 0] - 1
    targets = (labels == 0).float()
    expected = library.binary_calibration_error(
        logits.sigmoid(), targets.long(), n_bins=CALIBRATION_BINS
    )
    score = metric_of("binary", "calibration-error")(logits, targets)
    assert score == pytest.approx(float(expected), abs=1e-5)


def test_a_constant_model_recognises_nothing():
    labels = torch.tensor([0] * 19 + [1])
    outputs = torch.tensor([[1.0, 0.0]]).expand(20, 2)
    assert metric_of("multi-class", "accuracy")(outputs, labels) == 0.95
    assert metric_of("multi-class", "balanced-accuracy")(outputs, labels) == 0.5
    assert metric_of("multi-class", "auroc")(outputs, labels) == 0.5


def test_without_a_positive_record_there_is_no_area():
    labels = torch.zeros(5, dtype=torch.int64)
    assert math.isnan(metric_of("multi-class", "auroc")(torch.eye(5), labels[:5]))
    # The class without a record is left out of the mean.
    labels = torch.tensor([0, 1, 0, 1])
    outputs = torch.tensor([[2.0, 1, 0], [1, 2, 0], [3, 1, 0], [0, 1, 0]])
    expected = metric_of("multi-class", "auroc")(outputs, labels)
    assert expected == 1.0
