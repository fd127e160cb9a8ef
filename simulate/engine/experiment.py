"""One training run: algorithm, model, data and partition, checked before training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor

from privplan.discrete_gaussian import grid_of
from privplan.errors import Fault, InputError
from privplan.plan import GroupPlan
from privplan.spec.groups import LocalTraining
from privplan.streams import NoiseKey, Purpose, private_seed, stream
from simulate import audit as canary_clients
from simulate.algorithm import Algorithm, groups_in_round, sensitivity_bound
from simulate.data.augmentation import augmentation_faults
from simulate.data.dataset import Dataset
from simulate.data.partition.clients import ClientPartition
from simulate.data.personal import personal_test_records
from simulate.models.network import Model
from simulate.models.start import started
from simulate.parallel import SINGLE_PROCESS, Ranks
from simulate.postprocessing import initial_vector
from simulate.tasks import Metric


@dataclass(frozen=True)
class Experiment:
    """Everything that a run's result depends on; model, data and partition match the plan."""

    algorithm: Algorithm
    model: Model
    data: Dataset
    partition: ClientPartition
    seed: int
    device: torch.device
    workers: int = field(
        default_factory=torch.get_num_threads
    )  # no result depends on it
    ranks: Ranks = SINGLE_PROCESS  # results depend on it by rounding only
    canaries: int = 0  # per group, in addition to the plan's clients
    metric: Metric | None = None  # None for the accuracy of classification
    key: NoiseKey | None = (
        None  # secret of cohorts, noise and Poisson batches, not the seed's
    )
    discrete: bool = False  # whether sums and their noise are on a grid

    def __post_init__(self) -> None:
        planned = self.algorithm.plan.spec.model
        faults = []
        if self.model.name != planned.name:
            faults.append(
                Fault("model.name", f"must be {planned.name}", self.model.name)
            )
        if self.model.parameters != planned.parameters:
            rule = f"must be {self.model.parameters} for {self.model.name}"
            faults.append(Fault("model.parameters", rule, planned.parameters))
        if self.model.input_shape != self.data.shape:
            shapes = self.model.input_shape, self.data.shape
            shape, found = ("x".join(map(str, one)) for one in shapes)
            rule = f"must have images of shape {shape} for {self.model.name}"
            faults.append(Fault("dataset", rule, f"{self.data.name} with {found}"))
        if self.model.stochastic and self.device.type != "cpu":
            rule = "must be cpu for a module with dropout or other random numbers"
            faults.append(Fault("device", rule, self.device.type))
        if self.model.classes < len(self.data.classes):
            rule = f"must have at most the {self.model.classes} classes of {self.model.name}"
            faults.append(Fault("dataset", rule, len(self.data.classes)))
        if self.local.augmentation is not None:
            faults += augmentation_faults(self.local.augmentation, self.data)
        for group, members in zip(
            self.algorithm.plan.groups, self.partition.members, strict=False
        ):
            if group.records is not None:
                fewest = min(
                    len(self.partition.records(int(client))) for client in members
                )
                if fewest < group.records:
                    rule = f"must leave each client of {group.name} {group.records} records"
                    faults.append(Fault("partition", rule, fewest))
        try:
            _ = self._initialised
        except InputError as error:
            faults += error.faults
        sizes = [len(part) for part in self.partition.members]
        if sizes != [group.clients for group in self.algorithm.plan.groups]:
            faults.append(
                Fault("partition", "must have the plan's clients in each group", sizes)
            )
        mechanism = self.algorithm.mechanism
        if self.discrete and not (mechanism.noisy and mechanism.release_client is None):
            rule = "must not be secure-discrete without noise on sums"
            faults.append(Fault("noise", rule, self.algorithm.name))
        excluded = self.algorithm.plan.spec.excludes_use("secure-discrete")
        if self.discrete and excluded is not None:
            faults.append(Fault("noise", excluded, "secure-discrete"))
        if faults:
            raise InputError(faults)
        if self.canaries:
            canary_clients.check_canaries(self.algorithm, self.canaries, self.dimension)

    @property
    def local(self) -> LocalTraining:
        """The plan's local training."""
        return self.algorithm.plan.spec.local

    @cached_property
    def batch_rows(self) -> int:
        """Rows of a mini-batch: the batch size, or the records of the largest client if fewer."""
        largest = self.partition.sizes(np.concatenate(self.partition.members)).max()
        return max(1, min(self.local.batch_size, int(largest)))

    @cached_property
    def dimension(self) -> int:
        """Length of the global vector (d)."""
        return self.algorithm.split.dimension(self.model)

    @cached_property
    def layer_lengths(self) -> tuple[int, ...]:
        """Lengths of the model's layers if the global vector is the model's; else empty."""
        lengths = tuple(math.prod(shape) for _, shape in self.model.shapes)
        return lengths if sum(lengths) == self.dimension else ()

    @cached_property
    def start(self) -> Tensor:
        """The global vector before the first round [d], on the CPU."""
        return initial_vector(self.algorithm, self._initialised, self.seed)

    @cached_property
    def placed(self) -> tuple[Tensor, Tensor]:
        """Training records and labels, on the device where half of its free memory has room."""
        x, y = self.data.train_x, self.data.train_y
        if (
            self.device.type == "cuda"
            and x.nbytes > torch.cuda.mem_get_info(self.device)[0] / 2
        ):
            return x, y
        return x.to(self.device), y.to(self.device)

    @cached_property
    def _initialised(self) -> Model:
        """The model, with the initial parameters that the plan names."""
        return started(self.model, self.algorithm.plan.spec.model.initial)

    @cached_property
    def personal_start(self) -> Tensor | None:
        """Personal vector before a client's first round [p]; None without personal state."""
        return self.algorithm.split.personal(self.model, self.start)

    @cached_property
    def canary(self) -> canary_clients.Canaries | None:
        """The audit canaries; None in a run without canaries."""
        if not self.canaries:
            return None
        groups = len(self.algorithm.plan.groups)
        return canary_clients.make_canaries(
            self.seed, self.canaries, groups, self.dimension
        )

    @property
    def clients(self) -> int:
        """Number of clients in all groups."""
        return sum(group.clients for group in self.algorithm.plan.groups)

    @property
    def rounds(self) -> int:
        """The plan's number of rounds."""
        return self.algorithm.plan.spec.rounds

    @cached_property
    def _digest(self) -> str:
        return self.algorithm.plan.spec_digest

    def private_seed(self, group: str = "") -> int:
        """The seed of what a key draws in a run with secure noise; other specs have other ones."""
        return private_seed(self.seed, self._digest, group)

    def private_stream(
        self, purpose: Purpose, *indices: int, group: str = ""
    ) -> np.random.Generator:
        """The stream of a cohort, of noise or of a Poisson batch: of the key, or of the seed."""
        if self.key is None:
            return stream(self.private_seed(group), purpose, *indices)
        return cast(np.random.Generator, self.key.stream(int(purpose), *indices))

    def grid(self, round_: int, group: GroupPlan) -> float | None:
        """Step of the grid of the release that has a group's sum; None without a grid."""
        if not self.discrete:
            return None
        own = [group]
        if self.algorithm.mechanism.joint:
            own = list(groups_in_round(self.algorithm, round_))
        bounds = [sensitivity_bound(self.algorithm, one) or 0.0 for one in own]
        stds = [
            one.noise_multiplier * bound for one, bound in zip(own, bounds, strict=True)
        ]
        return grid_of(max(stds))

    def learning_rate(self, round_: int) -> float:
        """Local learning rate in a round (counted from 1)."""
        return self.local.learning_rate * self.local.learning_rate_decay ** (round_ - 1)

    def own_test(self, client: int) -> np.ndarray:
        """Indices of the test records of a client's personal model; drawn once."""
        if client not in self._own_tests:
            found = personal_test_records(self.data, self.partition, client, self.seed)
            self._own_tests[client] = found
        return self._own_tests[client]

    @cached_property
    def _own_tests(self) -> dict[int, np.ndarray]:
        return {}

    def label_shares(self) -> dict[str, np.ndarray]:
        """Share of each class among the training records of each group, by name of the group."""
        labels, classes = self.data.train_labels.numpy(), len(self.data.classes)
        count, members = self.partition.label_distribution, self.partition.members
        groups = zip(self.algorithm.plan.groups, members, strict=True)
        return {
            group.name: count(clients, labels, classes) for group, clients in groups
        }

    def label_skew(self) -> float:
        """``Coverage.skew`` of the clients' labels by pairs of records, without bias for few."""
        labels, partition = self.data.train_labels.numpy(), self.partition
        classes, excess, pairs = len(self.data.classes), 0.0, 0.0
        for members in partition.members:
            alike = float(
                (partition.label_distribution(members, labels, classes) ** 2).sum()
            )
            for client in members:
                counts = np.bincount(
                    labels[partition.records(int(client))], minlength=classes
                )
                number = counts.sum()
                if number > 1 and alike < 1:
                    same = float(
                        (counts * (counts - 1)).sum() / (number * (number - 1))
                    )
                    excess += (same - alike) / (1 - alike)
                    pairs += 1
        return min(max(excess / pairs, 0.0), 1.0) if pairs else 0.0


# --- Precision and repeatability of matrix products and convolutions on GPUs. --------------------


@contextmanager
def exact_products() -> Iterator[None]:
    """Until the block ends, on GPUs: the same bits each time, and no TF32 with its 10 bits."""
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32, convolution.deterministic
    matmul.allow_tf32 = convolution.allow_tf32 = False
    convolution.deterministic = (
        True  # else a resumed run would differ from the ledger so far
    )
    try:
        yield
    finally:
        matmul.allow_tf32, convolution.allow_tf32, convolution.deterministic = before
