"""The request of a run: its parameters, their checks, and the experiment that they describe."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from privplan.errors import InputError
from privplan.ledger import Witnessing
from privplan.plan import Plan
from privplan.record import RECORD
from privplan.streams import NoiseKey, key_beside
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters, algorithm
from simulate.data.dataset import Dataset, validation_split
from simulate.data.own import Data
from simulate.data.partition.clients import ClientPartition, seated
from simulate.data.partition.schemes import Scheme, partition, require_disjoint, scheme
from simulate.data.registry import load
from simulate.engine.experiment import Experiment
from simulate.models.own import OwnModel
from simulate.models.registry import MODELS, model
from simulate.parallel import SINGLE_PROCESS, Ranks, all_gather, device_of, on_all_ranks
from simulate.tasks import MULTI_CLASS, Metric, is_accuracy, metric_of, objective_of
from simulate.tracking import require_trackers

VALIDATION_SEED = 0  # seed of the validation split, the same for all methods and seeds
NOISES = ("seeded", "secure", "secure-discrete")
"""Kinds of noise: of the seed, of a secret key, and of a secret key on a grid."""


@dataclass(frozen=True)
class Request:
    """Parameters of a run."""

    plan: Plan
    algorithm: str
    dataset: str
    folder: Path  # the run folder
    seed: int = 0
    device: str = "auto"  # or cpu, cuda
    partition: str = "iid"  # of the records over clients, such as dirichlet:0.3
    hyperparameters: Hyperparameters = field(default_factory=Hyperparameters)
    data_dir: Path | None = None  # PRIVPLAN_DATA or the user's cache when None
    download: bool = False  # whether missing data may be downloaded
    canaries: int = 0  # audit canaries per group, in addition to the plan's clients
    own_data: Data | None = (
        None  # instead of dataset; data that name clients have no partition
    )
    own_model: OwnModel | None = None  # under the plan's name of the model
    loss: Any = None  # as simulate.tasks.objective_of takes it
    metric: Any = None  # as simulate.tasks.metric_of takes it
    track: tuple[str, ...] = ()  # names of trackers
    # one of NOISES; if left out secure for own data, whose people are to be protected, else seeded
    noise: str | None = None
    # where the key of a new run is written, or read to continue a run; None for beside the folder
    noise_key_file: Path | None = None
    witnessing: Witnessing | None = None  # opens what testifies to the run
    # share of the training records that stand in for the test records, in tuning
    validation_share: float | None = None
    # whether hyperparameters were chosen by scores on other runs' data
    tuned: bool = False
    # whether a method that protects records may plan by itself under a plan that protects clients
    own_unit: bool = False

    @property
    def task(self) -> str:
        """Name of the task that the data are labelled for."""
        return MULTI_CLASS if self.own_data is None else self.own_data.task

    @property
    def source_of_noise(self) -> str:
        """The kind of noise, one of NOISES where it is known."""
        return self.noise or NOISES[self.own_data is not None]

    @property
    def key_file(self) -> Path | None:
        """Where the key of the noise is kept; None for seeded noise."""
        seeded = self.source_of_noise == NOISES[0]
        return self.noise_key_file or (None if seeded else key_beside(self.folder))

    @property
    def partition_name(self) -> str:
        """Name of the partition in the record: ``clients`` where the data name clients."""
        named = self.own_data is not None and self.own_data.clients is not None
        return "clients" if named else self.partition


def prepare(request: Request, ranks: Ranks = SINGLE_PROCESS) -> Experiment:
    """Build the experiment of a request; all checks precede the first write."""
    entry, own = ALGORITHMS.get(request.algorithm), request.own_model
    chosen, key = scheme(request.partition), _noise_key(request, ranks)
    if request.witnessing is not None:
        request.witnessing.check(request.plan)
    require_trackers(request.track)
    entry.complete(request.hyperparameters)
    metric = _metric(request)
    if own is None:
        _check_model(request.plan.spec.model.name)
    device = device_of(request.device, ranks)
    data, assigned = _data(request, chosen)
    unit = entry.unit_under(request.plan)
    if unit == "record" and request.plan.unit != unit and not request.own_unit:
        rule = f"must be record for {entry.name}, which protects single records: write unit: record"
        raise InputError.one("plan.unit", f"{rule} in the spec", request.plan.unit)
    if unit == "record":
        require_disjoint(request.algorithm, chosen, assigned, len(data.train_y))
    records = None
    if entry.unit == "record":
        # The least number of records of a client per group. A plan that uses it makes it public:
        # in a deployment it is known beforehand, and a simulation takes it from the partition.
        members = zip(request.plan.groups, assigned.members, strict=True)
        records = {
            group.name: int(assigned.sizes(part).min()) for group, part in members
        }
    built = algorithm(request.algorithm, request.plan, request.hyperparameters, records)
    name = built.plan.spec.model.name
    if own is None:
        network = model(name)
    elif _built_in(name):
        rule = "must not be the name of a built-in model when an own model is trained"
        raise InputError.one("model.name", rule, name)
    else:
        network = own.model(
            name,
            data,
            objective=objective_of(request.task, request.loss, data.targets),
            vectorised=unit == "record" or device.type != "cpu",
            by_record=unit == "record",
        )
    return Experiment(
        built, network, data, assigned, request.seed, device, ranks=ranks,
        canaries=request.canaries, metric=metric, key=key,
        discrete=request.source_of_noise == NOISES[2],
    )  # fmt: skip


def _metric(request: Request) -> Metric | None:
    """The run's metric; None for the accuracy of classification."""
    if request.own_model is None:
        for name, value in (("loss", request.loss), ("metric", request.metric)):
            if value is not None:
                raise InputError.one(name, "is only for own models", str(value))
        if request.task != MULTI_CLASS:
            raise InputError.one(
                "task", "must be multi-class for built-in models", request.task
            )
    plain = is_accuracy(request.task, request.metric)
    return None if plain else metric_of(request.task, request.metric)


def _noise_key(request: Request, ranks: Ranks) -> NoiseKey | None:
    """The key of the noise: read for a run that exists, else new; None for seeded noise.

    A key is for one run: two runs with one key may share noise. The main rank sends it to the
    others by the channel on which they send sums without noise.
    """
    if request.source_of_noise not in NOISES:
        raise InputError.one(
            "noise", f"must be one of {', '.join(NOISES)}", request.noise
        )
    if request.source_of_noise == NOISES[0]:
        if request.noise_key_file is not None:
            found = str(request.noise_key_file)
            raise InputError.one("noise-key-file", "is only for --noise secure", found)
        return None

    def own() -> list[bytes]:
        path = request.key_file
        if not ranks.is_main or path is None:
            return []
        if (request.folder / RECORD).exists():
            return [NoiseKey.load(path).content]
        if path.exists():
            rule = "must be a new file for a new run, since a key is for one run; move the old one"
            raise InputError.one("noise-key-file", rule, str(path))
        return [NoiseKey.new().content]

    [content] = all_gather(ranks, on_all_ranks(ranks, own), torch.device("cpu"))
    return NoiseKey(content)


def _data(request: Request, chosen: Scheme) -> tuple[Dataset, ClientPartition]:
    """The data set, and the records of each client."""
    groups = request.plan.groups
    assigned: ClientPartition | None = None
    if request.own_data is None:
        data = load(request.dataset, request.data_dir, request.download)
    else:
        data, assigned = request.own_data.prepared(groups)
    if request.validation_share is not None:
        if assigned is not None or data.targets is not None:
            rule = (
                "must be left out with own data that name clients, or of another task"
            )
            raise InputError.one("tune", rule, request.partition_name)
        data = validation_split(data, request.validation_share, VALIDATION_SEED)
    if assigned is None:
        labels, people = data.train_labels.numpy(), data.train_people
        assigned = partition(chosen, labels, groups, request.seed, people)
    elif request.partition != "iid":
        rule = "must be left out with data that name the client of each record"
        raise InputError.one("partition", rule, request.partition)
    return data, seated(assigned, request.plan)


def _built_in(name: str) -> bool:
    return name.partition(":")[0] in MODELS.names()


def _check_model(name: str) -> None:
    """Raise where no registered model has the name."""
    try:
        model(name)
    except InputError as error:
        [fault] = error.faults
        if _built_in(name):
            raise
        rule = f"{fault.rule}, or the plan's name of your own model, given with --model"
        raise InputError.one(fault.field, rule, name) from None
