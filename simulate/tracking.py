"""Callbacks of a run, and trackers, which write its metrics for other programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.record import RunRecord
from privplan.registry import Registry, function_of

# Folder of the trackers inside the run folder.
FOLDER = "tracking"


class Callback:
    """Base class of callbacks; each method does nothing unless a subclass overrides it.

    Callbacks see the record only: test metrics, which no privacy budget pays for. They
    are called by the process that writes the run folder, and change nothing of the run.
    """

    def on_start(self, plan: Plan, record: RunRecord) -> None:
        """Called before the first round.

        ``record.rounds_done`` is above 0 when the run resumes.
        """

    def on_round(self, record: RunRecord) -> None:
        """Called after each round.

        The last of ``record.metrics`` may be of an earlier one.
        """

    def on_end(self, record: RunRecord, spent: Mapping[str, float]) -> None:
        """Called after the last round.

        ``spent`` is an upper bound on the realised epsilon of each group, by name.
        """

    def close(self) -> None:
        """Called at last, also when the run was interrupted or failed."""


class Tracker(Callback):
    """A callback that writes metrics into a folder for another program.

    Attributes:
        package: that must be installed, as ``pip`` names it.
        module: that is imported of it.
    """

    package: str
    module: str

    def __init__(self, folder: Path) -> None:
        try:
            self._library: Any = import_module(self.module)
        except ImportError:
            raise _missing(self.package, self.package) from None
        self._folder = folder

    def write(
        self, values: Mapping[str, float], round_: int, *, final: bool = False
    ) -> None:
        """Write metrics by name.

        Args:
            values: of the metrics.
            round_: the last completed round.
            final: whether they are of the finished run.
        """
        raise NotImplementedError

    def on_round(self, record: RunRecord) -> None:
        """Write the metrics of the round; score and loss where it was evaluated."""
        values = {"seconds": record.wall_seconds}
        if record.metrics and record.metrics[-1].round == record.rounds_done:
            point = record.metrics[-1]
            if point.accuracy is not None:
                values[record.metric] = point.accuracy
            if point.loss is not None:
                values["loss"] = point.loss
        self.write(values, record.rounds_done)

    def on_end(self, record: RunRecord, spent: Mapping[str, float]) -> None:
        """Write the final metrics; an infinite epsilon is left out."""
        name = f"final/{record.metric}"
        values = {}
        if record.accuracy is not None:
            values[name] = record.accuracy
        for group, score in record.accuracy_by_group.items():
            values[f"{name}_by_group/{group}"] = score
        for group, epsilon in spent.items():
            if math.isfinite(epsilon):
                values[f"final/epsilon_by_group/{group}"] = epsilon
        self.write(values, record.rounds_done, final=True)


TrackerFactory = Callable[[Path], Callback]
"""A folder, in which an interrupted run may have written, to a tracker."""


TRACKERS: Registry[TrackerFactory] = Registry(
    "track", "privplan.trackers", check=function_of("the tracker's folder")
)


@contextmanager
def opened(
    names: Sequence[str], folder: Path, callbacks: Sequence[Callback] = ()
) -> Iterator[list[Callback]]:
    """The callbacks, then the named trackers; all are closed when the block ends."""
    opened_so_far = list(callbacks)
    try:
        for name in dict.fromkeys(map(TRACKERS.name_of, names)):
            opened_so_far.append(TRACKERS.get(name)(folder / FOLDER / name))
        yield opened_so_far
    finally:
        for callback in opened_so_far:
            callback.close()


def require_trackers(names: Sequence[str]) -> None:
    """Raise for an unknown tracker, or one whose package is not installed."""
    for name in map(TRACKERS.name_of, names):
        package = getattr(TRACKERS.get(name), "package", None)
        if package is None:
            continue
        # With --data MODULE:NAME, modules of the current folder are found, too: a
        # folder of runs that has the package's name is not the package.
        spec = find_spec(package)
        if spec is None or Path.cwd() in Path(spec.origin or "").parents[:2]:
            raise _missing(name, name)


def _missing(name: str, extra: str) -> InputError:
    return InputError.one(
        "track", f"needs its package: pip install 'privplan[{extra}]'", name
    )
