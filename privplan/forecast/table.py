"""The table of proxy runs (PROXY.json): features of a plan and the accuracy that it reached."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from privplan.errors import Fault, InputError
from privplan.forecast.features import Coverage, PlanFeatures, client_shares, even_coverage
from privplan.io.files import read_text, write_text
from privplan.io.kinds import TABLE, refuse_other_kind
from privplan.io.text import load_json
from privplan.spec.spec import Spec
from privplan.values import Checked, Count, NonNegative, digest, is_none, parse, rule

LEAST_RUNS = 12
"""Least proxy runs for a table: an interval of 90% needs 9 residuals of held-out runs."""


class ProxyRun(Checked):
    """One run on proxy data.

    Attributes:
        plan: features of its plan.
        coverage: which classes its groups held.
        partition: partition of the records over the clients.
        seed: seed of the run.
        accuracy: test accuracy in [0, 1].
        accuracy_by_group: the same per group.
        accuracy_by_class: the same per class; None where it was not measured.
    """

    plan: PlanFeatures
    coverage: Coverage
    partition: str = ""
    seed: int = 0
    accuracy: NonNegative = Field(le=1)
    accuracy_by_group: tuple[NonNegative, ...]
    accuracy_by_class: tuple[NonNegative, ...] | None = Field(None, exclude_if=is_none)

    @rule
    def _sizes(self) -> Iterator[Fault]:
        """All parts are of the same groups and classes, with positive totals."""
        groups = len(self.plan.weights)
        sizes = (len(self.coverage.shares), len(self.coverage.clients), len(self.accuracy_by_group))
        if set(sizes) != {groups}:
            yield Fault("accuracy_by_group", f"must be of {groups} groups", list(sizes))
        if len({len(row) for row in self.coverage.shares}) != 1:
            yield Fault("coverage.shares", "must be of the same classes", "other lengths")
        frequency = self.coverage.frequency
        if frequency is not None and (
            len(frequency) != len(self.coverage.shares[0]) or sum(frequency) <= 0
        ):
            yield Fault("coverage.frequency", "must be of the same classes", list(frequency))
        if any(sum(row) <= 0 for row in self.coverage.shares):
            yield Fault("coverage.shares", "must have a positive sum per group", 0)
        by_class = self.accuracy_by_class
        if by_class is not None and len(by_class) != len(self.coverage.shares[0]):
            yield Fault("accuracy_by_class", "must be of the classes of coverage", len(by_class))
        for field in ("accuracy_by_group", "accuracy_by_class"):
            values = getattr(self, field) or ()
            if any(value > 1 for value in values):
                yield Fault(field, "must be at most 1", max(values))


class ProxyTable(Checked):
    """Runs on one data set, with what they have in common.

    Attributes:
        dataset: name of the proxy data.
        model: name of the network.
        share: share of the plans' cohorts that took part; the noise is that of the plan.
        runs: the runs, of different plans.
    """

    schema_version: Literal[1] = 1
    dataset: str
    model: str
    classes: Count
    share: float = 1.0
    runs: tuple[ProxyRun, ...]

    @rule
    def _enough(self) -> Iterator[Fault]:
        """There are enough runs for an interval, all with the table's classes."""
        if len(self.runs) < LEAST_RUNS:
            yield Fault("runs", f"must be {LEAST_RUNS} proxy runs or more", len(self.runs))
        for number, run in enumerate(self.runs):
            if any(len(row) != self.classes for row in run.coverage.shares):
                where = f"runs.{number}.coverage.shares"
                yield Fault(where, f"must be of {self.classes} classes", "others")
        groups = sorted({len(run.plan.weights) for run in self.runs})
        if len(groups) > 1:
            yield Fault("runs", "must be of as many groups each", groups)

    @property
    def digest(self) -> str:
        """Content hash, which a forecast names."""
        return digest(self.model_dump(mode="json"))

    def save(self, path: Path | str) -> None:
        """Write the table."""
        write_text(path, json.dumps(self.model_dump(mode="json"), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path | str) -> ProxyTable:
        """Read a table.

        Raises:
            InputError: when it cannot be read, is not JSON or has faults.
        """
        data = _json(path, "forecast")
        refuse_other_kind(data, TABLE, "forecast")
        return parse(cls, data)


def read_coverage(path: Path | str | None, spec: Spec, classes: int) -> Coverage:
    """Which classes each group of a spec holds, from JSON such as {"strict": [0.5, 0.5, 0]}.

    Args:
        path: the file: non-negative numbers per class, by name of the group, and optionally the
            clients' ``skew`` in [0, 1] and the ``frequency`` of each class among all records; None
            when all groups hold all classes alike.
        spec: the spec.
        classes: number of classes.

    Raises:
        InputError: when the file does not have one number per class for each group.
    """
    if path is None:
        return even_coverage(spec, classes)
    data, names = _json(path, "coverage"), [group.name for group in spec.groups]
    skew = data.pop("skew", 0.0) if isinstance(data, dict) else 0.0
    if isinstance(skew, bool) or not isinstance(skew, int | float) or not 0 <= skew <= 1:
        raise InputError.one("coverage.skew", "must be a number in [0, 1]", skew)
    overall = data.pop("frequency", None) if isinstance(data, dict) else None
    if not isinstance(data, dict) or sorted(data) != sorted(names):
        raise InputError.one("coverage", f"must name the groups {', '.join(names)}", data)
    for name, row in {**data, **({} if overall is None else {"frequency": overall})}.items():
        valid = isinstance(row, list) and all(
            isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one < 1e100
            for one in row
        )
        if not valid or len(row) != classes or sum(row) <= 0:
            rule_text = f"must be {classes} numbers from 0 with a positive sum"
            raise InputError.one(f"coverage.{name}", rule_text, row)
    shares = tuple(tuple(one / sum(data[name]) for one in data[name]) for name in names)
    frequency = None if overall is None else tuple(overall)
    return Coverage(shares=shares, clients=client_shares(spec), skew=skew, frequency=frequency)


def _json(path: Path | str, field: str) -> Any:
    try:
        return load_json(read_text(path, field))
    except ValueError:
        raise InputError.one(field, "must be JSON", str(path)) from None
