"""Observations that attacks are run on: one round of a plan, or a round of a run replayed.

Under a plan each client holds one record and takes one local step, as in the evaluations of the
literature: the setting in which most is released about a record. The executed plan's clipping,
noise and learning rate stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from privplan.errors import InputError
from privplan.ledger import read_ledger
from privplan.plan import GroupPlan, Plan
from privplan.record import LEDGER, PLAN, RunRecord
from privplan.streams import Purpose, stream
from simulate.algorithm import Algorithm
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters, algorithm
from simulate.attacks.measures import with_noise
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
from simulate.data.partition.schemes import partition, scheme
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress, initial_state, one_core, run_round
from simulate.engine.round import ABSENT, participants, poisson_schedule, schedule
from simulate.models.registry import model
from simulate.runs.ledger_writer import MemoryLedger


@dataclass(frozen=True)
class PlanRound:
    """Releases of the first round of a plan, with one record per client."""

    plan: Plan  # the solved plan
    algorithm: str  # name of the algorithm
    data: Dataset  # the data set
    images: int = 50  # number of attacked records
    # clients per release; the records are divided over ``images // clients`` releases
    clients: int = 1
    seed: int = 0  # draws the records, the initial model and the noise
    hyperparameters: Hyperparameters = field(default_factory=Hyperparameters)  # of the algorithm
    # device of the computations
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    # factor on the executed plan's noise multipliers, for sweeps; 1 as planned
    noise_factor: float = 1.0

    def __post_init__(self) -> None:
        require_images(self.data)
        records, clients = len(self.data.train_y), min(self.images, self.target.clients)
        if not 1 <= self.images <= records:
            raise InputError.one("images", f"must be in [1, {records}]", self.images)
        if not 1 <= self.clients <= clients:
            rule = f"must be in [1, {clients}], the images and the clients of {self.target.name}"
            raise InputError.one("clients", rule, self.clients)

    @property
    def target(self) -> GroupPlan:
        """The attacked group: the one with the largest epsilon, which is protected least."""
        return max(self.plan.groups, key=lambda group: group.epsilon)

    def __len__(self) -> int:
        """Number of releases."""
        return self.images // self.clients

    @cached_property
    def rows(self) -> np.ndarray:
        """Training records that are attacked [releases, clients]."""
        drawn = stream(self.seed, Purpose.OWN_TEST, 17).permutation(len(self.data.train_y))
        return drawn[: len(self) * self.clients].reshape(len(self), self.clients)

    @cached_property
    def _planned(self) -> Algorithm:
        """The algorithm with the plan that it executes, on clients with all their records."""
        population = self.plan.spec.population
        owned = max(1, len(self.data.train_y) // population)
        records = {group.name: owned for group in self.plan.groups}
        return algorithm(self.algorithm, self.plan, self.hyperparameters, records)

    @property
    def executed(self) -> Plan:
        """The plan that the algorithm executes, noise as planned."""
        return self._planned.plan

    @cached_property
    def experiment(self) -> Experiment:
        """The algorithm on clients with one record each; the cohort is set per release."""
        planned = self._planned.plan
        spec, groups = planned.spec, []
        local = spec.local.model_copy(
            update={"steps": 1, "batch_size": 1, "epochs": None, "augmentation": None}
        )
        records = {"records": 1, "record_sampling_ratio": 1.0, "steps": 1}
        for group in planned.groups:
            update = records if spec.unit == "record" else {}
            groups.append(with_noise(group, self.noise_factor).model_copy(update=update))
        changed = {"spec": spec.model_copy(update={"local": local}), "groups": tuple(groups)}
        entry = ALGORITHMS.get(self.algorithm)
        made = entry.build(planned.model_copy(update=changed), entry.complete(self.hyperparameters))

        def draw(
            generator: np.random.Generator, clients: int, ratio: float, round_: int
        ) -> np.ndarray:
            """The first clients of the target group and nobody else."""
            sequence = generator.bit_generator.seed_seq
            index = sequence.spawn_key[-1]  # type: ignore[attr-defined]  # names the group
            return np.arange(self.clients if index == self._target_index else 0)

        return Experiment(
            replace(made, sampler=replace(made.sampler, draw=draw)),
            model(made.plan.spec.model.name),
            self.data,
            self._partition(self.rows[0]),
            self.seed,
            self.device,
        )

    def __getitem__(self, index: int) -> Observation:
        """Observation number ``index``, with its own noise; the initial model is the same."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        base = self.experiment
        seed = int(stream(self.seed, Purpose.CANARY, 17, index).integers(2**62))
        fixed = replace(base, partition=self._partition(self.rows[index]), seed=seed)
        fixed = with_start(fixed, base.start)
        with one_core():
            progress = initial_state(fixed)
            releases = recorded(fixed, progress, MemoryLedger(fixed.algorithm.plan.digest))
        members = set(self._members[self._target_index][: self.clients].tolist())
        released = next(
            release
            for release in releases
            if self.target.name in {group.name for group in release.groups}
            and (release.client is None or release.client in members)
        )
        truth = self.truth(index)
        count = len(truth.labels)
        view = view_of(fixed, progress, released, clients=count, records=count, steps=1)
        return Observation(view, truth)

    def truth(self, index: int) -> Truth:
        """The records of observation number ``index``, without computing the release."""
        alone = self.experiment.algorithm.mechanism.release_client is not None
        return truth_of(self.data, self.rows[index][:1] if alone else self.rows[index])

    @property
    def _target_index(self) -> int:
        return [group.name for group in self.plan.groups].index(self.target.name)

    @cached_property
    def _members(self) -> tuple[np.ndarray, ...]:
        sizes = np.cumsum([0, *(group.clients for group in self.plan.groups)])
        return tuple(np.arange(a, b) for a, b in pairwise(sizes))

    def _partition(self, chosen: np.ndarray) -> Partition:
        """One record per client; the first clients of the target group hold the chosen ones."""
        population = sum(group.clients for group in self.plan.groups)
        order = np.resize(np.arange(len(self.data.train_y)), population)
        first = int(self._members[self._target_index][0])
        order[first : first + len(chosen)] = chosen
        return Partition(order, np.arange(population + 1), self._members)


@dataclass(frozen=True)
class RunRound:
    """Releases of one round of a run, replayed from its folder by its seed."""

    folder: Path  # the run folder
    record: RunRecord  # its record
    experiment: Experiment  # the run's experiment, built again
    round: int  # the attacked round, from 1
    images: int  # most releases that are attacked, where clients send their own

    def __len__(self) -> int:
        """Number of attacked releases."""
        return len(self._observations)

    def __getitem__(self, index: int) -> Observation:
        """Observation number ``index``."""
        return self._observations[index]

    def truth(self, index: int) -> Truth:
        """The records of observation number ``index``."""
        return self[index].truth

    @property
    def algorithm(self) -> str:
        """Name of the run's algorithm."""
        return self.record.algorithm

    @property
    def executed(self) -> Plan:
        """The plan that the run executed."""
        return self.experiment.algorithm.plan

    @property
    def target(self) -> GroupPlan:
        """Of the groups whose releases are attacked, the one with the largest epsilon."""
        return max(self.groups, key=lambda group: group.epsilon)

    @property
    def groups(self) -> Sequence[GroupPlan]:
        """The groups whose releases are attacked, in the plan's order."""
        _, releases = self._replayed
        names = {group.name for one in releases[: self.images] for group in one.groups}
        every = self.experiment.algorithm.plan.groups
        return [group for group in every if group.name in names] or every

    @cached_property
    def _replayed(self) -> tuple[Progress, tuple[Released, ...]]:
        """State before the attacked round, and its releases, which are those of the ledger."""
        with one_core():
            before = initial_state(self.experiment)
            ledger = MemoryLedger(self.experiment.algorithm.plan.digest)
            while before.round < self.round - 1:
                before = run_round(self.experiment, before, ledger)
            releases = recorded(self.experiment, before, ledger)
        written = read_ledger(self.folder, self.record.plan_digest).records
        if len(written) < len(ledger.records):
            rule = f"must hold the {len(ledger.records)} lines of the rounds up to {self.round}"
            raise InputError.one("ledger", rule, f"{len(written)} in {self.folder / LEDGER}")
        for line, (replayed, record) in enumerate(
            zip(ledger.records, written, strict=False), start=1
        ):
            if replayed != record:
                rule = f"must replay to its ledger (data, software and device as then): line {line}"
                raise InputError.one("run", rule, str(self.folder / LEDGER))
        return before, releases

    @cached_property
    def _observations(self) -> Sequence[Observation]:
        before, releases = self._replayed
        return [self._observation(before, released) for released in releases[: self.images]]

    def _observation(self, before: Progress, released: Released) -> Observation:
        names = {group.name for group in released.groups}
        groups = self.experiment.algorithm.plan.groups
        cohorts = participants(self.experiment, self.round)
        clients = np.concatenate(
            [part for group, part in zip(groups, cohorts, strict=True) if group.name in names]
        )
        if released.client is not None:
            clients = np.array([released.client])
        group = released.groups[0]
        rows = [self._rows(int(client), group) for client in clients]
        used = np.unique(np.concatenate(rows)) if rows else np.empty(0, dtype=np.int64)
        view = view_of(
            self.experiment,
            before,
            released,
            clients=len(clients),
            records=len(used),
            steps=self._steps(group),
        )
        return Observation(view, truth_of(self.experiment.data, used))

    def _steps(self, group: GroupPlan) -> int:
        local = self.experiment.local
        poisson = self.experiment.algorithm.local.poisson
        return (group.steps or local.steps) if poisson else local.steps

    def _rows(self, client: int, group: GroupPlan) -> np.ndarray:
        """Training records in a client's mini-batches of the round."""
        generator = stream(self.experiment.seed, Purpose.CLIENT, self.round, client)
        owned = self.experiment.partition.records(client)
        steps = self._steps(group)
        if self.experiment.algorithm.local.poisson:
            drawn = poisson_schedule(owned, steps, group.record_sampling_ratio or 1.0, generator)
            return np.concatenate(drawn)
        chosen = schedule(owned, steps, self.experiment.local.batch_size, generator).ravel()
        used: np.ndarray = chosen[chosen != ABSENT]
        return used


def round_of_run(
    folder: Path, data: Callable[[str], Dataset], round_: int, images: int, device: torch.device
) -> RunRound:
    """A round of a run folder."""
    record, plan = RunRecord.load(folder), Plan.load(folder / PLAN)
    seed = record.simulation_seed
    plan.spec.sampling.law.require("attacks", "plan.spec.sampling")
    if plan.digest != record.plan_digest:
        raise InputError.one("run", "must hold the plan that it executed", str(folder / PLAN))
    if not 1 <= round_ <= record.rounds_done:
        rule = f"must be in [1, {record.rounds_done}], the rounds that were run"
        raise InputError.one("round", rule, round_)
    if (changes := plan.spec.local.augmentation) is not None:
        rule = "must be left out: clients trained on changed images, not on those to compare with"
        raise InputError.one("local.augmentation", rule, changes.model_dump(mode="json"))
    loaded = data(record.dataset)
    require_images(loaded)
    if loaded.digest != record.configuration.get("data"):
        raise InputError.one("dataset", f"must be the one of {folder}", loaded.name)
    entry, numbers = ALGORITHMS.get(record.algorithm), record.configuration.get("numbers", {})
    choices = Hyperparameters(record.configuration.get("aggregation", "paper"), numbers)
    labels, people = loaded.train_y.numpy(), loaded.train_people
    assigned = partition(scheme(record.partition), labels, plan.groups, seed, people)
    experiment = Experiment(
        entry.build(plan, entry.complete(choices)),
        model(plan.spec.model.name),
        loaded,
        assigned,
        seed,
        torch.device("cpu" if record.device == "cpu" else device),
        canaries=int(record.configuration.get("canaries", 0)),
    )
    return RunRound(folder, record, experiment, round_, images)
