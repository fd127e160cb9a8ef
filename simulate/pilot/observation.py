"""Estimates of one round of a pilot, from single clients' updates and gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from simulate.engine.batches import batches
from simulate.engine.experiment import Experiment
from simulate.engine.round import participants
from simulate.engine.seeds import Purpose, stream
from simulate.local.sgd import PADDING, gradients
from simulate.models.objective import CROSS_ENTROPY
from simulate.pilot import estimators
from simulate.pilot.estimators import Estimate

PROBES = 8
"""Directions per round for each mean curvature."""
SHORT_STEP, LONG_STEP = 0.01, 0.5
"""Steps of the differences for the largest and for mean curvatures, in parameter norm."""
GRADIENT_VALUES = 2**26
"""Most values of clients' gradients in memory at a time."""

Records = tuple[Tensor, Tensor]
"""Records [K, B, ...] and labels [K, B] of clients."""


@dataclass(frozen=True)
class Observation:
    """Estimates of one round, all at the parameters where it begins.

    Attributes:
        norms: norms of the clients' updates [K].
        heterogeneity: h^2 between the groups, in squared norm of an update.
        coherence: squared norm of the mean update over the squared mean norm.
        smoothness: largest curvature of the cohort's mean objective.
        noise_curvature: mean curvature in isotropic directions.
        sampling_curvature: mean curvature along the scatter of the clients' updates.
        loss: mean loss over the clients.
        local_variance: zeta^2, per coordinate.
        dissimilarity: kappa^2, in squared norm of a gradient.
    """

    norms: NDArray[np.float64]
    heterogeneity: Estimate
    coherence: Estimate
    smoothness: float
    noise_curvature: Estimate
    sampling_curvature: Estimate
    loss: Estimate
    local_variance: Estimate
    dissimilarity: Estimate


def observe_round(
    experiment: Experiment, theta: Tensor, round_: int, updates: Tensor, owners: NDArray[np.int64]
) -> Observation:
    """Returns the estimates of one round.

    Args:
        experiment: the pilot's run.
        theta: parameters where the round begins [d].
        round_: the round, from 1.
        updates: its clients' updates [K, d].
        owners: group of each update [K].
    """
    clients = np.concatenate(participants(experiment, round_))
    records_of_all = _all_records(experiment, clients)
    own = client_gradients(experiment, theta, records_of_all)
    pair = [
        client_gradients(experiment, theta, _batch(experiment, clients, round_, i)) for i in (1, 2)
    ]

    def gradient(at: Tensor) -> Tensor:
        return client_gradients(experiment, at, records_of_all).mean(0)

    probes = _probes(experiment, round_)
    scatter = list((updates - updates.mean(0))[:PROBES])
    shares = np.array([group.weight for group in experiment.algorithm.plan.groups])
    return Observation(
        norms=estimators.norms(updates),
        heterogeneity=estimators.heterogeneity(updates, owners, shares),
        coherence=estimators.coherence(updates),
        smoothness=estimators.largest_curvature(gradient, theta, probes[0], SHORT_STEP),
        noise_curvature=estimators.mean_curvature(gradient, theta, probes, LONG_STEP),
        sampling_curvature=estimators.mean_curvature(gradient, theta, scatter, LONG_STEP),
        loss=_loss(experiment, theta, records_of_all),
        local_variance=estimators.local_variance(*pair),
        dissimilarity=estimators.dissimilarity(own),
    )


def client_gradients(experiment: Experiment, theta: Tensor, records: Records) -> Tensor:
    """Gradients of the clients' mean losses over their records [K, d], computed in chunks."""
    x, y = records
    step = max(1, GRADIENT_VALUES // len(theta))
    parts = [
        gradients(
            experiment.model,
            theta.expand(len(y[i : i + step]), -1),
            x[i : i + step],
            y[i : i + step],
            workers=experiment.workers,
        )
        for i in range(0, len(y), step)
    ]
    return torch.cat(parts)


def _all_records(experiment: Experiment, clients: NDArray[np.int64]) -> Records:
    """All records of each client, padded to the longest."""
    most = max(len(experiment.partition.records(client)) for client in clients)
    return _single_batch(experiment, clients, 1, most)


def _batch(experiment: Experiment, clients: NDArray[np.int64], round_: int, index: int) -> Records:
    """A mini-batch of each client from streams that no training round uses."""
    return _single_batch(
        experiment, clients, 2 * round_ + index + 1_000_000, experiment.local.batch_size
    )


def _single_batch(
    experiment: Experiment, clients: NDArray[np.int64], round_: int, size: int
) -> Records:
    x, y = batches(
        experiment.data,
        experiment.partition,
        clients,
        seed=experiment.seed,
        round_=round_,
        steps=1,
        size=size,
        device=experiment.device,
    )
    return x[:, 0], y[:, 0]


def _probes(experiment: Experiment, round_: int) -> list[Tensor]:
    """Isotropic random directions [d] from the round's stream."""
    source = torch.Generator()
    source.manual_seed(int(stream(experiment.seed, Purpose.SUPPORT, round_).integers(2**63 - 1)))
    size = experiment.model.parameters
    return [torch.randn(size, generator=source) for _ in range(PROBES)]


def _loss(experiment: Experiment, theta: Tensor, records: Records) -> Estimate:
    """Mean over clients of their mean loss."""
    x, y = records
    with torch.no_grad():
        logits = experiment.model.logits(theta, x.flatten(0, 1))
        objective = experiment.model.objective
        if objective is not CROSS_ENTROPY:
            parts = zip(torch.unflatten(logits, 0, y.shape), y, y != PADDING, strict=True)
            own = [float(objective(outputs[rows], labels[rows])) for outputs, labels, rows in parts]
            return estimators.mean_of(np.array(own))
        each = functional.cross_entropy(
            logits.double(), y.flatten(), ignore_index=PADDING, reduction="none"
        )
    counts = (y != PADDING).sum(1)
    return estimators.mean_of((each.view(y.shape).sum(1) / counts).numpy())
