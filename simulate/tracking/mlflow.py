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
from simulate.tracking.callback import TRACKERS, Tracker, configuration

EXPERIMENT = "privplan"
RUN_ID = "run-id.txt"
"""File with the identifier of the run in the store, by which a resumed run continues it."""


_FORBIDDEN = re.compile(r"[^\w./ -]")
"""Characters that names of metrics must not have."""


class MLflow(Tracker):
    """Writes parameters, and metrics by round."""

    package, module = "mlflow", "mlflow.tracking"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        address = os.environ.get("MLFLOW_TRACKING_URI")
        if not address:
            address = folder.absolute().as_uri()
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client: Any = self._library.MlflowClient(tracking_uri=address)
        self._run, self._status = "", "KILLED"

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

    def write(self, values: Mapping[str, float], round_: int, *, final: bool = False) -> None:
        """Write metrics at a round."""
        for name, value in values.items():
            self._client.log_metric(self._run, _FORBIDDEN.sub("_", name), value, step=round_)
        self._status = "FINISHED" if final else self._status

    def close(self) -> None:
        """End the run in the store."""
        if self._run:
            self._client.set_terminated(self._run, status=self._status)


TRACKERS.register("mlflow", MLflow)
