"""The table of a tuned comparison: per method its values, what it spent, and its accuracies."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from privplan.io.text import csv_cell
from simulate.runs.comparison import ComparisonRow
from simulate.runs.scores import Scores
from simulate.runs.tune import Tuned

UNUSED = 0.01
"""Share of a budget below which what is left of it is not mentioned."""


@dataclass(frozen=True)
class TunedRow:
    """A method of a tuned comparison.

    Attributes:
        row: its runs and verdicts.
        tuned: the values that were found for it.
        scores: one per seed.
        clipped: share of clipped contributions over all seeds; None where nothing is clipped.
        norm: its clipping norm.
        rate: its local learning rate.
    """

    row: ComparisonRow
    tuned: Tuned
    scores: tuple[Scores, ...]
    clipped: float | None
    norm: float
    rate: float

    @property
    def own(self) -> list[float]:
        """Own accuracy per seed."""
        return [one.own for one in self.scores]

    @property
    def everybody(self) -> list[float]:
        """Global accuracy per seed."""
        return [one.everybody for one in self.scores]

    @property
    def worst_group(self) -> tuple[str, float]:
        """The group with the least own accuracy, averaged over the seeds."""
        return self._worst([one.own_by_group for one in self.scores])

    @property
    def worst_class(self) -> tuple[str, float]:
        """The class with the least global accuracy, averaged over the seeds."""
        return self._worst([one.by_class for one in self.scores])

    @property
    def unused(self) -> list[str]:
        """Groups that did not use their budget up, with the share that they spent."""
        lines = []
        for group in self.row.verdicts[0].groups:
            spent = self.row.spent(group.group)
            if spent is not None and group.budget and spent < (1 - UNUSED) * group.budget:
                lines.append(f"{group.group} {100 * spent / group.budget:.0f}%")
        return lines

    def _worst(self, found: Sequence[dict[str, float]]) -> tuple[str, float]:
        means = {name: statistics.fmean(one[name] for one in found) for name in found[0]}
        known = {name: value for name, value in means.items() if not math.isnan(value)}
        return min(known.items(), key=lambda pair: pair[1])


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half width of the 95% interval by Student's law; NaN with one value."""
    if len(values) < 2:
        return values[0], math.nan
    from scipy.special import stdtrit

    width = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values)
    return statistics.fmean(values), width / math.sqrt(len(values))


def tuned_table(
    title: str, rows: Sequence[TunedRow]
) -> tuple[str, list[str], list[list[str]], str]:
    """Title, columns, cells and caption, the best own accuracy first."""
    groups = rows[0].row.groups
    ordered = sorted(rows, key=lambda one: -statistics.fmean(one.own))
    columns = [
        "algorithm", "tuned", "C", "clipped", "own", "global", "own less best", "worst group",
        "worst class", *(f"{name} epsilon" for name in groups), "kept",
    ]  # fmt: skip
    return title, columns, [_cells(one, ordered[0]) for one in ordered], _caption(ordered)


def _cells(one: TunedRow, best: TunedRow) -> list[str]:
    spent = [one.row.spent(name) for name in one.row.groups]
    kept = sum(verdict.kept for verdict in one.row.verdicts)
    return [
        one.row.algorithm,
        _values(one),
        f"{one.norm:.3g}",
        "-" if one.clipped is None else f"{100 * one.clipped:.0f}%",
        _percent(one.own),
        _percent(one.everybody),
        "" if one is best else _percent(paired(one, best), sign=True),
        f"{one.worst_group[0]} {100 * one.worst_group[1]:.2f}",
        f"{one.worst_class[0]} {100 * one.worst_class[1]:.2f}",
        *("inf" if value is None else f"{value:.4f}" for value in spent),
        f"{kept}/{len(one.row.verdicts)}",
    ]


def paired(one: TunedRow, other: TunedRow) -> list[float]:
    """Differences of the own accuracy, seed by seed: equal seeds have equal clients and cohorts."""
    return [a - b for a, b in zip(one.own, other.own, strict=True)]


def _values(one: TunedRow) -> str:
    own = [f"{name}={value:.3g}" for name, value in _own_values(one).items()]
    return ", ".join([f"rate={one.rate:.3g}", *own])


def _own_values(one: TunedRow) -> dict[str, float]:
    """The quantile that the clipping norm follows, if any, and the method's hyperparameters."""
    point = one.tuned.point
    return point.values if point.quantile is None else {"quantile": point.quantile, **point.values}


def _percent(values: Sequence[float], sign: bool = False) -> str:
    mean, width = interval(values)
    text = f"{100 * mean:+.2f}" if sign else f"{100 * mean:.2f}"
    return text if math.isnan(width) else f"{text} ± {100 * width:.2f}"


def _caption(rows: Sequence[TunedRow]) -> str:
    """What the columns are, and which methods leave a part of their budgets."""
    first = rows[0].row.verdicts[0].groups[0]
    left = [f"{one.row.algorithm} ({', '.join(one.unused)})" for one in rows if one.unused]
    edges = [f"{one.row.algorithm} ({', '.join(one.tuned.at_edge)})" for one in rows
             if one.tuned.at_edge]  # fmt: skip
    lines = [
        f"{rows[0].tuned.runs} runs each on validation records; own: each client's model on its "
        "own test records; global: on all test records; ±: 95% interval over seeds; "
        f"epsilon: largest realised upper bound at delta {first.delta:.3g}, {first.sampling} "
        f"sampling, {first.relation} neighbours, {first.accountant}"
    ]
    lines += [f"budgets not used up: {'; '.join(left)}"] if left else []
    lines += [f"values near the end of what was tried: {'; '.join(edges)}"] if edges else []
    return "; ".join(lines)


COLUMNS = (
    "algorithm", "unit", "seed", "runs", "clipping_norm", "learning_rate", "hyperparameters",
    "validation", "validation_default", "clipped", "own", "global", "worst_class",
    "worst_class_accuracy", "group", "group_own", "budget", "realised_upper", "verdict",
)  # fmt: skip


def tuned_plain(rows: Sequence[TunedRow]) -> list[dict[str, object]]:
    """One record per algorithm, seed and group, for JSON; an infinite epsilon is None."""
    return [dict(zip(COLUMNS, line, strict=True)) for one in rows for line in _lines(one)]


def tuned_csv(rows: Sequence[TunedRow]) -> str:
    """Tidy CSV: one line per algorithm, seed and group; an infinite epsilon is ``inf``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    place = COLUMNS.index("realised_upper")
    for one in rows:
        for line in _lines(one):
            line[place] = "inf" if line[place] is None else line[place]
            writer.writerow(map(csv_cell, line))
    return text.getvalue()


def _lines(one: TunedRow) -> Iterator[list[object]]:
    values = " ".join(f"{name}={value:g}" for name, value in _own_values(one).items())
    fixed = [one.tuned.runs, one.norm, one.rate, values, one.tuned.score, one.tuned.default_score]
    for record, verdict, scores in zip(one.row.records, one.row.verdicts, one.scores, strict=True):
        head = [one.row.algorithm, one.row.unit, record.seed, *fixed, one.clipped]
        head += [scores.own, scores.everybody, *scores.worst_class]
        for group in verdict.groups:
            own = scores.own_by_group.get(group.group)
            spent = [group.budget, group.realised_upper, verdict.outcome]
            yield [*head, group.group, own, *spent]
