"""Verdicts on the statements of a paper, from the cells of a result."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from privplan.cli.doctor import machine_kind, versions
from privplan.files import load_json, read_text, write_text
from privplan.values import Natural, NonNegative, Real, Value, parse

REPRODUCED = "reproduced"
ORDER = "order reproduced"
NOT_REPRODUCED = "not reproduced"
CONTRADICTED = "contradicted"
NOT_RUN = "not run"
VERDICTS = (REPRODUCED, ORDER, NOT_REPRODUCED, CONTRADICTED, NOT_RUN)


@dataclass(frozen=True)
class Outcome:
    """The verdict on a claim."""

    verdict: str  # one of ``VERDICTS``
    evidence: str  # the numbers that it rests on


Judge = Callable[["Result"], Outcome]


@dataclass(frozen=True)
class _Lead:
    """A row's lead over another one in one column; errors are standard errors."""

    where: str  # both rows and the column, in words
    found: float  # our difference, paired by seed
    error: float | None  # its error; None with one seed
    printed: float | None  # the published difference; None where one of both is not printed
    printed_error: float  # its error; 0 where it cannot be known

    @property
    def agrees(self) -> bool:
        """Whether the difference is within two standard errors of the published one."""
        if self.printed is None or self.error is None:
            return False
        return abs(self.found - self.printed) <= 2 * math.hypot(self.error, self.printed_error)

    @property
    def clear(self) -> bool:
        """Whether the row is ahead by more than two standard errors, where they are known."""
        return self.found > 2 * (self.error or 0.0)

    @property
    def reversed(self) -> bool:
        """Whether the other row is ahead by more than two standard errors."""
        return self.error is not None and self.found < -2 * self.error

    def __str__(self) -> str:
        error = "one seed" if self.error is None else f"± {self.error:.2f}"
        printed = "" if self.printed is None else f", printed {self.printed:+.2f}"
        return f"{self.where}: {self.found:+.2f} ({error}{printed})"


def ahead(first: str, *others: str, columns: Sequence[str] = ()) -> Judge:
    """A judge of: one row has larger numbers than others, in every column.

    ``reproduced`` needs the full size and every difference within two standard errors of the
    published one, ``order reproduced`` every difference above 0 by more than two standard errors,
    ``contradicted`` the full size and a difference as far below 0. Differences are paired by seed.
    """

    def judge(result: Result) -> Outcome:
        leads = list(_leads(result, first, others, columns))
        if not leads:
            return Outcome(NOT_RUN, "no run has these rows")
        clear = sum(one.clear for one in leads)
        least = min(leads, key=lambda one: one.found)
        if len(leads) == 1:
            evidence = str(least)
        else:
            evidence = f"ahead in {clear} of {len(leads)}; least lead {least}"
        if result.size == "full" and all(one.found > 0 and one.agrees for one in leads):
            return Outcome(REPRODUCED, evidence)
        if clear == len(leads):
            return Outcome(ORDER, evidence)
        against = result.size == "full" and any(one.reversed for one in leads)
        return Outcome(CONTRADICTED if against else NOT_REPRODUCED, evidence)

    return judge


def _leads(
    result: Result, first: str, others: Sequence[str], columns: Sequence[str]
) -> Iterator[_Lead]:
    for column in columns or result.columns:
        for other in others:
            high, low = result.at(first, column), result.at(other, column)
            if high is not None and low is not None:
                yield _lead(high, low)


def _lead(high: Cell, low: Cell) -> _Lead:
    pairs = list(zip(high.values, low.values, strict=False))
    differences = [one - other for one, other in pairs]
    many = len(differences)
    error = statistics.stdev(differences) / math.sqrt(many) if many > 1 else None
    printed = None
    if high.published is not None and low.published is not None:
        printed = high.published - low.published
    printed_error = math.hypot(high.published_error or 0.0, low.published_error or 0.0)
    where = f"{high.row} over {low.row}, {high.column}"
    return _Lead(where, statistics.fmean(differences), error, printed, printed_error)


def printed_within(tolerance: float, rows: Sequence[str] = ()) -> Judge:
    """A judge of: all printed numbers come out, up to a tolerance."""

    def judge(result: Result) -> Outcome:
        cells = [
            (abs(cell.mean - cell.published), cell)
            for cell in result.cells
            if cell.published is not None and (not rows or cell.row in rows)
        ]
        if not cells:
            return Outcome(NOT_RUN, "no printed number was computed")
        near = sum(distance <= tolerance for distance, _ in cells)
        _, worst = max(cells, key=lambda pair: pair[0])
        evidence = f"{near} of {len(cells)} within {tolerance:g}"
        if near == len(cells):
            return Outcome(REPRODUCED, evidence)
        far = f"{worst.row}, {worst.column}: {worst.mean:.4g}, printed {worst.published:g}"
        return Outcome(NOT_REPRODUCED, f"{evidence}; farthest {far}")

    return judge


def monotone(row: str, *, rising: bool, columns: Sequence[str] = ()) -> Judge:
    """A judge of: a row rises, or falls, from each column to the next."""

    def judge(result: Result) -> Outcome:
        heads = columns or result.columns
        means = [cell.mean for head in heads if (cell := result.at(row, head)) is not None]
        steps = [after - before for before, after in pairwise(means)]
        if not steps:
            return Outcome(NOT_RUN, f"fewer than two values of {row}")
        held = all(step > 0 if rising else step < 0 for step in steps)
        evidence = f"{row}: {', '.join(f'{mean:.4g}' for mean in means)}"
        return Outcome(ORDER if held else NOT_REPRODUCED, evidence)

    return judge


def every(*judges: Judge) -> Judge:
    """A judge of several judges' claims at once: the worst verdict, and all evidence."""

    def judge(result: Result) -> Outcome:
        found = [one(result) for one in judges]
        worst = max(found, key=lambda one: VERDICTS.index(one.verdict))
        return Outcome(worst.verdict, "; ".join(one.evidence for one in found))

    return judge


# --- Results of a published table: its cells, how they came about, and their file. ---------------

Size = Literal["full", "reduced"]


class Cell(Value):
    """One number of a table.

    Attributes:
        row: head of its row, such as a method.
        column: head of its column, such as a data set.
        published: the printed number; None where the paper has none, as in a figure.
        published_error: standard error of the printed number; None where it cannot be known.
        values: ours, one per seed; a single one where no seed is involved.
        spent: largest epsilon of the runs' ledgers (upper bound), by group.
        seconds: wall time of each run.
    """

    row: str
    column: str
    published: Real | None = None
    published_error: NonNegative | None = None
    values: tuple[Real, ...] = Field(min_length=1)
    spent: dict[str, float | None] = Field(default_factory=dict)
    seconds: tuple[NonNegative, ...] = ()

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return statistics.fmean(self.values)

    @property
    def error(self) -> float | None:
        """Standard error of the mean; None with one value."""
        many = len(self.values)
        return statistics.stdev(self.values) / math.sqrt(many) if many > 1 else None


class Result(Value):
    """All that was found for one table.

    Attributes:
        table: the table's name.
        size: ``full``, or the reduced size that the table declares.
        seeds: seeds of the runs; empty for tables of plans.
        configuration: everything that the cells depend on, besides seeds.
        versions: versions of the software.
        machine: kind of machine.
        cells: the cells.
    """

    table: str
    size: Size
    seeds: tuple[Natural, ...] = ()
    configuration: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=versions)
    machine: str = Field(default_factory=machine_kind)
    cells: tuple[Cell, ...]

    def at(self, row: str, column: str) -> Cell | None:
        """The cell of a row and a column; None where there is none."""
        return next((one for one in self.cells if (one.row, one.column) == (row, column)), None)

    @property
    def rows(self) -> list[str]:
        """Heads of rows, in their order."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """Heads of columns, in their order."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def save(self, folder: Path) -> Path:
        """Write the result to the folder, under the table's name; returns the file."""
        path = folder / f"{self.table}.json"
        write_text(path, json.dumps(self.model_dump(mode="json"), indent=1) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Result:
        """The result in a file."""
        return parse(cls, load_json(read_text(path, "result")))
