"""The table of proxy runs (PROXY.json): features of plans and the accuracy reached."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from privplan.errors import Fault
from privplan.file_kinds import TABLE, refuse_other_kind
from privplan.files import read_json, write_text
from privplan.forecast.coverage import Coverage
from privplan.forecast.features import PlanFeatures
from privplan.values import Checked, Count, NonNegative, digest, is_none, parse, rule

# Least proxy runs for a table: an interval of 90% needs 9 residuals held out.
LEAST_RUNS = 12


class ProxyRun(Checked):
    """One run on proxy data."""

    plan: PlanFeatures
    coverage: Coverage
    partition: str = ""  # of the records over the clients
    seed: int = 0
    accuracy: NonNegative = Field(le=1)  # test accuracy
    accuracy_by_group: tuple[NonNegative, ...]
    accuracy_by_class: tuple[NonNegative, ...] | None = Field(None, exclude_if=is_none)

    @rule
    def _sizes(self) -> Iterator[Fault]:
        """All parts are of the same groups and classes, with positive totals."""
        groups = len(self.plan.weights)
        sizes = (
            len(self.coverage.shares),
            len(self.coverage.clients),
            len(self.accuracy_by_group),
        )
        if set(sizes) != {groups}:
            yield Fault("accuracy_by_group", f"must be of {groups} groups", list(sizes))
        if len({len(row) for row in self.coverage.shares}) != 1:
            yield Fault(
                "coverage.shares", "must be of the same classes", "other lengths"
            )
        frequency = self.coverage.frequency
        if frequency is not None and (
            len(frequency) != len(self.coverage.shares[0]) or sum(frequency) <= 0
        ):
            yield Fault(
                "coverage.frequency", "must be of the same classes", list(frequency)
            )
        if any(sum(row) <= 0 for row in self.coverage.shares):
            yield Fault("coverage.shares", "must have a positive sum per group", 0)
        by_class = self.accuracy_by_class
        if by_class is not None and len(by_class) != len(self.coverage.shares[0]):
            yield Fault(
                "accuracy_by_class", "must be of the classes of coverage", len(by_class)
            )
        for field in ("accuracy_by_group", "accuracy_by_class"):
            values = getattr(self, field) or ()
            if any(value > 1 for value in values):
                yield Fault(field, "must be at most 1", max(values))


class ProxyTable(Checked):
    """Runs on one data set, with what they have in common."""

    schema_version: Literal[1] = 1
    dataset: str
    model: str
    classes: Count
    # Of the plans' cohorts that took part; the noise is that of the plan.
    share: float = 1.0
    runs: tuple[ProxyRun, ...]

    @rule
    def _enough(self) -> Iterator[Fault]:
        """There are enough runs for an interval, all with the table's classes."""
        if len(self.runs) < LEAST_RUNS:
            yield Fault(
                "runs", f"must be {LEAST_RUNS} proxy runs or more", len(self.runs)
            )
        for number, run in enumerate(self.runs):
            if any(len(row) != self.classes for row in run.coverage.shares):
                where = f"runs.{number}.coverage.shares"
                yield Fault(where, f"must be of {self.classes} classes", "others")
        groups = sorted({len(run.plan.weights) for run in self.runs})
        if len(groups) > 1:
            yield Fault("runs", "must be of as many groups each", groups)

    @property
    def skew(self) -> float:
        """Median skew of the clients' labels in the runs."""
        return statistics.median(run.coverage.skew for run in self.runs)

    @property
    def digest(self) -> str:
        """Content hash, which a forecast names."""
        return digest(self.model_dump(mode="json"))

    def save(self, path: Path | str) -> None:
        """Write the table."""
        write_text(path, json.dumps(self.model_dump(mode="json"), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path | str) -> ProxyTable:
        """Read a table."""
        data = read_json(path, "forecast")
        refuse_other_kind(data, TABLE, "forecast")
        return parse(cls, data)
