"""Changes of an experiment: other participants, records, updates, noise or releases.

Each function returns an experiment whose components call those of the given one, so that a round
of the engine executes the algorithm's own code on neighbouring data sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.seeded_streams import fingerprint
from simulate.components import (
    ClientBatch,
    ClientUpdate,
    GroupSum,
    LocalResult,
    Noise,
    Released,
    State,
)
from simulate.engine.experiment import Experiment
from simulate.engine.seeds import Purpose, stream

Positions = Callable[[np.ndarray], np.ndarray]


class ConstantNoise(np.random.Generator):
    """A generator whose normal and Laplace draws are constant; other draws are the stream's.

    Args:
        source: the stream.
        value: the constant, in standard deviations (scales for Laplace draws).
        only: index of the one draw that is not 0; None for all.
    """

    def __init__(self, source: np.random.Generator, value: float, only: int | None = None) -> None:
        super().__init__(source.bit_generator)
        self._value, self._only, self._drawn = value, only, 0

    def _constant(self, size: Any) -> Any:
        value = self._value if self._only in (None, self._drawn) else 0.0
        self._drawn += 1
        return value if size is None else np.full(size, value)

    def standard_normal(self, size: Any = None, *_: Any, **__: Any) -> Any:
        """The constant."""
        return self._constant(size)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """The location plus ``scale`` times the constant."""
        return loc + scale * self._constant(size)

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """As ``normal``."""
        return self.normal(loc, scale, size)


def _with(experiment: Experiment, **components: Any) -> Experiment:
    """The experiment with other components in its algorithm."""
    return replace(experiment, algorithm=replace(experiment.algorithm, **components))


def with_noise(experiment: Experiment, value: float, only: int | None = None) -> Experiment:
    """All noise is ``value`` standard deviations on each coordinate; 0 is no noise.

    Args:
        experiment: the run.
        value: the noise.
        only: index of the one draw of each stream that has noise, such as a step; None for all.
    """
    local, mechanism = experiment.algorithm.local, experiment.algorithm.mechanism

    def constant(noise: Noise) -> Noise:
        return lambda index: ConstantNoise(noise(index), value, only)

    def train(batch: ClientBatch) -> LocalResult:
        return local.train(replace(batch, noise=constant(batch.noise)))

    def release(
        round_: int, sums: Sequence[GroupSum], weights: Mapping[str, float], noise: Noise
    ) -> tuple[Released, ...]:
        return mechanism.release(round_, sums, weights, constant(noise))

    inner = mechanism.stateful

    def stateful(
        round_: int,
        sums: Sequence[GroupSum],
        weights: Mapping[str, float],
        noise: Noise,
        state: State,
    ) -> tuple[tuple[Released, ...], State]:
        if inner is None:
            return release(round_, sums, weights, noise), state
        return inner(round_, sums, weights, constant(noise), state)

    silenced = replace(mechanism, release=release, stateful=inner and stateful)
    return _with(experiment, local=replace(local, train=train), mechanism=silenced)


def with_participants(
    experiment: Experiment, round_: int, group: int, change: Positions
) -> Experiment:
    """The group's cohort of a round is changed, by positions within the group."""
    sampler = experiment.algorithm.sampler
    own = fingerprint(stream(experiment.seed, Purpose.SAMPLING, round_, group))

    def draw(generator: np.random.Generator, clients: int, ratio: float, number: int) -> np.ndarray:
        of_group = number == round_ and fingerprint(generator) == own
        drawn = sampler.draw(generator, clients, ratio, number)
        return change(drawn) if of_group else drawn

    return _with(experiment, sampler=replace(sampler, draw=draw))


def with_records(experiment: Experiment, client: int) -> Experiment:
    """All records of a client are replaced: inverted pixels or other tokens, and other labels."""
    data, rows = experiment.data, torch.from_numpy(experiment.partition.records(client))
    x, y = data.train_x.clone(), data.train_y.clone()
    x[rows] = x.max() - x[rows]
    y[rows] = (y[rows] + 1) % len(data.classes)
    return replace(experiment, data=replace(data, train_x=x, train_y=y))


def with_updates(
    experiment: Experiment, updates: Mapping[int, Callable[[int], Tensor]]
) -> Experiment:
    """Clients send given updates instead of those of their training.

    Args:
        experiment: the run.
        updates: number of a client to the function from the length of an update to the update.
    """
    local = experiment.algorithm.local

    def train(batch: ClientBatch) -> LocalResult:
        result = local.train(batch)
        sent = result.updates.clone()
        for row, client in enumerate(batch.clients):
            if int(client) in updates:
                sent[row] = updates[int(client)](sent.shape[1]).to(sent)
        return replace(result, updates=sent)

    return _with(experiment, local=replace(local, train=train))


def with_batches(
    experiment: Experiment, change: Callable[[ClientBatch], ClientBatch]
) -> Experiment:
    """Mini-batches are changed before local training."""
    local = experiment.algorithm.local
    changed = replace(local, train=lambda batch: local.train(change(batch)))
    return _with(experiment, local=changed)


def recording(experiment: Experiment, store: list[Released]) -> Experiment:
    """The mechanism's releases are appended to ``store``."""

    def append(index: int, release: Released) -> Released:
        store.append(release)
        return release

    return _observed(experiment, append)


def with_releases(experiment: Experiment, releases: Sequence[Released]) -> Experiment:
    """The mechanism is executed, and the given releases are used instead of its own."""
    return _observed(
        experiment, lambda index, own: releases[index] if index < len(releases) else own
    )


def _observed(experiment: Experiment, observe: Callable[[int, Released], Released]) -> Experiment:
    """Each release passes through a function of its index in the round."""
    mechanism, count = experiment.algorithm.mechanism, 0
    inner_client, inner_state = mechanism.release_client, mechanism.stateful

    def seen(release: Released) -> Released:
        nonlocal count
        count += 1
        return observe(count - 1, release)

    def release(
        round_: int, sums: Sequence[GroupSum], weights: Mapping[str, float], noise: Noise
    ) -> tuple[Released, ...]:
        return tuple(seen(one) for one in mechanism.release(round_, sums, weights, noise))

    def release_client(round_: int, update: ClientUpdate, weight: float) -> Released:
        if inner_client is None:
            raise TypeError("the mechanism releases sums only")
        return seen(inner_client(round_, update, weight))

    def stateful(
        round_: int,
        sums: Sequence[GroupSum],
        weights: Mapping[str, float],
        noise: Noise,
        state: State,
    ) -> tuple[tuple[Released, ...], State]:
        if inner_state is None:
            return release(round_, sums, weights, noise), state
        releases, after = inner_state(round_, sums, weights, noise, state)
        return tuple(seen(one) for one in releases), after

    observed = replace(
        mechanism,
        release=release,
        release_client=inner_client and release_client,
        stateful=inner_state and stateful,
    )
    return _with(experiment, mechanism=observed)
