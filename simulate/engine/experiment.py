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

from privplan.discrete_gaussian import grid_fault, grid_of
from privplan.errors import Fault, InputError
from privplan.plan import GroupPlan
from privplan.secure_stream import NoiseKey
from privplan.spec.groups import LocalTraining
from privplan.streams import Purpose, private_seed, stream
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
    """Everything that a run's result depends on.

    Attributes:
        algorithm: with the plan.
        model: as planned.
        data: training and test records.
        partition: which records each client has.
        seed: of the streams.
        device: where models are trained.
        workers: number of threads; no result depends on it.
        ranks: processes of the run; results depend on them by rounding only.
        canaries: per group, in addition to the plan's clients.
        metric: of the run; None for the accuracy of classification.
        key: secret of cohorts, noise and Poisson batches; None for those of the seed.
        discrete: whether sums and their noise are on a grid.

    Raises:
        InputError: when model, data or partition do not match the plan, with all faults
            at once.
    """

    algorithm: Algorithm
    model: Model
    data: Dataset
    partition: ClientPartition
    seed: int
    device: torch.device
    workers: int = field(default_factory=torch.get_num_threads)
    ranks: Ranks = SINGLE_PROCESS
    canaries: int = 0
    metric: Metric | None = None
    key: NoiseKey | None = None
    discrete: bool = False

    def __post_init__(self) -> None:
        faults = [
            *self._model_faults(),
            *self._data_faults(),
            *self._partition_faults(),
            *self._noise_faults(),
        ]
        if faults:
            raise InputError(faults)
        if self.canaries:
            canary_clients.check_canaries(self.algorithm, self.canaries, self.dimension)

    def _model_faults(self) -> Iterator[Fault]:
        """What of the model differs from the plan, or suits not data and device."""
        planned = self.algorithm.plan.spec.model
        model = self.model
        if model.name != planned.name:
            yield Fault("model.name", f"must be {planned.name}", model.name)
        if model.parameters != planned.parameters:
            rule = f"must be {model.parameters} for {model.name}"
            yield Fault("model.parameters", rule, planned.parameters)
        if model.input_shape != self.data.shape:
            expected = "x".join(map(str, model.input_shape))
            shape = "x".join(map(str, self.data.shape))
            rule = f"must have images of shape {expected} for {model.name}"
            yield Fault("dataset", rule, f"{self.data.name} with {shape}")
        if model.stochastic and self.device.type != "cpu":
            rule = "must be cpu for a module with dropout or other random numbers"
            yield Fault("device", rule, self.device.type)

    def _data_faults(self) -> Iterator[Fault]:
        """What the data lack for the model, local training and the plan's groups."""
        if self.model.classes < len(self.data.classes):
            rule = (
                f"must have at most the {self.model.classes} classes "
                f"of {self.model.name}"
            )
            yield Fault("dataset", rule, len(self.data.classes))
        if self.local.augmentation is not None:
            yield from augmentation_faults(self.local.augmentation, self.data)
        groups = self.algorithm.plan.groups
        for group, members in zip(groups, self.partition.members, strict=False):
            if group.records is None:
                continue
            fewest = min(len(self.partition.records(int(client))) for client in members)
            if fewest < group.records:
                rule = f"must leave each client of {group.name} {group.records} records"
                yield Fault("partition", rule, fewest)

    def _partition_faults(self) -> Iterator[Fault]:
        """Faults of the initial parameters, and of the numbers of clients."""
        try:
            _ = self._initialised
        except InputError as error:
            yield from error.faults
        sizes = [len(members) for members in self.partition.members]
        if sizes != [group.clients for group in self.algorithm.plan.groups]:
            yield Fault(
                "partition", "must have the plan's clients in each group", sizes
            )

    def _noise_faults(self) -> Iterator[Fault]:
        """What rules out noise on a grid."""
        if not self.discrete:
            return
        mechanism = self.algorithm.mechanism
        if not mechanism.noisy or mechanism.release_client is not None:
            rule = "must not be secure-discrete without noise on sums"
            yield Fault("noise", rule, self.algorithm.name)
        plan = self.algorithm.plan
        multipliers = [group.noise_multiplier for group in plan.groups]
        excluded = plan.spec.excludes_use("secure-discrete") or grid_fault(
            multipliers, plan.spec.clipping_norm
        )
        if excluded is not None:
            yield Fault("noise", excluded, "secure-discrete")

    @property
    def local(self) -> LocalTraining:
        """The plan's local training."""
        return self.algorithm.plan.spec.local

    @property
    def trains_alone(self) -> bool:
        """Whether each client trains by itself: where noise protects somebody.

        In a batch, other clients' records decide how a client's numbers are rounded:
        by its width, and by how many clients a kernel has. Local training may amplify
        that beyond all bounds, and clipping bounds what a client itself sends only.
        """
        return self.key is not None

    @cached_property
    def batch_rows(self) -> int:
        """Rows of a mini-batch of any client."""
        return self.rows_of(np.concatenate(self.partition.members))

    def rows_of(self, clients: np.ndarray) -> int:
        """Rows of a mini-batch: the batch size, or the most records of the clients."""
        largest = self.partition.sizes(clients).max()
        return max(1, min(self.local.batch_size, int(largest)))

    @cached_property
    def dimension(self) -> int:
        """Length of the global vector (d)."""
        return self.algorithm.split.dimension(self.model)

    @cached_property
    def layer_lengths(self) -> tuple[int, ...]:
        """Lengths of the model's layers; empty if the global vector is another one."""
        lengths = tuple(math.prod(shape) for _, shape in self.model.shapes)
        if sum(lengths) == self.dimension:
            return lengths
        return ()

    @cached_property
    def start(self) -> Tensor:
        """The global vector before the first round [d], on the CPU."""
        return initial_vector(self.algorithm, self._initialised, self.seed)

    @cached_property
    def placed(self) -> tuple[Tensor, Tensor]:
        """Training records and labels, on the device if they fit.

        They may take half of its free memory.
        """
        x = self.data.train_x
        y = self.data.train_y
        if self.device.type == "cuda":
            free_bytes, _ = torch.cuda.mem_get_info(self.device)
            if x.nbytes > free_bytes / 2:
                return x, y
        return x.to(self.device), y.to(self.device)

    @cached_property
    def _initialised(self) -> Model:
        """The model, with the initial parameters that the plan names."""
        return started(self.model, self.algorithm.plan.spec.model.initial)

    @cached_property
    def personal_start(self) -> Tensor | None:
        """Personal vector before a client's first round [p]; None without one."""
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
        """The seed of what a key draws in a run with secure noise.

        Another spec has another one.
        """
        return private_seed(self.seed, self._digest, group)

    def private_stream(
        self, purpose: Purpose, *indices: int, group: str = ""
    ) -> np.random.Generator:
        """The stream of a cohort, noise or a Poisson batch: by key, or by seed."""
        if self.key is None:
            return stream(self.private_seed(group), purpose, *indices)
        return cast(np.random.Generator, self.key.stream(int(purpose), *indices))

    def grid(self, round_: int, group: GroupPlan) -> float | None:
        """Grid step of the release with a group's sum; None without a grid."""
        if not self.discrete:
            return None
        groups = [group]
        if self.algorithm.mechanism.joint:
            groups = list(groups_in_round(self.algorithm, round_))
        stds = [
            member.noise_multiplier * (sensitivity_bound(self.algorithm, member) or 0.0)
            for member in groups
        ]
        return grid_of(max(stds))

    def learning_rate(self, round_: int) -> float:
        """Local learning rate in a round (counted from 1)."""
        return self.local.learning_rate * self.local.learning_rate_decay ** (round_ - 1)

    def own_test(self, client: int) -> np.ndarray:
        """Indices of the test records of a client's personal model; drawn once."""
        if client not in self._own_tests:
            records = personal_test_records(
                self.data, self.partition, client, self.seed
            )
            self._own_tests[client] = records
        return self._own_tests[client]

    @cached_property
    def _own_tests(self) -> dict[int, np.ndarray]:
        return {}

    def label_shares(self) -> dict[str, np.ndarray]:
        """Shares of the classes in each group's training records, by group's name."""
        labels = self.data.train_labels.numpy()
        classes = len(self.data.classes)
        groups = self.algorithm.plan.groups
        partition = self.partition
        return {
            group.name: partition.label_distribution(members, labels, classes)
            for group, members in zip(groups, partition.members, strict=True)
        }

    def label_skew(self) -> float:
        """``Coverage.skew`` of the clients' labels: 0 for mixed ones, 1 for one class.

        It compares the share of pairs of records with one label, within a client and
        within its group. Pairs without repetition have no bias for few records.
        """
        labels = self.data.train_labels.numpy()
        classes = len(self.data.classes)
        excess = 0.0
        clients = 0
        for members in self.partition.members:
            shares = self.partition.label_distribution(members, labels, classes)
            alike_in_group = float((shares**2).sum())
            if alike_in_group >= 1:
                continue  # a single class, in which no client can be skewed
            for client in members:
                records = self.partition.records(int(client))
                counts = np.bincount(labels[records], minlength=classes)
                number = counts.sum()
                if number > 1:
                    pairs = number * (number - 1)
                    alike = float((counts * (counts - 1)).sum() / pairs)
                    excess += (alike - alike_in_group) / (1 - alike_in_group)
                    clients += 1
        if not clients:
            return 0.0
        return min(max(excess / clients, 0.0), 1.0)


# --- Precision and repeatability of matrix products and convolutions on GPUs. ---------


@contextmanager
def exact_products() -> Iterator[None]:
    """Until the block ends, on GPUs: the same bits each time, and no TF32.

    TF32 has 10 bits. With other bits a resumed run would differ from its ledger so far.
    """
    matmul = torch.backends.cuda.matmul
    convolution = torch.backends.cudnn
    before = (matmul.allow_tf32, convolution.allow_tf32, convolution.deterministic)
    matmul.allow_tf32 = False
    convolution.allow_tf32 = False
    convolution.deterministic = True
    try:
        yield
    finally:
        matmul.allow_tf32, convolution.allow_tf32, convolution.deterministic = before
