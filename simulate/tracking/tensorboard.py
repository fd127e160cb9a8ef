"""``--track tensorboard``: event files for ``tensorboard --logdir RUN/tracking/tensorboard``."""

from __future__ import annotations

import json
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


class TensorBoard(Callback):
    """Writes scalars by round.

    Args:
        folder: folder of the event files.

    Raises:
        InputError: when tensorboard is not installed.
    """

    package = "tensorboard"

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise missing("tensorboard", "tensorboard") from None
        self._folder, self._open = folder, SummaryWriter
        self._writer: Any = None

    def on_start(self, plan: Plan, record: RunRecord) -> None:
        """Continue after the round that the run resumes from; later events are discarded."""
        purge = record.rounds_done + 1 if record.rounds_done else None
        self._writer = self._open(str(self._folder), purge_step=purge)
        text = json.dumps(configuration(plan, record), indent=1)
        self._writer.add_text("configuration", f"```\n{text}\n```", record.rounds_done)

    def on_round(self, record: RunRecord) -> None:
        """Write the metrics of the round."""
        for name, value in round_values(record).items():
            self._writer.add_scalar(name, value, record.rounds_done)

    def on_end(self, record: RunRecord, spent: Mapping[str, float]) -> None:
        """Write the final metrics at the last round."""
        for name, value in final_values(record, spent).items():
            self._writer.add_scalar(name, value, record.rounds_done)

    def close(self) -> None:
        """Write what is buffered."""
        if self._writer is not None:
            self._writer.close()


TRACKERS.register("tensorboard", TensorBoard)
