"""What is shown of the project's values, said once for each class of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from privplan.accounting.accountant import at_most
from privplan.accounting.release import SHORT
from privplan.accounting.tradeoff import LEVELS
from privplan.book.spending import full_name
from privplan.report import plots, tables, verdicts
from privplan.report.numbers import score
from privplan.report.panels import bars
from privplan.report.spendings import spending_table
from privplan.report.style import Panel
from privplan.report.table import Table
from privplan.report.tradeoffs import tradeoff_panels

Panels = Callable[[], list[Panel]]
Rows = Sequence[Mapping[str, Any]]

MOST_ROWS = 20  # most rows of a table that are shown; a data frame has them all
_LAST_ROUNDS = 5  # of a run, in its table


@dataclass(frozen=True)
class View:
    """What is shown of a value.

    Attributes:
        title: of the value.
        table: whose own title is not shown.
        rows: of the data frame.
        panels: of the picture.
        lines: after the table.
    """

    title: str
    table: Table
    rows: Rows
    panels: Panels
    lines: Sequence[str] = ()


def view_of(value: Any) -> View:
    """What is shown of a value, by its class or a base class of it."""
    for class_ in type(value).__mro__:
        if class_.__name__ in _VIEWS:
            return _VIEWS[class_.__name__](value)
    view: View = value.view()
    return view


def _spec(spec: Any) -> View:
    rows = [
        {"group": group.name, **_fields(group), "delta": spec.delta_of(group)}
        for group in spec.groups
    ]
    law = f"{spec.laws} sampling, {spec.relation}, unit {spec.unit}"
    caption = f"budgets: epsilon at delta over all rounds; {law}"
    cohort = f"{spec.expected_cohort:g} clients a round"
    title = f"Spec {spec.name}: {spec.rounds} rounds, {cohort}, model {spec.model.name}"
    names = [group.name for group in spec.groups]
    budgets = [group.epsilon for group in spec.groups]
    return View(
        title,
        _table(rows, ("group", "clients", "epsilon", "delta"), caption),
        rows,
        _bars("Budgets", names, budgets, "epsilon at delta over all rounds"),
    )


def _fields(group: Any) -> dict[str, Any]:
    """All fields of a group but its name."""
    fields: dict[str, Any] = group.model_dump(exclude={"name"})
    return fields


def _plan(plan: Any) -> View:
    upper = tables.upper_bounds(plan)
    rows = [
        {
            "group": group.name,
            **_fields(group),
            "epsilon_upper": upper[group.name],
        }
        for group in plan.groups
    ]
    spent = ", ".join(
        f"{group.name} {at_most(upper[group.name])} of {group.epsilon:g}"
        for group in plan.groups[:MOST_ROWS]
    )
    norm = plan.mean_noise_std * math.sqrt(plan.spec.model.parameters)
    lines = [
        f"certified by {plan.guarantee}: epsilon at most {spent}",
        f"noise of the mean update: {norm:.4g} in norm; {plan.status}",
    ]
    spec = plan.spec
    title = f"Plan {spec.name}: {spec.rounds} rounds, protects each {plan.whom()}"
    panels = partial(plots.plan_panels, plan)
    return View(title, tables.plan_table(plan), rows, panels, lines)


def _certificate(rows: Any) -> View:
    table = tables.certificate_table(rows)
    bounds = [row for row in rows if row.is_bound]
    names = [f"{row.group} {row.accountant}" for row in bounds]
    uppers = [row.epsilon_upper for row in bounds]
    panels = _bars("Certificate", names, uppers, "epsilon, at most")
    lines = [*rows.notes, *rows.warnings]

    # A picture of upper bounds has no room for a number that may lie below the true
    # epsilon.
    no_bounds = dict.fromkeys(
        f"{row.accountant} ({row.kind})" for row in rows if not row.is_bound
    )
    if no_bounds:
        lines.append(f"not in the picture, since no bound: {', '.join(no_bounds)}")
    return View(table.title, table, [row.model_dump() for row in rows], panels, lines)


def _verdict(verdict: Any) -> View:
    table = verdicts.group_table(verdict)
    rows = [group.model_dump(exclude={"audit", "one_run"}) for group in verdict.groups]
    return View(
        f"Verdict on {table.title}: {verdicts.headline(verdict)}",
        table,
        rows,
        lambda: [plots.verdict_panel(verdict)],
        [verdicts.worst_line(verdict)],
    )


def _bundle(bundle: Any) -> View:
    verdict = bundle.verdict
    rows = [promise.model_dump(mode="json") for promise in verdict.groups]
    shown = [{**row, "spent at most": at_most(row["realised_upper"])} for row in rows]
    columns = ("group", "clients", "budget", "spent at most", "delta", "sampling")
    whom = f"{verdict.relation}, unit {verdict.unit}"
    caption = f"epsilon at delta over all rounds, as its publisher found; {whom}"
    names = [promise.group for promise in verdict.groups]
    spent = [promise.realised_upper for promise in verdict.groups]
    return View(
        f"Bundle of plan {verdict.plan[:SHORT]}: {verdict.algorithm}",
        _table(shown, (*columns, "accountant"), caption),
        rows,
        _bars("Spent", names, spent, "epsilon, at most"),
        [f"its publisher says: {verdict.line}"],
    )


def _history(history: Any) -> View:
    rows = [{"rounds": count, **vars(release)} for release, count in history]
    labels = [f"{count} rounds" for _, count in history]
    noise = [release.noise_multiplier for release, _ in history]
    panels = _bars("Noise", labels, noise, "noise multiplier")
    return View(f"History of {history.rounds} releases", _table(rows), rows, panels)


def _run(run: Any) -> View:
    record = run.record
    spec = run.plan.spec
    rows = [
        {"round": done.round, record.metric: done.accuracy, "loss": done.loss}
        for done in record.metrics
    ]
    reached = score(record.metric, record.accuracy) or "not measured"
    title = (
        f"Run of plan {spec.name}: {record.algorithm} {record.dataset}, "
        f"{record.status}, {record.rounds_done} of {spec.rounds} rounds, test "
        f"{record.metric} {reached}"
    )
    panels = partial(plots.score_panels, record, run.plan)
    hint = "what it spent: privplan.verify(run)"
    return View(title, _table(rows[-_LAST_ROUNDS:]), rows, panels, [hint])


def _tradeoff(curve: Any) -> View:
    axes = zip(curve.false_positive_axis, curve.true_positive_axis, strict=True)
    rows = [
        {"false_positives": false_rate, "true_positives": true_rate}
        for false_rate, true_rate in axes
    ]
    bounds = {"mu at points down to delta": curve.mu, "advantage": curve.advantage}
    for level, rate in zip(LEVELS, curve.true_positives, strict=True):
        bounds[f"true positives at {level:g} false positives"] = rate
    scalars = [
        {"no attack exceeds": name, "value": value} for name, value in bounds.items()
    ]
    title = "Upper bounds on every attack"
    return View(title, _table(scalars), rows, partial(tradeoff_panels, curve, title))


def _book(book: Any) -> View:
    spent = book.spent()
    rows = []
    for run in book.runs:
        fields_of_run = run.model_dump(exclude={"shares"})
        for share in run.shares:
            fields_of_share = share.model_dump()
            # Rows are releases; their sum is not what was spent, which spent() says.
            fields_of_share["budget_epsilon"] = fields_of_share.pop("epsilon")
            for release in fields_of_share.pop("releases"):
                rows.append({**fields_of_run, **fields_of_share, **release})
    names = [full_name(group.population, group.group) for group in spent]
    upper = [group.epsilon_upper for group in spent]
    panels = _bars("Budget book", names, upper, "epsilon spent, at most")
    title = f"Budget book {book.address}: {len(book.runs)} runs"
    return View(title, spending_table(spent), rows, panels)


def _bars(
    title: str, labels: Sequence[str], values: Sequence[float | None], unit: str
) -> Panels:
    """A panel of bars; one without a bound has no length, and its label says so."""
    names = []
    lengths = []
    for label, value in zip(labels, values, strict=True):
        has_bound = value is not None and value != math.inf
        names.append(label if has_bound else f"{label}: no bound")
        is_finite = value is not None and math.isfinite(value)
        lengths.append(value if value is not None and is_finite else 0.0)
    return lambda: [bars("values", title, unit, names, lengths)]


def _table(rows: Rows, columns: Sequence[str] = (), caption: str = "") -> Table:
    """Some columns of rows, by default all, as a table."""
    if not columns and rows:
        columns = tuple(rows[0])
    table = Table("", list(columns), [], caption)
    for row in rows:
        values = [row[column] for column in columns]
        table.rows.append(
            [
                f"{value:.5g}" if isinstance(value, float) else str(value)
                for value in values
            ]
        )
    return table


_VIEWS: dict[str, Callable[[Any], View]] = {
    "Spec": _spec,
    "Plan": _plan,
    "Certificate": _certificate,
    "Verdict": _verdict,
    "Bundle": _bundle,
    "History": _history,
    "Run": _run,
    "TrainedRun": _run,
    "TradeOff": _tradeoff,
    "Book": _book,
}
