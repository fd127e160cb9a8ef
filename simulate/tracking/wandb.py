"""``--track wandb``: a Weights & Biases run, offline in the run folder.

``wandb sync RUN/tracking/wandb/wandb/offline-run-*`` uploads it. WANDB_MODE=online sends it at
once, WANDB_PROJECT names another project.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


class WeightsAndBiases(Callback):
    """Writes a configuration, metrics by round, and a summary.

    Args:
        folder: folder of the offline run.

    Raises:
        InputError: when wandb is not installed.
    """

    package = "wandb"

    def __init__(self, folder: Path) -> None:
        try:
            import wandb
        except ImportError:
            raise missing("wandb", "wandb") from None
        self._library: Any = wandb
        self._folder, self._run = folder, None

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

    def on_round(self, record: RunRecord) -> None:
        """Write the metrics of the round."""
        if self._run is not None:
            self._run.log(round_values(record), step=record.rounds_done)

    def on_end(self, record: RunRecord, spent: Mapping[str, float]) -> None:
        """Write the final metrics as the run's summary."""
        if self._run is not None:
            self._run.summary.update(final_values(record, spent))

    def close(self) -> None:
        """Finish the run on disk."""
        if self._run is not None:
            self._run.finish()


TRACKERS.register("wandb", WeightsAndBiases)
