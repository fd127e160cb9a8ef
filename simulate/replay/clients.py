"""Releases of single clients by DP-SGD, executed again record by record.

M. Abadi et al., Deep Learning with Differential Privacy, CCS 2016, Algorithm 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from privplan.record import ReleaseRecord, Residual
from simulate.replay.clipping import ClippedSum
from simulate.replay.draws import CLIENT, poisson_batches
from simulate.replay.lines import Line, Part
from simulate.replay.sums import Release
from simulate.replay.tolerance import ROUNDINGS, TINY, rounding_of
from simulate.replay.training import (
    Batch,
    Start,
    descended,
    gradients,
    learning_rate,
    mini_batches,
    step_factors,
    stream_keys,
)
from simulate.replay.world import World


class ClientTraining:
    """The DP-SGD of one client in a round.

    Args:
        world: the run.
        line: the ledger line of the client's release.
        start: what it starts from.
    """

    def __init__(self, world: World, line: Line, start: Start) -> None:
        self._world = world
        self._round = line.record.round
        [self._part] = line.parts
        self._client = int(self._part.clients[0])
        self._theta = start.of_client(self._client)
        self._rounding = start.rounding([self._client])
        steps = line.record.steps
        # A secret key has a stream of each number, a seed one of each client's name.
        stream_key = self._client
        if not world.key:
            [stream_key] = stream_keys(world, [self._client])
        source = world.source(CLIENT, self._round, stream_key)
        records = world.parts.partition.records(self._client)
        ratio = self._part.share.sampling_ratio
        self.batches = poisson_batches(records, steps, ratio, source)
        # Divides each noisy sum; a plan has it for each group that protects records.
        self.size = self._part.group.record_batch or 1.0
        generator = world.source(*line.stream)
        std = line.record.noise_std
        self.noise = [
            torch.from_numpy(generator.standard_normal(len(self._theta)) * std)
            for _ in range(steps)
        ]
        self.factors, self.share = step_factors(world, steps)
        self.clipped = ClippedSum(world.plan.spec.clipping_norm)

    def movement(self) -> Tensor:
        """The movement of the client's parameters [d]."""
        batches = mini_batches(self._world, self._round, [self._client], [self.batches])
        examples = list(batches)

        def slope(theta: Tensor, step: int, moves: Tensor | bool) -> Tensor:
            """The noisy sum of clipped gradients of single records, over the batch."""
            self.clipped.total = self.noise[step]
            self.clipped.is_sent = self._is_sent(step)
            for record in _single_records(examples[step]):
                gradient = gradients(self._world, theta[None], record, self._rounding)
                self.clipped.add(gradient[0])
            return (self.clipped.total / self.size).float() * moves

        return descended(
            self._world.plan,
            self._round,
            self._rounding.of_parameters(self._theta),
            slope,
            self.factors,
            rounding=self._rounding,
            movement_apart=True,
        )

    def _is_sent(self, step: int) -> Tensor:
        """Which coordinates of a step's direction move what is sent [d]."""
        released = torch.from_numpy(self._world.released(self._round))
        in_release = torch.zeros_like(self._theta).index_fill(0, released, 1)
        moves = torch.as_tensor(self.factors[step] * self.share) != 0
        return in_release * moves

    def movement_of_noise(self) -> Tensor:
        """What the noise alone moves, times the batch [d]; SGD is linear in it."""
        still = torch.zeros_like(self._theta, dtype=torch.float64)

        def slope(theta: Tensor, step: int, moves: Tensor | bool) -> Tensor:
            return self.noise[step] * moves

        return descended(
            self._world.plan,
            self._round,
            still,
            slope,
            self.factors,
            movement_apart=True,
        )

    def rate(self) -> float:
        """The most by which a unit of a step's direction moves what is sent."""
        factors = [torch.as_tensor(factor * self.share) for factor in self.factors]
        largest = max(float(factor.max()) for factor in factors)
        momentum = self._world.plan.spec.local.momentum
        carried_on = sum(momentum**step for step in range(len(factors)))
        return learning_rate(self._world.plan, self._round) * largest * carried_on


def client_release(
    world: World, line: Line, start: Start
) -> tuple[Release, Tensor | None]:
    """The release of one client, and what it keeps [d]; None where it keeps nothing."""
    training = ClientTraining(world, line, start)
    movement = training.movement()
    coordinates = torch.from_numpy(world.released(line.record.round))
    vector = (movement * training.share)[coordinates]
    finite = bool(vector.isfinite().all())
    if not finite:
        vector = torch.zeros_like(vector)
    sent_noise = (training.movement_of_noise() * training.share)[coordinates]
    record = _with_evidence(world, line, training, vector, sent_noise, not finite)
    # The noise of a coordinate of what is sent: the root mean square of what was drawn.
    root_mean_square = float(sent_noise.norm()) / math.sqrt(len(sent_noise))
    unit = max(root_mean_square / training.size, TINY)
    of_gradient = max(training.rate() / training.size, TINY)
    summed_norms = sum(training.clipped.norms_sent) * of_gradient
    limit = ROUNDINGS * rounding_of(vector, summed_norms, unit)
    # The residual is in sums of gradients, and not in what they move.
    of_residual = training.size / learning_rate(world.plan, line.record.round)
    release = Release(
        vector,
        record,
        training.clipped.near,
        unit,
        limit,
        is_faint=training.clipped.is_within(limit * unit / of_gradient),
        residual_scale=of_residual,
    )
    return release, kept_by(
        world, start, line.parts[0], movement * (1 - training.share)
    )


def _with_evidence(
    world: World,
    line: Line,
    training: ClientTraining,
    vector: Tensor,
    sent_noise: Tensor,
    excluded: bool,
) -> ReleaseRecord:
    """The ledger line with what training and noise give.

    Args:
        world: the run.
        line: the ledger line so far.
        training: of the client.
        vector: what it sends [k].
        sent_noise: the noise in it, times the batch [k].
        excluded: whether its update was not finite.
    """
    [contribution] = line.parts
    coordinates = torch.from_numpy(world.released(line.record.round))
    without_noise = sent_noise - vector.double() * training.size
    without_noise = without_noise / learning_rate(world.plan, line.record.round)
    residual = None
    if vector.any():
        squares = float(without_noise @ without_noise)
        residual = Residual(sum_squares=squares, along_sum=None)
    evidence = training.clipped.evidence
    evidence["cohort"] = sum(map(len, training.batches))
    evidence["excluded"] += excluded
    drawn = [float(noise[coordinates].square().sum()) for noise in training.noise]
    changes = {
        "noise_sum_squares": sum(drawn),
        "residual": residual,
        "shares": (contribution.share.model_copy(update=evidence),),
    }
    return line.record.model_copy(update=changes)


def kept_by(
    world: World, start: Start, contribution: Part, movement: Tensor
) -> Tensor | None:
    """What a client keeps for itself after its own part moved [d]; None for nothing."""
    if not world.recipe.personal:
        return None
    return start.of_client(int(contribution.clients[0])) - start.theta + movement


def _single_records(batch: Batch) -> list[Batch]:
    """The records of a mini-batch of one client, each as a batch of its own."""
    [size] = batch.sizes
    return [
        Batch(batch.x[:, [place]], batch.y[:, [place]], (1,)) for place in range(size)
    ]
