"""Kinds of panels: rows of marks, bars, budgets with what was spent, and lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from privplan.accounting.accountant import at_most
from privplan.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_GROUPS = 40  # most groups with a row of their own
MOST_LINES = 24  # most lines with a name
FEW_POINTS = 10  # a line with fewer has marks, and its numbers in the text
_DECIMALS = 1e4  # four decimals of a lower bound, which is rounded down

Line = Mapping[float, float]
"""Values of one line by their places."""


class Row(NamedTuple):
    """A row of a panel."""

    name: str
    end: float  # of its marks
    words: str  # beside the end


class EpsilonRow(NamedTuple):
    """What a group spent of its budget."""

    name: str
    budget: float
    lower: float  # bound on epsilon from below; 0 where it is not known
    upper: float  # from above

    @property
    def words(self) -> str:
        """Bounds and budget as text."""
        if math.isinf(self.upper):
            return f"no bound, budget {self.budget:g}"
        low = f"{math.floor(self.lower * _DECIMALS) / _DECIMALS:g}"
        high = at_most(self.upper)
        if self.lower and low != high:
            return f"{low}–{high} of {self.budget:g}"
        return f"{high} of {self.budget:g}"


def first_items(items: Sequence[Any]) -> tuple[list[Any], str]:
    """The first items that have a row each, and a note on how many that are of all."""
    shown = list(items[:MOST_GROUPS])
    if len(shown) == len(items):
        return shown, ""
    return shown, f" (first {len(shown)} of {len(items)})"


def rows_panel(
    name: str,
    title: str,
    unit: str,
    rows: Sequence[Row],
    marks: Callable[[Axes, style.Theme], None],
    room: float = 1.3,
) -> style.Panel:
    """A panel with a row for each name.

    Args:
        name: for files.
        title: of the panel.
        unit: of the horizontal axis.
        rows: what stands at the left and at the right of the marks.
        marks: draws them.
        room: width of the axis with that of the words, over the width of the marks.
    """
    label = style.wrapped(unit)

    def draw(axes: Axes, theme: style.Theme) -> None:
        marks(axes, theme)
        for place, row in enumerate(rows):
            style.label_beside(axes, row.end, place, row.words)
        low, high = axes.get_xlim()
        if low <= 0:
            # A score may be missing, or not finite.
            ends = [row.end for row in rows if math.isfinite(row.end)]
            high = max(ends, default=high)
        style.with_room(axes, high, room, max(low, 0.0))
        style.name_rows(axes, [row.name for row in rows], label)

    words = "; ".join(f"{row.name} {row.words}" for row in rows)
    alt = f"{title}, {' '.join(unit.split())}: {words}."
    # Inches: of the frame, of each line below the axis, and of each row.
    height = 0.85 + 0.14 * (label.count("\n") + 1) + 0.3 * max(len(rows), 2)
    return style.Panel(name, title, alt, draw, height)


def epsilon_panel(
    name: str, title: str, rows: Sequence[EpsilonRow], law: str
) -> style.Panel:
    """Budgets as wide bars, upper bounds as narrow ones, a tick at the lower bound.

    Args:
        name: for files.
        title: of the panel.
        rows: of the groups.
        law: delta, sampling law, relation and accountant of the bounds.
    """
    rows, note = first_items(rows)
    budgets = [row.budget for row in rows]
    bounds = [*budgets, *(row.upper for row in rows)]
    # A bar without an end goes a little beyond all others.
    longest = 1.1 * max(filter(math.isfinite, bounds))
    ends = [min(row.upper, longest) for row in rows]

    def marks(axes: Axes, theme: style.Theme) -> None:
        places = range(len(rows))
        colours = [theme.good if row.upper <= row.budget else theme.bad for row in rows]
        axes.barh(places, budgets, color=theme.limit, height=0.74)
        axes.barh(places, ends, color=colours, height=0.34)
        for place, row in enumerate(rows):
            edge = [place - 0.37, place + 0.37]
            axes.plot([row.budget] * 2, edge, color=theme.ink, lw=1.6)
            if row.lower:
                axes.plot([row.lower], [place], "|", color=theme.ground, ms=8, mew=1.2)

    labelled = [
        Row(row.name, max(row.budget, end), row.words)
        for row, end in zip(rows, ends, strict=True)
    ]
    unit = f"epsilon: bar spent (at most), grey budget\n{law}"
    return rows_panel(name, title + note, unit, labelled, marks, room=1.45)


def bars(
    name: str,
    title: str,
    unit: str,
    names: Sequence[str],
    values: Sequence[float],
    form: str = "{:.3g}",
    intervals: Sequence[tuple[float, float]] = (),
) -> style.Panel:
    """One bar per name with its value.

    Args:
        name: for files.
        title: of the panel.
        unit: of the values.
        names: of the bars.
        values: of the bars.
        form: of a value as text.
        intervals: ends of a line below each bar.
    """

    def marks(axes: Axes, theme: style.Theme) -> None:
        axes.barh(range(len(values)), values, color=theme.good, height=0.5)
        for place, ends in enumerate(intervals):
            below = [place + 0.36] * 2
            axes.plot(ends, below, color=theme.bad, lw=2.4)
        # Only a metric of the user is below zero.
        axes.set_xlim(left=min([0.0, *values]))

    rows = [
        Row(label, value, form.format(value))
        for label, value in zip(names, values, strict=True)
    ]
    return rows_panel(name, title, unit, rows, marks, room=1.2)


class Band(NamedTuple):
    """A forecast beside a line."""

    lower: float
    middle: float
    upper: float


@dataclass(frozen=True)
class Lines:
    """Lines with their names, and what stands beside them.

    Attributes:
        across: label of the horizontal axis.
        up: label of the vertical axis.
        lines: by name.
        spread: half the width of what is around a line, by its name.
        limits: a level for each line, dotted.
        band: a forecast.
        chosen: the place of the plan itself.
        logarithmic: whether the horizontal axis is.
        from_zero: whether the vertical axis begins at zero.
    """

    across: str
    up: str
    lines: Mapping[str, Line]
    spread: Mapping[str, Line] = field(default_factory=dict)
    limits: Sequence[float] = ()
    band: Band | None = None
    chosen: float | None = None
    logarithmic: bool = False
    from_zero: bool = True

    def panel(self, name: str, title: str) -> style.Panel:
        """A panel of the lines, with a name for files."""
        height = max(2.8, 0.6 + 0.21 * min(len(self.lines), MOST_LINES))
        return style.Panel(name, title, self.words, self.draw, height)

    @property
    def words(self) -> str:
        """What the lines show; the numbers of those with few points."""
        descriptions = []
        for name, line in self.lines.items():
            description = name
            if len(line) < FEW_POINTS:
                points = [f"{value:.5g} at {place:g}" for place, value in line.items()]
                description = f"{name} {', '.join(points)}".strip()
            descriptions.append(description)
        words = "; ".join(descriptions)
        if self.band is not None:
            lower, middle, upper = self.band
            words += f"; forecast {lower:.1f} to {upper:.1f}, most likely {middle:.1f}"
        return f"{self.up} by {' '.join(self.across.split())}: {words}."

    def draw(self, axes: Axes, theme: style.Theme) -> None:
        """Draw the lines, then the forecast, then the axes around them."""
        ends = []
        for number, (name, line) in enumerate(self.lines.items()):
            colour, _ = theme.line(number)
            self._draw_line(axes, theme, number)
            if name and line and number < MOST_LINES:
                last_place = max(line)
                end = line[last_place]
                if self.limits and math.isnan(end):
                    end = self.limits[number]
                ends.append(style.LineEnd(last_place, end, name, colour))
        if self.band is not None:
            lower, middle, upper = self.band
            axes.axhspan(lower, upper, color=theme.bad, alpha=0.16, lw=0)
            axes.axhline(middle, color=theme.bad, lw=1.2, ls="--")
            _, right = axes.get_xlim()
            label = f"forecast {middle:.1f}"
            ends.append(style.LineEnd(right, middle, label, theme.bad))
        self._set_axes(axes)
        style.name_lines(axes, ends)

    def _draw_line(self, axes: Axes, theme: style.Theme, number: int) -> None:
        """A line with its spread, its limit and the plan's own place."""
        name = list(self.lines)[number]
        line = self.lines[name]
        colour, dashes = theme.line(number)
        places = list(line)
        values = list(line.values())
        mark = "o" if len(line) < FEW_POINTS else None
        axes.plot(places, values, dashes, marker=mark, ms=3, color=colour)
        spread = list(self.spread.get(name, {}).values())
        if spread:
            pairs = list(zip(values, spread, strict=True))
            lower = [value - half for value, half in pairs]
            upper = [value + half for value, half in pairs]
            axes.fill_between(places, lower, upper, color=colour, alpha=0.16, lw=0)
        if self.limits:
            axes.axhline(self.limits[number], color=colour, lw=0.9, ls=":")
        if self.chosen is not None and self.chosen in line:
            point = (self.chosen, line[self.chosen])
            axes.plot(*point, "o", ms=9, mfc="none", mec=theme.ink, mew=1.6)
            # At the side where the line is not.
            is_falling = values[-1] < values[0]
            axes.annotate(
                "this plan",
                point,
                (7 if is_falling else -7, 7),
                color=theme.ink,
                textcoords="offset points",
                ha="left" if is_falling else "right",
            )

    def _set_axes(self, axes: Axes) -> None:
        """Ranges, ticks and labels of both axes."""
        places: set[float] = set().union(*self.lines.values())
        if self.from_zero:
            levels = list(self.limits)
            for line in self.lines.values():
                levels += line.values()
            style.from_zero(axes, list(filter(math.isfinite, levels)))
        if self.logarithmic:
            style.by_factors(axes, sorted(places))
        elif self.across.split()[0] in ("round", "run"):
            axes.set_xlim(0, max(places, default=1))
            axes.locator_params(axis="x", integer=True)
        axes.set_xlabel(style.wrapped(self.across))
        axes.set_ylabel(self.up)


def law_label(groups: Iterable[Any], law: str, *words: str) -> str:
    """What an epsilon depends on besides its group, for the label of an axis.

    Args:
        groups: with their deltas.
        law: the sampling law.
        words: relation and accountant.
    """
    deltas = [group.delta for group in groups]
    ends = dict.fromkeys(f"{delta:.3g}" for delta in (min(deltas), max(deltas)))
    return ", ".join([f"delta {' to '.join(ends)}", f"{law} sampling", *words])
