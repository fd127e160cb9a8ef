"""Test accuracy of the global model (by class and privacy group) and of personal models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from privplan.plan import GroupPlan
from privplan.streams import Purpose, stream
from simulate.data.dataset import Dataset
from simulate.engine.experiment import Experiment
from simulate.engine.round import RoundContext, client_batch
from simulate.models.network import Model
from simulate.parallel import over_chunks
from simulate.tasks import Metric, finite_or_none

BATCH_RECORDS = 250  # test records per chunk of a thread
CHUNK_CLIENTS = 64  # clients that are evaluated in one chunk


@dataclass(frozen=True)
class AccuracyMeasures:
    """Accuracy and loss on the test records."""

    correct: np.ndarray  # correct predictions per class [classes]
    total: np.ndarray  # test records per class [classes]
    loss: float | None  # mean cross-entropy; None when it is not finite
    # Mean over clients of the accuracy of their personal models, where they have some.
    personal: float | None = None
    personal_by_group: Mapping[str, float] | None = None
    # The run's metric on all test records, or its mean over clients; None for accuracy.
    score: float | None = None
    score_by_group: Mapping[str, float] | None = None

    @property
    def accuracy(self) -> float:
        """The score, or the share of correct predictions; for personal models a mean."""
        if self.score is not None:
            return self.score
        if self.personal is not None:
            return self.personal
        return float(self.correct.sum() / self.total.sum())

    @property
    def by_class(self) -> np.ndarray:
        """Accuracy per class [classes]; NaN for a class without test records."""
        with np.errstate(invalid="ignore"):
            shares: np.ndarray = self.correct / self.total
        return shares


def measure(
    model: Model,
    theta: Tensor,
    data: Dataset,
    workers: int = 1,
    rows: Tensor | None = None,
    metric: Metric | None = None,
) -> AccuracyMeasures:
    """Accuracy and loss of parameters [d] on test records."""
    labels = data.test_y if rows is None else data.test_y[rows]

    def logits_of(part: slice) -> Tensor:
        x = data.test_x[part if rows is None else rows[part]]
        return model.logits(theta, data.inputs(x.to(theta.device))).cpu()

    with torch.no_grad():
        logits = over_chunks(logits_of, len(labels), BATCH_RECORDS, workers)
        if metric is not None:
            return _scored(model, metric, logits, data, rows)
        loss = float(functional.cross_entropy(logits.double(), labels))
    classes = len(data.classes)
    correct = torch.bincount(
        labels[logits.argmax(1) == labels], minlength=classes
    ).numpy()
    total = torch.bincount(labels, minlength=classes).numpy()
    return AccuracyMeasures(correct, total, finite_or_none(loss))


def _scored(
    model: Model, metric: Metric, outputs: Tensor, data: Dataset, rows: Tensor | None
) -> AccuracyMeasures:
    """The metric on the outputs of test records, of all and of each group where that is known."""
    labels = data.test_y if rows is None else data.test_y[rows]
    targets = model.objective.targets_of(labels)
    groups = data.test_groups
    if groups is not None and rows is not None:
        groups = groups[rows.numpy()]
    own = (
        {}
        if groups is None
        else {str(name): groups == name for name in np.unique(groups)}
    )
    scores = {
        name: metric(outputs[torch.from_numpy(rows)], targets[torch.from_numpy(rows)])
        for name, rows in own.items()
    }
    loss, nothing = (
        finite_or_none(float(model.objective(outputs, labels))),
        np.zeros(0, np.int64),
    )
    return AccuracyMeasures(
        nothing, nothing, loss, score=metric(outputs, targets), score_by_group=scores
    )


def by_group(
    measured: AccuracyMeasures, shares: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """The accuracy per group: of personal models a mean, else by class with the group's shares."""
    if measured.score_by_group is not None:
        return dict(measured.score_by_group)
    if measured.personal_by_group is not None:
        return dict(measured.personal_by_group)
    known, result = measured.total > 0, {}
    for name, share in shares.items():
        weights = share[known]
        mean = (
            np.average(measured.by_class[known], weights=weights)
            if weights.sum()
            else 0.0
        )
        result[name] = float(mean)
    return result


class _Score(NamedTuple):
    """Counts of some clients' models, one row per client [K, classes], losses and scores [K]."""

    correct: np.ndarray
    total: np.ndarray
    loss: np.ndarray
    score: np.ndarray


def evaluate_personal(
    experiment: Experiment, context: RoundContext, most: int
) -> AccuracyMeasures:
    """Accuracy of personal models on each client's own test records."""
    chosen = stream(experiment.seed, Purpose.EVALUATION).permutation(
        experiment.clients
    )[:most]
    chosen = np.sort(chosen)
    groups, scores, clients = experiment.algorithm.plan.groups, [], []
    for group, members in zip(groups, experiment.partition.members, strict=True):
        evaluated = np.intersect1d(np.asarray(members), chosen)
        for first in range(0, len(evaluated), CHUNK_CLIENTS):
            part = evaluated[first : first + CHUNK_CLIENTS]
            scores.append(_score(experiment, context, group, part))
            clients.append((group.name, len(part)))
    return _combined(scores, clients)


def _score(
    experiment: Experiment, context: RoundContext, group: GroupPlan, clients: np.ndarray
) -> _Score:
    """Evaluate the personal models of clients of one group on their own test records."""
    algorithm, model, data = experiment.algorithm, experiment.model, experiment.data
    batch = client_batch(
        experiment, context, group, clients, round_=experiment.rounds + 1
    )
    thetas = algorithm.split.use(model, context.theta, batch.personal, clients)
    thetas = algorithm.personalisation.deploy(thetas, batch).expand(len(clients), -1)
    correct, total, losses, scores = [], [], [], []
    with torch.no_grad():
        for theta, client in zip(thetas, clients, strict=True):
            chosen = torch.from_numpy(experiment.own_test(int(client)))
            classes = len(data.classes)
            labels, metric = data.test_y[chosen], experiment.metric
            logits = model.logits(
                theta, data.inputs(data.test_x[chosen].to(theta.device))
            ).cpu()
            if metric is not None:
                targets = model.objective.targets_of(labels)
                scores.append(metric(logits, targets) if len(labels) else np.nan)
                losses.append(
                    float(model.objective(logits, labels)) if len(labels) else np.nan
                )
                continue
            hits = labels[logits.argmax(1) == labels]
            correct.append(np.bincount(hits.numpy(), minlength=classes))
            total.append(np.bincount(labels.numpy(), minlength=classes))
            losses.append(float(functional.cross_entropy(logits.double(), labels)))
    if scores:
        correct = total = [np.zeros(1, np.int64)] * len(scores)
    return _Score(
        np.stack(correct), np.stack(total), np.asarray(losses), np.asarray(scores)
    )


def _combined(scores: list[_Score], clients: list[tuple[str, int]]) -> AccuracyMeasures:
    correct = np.concatenate([score.correct for score in scores])
    total = np.concatenate([score.total for score in scores])
    with np.errstate(invalid="ignore"):
        personal = correct.sum(1) / total.sum(
            1
        )  # NaN for a client without test records
    own = np.concatenate([score.score for score in scores])
    personal = own if own.size else personal
    names = np.repeat([name for name, _ in clients], [count for _, count in clients])
    by_group = {
        str(name): float(np.nanmean(personal[names == name])) for name, _ in clients
    }
    loss = finite_or_none(
        float(np.nanmean(np.concatenate([score.loss for score in scores])))
    )
    return AccuracyMeasures(
        correct.sum(0),
        total.sum(0),
        loss,
        personal=float(np.nanmean(personal)),
        personal_by_group=by_group,
        score=float(np.nanmean(personal)) if own.size else None,
        score_by_group=by_group if own.size else None,
    )
