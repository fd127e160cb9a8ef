"""Callbacks of a run, and trackers that write metrics for TensorBoard, MLflow and wandb."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from privplan.errors import InputError
from privplan.files import write_text
from privplan.plan import Plan
from privplan.record import RunRecord
from privplan.registry import Registry

FOLDER = "tracking"
"""Folder of the trackers inside the run folder."""


class Callback:
    """Base class of callbacks; each method does nothing unless a subclass overrides it.

    Callbacks see the record only: test metrics, which no privacy budget pays for. They are called
    by the process that writes the run folder, and change nothing of the run.
    """

    def on_start(self, plan: Plan, record: RunRecord) -> None:
        """Called before the first round.

        Args:
            plan: the executed plan.
            record: the run's record; ``rounds_done`` is above 0 when the run resumes.
        """

    def on_round(self, record: RunRecord) -> None:
        """Called after each round.

        Args:
            record: the record after ``rounds_done`` rounds. ``record.metrics`` holds the
                evaluations so far; the last one is of this round when its number is.
        """

    def on_end(self, record: RunRecord, spent: Mapping[str, float]) -> None:
        """Called after the last round.

        Args:
            record: the finished run's record.
            spent: upper bound on the realised epsilon per group, computed from the ledger.
        """

    def close(self) -> None:
        """Called at last, also when the run was interrupted or failed."""


class Tracker(Callback):
    """A callback that writes metrics for another program, whose package it needs.

    Args:
        folder: folder to write into; of an interrupted run it holds what that wrote.

    Raises:
        InputError: when the package is not installed.
    """

    package: str
    module: str

    def __init__(self, folder: Path) -> None:
        try:
            self._library: Any = import_module(self.module)
        except ImportError:
            raise _missing(self.package, self.package) from None
        self._folder = folder

    def write(self, values: Mapping[str, float], round_: int, *, final: bool = False) -> None:
        """Write metrics of a round, or of the finished run.

        Args:
            values: metrics by name.
            round_: the last completed round.
            final: whether they are of the finished run.
        """
        raise NotImplementedError

    def on_round(self, record: RunRecord) -> None:
        """Write the metrics of the round; score and loss where it was evaluated."""
        values = {"seconds": record.wall_seconds}
        if record.metrics and record.metrics[-1].round == record.rounds_done:
            point = record.metrics[-1]
            known = {record.metric: point.accuracy, "loss": point.loss}
            values |= {name: value for name, value in known.items() if value is not None}
        self.write(values, record.rounds_done)

    def on_end(self, record: RunRecord, spent: Mapping[str, float]) -> None:
        """Write the final metrics; an infinite epsilon is left out."""
        name = f"final/{record.metric}"
        values = {} if record.accuracy is None else {name: record.accuracy}
        values |= {f"{name}_by_group/{n}": one for n, one in record.accuracy_by_group.items()}
        finite = {n: one for n, one in spent.items() if math.isfinite(one)}
        values |= {f"final/epsilon_by_group/{n}": one for n, one in finite.items()}
        self.write(values, record.rounds_done, final=True)


TrackerFactory = Callable[[Path], Callback]
"""Makes a tracker that writes into a folder, which may hold what an interrupted run wrote."""


def _checked(component: object) -> TrackerFactory:
    if not callable(component):
        raise TypeError("must be a function of the tracker's folder")
    return component


TRACKERS: Registry[TrackerFactory] = Registry("track", "privplan.trackers", check=_checked)


@contextmanager
def opened(
    names: Sequence[str], folder: Path, callbacks: Sequence[Callback] = ()
) -> Iterator[list[Callback]]:
    """The callbacks and then the named trackers, which are closed at the end of the block."""
    found = list(callbacks)
    try:
        for name in dict.fromkeys(map(TRACKERS.name_of, names)):
            found.append(TRACKERS.get(name)(folder / FOLDER / name))
        yield found
    finally:
        for callback in found:
            callback.close()


def require_trackers(names: Sequence[str]) -> None:
    """Raise for an unknown tracker, or one whose package is not installed."""
    for name in map(TRACKERS.name_of, names):
        package = getattr(TRACKERS.get(name), "package", None)
        if package is not None and find_spec(package) is None:
            raise _missing(name, name)


def _missing(name: str, extra: str) -> InputError:
    return InputError.one("track", f"needs its package: pip install 'privplan[{extra}]'", name)


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
        "sampling": str(spec.sampling),
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

    def write(self, values: Mapping[str, float], round_: int, *, final: bool = False) -> None:
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
        made = found.experiment_id if found else self._client.create_experiment(self.experiment)
        name = f"{record.algorithm}, {record.dataset}, seed {record.seed}"
        self._run = self._client.create_run(made, run_name=name).info.run_id
        write_text(known, self._run + "\n")
        for key, value in configuration(plan, record).items():
            self._client.log_param(self._run, _allowed(key), value)

    def write(self, values: Mapping[str, float], round_: int, *, final: bool = False) -> None:
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
            id=f"{record.algorithm}-{record.seed}-{plan.digest[:12]}".replace("+", "plus"),
            resume="allow",
            config=configuration(plan, record),
            settings=self._library.Settings(silent=True, console="off"),
        )

    def write(self, values: Mapping[str, float], round_: int, *, final: bool = False) -> None:
        """Write metrics at a round; the final ones are the run's summary."""
        if self._run is not None and final:
            self._run.summary.update(values)
        elif self._run is not None:
            self._run.log(values, step=round_)

    def close(self) -> None:
        """Finish the run on disk."""
        if self._run is not None:
            self._run.finish()


TRACKERS.register("mlflow", MLflow)
TRACKERS.register("tensorboard", TensorBoard)
TRACKERS.register("wandb", WeightsAndBiases)
