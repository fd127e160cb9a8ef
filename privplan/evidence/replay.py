"""The result of a replay, which ``privplan replay`` writes into the run folder."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from privplan.errors import InputError
from privplan.files import read_json, write_text
from privplan.record import REPLAY
from privplan.values import Count, Natural, NonNegative, Value, is_empty, parse

# A report is bound to the run that has these fields in common with it.
_BOUND_TO = ("plan_digest", "chain", "record", "rounds_of_run")
# Outcomes of two reports of a run, by what is kept of them first.
_WORST_FIRST = ("failed", "passed", "not shown")


class Comparison(Value):
    """What was compared under one name, over all rounds.

    Attributes:
        name: what was compared, such as ``releases`` or ``noise_state``.
        compared: number of comparisons.
        differ: number of those that differ by more than the tolerance.
        largest: largest deviation: of releases in standard deviations of their noise,
            else relative to the replayed value.
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
        outcome: ``passed`` when everything was compared and agrees; ``failed`` when
            something differs; ``not shown`` when nothing differs but something could
            not be compared.
        reason: the first difference, what could not be compared, or what agrees.
        rounds: that were trained again.
        rounds_of_run: number of rounds of the run, which a file calls ``of``; cohorts,
            bounds, weights and generator states are compared in all of them.
        selection_seed: of the verifier's selection of rounds; None when all were
            replayed.
        tolerance: largest L2 deviation of a release that agrees, as a multiple of the
            rounding of its summands; in a report of version 0.2.0 a relative deviation.
        deviation: the largest that was found, in standard deviations of the release's
            noise.
        claimed: what of the record is only claimed, as no replay can compute it; empty
            for nothing.
        comparisons: by name.
        differences: the first ones.
        plan_digest: digest of the run's plan.
        chain: hash of the last ledger line, so that the report is bound to the ledger.
        record: digest of the record, to which the report is bound too; empty in a
            report of an earlier version, which does not count.
        versions: of Python and of the packages that replayed the run.
        seconds: wall time of the replay.
    """

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    schema_version: Literal[1] = 1
    outcome: Literal["passed", "failed", "not shown"]
    reason: str
    rounds: tuple[Count, ...]
    rounds_of_run: Count = Field(alias="of")
    selection_seed: Natural | None
    tolerance: NonNegative
    deviation: NonNegative = Field(0.0, exclude_if=lambda deviation: not deviation)
    claimed: str = Field("", exclude_if=is_empty)
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

    def joined(self, earlier: ReplayReport) -> ReplayReport:
        """Which of this replay and an earlier one of the same run is kept.

        A difference stays, and else the replay of more rounds; rounds of two are never
        added, since who wrote the earlier report is not known. Where all rounds were
        trained again and agree, an earlier difference was not the run's.
        """
        of_another_run = any(
            getattr(self, name) != getattr(earlier, name) for name in _BOUND_TO
        )
        settles_all = (
            self.outcome == "passed" and len(self.rounds) == self.rounds_of_run
        )
        if of_another_run or settles_all:
            return self

        worst = min(
            earlier, self, key=lambda report: _WORST_FIRST.index(report.outcome)
        )
        if worst.outcome != "passed":
            return worst
        # Of as many rounds, this replay is the later one.
        passed = [report for report in (self, earlier) if report.outcome == "passed"]
        return max(passed, key=lambda report: len(set(report.rounds)))

    def save(self, folder: Path | str) -> ReplayReport:
        """Keep the result in ``replay.json`` in the run folder.

        Returns:
            What the file holds now: this report or the earlier one.
        """
        folder = Path(folder)
        report = self
        with contextlib.suppress(InputError):
            report = self.joined(ReplayReport.load(folder))
        write_text(folder / REPLAY, report.model_dump_json(indent=1) + "\n")
        return report

    @classmethod
    def load(cls, folder: Path) -> ReplayReport:
        """Read ``replay.json`` from the run folder."""
        return parse(cls, read_json(folder / REPLAY, "replay"))
