"""Test accuracy: overall, by class, and by privacy group.

Accuracy of personal models: each client's own model on test records of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from privplan.plan import GroupPlan
from simulate.components import ClientBatch
from simulate.data.dataset import Dataset
from simulate.data.own_test import own_test
from simulate.engine.experiment import Experiment
from simulate.engine.round import RoundContext, client_batch
from simulate.engine.seeds import Purpose, stream
from simulate.models.network import Model
from simulate.parallel.threads import over_chunks

BATCH = 250
"""Test records that a thread evaluates at a time."""
SHARE = 0.12
"""Most of the time that evaluation may take while training goes on, as a share of training's."""
BACKWARD = 3
"""Cost of a training pass over a record, in forward passes."""
POINTS = 5
"""Least number of evaluations in a run, where there are as many rounds."""


@dataclass(frozen=True)
class AccuracyMeasures:
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
) -> AccuracyMeasures:
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
    return AccuracyMeasures(right, total, loss if math.isfinite(loss) else None)


def by_group(measured: AccuracyMeasures, shares: Mapping[str, np.ndarray]) -> dict[str, float]:
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


CLIENTS = 64
"""Clients that are evaluated together."""


@dataclass(frozen=True)
class _Score:
    """What the models of some clients do: one row a client [K, classes], and losses [K]."""

    right: np.ndarray
    total: np.ndarray
    loss: np.ndarray


def evaluate_personal(setting: Experiment, told: RoundContext, most: int) -> AccuracyMeasures:
    """Mean over clients of the accuracy of their own models on their own test records.

    Args:
        setting: the run.
        told: what clients are told after the last round.
        most: most clients that are looked at; they are drawn once a run, by its seed.

    Returns:
        Accuracy and loss as means over clients; counts by class pooled over them.
    """
    chosen = stream(setting.seed, Purpose.EVALUATION).permutation(setting.clients)[:most]
    looked = np.sort(chosen)
    groups, scores, clients = setting.algorithm.plan.groups, [], []
    for group, members in zip(groups, setting.held.members, strict=True):
        own = np.intersect1d(np.asarray(members), looked)
        for first in range(0, len(own), CLIENTS):
            part = own[first : first + CLIENTS]
            scores.append(_score(setting, told, group, part))
            clients.append((group.name, len(part)))
    return _joined(scores, clients)


def _score(
    setting: Experiment, told: RoundContext, group: GroupPlan, clients: np.ndarray
) -> _Score:
    work = client_batch(setting, told, group, clients, round_=setting.rounds + 1)
    thetas = setting.algorithm.split.use(setting.model, told.theta, work.personal, clients)
    thetas = setting.algorithm.personalise.deploy(thetas, work).expand(len(clients), -1)
    return _marks(setting, work, thetas)


def _marks(setting: Experiment, work: ClientBatch, thetas: Tensor) -> _Score:
    """Each client's model on its own test records."""
    data, classes = setting.data, len(setting.data.classes)
    rows = [own_test(data, setting.held, int(one), setting.seed) for one in work.clients]
    right, total, losses = [], [], []
    with torch.no_grad():
        for theta, own in zip(thetas, rows, strict=True):
            chosen = torch.from_numpy(own)
            labels = data.test_y[chosen]
            logits = setting.model.logits(theta, data.inputs(data.test_x[chosen].to(theta.device)))
            logits = logits.cpu()
            hit = labels[logits.argmax(1) == labels]
            right.append(np.bincount(hit.numpy(), minlength=classes))
            total.append(np.bincount(labels.numpy(), minlength=classes))
            losses.append(float(functional.cross_entropy(logits.double(), labels)))
    return _Score(np.stack(right), np.stack(total), np.asarray(losses))


def _joined(scores: list[_Score], clients: list[tuple[str, int]]) -> AccuracyMeasures:
    right = np.concatenate([score.right for score in scores])
    total = np.concatenate([score.total for score in scores])
    with np.errstate(invalid="ignore"):
        own = right.sum(1) / total.sum(1)  # NaN for a client without test records
    names = np.repeat([name for name, _ in clients], [count for _, count in clients])
    by_group = {str(name): float(np.nanmean(own[names == name])) for name, _ in clients}
    loss = float(np.nanmean(np.concatenate([score.loss for score in scores])))
    return AccuracyMeasures(
        right.sum(0),
        total.sum(0),
        loss if np.isfinite(loss) else None,
        own=float(np.nanmean(own)),
        own_by_group=by_group,
    )
