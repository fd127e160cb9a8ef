"""Tables and text lines of a budget book."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from privplan.accounting.release import SHORT, named_unit
from privplan.book.entry import BookedRun
from privplan.book.remaining import Remaining
from privplan.book.spending import Spending, full_name
from privplan.proven import cell as proven_cell
from privplan.report.numbers import six
from privplan.report.table import Cell, Table, table_of
from privplan.verification.verdict import OF_PERSON

if TYPE_CHECKING:
    from privplan.report.table import Findings

_BOOKED = {
    "recorded": "as recorded",
    "full participation": "at infinite epsilon, for want of participants",
    "infinite": "at infinite epsilon",
    "infinite for good": "at infinite epsilon, for good",
}


def spending_table(
    spent: Sequence[Spending], findings: Findings | None = None
) -> Table:
    """What each group has spent, one row per group.

    Args:
        spent: of the groups.
        findings: of proofs, by the groups' full names; they stand in a column.
    """
    cells: dict[str, Cell] = {
        "group": _name_of,
        "runs": "runs",
        "kept": "kept",
        "releases": "releases",
        "at least": lambda group: six(group.epsilon_lower, False),
        "at most": lambda group: six(group.epsilon_upper),
        "naive sum": lambda group: six(group.epsilon_naive),
        "rdp": lambda group: (
            "-" if group.epsilon_rdp is None else six(group.epsilon_rdp)
        ),
        "delta": lambda group: f"{group.delta:.4g}",
        "protects": protected,
        "law": "sampling",
        "relation": "relation",
        "accountant": "accountant",
        "plans": lambda group: ", ".join(name[:SHORT] for name in group.plans),
    }
    if findings:
        proofs = findings
        cells["proven"] = lambda group: proven_cell(proofs[_name_of(group)])

    # Groups of the same runs have one text, so that it is said once.
    names_by_text: dict[str, list[str]] = {}
    for group in spent:
        text = counted_levels(group.levels)
        names_by_text.setdefault(text, []).append(_name_of(group))
    runs = [f"{', '.join(names)}: {text}" for text, names in names_by_text.items()]
    caption = (
        "epsilon of all releases of all runs, composed at once (at least, at most); "
        "naive sum: the runs' own epsilons at delta / runs, added; rdp: an upper bound "
        "for runs chosen by what earlier ones showed; kept: runs whose verdict is kept; "
        f"runs of {'; of '.join(runs)}"
    )
    return table_of("Budget book", spent, cells, caption)


def protected(group: Spending | Remaining) -> str:
    """Whom the budget of a group protects."""
    contributions = 2 if OF_PERSON in group.sampling else 1
    return named_unit(group.unit, group.person, contributions)


def _name_of(group: Spending) -> str:
    return full_name(group.population, group.group)


def counted_levels(levels: Mapping[str, int]) -> str:
    """Numbers of runs by how strongly they were checked, as text."""
    return ", ".join(f"{count} {level}" for level, count in levels.items())


def cost_line(run: BookedRun) -> str:
    """The verdict on a run that is not kept, and how its releases are booked."""
    booked = _BOOKED[run.cost]
    return f"the verdict on {run.source} is {run.verdict}: its releases are booked {booked}"


def remaining_lines(remaining: Remaining) -> list[str]:
    """The remaining budget as lines of text."""
    where = full_name(remaining.population, remaining.group)
    lines = [
        f"{where}: budget epsilon {remaining.budget:g} at delta {remaining.delta:.4g} "
        f"over all runs ({remaining.sampling} sampling, {remaining.relation}, "
        f"accountant {remaining.accountant}, for each {protected(remaining)})",
        f"spent: at least {six(remaining.spent_lower, False)}, "
        f"at most {six(remaining.spent_upper)}",
        f"runs: {counted_levels(remaining.levels)}",
        f"spent under the rule for further runs ({remaining.rule}): "
        f"{six(remaining.spent)}",
        f"headroom: {six(remaining.headroom, False)}",
    ]
    shape = (
        f"a next run at sampling ratio {remaining.next_ratio:.6g} "
        f"({remaining.next_sampling}), {remaining.next_rounds} rounds"
    )
    if remaining.noise_multiplier is None:
        return [*lines, f"{shape}: does not fit, whatever its noise"]
    lines.append(
        f"{shape}: noise multiplier {remaining.noise_multiplier:.6g} or more; then "
        f"{six(remaining.total)} with the book"
    )
    return lines
