"""Faults that carry what clients hold or send around the noisy sums, or into their noise."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simulate.components import ClientBatch, LocalResult
from simulate.engine import cohort
from simulate.engine.experiment import Experiment
from simulate.mechanisms import RecordNoise
from simulate.norms import add_sum
from tests.sabotage.bench import ROUNDS
from tests.sabotage.fault import Break, Fault, with_components
from tests.sabotage.kinds.distribution import standard
from tests.sabotage.kinds.rounds import CLEAR, TURNS, WHY, mixed_by, stepping
from tests.sabotage.own_noise import DP_SGD

ENGINE = importlib.import_module("simulate.engine.round")
INSIDE = "the loop measures what clients send, and not what they train on"
SEED = "noise regenerated"
Seen = dict[int, Tensor]
"""Something of each round that is over."""


def trained(
    before: Callable[[ClientBatch, Seen], ClientBatch] = lambda batch, seen: batch,
    after: Callable[[LocalResult], LocalResult] = lambda result: result,
) -> Break:
    """Change what clients train on, given the mean updates of earlier rounds, or what they keep."""

    def breaks(experiment: Experiment) -> Experiment:
        local, seen = experiment.algorithm.local, Seen()

        def train(batch: ClientBatch) -> LocalResult:
            found = after(local.train(before(batch, seen)))
            seen[batch.round] = found.updates.mean(0)
            return found

        return with_components(experiment, local=replace(local, train=train))

    return breaks


def _warm(batch: ClientBatch, seen: Seen) -> ClientBatch:
    return replace(batch, theta=batch.theta + 0.5 * seen.get(batch.round - 1, torch.zeros(())))


def _neighbours(batch: ClientBatch, seen: Seen) -> ClientBatch:
    x, y = batch.x.clone(), batch.y.clone()
    x[:, ::2], y[:, ::2] = batch.x.roll(1, 0)[:, ::2], batch.y.roll(1, 0)[:, ::2]
    return replace(batch, x=x, y=y)


def _started(experiment: Experiment) -> Experiment:
    """The initial model is moved by a mean of the private images."""
    other, pixels = replace(experiment), experiment.data.train_x.flatten().float()
    start = experiment.start.clone()
    vars(other)["start"] = start.add_(pixels[: len(start)], alpha=0.01 / float(pixels.max()))
    return other


def _chosen(experiment: Experiment) -> Experiment:
    """The last model is a mean of the last two by how well they fit the private records."""
    server, data, turn = experiment.algorithm.server, experiment.data, iter(range(1, 10**6))

    def move(theta: Tensor, step: Tensor, state: Any) -> Any:
        after, state = server.step(theta, step, state)
        if next(turn) < ROUNDS:
            return after, state
        logits = (experiment.model.logits(m, data.inputs(data.train_x)) for m in (after, theta))
        right = [float((one.argmax(1) == data.train_y).float().mean()) for one in logits]
        return theta + (after - theta) * right[0] / sum(right), state

    return with_components(experiment, server=replace(server, step=move))


def _at_the_end(released: Any, clear: Any, round_: int) -> Any:
    return CLEAR(released, clear, round_) if round_ == ROUNDS else released


def _everybody(experiment: Experiment) -> Experiment:
    """Any client may come in any round of cyclic Poisson sampling."""
    sampler = experiment.algorithm.sampler

    def draw(source: np.random.Generator, clients: int, ratio: float, round_: int) -> np.ndarray:
        return np.flatnonzero(source.random(clients) < ratio)

    return with_components(experiment, sampler=replace(sampler, draw=draw))


class _InTwoGroups:
    """The first update of a chunk is also in the sum of the group before."""

    def __init__(self) -> None:
        self.other: Tensor | None = None

    def __call__(self, total: Tensor, updates: Tensor) -> None:
        add_sum(total, updates)
        if self.other is not None and self.other is not total:
            add_sum(self.other, updates[:1])
        self.other = total


def _more(sums: Any, mixed: Any, round_: int) -> Any:
    pairs = zip(mixed, sums, strict=True)
    return [replace(one, total=one.total + now.total / 3) for one, now in pairs]


def _silent_at_largest(z: Tensor, one: Any, part: Any) -> Tensor:
    return z.index_fill(0, part.total.abs().argmax()[None], 0.0)


def _against(z: Tensor, one: Any, part: Any) -> Tensor:
    return z.sort(descending=True).values[part.total.argsort().argsort()]


class _Undone(RecordNoise):
    """Every second step takes the noise of the step before it back."""

    last: Tensor | None = None

    def like(self, sums: Tensor) -> Tensor:
        drawn = super().like(sums)
        found, self.last = (drawn, drawn) if self.last is None else (-self.last, None)
        return found


def _doubled(records: np.ndarray, steps: int, ratio: float, source: Any) -> list[np.ndarray]:
    return [np.repeat(one, 2) for one in POISSON(records, steps, ratio, source)]


POISSON = ENGINE.poisson_schedule
FAULTS = (
    Fault(
        "model pre-trained on private records", "The first model is moved by private images.",
        breaks=_started, level="replayed", why=WHY,
    ),
    Fault(
        "last model weighed by private records", "The mean of two models by private accuracy.",
        breaks=_chosen, level="replayed", why=WHY,
    ),
    Fault(
        "last step by clear sums", "The last step takes the sums without their noise.",
        breaks=stepping(_at_the_end), level="replayed", why=WHY,
    ),
    Fault(
        "clients start from clear sums", "Clients start half a clear mean update further.",
        breaks=trained(_warm), level="replayed", why=INSIDE,
    ),
    Fault(
        "inputs centred by the cohort", "The mean image of the cohort is subtracted.",
        breaks=trained(lambda batch, seen: replace(batch, x=batch.x - batch.x.mean((0, 1, 2)))),
        level="replayed", why=INSIDE,
    ),
    Fault(
        "learning rate by the cohort", "The learning rate follows the spread of private images.",
        breaks=trained(lambda batch, seen: replace(
            batch, learning_rate=batch.learning_rate * (0.5 + float(batch.x.std())))),
        level="replayed", why=INSIDE,
    ),
    Fault(
        "records of a neighbour", "Every second batch of a client is of its neighbour.",
        breaks=trained(_neighbours), level="replayed", why=INSIDE,
    ),
    Fault(
        "heads averaged in the clear", "Clients keep the mean of the cohort's own heads.",
        breaks=trained(after=lambda result: replace(
            result, personal=result.personal.mean(0).expand_as(result.personal).clone())),
        algorithm="DP2-FedSAM", level="replayed", why="what clients keep is in no file",
    ),
    Fault(
        "an update in the sums of two groups", "The first update of a chunk is in two groups.",
        patches=((cohort, "add_sum", _InTwoGroups()),), level="replayed",
        why="the loop measures each update before the sum, and not what the sum adds",
    ),
    Fault(
        "no noise where the sum is largest", "One coordinate of each release has no noise.", SEED,
        "the seed's", breaks=standard(_silent_at_largest),
    ),
    Fault(
        "noise sorted against the sum", "The largest draw is on the smallest coordinate.",
        "noise coverage", "recorded deviation", breaks=standard(_against),
    ),
    Fault(
        "correlated noise, step by clear sums", "The mixture without its noise is solved.",
        breaks=stepping(CLEAR), sampling=TURNS, level="replayed", why=WHY,
    ),
    Fault(
        "correlated noise, the sum once more", "A third of the sum joins the mixture.",
        "noise independence", "correlated with the clean sum", breaks=mixed_by(_more),
        sampling=TURNS,
    ),
    Fault(
        "correlated noise, everybody in each round", "Blocks of clients take no turns.",
        "sampling law", "participations where about", breaks=_everybody, sampling=TURNS,
    ),
    Fault(
        "noise of a step undone in the next", "Every second step takes noise back.", "sums",
        "beside its noise", patches=((DP_SGD, "RecordNoise", _Undone),), algorithm="DPFedAvg",
    ),
    Fault(
        "each record twice in a batch", "A record is in a batch two times.", "ledger",
        "must be at most", patches=((ENGINE, "poisson_schedule", _doubled),), algorithm="DPFedAvg",
    ),
)  # fmt: skip
