"""The request of a run: its parameters, their checks, and the experiment described."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.public_data import has_known_records
from privplan.record import CLIENTS, RECORD, RunRecord
from privplan.secure_stream import NoiseKey, key_beside
from privplan.values import SMALLEST
from privplan.witness import Witnessing
from simulate.algorithms.registry import (
    ALGORITHMS,
    AlgorithmEntry,
    Hyperparameters,
    algorithm,
)
from simulate.data.dataset import Dataset
from simulate.data.own import Data
from simulate.data.partition.clients import ClientPartition, seated
from simulate.data.partition.schemes import Scheme, partition, require_disjoint, scheme
from simulate.data.registry import load
from simulate.data.subsets import validation_split
from simulate.engine.evaluation import measure
from simulate.engine.experiment import Experiment
from simulate.models.network import Model
from simulate.models.own import OwnModel, require_no_random_layers
from simulate.models.registry import MODELS, model
from simulate.parallel import SINGLE_PROCESS, Ranks, all_gather, device_of, on_all_ranks
from simulate.tasks import MULTI_CLASS, Metric, is_accuracy, metric_of, objective_of
from simulate.tracking import require_trackers

TRIED_RECORDS = 1000  # test records on which a user's metric is tried
# Calls of a user's metric with the same outputs: a draw that torch does not see may
# give the same value twice.
METRIC_CALLS = 5
VALIDATION_SEED = 0  # seed of the validation split, the same for all methods and seeds
SEEDED = "seeded"
SECURE_DISCRETE = "secure-discrete"
NOISES = (SEEDED, "secure", SECURE_DISCRETE)
"""Kinds of noise: of the seed, of a secret key, and of a secret key on a grid."""


@dataclass(frozen=True)
class Request:
    """Parameters of a run.

    Attributes:
        plan: what is executed.
        algorithm: its name.
        dataset: name of the data set, unless ``own_data`` stands in for it.
        folder: the run folder.
        seed: of partition, cohorts, training and seeded noise.
        device: auto, cpu, cuda or cuda:N.
        partition: of the records over clients, such as dirichlet:0.3.
        hyperparameters: those that differ from the algorithm's defaults.
        data_dir: of the data; PRIVPLAN_DATA or the user's cache when None.
        download: whether missing data may be downloaded.
        canaries: audit canaries per group, in addition to the plan's clients.
        own_data: instead of ``dataset``; data that name clients have no partition.
        own_model: under the plan's name of the model.
        loss: as ``simulate.tasks.objective_of`` takes it.
        metric: as ``simulate.tasks.metric_of`` takes it.
        track: names of trackers.
        noise: one of ``NOISES``; if left out secure for own data, whose people are to
            be protected, else seeded.
        noise_key_file: where the key of a new run is written, or read to continue a
            run; beside the folder when None.
        witnessing: opens what testifies to the run.
        validation_share: share of the training records that stand in for the test
            records, in tuning.
        tuned: whether hyperparameters were chosen by scores on other runs' data.
        own_unit: whether a method that protects records may plan by itself under a plan
            that protects clients.
        commit_every: after how many rounds ledger and evidence are put on disk. No
            result depends on it; a machine that goes down may lose so many rounds.
    """

    plan: Plan
    algorithm: str
    dataset: str
    folder: Path
    seed: int = 0
    device: str = "auto"
    partition: str = "iid"
    hyperparameters: Hyperparameters = field(default_factory=Hyperparameters)
    data_dir: Path | None = None
    download: bool = False
    canaries: int = 0
    own_data: Data | None = None
    own_model: OwnModel | None = None
    loss: Any = None
    metric: Any = None
    track: tuple[str, ...] = ()
    noise: str | None = None
    noise_key_file: Path | None = None
    witnessing: Witnessing | None = None
    validation_share: float | None = None
    tuned: bool = False
    own_unit: bool = False
    commit_every: int = 1

    @property
    def task(self) -> str:
        """Name of the task that the data are labelled for."""
        if self.own_data is None:
            return MULTI_CLASS
        return self.own_data.task

    @property
    def source_of_noise(self) -> str:
        """The kind of noise, one of ``NOISES`` where it is known."""
        if self.noise:
            return self.noise
        if self.own_data is None:
            return SEEDED
        return "secure"

    @property
    def key_file(self) -> Path | None:
        """Where the key of the noise is kept; None for seeded noise."""
        if self.noise_key_file is None and self.source_of_noise != SEEDED:
            return key_beside(self.folder)
        return self.noise_key_file

    @property
    def partition_name(self) -> str:
        """Name of the partition in the record."""
        if self.own_data is not None and self.own_data.clients is not None:
            return CLIENTS
        return self.partition


def prepare(request: Request, ranks: Ranks = SINGLE_PROCESS) -> Experiment:
    """Build the experiment of a request; all checks precede the first write.

    Raises:
        InputError: for a fault in the request, its data, its model or the folder's key.
    """
    entry = ALGORITHMS.get(request.algorithm)
    chosen_scheme = scheme(request.partition)
    key = _noise_key(request, ranks)
    if request.witnessing is not None:
        request.witnessing.check(request.plan)
    _check_commits(request)
    _check_learning_rate(request.plan)
    require_trackers(request.track)
    entry.complete(request.hyperparameters)
    metric = _metric(request)
    if request.own_model is None:
        _check_model(request.plan.spec.model.name)
    device = device_of(request.device, ranks)
    data, assigned = _data(request, chosen_scheme)
    by_record = entry.unit_under(request.plan) == "record"
    if request.source_of_noise != SEEDED:
        require_own_or_published(request, by_record)
    if by_record:
        _check_unit(request, entry)
        require_disjoint(request.algorithm, chosen_scheme, assigned, len(data.train_y))
    records = None
    if entry.unit == "record":
        records = _lowest_records(request.plan, assigned)
    built = algorithm(request.algorithm, request.plan, request.hyperparameters, records)
    _require_releases_of_book(request, entry, built.plan)
    network = _network(
        request,
        built.plan.spec.model.name,
        data,
        vectorised=by_record or device.type != "cpu",
        by_record=by_record,
    )
    if request.source_of_noise != SEEDED and by_record:
        require_no_random_layers(network)
    if metric is not None and callable(request.metric):
        _try_metric(metric, network, data)
    return Experiment(
        built,
        network,
        data,
        assigned,
        request.seed,
        device,
        ranks=ranks,
        canaries=request.canaries,
        metric=metric,
        key=key,
        discrete=request.source_of_noise == SECURE_DISCRETE,
    )


def _require_releases_of_book(
    request: Request, entry: AlgorithmEntry, executed: Plan
) -> None:
    """Raise where a plan from a book would be spent by releases that are not its own.

    The book left room for the plan's releases. Those of another method may spend as
    much by themselves, and more together with what the book holds.
    """
    plan = request.plan
    if plan.book is None:
        return
    booked = {group.name: plan.history(group) for group in plan.groups}
    released = {group.name: executed.history(group) for group in executed.groups}
    if entry.unit_under(plan) != plan.unit or released != booked:
        rule = (
            "must release what its plan does, which was composed with a book; solve "
            "without --from-book to compare methods, as a simulation"
        )
        raise InputError.one("algorithm", rule, request.algorithm)


def _check_learning_rate(plan: Plan) -> None:
    """Raise where the last rounds would train by less than a float32 can tell."""
    local = plan.spec.local
    last = local.learning_rate * local.learning_rate_decay ** (plan.spec.rounds - 1)
    if last < SMALLEST:
        rule = (
            f"must leave a learning rate of {SMALLEST:g} or more in the last round, "
            f"which is {last:.3g}"
        )
        raise InputError.one(
            "plan.local.learning_rate_decay", rule, local.learning_rate_decay
        )


def _check_commits(request: Request) -> None:
    """Raise where a round may be seen before its ledger is on disk."""
    if request.commit_every == 1:
        return
    seen = request.own_data is not None or request.track or request.witnessing
    if request.commit_every < 1 or seen:
        rule = (
            "must be 1 or more, and 1 with own data, a tracker or a witness, "
            "which may show a round before the run ends"
        )
        raise InputError.one("commit-every", rule, request.commit_every)


def _try_metric(metric: Metric, network: Model, data: Dataset) -> None:
    """Raise before the first round where a user's metric fails or is not repeated.

    Between calls with the same outputs it gets others, which must leave nothing in it.
    """
    theta = network.initial(torch.Generator().manual_seed(0))
    rows = torch.arange(min(TRIED_RECORDS, len(data.test_y)))
    measure(network, theta, data, rows=rows, metric=metric)

    with torch.no_grad():
        outputs = network.logits(theta, data.inputs(data.test_x[rows]))
    targets = network.objective.targets_of(data.test_y[rows])
    process = torch.default_generator.get_state()
    values = list[float]()
    for shift in range(METRIC_CALLS):
        values.append(metric(outputs.clone(), targets))
        metric(outputs.roll(shift + 1, 0), targets)
    has_drawn = not torch.equal(process, torch.default_generator.get_state())
    if has_drawn or not np.allclose(values, values[0], equal_nan=True):
        rule = "must give the same value each time, without random numbers and earlier calls"
        raise InputError.one("metric", rule, metric.name)


def _check_unit(request: Request, entry: AlgorithmEntry) -> None:
    """Raise where a method would protect records under a plan that protects clients."""
    if request.plan.unit != "record" and not request.own_unit:
        rule = (
            f"must be record for {entry.name}, which protects single records: "
            "write unit: record in the spec"
        )
        raise InputError.one("plan.unit", rule, request.plan.unit)
    is_private = request.own_data is not None and request.source_of_noise != SEEDED
    if request.plan.unit != "record" and is_private:
        rule = (
            f"must be record for {entry.name} and secure noise, since its own plan under "
            "this one follows from the client with the fewest records"
        )
        raise InputError.one("plan.unit", rule, request.plan.unit)


def _lowest_records(plan: Plan, assigned: ClientPartition) -> dict[str, int]:
    """The least number of records of a client, by group.

    A plan that uses it makes it public: in a deployment it is known beforehand, and a
    simulation takes it from the partition.
    """
    clients_of_groups = zip(plan.groups, assigned.members, strict=True)
    return {
        group.name: int(assigned.sizes(clients).min())
        for group, clients in clients_of_groups
    }


def _network(
    request: Request, name: str, data: Dataset, *, vectorised: bool, by_record: bool
) -> Model:
    """The model that is trained, under the plan's name of it."""
    if request.own_model is None:
        return model(name)
    if _built_in(name):
        rule = "must not be the name of a built-in model when an own model is trained"
        raise InputError.one("model.name", rule, name)
    return request.own_model.model(
        name,
        data,
        objective=objective_of(request.task, request.loss, data.targets),
        vectorised=vectorised,
        by_record=by_record,
    )


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
    if plain:
        return None
    return metric_of(request.task, request.metric)


def _noise_key(request: Request, ranks: Ranks) -> NoiseKey | None:
    """The key of the noise: read for a run that exists, else new; None if seeded.

    A key is for one run: two runs with one key may share noise. The main rank sends it
    to the others by the channel on which they send sums without noise.
    """
    if request.source_of_noise not in NOISES:
        raise InputError.one(
            "noise", f"must be one of {', '.join(NOISES)}", request.noise
        )
    if request.source_of_noise == SEEDED:
        if request.noise_key_file is not None:
            path = str(request.noise_key_file)
            raise InputError.one("noise-key-file", "is only for --noise secure", path)
        return None

    def key_of_main_rank() -> list[bytes]:
        """What this process contributes: the key on the main rank, else nothing."""
        path = request.key_file
        if not ranks.is_main or path is None:
            return []
        if (request.folder / RECORD).exists():
            return [_key_of_run(request.folder, path).content]
        if path.exists():
            rule = (
                "must be a new file for a new run, since a key is for one run; "
                "move the old one"
            )
            raise InputError.one("noise-key-file", rule, str(path))
        return [NoiseKey.new().content]

    contributed = on_all_ranks(ranks, key_of_main_rank)
    [content] = all_gather(ranks, contributed, torch.device("cpu"))
    return NoiseKey(content)


def _key_of_run(folder: Path, path: Path) -> NoiseKey:
    """The key of the run in a folder.

    A run with seeded noise has none: whoever asks for secure noise asks for another
    run, which a new key lets the folder say.
    """
    if RunRecord.load(folder).configuration.get("noise_commitment") is None:
        return NoiseKey.new()
    if not path.exists():
        rule = (
            f"must be a file that can be read: the key of the run in {folder}; "
            "or choose another folder (-o, folder=)"
        )
        raise InputError.one("noise-key-file", rule, str(path))
    return NoiseKey.load(path)


def require_own_or_published(request: Request, by_record: bool) -> None:
    """Refuse noise that protects people in data that prepare one by another.

    People of a data set with a name are numbered by who else is in its files. Of a
    published one nobody can change the files.
    """
    if request.own_data is not None:
        request.own_data.require_separate_preparation(by_record=by_record)
    elif not has_known_records(request.dataset):
        rule = (
            "must be seeded on a data set whose files anybody may fill; people's records "
            "are own data with a client's name each (--data)"
        )
        raise InputError.one("noise", rule, f"{request.noise} on {request.dataset}")


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
        labels = data.train_labels.numpy()
        assigned = partition(chosen, labels, groups, request.seed, data.train_people)
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
        rule = (
            "must be that of your own model, given with --model MODULE:CLASS; else it "
            f"{fault.rule}"
        )
        raise InputError.one(fault.field, rule, name) from None
