"""Observations that attacks are run on: one round of a plan.

Each client holds one record and takes one local step, as in the evaluations of the
literature: the setting in which most is released about a record. The executed plan's
clipping, noise and learning rate stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from privplan.errors import InputError
from privplan.plan import GroupPlan, Plan
from privplan.streams import Purpose, stream
from simulate.algorithm import Algorithm
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters, algorithm
from simulate.attacks.guarantees import with_noise
from simulate.attacks.view import (
    Observation,
    Truth,
    recorded,
    require_images,
    truth_of,
    view_of,
    with_start,
)
from simulate.components import Released
from simulate.data.dataset import Dataset
from simulate.data.partition.clients import Partition
from simulate.engine.experiment import Experiment
from simulate.engine.loop import initial_state
from simulate.models.network import Model
from simulate.models.registry import model as registered
from simulate.parallel import one_core
from simulate.runs.ledger_writer import MemoryLedger

# What makes a client hold one record and take one step with it.
_ONE_STEP = {"steps": 1, "batch_size": 1, "epochs": None, "augmentation": None}
_ONE_RECORD = {"records": 1, "record_sampling_ratio": 1.0, "steps": 1}


@dataclass(frozen=True)
class PlanRound:
    """Releases of the first round of a plan, with one record per client.

    Attributes:
        plan: the solved plan.
        algorithm: its name.
        data: that has the records.
        images: number of attacked records.
        clients: per release; the records are divided over ``images // clients``
            releases.
        seed: draws the records, the initial model and the noise.
        hyperparameters: of the algorithm.
        device: of the computations.
        noise_factor: on the executed plan's noise multipliers, for sweeps; 1 as
            planned.
    """

    plan: Plan
    algorithm: str
    data: Dataset
    images: int = 50
    clients: int = 1
    seed: int = 0
    hyperparameters: Hyperparameters = field(default_factory=Hyperparameters)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    noise_factor: float = 1.0

    def __post_init__(self) -> None:
        require_images(self.data)
        records = len(self.data.train_y)
        clients = min(self.images, self.target.clients)
        if not 1 <= self.images <= records:
            raise InputError.one("images", f"must be in [1, {records}]", self.images)
        if not 1 <= self.clients <= clients:
            name = self.target.name
            rule = f"must be in [1, {clients}], the images and the clients of {name}"
            raise InputError.one("clients", rule, self.clients)

    @property
    def target(self) -> GroupPlan:
        """The attacked group: that with the largest epsilon, the least protected."""
        return max(self.plan.groups, key=lambda group: group.epsilon)

    def __len__(self) -> int:
        """Number of releases."""
        return self.images // self.clients

    @property
    def identity(self) -> dict[str, Any]:
        """All that the observations depend on, as plain data."""
        chosen = self.hyperparameters
        return {
            "plan": self.plan.digest,
            "algorithm": self.algorithm,
            "data": self.data.digest,
            "images": self.images,
            "clients": self.clients,
            "seed": self.seed,
            "choices": [chosen.aggregation, dict(chosen.values)],
            "noise": self.noise_factor,
        }

    @property
    def heads(self) -> dict[str, Any]:
        """What a row of the report says of the releases."""
        return {
            "clients": self.clients,
            "records": self.clients,
            "round": 1,
            "groups": [self.target.name],
        }

    @property
    def title(self) -> str:
        """Data, model and setting, in words."""
        model_name = self.model.name
        return f"{self.data.name}, {model_name}, one record per client"

    @property
    def model(self) -> Model:
        """The network."""
        return self.experiment.model

    @cached_property
    def rows(self) -> np.ndarray:
        """Training records that are attacked [releases, clients]."""
        source = stream(self.seed, Purpose.OWN_TEST, 17)
        drawn = source.permutation(len(self.data.train_y))
        return drawn[: len(self) * self.clients].reshape(len(self), self.clients)

    @cached_property
    def _planned(self) -> Algorithm:
        """The algorithm with the plan it executes, on clients with all records."""
        per_client = max(1, len(self.data.train_y) // self.plan.spec.population)
        records = {group.name: per_client for group in self.plan.groups}
        return algorithm(self.algorithm, self.plan, self.hyperparameters, records)

    @property
    def executed(self) -> Plan:
        """The plan that the algorithm executes, noise as planned."""
        return self._planned.plan

    @cached_property
    def experiment(self) -> Experiment:
        """The algorithm on clients of one record; the cohort is set per release."""
        planned = self._planned.plan
        spec = planned.spec
        local = spec.local.model_copy(update=_ONE_STEP)
        of_records = {}
        if spec.unit == "record":
            of_records = _ONE_RECORD
        groups = tuple(
            with_noise(group, self.noise_factor).model_copy(update=of_records)
            for group in planned.groups
        )
        changed = {"spec": spec.model_copy(update={"local": local}), "groups": groups}
        entry = ALGORITHMS.get(self.algorithm)
        built = entry.build(
            planned.model_copy(update=changed), entry.complete(self.hyperparameters)
        )

        def draw(
            generator: np.random.Generator, clients: int, ratio: float, round_: int
        ) -> np.ndarray:
            """The first clients of the target group and nobody else."""
            sequence = generator.bit_generator.seed_seq
            # The last number of the key names the group.
            index = sequence.spawn_key[-1]  # type: ignore[attr-defined]
            return np.arange(self.clients if index == self._target_index else 0)

        return Experiment(
            replace(built, sampler=replace(built.sampler, draw=draw)),
            registered(built.plan.spec.model.name),
            self.data,
            self._partition(self.rows[0]),
            self.seed,
            self.device,
        )

    def __getitem__(self, index: int) -> Observation:
        """Observation ``index``, with its own noise; the initial model is the same."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        base = self.experiment
        seed = int(stream(self.seed, Purpose.CANARY, 17, index).integers(2**62))
        fixed = replace(base, partition=self._partition(self.rows[index]), seed=seed)
        fixed = with_start(fixed, base.start)
        with one_core():
            progress = initial_state(fixed)
            releases = recorded(
                fixed, progress, MemoryLedger(fixed.algorithm.plan.digest)
            )
        released = next(filter(self._is_observed, releases))
        truth = self.truth(index)
        count = len(truth.labels)
        view = view_of(fixed, progress, released, clients=count, records=count, steps=1)
        return Observation(view, truth)

    def _is_observed(self, released: Released) -> bool:
        """Whether a release is of the attacked group, and of an attacked client."""
        if self.target.name not in [group.name for group in released.groups]:
            return False
        members = self._members[self._target_index][: self.clients]
        return released.client is None or released.client in members

    def truth(self, index: int) -> Truth:
        """The records of observation ``index``, without computing the release."""
        rows = self.rows[index]
        # Where each client has a release of its own, the first one is observed.
        if self.experiment.algorithm.mechanism.release_client is not None:
            rows = rows[:1]
        return truth_of(self.data, rows)

    @property
    def _target_index(self) -> int:
        return [group.name for group in self.plan.groups].index(self.target.name)

    @cached_property
    def _members(self) -> tuple[np.ndarray, ...]:
        """The clients of each group, group after group."""
        sizes = np.cumsum([0, *(group.clients for group in self.plan.groups)])
        return tuple(np.arange(start, end) for start, end in pairwise(sizes))

    def _partition(self, chosen: np.ndarray) -> Partition:
        """One record per client; the first ones of the target group hold the chosen."""
        population = sum(group.clients for group in self.plan.groups)
        order = np.resize(np.arange(len(self.data.train_y)), population)
        start = int(self._members[self._target_index][0])
        order[start : start + len(chosen)] = chosen
        return Partition(order, np.arange(population + 1), self._members)
