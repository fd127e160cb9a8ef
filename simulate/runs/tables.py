"""The tables of a comparison: to print, for a paper, and in lines of text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from privplan.accounting.release import SHORT
from privplan.record import ACCURACY
from privplan.report.numbers import upper
from privplan.report.table import Table
from privplan.report.verdicts import no_score
from privplan.verification.verdict import GroupVerdict, Verdict
from privplan.visible import in_latex, printable
from simulate.runs.rows import ComparisonRow, Setup

# The last of the values that were tuned: number of runs and two validation scores.
_ABOUT_TUNING = 3


def printed_table(
    title: str,
    rows: Sequence[ComparisonRow],
    chosen: Mapping[str, Mapping[str, float]] | None = None,
    *,
    scores: bool = True,
) -> Table:
    """Accuracy and spent epsilon, one row per algorithm.

    Args:
        title: of the table.
        rows: one per algorithm; their epsilons are compared, so give those of one unit.
        chosen: the values that were tuned, by algorithm.
        scores: whether the table has them.
    """
    groups = rows[0].groups
    metric = rows[0].metric
    label = "acc." if metric == ACCURACY else metric
    columns = ["algorithm", "unit"]
    if scores:
        columns += ["mean", "sd", *(f"{name} {label}" for name in groups)]
    columns += [*(f"{name} epsilon" for name in groups), "kept", "plan"]
    cells = [_cells(row, scores) for row in rows]
    if chosen is not None:
        columns.append("tuned")
        for line in cells:
            values = list(chosen[line[0]].items())[:-_ABOUT_TUNING]
            line.append(", ".join(f"{name}={value:.3g}" for name, value in values))
    return Table(title, columns, cells, _caption(rows))


def _cells(row: ComparisonRow, scores: bool) -> list[str]:
    """The cells of a row of the printed table."""
    cells = [row.algorithm, row.unit]
    if scores:
        cells += [_score_or_reason(row, row.mean), row.spread]
        for name in row.groups:
            cells.append(_score_or_reason(row, row.accuracy_of(name)))
    return [*cells, *epsilon_cells(row), outcomes(row.verdicts), _plans(row)]


def _caption(rows: Sequence[ComparisonRow]) -> str:
    """Delta, law, relation and accountant of all epsilons; laws of records differ."""
    units_by_law: dict[str, set[str]] = {}
    for row in rows:
        for group in row.verdicts[0].groups:
            units_by_law.setdefault(_law(group), set()).add(row.unit)
    laws = "; ".join(
        f"{law} (unit {', '.join(sorted(units))})"
        for law, units in units_by_law.items()
    )
    shared = (
        "all algorithms of one seed share cohorts and streams of noise on purpose, "
        "so that their differences are comparable"
    )
    if any(_has_secure_noise(row) for row in rows):
        shared = "cohorts and noise of each run are of a key of its own"
    return (
        f"epsilon: largest realised upper bound at {laws}; unit: whom the budget "
        f"protects, clients or single records; kept: runs with that verdict; {shared}"
    )


def _has_secure_noise(row: ComparisonRow) -> bool:
    return any(verdict.noise == "secure" for verdict in row.verdicts)


def latex(rows: Sequence[ComparisonRow]) -> str:
    """A tabular of booktabs: mean and deviation, scores and epsilons of the groups."""
    _, columns, cells, caption = printed_table("", rows)
    head, *body = (
        " & ".join(map(in_latex, line)) + r" \\" for line in (columns, *cells)
    )
    lines = [
        r"\begin{tabular}{l" + "r" * (len(columns) - 1) + "}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        f"% {printable(caption)}",
        "",
    ]
    return "\n".join(lines)


def setup_table(rows: Sequence[ComparisonRow]) -> Table:
    """What each algorithm was given besides the budgets."""
    caption = (
        "recipe: C is the clipping norm, step the server's factor on the mean update; "
        "ratios: the rule or the objective that decides who takes part how often; "
        "release: one noisy sum of all groups (joint), one per group, or sums without "
        "noise (exact)"
    )
    columns = ["algorithm", *Setup._fields]
    cells = [[row.algorithm, *row.setup] for row in rows]
    return Table("what each algorithm was given", columns, cells, caption)


def finished_line(row: ComparisonRow) -> str:
    """One line on an algorithm whose runs are all finished."""
    mean = _score_or_reason(row, row.mean)
    epsilons = ", ".join(epsilon_cells(row))
    laws = "; ".join(dict.fromkeys(map(_law, row.verdicts[0].groups)))
    return (
        f"{row.algorithm}: {row.metric} {mean} (sd {row.spread}), "
        f"epsilon {epsilons} ({laws}; unit {row.unit}; "
        f"plan {_plans(row)}), kept {outcomes(row.verdicts)}"
    )


def epsilon_cells(row: ComparisonRow) -> list[str]:
    """What each group spent at most over the seeds, as text."""
    return [upper(row.spent(name)) for name in row.groups]


def outcomes(verdicts: Sequence[Verdict]) -> str:
    """How many verdicts are kept, and how many are unverified or rehearsals."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    text = f"{counts['kept']}/{len(verdicts)}"
    if counts["unverified"]:
        text += f" ({counts['unverified']} unverified)"
    if counts["rehearsal"]:
        text += f" ({counted(counts['rehearsal'], 'rehearsal')})"
    return text


def counted(count: int, noun: str) -> str:
    """A number with its noun: 1 seed, 2 seeds."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun}s"


def _plans(row: ComparisonRow) -> str:
    """First letters of the digests of the plans that the row's runs executed."""
    digests = [verdict.plan_digest[:SHORT] for verdict in row.verdicts]
    return ", ".join(dict.fromkeys(digests))


def _score_or_reason(row: ComparisonRow, score: float) -> str:
    """A score as text, or why there is none: the first reason of the row's verdicts."""
    if not math.isnan(score):
        return row.score_text(score)
    for verdict in row.verdicts:
        if verdict.not_finite:
            return no_score(verdict)
    return no_score(row.verdicts[0])


def _law(group: GroupVerdict) -> str:
    """What an epsilon of a group depends on: delta, law, relation and accountant."""
    law = f"{group.sampling} sampling, {group.relation} neighbours, {group.accountant}"
    return f"delta {group.delta:.3g}, {law}"
