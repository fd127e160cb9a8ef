"""Scores of a model on test records, computed again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from privplan.errors import InputError
from privplan.plan import Plan
from simulate.models.objective import Objective
from simulate.own_parts import RunParts
from simulate.replay.tolerance import FLOAT32
from simulate.tasks import Metric

SCORE = 1e-3
"""Relative difference of a score or loss that agrees, absolute below 1 for what has no unit:
outputs of float32 kernels differ by some 1e-6, and a score of a few thousand records
moves by no more than one of them."""
IN_UNITS = ("rmse", "mae")
"""Metrics in the unit of the targets, as losses are, which may be small."""
NEAR = 1e-5  # distance of two outputs, relative to the largest, within which rounding orders them
MOST_TIES = 0.01
"""Largest share of test records whose two largest outputs are that near. Training leaves fewer; a
model whose outputs are all near has any accuracy that rounding gives it, so none is
shown. Nor is one of a metric that moves by more where outputs are nudged that far."""
BATCH = 1000  # test records at once

Score = tuple[float, float]
"""A score, and the largest difference that agrees."""


@dataclass
class Scores:
    """Scores of a model by kind and name."""

    score: Score
    loss: Score
    by_class: dict[str, Score] = field(default_factory=dict)
    by_group: dict[str, Score] = field(default_factory=dict)
    undecided: str = ""  # what rounding decides of the scores, where it is too much

    @property
    def shown(self) -> bool:
        """Whether the scores mean something, whatever the rounding."""
        return not self.undecided


@torch.no_grad()
def scores_of(
    run_parts: RunParts, plan: Plan, theta: Tensor, rows: np.ndarray
) -> Scores:
    """Scores of parameters [d] on the test records with some indices."""
    data = run_parts.data
    blocks = torch.split(torch.from_numpy(rows), BATCH)
    outputs = [
        run_parts.model.logits(theta, data.inputs(data.test_x[block]))
        for block in blocks
    ]
    logits = torch.cat(outputs)
    labels = data.test_y[rows]
    if run_parts.metric is not None:
        return _by_metric(run_parts, run_parts.metric, logits, labels, rows)
    best = logits.topk(2).values
    hits = logits.argmax(1) == labels
    near = best[:, 0] - best[:, 1] <= NEAR * logits.abs().amax(1)
    # Whether each record is right, and whether rounding decides it [records, 2].
    counts = torch.stack([hits, near], 1).double().numpy()
    scores = Scores(
        score=_pair(counts.mean(0)),
        loss=_loss(Objective(cross_entropy), logits.double(), labels),
    )
    ties = float(counts[:, 1].mean())
    if ties > MOST_TIES:
        scores.undecided = (
            f"{ties:.0%} of the test records are ties of the model's outputs"
        )
    _add_parts(scores, run_parts, plan, counts, rows)
    return scores


def _add_parts(
    scores: Scores,
    run_parts: RunParts,
    plan: Plan,
    counts: np.ndarray,
    rows: np.ndarray,
) -> None:
    """Add the scores of classes and groups, by what each record counts [records, 2]."""
    data = run_parts.data
    labels = data.test_y[rows].numpy()
    tested = np.unique(labels)
    means = np.array([counts[labels == label].mean(0) for label in tested])
    for label, mean in zip(tested, means, strict=True):
        scores.by_class[data.classes[label]] = _pair(mean)
    groups = data.test_groups_of(rows)
    for name, places in groups.items():
        scores.by_group[name] = _pair(counts[places].mean(0))
    if data.labels_are_public and not groups:
        scores.by_group.update(_by_classes(run_parts, plan, tested, means))


def _by_classes(
    run_parts: RunParts, plan: Plan, tested: np.ndarray, means: np.ndarray
) -> dict[str, Score]:
    """Means over classes [classes, 2], with each group's shares of them in training."""
    labels = run_parts.data.train_labels.numpy()
    classes = len(run_parts.data.classes)
    by_group = dict[str, Score]()
    for group, members in zip(plan.groups, run_parts.partition.members, strict=True):
        shares = run_parts.partition.label_distribution(members, labels, classes)
        weights = shares[tested]
        by_group[group.name] = _pair(weights @ means / (weights.sum() or 1.0))
    return by_group


def _pair(means: np.ndarray) -> Score:
    """A share of records, from an array of it and of the share of ties."""
    return float(means[0]), SCORE + float(means[1])


def _loss(objective: Objective, logits: Tensor, labels: Tensor) -> Score:
    """The loss of outputs, which moves along its slopes with them."""
    loss = float(objective(logits, labels))
    size, slope = _rounding(objective, logits, labels)
    limit = SCORE * abs(loss) + float((size * slope.abs()).sum())
    # The cross-entropy of classes is a difference of outputs, which float32 rounds.
    if not objective.targets_of(labels).is_floating_point():
        limit += FLOAT32 * float(logits.abs().max())
    return loss, limit


def _by_metric(
    run_parts: RunParts,
    metric: Metric,
    logits: Tensor,
    labels: Tensor,
    rows: np.ndarray,
) -> Scores:
    """The run's metric, also by the groups that the test records name.

    Another kernel may order records with equal outputs otherwise, so the metric is also
    computed on outputs that are nudged.
    """
    objective = run_parts.model.objective
    targets = objective.targets_of(labels)
    variants = [logits, *_nudged(objective, logits, labels)]
    scores = Scores((math.nan, 0.0), _loss(objective, logits, labels))
    unit = 0.0 if metric.is_own or metric.name in IN_UNITS else 1.0

    def score_of(places: np.ndarray) -> Score:
        """The metric of some records, and by how much nudges move it."""
        chosen = torch.from_numpy(places)
        values = list[float]()
        for outputs in variants:
            # A nudge may leave what the metric accepts, as a probability above 1.
            with suppress(InputError):
                values.append(metric(outputs[chosen], targets[chosen]))
        if len(values) < 2:
            scores.undecided = f"rounding leads beyond what {metric.name} accepts"
            return 0.0, math.inf
        score = values[0]
        if not np.isfinite(values).any():
            return score, 0.0
        spread = max(values) - min(values)
        size = max(unit, abs(score))
        if spread <= MOST_TIES * size:
            return score, SCORE * size + spread
        scores.undecided = (
            f"rounding of the outputs moves {metric.name} by {spread:.2g}"
        )
        return score, math.inf

    scores.score = score_of(np.arange(len(rows)))
    for name, places in run_parts.data.test_groups_of(rows).items():
        scores.by_group[name] = score_of(places)
    return scores


def _nudged(objective: Objective, logits: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """Outputs that rounding may give: nearer to the targets, further, or either.

    What the loss asks for orders equal records in the best or the worst way.
    """
    size, slope = _rounding(objective, logits, labels)
    generator = torch.Generator().manual_seed(0)
    random = torch.rand(logits.shape, generator=generator) * 2 - 1
    for direction in (slope.sign(), -slope.sign(), random):
        yield logits + size * direction


def _rounding(
    objective: Objective, logits: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """How far rounding may move each output, and the slope of the loss by it."""
    with torch.enable_grad():
        outputs = logits.detach().requires_grad_()
        [slope] = torch.autograd.grad(objective(outputs, labels), outputs)
    # Outputs near 0 are sums of larger terms, whose size is that of the others.
    return NEAR * (logits.abs() + logits.abs().mean()), slope
