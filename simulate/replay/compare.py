"""Comparisons of a run with its replay, and the report of what differs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from privplan.evidence.replay import Comparison, Difference, ReplayReport
from privplan.record import ReleaseRecord, versions_of
from simulate.replay.sums import Release
from simulate.replay.tolerance import LINES, MOVED, ROUNDINGS, deviation

# Packages whose versions a report names.
PACKAGES = ("privplan", "torch", "numpy")
TRAINED = (
    "largest_norm",
    "clipped",
    "excluded",
    "residual",
    "noise_sum_squares",
    "batches",
)
"""Fields of a ledger line that depend on training, or on noise drawn again."""
# Those that are whole numbers of updates.
COUNTS = ("clipped", "excluded")
# Relative error of products of a plan's constants in another order.
CONSTANTS = 1e-12
# Largest deviation of a release that is shown, in deviations of its noise. Honest runs
# have some 1e-5; this one adds 0.05 to an epsilon of 2 at a delta of 1e-5 in 50 rounds.
MOST_CARRIED = 1e-3
# Largest number of differences that a report lists; all are counted.
MAX_DIFFERENCES = 100
# Largest deviation that a report states, also for what is no number.
MAX_DEVIATION = 1e100
# The least replayed value that a recorded one is divided by.
TINY = 1e-300


@dataclass(frozen=True)
class Binding:
    """What a report is bound to, and which rounds it is of."""

    plan_digest: str
    chain: str  # hash of the last ledger line
    record: str  # digest of the record
    rounds: tuple[int, ...]  # trained again
    rounds_of_run: int
    selection_seed: int | None


class _Compared(NamedTuple):
    """A comparison of two numbers, as ``Comparisons.add`` takes it."""

    name: str
    detail: str
    distance: float
    limit: float


class Comparisons:
    """Comparisons so far, by name, and what differs or is not shown.

    Attributes:
        differences: in the order of the comparisons.
        skipped: names that are not compared.
        by_name: counts of the comparisons of each name.
        deviations: largest L2 deviation of each round trained again, in standard
            deviations of its noise.
        missing: what lacks for all to be shown; empty where nothing does.
        claimed: which numbers of the record are not compared, and why; or empty.
        amplified: whether training made more of rounding than agrees.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.differences: list[Difference] = []
        self.skipped: frozenset[str] = frozenset()
        self.by_name: dict[str, Comparison] = {}
        self.deviations: dict[int, float] = {}
        self.missing = ""
        self.claimed = ""
        self.amplified = False

    def lacks(self, reason: str) -> None:
        """Say what is missing, unless something else is."""
        self.missing = self.missing or reason

    def add(
        self, round_: int, name: str, detail: str, deviation: float, limit: float = 0
    ) -> None:
        """Add a comparison.

        Args:
            round_: from 1; 0 for what is of no round.
            name: of what is compared.
            detail: what a difference is reported with.
            deviation: differs if it exceeds the limit or is no number.
            limit: the largest deviation that agrees.
        """
        if name in self.skipped:
            return
        before = self.by_name.get(
            name, Comparison(name=name, compared=0, differ=0, largest=0)
        )
        # A deviation that is no number compares as false, so it is wrong, and reported
        # as the largest.
        wrong = not deviation <= limit
        if deviation < MAX_DEVIATION:
            finite = deviation
        else:
            finite = MAX_DEVIATION
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
        detail = recorded_and_replayed(recorded, replayed)
        self.add(round_, name, detail, float(recorded != replayed))

    def trained(
        self,
        line: ReleaseRecord,
        vector: Tensor | None,
        replayed: Release,
        nudged: Iterable[Release],
    ) -> None:
        """Compare what depends on training: a ledger line, and a release [k].

        Training may be chaotic, so that rounding alone makes another release. What is
        further off than rounding allows is compared with what nudges of the start move.

        Args:
            line: of the run.
            vector: the run's release [k]; None where it is not stored.
            replayed: the release, executed again.
            nudged: the same from nudged starts.
        """
        if replayed.is_faint:
            self.lacks(
                f"updates that rounding does not hide: round {line.round}: that of a "
                "usual client is less than what agrees, so wide is the noise"
            )
        compared = list(_of_training(line, vector, replayed))
        limits = [item.limit for item in compared]
        if any(self._differs(item) for item in compared):
            limits = _limits_by_nudges(compared, replayed, nudged)
        for item, limit in zip(compared, limits, strict=True):
            if self._differs(item) and item.distance <= limit:
                self.amplified = True
                self.lacks(
                    f"training that rounding does not change: round {line.round}: "
                    f"{item.name}: {item.detail}; they differ as much where the "
                    "verifier's own start is nudged by rounding, and nobody shows who "
                    "chose that of the run"
                )
            self.add(line.round, *item._replace(limit=limit))
            if item.name == "releases" and item.name not in self.skipped:
                # The deviation of a round is over all its releases.
                norm = item.distance if math.isfinite(item.distance) else MAX_DEVIATION
                before = self.deviations.get(line.round, 0.0)
                self.deviations[line.round] = math.hypot(before, norm)
                if line.noise_std > 0 and norm > MOST_CARRIED:
                    self.lacks(
                        f"releases that rounding hardly changes: round {line.round}: "
                        f"off by {norm:.2g} deviations of its noise"
                    )

    def _differs(self, item: _Compared) -> bool:
        """Whether a distance is no number or above the limit, of what is compared."""
        return item.name not in self.skipped and not item.distance <= item.limit

    def scores(
        self,
        round_: int,
        name: str,
        recorded: Mapping[str, float | None],
        replayed: Mapping[str, tuple[float, float]],
        *,
        by_own_code: bool = False,
    ) -> None:
        """Compare scores by name.

        Code of the user may compute another number at every call, for whatever reason.
        So a difference of such scores breaks no run: they are not shown.

        Args:
            round_: from 1; 0 for the final model.
            name: of the comparison.
            recorded: scores that the record claims; None for one that it has not.
            replayed: scores, and the largest difference of each that agrees.
            by_own_code: whether the user's metric or loss computed them.
        """
        for score_name in sorted({*recorded, *replayed}):
            claimed = recorded.get(score_name)
            score = replayed.get(score_name, (math.nan, 0.0))
            value, limit = (float(number) for number in score)
            if claimed is None and not math.isfinite(value):
                self.add(round_, name, "", 0.0)
                continue
            # A score that is not recorded agrees with none.
            distance = math.nan
            if claimed is not None:
                distance = abs(value - claimed)
            detail = f"{score_name}: {recorded_and_replayed(claimed, value)}"
            if by_own_code and not distance <= limit:
                self.lacks(f"scores that own code computes twice: {detail}")
                continue
            self.add(round_, name, detail, distance, limit)

    def lines(self, recorded: ReleaseRecord, replayed: ReleaseRecord) -> None:
        """Compare what does not depend on training of a ledger line with a replayed."""
        self.equal(recorded.round, "groups", len(recorded.shares), len(replayed.shares))
        for item in _of_line(recorded, replayed, None):
            self.add(recorded.round, *item)

    def report(self, binding: Binding) -> ReplayReport:
        """The report, whose outcome follows from differences and what is missing."""
        compared = tuple(self.by_name.values())
        count = sum(comparison.compared for comparison in compared)
        outcome: Literal["passed", "failed", "not shown"] = "passed"
        reason = (
            f"{count} comparisons agree; "
            f"{len(binding.rounds)} of {binding.rounds_of_run} rounds were trained again"
        )
        if self.differences:
            outcome = "failed"
            reason = self._first_difference()
        elif self.missing:
            outcome = "not shown"
            reason = f"missing: {self.missing}"
        return ReplayReport(
            outcome=outcome,
            reason=reason,
            plan_digest=binding.plan_digest,
            chain=binding.chain,
            record=binding.record,
            rounds=binding.rounds,
            rounds_of_run=binding.rounds_of_run,
            selection_seed=binding.selection_seed,
            comparisons=compared,
            differences=tuple(self.differences[:MAX_DIFFERENCES]),
            tolerance=ROUNDINGS,
            deviation=max(self.deviations.values(), default=0.0),
            claimed=self.claimed,
            versions=versions_of(*PACKAGES),
            seconds=time.monotonic() - self._started,
        )

    def _first_difference(self) -> str:
        """The difference of the earliest round, and how many more there are."""
        # What is of no round follows from the rounds, so it comes last.
        earliest = min(self.differences, key=lambda fault: fault.round or math.inf)
        where = f"round {earliest.round}: " if earliest.round else ""
        further = len(self.differences) - 1
        ending = f" and {further} more differences" if further else ""
        return f"{where}{earliest.name}: {earliest.detail}{ending}"


def recorded_and_replayed(recorded: object, replayed: object) -> str:
    """The detail of a difference: the beginnings of two values."""
    return f"recorded {str(recorded)[:60]}, replayed {str(replayed)[:60]}"


Field = str | int | float | tuple[int, ...] | None
"""A field of a ledger line."""


def _fields(line: ReleaseRecord) -> Iterator[tuple[str, Field]]:
    """Fields of a ledger line and of its shares by name.

    The residual is given as its norm and its projection on the sum.
    """
    for name, value in line:
        if name == "residual":
            yield name, value and math.sqrt(value.sum_squares)
            yield name, value and value.along_sum
        elif name != "shares":
            yield name, value
    # The cohort of a client's own release are its records in all mini-batches.
    cohort = "cohort" if line.unit == "client" else "batches"
    for share in line.shares:
        for name, value in share:
            yield (cohort if name == "cohort" else name), value


def _limits_by_nudges(
    compared: Sequence[_Compared], replayed: Release, nudged: Iterable[Release]
) -> list[float]:
    """Limits of comparisons, wider where nudges of the verifier's own start move more.

    Args:
        compared: a ledger line and its release with the replayed ones.
        replayed: the release, executed again.
        nudged: the same from nudged starts.
    """
    by_nudge = list[list[float]]()
    for release in nudged:
        items = _of_training(release.record, release.vector, replayed)
        by_nudge.append([item.distance for item in items])
    moved = map(max, zip(*by_nudge, strict=True))

    # Without a stored release, only the lines are compared.
    pairs = list(zip(compared, moved, strict=False))
    amplifies = any(movement > item.limit for item, movement in pairs)
    limits = list[float]()
    for item, movement in pairs:
        limit = max(item.limit, MOVED * movement)
        # One norm may lie so near its bound that no nudge moves it across.
        if amplifies and item.name in COUNTS:
            limit = max(limit, 1.0)
        limits.append(limit)
    return limits


def _of_training(
    line: ReleaseRecord, vector: Tensor | None, replayed: Release
) -> Iterator[_Compared]:
    """What depends on training in a ledger line, and its release [k] if it is given."""
    errors = _residual_errors(replayed)
    yield from _of_line(line, replayed.record, replayed.near, errors)
    if vector is not None:
        distance = deviation(vector, replayed.vector, replayed.unit)
        detail = (
            f"off by {distance.coordinate:.2g} noise deviations in one coordinate, "
            f"{distance.norm:.2g} in all"
        )
        yield _Compared("releases", detail, distance.norm, replayed.limit)


def _residual_errors(replayed: Release) -> tuple[float, float]:
    """By how much a residual may be off: its norm, and its part along the sum.

    A residual is a release without its sum, so it is off by as much as both may be. The
    direction of a sum turns by up to twice its error over its norm. Where clipped
    updates cancel, a sum is no more than rounding and has no direction.
    """
    error = replayed.limit * replayed.unit * replayed.residual_scale
    if replayed.mixture_norm <= error:
        return error, math.inf
    residual = replayed.record.residual
    length = math.sqrt(residual.sum_squares) if residual else 0.0
    return error, error * (1 + 2 * length / replayed.mixture_norm)


def _of_line(
    recorded: ReleaseRecord,
    replayed: ReleaseRecord,
    near: int | None,
    residual_errors: tuple[float, float] = (0.0, 0.0),
) -> Iterator[_Compared]:
    """Compare a ledger line: what depends on training, or all else.

    Args:
        recorded: the line of the run.
        replayed: the line as it should be.
        near: number of updates of which rounding decides whether they are clipped;
            None to compare what does not depend on training.
        residual_errors: see ``_residual_errors``; beside ``LINES``.
    """
    # A residual is compared in units of the noise; where the noise is not known,
    # the replayed residual takes its place.
    residual = replayed.residual.sum_squares if replayed.residual else 0.0
    noise_norm = math.sqrt(replayed.noise_sum_squares or residual) or 1.0

    errors = iter(residual_errors)
    fields = zip(_fields(recorded), _fields(replayed), strict=False)
    for (name, claimed), (_, value) in fields:
        is_trained = name in TRAINED
        if is_trained == (near is None):
            continue
        error = next(errors) / noise_norm if name == "residual" else 0.0
        if not isinstance(claimed, int | float) or not isinstance(value, int | float):
            distance = float(claimed != value)
            limit = error if math.isinf(error) else 0.0
        elif name == "clipped":
            distance = abs(claimed - value)
            limit = float(near or 0)
        else:
            unit = noise_norm if name == "residual" else max(abs(value), TINY)
            distance = abs(claimed - value) / unit
            limit = LINES if is_trained else CONSTANTS
            if name == "largest_norm" and replayed.grid is not None:
                # Rounding may move each coordinate to the next point of the grid.
                error = replayed.grid * math.sqrt(replayed.dimension) / unit
            limit = max(limit, error)
        detail = recorded_and_replayed(claimed, value)
        yield _Compared(name, detail, distance, limit)
