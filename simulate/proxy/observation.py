"""Estimates of one round of a pilot, from single clients' updates and gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from privplan.streams import Purpose, stream
from simulate.engine.batches import batches
from simulate.engine.experiment import Experiment
from simulate.engine.round import participants
from simulate.local.sgd import PADDING, gradients
from simulate.models.objective import CROSS_ENTROPY
from simulate.proxy.estimators import (
    Estimate,
    dissimilarity,
    heterogeneity,
    largest_curvature,
    local_variance,
    mean_curvature,
    mean_of,
    norms,
)

PROBES = 8  # directions per round for each mean curvature
SHORT_STEP = 0.01
"""Step of the differences for the largest curvature, in parameter norm."""
LONG_STEP = 0.5
"""Step of the differences for mean curvatures, in parameter norm."""
GRADIENT_VALUES = 2**26  # most values of clients' gradients in memory at a time
_UNUSED_ROUNDS = 1_000_000  # above any round that trains, so that no stream is shared

Records = tuple[Tensor, Tensor]
"""Records [K, B, ...] and labels [K, B] of clients."""


@dataclass(frozen=True)
class Observation:
    """Estimates of one round, all at the parameters where it begins.

    Attributes:
        norms: of the clients' updates [K].
        heterogeneity: h^2 between the groups, in squared norm of an update.
        smoothness: largest curvature of the cohort's mean objective.
        noise_curvature: mean curvature in isotropic directions.
        sampling_curvature: the same along the scatter of the clients' updates.
        loss: mean over the clients.
        local_variance: zeta^2, per coordinate.
        dissimilarity: kappa^2, in squared norm of a gradient.
    """

    norms: NDArray[np.float64]
    heterogeneity: Estimate
    smoothness: float
    noise_curvature: Estimate
    sampling_curvature: Estimate
    loss: Estimate
    local_variance: Estimate
    dissimilarity: Estimate


def observe_round(
    experiment: Experiment,
    theta: Tensor,
    round_: int,
    updates: Tensor,
    owners: NDArray[np.int64],
) -> Observation:
    """The estimates of one round.

    Args:
        experiment: the pilot.
        theta: parameters [d] where the round begins.
        round_: its number.
        updates: of the clients [K, d].
        owners: index of each client's group [K].
    """
    clients = np.concatenate(participants(experiment, round_))

    def drawn(stream_round: int, size: int) -> Records:
        """One batch of each client."""
        x, y = batches(
            experiment.data,
            experiment.partition,
            clients,
            seed=experiment.seed,
            round_=stream_round,
            steps=1,
            size=size,
            device=experiment.device,
        )
        return x[:, 0], y[:, 0]

    # All records of each client, padded to the longest, and two mini-batches from
    # streams that no training round uses.
    longest = max(len(experiment.partition.records(client)) for client in clients)
    everything = drawn(1, longest)
    batch_size = experiment.local.batch_size
    first_batch = drawn(2 * round_ + 1 + _UNUSED_ROUNDS, batch_size)
    second_batch = drawn(2 * round_ + 2 + _UNUSED_ROUNDS, batch_size)

    def gradient(parameters: Tensor) -> Tensor:
        return client_gradients(experiment, parameters, everything).mean(0)

    probes = _probes(experiment, round_)
    scatter = list((updates - updates.mean(0))[:PROBES])
    shares = np.array([group.weight for group in experiment.algorithm.plan.groups])
    return Observation(
        norms=norms(updates),
        heterogeneity=heterogeneity(updates, owners, shares),
        smoothness=largest_curvature(gradient, theta, probes[0], SHORT_STEP),
        noise_curvature=mean_curvature(gradient, theta, probes, LONG_STEP),
        sampling_curvature=mean_curvature(gradient, theta, scatter, LONG_STEP),
        loss=_loss(experiment, theta, everything),
        local_variance=local_variance(
            client_gradients(experiment, theta, first_batch),
            client_gradients(experiment, theta, second_batch),
        ),
        dissimilarity=dissimilarity(client_gradients(experiment, theta, everything)),
    )


def _probes(experiment: Experiment, round_: int) -> list[Tensor]:
    """Isotropic directions [d] of a round."""
    source = torch.Generator()
    seeds = stream(experiment.seed, Purpose.SUPPORT, round_)
    source.manual_seed(int(seeds.integers(2**63 - 1)))
    size = experiment.model.parameters
    return [torch.randn(size, generator=source) for _ in range(PROBES)]


def client_gradients(experiment: Experiment, theta: Tensor, records: Records) -> Tensor:
    """Gradients [K, d] of the clients' mean losses over their records, in chunks."""
    x, y = records
    step = max(1, GRADIENT_VALUES // len(theta))
    of_chunks = []
    for start in range(0, len(y), step):
        chunk = slice(start, start + step)
        thetas = theta.expand(len(y[chunk]), -1)
        of_chunks.append(
            gradients(
                experiment.model,
                thetas,
                x[chunk],
                y[chunk],
                workers=experiment.workers,
            )
        )
    return torch.cat(of_chunks)


def _loss(experiment: Experiment, theta: Tensor, records: Records) -> Estimate:
    """Mean over clients of their mean loss."""
    x, y = records
    is_record = y != PADDING
    objective = experiment.model.objective
    with torch.no_grad():
        outputs = experiment.model.logits(theta, x.flatten(0, 1))
        if objective is CROSS_ENTROPY:
            losses = functional.cross_entropy(
                outputs.double(), y.flatten(), ignore_index=PADDING, reduction="none"
            )
            means = losses.view(y.shape).sum(1) / is_record.sum(1)
            return mean_of(means.numpy())
        by_client = zip(torch.unflatten(outputs, 0, y.shape), y, is_record, strict=True)
        return mean_of(
            np.array(
                [
                    float(objective(client_outputs[rows], labels[rows]))
                    for client_outputs, labels, rows in by_client
                ]
            )
        )
