"""The page of a budget book: who has spent what, over which runs, and what is left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privplan.accounting.accountant import accountant, at_most
from privplan.accounting.calibrate import PLD
from privplan.accounting.release import SHORT, History, Relation
from privplan.book.accounts import Budgets, has_accounts
from privplan.book.book import Book
from privplan.book.entry import DECLARED, BookedRun
from privplan.book.spending import Spending, full_name, spendings
from privplan.errors import InfeasibleError, InputError, PrivplanError
from privplan.report.document import document
from privplan.report.numbers import six
from privplan.report.panels import (
    FEW_POINTS,
    EpsilonRow,
    Lines,
    Row,
    epsilon_panel,
    first_items,
    law_label,
    rows_panel,
)
from privplan.report.spendings import counted_levels, protected
from privplan.report.style import LIGHT, Panel, Theme, shortened
from privplan.report.table import Cell, Table, table_of
from privplan.visible import in_markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Left:
    """What is left of a budget over all runs.

    Attributes:
        name: of the group or ceiling, with its population.
        budget: epsilon over all runs.
        delta: its failure probability.
        rule: how runs are composed.
        spent: epsilon of all that was spent or is reserved under the rule; None where
            it is more than the budget.
    """

    name: str
    budget: float
    delta: float
    rule: str
    spent: float | None

    @property
    def words(self) -> str:
        """What is left, as text."""
        if self.spent is None or self.spent >= self.budget:
            return "nothing"
        return six(self.budget - self.spent, False)


def book_page(address: Path | str, budgets: Mapping[str, float] | None = None) -> str:
    """The page of a book as one HTML document.

    Args:
        address: of the book.
        budgets: epsilon over all runs of groups without an account, by full name.

    Raises:
        InputError: when it is no book, or has no such group.

    >>> page = book_page("book.sqlite", {"strict": 3.0})
    """
    content = _content_of(address, budgets or {})
    return document("book_page.html.j2", content=content, panels=content.panels)


@dataclass(frozen=True)
class BookContent:
    """What the page of a book says.

    Attributes:
        address: of the book, without a password.
        runs: the book.
        spent: of its groups.
        left: of budgets over all runs.
        faults: groups that cannot be composed, one line each.
    """

    address: str
    runs: Sequence[BookedRun]
    spent: Sequence[Spending]
    left: Sequence[Left]
    faults: Sequence[str]

    @property
    def headline(self) -> str:
        """How many runs and groups, and how many budgets are used up."""
        groups = f"{len(self.spent)} {'group' if len(self.spent) == 1 else 'groups'}"
        runs = f"{len(self.runs)} {'run' if len(self.runs) == 1 else 'runs'}"
        empty = [budget.name for budget in self.left if budget.words == "nothing"]
        text = f"{runs} of {groups}"
        if empty:
            return f"{text}; nothing is left for {', '.join(empty)}"
        if self.left:
            return f"{text}; every budget that is stated has something left"
        return f"{text}; no budget over all runs is stated"

    @property
    def panels(self) -> list[Panel]:
        """Spent beside the budget, else alone; then run after run."""
        panels = _spent_panels(self.spent, self.left)
        course = _course_panel(self.runs, self.spent)
        if course is None:
            return panels
        return [*panels, course]

    @property
    def spent_table(self) -> Table:
        """What each group has spent, and whom that concerns."""
        remaining = {item.name: item for item in self.left}
        cells: dict[str, Cell] = {
            "group": _name_of,
            "protects each": protected,
            "runs": "runs",
            "spent, at least": lambda group: six(group.epsilon_lower, False),
            "spent, at most": lambda group: six(group.epsilon_upper),
            "budget": lambda group: _budget_cell(remaining.get(_name_of(group))),
            "left": lambda group: _left_cell(remaining.get(_name_of(group))),
            "delta": lambda group: f"{group.delta:.4g}",
            "law": "sampling",
            "relation": "relation",
            "checked": lambda group: counted_levels(group.levels),
        }
        rules = dict.fromkeys(f"{item.name}: {item.rule}" for item in self.left)
        caption = (
            "epsilon of all releases of all runs, composed at once, by pld; left counts "
            "further runs that are chosen after seeing earlier ones, so it is less than "
            f"budget less spent. {'; '.join(rules)}"
        )
        return table_of("Who has spent what", self.spent, cells, caption.strip())

    @property
    def run_table(self) -> Table:
        """Over which runs, in their order."""
        cells: dict[str, Cell] = {
            "run": lambda run: run.source,
            "what": lambda run: (
                "a published count, on somebody's word"
                if run.algorithm == DECLARED
                else f"{run.algorithm} on {run.dataset or 'own data'}"
            ),
            "population": lambda run: run.population or "-",
            "groups": lambda run: ", ".join(share.group for share in run.shares),
            "releases": lambda run: f"{run.lines:,}",
            "checked": "checked",
            "plan": lambda run: "-" if run.algorithm == DECLARED else run.plan[:SHORT],
        }
        return table_of("Over which runs", self.runs, cells)

    @property
    def ceiling_table(self) -> Table:
        """Budgets of the book that are of no group in it, such as ceilings."""
        groups = {_name_of(group) for group in self.spent}
        cells: dict[str, Cell] = {
            "account": "name",
            "budget": lambda item: f"{item.budget:g}",
            "spent or reserved": lambda item: six(item.spent),
            "left": "words",
            "delta": lambda item: f"{item.delta:.4g}",
            "rule": "rule",
        }
        without_group = [item for item in self.left if item.name not in groups]
        return table_of("Further budgets", without_group, cells)


def book_markdown(address: Path | str, budgets: Mapping[str, float] | None) -> str:
    """The page of a book as Markdown; the pictures are sentences."""
    content = _content_of(address, budgets or {})
    lines = [f"# Budget book {in_markdown(content.address)}", "", content.headline, ""]
    lines += [f"- {in_markdown(panel.alt)}" for panel in content.panels]
    for table in (content.spent_table, content.ceiling_table, content.run_table):
        if table.rows:
            lines += ["", f"## {table.title}", "", *table.in_markdown()]
    return "\n".join([*lines, *map(in_markdown, content.faults)]) + "\n"


def _content_of(address: Path | str, budgets: Mapping[str, float]) -> BookContent:
    book = Book(address)
    runs = book.runs
    spent, faults = spendings(runs)
    return BookContent(
        book.address,
        runs,
        spent,
        [*_account_budgets(str(address)), *_stated_budgets(book, spent, budgets)],
        [str(fault) for fault in faults],
    )


def _account_budgets(address: str) -> list[Left]:
    """Budgets of the book's accounts."""
    if not has_accounts(address):
        return []
    return [
        Left(
            state.name,
            state.epsilon,
            state.delta,
            f"{state.rule} account",
            state.committed,
        )
        for state in Budgets(address).states()
    ]


def _stated_budgets(
    book: Book, spent: Sequence[Spending], budgets: Mapping[str, float]
) -> list[Left]:
    """Budgets that the reader states, for groups of the book."""
    groups = {_name_of(group): group for group in spent}
    stated = []
    for name, epsilon in budgets.items():
        if name not in groups:
            rule = f"must be a group of the book ({', '.join(groups) or 'none'})"
            raise InputError.one("budget", rule, name)
        group = groups[name]
        try:
            remaining = book.left(group.group, epsilon, population=group.population)
        except InfeasibleError:
            stated.append(Left(name, epsilon, group.delta, "used up", None))
        else:
            stated.append(
                Left(name, epsilon, remaining.delta, remaining.rule, remaining.spent)
            )
    return stated


def _name_of(group: Spending) -> str:
    return full_name(group.population, group.group)


def _budget_cell(remaining: Left | None) -> str:
    if remaining is None:
        return "not stated"
    return f"{remaining.budget:g}"


def _left_cell(remaining: Left | None) -> str:
    if remaining is None:
        return "-"
    return remaining.words


def _spent_panels(spent: Sequence[Spending], remaining: Sequence[Left]) -> list[Panel]:
    """What groups have spent: beside their budgets where these are stated."""
    if not spent:
        return []
    budgets = {item.name: item.budget for item in remaining}
    law = _law_of(spent)
    rows = []
    without_budget = []
    for group in spent:
        name = _name_of(group)
        if group.epsilon_upper is None:
            upper = math.inf
        else:
            upper = group.epsilon_upper
        if name in budgets:
            lower = group.epsilon_lower or 0.0
            rows.append(EpsilonRow(name, budgets[name], lower, upper))
        else:
            without_budget.append((name, upper))
    panels = []
    if rows:
        panels.append(epsilon_panel("spent", "Spent of the budget", rows, law))
    if without_budget:
        panels.append(_unbudgeted_panel(without_budget, law))
    return panels


def _law_of(spent: Sequence[Spending]) -> str:
    """What the epsilons of groups depend on besides the group."""
    laws: dict[str, None] = {}
    for group in spent:
        laws |= dict.fromkeys(group.sampling.split("+"))
    relations = dict.fromkeys(str(group.relation) for group in spent)
    return law_label(spent, "+".join(laws), "+".join(relations), PLD)


def _unbudgeted_panel(spent: Sequence[tuple[str, float]], law: str) -> Panel:
    """What groups have spent for which no budget is stated, by name."""
    shown, note = first_items(spent)
    lengths = [upper if math.isfinite(upper) else 0.0 for _, upper in shown]
    rows = [
        Row(name, length, at_most(upper) if math.isfinite(upper) else "no bound")
        for (name, upper), length in zip(shown, lengths, strict=True)
    ]

    def marks(axes: Axes, theme: Theme) -> None:
        axes.barh(range(len(lengths)), lengths, color=theme.good, height=0.5)
        axes.set_xlim(left=0)

    title = f"Spent over all runs{note}"
    return rows_panel("alone", title, f"epsilon, at most\n{law}", rows, marks)


def _course_panel(runs: Sequence[BookedRun], spent: Sequence[Spending]) -> Panel | None:
    """Epsilon after each run, of the first groups; None for one run or for many."""
    if not 1 < len(runs) <= FEW_POINTS:
        return None
    lines = {}
    for group in spent[: len(LIGHT.series)]:
        of_group = (group.population, group.group)
        line = {0.0: 0.0}
        until = History()
        for number, run in enumerate(runs, 1):
            for share in run.shares:
                is_in_group = (run.population, share.group) == of_group
                if is_in_group:
                    until = until + share.history
            line[float(number)] = _epsilon(until, group.delta, group.relation)
        lines[shortened(_name_of(group), 18)] = line
    across = f"run of the book\n{_law_of(spent)}"
    drawing = Lines(across, "epsilon so far, at most", lines)
    return drawing.panel("course", "Spent, run after run")


def _epsilon(history: History, delta: float, relation: Relation) -> float:
    """An upper bound on epsilon; NaN, which is not drawn, where there is none."""
    if not history.rounds:
        return 0.0
    try:
        upper = accountant(PLD).epsilon(history, delta, relation).upper
    except PrivplanError:
        return math.nan
    if math.isfinite(upper):
        return upper
    return math.nan
