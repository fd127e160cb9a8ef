"""The model of a run folder, computed from its stored releases, without data."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from privplan.evidence.clients import read_clients
from privplan.ledger import LedgerText, read_ledger
from privplan.plan import Plan
from privplan.record import PLAN, ReleaseRecord, RunRecord
from privplan.releases import StoredReleases, stored_releases
from simulate.algorithm import Algorithm
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters
from simulate.models.network import Model
from simulate.models.registry import model as registered
from simulate.models.start import started
from simulate.postprocessing import (
    ModelState,
    RoundReleases,
    Sender,
    initial_vector,
    models_after,
)

INITIAL_TOLERANCE = 1e-6
"""Largest distance of a stored initial vector from the recomputed one, relative to the norm of the
recomputed one. Other versions of PyTorch, and other kinds of processor, round
differently, by about 1e-7."""


@dataclass(frozen=True)
class FinalVector:
    """The vector that a run publishes, computed from its releases.

    Attributes:
        vector: the released global vector [d], float32, on the CPU.
        initial: ``recomputed`` where the first vector was drawn again from the seed, as
            for
            registered models and for own modules that are given; ``declared`` where it
            is the one that the run stored, so that nothing is known of how it was made.
        algorithm: the algorithm that made it, with the executed plan.
        state: the global model and the server's state after the last round.
    """

    vector: Tensor
    initial: Literal["recomputed", "declared"]
    algorithm: Algorithm
    state: ModelState


def final_vector(folder: Path, model: Model | None = None) -> FinalVector:
    """The final vector of a finished run, from plan, record, ledger and releases.

    It is the server's released vector after the last round: the global model, or the
    average of models where the plan asks for one. No data are read, and nothing that
    the run claims of its models: the result is a function of the releases, the first
    vector and the plan. The first vector of a registered model is drawn again from the
    seed and must be the stored one but for rounding. That of an own module is drawn
    again where the module is given, and else is the stored one, which
    ``FinalVector.initial`` then calls ``declared``.

    Args:
        folder: the run folder.
        model: the built own module of the run; not needed for a registered model.

    Raises:
        InputError: when the run is not finished, its algorithm is not registered here,
        its
            releases are not stored (they take more than 256 MiB, or an earlier version
            wrote them), or the stored vectors are not those that evidence and ledger
            name.
    """
    plan = Plan.load(folder / PLAN)
    record = RunRecord.load(folder)
    if record.status != "complete":
        raise InputError.one("record.status", "must be complete", record.status)
    ledger = read_ledger(folder, plan.digest)
    if ledger.fault is not None:
        raise InputError.one("ledger", "must be whole", ledger.fault)
    stored = stored_releases(folder, plan, ledger)
    algorithm = algorithm_of(plan, record)
    built = model_of(record, plan, folder, stored.header.parameters, model)
    initial, origin = first_vector(algorithm, built, record, stored)
    rounds = round_releases(stored, ledger, algorithm, members_of(folder, plan))
    states = models_after(algorithm, built, record.simulation_seed, initial, rounds)
    [final_state] = deque(states, maxlen=1)
    return FinalVector(final_state.released(algorithm), origin, algorithm, final_state)


def algorithm_of(plan: Plan, record: RunRecord) -> Algorithm:
    """The algorithm of a run, built from the registry for the plan that it executed.

    Raises:
        InputError: for a name that no run has, and settings that the algorithm has not.
    """
    entry = ALGORITHMS.get(record.algorithm)
    # Users may write a name in any case; a run has it as it is registered.
    if entry.name != record.algorithm:
        rule = f"must be written {entry.name}"
        raise InputError.one("record.algorithm", rule, record.algorithm)
    return entry.build(plan, settings_of(record))


def settings_of(record: RunRecord) -> Hyperparameters:
    """The hyperparameters of a run, completed by the defaults of its algorithm."""
    numbers = record.configuration.get("numbers", {})
    aggregation = record.configuration.get("aggregation", "paper")
    sound = isinstance(numbers, dict) and all(
        isinstance(value, int | float) for value in numbers.values()
    )
    if not sound or aggregation not in ("paper", "mean"):
        rule = "must be paper or mean, beside numbers by name"
        raise InputError.one("record.configuration.aggregation", rule, str(aggregation))
    chosen = Hyperparameters(aggregation, numbers)
    return ALGORITHMS.get(record.algorithm).complete(chosen)


class UnknownModule:
    """An own module that was not given, of which only the length is known."""

    name = "own module"

    def __init__(self, parameters: int) -> None:
        self.parameters = parameters

    @property
    def head(self) -> slice:
        """Raises: only the module itself tells its last layer."""
        raise InputError.one(
            "model", "must be given for this algorithm, with --model", "none"
        )


def model_of(
    record: RunRecord, plan: Plan, folder: Path, parameters: int, module: Model | None
) -> Model:
    """The model of a run: its own module, a registered one, or only a length."""
    initial = plan.spec.model.initial
    if module is not None:
        return started(module, initial, folder)
    if record.configuration.get("own_model") is not None:
        return UnknownModule(parameters)  # type: ignore[return-value]
    return started(registered(record.model), initial, folder)


def first_vector(
    algorithm: Algorithm, model: Model, record: RunRecord, stored: StoredReleases
) -> tuple[Tensor, Literal["recomputed", "declared"]]:
    """The first global vector [d]: drawn again from the seed, or as stored."""
    declared = torch.from_numpy(stored.initial().copy())
    if isinstance(model, UnknownModule):
        return declared, "declared"
    drawn = initial_vector(algorithm, model, record.simulation_seed)
    same = drawn.shape == declared.shape
    limit = INITIAL_TOLERANCE * float(drawn.norm())
    if not same or not bool((declared - drawn).norm() <= limit):
        rule = "must be the initial model that the run's seed draws"
        raise InputError.one("vectors.initial", rule, "another vector")
    return drawn, "recomputed"


def members_of(folder: Path, plan: Plan) -> list[np.ndarray]:
    """Numbers of the clients of each group, by place in it, as the run assigned them.

    They name the sender of a release only where each client releases for itself.
    """
    stored = read_clients(folder)
    if stored is None:
        return []
    return [
        np.flatnonzero(stored["group"] == index) for index in range(len(plan.groups))
    ]


def round_releases(
    stored: StoredReleases,
    ledger: LedgerText,
    algorithm: Algorithm,
    members: list[np.ndarray],
) -> Iterator[RoundReleases]:
    """The stored releases of each round, with the senders of single clients' ones."""
    by_round: dict[int, list[ReleaseRecord]] = {}
    for line in ledger.records:
        by_round.setdefault(line.round, []).append(line)
    places = {group.name: index for index, group in enumerate(algorithm.plan.groups)}
    for round_, vectors in stored.releases():
        senders: list[Sender] = []
        if algorithm.mechanism.release_client is not None:
            lines = by_round.get(round_, [])
            senders = [_sender(line, places, members) for line in lines]
        copies = [torch.from_numpy(vector.copy()) for vector in vectors]
        yield RoundReleases(round_, copies, senders)


def _sender(
    line: ReleaseRecord, places: dict[str, int], members: list[np.ndarray]
) -> Sender:
    """Who sent the release of a ledger line of one client."""
    share = line.shares[0]
    named = share.participants or ()
    place = places.get(share.group)
    if len(line.shares) != 1 or len(named) != 1 or place is None:
        rule = f"must name the one client of each release in round {line.round}"
        raise InputError.one("ledger", rule, share.group)
    position = named[0]
    if place < len(members) and position < len(members[place]):
        return Sender(share.group, int(members[place][position]))
    return Sender(share.group, position)
