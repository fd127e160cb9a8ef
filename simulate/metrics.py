"""Test accuracy: overall, by class, and by privacy group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from simulate.data import Dataset
from simulate.local.workers import over_chunks
from simulate.models import Model

BATCH = 250
"""Test records that a thread evaluates at a time."""
SHARE = 0.12
"""Most of the time that evaluation may take while training goes on, as a share of training's."""
BACKWARD = 3
"""Cost of a training pass over a record, in forward passes."""
POINTS = 5
"""Least number of evaluations in a run, where there are as many rounds."""


@dataclass(frozen=True)
class Measured:
    """What a model does on the test records.

    Attributes:
        right: correct predictions of each class [classes].
        total: test records of each class [classes].
        loss: mean cross-entropy; None when it is not finite.
        own: mean over clients of their own accuracy, where each has a model of its own.
        own_by_group: the same by name of the group.
    """

    right: np.ndarray
    total: np.ndarray
    loss: float | None
    own: float | None = None
    own_by_group: Mapping[str, float] | None = None

    @property
    def accuracy(self) -> float:
        """Share of correct predictions, in [0, 1]; the mean over clients of their own."""
        if self.own is not None:
            return self.own
        return float(self.right.sum() / self.total.sum())

    @property
    def by_class(self) -> np.ndarray:
        """Accuracy of each class [classes]; NaN for a class without test records."""
        with np.errstate(invalid="ignore"):
            return self.right / self.total


def measure(
    model: Model, theta: Tensor, data: Dataset, workers: int = 1, rows: Tensor | None = None
) -> Measured:
    """Evaluate parameters [d] on test records.

    Args:
        model: the network.
        theta: parameters [d].
        data: the data set.
        workers: threads on a CPU; the result does not depend on it.
        rows: which test records; all when None.
    """
    labels = data.test_y if rows is None else data.test_y[rows]

    def work(part: slice) -> Tensor:
        x = data.test_x[part if rows is None else rows[part]]
        return model.logits(theta, data.inputs(x.to(theta.device))).cpu()

    with torch.no_grad():
        logits = over_chunks(work, len(labels), BATCH, workers)
        loss = float(functional.cross_entropy(logits.double(), labels))
    classes = len(data.classes)
    right = torch.bincount(labels[logits.argmax(1) == labels], minlength=classes).numpy()
    total = torch.bincount(labels, minlength=classes).numpy()
    return Measured(right, total, loss if math.isfinite(loss) else None)


def by_group(measured: Measured, shares: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Accuracy for each group.

    That of its clients' own models; of the one model, with the classes weighted as in the
    group's own training records.

    Args:
        measured: accuracy by class.
        shares: share of each class in each group [classes], by name of the group.
    """
    if measured.own_by_group is not None:
        return dict(measured.own_by_group)
    known = measured.total > 0
    result = {}
    for name, share in shares.items():
        weights = share[known]
        mean = np.average(measured.by_class[known], weights=weights) if weights.sum() else 0.0
        result[name] = float(mean)
    return result


def interval(rounds: int, cohort: float, images: int, test_records: int) -> int:
    """Rounds between two evaluations, so that evaluating costs a small share of training.

    Args:
        rounds: rounds of the run.
        cohort: expected clients a round.
        images: records that a client trains on in a round, counted with repetition.
        test_records: records of one evaluation.
    """
    a_round = BACKWARD * cohort * images
    needed = math.ceil(test_records / (SHARE * a_round))
    return max(1, min(needed, rounds // POINTS))
