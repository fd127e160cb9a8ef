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
LEVEL = 0.05
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Outcome:
    """The verdict on a claim."""

    verdict: str  # one of ``VERDICTS``
    evidence: str  # the numbers that it rests on


NO_ROWS = Outcome(NOT_RUN, "no run has these rows")
Judge = Callable[["Result"], Outcome]
"""A rule for numbers that are computed: bounds, plans and printed values."""
Asked = tuple[str, list[tuple[float, str, str]]]
"""A difference in words, and its terms: factor, row and column of a cell."""


@dataclass(frozen=True)
class Differences:
    """Differences that a claim says are above 0."""

    of: Callable[[Result], list[Asked]]
    margin: float = 0.0  # how far below 0 a difference may be


@dataclass(frozen=True)
class Claim:
    """A statement of a paper about one of its tables."""

    text: str  # the statement
    rule: Judge | Differences  # how it is judged
    note: str = ""  # what is known beside the result; shown after the evidence


@dataclass(frozen=True)
class Difference:
    """A difference of cells, with its standard error."""

    where: str  # the rows and the column, in words
    found: float  # ours
    error: float | None  # its standard error: 0 of computed numbers, None with one seed
    freedom: float  # degrees of freedom
    printed: float | None  # the published one; None where a part of it is not printed
    printed_error: float  # its standard error; 0 where it cannot be known
    margin: float = 0.0  # how far below 0 it may be

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
        """Seeds at which p would be at a level, if the difference and its spread stay; inf."""
        if not self.error or self.excess == 0:
            return math.inf
        many = np.arange(2, MOST_SEEDS + 1)
        spread = self.error * math.sqrt(self.freedom + 1)
        t = abs(self.excess) * np.sqrt(many) / spread
        reached = many[np.asarray(2 * special.stdtr(many - 1, -t) <= level)]
        return float(reached[0]) if len(reached) else math.inf

    def __str__(self) -> str:
        printed = "" if self.printed is None else f" (printed {self.printed:+.2f})"
        if not self.error:
            return f"{self.where}: {self.found:+.4g}{printed}"
        half = _quantile(self.freedom) * self.error
        interval = f"[{self.found - half:+.2f}, {self.found + half:+.2f}]"
        return f"{self.where}: {self.found:+.2f} {interval}{printed}"


def _quantile(freedom: float) -> float:
    return float(special.stdtrit(freedom, 1 - LEVEL / 2))


def difference(asked: Asked, result: Result, margin: float = 0.0) -> Difference | None:
    """A difference of a result's cells; None where one of them was not run."""
    where, named = asked
    cells = [result.at(row, column) for _, row, column in named]
    known = [cell for cell in cells if cell is not None]
    if len(known) < len(cells):
        return None
    factors = [factor for factor, _, _ in named]
    terms = list(zip(factors, known, strict=True))
    counts = [len(cell.values) for cell in known]
    error: float | None
    if not result.seeds:
        error, freedom = 0.0, math.inf
    elif min(counts) < 2:
        error, freedom = None, 0.0
    elif len(set(counts)) == 1:
        rows = np.array([factor * np.array(cell.values) for factor, cell in terms]).sum(
            axis=0
        )
        error, freedom = (
            statistics.stdev(rows.tolist()) / math.sqrt(counts[0]),
            counts[0] - 1,
        )
    else:
        parts = [(factor * (cell.error or 0.0)) ** 2 for factor, cell in terms]
        error = math.sqrt(sum(parts))
        freedom = sum(parts) ** 2 / sum(
            part**2 / (n - 1) for part, n in zip(parts, counts, strict=True)
        )
    values = [cell.published for cell in known]
    printed = None
    if None not in values:
        printed = sum(factor * (cell.published or 0.0) for factor, cell in terms)
    printed_error = math.hypot(
        *(factor * (cell.published_error or 0.0) for factor, cell in terms)
    )
    found = sum(factor * cell.mean for factor, cell in terms)
    return Difference(where, found, error, freedom, printed, printed_error, margin)


def ahead(
    pairs: Iterable[Sequence[str]],
    *,
    columns: Sequence[str] = (),
    as_printed: bool = False,
) -> Callable[[Result], list[Asked]]:
    """One row has larger numbers than another, for each pair, in every column.

    With ``as_printed`` the larger one is the one with the larger printed number in the
    column.
    """
    known = [tuple(pair) for pair in pairs]

    def asked(result: Result) -> list[Asked]:
        found = []
        for column in columns or result.columns:
            for high, low in known:
                cells = [result.at(high, column), result.at(low, column)]
                first, second = (
                    None if cell is None else cell.published for cell in cells
                )
                if as_printed and first is not None and second is not None:
                    if first == second:
                        continue
                    high, low = (high, low) if first > second else (low, high)
                terms = [(1.0, high, column), (-1.0, low, column)]
                found.append((f"{high} over {low}, {column}", terms))
        return found

    return asked


def rises(
    rows: Sequence[str], *, sign: float = 1.0, columns: Sequence[str] = ()
) -> Callable[[Result], list[Asked]]:
    """Rows rise from each column to the next; they fall where the sign is -1."""
    word = "rises" if sign > 0 else "falls"
    return lambda result: [
        (
            f"{row} {word}, {before} to {after}",
            [(sign, row, after), (-sign, row, before)],
        )
        for row in rows
        for before, after in pairwise(columns or result.columns)
    ]


def lead_rises(
    high: str, low: str, *, sign: float = 1.0
) -> Callable[[Result], list[Asked]]:
    """A row's lead over another one grows from the first column to the last; sign -1: shrinks."""

    def asked(result: Result) -> list[Asked]:
        first, last = result.columns[0], result.columns[-1]
        ends = [(sign, last), (-sign, first)]
        terms = [
            (s * f, row, end)
            for s, end in ends
            for f, row in ((1.0, high), (-1.0, low))
        ]
        more, less = (last, first) if sign > 0 else (first, last)
        return [(f"lead of {high} over {low}, {more} over {less}", terms)]

    return asked


def _p(every: Sequence[Difference], *, held: bool) -> float:
    """The p-value of all differences above 0, or of one below; 1 where they are not."""
    if held:
        return max(one.p if one.excess > 0 else 1.0 for one in every)
    below = [one.p for one in every if one.excess < 0]
    return min([1.0, *(len(every) * p for p in below)])


def _seeds(every: Sequence[Difference], level: float) -> float:
    """How many seeds would decide at a level."""
    below = [one.seeds(level / len(every)) for one in every if one.excess < 0]
    return min(below) if below else max(one.seeds(level) for one in every)


def verdicts(claims: Sequence[Claim], result: Result) -> list[Outcome]:
    """The verdict on each claim of a table.

    ``reproduced`` needs the full size, the order and every printed difference in the
    interval of ours; ``not reproduced`` a difference on the wrong side; ``undecided``
    is neither.
    """
    found: list[tuple[list[Difference], int]] = []
    for claim in claims:
        asked = claim.rule.of(result) if isinstance(claim.rule, Differences) else []
        each = [difference(one, result, claim.rule.margin) for one in asked]  # type: ignore[union-attr]
        found.append(([one for one in each if one is not None], each.count(None)))
    least = [
        min(_p(one, held=True), _p(one, held=False)) if one else 2.0 for one, _ in found
    ]
    many = sum(p <= 1 for p in least)
    adjusted, before = dict.fromkeys(range(len(claims)), 1.0), 0.0
    seeds, needed = dict.fromkeys(adjusted, 0.0), 0.0
    for rank, at in enumerate(sorted(adjusted, key=lambda at: least[at])[:many]):
        adjusted[at] = before = max(before, min(1.0, (many - rank) * least[at]))
        if before > LEVEL and result.seeds:  # after those before it are decided
            seeds[at] = needed = max(
                needed, _seeds(found[at][0], LEVEL / (many - rank))
            )
    outcomes = []
    for at, (claim, (every, missing)) in enumerate(zip(claims, found, strict=True)):
        if isinstance(claim.rule, Differences):
            one = _outcome(every, missing, adjusted[at], seeds[at], result)
        else:
            one = claim.rule(result)
        words = f"{one.evidence}; {claim.note}" if claim.note else one.evidence
        outcomes.append(Outcome(one.verdict, words))
    return outcomes


def _outcome(
    every: Sequence[Difference], missing: int, p: float, seeds: float, result: Result
) -> Outcome:
    """The verdict on a claim, from the p-value that Holm's procedure gives."""
    if not every:
        return NO_ROWS
    least = min(every, key=lambda one: one.excess)
    held, decided = least.excess > 0, p <= LEVEL or not result.seeds
    count = sum(one.excess > 0 for one in every)
    # with seeds the one that the p-value is of: the least sure lead, or the surest lag
    below, word = (
        [one for one in every if one.excess < 0],
        "deciding" if result.seeds else "least",
    )
    if result.seeds:
        sure = sorted(
            below or every,
            key=lambda one: (one.p, one.excess if below else -one.excess),
        )
        least = sure[0 if below else -1]
    words = (
        str(least)
        if len(every) == 1
        else f"right in {count} of {len(every)}; {word} {least}"
    )
    if result.seeds:
        words += f"; p {p:.2g}"
    if missing and (held or not decided):
        return Outcome(
            NOT_RUN, f"{len(every)} of {len(every) + missing} comparisons run: {words}"
        )
    if not decided:
        if any(one.error is None for one in every):
            return Outcome(UNDECIDED, f"{words}; one seed has no interval")
        enough = f"{seeds:.0f}" if math.isfinite(seeds) else f"more than {MOST_SEEDS:,}"
        return Outcome(UNDECIDED, f"{words}; {enough} seeds would decide")
    if held and result.size == "full" and all(one.agrees for one in every):
        return Outcome(REPRODUCED, words)
    return Outcome(ORDER if held else NOT_REPRODUCED, words)


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
        verdict = REPRODUCED if near == len(cells) else NOT_REPRODUCED
        far = f"{worst.row}, {worst.column}: {worst.mean:.4g}, printed {worst.published:g}"
        return Outcome(
            verdict, f"{near} of {len(cells)} within {tolerance:g}; farthest {far}"
        )

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
        many = len(self.values)
        return statistics.stdev(self.values) / math.sqrt(many) if many > 1 else None

    @property
    def half(self) -> float | None:
        """Half of the mean's interval of 95% (Student's t); None with one value."""
        return (
            None if self.error is None else _quantile(len(self.values) - 1) * self.error
        )


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

    def at(self, row: str, column: str) -> Cell | None:
        """The cell of a row and a column; None where there is none."""
        return next(
            (one for one in self.cells if (one.row, one.column) == (row, column)), None
        )

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
