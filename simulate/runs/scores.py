"""Scores of finished runs that mean the same for every method: own and global test accuracy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from privplan.errors import InputError
from privplan.record import ReleaseRecord
from simulate.engine.evaluation import evaluate_personal, measure
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress, one_core
from simulate.engine.round import RoundContext, client_batch
from simulate.engine.seeds import Purpose, stream
from simulate.runs import checkpoint
from simulate.runs.request import Request, prepare

OWN_CLIENTS = 1000
"""Most clients whose models are scored on their own test records; the run's seed draws them."""
GLOBAL_CLIENTS = 20
"""Most clients whose models are scored on all test records, where clients have their own."""


@dataclass(frozen=True)
class Scores:
    """Test accuracies of one run.

    Attributes:
        own: mean over clients of the accuracy of the model that a client uses on its own test
            records, which are distributed as its training records.
        everybody: accuracy on all test records of the model that clients use; the mean over
            clients where each has its own.
        own_by_group: ``own`` per group.
        by_class: ``everybody`` per class; NaN for a class without test records.
    """

    own: float
    everybody: float
    own_by_group: dict[str, float]
    by_class: dict[str, float]

    @property
    def worst_group(self) -> tuple[str, float]:
        """The group with the least own accuracy."""
        return min(self.own_by_group.items(), key=lambda pair: pair[1])

    @property
    def worst_class(self) -> tuple[str, float]:
        """The class with the least accuracy."""
        known = {name: value for name, value in self.by_class.items() if not np.isnan(value)}
        return min(known.items(), key=lambda pair: pair[1])


def scores_of(request: Request) -> Scores:
    """Scores of a finished run, from the checkpoint in its folder.

    Raises:
        InputError: when the folder has no checkpoint.
    """
    experiment = prepare(request)
    progress = checkpoint.load(request.folder, experiment.device)
    if progress is None:
        raise InputError.one("run", "must have its checkpoint.pt", str(request.folder))
    with one_core():
        return _scores(experiment, progress)


def _scores(experiment: Experiment, progress: Progress) -> Scores:
    released = experiment.algorithm.server.released(progress.theta, progress.server)
    context = RoundContext(experiment.rounds, released, progress.server, None, progress.personal)
    own = evaluate_personal(experiment, context, OWN_CLIENTS)
    by_class = _by_class(experiment, context)
    counts = np.bincount(
        experiment.data.test_y.numpy(), minlength=len(experiment.data.classes)
    ).astype(float)
    everybody = float(np.nansum(by_class * counts) / counts.sum())
    names = dict(zip(experiment.data.classes, map(float, by_class), strict=True))
    return Scores(own.accuracy, everybody, dict(own.personal_by_group or {}), names)


def _by_class(experiment: Experiment, context: RoundContext) -> np.ndarray:
    """Accuracy per class on all test records, a mean over clients where each has a model."""
    algorithm, model = experiment.algorithm, experiment.model
    if not algorithm.personalisation.per_client:
        theta = algorithm.split.use(model, context.theta, None, np.arange(0))
        return measure(model, theta, experiment.data, experiment.workers).by_class
    drawn = stream(experiment.seed, Purpose.EVALUATION, 2).permutation(experiment.clients)
    chosen, found = np.sort(drawn[:GLOBAL_CLIENTS]), []
    groups = algorithm.plan.groups
    for group, members in zip(groups, experiment.partition.members, strict=True):
        part = np.intersect1d(np.asarray(members), chosen)
        if not len(part):
            continue
        batch = client_batch(experiment, context, group, part, round_=experiment.rounds + 1)
        thetas = algorithm.split.use(model, context.theta, batch.personal, part)
        thetas = algorithm.personalisation.deploy(thetas, batch).expand(len(part), -1)
        found += [
            measure(model, theta, experiment.data, experiment.workers).by_class
            for theta in torch.unbind(thetas)
        ]
    return np.asarray(np.mean(found, axis=0))


def clipped_share(records: Iterable[ReleaseRecord]) -> float | None:
    """Share of the contributions that were clipped, over all releases; None without clipping."""
    shares = [share for record in records for share in record.shares if share.clip_bound]
    taken = sum(share.cohort or 0 for share in shares)
    return sum(share.clipped or 0 for share in shares) / taken if taken else None
