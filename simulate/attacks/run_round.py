"""Observations of a finished run: its own stored releases, and who was in them.

The releases are those in the run folder, and the model before each round is computed
from them, so that attacks see what this run revealed. Who took part is read from the
ledger; the records of those clients follow from the public data, the partition and the
seed, and are compared with what attacks find.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from privplan.errors import InputError
from privplan.ledger import read_ledger
from privplan.plan import GroupPlan, Plan
from privplan.public_data import is_public
from privplan.record import PLAN, ReleaseRecord, RunRecord
from privplan.releases import StoredReleases, stored_releases
from simulate.attacks.view import (
    Observation,
    Truth,
    require_images,
    truth_of,
    view_of,
)
from simulate.components import Released
from simulate.data.dataset import Dataset
from simulate.data.partition.clients import seated
from simulate.data.partition.schemes import partition, scheme
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress
from simulate.models.network import Model
from simulate.models.registry import model as registered
from simulate.postprocessing import ModelState, models_after
from simulate.replay.model import (
    algorithm_of,
    first_vector,
    members_of,
    model_of,
    round_releases,
)


@dataclass(frozen=True)
class RunRounds:
    """Some releases of a run, spread over its rounds.

    Attributes:
        folder: the run folder.
        record: its record.
        executed: the plan that it executed.
        experiment: its algorithm, network, data and partition.
        stored: its releases.
        releases: most releases that are attacked.
    """

    folder: Path
    record: RunRecord
    executed: Plan
    experiment: Experiment
    stored: StoredReleases
    releases: int

    noise_factor = 1.0  # the run's own noise

    def __len__(self) -> int:
        """Number of releases."""
        return len(self._lines)

    def __getitem__(self, index: int) -> Observation:
        """A release, with the records of its clients."""
        return self._observations[index]

    def truth(self, index: int) -> Truth:
        """The records of the clients of a release."""
        return self._observations[index].truth

    @property
    def algorithm(self) -> str:
        """Its name."""
        return self.record.algorithm

    @property
    def data(self) -> Dataset:
        """That has the records."""
        return self.experiment.data

    @property
    def model(self) -> Model:
        """The network."""
        return self.experiment.model

    @property
    def target(self) -> GroupPlan:
        """Of the groups in the releases, the one with the largest epsilon."""
        names: set[str] = set()
        for line in self._lines:
            names.update(share.group for share in line.shares)
        of_releases = [group for group in self.executed.groups if group.name in names]
        return max(of_releases, key=lambda group: group.epsilon)

    @property
    def identity(self) -> dict[str, Any]:
        """All that the observations depend on, as plain data."""
        digests = [list(line.releases) for line in self.stored.rounds]
        return {"run": digests, "attacked": len(self)}

    @property
    def title(self) -> str:
        """Data, model and setting, in words."""
        return f"{self.data.name}, {self.model.name}, as the run released"

    @property
    def heads(self) -> dict[str, Any]:
        """What a row of the report says of the releases."""
        sizes = [len(truth.truth.labels) for truth in self._observations]
        clients = [observation.view.clients for observation in self._observations]
        return {
            "clients": round(float(np.mean(clients))),
            "records": round(float(np.mean(sizes))),
            "round": [line.round for line in self._lines],
            "groups": [self.target.name],
        }

    @cached_property
    def _lines(self) -> list[ReleaseRecord]:
        """Ledger lines of the attacked releases: with participants, evenly spread."""
        ledger = read_ledger(self.folder, self.executed.digest)
        lines = [line for line in ledger.records if _has_participants(line)]
        if not lines:
            rule = "must have releases with recorded participants"
            raise InputError.one("run", rule, str(self.folder))
        count = min(self.releases, len(lines))
        places = np.linspace(0, len(lines) - 1, count).round().astype(int)
        return [lines[place] for place in places]

    @cached_property
    def _observations(self) -> list[Observation]:
        """The attacked releases, in the order of the ledger."""
        ledger = read_ledger(self.folder, self.executed.digest)
        by_round: dict[int, list[ReleaseRecord]] = {}
        for line in ledger.records:
            by_round.setdefault(line.round, []).append(line)
        attacked = {id_of(line) for line in self._lines}
        observations = []
        for (round_, vectors), before in zip(
            self.stored.releases(), self._models(), strict=False
        ):
            for line, vector in zip(by_round.get(round_, []), vectors, strict=True):
                if id_of(line) in attacked:
                    observations.append(self._observation(before, line, vector))
        return observations

    def _models(self) -> Iterator[ModelState]:
        """The model before each round, computed from the releases."""
        algorithm = self.experiment.algorithm
        ledger = read_ledger(self.folder, self.executed.digest)
        initial, _ = first_vector(algorithm, self.model, self.record, self.stored)
        members = members_of(self.folder, self.executed)
        rounds = round_releases(self.stored, ledger, algorithm, members)
        seed = self.record.simulation_seed
        return models_after(algorithm, self.model, seed, initial, rounds)

    def _observation(
        self, before: ModelState, line: ReleaseRecord, vector: np.ndarray
    ) -> Observation:
        """The server's view of a stored release."""
        clients = self._clients(line)
        records = [self.experiment.partition.records(client) for client in clients]
        rows = np.unique(np.concatenate(records))
        names = {share.group for share in line.shares}
        groups = [group for group in self.executed.groups if group.name in names]
        is_of_client = self.experiment.algorithm.mechanism.release_client is not None
        released = Released(
            torch.from_numpy(vector.copy()),
            line,
            tuple(groups),
            client=clients[0] if is_of_client else None,
        )
        progress = Progress(before.round, before.theta, before.server, {}, (), "")
        view = view_of(
            self.experiment,
            progress,
            released,
            clients=len(clients),
            records=len(rows),
            steps=max(line.steps, self.experiment.local.steps),
        )
        return Observation(view, truth_of(self.data, rows))

    def _clients(self, line: ReleaseRecord) -> list[int]:
        """Numbers of the clients in a release."""
        places = [group.name for group in self.executed.groups]
        clients: list[int] = []
        for share in line.shares:
            members = self.experiment.partition.members[places.index(share.group)]
            clients += [int(members[place]) for place in share.participants or ()]
        return clients


def id_of(line: ReleaseRecord) -> tuple[int, tuple[str, ...], tuple[Any, ...]]:
    """What tells a ledger line from the others of a run."""
    groups = tuple(share.group for share in line.shares)
    participants = tuple(share.participants for share in line.shares)
    return line.round, groups, participants


def _has_participants(line: ReleaseRecord) -> bool:
    """Whether somebody is in a release, and the ledger says who."""
    return any(share.participants for share in line.shares)


def run_rounds(
    folder: Path, data: Dataset, record: RunRecord, releases: int
) -> RunRounds:
    """The releases of a finished run on public data.

    Args:
        folder: the run folder.
        data: the run's data set.
        record: the run's record.
        releases: most releases that are attacked.

    Raises:
        InputError: where the run is not finished, stores no releases, or has other
            data.
    """
    plan = Plan.load(folder / PLAN)
    require_images(data)
    if data.digest != record.configuration.get("data"):
        raise InputError.one("dataset", f"must be the one of {folder}", data.name)
    ledger = read_ledger(folder, plan.digest)
    if ledger.fault is not None:
        raise InputError.one("ledger", "must be whole", ledger.fault)
    stored = stored_releases(folder, plan, ledger)
    labels = data.train_labels.numpy()
    seed = record.simulation_seed
    of_records = scheme(record.partition)
    assigned = partition(of_records, labels, plan.groups, seed, data.train_people)
    network = model_of(record, plan, folder, stored.header.parameters, None)
    experiment = Experiment(
        algorithm_of(plan, record),
        network,
        data,
        seated(assigned, plan),
        seed,
        torch.device("cpu"),
    )
    return RunRounds(folder, record, plan, experiment, stored, releases)


def public_run(folder: Path) -> RunRecord:
    """The record of a finished run on registered public data, with a known network.

    Raises:
        InputError: for another run.
    """
    record = RunRecord.load(folder)
    if record.status != "complete":
        raise InputError.one("record.status", "must be complete", record.status)
    is_own = record.configuration.get("own_data") or not is_public(record.dataset)
    if is_own or record.configuration.get("own_model") is not None:
        rule = (
            "must be of registered public data and models: attacks compare with records"
        )
        raise InputError.one("run", rule, record.dataset)
    registered(record.model)  # raises for an unknown one
    return record
