"""Plans side by side: who is protected how, what an attacker can do, what it costs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privplan.accounting.accountant import at_most
from privplan.errors import InputError
from privplan.file_kinds import is_book
from privplan.forecast.target import forecast_lines
from privplan.plan import GroupForecast, GroupPlan, Plan
from privplan.planning.recipe import relative_noise
from privplan.report.document import document
from privplan.report.numbers import percent, rounded_up
from privplan.report.panels import Row, bars, first_items, rows_panel
from privplan.report.plots import law_of
from privplan.report.protection import (
    BLIND,
    promise_to,
    right_guesses,
    risks_where_known,
)
from privplan.report.style import Panel, Theme
from privplan.report.table import Cell, Table, table_of
from privplan.report.tables import upper_bounds
from privplan.visible import in_markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TERMS = (
    "epsilon: the odds of any guess about a participant rise at most by the factor "
    "e^epsilon; delta: the chance that more than that is revealed; clipping norm: the "
    "length to which each update is cut before noise is added; pld: the accountant of "
    "privacy loss distributions, whose upper bound on epsilon over all rounds is the "
    "guarantee"
)
"""The words of the page that only specialists know, where they stand."""
MOST_PLANS = 12  # of one page; nobody compares more by eye


@dataclass(frozen=True)
class ProposedGroup:
    """A group under one of the plans.

    Attributes:
        proposal: the name of the plan on the page.
        plan: it.
        group: of the plan.
        epsilon: upper bound on what the group spends.
        right: guesses of 100 that are right at most; None where it is unknown.
        expected: the group's forecast; None without one.
    """

    proposal: str
    plan: Plan
    group: GroupPlan
    epsilon: float
    right: float | None
    expected: GroupForecast | None

    @property
    def label(self) -> str:
        """Group and plan, for a row of a picture."""
        return f"{self.group.name}: {self.proposal}"

    @property
    def counts(self) -> float:
        """Weight in the model's step over the share of the clients, in percent."""
        share = self.group.clients / self.plan.spec.population
        return 100 * self.group.weight / share

    @property
    def guesses(self) -> str:
        """Right guesses of 100, as text."""
        if self.right is None:
            return "unknown"
        return rounded_up(self.right)

    @property
    def meaning(self) -> str:
        """What the group is promised and what that means, as a sentence."""
        return promise_to(self.plan, self.group, self.epsilon, self.right)


def loaded_proposals(sources: Sequence[Path | str]) -> dict[str, Plan]:
    """Plans of files by their names on a page.

    A plan has the name of its spec, or that of its file where two specs have one name.

    Raises:
        InputError: when a file is no certified plan, occurs twice, or there are more
            than ``MOST_PLANS``.
    """
    if len(sources) > MOST_PLANS:
        rule = f"must be {MOST_PLANS} plans or fewer side by side"
        raise InputError.one("report", rule, len(sources))
    plans = {}
    for source in sources:
        if Path(source).is_dir() or is_book(source):
            rule = "must be plan files, where several are named; a run, results or a book alone"
            raise InputError.one("report", rule, str(source))
        if str(source) in plans:
            raise InputError.one("report", "must name each plan once", str(source))
        plans[str(source)] = Plan.load(source)
    names = [plan.spec.name for plan in plans.values()]
    if len(set(names)) == len(names):
        return dict(zip(names, plans.values(), strict=True))
    stems = [Path(source).stem for source in plans]
    if len(set(stems)) == len(stems):
        return dict(zip(stems, plans.values(), strict=True))
    return plans


def proposals_page(plans: Mapping[str, Plan]) -> str:
    """Plans side by side as one HTML document: pictures, a table, then text.

    Args:
        plans: by their names on the page.

    >>> page = proposals_page({"today": plan, "stricter": other})
    """
    groups = proposed_groups(plans)
    return document(
        "proposals.html.j2",
        names=list(plans),
        panels=_panels(plans, groups),
        groups=_group_table(groups),
        costs=_cost_table(plans),
        terms=TERMS,
        texts={name: _lines(name, plan, groups) for name, plan in plans.items()},
    )


def proposals_markdown(plans: Mapping[str, Plan]) -> str:
    """Plans side by side as Markdown; the pictures are sentences."""
    groups = proposed_groups(plans)
    lines = [f"# Plans side by side: {in_markdown(', '.join(plans))}", ""]
    for panel in _panels(plans, groups):
        lines += [f"- {in_markdown(panel.alt)}"]
    for table in (_group_table(groups), _cost_table(plans)):
        lines += ["", f"## {table.title}", "", *table.in_markdown()]
    lines += ["", in_markdown(TERMS)]
    for name, plan in plans.items():
        lines += ["", f"## {in_markdown(name)}", ""]
        lines += [f"- {in_markdown(line)}" for line in _lines(name, plan, groups)]
    return "\n".join(lines) + "\n"


def proposed_groups(plans: Mapping[str, Plan]) -> list[ProposedGroup]:
    """Every group of every plan; those of one name follow each other."""
    by_name: dict[str, list[ProposedGroup]] = {}
    for name, plan in plans.items():
        upper = upper_bounds(plan)
        risks = {risk.group: risk for risk in risks_where_known(plan)}
        forecasts = {}
        if plan.forecast is not None:
            forecasts = {expected.group: expected for expected in plan.forecast.groups}
        for group in plan.groups:
            risk = risks.get(group.name)
            proposed = ProposedGroup(
                name,
                plan,
                group,
                upper[group.name],
                None if risk is None else right_guesses(risk),
                forecasts.get(group.name),
            )
            by_name.setdefault(group.name, []).append(proposed)
    return list(itertools.chain.from_iterable(by_name.values()))


def _group_table(groups: Sequence[ProposedGroup]) -> Table:
    """Who is protected how, and what it costs each group."""
    cells: dict[str, Cell] = {
        "group": lambda proposed: proposed.group.name,
        "plan": "proposal",
        "protects each": lambda proposed: proposed.plan.whom(proposed.group),
        "clients": lambda proposed: f"{proposed.group.clients:,}",
        "right guesses of 100 (blind: 50)": "guesses",
        "budget": lambda proposed: f"{proposed.group.epsilon:g}",
        "at most": lambda proposed: at_most(proposed.epsilon),
        "delta": lambda proposed: f"{proposed.group.delta:.3g}",
        "counts": lambda proposed: f"{proposed.counts:.0f}%",
        "noise multiplier": lambda proposed: f"{proposed.group.noise_multiplier:.4g}",
    }
    if any(proposed.expected for proposed in groups):
        cells["forecast accuracy"] = _forecast_cell
    laws = dict.fromkeys(
        f"{proposed.proposal}: {law_of(proposed.plan)}; {proposed.plan.identity}"
        for proposed in groups
    )
    caption = (
        "right guesses and at most: upper bounds over all rounds; counts: weight over "
        f"the share of the clients. {'. '.join(laws)}"
    )
    return table_of("Who is protected how", groups, cells, caption)


def _forecast_cell(proposed: ProposedGroup) -> str:
    expected = proposed.expected
    if expected is None:
        return "none"
    interval = f"{percent(expected.lower)} to {percent(expected.upper)}"
    return f"{percent(expected.accuracy)} ({interval})"


def _cost_table(plans: Mapping[str, Plan]) -> Table:
    """What each plan costs as a whole."""
    cells: dict[str, Cell] = {
        "plan": lambda item: item[0],
        "rounds": lambda item: f"{item[1].spec.rounds:,}",
        "clients a round": lambda item: f"{item[1].spec.expected_cohort:g}",
        "noise": lambda item: _noise_cell(item[1]),
        "digest": lambda item: item[1].digest[:12],
    }
    caption = (
        "noise: of a round's mean update, in clipping norms; less is better, between "
        "plans of one model and as many rounds"
    )
    return table_of("What it costs", plans.items(), cells, caption)


def _noise_cell(plan: Plan) -> str:
    if plan.unit != "client":
        return "at each client"
    return f"{relative_noise(plan):.4g}"


def _lines(name: str, plan: Plan, groups: Sequence[ProposedGroup]) -> list[str]:
    """A plan in sentences."""
    lines = [group.meaning for group in groups if group.proposal == name]
    if plan.unit == "client":
        counting = [
            f"{group.group.name} {group.counts:.0f}%"
            for group in groups
            if group.proposal == name
        ]
        lines.append(
            f"noise of a round's mean update: {_noise_cell(plan)} clipping norms; of "
            f"their number there count {', '.join(counting)}"
        )
    return [*lines, *forecast_lines(plan), *plan.warnings]


def _panels(plans: Mapping[str, Plan], groups: Sequence[ProposedGroup]) -> list[Panel]:
    """Guesses, what each group counts, noise, and forecasts where all have one."""
    panels = [_guess_panel(groups)]
    shown, note = first_items(groups)
    panels.append(
        bars(
            "counts",
            f"How much each group counts{note}",
            "weight in the model's step over the share of the clients (%)",
            [proposed.label for proposed in shown],
            [proposed.counts for proposed in shown],
            "{:.0f}%",
        )
    )
    noises = {
        name: relative_noise(plan)
        for name, plan in plans.items()
        if plan.unit == "client"
    }
    if noises:
        panels.append(
            bars(
                "noise",
                "Noise of the mean update",
                "norm over the clipping norm; less is better",
                list(noises),
                list(noises.values()),
            )
        )
    forecasts = {name: plan.forecast for name, plan in plans.items() if plan.forecast}
    if forecasts:
        panels.append(
            bars(
                "forecast",
                "Forecast accuracy",
                "test accuracy (%); line below: interval",
                list(forecasts),
                [100 * forecast.accuracy for forecast in forecasts.values()],
                "{:.1f}",
                [
                    (100 * forecast.lower, 100 * forecast.upper)
                    for forecast in forecasts.values()
                ],
            )
        )
    return panels


def _guess_panel(groups: Sequence[ProposedGroup]) -> Panel:
    """Right guesses of 100, from the blind 50 on; one row for a group and plan."""
    computed = [proposed for proposed in groups if proposed.right is not None]
    shown, note = first_items(computed)
    rows = [
        Row(proposed.label, proposed.right, f"{proposed.guesses} of 100")
        for proposed in shown
    ]

    def marks(axes: Axes, theme: Theme) -> None:
        for place, row in enumerate(rows):
            axes.plot([BLIND, row.end], [place] * 2, color=theme.limit, lw=5)
            axes.plot([row.end], [place], "o", color=theme.good, ms=7.5)
        longest = max((row.end for row in rows), default=BLIND)
        axes.set_xlim(BLIND, max(longest, math.nextafter(BLIND, math.inf) + 1))

    title = f"How often an attacker is right, at most{note}"
    unit = "right guesses of 100 (50: blind)"
    return rows_panel("guesses", title, unit, rows, marks, room=1.45)
