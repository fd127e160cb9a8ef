"""``simulate --track``: metrics for TensorBoard, MLflow and Weights & Biases."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privplan.files import write_text
from privplan.plan import Plan
from privplan.record import RunRecord
from simulate.tracking import Tracker


def configuration(plan: Plan, record: RunRecord) -> dict[str, Any]:
    """What identifies a run, as flat names and values."""
    spec = plan.spec
    return {
        "plan": spec.name,
        "plan_digest": plan.digest,
        "algorithm": record.algorithm,
        "dataset": record.dataset,
        "partition": record.partition,
        "model": record.model,
        "seed": record.seed,
        "rounds": spec.rounds,
        "sampling": spec.laws,
        "relation": str(spec.relation),
        "delta": max(group.delta for group in plan.groups),
        **{f"budget.{group.name}": group.epsilon for group in plan.groups},
    }


class TensorBoard(Tracker):
    """Event files for ``tensorboard --logdir RUN/tracking/tensorboard``."""

    package = "tensorboard"
    module = "torch.utils.tensorboard"

    _writer: Any = None

    def on_start(self, plan: Plan, record: RunRecord) -> None:
        """Continue after the round that the run resumes from.

        Later events are discarded.
        """
        purge = record.rounds_done + 1 if record.rounds_done else None
        self._writer = self._library.SummaryWriter(str(self._folder), purge_step=purge)
        text = json.dumps(configuration(plan, record), indent=1)
        self._writer.add_text("configuration", f"```\n{text}\n```", record.rounds_done)

    def write(
        self, values: Mapping[str, float], round_: int, *, final: bool = False
    ) -> None:
        """Write metrics at a round."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, round_)

    def close(self) -> None:
        """Write what is buffered."""
        if self._writer is not None:
            self._writer.close()


class MLflow(Tracker):
    """A run in the MLflow store of MLFLOW_TRACKING_URI, by default in the run folder.

    ``mlflow ui --backend-store-uri RUN/tracking/mlflow`` shows the default one.
    """

    package = "mlflow"
    module = "mlflow.tracking"
    experiment = "privplan"
    # File of the identifier of the run in the store, by which a resumed run goes on.
    run_id = "run-id.txt"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        address = os.environ.get("MLFLOW_TRACKING_URI")
        if not address:
            address = folder.absolute().as_uri()
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client: Any = self._library.MlflowClient(tracking_uri=address)
        self._run = ""
        self._status = "KILLED"

    def on_start(self, plan: Plan, record: RunRecord) -> None:
        """Create the run, or continue the one that the folder names."""
        path = self._folder / self.run_id
        if path.exists() and record.rounds_done:
            self._run = path.read_text(encoding="utf-8").strip()
            self._client.update_run(self._run, status="RUNNING")
            return
        experiment = self._client.get_experiment_by_name(self.experiment)
        if experiment:
            experiment_id = experiment.experiment_id
        else:
            experiment_id = self._client.create_experiment(self.experiment)
        name = f"{record.algorithm}, {record.dataset}, seed {record.seed}"
        run = self._client.create_run(experiment_id, run_name=name)
        self._run = run.info.run_id
        write_text(path, self._run + "\n")
        for key, value in configuration(plan, record).items():
            self._client.log_param(self._run, _allowed(key), value)

    def write(
        self, values: Mapping[str, float], round_: int, *, final: bool = False
    ) -> None:
        """Write metrics at a round."""
        for name, value in values.items():
            self._client.log_metric(self._run, _allowed(name), value, step=round_)
        if final:
            self._status = "FINISHED"

    def close(self) -> None:
        """End the run in the store."""
        if self._run:
            self._client.set_terminated(self._run, status=self._status)


def _allowed(name: str) -> str:
    """A name without the characters that MLflow refuses."""
    return re.sub(r"[^\w./ -]", "_", name)


class WeightsAndBiases(Tracker):
    """A Weights & Biases run, offline in the run folder.

    ``wandb sync RUN/tracking/wandb/wandb/offline-run-*`` uploads it. WANDB_MODE=online
    sends it at once, WANDB_PROJECT names another project.
    """

    package = "wandb"
    module = "wandb"

    _run: Any = None

    def on_start(self, plan: Plan, record: RunRecord) -> None:
        """Start the run; a resumed one has the same identifier.

        So both parts are one run after the upload.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        identifier = f"{record.algorithm}-{record.seed}-{plan.digest[:12]}"
        self._run = self._library.init(
            project=os.environ.get("WANDB_PROJECT", "privplan"),
            dir=str(self._folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            id=identifier.replace("+", "plus"),
            resume="allow",
            config=configuration(plan, record),
            settings=self._library.Settings(silent=True, console="off"),
        )

    def write(
        self, values: Mapping[str, float], round_: int, *, final: bool = False
    ) -> None:
        """Write metrics at a round; the final ones are the run's summary."""
        if self._run is not None and final:
            self._run.summary.update(values)
        elif self._run is not None:
            self._run.log(values, step=round_)

    def close(self) -> None:
        """Finish the run on disk."""
        if self._run is not None:
            self._run.finish()
