"""``--track wandb``: a Weights & Biases run, offline in the run folder.

``wandb sync RUN/tracking/wandb/wandb/offline-run-*`` uploads it. WANDB_MODE=online sends it at
once, WANDB_PROJECT names another project.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from privplan.plan import Plan
from privplan.record import RunRecord
from simulate.tracking.callback import TRACKERS, Tracker, configuration


class WeightsAndBiases(Tracker):
    """Writes a configuration, metrics by round, and a summary."""

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


TRACKERS.register("wandb", WeightsAndBiases)
