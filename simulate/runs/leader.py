"""Which method leads: only within a unit, and only where the seeds decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from privplan.record import ACCURACY
from privplan.report.verdicts import headline
from simulate.runs.rows import ComparisonRow, is_within_the_budgets
from simulate.runs.tables import counted, outcomes

WHOM = {
    "client": "protect each client",
    "record": "protect each record",
    "none": "protect nobody",
}
"""What is said of the methods of a unit."""
_REHEARSALS = "rehearsals: nothing here protected anybody; their noise is seeded"
# Two means differ if they are further apart than about a 95% interval.
_STANDARD_ERRORS = 2


def by_unit(rows: Sequence[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    """The rows by whom they protect; epsilons of two units are not compared."""
    members: dict[str, list[ComparisonRow]] = {unit: [] for unit in WHOM}
    for row in rows:
        members[row.unit].append(row)
    return {unit: of_unit for unit, of_unit in members.items() if of_unit}


def units_apart(rows: Sequence[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    """The rows of each table, by what its title begins with.

    Methods that protect nobody stand in the table of the only unit that has budgets; if
    two units have budgets, each unit has a table.
    """
    units = by_unit(rows)
    if {"client", "record"} <= units.keys():
        return {f"methods that {WHOM[unit]}: ": units[unit] for unit in units}
    return {"": list(rows)}


class Leader(NamedTuple):
    """The method with the highest mean of those of its unit that keep every budget.

    Attributes:
        row: of the method.
        rivals: methods from which the seeds do not tell it apart.
        competitors: how many further methods of its unit keep every budget.
    """

    row: ComparisonRow
    rivals: tuple[str, ...]
    competitors: int

    @property
    def is_best(self) -> bool:
        """Whether the seeds decide that it is better than all others within budgets."""
        return not self.rivals

    @property
    def sentence(self) -> str:
        """Which method leads, or that the seeds decide none."""
        reached = f"{self.row.algorithm}, {self.row.score_text(self.row.mean)}%"
        if not self.is_best:
            rivals = ", ".join(self.rivals)
            return f"these seeds decide no best method: {reached}, and {rivals}"
        if not self.competitors:
            return f"the only one that keeps the budgets: {reached}"
        return f"the most accurate that keeps the budgets: {reached}"


def leader(rows: Sequence[ComparisonRow]) -> Leader | None:
    """Which of the methods of one unit leads.

    A method that sends nothing pays no budget and leads nobody.

    Returns:
        None where no method pays within the budgets, or where a score is missing or is
        no accuracy.
    """
    within = [row for row in rows if row.is_within and row.pays]
    if not within or rows[0].metric != ACCURACY or _lacks_a_score(rows):
        return None
    best = max(within, key=lambda row: row.mean)
    competitors = [row for row in within if row is not best]
    rivals = tuple(row.algorithm for row in competitors if not _differ(best, row))
    return Leader(best, rivals, len(competitors))


def _lacks_a_score(rows: Sequence[ComparisonRow]) -> bool:
    return any(math.isnan(row.mean) for row in rows)


def _differ(best: ComparisonRow, rival: ComparisonRow) -> bool:
    """Whether two means differ by more than two standard errors of their difference."""
    seeds = len(best.records)
    # sqrt(s1^2/n + s2^2/n) of two means over the same n seeds.
    error = math.hypot(best.deviation, rival.deviation) / math.sqrt(seeds)
    return seeds > 1 and abs(best.mean - rival.mean) > _STANDARD_ERRORS * error


def answer(rows: Sequence[ComparisonRow]) -> list[str]:
    """Which method is the most accurate in its budgets; what is above it and lost."""
    units = by_unit(rows)
    unprotected = units.pop("none", [])
    lines = []
    for unit, members in units.items():
        whose = f"of those that {WHOM[unit]}, " if len(units) > 1 else ""
        lines += [f"{whose}{line}" for line in _answer_of_unit(members, unprotected)]
    return lines + _lost(rows)


def _answer_of_unit(
    rows: Sequence[ComparisonRow], unprotected: Sequence[ComparisonRow]
) -> list[str]:
    """Which method of a unit leads, and those above it, also such without privacy."""
    compared = [*rows, *unprotected]
    leading = leader(rows)
    if leading is None or _lacks_a_score(compared):
        return []
    lines = [leading.sentence]
    for row in compared:
        if row.mean < leading.row.mean or row is leading.row:
            continue
        reached = f"{row.algorithm} reaches {row.score_text(row.mean)}%"
        if row.is_within and not row.pays:
            lines.append(
                f"{reached}, and nothing leaves its clients: no plan pays here"
            )
        elif row.note == "not private":
            lines.append(f"{reached} without noise: its epsilon is infinite")
        elif not row.is_within:
            share = outcomes(row.verdicts)
            lines.append(f"{reached}, and its budgets are {share} kept")
    return lines


def _lost(rows: Sequence[ComparisonRow]) -> list[str]:
    """The first verdict that is not kept of each private method, one line each."""
    lines: dict[str, str] = {}
    has_rehearsals = False
    for row in rows:
        for verdict in row.verdicts:
            has_rehearsals |= verdict.outcome == "rehearsal"
            if row.note != "not private" and not is_within_the_budgets(verdict):
                name = verdict.algorithm
                lines.setdefault(name, f"{name}: {headline(verdict)}")
    if has_rehearsals:
        return [*lines.values(), _REHEARSALS]
    return list(lines.values())


def kept_line(rows: Sequence[ComparisonRow]) -> str:
    """How many methods kept every budget in every run, counted by whom they protect."""
    counts = []
    for unit, members in by_unit(rows).items():
        methods = counted(len(members), "method")
        verb = WHOM[unit]
        if len(members) == 1:
            verb = verb.replace("protect", "protects", 1)
        if unit == "none":
            counts.append(f"{methods} {verb}")
        else:
            keeping = sum(row.keeps for row in members)
            counts.append(f"{keeping} of {methods} that {verb}")
    return "; ".join(counts)
