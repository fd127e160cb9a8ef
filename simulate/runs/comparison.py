"""The results of a comparison: rows per algorithm, as CSV and as a table to print."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from privplan.io.text import csv_cell
from privplan.record import ACCURACY, RunRecord
from privplan.report.verdicts import no_score
from privplan.verification.verify import GroupVerdict, Verdict


@dataclass(frozen=True)
class ComparisonRow:
    """All runs of one algorithm.

    Attributes:
        algorithm: name in the catalogue.
        unit: unit of privacy of its releases under the plan.
        records: one per seed, in the order of the seeds.
        verdicts: the verdict on each run.
    """

    algorithm: str
    unit: str
    records: tuple[RunRecord, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def accuracies(self) -> list[float]:
        """Final score of each run, NaN where it is not finite."""
        scores = (record.accuracy for record in self.records)
        return [math.nan if score is None else score for score in scores]

    @property
    def metric(self) -> str:
        """Name of the metric of the scores."""
        return self.records[0].metric

    @property
    def mean(self) -> float:
        """Mean accuracy over the seeds."""
        return statistics.fmean(self.accuracies)

    @property
    def deviation(self) -> float:
        """Sample standard deviation over the seeds; 0 with one seed."""
        return statistics.stdev(self.accuracies) if len(self.records) > 1 else 0.0

    @property
    def groups(self) -> list[str]:
        """Names of the groups."""
        return [group.group for group in self.verdicts[0].groups]

    def spent(self, group: str) -> float | None:
        """Largest realised upper bound of a group over the seeds; None when infinite."""
        uppers = [item.realised_upper for item in self._verdicts_of(group)]
        return None if None in uppers else max(value for value in uppers if value is not None)

    def accuracy_of(self, group: str) -> float:
        """Mean score of a group over the seeds; NaN where a run has none."""
        scores = (record.accuracy_by_group.get(group, math.nan) for record in self.records)
        return statistics.fmean(scores)

    def plain(self) -> Iterator[dict[str, object]]:
        """One record per seed and group, for JSON; an infinite epsilon is None."""
        for record, verdict in zip(self.records, self.verdicts, strict=True):
            for group in verdict.groups:
                line = dict(zip(COLUMNS, _line(self, record, verdict, group), strict=True))
                bounds = {"realised_lower": group.realised_lower}
                yield {**line, **bounds, "realised_upper": group.realised_upper}

    def _verdicts_of(self, group: str) -> Iterator[GroupVerdict]:
        return (item for one in self.verdicts for item in one.groups if item.group == group)


COLUMNS = (
    "algorithm", "unit", "seed", "accuracy", "group", "group_accuracy", "budget",
    "realised_lower", "realised_upper", "delta", "sampling", "relation", "accountant", "verdict",
)  # fmt: skip


def results_csv(rows: Sequence[ComparisonRow]) -> str:
    """Tidy CSV: one line per algorithm, seed and group; an infinite epsilon is ``inf``."""
    return _csv(
        COLUMNS,
        (
            _line(row, record, verdict, group)
            for row in rows
            for record, verdict in zip(row.records, row.verdicts, strict=True)
            for group in verdict.groups
        ),
    )


def _line(
    row: ComparisonRow, record: RunRecord, verdict: Verdict, group: GroupVerdict
) -> list[object]:
    bounds = [
        "inf" if bound is None else bound for bound in (group.realised_lower, group.realised_upper)
    ]
    law = [group.delta, str(group.sampling), str(group.relation), group.accountant]
    score = [record.accuracy, group.group, group.accuracy, group.budget]
    return [row.algorithm, row.unit, record.seed, *score, *bounds, *law, verdict.outcome]


def curves_csv(rows: Sequence[ComparisonRow]) -> str:
    """Tidy CSV: one line per algorithm, seed and evaluated round; an infinite loss is empty."""
    return _csv(
        ("algorithm", "seed", "round", "accuracy", "loss"),
        (
            [row.algorithm, record.seed, point.round, point.accuracy, point.loss]
            for row in rows
            for record in row.records
            for point in record.metrics
        ),
    )


def _csv(columns: Sequence[str], lines: Iterator[list[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(csv_cell, line) for line in lines)
    return text.getvalue()


def printed_table(
    title: str, rows: Sequence[ComparisonRow]
) -> tuple[str, list[str], list[list[str]], str]:
    """Title, columns, cells and caption: accuracy and spent epsilon, one row per algorithm."""
    groups, metric = rows[0].groups, rows[0].metric
    short = "acc." if metric == ACCURACY else metric
    columns = [
        *("algorithm", "unit", "mean", "sd"),
        *(f"{name} {short}" for name in groups),
        *(f"{name} epsilon" for name in groups),
        "kept",
    ]
    return title, columns, [_cells(row) for row in rows], _caption(rows)


def counted(count: int, noun: str) -> str:
    """A number with its noun: 1 seed, 2 seeds."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def finished_line(row: ComparisonRow) -> str:
    """One line on an algorithm whose runs are all finished."""
    spent = [row.spent(name) for name in row.groups]
    epsilons = ", ".join("inf" if value is None else f"{value:.4f}" for value in spent)
    mean, deviation = _measured(row, row.mean), _score(row, row.deviation)
    laws = "; ".join(dict.fromkeys(map(_law, row.verdicts[0].groups)))
    return (
        f"{row.algorithm}: {row.metric} {mean} (sd {deviation}), "
        f"epsilon {epsilons} ({laws}; unit {row.unit}), kept {_outcomes(row.verdicts)}"
    )


def _cells(row: ComparisonRow) -> list[str]:
    spent = [row.spent(name) for name in row.groups]
    return [
        row.algorithm,
        row.unit,
        _measured(row, row.mean),
        _score(row, row.deviation),
        *(_measured(row, row.accuracy_of(name)) for name in row.groups),
        *("inf" if value is None else f"{value:.4f}" for value in spent),
        _outcomes(row.verdicts),
    ]


def _measured(row: ComparisonRow, value: float) -> str:
    """A score as text, or why there is none: the first reason of the row's verdicts."""
    ordered = sorted(row.verdicts, key=lambda verdict: not verdict.not_finite)
    return _score(row, value) or no_score(ordered[0])


def _score(row: ComparisonRow, value: float) -> str:
    """A score as text: accuracies in percent, others as numbers; empty for NaN."""
    if math.isnan(value):
        return ""
    return f"{100 * value:.2f}" if row.metric == ACCURACY else f"{value:.4g}"


def _outcomes(verdicts: Sequence[Verdict]) -> str:
    """Number of verdicts that are kept, and of those that are unverified."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    unverified = f" ({counts['unverified']} unverified)" if counts["unverified"] else ""
    return f"{counts['kept']}/{len(verdicts)}{unverified}"


def _law(group: GroupVerdict) -> str:
    """What an epsilon of a group depends on: delta, law, relation and accountant."""
    law = f"{group.sampling} sampling, {group.relation} neighbours, {group.accountant}"
    return f"delta {group.delta:.3g}, {law}"


def _caption(rows: Sequence[ComparisonRow]) -> str:
    """Delta, law, relation and accountant of all epsilons; record-level laws may differ."""
    units: dict[str, set[str]] = {}
    for row in rows:
        for group in row.verdicts[0].groups:
            units.setdefault(_law(group), set()).add(row.unit)
    laws = [f"{law} (unit {', '.join(sorted(names))})" for law, names in units.items()]
    return (
        f"epsilon: largest realised upper bound at {'; '.join(laws)}; unit: whom the budget "
        "protects, clients or single records; kept: verdicts; all algorithms of one seed share "
        "cohorts and streams of noise on purpose, so that their differences are comparable"
    )
