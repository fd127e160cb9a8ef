"""What Python and notebooks show of the project's values: text, a page of HTML, a table, a picture.

A ``View`` says it once for each class of values; ``text``, ``page``, ``frame`` and ``picture``
turn it into what is asked for. pandas and matplotlib are imported only for the last two.
"""

from __future__ import annotations

import math
import textwrap
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from privplan.accounting.accountant import at_most
from privplan.accounting.tradeoff import LEVELS
from privplan.book.spending import full_name
from privplan.errors import InputError
from privplan.files import write_bytes
from privplan.report import plots, tables
from privplan.report.style import Panel, picture_name, shortened
from privplan.report.style import picture as drawn
from privplan.report.tables import Table
from privplan.visible import KEPT_LINES, in_html, printable

Panels = Callable[[], list[Panel]]
MOST_ROWS = 20  # most rows of a table that are shown; a data frame has them all
WIDTH = 100


@dataclass(frozen=True)
class View:
    """What is shown of a value."""

    title: str
    table: Table  # whose title is not shown
    rows: Sequence[dict[str, Any]]  # of the data frame
    panels: Panels  # of the picture
    lines: Sequence[str] = ()  # after the table


class Picture:
    """Panels as a picture: notebooks show it as PNG, ``save`` writes .png, .svg or .pdf."""

    def __init__(self, panels: Panels, title: str = "") -> None:
        self._panels, self._title = panels, title

    def __repr__(self) -> str:
        return 'Picture: shown in a notebook; written by .save("picture.png"), .svg or .pdf'

    def draw(self, form: str = "svg") -> bytes:
        """The picture in an image format."""
        panels = self._panels()
        title = shortened(self._title, 90) if len(panels) > 1 else ""
        return drawn(panels, form, title=title, columns=2)

    def _repr_png_(self) -> bytes:
        return self.draw("png")

    def save(self, path: Path | str) -> None:
        """Write the picture; the name's ending is its format."""
        write_bytes(path, self.draw(picture_name(str(path))))


# --- One function per class: what is shown of it. ------------------------------------------------


def _spec(spec: Any) -> View:
    rows = [
        {
            "group": one.name,
            **one.model_dump(exclude={"name"}),
            "delta": spec.delta_of(one),
        }
        for one in spec.groups
    ]
    law = f"{spec.laws} sampling, {spec.relation}, unit {spec.unit}"
    cohort = f"{spec.expected_cohort:g} clients a round"
    title = f"Spec {spec.name}: {spec.rounds} rounds, {cohort}, model {spec.model.name}"
    shown = ("group", "clients", "epsilon", "delta")
    table = _table(rows, shown, f"budgets: epsilon at delta over all rounds; {law}")
    budgets = [(one.name, one.epsilon) for one in spec.groups]
    return View(
        title,
        table,
        rows,
        _bars("Budgets", budgets, "epsilon at delta over all rounds"),
    )


def _plan(plan: Any) -> View:
    table = tables.plan_table(plan)
    upper = {one.group: one.epsilon_upper for one in plan.certificate if one.guarantee}
    rows = [
        {
            "group": one.name,
            **one.model_dump(exclude={"name"}),
            "epsilon_upper": upper[one.name],
        }
        for one in plan.groups
    ]
    spent = [
        f"{one.name} {at_most(upper[one.name])} of {one.epsilon:g}"
        for one in plan.groups
    ]
    norm = plan.mean_noise_std * math.sqrt(plan.spec.model.parameters)
    lines = [
        f"certified by {plan.guarantee}: epsilon at most {', '.join(spent[:MOST_ROWS])}",
        f"noise of the mean update: {norm:.4g} in norm; {plan.status}",
    ]
    title = (
        f"Plan {plan.spec.name}: {plan.spec.rounds} rounds, protects each {plan.unit}"
    )
    return View(title, table, rows, partial(plots.plan_panels, plan), lines)


def _certificate(rows: Any) -> View:
    table = tables.certificate_table(rows)
    bounds = [row for row in rows if row.is_bound]
    uppers = [(f"{row.group} {row.accountant}", row.epsilon_upper) for row in bounds]
    panels = _bars("Certificate", uppers, "epsilon, at most")
    # A picture of upper bounds has no room for a number that may lie below the true epsilon.
    others = {
        f"{row.accountant} ({row.kind})": None for row in rows if not row.is_bound
    }
    left = (
        [f"not in the picture, since no bound: {', '.join(others)}"] if others else []
    )
    lines = [*rows.notes, *rows.warnings, *left]
    return View(table[0], table, [row.model_dump() for row in rows], panels, lines)


def _verdict(verdict: Any) -> View:
    table = tables.group_table(verdict)
    title = f"Verdict on {table[0]}: {tables.headline(verdict)}"
    rows = [one.model_dump(exclude={"audit", "one_run"}) for one in verdict.groups]
    return View(
        title,
        table,
        rows,
        lambda: [plots.verdict_panel(verdict)],
        [tables.worst_line(verdict)],
    )


def _history(history: Any) -> View:
    rows = [{"rounds": count, **vars(one)} for one, count in history]
    noise = [(f"{one['rounds']} rounds", one["noise_multiplier"]) for one in rows]
    panels = _bars("Noise", noise, "noise multiplier")
    return View(f"History of {history.rounds} releases", _table(rows), rows, panels)


def _run(run: Any) -> View:
    record, spec = run.record, run.plan.spec
    rows = [one.model_dump() for one in record.metrics]
    score = tables.score(record.metric, record.accuracy) or "not measured"
    title = (
        f"Run of plan {spec.name}: {record.algorithm} {record.dataset}, {record.status}, "
        f"{record.rounds_done} of {spec.rounds} rounds, test {record.metric} {score}"
    )
    panels = partial(plots.score_panels, record, run.plan)
    return View(
        title, _table(rows[-5:]), rows, panels, ["what it spent: privplan.verify(run)"]
    )


def _tradeoff(found: Any) -> View:
    axes = zip(found.false_positive_axis, found.true_positive_axis, strict=True)
    rows = [
        {"false_positives": wrong, "true_positives": right} for wrong, right in axes
    ]
    bounds = {"mu at points down to delta": found.mu, "advantage": found.advantage}
    for level, rate in zip(LEVELS, found.true_positives, strict=True):
        bounds[f"true positives at {level:g} false positives"] = rate
    scalars = [
        {"no attack exceeds": name, "value": value} for name, value in bounds.items()
    ]
    title = "Upper bounds on every attack"
    return View(
        title, _table(scalars), rows, partial(plots.tradeoff_panels, found, title)
    )


def _book(book: Any) -> View:
    spent = book.spent()
    rows = [
        {
            **run.model_dump(exclude={"shares"}),
            **share.model_dump(exclude={"releases"}),
            **one,
        }
        for run in book.runs
        for share in run.shares
        for one in share.model_dump()["releases"]
    ]
    upper = [(full_name(one.population, one.group), one.epsilon_upper) for one in spent]
    panels = _bars("Budget book", upper, "epsilon spent, at most")
    title = f"Budget book {book.address}: {len(book.runs)} runs"
    return View(title, tables.spending_table(spent), rows, panels)


def _bars(title: str, found: Sequence[tuple[str, float | None]], unit: str) -> Panels:
    known = [
        value if value is not None and math.isfinite(value) else 0.0
        for _, value in found
    ]
    names = [
        f"{name}: no bound" if value in (None, math.inf) else name
        for name, value in found
    ]
    return lambda: [plots.bars("values", title, unit, names, known)]


VIEWS: dict[str, Callable[[Any], View]] = {
    "Spec": _spec, "Plan": _plan, "Certificate": _certificate, "Verdict": _verdict,
    "History": _history, "Run": _run, "TrainedRun": _run, "TradeOff": _tradeoff, "Book": _book,
}  # fmt: skip
"""What is shown, by class of the value or of a base class of it."""


def _view(value: Any) -> View:
    own = next((one for one in type(value).__mro__ if one.__name__ in VIEWS), None)
    found: View = VIEWS[own.__name__](value) if own else value.view()
    return found


def _table(
    rows: Sequence[dict[str, Any]], columns: Sequence[str] = (), caption: str = ""
) -> Table:
    chosen = list(columns or (rows[0] if rows else ()))
    found = [[row[name] for name in chosen] for row in rows]
    cells = [
        [f"{c:.5g}" if isinstance(c, float) else str(c) for c in row] for row in found
    ]
    return "", chosen, cells, caption


# --- Four ways to show a view. -------------------------------------------------------------------


def _cut(table: Table) -> tuple[list[str], list[list[str]], list[str]]:
    """Columns, the first rows, and what follows them."""
    _, columns, rows, caption = table
    more = len(rows) - MOST_ROWS
    left = [f"... and {more} more rows: to_frame() has them all"] if more > 0 else []
    return columns, rows[:MOST_ROWS], [*left, *filter(None, [caption])]


def text(value: Any) -> str:
    """One screen of text."""
    view = _view(value)
    columns, rows, after = _cut(view.table)
    grid = [columns, *rows] if columns else []
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in grid
    ]
    notes = [
        part for line in (*after, *view.lines) for part in textwrap.wrap(line, WIDTH)
    ]
    shown = [
        *textwrap.wrap(view.title, WIDTH),
        *(f"  {line.rstrip()}" for line in lines),
        *notes,
    ]
    return printable("\n".join(shown), KEPT_LINES)


def page(value: Any) -> str:
    """A table below the picture, as a piece of HTML without scripts or a style sheet."""
    view = _view(value)
    columns, rows, after = _cut(view.table)
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    notes = "".join(f"<p>{in_html(one)}</p>" for one in (*after, *view.lines))
    image = f"data:image/svg+xml;base64,{b64encode(picture(value).draw()).decode()}"
    small = f'<img width="420" alt="{in_html(view.title)}" src="{image}">'
    return (
        f"<div><p><b>{in_html(view.title)}</b></p>{small}<table><thead><tr>"
        f"{_cells(columns, 'th')}</tr></thead><tbody>{body}</tbody></table>{notes}</div>"
    )


def _cells(words: Sequence[str], tag: str) -> str:
    style = "text-align:left;padding:0.15em 0.8em 0.15em 0"
    return "".join(f'<{tag} style="{style}">{in_html(one)}</{tag}>' for one in words)


def picture(value: Any) -> Picture:
    """The value's picture."""
    view = _view(value)
    return Picture(view.panels, view.title)


def frame(value: Any) -> Any:
    """The rows of a value as a data frame whose ``plot()`` draws the value."""
    return frame_of(list(_view(value).rows), lambda: picture(value))


def frame_of(rows: Sequence[dict[str, Any]], draw: Callable[[], Picture]) -> Any:
    """Rows as a data frame whose ``plot()`` without arguments is ``draw()``."""
    try:
        import pandas
    except ImportError:
        rule = "needs pandas: pip install 'privplan[tables]'"
        raise InputError.one("to_frame", rule, "no pandas") from None

    class Plot(pandas.DataFrame.plot):  # type: ignore[misc]
        def __call__(self, *arguments: Any, **named: Any) -> Any:
            return (
                super().__call__(*arguments, **named) if arguments or named else draw()
            )

    found = pandas.DataFrame(rows)
    object.__setattr__(found, "plot", Plot(found))
    return found
