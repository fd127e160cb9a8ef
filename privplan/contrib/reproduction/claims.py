"""Verdicts on the statements of a paper, from the cells of a result.

A statement about means is a set of differences that must all be above 0, such as a
method's lead over another one in each column. Each difference has a confidence
interval: of the differences by seed where all cells have the same seeds (Student's t),
else of the means (Welch). The p-value of a statement is the largest of its differences
where all are above 0; where some are below, the least of them times their number.
Holm's procedure over the statements of a table keeps the chance of any wrong verdict,
in either direction, below ``LEVEL``. Numbers without seeds are compared as they are.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field
from scipy import special

from privplan.cli.doctor import machine_kind, versions
from privplan.files import load_json, read_text, write_text
from privplan.values import Natural, NonNegative, Real, Value, parse

REPRODUCED = "reproduced"
ORDER = "order reproduced"
UNDECIDED = "undecided"
NOT_REPRODUCED = "not reproduced"
CONTRADICTED = "contradicted by proof"
NOT_RUN = "not run"
VERDICTS = (REPRODUCED, ORDER, UNDECIDED, NOT_REPRODUCED, CONTRADICTED, NOT_RUN)
LEVEL = 0.05  # chance of any wrong verdict in a table
MOST_SEEDS = 1000  # more than anybody runs; how many would decide is not sought beyond


@dataclass(frozen=True)
class Outcome:
    """The verdict on a claim.

    Attributes:
        verdict: one of ``VERDICTS``.
        evidence: the numbers that it rests on.
    """

    verdict: str
    evidence: str


NO_ROWS = Outcome(NOT_RUN, "no run has these rows")
Judge = Callable[["Result"], Outcome]
"""A rule for numbers that are computed: bounds, plans and printed values."""
Comparison = tuple[str, list[tuple[float, str, str]]]
"""A difference in words, and its terms: factor, row and column of a cell."""


@dataclass(frozen=True)
class Differences:
    """Differences that a claim says are above 0.

    Attributes:
        of: the comparisons of a result.
        margin: how far below 0 a difference may be.
    """

    of: Callable[[Result], list[Comparison]]
    margin: float = 0.0


@dataclass(frozen=True)
class Claim:
    """A statement of a paper about one of its tables.

    Attributes:
        text: the statement.
        rule: how it is judged.
        note: what else is to be said of the result; shown after the evidence.
    """

    text: str
    rule: Judge | Differences
    note: str = ""


@dataclass(frozen=True)
class Difference:
    """A difference of cells, with its standard error.

    Attributes:
        where: the rows and the column, in words.
        found: ours.
        error: its standard error: 0 of computed numbers, None with one seed.
        freedom: degrees of freedom.
        printed: the published one; None where a part of it is not printed.
        printed_error: its standard error; 0 where it cannot be known.
        margin: how far below 0 it may be.
    """

    where: str
    found: float
    error: float | None
    freedom: float
    printed: float | None
    printed_error: float
    margin: float = 0.0

    @property
    def excess(self) -> float:
        """The difference over what the claim needs."""
        return self.found + self.margin

    @property
    def p(self) -> float:
        """Two-sided p-value of no excess."""
        if self.error is None or self.excess == 0:
            return 1.0
        if self.error == 0:
            return 0.0
        return float(2 * special.stdtr(self.freedom, -abs(self.excess) / self.error))

    @property
    def agrees(self) -> bool:
        """Whether the published one is in the interval of ours, with both errors."""
        if self.printed is None or self.error is None:
            return False
        error = math.hypot(self.error, self.printed_error)
        return abs(self.found - self.printed) <= _quantile(self.freedom) * error

    def seeds(self, level: float) -> float:
        """Seeds at which p would be at a level, if the difference and its spread stay.

        Infinite where ``MOST_SEEDS`` do not suffice.
        """
        if not self.error or self.excess == 0:
            return math.inf
        counts = np.arange(2, MOST_SEEDS + 1)
        spread = self.error * math.sqrt(self.freedom + 1)
        t = abs(self.excess) * np.sqrt(counts) / spread
        p_values = np.asarray(2 * special.stdtr(counts - 1, -t))
        sufficient = counts[p_values <= level]
        if len(sufficient):
            return float(sufficient[0])
        return math.inf

    def __str__(self) -> str:
        printed = ""
        if self.printed is not None:
            printed = f" (printed {self.printed:+.2f})"
        if not self.error:
            return f"{self.where}: {self.found:+.4g}{printed}"
        half = _quantile(self.freedom) * self.error
        interval = f"[{self.found - half:+.2f}, {self.found + half:+.2f}]"
        return f"{self.where}: {self.found:+.2f} {interval}{printed}"


def _quantile(freedom: float) -> float:
    """Student's t at which both tails together have the chance ``LEVEL``."""
    return float(special.stdtrit(freedom, 1 - LEVEL / 2))


def difference(
    comparison: Comparison, result: Result, margin: float = 0.0
) -> Difference | None:
    """A difference of a result's cells; None where one of them was not run."""
    where, terms_by_place = comparison
    terms: list[tuple[float, Cell]] = []
    for factor, row, column in terms_by_place:
        cell = result.cell_at(row, column)
        if cell is None:
            return None
        terms.append((factor, cell))

    # Computed numbers have no error.
    error: float | None = 0.0
    freedom = math.inf
    if result.seeds:
        error, freedom = _error(terms)
    printed = None
    if all(cell.published is not None for _, cell in terms):
        printed = sum(factor * (cell.published or 0.0) for factor, cell in terms)
    return Difference(
        where,
        sum(factor * cell.mean for factor, cell in terms),
        error,
        freedom,
        printed,
        math.hypot(*(factor * (cell.published_error or 0.0) for factor, cell in terms)),
        margin,
    )


def _error(terms: Sequence[tuple[float, Cell]]) -> tuple[float | None, float]:
    """Standard error of a difference, None with one seed; degrees of freedom."""
    counts = [len(cell.values) for _, cell in terms]
    if min(counts) < 2:
        return None, 0.0
    if len(set(counts)) == 1:
        # Cells with the same seeds: the differences by seed.
        weighted = [factor * np.array(cell.values) for factor, cell in terms]
        by_seed = np.array(weighted).sum(axis=0)
        error = statistics.stdev(by_seed.tolist()) / math.sqrt(counts[0])
        return error, counts[0] - 1
    # Welch: the variances of the means add up.
    parts = [(factor * (cell.error or 0.0)) ** 2 for factor, cell in terms]
    freedom = sum(parts) ** 2 / sum(
        part**2 / (count - 1) for part, count in zip(parts, counts, strict=True)
    )
    return math.sqrt(sum(parts)), freedom


def ahead(
    pairs: Iterable[Sequence[str]],
    *,
    columns: Sequence[str] = (),
    as_printed: bool = False,
) -> Callable[[Result], list[Comparison]]:
    """One row has larger numbers than another, for each pair, in every column.

    With ``as_printed`` the larger one is the one with the larger printed number in the
    column.
    """
    rows = [(high, low) for high, low in pairs]

    def comparisons(result: Result) -> list[Comparison]:
        leads: list[Comparison] = []
        for column in columns or result.columns:
            for high, low in rows:
                lead = 1.0
                if as_printed:
                    lead = _printed_lead(result, column, high, low)
                if lead > 0:
                    leads.append(_lead(high, low, column))
                elif lead < 0:
                    leads.append(_lead(low, high, column))
        return leads

    return comparisons


def _lead(high: str, low: str, column: str) -> Comparison:
    """A row over another one, in a column."""
    return f"{high} over {low}, {column}", [(1.0, high, column), (-1.0, low, column)]


def _printed_lead(result: Result, column: str, high: str, low: str) -> float:
    """A printed number over another one; 1 where one of them is not printed."""
    high_cell = result.cell_at(high, column)
    low_cell = result.cell_at(low, column)
    if high_cell is None or low_cell is None:
        return 1.0
    if high_cell.published is None or low_cell.published is None:
        return 1.0
    return high_cell.published - low_cell.published


def rises(
    rows: Sequence[str], *, sign: float = 1.0, columns: Sequence[str] = ()
) -> Callable[[Result], list[Comparison]]:
    """Rows rise from each column to the next; they fall where the sign is -1."""
    word = "rises" if sign > 0 else "falls"

    def comparisons(result: Result) -> list[Comparison]:
        steps: list[Comparison] = []
        for row in rows:
            for before, after in pairwise(columns or result.columns):
                terms = [(sign, row, after), (-sign, row, before)]
                steps.append((f"{row} {word}, {before} to {after}", terms))
        return steps

    return comparisons


def lead_rises(
    high: str, low: str, *, sign: float = 1.0
) -> Callable[[Result], list[Comparison]]:
    """A row's lead over another one grows from the first column to the last.

    It shrinks where the sign is -1.
    """

    def comparisons(result: Result) -> list[Comparison]:
        first = result.columns[0]
        last = result.columns[-1]
        terms = [
            (sign, high, last),
            (-sign, low, last),
            (-sign, high, first),
            (sign, low, first),
        ]
        if sign > 0:
            columns = f"{last} over {first}"
        else:
            columns = f"{first} over {last}"
        return [(f"lead of {high} over {low}, {columns}", terms)]

    return comparisons


@dataclass
class _Judged:
    """What the seeds say of a claim of differences.

    Attributes:
        differences: those of which all cells were run.
        missing: how many were not.
        p: p-value by Holm's procedure over the claims of the table.
        seeds: how many would decide; 0 where it is decided.
    """

    differences: list[Difference]
    missing: int
    p: float = 1.0
    seeds: float = 0.0

    @property
    def below(self) -> list[Difference]:
        """Differences on the wrong side."""
        return [item for item in self.differences if item.excess < 0]

    @property
    def p_alone(self) -> float:
        """The p-value of all differences above 0, or of one below; at most 1."""
        p_of_all = max(item.p if item.excess > 0 else 1.0 for item in self.differences)
        p_below = [len(self.differences) * item.p for item in self.below]
        return min([1.0, p_of_all, *p_below])

    def seeds_for(self, level: float) -> float:
        """How many seeds would decide at a level."""
        if self.below:
            level_of_each = level / len(self.differences)
            return min(item.seeds(level_of_each) for item in self.below)
        return max(item.seeds(level) for item in self.differences)

    @property
    def deciding(self) -> Difference:
        """Of which the p-value is: the surest lag, or the least sure lead."""
        if self.below:
            return min(self.below, key=lambda item: (item.p, item.excess))
        return sorted(self.differences, key=lambda item: (item.p, -item.excess))[-1]


def verdicts(claims: Sequence[Claim], result: Result) -> list[Outcome]:
    """The verdict on each claim of a table.

    ``reproduced`` needs the full size, the order and every printed difference in the
    interval of ours; ``not reproduced`` a difference on the wrong side; ``undecided``
    is neither.
    """
    judged = [_judged(claim.rule, result) for claim in claims]
    _adjust([item for item in judged if item.differences], bool(result.seeds))
    outcomes: list[Outcome] = []
    for claim, item in zip(claims, judged, strict=True):
        if isinstance(claim.rule, Differences):
            outcome = _outcome(item, result)
        else:
            outcome = claim.rule(result)
        evidence = outcome.evidence
        if claim.note:
            evidence = f"{evidence}; {claim.note}"
        outcomes.append(Outcome(outcome.verdict, evidence))
    return outcomes


def _judged(rule: Judge | Differences, result: Result) -> _Judged:
    """The differences of a rule; none of a rule for computed numbers."""
    judged = _Judged([], 0)
    if isinstance(rule, Differences):
        for comparison in rule.of(result):
            item = difference(comparison, result, rule.margin)
            if item is None:
                judged.missing += 1
            else:
                judged.differences.append(item)
    return judged


def _adjust(judged: Sequence[_Judged], has_seeds: bool) -> None:
    """Sets p-values by Holm's procedure, and the seeds that would decide."""
    p = 0.0
    seeds = 0.0
    for rank, item in enumerate(sorted(judged, key=lambda item: item.p_alone)):
        remaining = len(judged) - rank
        p = max(p, min(1.0, remaining * item.p_alone))
        item.p = p
        if p > LEVEL and has_seeds:  # after those before it are decided
            seeds = max(seeds, item.seeds_for(LEVEL / remaining))
            item.seeds = seeds


def _outcome(judged: _Judged, result: Result) -> Outcome:
    """The verdict on a claim, from the p-value that Holm's procedure gives."""
    differences = judged.differences
    if not differences:
        return NO_ROWS
    smallest = min(differences, key=lambda item: item.excess)
    is_right = smallest.excess > 0
    is_decided = judged.p <= LEVEL or not result.seeds

    shown = judged.deciding if result.seeds else smallest
    evidence = str(shown)
    if len(differences) > 1:
        count = sum(item.excess > 0 for item in differences)
        word = "deciding" if result.seeds else "least"
        evidence = f"right in {count} of {len(differences)}; {word} {shown}"
    if result.seeds:
        evidence += f"; p {judged.p:.2g}"

    if judged.missing and (is_right or not is_decided):
        total = len(differences) + judged.missing
        ran = f"{len(differences)} of {total} comparisons run"
        return Outcome(NOT_RUN, f"{ran}: {evidence}")
    if not is_decided and any(item.error is None for item in differences):
        return Outcome(UNDECIDED, f"{evidence}; one seed has no interval")
    if not is_decided:
        enough = f"more than {MOST_SEEDS:,}"
        if math.isfinite(judged.seeds):
            enough = f"{judged.seeds:.0f}"
        return Outcome(UNDECIDED, f"{evidence}; {enough} seeds would decide")
    if not is_right:
        return Outcome(NOT_REPRODUCED, evidence)
    if result.size == "full" and all(item.agrees for item in differences):
        return Outcome(REPRODUCED, evidence)
    return Outcome(ORDER, evidence)


def printed_within(tolerance: float) -> Judge:
    """A judge of: all printed numbers come out, up to a tolerance."""

    def judge(result: Result) -> Outcome:
        cells = [
            (abs(cell.mean - cell.published), cell)
            for cell in result.cells
            if cell.published is not None
        ]
        if not cells:
            return Outcome(NOT_RUN, "no printed number was computed")
        near = sum(distance <= tolerance for distance, _ in cells)
        _, worst = max(cells, key=lambda pair: pair[0])
        evidence = (
            f"{near} of {len(cells)} within {tolerance:g}; farthest {worst.row}, "
            f"{worst.column}: {worst.mean:.4g}, printed {worst.published:g}"
        )
        return Outcome(REPRODUCED if near == len(cells) else NOT_REPRODUCED, evidence)

    return judge


# Results of a published table: its cells, how they came about, and their file.

Size = Literal["full", "reduced"]


class Cell(Value):
    """One number of a table.

    Attributes:
        row: head of its row, such as a method.
        column: head of its column, such as a data set.
        published: the printed number; None where the paper has none, as in a figure.
        published_error: standard error of the printed number; None where it cannot be
            known.
        values: ours, one per seed; a single one where no seed is involved.
        spent: largest epsilon of the runs' ledgers (upper bound), by group.
        seconds: wall time of each run.
        executed: digest of the plan and numbers that the algorithm executed; empty
            where unknown.
    """

    row: str
    column: str
    published: Real | None = None
    published_error: NonNegative | None = None
    values: tuple[Real, ...] = Field(min_length=1)
    spent: dict[str, float | None] = Field(default_factory=dict)
    seconds: tuple[NonNegative, ...] = ()
    executed: str = ""

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return statistics.fmean(self.values)

    @property
    def error(self) -> float | None:
        """Standard error of the mean; None with one value."""
        count = len(self.values)
        if count < 2:
            return None
        return statistics.stdev(self.values) / math.sqrt(count)

    @property
    def half(self) -> float | None:
        """Half of the mean's interval of 95% (Student's t); None with one value."""
        if self.error is None:
            return None
        return _quantile(len(self.values) - 1) * self.error


class Result(Value):
    """All that was found for one table.

    Attributes:
        table: the table's name.
        size: ``full``, or the reduced size that the table declares.
        seeds: seeds of the runs, of which a cell may have the first ones only; empty
            for plans.
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

    def cell_at(self, row: str, column: str) -> Cell | None:
        """The cell of a row and a column; None where there is none."""
        for cell in self.cells:
            if cell.row == row and cell.column == column:
                return cell
        return None

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
