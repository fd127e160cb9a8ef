"""Plots of test accuracy by round, of accuracy per group and of the budget that was spent."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privplan.io.files import write_bytes
from privplan.plan import Plan
from privplan.record import ACCURACY, RunRecord
from privplan.report.plots import BLUE, GREY, ORANGE, verbatim
from simulate.runs.canvas import SMALL, Canvas, Panel, width_of

LEGEND_ROWS = 16
"""Most entries per column of the legend."""
COLOURS = 10
"""Length of matplotlib's cycle of colours."""
STYLES = ("-", "--", ":", "-.")
MOST_BARS = 12
"""Most groups that are drawn as bars with their names."""
LETTERS = 24
"""Most letters of a name, and of all names of groups that are written level."""
SLANT = 60.0
"""Angle of longer names, in degrees."""
WIDTH, HEIGHT = 1200, 480
"""Size of the plot of a run, in pixels."""


def accuracy_by_round(
    path: Path, record: RunRecord, plan: Plan, spent: Mapping[str, float]
) -> None:
    """Write a plot of a run: accuracy by round, final accuracy and spent epsilon per group.

    Args:
        path: the image file.
        record: the finished run's record.
        plan: the executed plan, with the budgets.
        spent: upper bound on the realised epsilon per group.
    """
    shown = plan.groups[:MOST_BARS]
    names = [group.name for group in shown]
    known = [name for name in names if name in record.accuracy_by_group]
    angle = SLANT if len(names) * max(map(len, names)) > LETTERS else 0.0
    widest = max(width_of(_short(name)) for name in names)
    lowest = HEIGHT - (25 + 0.9 * widest if angle else 50)
    canvas, percent = Canvas(WIDTH, HEIGHT), record.metric == ACCURACY

    curve = _curve(record)
    panel = Panel(canvas, (75, 40, 505, HEIGHT - 60), (0, plan.spec.rounds * 1.02), _range(curve))
    panel.numbers_below("round", grid=True)
    panel.axes(f"{record.algorithm} on {record.dataset}, {record.partition}", grid=True)
    panel.curve([point.round for point in record.metrics], curve, BLUE)
    unit = " (%)" * percent
    canvas.slanted(14, HEIGHT / 2, f"test {record.metric}{unit}", 90)

    values = [_scale(record) * record.accuracy_by_group[name] for name in known]
    limits = (0.0, 110.0) if percent else (min([0.0, *values]), 1.15 * max([1e-9, *values]))
    panel = Panel(canvas, (570, 40, 810, lowest), (-0.6, max(1, len(known)) - 0.4), limits)
    for number, value in enumerate(values):
        panel.bar(number, value, 0.5, BLUE, f"{value:.1f}" if percent else f"{value:.3g}")
    panel.axes(f"test {record.metric} at the end{unit}")
    panel.names_below(list(map(_short, known)), angle)

    found = [spent.get(name, math.inf) for name in names]
    finite = [value for value in found if math.isfinite(value)]
    top = 1.3 * max([group.epsilon for group in shown] + finite)
    panel = Panel(canvas, (870, 40, 1185, lowest), (-0.6, len(names) - 0.4), (0.0, top))
    for number, (group, value) in enumerate(zip(shown, found, strict=True)):
        panel.bar(number, group.epsilon, 0.8, GREY)
        words = f"{value:.4g}" if math.isfinite(value) else "infinite"
        panel.bar(number, min(value, top / 1.04), 0.5, ORANGE, words)
    panel.axes(f"epsilon at delta {max(group.delta for group in plan.groups):.2g}")
    panel.names_below(list(map(_short, names)), angle)
    for x, colour, words in ((1075, ORANGE, "spent"), (1134, GREY, "budget")):
        canvas.box(x, 21, x + 12, 31, colour)
        canvas.text(x + 16, 26, words, SMALL, "lm")
    write_bytes(path, canvas.png())


def _short(name: str) -> str:
    """A name of at most ``LETTERS`` letters."""
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Range of the vertical axis around the finite ones of the values."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    margin = 0.05 * (high - low) or 0.05 * max(1.0, abs(high))
    return low - margin, high + margin


def comparison(path: Path, runs: Mapping[str, Sequence[RunRecord]], title: str) -> None:
    """Write a plot of mean accuracy by round with a band of one standard deviation.

    Args:
        path: the image file.
        runs: the runs per algorithm, one per seed, evaluated in the same rounds.
        title: title of the plot.
    """
    columns = -(-len(runs) // LEGEND_ROWS)
    wider = 0.0 if columns == 1 else 2.2 * columns
    figure, axes = _figure(6.4 + wider)
    last = 1
    for number, (name, records) in enumerate(runs.items()):
        rounds = [point.round for point in records[0].metrics]
        values = np.array([_curve(run) for run in records])
        mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1 if len(records) > 1 else 0)
        style = STYLES[number // COLOURS % len(STYLES)]
        [line] = axes.plot(rounds, mean, style, marker="o", ms=3, label=name)
        axes.fill_between(rounds, mean - spread, mean + spread, alpha=0.2, color=line.get_color())
        last = max(last, *rounds)
    if columns == 1:
        axes.legend(fontsize=8)
    else:
        figure.legend(loc="outside right upper", fontsize=8, ncols=columns)
    axes.set_title(title)
    _by_round(axes, last, next(iter(runs.values()))[0])
    _write(path, figure)


def _scale(record: RunRecord) -> float:
    """Accuracies are plotted in percent, other metrics as they are."""
    return 100.0 if record.metric == ACCURACY else 1.0


def _curve(record: RunRecord) -> list[float]:
    """Scores by evaluated round; NaN where a score was not finite."""
    scores = (np.nan if point.accuracy is None else point.accuracy for point in record.metrics)
    return [_scale(record) * one for one in scores]


def _figure(wide: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(wide, 4.0), layout="constrained")
    return figure, figure.subplots()


def _by_round(axes: Any, last: int, record: RunRecord) -> None:
    """Axes from round 0, so that a curve starts at the round of its first evaluation."""
    axes.set_xlim(0, last * 1.02)
    axes.set_xlabel("round")
    unit = " (%)" if record.metric == ACCURACY else ""
    axes.set_ylabel(f"test {record.metric}{unit}")
    axes.grid(alpha=0.3)


def _write(path: Path, figure: Any) -> None:
    content = io.BytesIO()
    verbatim(figure)
    figure.savefig(content, format="png", dpi=120)
    write_bytes(path, content.getvalue())
