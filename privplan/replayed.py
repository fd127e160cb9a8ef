"""The result of a replay, which ``privplan replay`` writes into the run folder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from privplan.errors import InputError
from privplan.io.files import read_text, write_text
from privplan.io.text import load_json
from privplan.record import REPLAY
from privplan.values import Count, Natural, NonNegative, Value, parse

MOST_DIFFERENCES = 100
"""Largest number of differences that a report lists; all are counted."""


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
    versions: dict[str, str]
    seconds: NonNegative

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0 passed, 4 failed, 5 not shown."""
        return {"passed": 0, "failed": 4, "not shown": 5}[self.outcome]

    def save(self, folder: Path) -> None:
        """Write ``replay.json`` into the run folder."""
        write_text(folder / REPLAY, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> ReplayReport:
        """Read ``replay.json`` from the run folder.

        Raises:
            InputError: when it is missing or damaged.
        """
        try:
            data = load_json(read_text(folder / REPLAY, "replay"))
        except ValueError:
            raise InputError.one("replay", "must be JSON", str(folder / REPLAY)) from None
        return parse(cls, data)


def report_of(
    plan_digest: str,
    chain: str,
    comparisons: Sequence[Comparison],
    differences: Sequence[Difference],
    missing: str,
    **fields: Any,
) -> ReplayReport:
    """The report of a replay, whose outcome follows from differences and missing evidence.

    Args:
        plan_digest: digest of the run's plan.
        chain: hash of the last ledger line.
        comparisons: the comparisons by name.
        differences: all differences.
        missing: what could not be compared; empty when everything was.
        fields: the other fields of the report.
    """
    outcome: Literal["passed", "failed", "not shown"] = "passed"
    count, trained = sum(one.compared for one in comparisons), len(fields["rounds"])
    reason = f"{count} comparisons agree; {trained} of {fields['of']} rounds were trained again"
    if differences:
        first = min(differences, key=lambda one: one.round or math.inf)
        where = f"round {first.round}: " if first.round else ""
        more = f" and {len(differences) - 1} more differences" if differences[1:] else ""
        outcome, reason = "failed", f"{where}{first.name}: {first.detail}{more}"
    elif missing:
        outcome, reason = "not shown", f"missing: {missing}"
    return ReplayReport(
        outcome=outcome,
        reason=reason,
        plan_digest=plan_digest,
        chain=chain,
        comparisons=tuple(comparisons),
        differences=tuple(differences[:MOST_DIFFERENCES]),
        **fields,
    )
