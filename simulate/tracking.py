"""Callbacks of a run, and the interface of trackers, which write metrics for other programs."""

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

FOLDER = "tracking"  # folder of the trackers inside the run folder


class Callback:
    """Base class of callbacks; each method does nothing unless a subclass overrides it.

    Callbacks see the record only: test metrics, which no privacy budget pays for. They are called
    by the process that writes the run folder, and change nothing of the run.
    """

    def on_start(self, plan: Plan, record: RunRecord) -> None:
        """Called before the first round; ``record.rounds_done`` is above 0 when the run resumes."""

    def on_round(self, record: RunRecord) -> None:
        """Called after each round; the last of ``record.metrics`` may be of an earlier one."""

    def on_end(self, record: RunRecord, spent: Mapping[str, float]) -> None:
        """Called after the last round, with the realised epsilon of each group (upper bound)."""

    def close(self) -> None:
        """Called at last, also when the run was interrupted or failed."""


class Tracker(Callback):
    """A callback that writes metrics into a folder for another program, whose package it needs."""

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
        """Write metrics by name of the last completed round, or of the finished run (``final``)."""
        raise NotImplementedError

    def on_round(self, record: RunRecord) -> None:
        """Write the metrics of the round; score and loss where it was evaluated."""
        values = {"seconds": record.wall_seconds}
        if record.metrics and record.metrics[-1].round == record.rounds_done:
            point = record.metrics[-1]
            known = {record.metric: point.accuracy, "loss": point.loss}
            values |= {
                name: value for name, value in known.items() if value is not None
            }
        self.write(values, record.rounds_done)

    def on_end(self, record: RunRecord, spent: Mapping[str, float]) -> None:
        """Write the final metrics; an infinite epsilon is left out."""
        name = f"final/{record.metric}"
        values = {} if record.accuracy is None else {name: record.accuracy}
        values |= {
            f"{name}_by_group/{n}": one for n, one in record.accuracy_by_group.items()
        }
        finite = {n: one for n, one in spent.items() if math.isfinite(one)}
        values |= {f"final/epsilon_by_group/{n}": one for n, one in finite.items()}
        self.write(values, record.rounds_done, final=True)


TrackerFactory = Callable[[Path], Callback]
"""Makes a tracker that writes into a folder, which may hold what an interrupted run wrote."""


TRACKERS: Registry[TrackerFactory] = Registry(
    "track", "privplan.trackers", check=function_of("the tracker's folder")
)


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
        found = None if package is None else find_spec(package)
        near = Path(found.origin or "").parents[:2] if found else ()
        if package is not None and (
            found is None or Path.cwd() in near
        ):  # of --data MODULE:NAME
            raise _missing(name, name)


def _missing(name: str, extra: str) -> InputError:
    return InputError.one(
        "track", f"needs its package: pip install 'privplan[{extra}]'", name
    )
