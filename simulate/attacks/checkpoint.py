"""Steps of an attack that are kept in files, so that a killed attack goes on.

An attack minimises in stages. A stage has one file, which is replaced from time to time
and removed with those of the other stages once the attack's result is stored. The file
holds the unknowns and the state of Adam, so that the steps that follow have the numbers
of an attack that was never interrupted.
"""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from privplan.files import remove_file, write_bytes

_PREFIX = "unfinished"  # of the names of all files


@dataclass(frozen=True)
class Checkpoint:
    """Files with the unfinished stages of an attack on one chunk of releases.

    Attributes:
        folder: of the files; None keeps nothing.
        name: of the chunk, a digest of all that its numbers depend on.
        pause: seconds from one file of a stage to the next.
    """

    folder: Path | None = None
    name: str = ""
    pause: float = 5.0

    def stage(self, name: str) -> StageFile:
        """The file of a stage."""
        path = None
        if self.folder is not None:
            path = self.folder / f"{_PREFIX}-{self.name}-{name}.pt"
        return StageFile(path, self.pause)


def remove_stages(folder: Path) -> None:
    """Remove the files of all stages, once the results are stored."""
    for path in folder.glob(f"{_PREFIX}-*.pt"):
        remove_file(path)


class StageFile:
    """The file of one stage: completed steps, unknowns and the optimiser's state."""

    def __init__(self, path: Path | None, pause: float) -> None:
        self._path = path
        self._pause = pause
        self._written = time.monotonic()

    def restore(
        self, unknowns: Sequence[Tensor], optimiser: torch.optim.Optimizer
    ) -> int:
        """Set unknowns and optimiser to what the file has; the completed steps.

        Without a file, or with one that cannot be read, the stage begins at step 0.
        """
        stored = self._read()
        if stored is None:
            return 0
        with torch.no_grad():
            for unknown, values in zip(unknowns, stored["unknowns"], strict=True):
                unknown.copy_(values)
        optimiser.load_state_dict(stored["optimiser"])
        return int(stored["steps"])

    def keep(
        self,
        steps: int,
        unknowns: Sequence[Tensor],
        optimiser: torch.optim.Optimizer,
        *,
        is_last: bool,
    ) -> None:
        """Write the file, if the last one is old enough or the stage ends."""
        is_due = time.monotonic() - self._written >= self._pause
        if self._path is None or not (is_due or is_last):
            return
        content = io.BytesIO()
        state = {
            "steps": steps,
            "unknowns": [unknown.detach().cpu() for unknown in unknowns],
            "optimiser": optimiser.state_dict(),
        }
        torch.save(state, content)
        write_bytes(self._path, content.getvalue(), private=True)
        self._written = time.monotonic()

    def _read(self) -> dict[str, Any] | None:
        """What the file holds; None where there is none that can be read."""
        if self._path is None or not self._path.is_file():
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stored: dict[str, Any] = torch.load(
                    self._path, map_location="cpu", weights_only=True
                )
        except Exception:  # readers of a damaged file can fail in any way
            return None
        return stored
