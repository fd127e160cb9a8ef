"""Test accuracy of the global model, by class and group, and of personal models."""

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

# Test records in a chunk of a thread, and clients in a chunk of personal models.
BATCH_RECORDS = 250
CHUNK_CLIENTS = 64


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
    # The score on the test records of each group; None where they name no groups.
    score_by_group: Mapping[str, float] | None = None

    @property
    def accuracy(self) -> float:
        """The score or share of correct predictions; of personal models their mean."""
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
    """Accuracy and loss of parameters [d] on test records.

    Args:
        model: of the parameters.
        theta: the parameters [d].
        data: with the test records.
        workers: number of threads.
        rows: indices of the test records; None for all.
        metric: of the run; None for the accuracy of classification.
    """
    labels = data.test_y if rows is None else data.test_y[rows]

    def logits_of(records: slice) -> Tensor:
        x = data.test_x[records if rows is None else rows[records]]
        return model.logits(theta, data.inputs(x.to(theta.device))).cpu()

    groups = data.test_groups_of(None if rows is None else rows.numpy())
    with torch.no_grad():
        logits = over_chunks(logits_of, len(labels), BATCH_RECORDS, workers)
        if metric is not None:
            return _scored(model, metric, logits, labels, groups)
        loss = float(functional.cross_entropy(logits.double(), labels))
    classes = len(data.classes)
    is_right = logits.argmax(1) == labels
    correct = torch.bincount(labels[is_right], minlength=classes).numpy()
    total = torch.bincount(labels, minlength=classes).numpy()
    shares = {
        name: float(is_right[torch.from_numpy(places)].double().mean())
        for name, places in groups.items()
    }
    return AccuracyMeasures(
        correct, total, finite_or_none(loss), score_by_group=shares or None
    )


def _scored(
    model: Model,
    metric: Metric,
    outputs: Tensor,
    labels: Tensor,
    groups: Mapping[str, np.ndarray],
) -> AccuracyMeasures:
    """The metric on the outputs of all test records, and on each group's."""
    targets = model.objective.targets_of(labels)
    scores = {}
    for name, places in groups.items():
        in_group = torch.from_numpy(places)
        scores[name] = metric(outputs[in_group], targets[in_group])
    no_counts = np.zeros(0, np.int64)
    return AccuracyMeasures(
        correct=no_counts,
        total=no_counts,
        loss=finite_or_none(float(model.objective(outputs, labels))),
        score=metric(outputs, targets),
        score_by_group=scores,
    )


def by_group(
    measured: AccuracyMeasures, shares: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """The accuracy per group.

    That of personal models is a mean, and that of a global model is of the group's own
    test records. Where test records name no groups, as those of registered data, it
    weighs the classes by the group's shares of them.

    Args:
        measured: all measures.
        shares: of each class in the training records, by name of the group [classes].
    """
    if measured.score_by_group is not None:
        return dict(measured.score_by_group)
    if measured.personal_by_group is not None:
        return dict(measured.personal_by_group)
    is_tested = measured.total > 0
    accuracies = measured.by_class[is_tested]
    result = {}
    for name, share in shares.items():
        weights = share[is_tested]
        if weights.sum():
            mean = np.average(accuracies, weights=weights)
        else:
            mean = 0.0
        result[name] = float(mean)
    return result


class _ChunkScores(NamedTuple):
    """Counts, losses and scores of the personal models of some clients."""

    correct: np.ndarray  # correct predictions per class, one row per client
    total: np.ndarray  # test records per class, one row per client
    loss: np.ndarray  # [K]
    score: np.ndarray  # the run's metric [K]; empty for accuracy


def evaluate_personal(
    experiment: Experiment, context: RoundContext, max_clients: int
) -> AccuracyMeasures:
    """Accuracy of personal models on each client's own test records.

    Args:
        experiment: the run.
        context: what clients would receive.
        max_clients: how many are evaluated at most, the same ones each time.
    """
    order = stream(experiment.seed, Purpose.EVALUATION).permutation(experiment.clients)
    chosen = np.sort(order[:max_clients])
    groups = experiment.algorithm.plan.groups
    scores = []
    names: list[str] = []  # of the group of each client
    for group, members in zip(groups, experiment.partition.members, strict=True):
        evaluated = np.intersect1d(np.asarray(members), chosen)
        for start in range(0, len(evaluated), CHUNK_CLIENTS):
            clients = evaluated[start : start + CHUNK_CLIENTS]
            scores.append(_score(experiment, context, group, clients))
            names += [group.name] * len(clients)
    return _combined(scores, names)


def _score(
    experiment: Experiment, context: RoundContext, group: GroupPlan, clients: np.ndarray
) -> _ChunkScores:
    """Evaluate the personal models of clients of one group on their test records."""
    algorithm = experiment.algorithm
    round_ = experiment.rounds + 1  # names streams that no training has used
    batch = client_batch(experiment, context, group, clients, round_=round_)
    thetas = algorithm.split.use(
        experiment.model, context.theta, batch.personal, clients
    )
    thetas = algorithm.personalisation.deploy(thetas, batch).expand(len(clients), -1)
    of_clients = []
    with torch.no_grad():
        for theta, client in zip(thetas, clients, strict=True):
            of_clients.append(_score_of_client(experiment, theta, int(client)))
    return _ChunkScores(
        correct=np.stack([scores.correct for scores in of_clients]),
        total=np.stack([scores.total for scores in of_clients]),
        loss=np.concatenate([scores.loss for scores in of_clients]),
        score=np.concatenate([scores.score for scores in of_clients]),
    )


def _score_of_client(
    experiment: Experiment, theta: Tensor, client: int
) -> _ChunkScores:
    """Evaluate the parameters [D] of one client; NaN without test records."""
    model = experiment.model
    data = experiment.data
    rows = torch.from_numpy(experiment.own_test(client))
    labels = data.test_y[rows]
    inputs = data.inputs(data.test_x[rows].to(theta.device))
    logits = model.logits(theta, inputs).cpu()
    if experiment.metric is not None:
        score = np.nan
        loss = np.nan
        if len(labels):
            score = experiment.metric(logits, model.objective.targets_of(labels))
            loss = float(model.objective(logits, labels))
        no_counts = np.zeros(1, np.int64)
        return _ChunkScores(
            no_counts, no_counts, np.asarray([loss]), np.asarray([score])
        )
    classes = len(data.classes)
    hits = labels[logits.argmax(1) == labels]
    loss = float(functional.cross_entropy(logits.double(), labels))
    return _ChunkScores(
        correct=np.bincount(hits.numpy(), minlength=classes),
        total=np.bincount(labels.numpy(), minlength=classes),
        loss=np.asarray([loss]),
        score=np.zeros(0),
    )


def _combined(scores: list[_ChunkScores], names: list[str]) -> AccuracyMeasures:
    """The measures of all clients, of which ``names`` has the groups."""
    correct = np.concatenate([chunk.correct for chunk in scores])
    total = np.concatenate([chunk.total for chunk in scores])
    metric_scores = np.concatenate([chunk.score for chunk in scores])
    has_metric = bool(metric_scores.size)
    if has_metric:
        of_clients = metric_scores
    else:
        # NaN for a client without test records.
        with np.errstate(invalid="ignore"):
            of_clients = correct.sum(1) / total.sum(1)
    mean = _defined_mean(of_clients)
    by_group = {
        name: _defined_mean(of_clients[np.array(names) == name])
        for name in dict.fromkeys(names)
    }
    losses = np.concatenate([chunk.loss for chunk in scores])
    return AccuracyMeasures(
        correct=correct.sum(0),
        total=total.sum(0),
        loss=finite_or_none(_defined_mean(losses)),
        personal=mean,
        personal_by_group=by_group,
        score=mean if has_metric else None,
        score_by_group=by_group if has_metric else None,
    )


def _defined_mean(values: np.ndarray) -> float:
    """Mean without NaN; NaN where no value is defined."""
    defined = values[~np.isnan(values)]
    if defined.size:
        return float(defined.mean())
    return float("nan")
