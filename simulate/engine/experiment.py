"""What one training run is of, checked before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from privplan.errors import Fault, InputError
from privplan.spec.spec import LocalTraining
from simulate.algorithm import Algorithm
from simulate.audit import canaries as canary_clients
from simulate.data.dataset import Dataset
from simulate.data.partition.clients import ClientPartition
from simulate.engine.seeds import Purpose, stream
from simulate.models.network import Model
from simulate.parallel.distributed import ALONE, Ranks


@dataclass(frozen=True)
class Experiment:
    """Everything that a run's result depends on.

    Attributes:
        algorithm: the algorithm, with the plan that it executes.
        model: the network.
        data: the data set.
        held: who holds which records.
        seed: the run's seed.
        device: where training happens.
        workers: threads on a CPU; no result depends on it.
        ranks: the processes that share the run; results depend on it by rounding only.
        canaries: canaries of an audit in each group, beyond the plan's clients.

    Raises:
        InputError: when the model is not the plan's, or does not fit the images.
    """

    algorithm: Algorithm
    model: Model
    data: Dataset
    held: ClientPartition
    seed: int
    device: torch.device
    workers: int = field(default_factory=torch.get_num_threads)
    ranks: Ranks = ALONE
    canaries: int = 0

    def __post_init__(self) -> None:
        planned = self.algorithm.plan.spec.model
        faults = []
        if self.model.name != planned.name:
            faults.append(Fault("model.name", f"must be {planned.name}", self.model.name))
        if self.model.parameters != planned.parameters:
            rule = f"must be {self.model.parameters} for {self.model.name}"
            faults.append(Fault("model.parameters", rule, planned.parameters))
        if self.model.input_shape != self.data.shape:
            rule = f"must have images of shape {_by(self.model.input_shape)} for {self.model.name}"
            faults.append(Fault("dataset", rule, f"{self.data.name} with {_by(self.data.shape)}"))
        if self.model.classes < len(self.data.classes):
            rule = f"must have at most the {self.model.classes} classes of {self.model.name}"
            faults.append(Fault("dataset", rule, len(self.data.classes)))
        faults += self._short()
        sizes = [len(part) for part in self.held.members]
        if sizes != [group.clients for group in self.algorithm.plan.groups]:
            faults.append(Fault("partition", "must have the plan's clients in each group", sizes))
        if faults:
            raise InputError(faults)
        if self.canaries:
            canary_clients.check_canaries(self.algorithm, self.canaries, self.dimension)

    def _short(self) -> list[Fault]:
        """Where a client holds fewer records than the plan protects it for."""
        faults = []
        for group, members in zip(self.algorithm.plan.groups, self.held.members, strict=False):
            if group.records is not None:
                fewest = min(len(self.held.records(int(client))) for client in members)
                if fewest < group.records:
                    rule = f"must leave each client of {group.name} {group.records} records"
                    faults.append(Fault("partition", rule, fewest))
        return faults

    @property
    def local(self) -> LocalTraining:
        """The plan's local training."""
        return self.algorithm.plan.spec.local

    @cached_property
    def dimension(self) -> int:
        """Length of the global vector (d)."""
        return self.algorithm.split.dimension(self.model)

    @cached_property
    def start(self) -> Tensor:
        """The global vector before the first round [d], on the CPU."""
        source = torch.Generator()
        source.manual_seed(int(stream(self.seed, Purpose.INITIAL).integers(2**63 - 1)))
        return self.algorithm.split.start(self.model, source)

    @cached_property
    def personal_start(self) -> Tensor | None:
        """What every client keeps before its first round [p]; None when clients keep nothing."""
        return self.algorithm.split.personal(self.model, self.start)

    @cached_property
    def canary(self) -> canary_clients.Canaries | None:
        """The canaries of an audit; None without."""
        if not self.canaries:
            return None
        groups = len(self.algorithm.plan.groups)
        return canary_clients.make_canaries(self.seed, self.canaries, groups, self.dimension)

    @property
    def clients(self) -> int:
        """Clients in all groups."""
        return sum(group.clients for group in self.algorithm.plan.groups)

    @property
    def rounds(self) -> int:
        """The plan's number of rounds."""
        return self.algorithm.plan.spec.rounds

    def learning_rate(self, round_: int) -> float:
        """Local learning rate in a round, from 1."""
        return self.local.learning_rate * self.local.learning_rate_decay ** (round_ - 1)

    def label_shares(self) -> dict[str, np.ndarray]:
        """Share of each class among the training records of each group, by name of the group."""
        labels = self.data.train_y.numpy()
        shares = {}
        for group, members in zip(self.algorithm.plan.groups, self.held.members, strict=True):
            shares[group.name] = self.held.mix(members, labels, len(self.data.classes))
        return shares


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(str(side) for side in shape)
