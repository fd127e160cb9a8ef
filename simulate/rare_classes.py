"""Metrics for rare classes, of the predictions on all test records at once.

Each takes the model's outputs: logits [n, classes] with classes [n], or logits [n, ...]
with targets of 0 and 1. Where a metric is not defined, as an AUROC without a positive
record, it is NaN, and no score is shown.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Bins of equal width over confidences from 0 to 1 (Guo et al. 2017, section 2).
CALIBRATION_BINS = 15


def auroc(outputs: Tensor, targets: Tensor) -> Tensor:
    """Area under the ROC curve: the mean over classes of each against the rest.

    A class or label without a positive or without a negative record is left out.
    """
    probabilities, truths = _columns(outputs, targets)
    areas = [
        _area(probabilities[:, column], truths[:, column])
        for column in range(truths.shape[1])
    ]
    return torch.stack(areas).nanmean()


def balanced_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over the classes that have records of the share that is recognised."""
    if targets.is_floating_point():
        predicted = (outputs > 0).long().flatten()
        true = (targets > 0.5).long().flatten()
    else:
        predicted = outputs.argmax(1)
        true = targets
    hits = (predicted == true).double()
    shares = [hits[true == label].mean() for label in torch.unique(true)]
    return torch.stack(shares).mean()


def calibration_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Expected calibration error (Guo et al. 2017, equation 3); 0 is the best.

    Of classes, the confidence is the largest probability, and an event is that its
    class is right. Of labels, the confidence is that of the label.
    """
    if targets.is_floating_point():
        confidences = outputs.double().sigmoid().flatten()
        events = targets.double().flatten()
    else:
        confidences, predicted = outputs.double().softmax(1).max(1)
        events = (predicted == targets).double()
    # A bin is open below and closed above: confidence 0.2 of 15 bins is in the third.
    bins = (confidences * CALIBRATION_BINS).ceil().long().clamp(min=1)
    gaps = torch.zeros(CALIBRATION_BINS + 1, dtype=torch.float64)
    gaps.index_add_(0, bins, confidences - events)
    return gaps.abs().sum() / len(events)


def _columns(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities [n, columns] and truths [n, columns] of classes or labels."""
    if targets.is_floating_point():
        probabilities = outputs.double().sigmoid()
        return probabilities.view(len(targets), -1), targets.view(len(targets), -1) > 0
    # In two classes both areas are the same; a model may have unused outputs.
    probabilities = outputs.double().softmax(1)
    return probabilities, functional.one_hot(targets, outputs.shape[1]) > 0


def _area(scores: Tensor, positive: Tensor) -> Tensor:
    """Chance that a positive record scores above a negative one, ties counting half.

    The statistic of Mann and Whitney (1947): the sum of the positives' mean ranks.
    """
    _, places, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    counts = counts.double()
    mean_ranks = counts.cumsum(0) - (counts - 1) / 2
    positives = positive.sum().double()
    negatives = len(positive) - positives
    rank_sum = mean_ranks[places][positive].sum()
    least_sum = positives * (positives + 1) / 2
    area: Tensor = (rank_sum - least_sum) / (positives * negatives)
    return area
