"""The user's own data, model, loss and metric, given to a command, or again to a replay."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.record import ACCURACY, RunRecord
from simulate.data.dataset import Dataset
from simulate.data.own import Data
from simulate.data.partition.clients import ClientPartition
from simulate.data.registry import DATASETS, load
from simulate.models.network import Model
from simulate.models.own import OwnModel
from simulate.models.registry import model
from simulate.tasks import MULTI_CLASS, Metric, is_accuracy, metric_of, objective_of


@dataclass(frozen=True)
class OwnParts:
    """What a run on own data or an own model is given; nothing is imported from a run folder.

    Attributes:
        data: the data; None for a registered data set.
        model: the model; None for a registered one.
        loss: the loss; None for the task's own.
        metric: the metric; None for the task's default.
    """

    data: Data | None = None
    model: OwnModel | None = None
    loss: Any = None
    metric: Any = None

    @property
    def task(self) -> str:
        """Name of the task that the data are labelled for."""
        return MULTI_CLASS if self.data is None else self.data.task

    def data_of(
        self, record: RunRecord, plan: Plan, data_dir: Path | None
    ) -> tuple[Dataset, ClientPartition | None]:
        """The data set of a run, and its clients where own data name them.

        Raises:
            InputError: when a run on own data is not given them.
        """
        if self.data is not None:
            return self.data.prepared(plan.groups)
        if record.dataset not in DATASETS and "own_model" in record.configuration:
            rule = "must be given again for a run on own data, with --data"
            raise InputError.one("data", rule, "none")
        return load(record.dataset, data_dir), None

    def model_of(self, record: RunRecord, data: Dataset) -> Model:
        """The model of a run.

        Raises:
            InputError: when it differs from the run's.
        """
        expected = record.configuration.get("own_model")
        if self.model is None:
            if expected is not None:
                rule = "must be given again for a run of an own model, with --model"
                raise InputError.one("model", rule, "none")
            return model(record.model)
        if self.model.digest() != expected:
            raise InputError.one("model", "must be the model of the run", self.model.label)
        objective = objective_of(self.task, self.loss, data.targets)
        return self.model.model(record.model, data, objective=objective)

    def metric_of(self, record: RunRecord) -> Metric | None:
        """The run's metric; None for the accuracy of classification.

        Raises:
            InputError: when it differs from the run's.
        """
        plain = is_accuracy(self.task, self.metric)
        metric = None if plain else metric_of(self.task, self.metric)
        found = ACCURACY if metric is None else metric.name
        if self.data is not None and found != record.metric:
            raise InputError.one("metric", f"must be {record.metric}, as in the run", found)
        return metric
