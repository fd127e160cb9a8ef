"""Comparisons of a run with its replay, and the report of what differs."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

from torch import Tensor

from privplan.evidence import Comparison, Difference, ReplayReport
from privplan.record import ReleaseRecord
from simulate.replay.sums import Release
from simulate.replay.tolerance import LINES, ROUNDINGS, Deviation, deviation

PACKAGES = ("privplan", "torch", "numpy")  # packages whose versions a report names
TRAINED = (
    "largest_norm",
    "clipped",
    "excluded",
    "residual",
    "noise_sum_squares",
    "batches",
)
"""Fields of a ledger line that depend on training, or on noise drawn again."""
CONSTANTS = 1e-12  # relative error of products of a plan's constants in another order
MOST_DIFFERENCES = (
    100  # largest number of differences that a report lists; all are counted
)
MOST_DEVIATION = (
    1e100  # largest deviation that a report states, or for what is no number
)
TINY = 1e-300  # the least replayed value that another one is divided by


@dataclass(frozen=True)
class Binding:
    """What a report is bound to, and which rounds it is of."""

    plan_digest: str
    chain: str  # hash of the last ledger line
    record: str  # digest of the record
    rounds: tuple[int, ...]  # trained again
    of: int  # rounds of the run
    selection_seed: int | None


class Comparisons:
    """Comparisons so far, by name, and the differences. Names in ``skipped`` are not compared."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.differences: list[Difference] = []
        self.skipped: frozenset[str] = frozenset()
        self.by_name: dict[str, Comparison] = {}
        # Largest L2 deviation of each round trained again, in standard deviations of
        # its noise.
        self.deviations: dict[int, float] = {}

    def add(
        self, round_: int, name: str, detail: str, deviation: float, limit: float = 0
    ) -> None:
        """Add a comparison, which differs when the deviation exceeds the limit or is no number."""
        if name in self.skipped:
            return
        before = self.by_name.get(
            name, Comparison(name=name, compared=0, differ=0, largest=0)
        )
        wrong = not deviation <= limit
        finite = deviation if deviation < MOST_DEVIATION else MOST_DEVIATION
        self.by_name[name] = Comparison(
            name=name,
            compared=before.compared + 1,
            differ=before.differ + wrong,
            largest=max(before.largest, finite),
        )
        if wrong:
            self.differences.append(Difference(round=round_, name=name, detail=detail))

    def equal(self, round_: int, name: str, recorded: object, replayed: object) -> None:
        """Compare two values that must be equal."""
        self.add(round_, name, both(recorded, replayed), float(recorded != replayed))

    def released(self, round_: int, recorded: Tensor, replayed: Release) -> None:
        """Compare a release with the replayed one, in units of its noise."""
        found = deviation(recorded, replayed.vector, replayed.unit)
        words = (
            f"{found.coordinate:.2g} noise deviations in one coordinate, "
            f"{found.norm:.2g} in all"
        )
        self.add(round_, "releases", f"off by {words}", found.norm, replayed.limit)
        if "releases" not in self.skipped:
            self._note(round_, found)

    def _note(self, round_: int, found: Deviation) -> None:
        """Keep the L2 deviation of a round, over all its releases."""
        before = self.deviations.get(round_, 0.0)
        norm = found.norm if math.isfinite(found.norm) else MOST_DEVIATION
        self.deviations[round_] = math.hypot(before, norm)

    def scores(
        self,
        round_: int,
        name: str,
        recorded: Mapping[str, float | None],
        replayed: Mapping[str, tuple[float, float]],
        tolerance: float,
    ) -> None:
        """Compare scores by name; replayed ones with the share that ties decide."""
        for one in sorted({*recorded, *replayed}):
            claimed = recorded.get(one)
            value, ties = (
                float(number) for number in replayed.get(one, (math.nan, 0.0))
            )
            if claimed is None and not math.isfinite(value):
                self.add(round_, name, "", 0.0)
                continue
            distance = abs(value - (math.nan if claimed is None else claimed))
            limit = tolerance * max(1.0, abs(value)) + ties
            self.add(round_, name, f"{one}: {both(claimed, value)}", distance, limit)

    def lines(
        self, recorded: ReleaseRecord, replayed: ReleaseRecord, near: int | None
    ) -> None:
        """Compare a ledger line: what depends on training, or with ``near`` None, all else.

        ``near`` is the number of updates of which rounding decides whether they are
        clipped.
        """
        rest = replayed.residual.sum_squares if replayed.residual else 0.0
        scale = math.sqrt(replayed.noise_sum_squares or rest) or 1.0
        self.equal(recorded.round, "groups", len(recorded.shares), len(replayed.shares))
        fields = zip(_fields(recorded), _fields(replayed), strict=False)
        for (name, claimed), (_, value) in fields:
            if (name in TRAINED) == (near is None):
                continue
            limit = LINES if name in TRAINED else CONSTANTS
            if not isinstance(claimed, int | float) or not isinstance(
                value, int | float
            ):
                distance, limit = float(claimed != value), 0.0
            elif name == "clipped":
                distance, limit = abs(claimed - value), float(near or 0)
            else:
                unit = scale if name == "residual" else max(abs(value), TINY)
                distance = abs(claimed - value) / unit
            self.add(recorded.round, name, both(claimed, value), distance, limit)

    def report(self, binding: Binding, missing: str, claimed: str) -> ReplayReport:
        """The report of a replay, whose outcome follows from differences and missing evidence."""
        outcome: Literal["passed", "failed", "not shown"] = "passed"
        compared, trained = tuple(self.by_name.values()), len(binding.rounds)
        count = sum(one.compared for one in compared)
        reason = f"{count} comparisons agree; {trained} of {binding.of} rounds were trained again"
        if self.differences:
            first = min(self.differences, key=lambda one: one.round or math.inf)
            where = f"round {first.round}: " if first.round else ""
            others = len(self.differences) - 1
            more = f" and {others} more differences" if others else ""
            outcome, reason = "failed", f"{where}{first.name}: {first.detail}{more}"
        elif missing:
            outcome, reason = "not shown", f"missing: {missing}"
        packages = {name: version(name) for name in PACKAGES}
        return ReplayReport(
            outcome=outcome,
            reason=reason,
            plan_digest=binding.plan_digest,
            chain=binding.chain,
            record=binding.record,
            rounds=binding.rounds,
            of=binding.of,
            selection_seed=binding.selection_seed,
            comparisons=compared,
            differences=tuple(self.differences[:MOST_DIFFERENCES]),
            tolerance=ROUNDINGS,
            deviation=max(self.deviations.values(), default=0.0),
            claimed=claimed,
            versions={"python": platform.python_version(), **packages},
            seconds=time.monotonic() - self._started,
        )


def both(recorded: object, replayed: object) -> str:
    """The detail of a difference: the beginnings of two values."""
    return f"recorded {str(recorded)[:60]}, replayed {str(replayed)[:60]}"


Field = str | int | float | tuple[int, ...] | None  # of a ledger line


def _fields(line: ReleaseRecord) -> Iterator[tuple[str, Field]]:
    """Fields of a ledger line and its shares by name; the residual as norm and projection."""
    for name, value in line:
        if name == "residual":
            yield name, value and math.sqrt(value.sum_squares)
            yield name, value and value.along_sum
        elif name != "shares":
            yield name, value
    cohort = "cohort" if line.unit == "client" else "batches"
    for share in line.shares:
        for name, value in share:
            yield cohort if name == "cohort" else name, value
