"""``simulate --track``: metrics for TensorBoard, MLflow and Weights & Biases, offline."""

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

    package, module = "tensorboard", "torch.utils.tensorboard"

    _writer: Any = None

    def on_start(self, plan: Plan, record: RunRecord) -> None:
        """Continue after the round that the run resumes from; later events are discarded."""
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

    package, module = "mlflow", "mlflow.tracking"
    experiment = "privplan"
    run_id = "run-id.txt"  # identifier of the run in the store, by which a resumed run goes on

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
        known = self._folder / self.run_id
        if known.exists() and record.rounds_done:
            self._run = known.read_text(encoding="utf-8").strip()
            self._client.update_run(self._run, status="RUNNING")
            return
        found = self._client.get_experiment_by_name(self.experiment)
        made = (
            found.experiment_id
            if found
            else self._client.create_experiment(self.experiment)
        )
        name = f"{record.algorithm}, {record.dataset}, seed {record.seed}"
        self._run = self._client.create_run(made, run_name=name).info.run_id
        write_text(known, self._run + "\n")
        for key, value in configuration(plan, record).items():
            self._client.log_param(self._run, _allowed(key), value)

    def write(
        self, values: Mapping[str, float], round_: int, *, final: bool = False
    ) -> None:
        """Write metrics at a round."""
        for name, value in values.items():
            self._client.log_metric(self._run, _allowed(name), value, step=round_)
        self._status = "FINISHED" if final else self._status

    def close(self) -> None:
        """End the run in the store."""
        if self._run:
            self._client.set_terminated(self._run, status=self._status)


def _allowed(name: str) -> str:
    """A name without the characters that MLflow refuses."""
    return re.sub(r"[^\w./ -]", "_", name)


class WeightsAndBiases(Tracker):
    """A Weights & Biases run, offline in the run folder.

    ``wandb sync RUN/tracking/wandb/wandb/offline-run-*`` uploads it. WANDB_MODE=online sends it
    at once, WANDB_PROJECT names another project.
    """

    package, module = "wandb", "wandb"

    _run: Any = None

    def on_start(self, plan: Plan, record: RunRecord) -> None:
        """Start the run; a resumed one has the same identifier, so that it is one after upload."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run = self._library.init(
            project=os.environ.get("WANDB_PROJECT", "privplan"),
            dir=str(self._folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            id=f"{record.algorithm}-{record.seed}-{plan.digest[:12]}".replace(
                "+", "plus"
            ),
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
