"""The user's own data, model, loss and metric, as a command or a replay gets them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privplan.errors import InputError, NotGivenError
from privplan.plan import Plan
from privplan.record import ACCURACY, CLIENTS, RunRecord
from simulate.data.dataset import Dataset
from simulate.data.own import Data
from simulate.data.partition.clients import ClientPartition, parts_by_group, seated
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load
from simulate.models.network import Model
from simulate.models.own import OwnModel, require_no_random_layers
from simulate.models.registry import model
from simulate.models.start import started
from simulate.tasks import MULTI_CLASS, Metric, is_accuracy, metric_of, objective_of


@dataclass(frozen=True)
class RunParts:
    """What a run is given."""

    data: Dataset
    partition: ClientPartition  # the records of each client
    model: Model
    metric: Metric | None  # None for the accuracy of classification


@dataclass(frozen=True)
class OwnParts:
    """What a run on own data or an own model is given.

    Nothing is imported from a run folder.
    """

    data: Data | None = None  # None for a registered data set
    model: OwnModel | None = None  # None for a registered one
    loss: Any = None  # the task's own when None
    metric: Any = None  # the task's default when None

    @property
    def task(self) -> str:
        """Name of the task that the data are labelled for."""
        if self.data is None:
            return MULTI_CLASS
        return self.data.task

    def parts_of(
        self, record: RunRecord, plan: Plan, data_dir: Path | None, folder: Path
    ) -> RunParts:
        """The data set, the clients' records, the model and the metric of a run.

        Args:
            record: of the run.
            plan: that it executed.
            data_dir: folder of data sets; PRIVPLAN_DATA when None.
            folder: the run folder, which holds initial parameters.

        Raises:
            InputError: when something is not what the run had.
        """
        task = str(record.configuration.get("task", self.task))
        if self._has_data_of(record) and self.task != task:
            rule = f"must be that of the run, with --task {task} beside --data"
            raise InputError.one("task", rule, self.task)
        metric = self.metric_of(record)
        data, assigned = self.data_of(record, plan, data_dir)
        trained = self.model_of(record, data)
        if record.noise != "seeded" and plan.unit == "record":
            require_no_random_layers(trained)
        begun = started(trained, plan.spec.model.initial, folder)
        if begun.parameters != plan.spec.model.parameters:
            rule = f"must be {plan.spec.model.name}, as planned"
            raise InputError.one("record.model", rule, record.model)
        return RunParts(data, assigned, begun, metric)

    def _has_data_of(self, record: RunRecord) -> bool:
        """Whether the data of a run are given, or registered."""
        return self.data is not None or not record.is_on_own_data

    def data_of(
        self, record: RunRecord, plan: Plan, data_dir: Path | None
    ) -> tuple[Dataset, ClientPartition]:
        """The data set of a run, and the records of each client."""
        assigned: ClientPartition | None = None
        if self.data is not None:
            if not record.is_on_own_data:
                rule = "must be left out for a run that names a registered data set"
                raise InputError.one("data", rule, record.dataset)
            if record.noise != "seeded":
                by_record = plan.unit == "record"
                self.data.require_separate_preparation(by_record=by_record)
            data, assigned = self.data.prepared(plan.groups)
        elif record.is_on_own_data:
            if not record.configuration.get("own_data"):
                # The run names its data as public ones: nobody would be asked for them.
                rule = "must be registered by privplan or an installed package"
                raise InputError.one("dataset", rule, record.dataset)
            rule = "must be given again for a run on own data, with --data"
            raise NotGivenError.one("data", rule, "none")
        else:
            data = load(record.dataset, data_dir)
        expected = record.configuration.get("data")
        if data.digest != expected:
            # Own data are another data set where they are read in another way.
            options = ""
            if assigned is not None:
                options = (
                    ", read with the options it had "
                    "(--features, --statistics, --test, --test-share)"
                )
            rule = f"must be the data of the run{options}, digest {expected}"
            raise InputError.one("dataset", rule, data.digest)
        is_split = self.data is not None and self.data.test is None
        if is_split and record.configuration.get("test") == "others":
            rule = "must be left out, as the test records are of the clients themselves"
            raise InputError.one("record.configuration.test", rule, "others")
        if assigned is not None and record.partition != CLIENTS:
            rule = f"must be {CLIENTS}, as the data name the client of each record"
            raise InputError.one("record.partition", rule, record.partition)
        if assigned is None:
            assigned = partition(
                scheme(record.partition),
                data.train_labels.numpy(),
                plan.groups,
                record.simulation_seed,
                data.train_people,
            )
        assigned = seated(assigned, plan)
        sizes_of_parts = parts_by_group(assigned, plan)
        # Records of version 0.1 do not have them.
        if record.parts and record.parts != sizes_of_parts:
            rule = "must be the parts in which the law seats the clients"
            raise InputError.one("record.parts", rule, "others")
        return data, assigned

    def model_of(self, record: RunRecord, data: Dataset) -> Model:
        """The model of a run."""
        has_own_loss = bool(record.configuration.get("own_loss"))
        if self.loss is not None and not has_own_loss:
            rule = "must be left out for a run of a task's loss"
            raise InputError.one("loss", rule, self.loss)
        expected = record.configuration.get("own_model")
        if self.model is None:
            if expected is not None:
                rule = "must be given again for a run of an own model, with --model"
                raise NotGivenError.one("model", rule, "none")
            return model(record.model)
        if self.model.digest() != expected:
            raise InputError.one(
                "model", "must be the model of the run", self.model.label
            )
        if self.loss is None and has_own_loss:
            rule = "must be given again for a run of an own loss, with --loss"
            raise NotGivenError.one("loss", rule, "none")
        objective = objective_of(self.task, self.loss, data.targets)
        return self.model.model(record.model, data, objective=objective)

    def metric_of(self, record: RunRecord) -> Metric | None:
        """The run's metric; None for the accuracy of classification.

        One of the task's needs not be named again.
        """
        chosen = self.metric
        if chosen is None and record.configuration.get("task_metric"):
            chosen = record.metric
        metric = None
        name = ACCURACY
        if not is_accuracy(self.task, chosen):
            metric = metric_of(self.task, chosen)
            name = metric.name
        if self._has_data_of(record) and name != record.metric:
            rule = f"must be {record.metric}, as in the run, by --metric beside --data"
            kind = NotGivenError if self.metric is None else InputError
            raise kind.one("metric", rule, name)
        return metric
