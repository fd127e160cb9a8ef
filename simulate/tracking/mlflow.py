"""``--track mlflow``: a run in an MLflow store, by default in the run folder.

MLFLOW_TRACKING_URI names another store. ``mlflow ui --backend-store-uri RUN/tracking/mlflow``
shows the default one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privplan.files import write_text
from privplan.plan import Plan
from privplan.record import RunRecord
from simulate.tracking.callback import (
    TRACKERS,
    Callback,
    configuration,
    final_values,
    missing,
    round_values,
)

EXPERIMENT = "privplan"
RUN_ID = "run-id.txt"
"""File with the identifier of the run in the store, by which a resumed run continues it."""


_FORBIDDEN = re.compile(r"[^\w./ -]")
"""Characters that names of metrics must not have."""


class MLflow(Callback):
    """Writes parameters, and metrics by round.

    Args:
        folder: folder of the store, and of the run's identifier.

    Raises:
        InputError: when mlflow is not installed.
    """

    package = "mlflow"

    def __init__(self, folder: Path) -> None:
        try:
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise missing("mlflow", "mlflow") from None
        self._folder = folder
        address = os.environ.get("MLFLOW_TRACKING_URI")
        if not address:
            address = folder.absolute().as_uri()
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client: Any = MlflowClient(tracking_uri=address)
        self._run = ""
        self._status = "KILLED"

    def on_start(self, plan: Plan, record: RunRecord) -> None:
        """Create the run, or continue the one that the folder names."""
        known = self._folder / RUN_ID
        if known.exists() and record.rounds_done:
            self._run = known.read_text(encoding="utf-8").strip()
            self._client.update_run(self._run, status="RUNNING")
            return
        found = self._client.get_experiment_by_name(EXPERIMENT)
        made = found.experiment_id if found else self._client.create_experiment(EXPERIMENT)
        name = f"{record.algorithm}, {record.dataset}, seed {record.seed}"
        self._run = self._client.create_run(made, run_name=name).info.run_id
        write_text(known, self._run + "\n")
        for key, value in configuration(plan, record).items():
            self._client.log_param(self._run, _FORBIDDEN.sub("_", key), value)

    def on_round(self, record: RunRecord) -> None:
        """Write the metrics of the round."""
        for name, value in round_values(record).items():
            self._client.log_metric(self._run, name, value, step=record.rounds_done)

    def on_end(self, record: RunRecord, spent: Mapping[str, float]) -> None:
        """Write the final metrics at the last round."""
        for name, value in final_values(record, spent).items():
            name = _FORBIDDEN.sub("_", name)
            self._client.log_metric(self._run, name, value, step=record.rounds_done)
        self._status = "FINISHED"

    def close(self) -> None:
        """End the run in the store."""
        if self._run:
            self._client.set_terminated(self._run, status=self._status)


TRACKERS.register("mlflow", MLflow)
