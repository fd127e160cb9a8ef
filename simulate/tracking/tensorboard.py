"""``--track tensorboard``: event files for ``tensorboard --logdir RUN/tracking/tensorboard``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from privplan.plan import Plan
from privplan.record import RunRecord
from simulate.tracking.callback import TRACKERS, Tracker, configuration


class TensorBoard(Tracker):
    """Writes scalars by round."""

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


TRACKERS.register("tensorboard", TensorBoard)
