"""The result of a replay, which ``privplan replay`` writes into the run folder."""

from __future__ import annotations

import contextlib
import math
import platform
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from privplan.errors import InputError
from privplan.files import load_json, read_text, write_text
from privplan.record import REPLAY, ReleaseRecord
from privplan.values import Count, Natural, NonNegative, Value, parse

PACKAGES = ("privplan", "torch", "numpy")
"""Packages whose versions a report names."""
TOLERANCE = 1e-5
"""Largest deviation that agrees, relative to the largest coordinate or the recorded value."""
TRAINED = ("largest_norm", "clipped", "excluded", "residual", "noise_sum_squares", "batches")
"""Fields of a ledger line that depend on training, or on noise drawn again."""
MOST_DIFFERENCES = 100
"""Largest number of differences that a report lists; all are counted."""
KINKS = 5e-5
"""Largest L2 deviation that agrees, relative to the vector: training decides on sides of kinks."""
SCORE = 1e-3
"""Largest difference of a score or loss that agrees, relative above 1."""
MOST_DEVIATION = 1e100
"""Largest deviation that a report states; also for deviations that are no number."""


class Comparison(Value):
    """What was compared under one name, over all rounds.

    Attributes:
        name: what was compared, such as ``releases`` or ``noise_state``.
        compared: number of comparisons.
        differ: number of those that differ by more than the tolerance.
        largest: largest deviation, relative to the largest coordinate or to the recorded value.
    """

    name: str
    compared: Natural
    differ: Natural
    largest: NonNegative


class Difference(Value):
    """A difference between a run and its replay.

    Attributes:
        round: training round, from 1; 0 for what precedes or follows all rounds.
        name: name of the comparison.
        detail: the recorded value and the replayed one, or the deviation.
    """

    round: Natural
    name: str
    detail: str


class ReplayReport(Value):
    """The result of a replay (``replay.json``).

    Attributes:
        outcome: ``passed`` when everything was compared and agrees; ``failed`` when something
            differs; ``not shown`` when nothing differs but something could not be compared.
        reason: the first difference, what could not be compared, or what agrees.
        rounds: rounds that were trained again.
        of: number of rounds of the run; cohorts, bounds, weights and generator states are compared
            in all of them.
        selection_seed: seed of the verifier's selection of rounds; None when all were replayed.
        tolerance: largest relative deviation that agrees.
        comparisons: the comparisons by name.
        differences: the first differences.
        plan_digest: digest of the run's plan.
        chain: hash of the last ledger line, so that the report is bound to the ledger.
        record: digest of the record, to which the report is bound too; empty in a report of an
            earlier version, which does not count.
        versions: versions of Python and of the packages that replayed the run.
        seconds: wall time of the replay.
    """

    schema_version: Literal[1] = 1
    outcome: Literal["passed", "failed", "not shown"]
    reason: str
    rounds: tuple[Count, ...]
    of: Count
    selection_seed: Natural | None
    tolerance: NonNegative
    comparisons: tuple[Comparison, ...]
    differences: tuple[Difference, ...]
    plan_digest: str
    chain: str
    record: str = ""
    versions: dict[str, str]
    seconds: NonNegative

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0 passed, 4 failed, 5 not shown."""
        return {"passed": 0, "failed": 4, "not shown": 5}[self.outcome]

    def save(self, folder: Path) -> bool:
        """Write ``replay.json`` into the run folder."""
        with contextlib.suppress(InputError):
            earlier = ReplayReport.load(folder)
            same = (earlier.plan_digest, earlier.chain) == (self.plan_digest, self.chain)
            same = same and earlier.record == self.record
            if same and (earlier.outcome, self.outcome) == ("passed", "not shown"):
                return False
        write_text(folder / REPLAY, self.model_dump_json(indent=1) + "\n")
        return True

    @classmethod
    def load(cls, folder: Path) -> ReplayReport:
        """Read ``replay.json`` from the run folder."""
        try:
            data = load_json(read_text(folder / REPLAY, "replay"))
        except ValueError:
            raise InputError.one("replay", "must be JSON", str(folder / REPLAY)) from None
        return parse(cls, data)


class Comparisons:
    """Comparisons so far, by name, and the differences. Names in ``skipped`` are not compared."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.differences: list[Difference] = []
        self.skipped: frozenset[str] = frozenset()
        self.by_name: dict[str, Comparison] = {}

    def add(self, round_: int, name: str, detail: str, deviation: float, limit: float = 0) -> None:
        """Add a comparison, which differs when the deviation exceeds the limit or is no number."""
        if name in self.skipped:
            return
        one = self.by_name.get(name, Comparison(name=name, compared=0, differ=0, largest=0))
        wrong = not deviation <= limit
        largest = max(one.largest, deviation if deviation < MOST_DEVIATION else MOST_DEVIATION)
        self.by_name[name] = Comparison(
            name=name, compared=one.compared + 1, differ=one.differ + wrong, largest=largest
        )
        if wrong:
            self.differences.append(Difference(round=round_, name=name, detail=detail))

    def equal(self, round_: int, name: str, recorded: object, replayed: object) -> None:
        """Compare two values that must be equal."""
        self.add(round_, name, both(recorded, replayed), float(recorded != replayed))

    def scores(
        self,
        round_: int,
        name: str,
        recorded: Mapping[str, float | None],
        replayed: Mapping[str, tuple[float, float]],
    ) -> None:
        """Compare the scores of a model."""
        for one in sorted({*recorded, *replayed}):
            found = recorded.get(one)
            value, slack = (float(number) for number in replayed.get(one, (math.nan, 0.0)))
            deviation = abs(value - (math.nan if found is None else found))
            if found is None and not math.isfinite(value):
                deviation = 0.0
            limit = SCORE * max(1.0, abs(found or 0.0)) + slack
            self.add(round_, name, f"{one}: {both(found, value)}", deviation, limit)

    def vectors(
        self, at: tuple[int, str], run: ArrayLike, replay: ArrayLike, by: ArrayLike = 0.0
    ) -> None:
        """Compare vectors by the largest coordinate, or else by the L2 norm."""
        deviation, along = deviations(run, replay, by)
        text = f"deviation of {deviation:.2g} of the largest coordinate, {along:.2g} of the norm"
        self.add(*at, text, deviation, deviation if along <= KINKS else TOLERANCE)

    def report(
        self, plan_digest: str, chain: str, missing: str, fields: Mapping[str, Any]
    ) -> ReplayReport:
        """The report of a replay, whose outcome follows from differences and missing evidence."""
        outcome: Literal["passed", "failed", "not shown"] = "passed"
        compared, trained = tuple(self.by_name.values()), len(fields["rounds"])
        count = sum(one.compared for one in compared)
        reason = f"{count} comparisons agree; {trained} of {fields['of']} rounds were trained again"
        if self.differences:
            first = min(self.differences, key=lambda one: one.round or math.inf)
            where = f"round {first.round}: " if first.round else ""
            others = len(self.differences) - 1
            more = f" and {others} more differences" if others else ""
            outcome, reason = "failed", f"{where}{first.name}: {first.detail}{more}"
        elif missing:
            outcome, reason = "not shown", f"missing: {missing}"
        return ReplayReport(
            outcome=outcome,
            reason=reason,
            plan_digest=plan_digest,
            chain=chain,
            comparisons=compared,
            differences=tuple(self.differences[:MOST_DIFFERENCES]),
            tolerance=TOLERANCE,
            versions={
                "python": platform.python_version(),
                **{one: version(one) for one in PACKAGES},
            },
            seconds=time.monotonic() - self._started,
            **fields,
        )


def both(recorded: object, replayed: object) -> str:
    """The detail of a difference: the beginnings of two values."""
    return f"recorded {str(recorded)[:60]}, replayed {str(replayed)[:60]}"


def compare_lines(
    found: Comparisons, recorded: ReleaseRecord, replayed: ReleaseRecord, near: int | None
) -> None:
    """Compare ledger lines."""
    rest = replayed.residual.sum_squares if replayed.residual else 0.0
    scale = math.sqrt(replayed.noise_sum_squares or rest) or 1.0
    found.equal(recorded.round, "groups", len(recorded.shares), len(replayed.shares))
    for (name, one), (_, other) in zip(_fields(recorded), _fields(replayed), strict=False):
        if (name in TRAINED) == (near is None):
            continue
        limit = TOLERANCE if name in TRAINED else 1e-12
        if one is None or other is None or isinstance(one, str | tuple):
            deviation, limit = float(one != other), 0.0
        elif name == "clipped":
            deviation, limit = abs(one - other), float(near or 0)
        else:
            size = scale if name == "residual" else max(abs(one), abs(other), 1e-300)
            deviation = abs(one - other) / size
        found.add(recorded.round, name, both(one, other), deviation, limit)


def deviations(run: ArrayLike, replay: ArrayLike, slack: ArrayLike = 0.0) -> tuple[float, float]:
    """Deviation relative to the largest coordinate, and in L2 norm relative to the run's."""
    one, other = np.asarray(run, np.float64), np.asarray(replay, np.float64)
    beyond = np.maximum(np.abs(one - other) - np.asarray(slack), 0.0)
    largest = max(float(np.abs(one).max()), float(np.abs(other).max()), 1e-300)
    norm = max(float(np.linalg.norm(one)), 1e-300)
    return float(beyond.max()) / largest, float(np.linalg.norm(beyond)) / norm


def _fields(line: ReleaseRecord) -> Iterator[tuple[str, Any]]:
    """Fields of a ledger line and its shares by name; the residual as norm and projection."""
    for name, value in line:
        if name == "residual":
            yield name, value and math.sqrt(value.sum_squares)
            yield name, value and value.along_sum
        elif name != "shares":
            yield name, value
    cohort = "cohort" if line.unit == "client" else "batches"
    for share in line.shares:
        yield from ((cohort if name == "cohort" else name, value) for name, value in share)
