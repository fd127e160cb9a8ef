"""Faults that carry what clients hold or send around noisy sums, or into noise."""

import importlib
from dataclasses import replace
from itertools import count

import numpy as np
import torch

from simulate.engine import cohort
from simulate.mechanisms import RecordNoise
from simulate.norms import add_sum
from tests.sabotage.bench import ROUNDS
from tests.sabotage.fault import Fault, with_components
from tests.sabotage.kinds.distribution import standard
from tests.sabotage.kinds.rounds import CLEAR, TURNS, WHY, mixed_by, stepping
from tests.sabotage.own_noise import DP_SGD

ENGINE = importlib.import_module("simulate.engine.batches")
POISSON = ENGINE.poisson_schedule


def trained(before, after=lambda result: result):
    """Change what clients train on, by earlier mean updates, or what they keep."""

    def breaks(experiment):
        local = experiment.algorithm.local
        seen = {}

        def train(batch):
            result = after(local.train(replace(batch, **before(batch, seen))))
            seen[batch.round] = result.updates.mean(0)
            return result

        return with_components(experiment, local=replace(local, train=train))

    return breaks


def _warm(batch, seen):
    return {"theta": batch.theta + 0.5 * seen.get(batch.round - 1, torch.zeros(()))}


def _neighbours(batch, seen):
    x = batch.x.clone()
    y = batch.y.clone()
    x[:, ::2] = batch.x.roll(1, 0)[:, ::2]
    y[:, ::2] = batch.y.roll(1, 0)[:, ::2]
    return {"x": x, "y": y}


def _one_head(result):
    return replace(
        result, personal=result.personal.mean(0).repeat(len(result.personal), 1)
    )


def _started(experiment):
    pixels = experiment.data.train_x.flatten().float()
    start = experiment.start.clone()
    start.add_(pixels[: len(start)], alpha=0.01 / float(pixels.max()))
    changed = replace(experiment)
    vars(changed)["start"] = start
    return changed


def _accuracy(model, theta, data):
    """Accuracy on the records of the clients."""
    predicted = model.logits(theta, data.inputs(data.train_x)).argmax(1)
    return float((predicted == data.train_y).float().mean())


def _weighed(experiment):
    server = experiment.algorithm.server
    data = experiment.data
    turn = count(1)

    def move(theta, step, state):
        after, state = server.step(theta, step, state)
        if next(turn) < ROUNDS:
            return after, state
        accuracy = _accuracy(experiment.model, after, data)
        share = accuracy / (accuracy + _accuracy(experiment.model, theta, data))
        return theta + (after - theta) * share, state

    return with_components(experiment, server=replace(server, step=move))


def _everybody(experiment):
    def draw(source, clients, ratio, round_):
        return np.flatnonzero(source.random(clients) < ratio)

    return with_components(
        experiment, sampler=replace(experiment.algorithm.sampler, draw=draw)
    )


def _sum_again(sums, mixed, round_):
    pairs = zip(mixed, sums, strict=True)
    return [
        replace(mixture, total=mixture.total + current.total / 3)
        for mixture, current in pairs
    ]


class _InTwoGroups:
    last_total = None

    def __call__(self, total, updates):
        add_sum(total, updates)
        if self.last_total is not None and self.last_total is not total:
            add_sum(self.last_total, updates[:1])
        self.last_total = total


class _Undone(RecordNoise):
    last = None

    def like(self, sums):
        drawn = super().like(sums)
        if self.last is None:
            self.last = drawn
            return drawn
        noise = -self.last
        self.last = None
        return noise


def _doubled(*schedule):
    return [np.repeat(batch, 2) for batch in POISSON(*schedule)]


REPLAYED = (
    (
        "model pre-trained on private records",
        "The first model is moved by images.",
        _started,
        {},
    ),
    (
        "last model weighed by private records",
        "The mean of two by private accuracy.",
        _weighed,
        {},
    ),
    (
        "last step by clear sums",
        "The last step takes the sums without their noise.",
        stepping(
            lambda released, clear, round_: (
                CLEAR(released, clear, round_) if round_ == ROUNDS else released
            )
        ),
        {},
    ),
    (
        "clients start from clear sums",
        "Clients start half a clear mean update further.",
        trained(_warm),
        {},
    ),
    (
        "inputs centred by the cohort",
        "The mean image of the cohort is subtracted.",
        trained(lambda batch, seen: {"x": batch.x - batch.x.mean((0, 1, 2))}),
        {},
    ),
    (
        "learning rate by the cohort",
        "The learning rate follows the spread of private images.",
        trained(
            lambda batch, seen: {
                "learning_rate": batch.learning_rate * (batch.x.std() + 0.5)
            }
        ),
        {},
    ),
    (
        "records of a neighbour",
        "Every second batch of a client is of its neighbour.",
        trained(_neighbours),
        {},
    ),
    (
        "heads averaged in the clear",
        "Clients keep the mean of the cohort's own heads.",
        trained(lambda batch, seen: {}, _one_head),
        {"algorithm": "DP2-FedSAM"},
    ),
    (
        "an update in the sums of two groups",
        "The first update of a chunk is in two groups.",
        lambda experiment: experiment,
        {"patches": ((cohort, "add_sum", _InTwoGroups()),)},
    ),
    (
        "correlated noise, step by clear sums",
        "The mixture without its noise is solved.",
        stepping(CLEAR),
        {"sampling": TURNS},
    ),
)
FAULTS = (
    *(
        Fault(name, what=what, breaks=breaks, level="replayed", why=WHY, **settings)
        for name, what, breaks, settings in REPLAYED
    ),
    Fault(
        "no noise where the sum is largest",
        "One coordinate of each release has no noise.",
        check="noise regenerated",
        words="the seed's",
        breaks=standard(
            lambda z, released, part: z.index_fill(
                0, part.total.abs().argmax()[None], 0.0
            )
        ),
    ),
    Fault(
        "noise sorted against the sum",
        "The largest draw is on the smallest coordinate.",
        check="noise coverage",
        words="recorded deviation",
        breaks=standard(
            lambda z, released, part: z.sort(descending=True).values[
                part.total.argsort().argsort()
            ]
        ),
    ),
    Fault(
        "correlated noise, the sum once more",
        "A third of the sum joins the mixture.",
        check="noise independence",
        words="correlated with the clean",
        breaks=mixed_by(_sum_again),
        sampling=TURNS,
    ),
    Fault(
        "correlated noise, everybody in each round",
        "Blocks of clients take no turns.",
        check="sampling law",
        words="participations where about",
        breaks=_everybody,
        sampling=TURNS,
    ),
    Fault(
        "noise of a step undone in the next",
        "Every second step takes noise back.",
        check="sums",
        words="beside its noise",
        patches=((DP_SGD, "RecordNoise", _Undone),),
        algorithm="DPFedAvg",
    ),
    Fault(
        "each record twice in a batch",
        "A record is in a batch two times.",
        check="ledger",
        words="must be at most",
        patches=((ENGINE, "poisson_schedule", _doubled),),
        algorithm="DPFedAvg",
    ),
)
