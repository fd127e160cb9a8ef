"""Post-processing: the model as a function of the releases, without data.

The training loop moves its model by ``step``, and so does a verifier: ``models_after``
computes the models of all rounds from the releases that a run stored. Whatever happens
here costs no privacy, because it reads the plan, the algorithm, the seed of public
masks and the releases, nothing else. No model that a run claims is compared with
anything: there is one function, and its result is the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from privplan.plan import GroupPlan
from privplan.streams import Purpose, stream
from simulate.algorithm import Algorithm, extra_coordinates, groups_in_round, weights
from simulate.components import Received, State
from simulate.models.network import Model
from simulate.parallel import one_core


@dataclass(frozen=True)
class Sender:
    """The client who sent a release, for methods whose clients release one by one."""

    group: str  # name of the client's group
    client: int  # number of the client


@dataclass(frozen=True)
class RoundReleases:
    """What left the clients in one round."""

    round: int  # from 1
    vectors: Sequence[
        Tensor
    ]  # the released vectors [k], float32, in the order of the ledger
    # Who sent each of them; empty where a release is a sum.
    senders: Sequence[Sender] = ()


@dataclass(frozen=True)
class ModelState:
    """The global model and the state of aggregator and server after a round."""

    round: int  # 0 before the first round
    theta: Tensor  # global vector [d], from which the clients of the next round start
    server: State

    def released(self, algorithm: Algorithm) -> Tensor:
        """What is evaluated and published [d]: ``theta``, or an average of models."""
        return algorithm.server.released(self.theta, self.server)


def initial_vector(algorithm: Algorithm, model: Model, seed: int) -> Tensor:
    """The first global vector [d], on the CPU, drawn from the run's seed."""
    source = torch.Generator()
    source.manual_seed(int(stream(seed, Purpose.INITIAL).integers(2**63 - 1)))
    return algorithm.split.start(model, source)


def initial_state(algorithm: Algorithm, initial: Tensor) -> ModelState:
    """The state before the first round, from the first global vector [d]."""
    server = {**algorithm.server.start(initial), **algorithm.aggregator.start(initial)}
    return ModelState(0, initial, server)


def public_coordinates(
    algorithm: Algorithm, model: Model, seed: int, round_: int
) -> np.ndarray | None:
    """The released coordinates of the global vector [k], sorted; None for all.

    They follow from the model, the seed and the round, never from data.
    """
    dimension = algorithm.split.dimension(model)
    shared = algorithm.split.shared(model)
    coordinates = None if shared is None else shared.numpy()
    for index, transform in enumerate(algorithm.transforms):
        if transform.public_mask is None:
            continue
        generator = stream(seed, Purpose.SUPPORT, round_, index)
        drawn = transform.public_mask(generator, dimension).numpy()
        if coordinates is None:
            coordinates = drawn
        else:
            coordinates = np.intersect1d(coordinates, drawn)
    return coordinates


def received(algorithm: Algorithm, releases: RoundReleases) -> tuple[Received, ...]:
    """What the server receives: vectors with the groups and factors of the plan.

    Raises:
        InputError: when the number of releases or their senders are not those of the
        algorithm.
    """
    round_ = releases.round
    vectors = releases.vectors
    groups = groups_in_round(algorithm, round_)
    factors = weights(algorithm, round_)
    if algorithm.mechanism.release_client is not None:
        by_name = {group.name: group for group in groups}
        if len(releases.senders) != len(vectors):
            _refuse(round_, f"{len(releases.senders)} senders", len(vectors))
        return tuple(
            Received(
                round_,
                vector,
                (by_name[sender.group],),
                factors[sender.group],
                sender.client,
            )
            for vector, sender in zip(vectors, releases.senders, strict=True)
        )
    of_release: list[tuple[GroupPlan, ...]] = [(group,) for group in groups]
    if algorithm.mechanism.joint:
        of_release = [groups]
    if len(of_release) != len(vectors):
        _refuse(round_, f"{len(of_release)}", len(vectors))
    return tuple(
        Received(round_, vector, summed, factors[summed[0].name])
        for vector, summed in zip(vectors, of_release, strict=True)
    )


def step(
    algorithm: Algorithm,
    before: ModelState,
    releases: RoundReleases,
    coordinates: Tensor | None,
) -> ModelState:
    """The model and the state after a round.

    Args:
        algorithm: combines the releases and moves the model.
        before: the state before the round.
        releases: what left the clients in the round.
        coordinates: the released coordinates of the global vector [k]; None for all.
    """
    sent = received(algorithm, releases)
    combined = algorithm.aggregator.combine(sent, before.theta, before.server)
    if coordinates is None:
        like = before.theta
    else:
        like = before.theta[: len(coordinates)]
    move, after = _checked("aggregator", combined, like)
    # A rule without state may return none; the server's stays.
    server = {**before.server, **after}
    if coordinates is not None:
        move = torch.zeros_like(before.theta).index_copy(0, coordinates, move)
    moved = algorithm.server.step(before.theta, move, server)
    theta, after = _checked("server", moved, before.theta)
    return ModelState(releases.round, theta, {**server, **after})


def _checked(field: str, result: Any, like: Tensor) -> tuple[Tensor, State]:
    """A vector like another and a state, as a user's rule may not return them."""
    place = f"algorithm.{field}"
    if isinstance(result, tuple) and len(result) == 2:
        vector, state = result
        is_state = isinstance(state, Mapping)
        values = [vector, *state.values()] if is_state else []
        if is_state and all(isinstance(value, Tensor) for value in values):
            if vector.shape == like.shape and vector.dtype == like.dtype:
                return vector, state
            rule = f"must return a vector of shape {tuple(like.shape)}, {like.dtype}"
            shape = tuple(vector.shape)
            raise InputError.one(place, rule, f"{shape}, {vector.dtype}")
    rule = "must return a vector and the state, which has tensors by name"
    raise InputError.one(place, rule, _kind_of(result))


def _kind_of(result: Any) -> str:
    """What a rule returned, and the first part of it that is no tensor."""
    if not (isinstance(result, tuple) and len(result) == 2):
        return type(result).__name__
    vector, state = result
    if not isinstance(vector, Tensor):
        return f"{type(vector).__name__} for the vector"
    if not isinstance(state, Mapping):
        return f"{type(state).__name__} for the state"
    for name, value in state.items():
        if not isinstance(value, Tensor):
            return f"{type(value).__name__} for {name!r} of the state"
    return type(result).__name__


def models_after(
    algorithm: Algorithm,
    model: Model,
    seed: int,
    initial: Tensor,
    rounds: Iterable[RoundReleases],
) -> Iterator[ModelState]:
    """The model before the first round and after each, on the CPU, without data.

    Args:
        algorithm: of the registry, built for the plan that the run executed.
        model: the architecture, of which only lengths are read.
        seed: the run's seed, from which public masks are drawn.
        initial: the first global vector [d].
        rounds: the releases of each round, in order from round 1.

    Raises:
        InputError: when a round is not the next one, or its releases do not have the
        number and
            the length that the algorithm gives them.
    """
    state = initial_state(algorithm, initial)
    yield state
    dimension = algorithm.split.dimension(model)
    extra = extra_coordinates(algorithm)
    for releases in rounds:
        if releases.round != state.round + 1:
            _refuse(state.round + 1, "the next round", releases.round)
        public = public_coordinates(algorithm, model, seed, releases.round)
        coordinates = None if public is None else torch.from_numpy(public)
        released_coordinates = dimension if public is None else len(public)
        length = released_coordinates + extra
        if algorithm.mechanism.release_client is None:
            _require_length(releases, length)
        try:
            with one_core(), torch.no_grad():
                state = step(algorithm, state, releases, coordinates)
        except (
            IndexError,
            RuntimeError,
            ValueError,
        ):  # of clients' vectors of other lengths
            _refuse(
                releases.round, "vectors that the server takes", len(releases.vectors)
            )
        yield state


def _require_length(releases: RoundReleases, length: int) -> None:
    """Raise where a release has other coordinates than those of the algorithm."""
    for vector in releases.vectors:
        if vector.shape != (length,):
            _refuse(releases.round, f"{length} coordinates each", len(vector))


def _refuse(round_: int, expected: str, number: int) -> NoReturn:
    rule = f"must be {expected} in round {round_}, by the plan and the algorithm"
    raise InputError.one("releases", rule, number)
