"""Plots of test accuracy by round, of accuracy per group and of the budget that was spent."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from privplan.files import write_bytes
from privplan.plan import Plan
from privplan.record import ACCURACY, RunRecord
from privplan.report.plots import BLUE, GREY, ORANGE, shortened, tidy, undocumented

LEGEND_ROWS = 16
"""Most entries per column of the legend."""
COLOURS = 10
"""Length of matplotlib's cycle of colours."""
STYLES = ("-", "--", ":", "-.")
HEIGHT = 4.0
"""Height of a figure in inches."""
MOST_LETTERS = 16
"""Most letters of a name below a bar."""
MOST_BARS = 12
"""Most groups that are drawn as bars with their names."""


def accuracy_by_round(
    path: Path, record: RunRecord, plan: Plan, spent: Mapping[str, float]
) -> None:
    """Write a plot of a run: accuracy by round, final accuracy and spent epsilon per group."""
    with _literal_text():
        _write(path, _panels(record, plan, spent))


def _panels(record: RunRecord, plan: Plan, spent: Mapping[str, float]) -> Any:
    """The figure of a run. Its margins are given: laying them out takes as long as drawing."""
    names = [group.name for group in plan.groups][:MOST_BARS]
    known = [name for name in names if name in record.accuracy_by_group]
    figure, (curve, groups, budgets) = _figure(3, (2.4, 1.3, 1.5), 10.0)
    below = 0.5 if not _rotation(names) else 0.4 + 0.07 * min(max(map(len, names)), MOST_LETTERS)
    figure.subplots_adjust(left=0.065, right=0.99, top=0.92, bottom=below / HEIGHT, wspace=0.22)
    rounds = [point.round for point in record.metrics]
    curve.plot(rounds, _curve(record), "o-", ms=3, color=BLUE)
    _by_round(curve, plan.spec.rounds, record)
    shares = [_scale(record) * record.accuracy_by_group[name] for name in known]
    percent = record.metric == ACCURACY
    _bars(groups, known, shares, BLUE, "{:.1f}" if percent else "{:.3g}")
    if percent:
        groups.set_ylim(0, 130 if _rotation(names) else 110)
    tidy(groups, f"test {record.metric} at the end" + " (%)" * percent)
    # budgets as wide bars, realised upper bounds as narrow ones
    limits = [group.epsilon for group in plan.groups if group.name in names]
    budgets.bar(range(len(limits)), limits, color=GREY, width=0.8, label="budget")
    _bars(budgets, names, [spent.get(name, math.inf) for name in names], ORANGE, "{:.4g}")
    budgets.patches[-1].set_label("spent")
    budgets.margins(y=0.25)
    budgets.legend(fontsize=8, frameon=False, loc="upper left", reverse=True)
    tidy(budgets, f"epsilon at delta {max(group.delta for group in plan.groups):.2g}")
    tidy(curve, f"{record.algorithm} on {record.dataset}, {record.partition}")
    return figure


def _bars(
    axes: Any, names: Sequence[str], values: Sequence[float], colour: str, label: str
) -> None:
    """One bar per name with its value; an infinite value reaches the top."""
    finite = [value for value in values if math.isfinite(value)]
    top = 1.25 * max(finite, default=1.0) or 1.0
    bars = axes.bar(
        range(len(names)),
        [value if math.isfinite(value) else top for value in values],
        color=colour,
        width=0.5,
    )
    words = [label.format(value) if math.isfinite(value) else "infinite" for value in values]
    axes.bar_label(bars, words, fontsize=8, padding=2, rotation=_rotation(names))
    shown = [shortened(name, MOST_LETTERS) for name in names]
    axes.set_xticks(range(len(names)), shown, rotation=_rotation(names))


def _rotation(names: Sequence[str]) -> int:
    """Angle of the names below bars, in degrees: those of few groups stand side by side."""
    return 0 if len(names) * max(map(len, names), default=0) <= 24 else 60


def comparison(path: Path, runs: Mapping[str, Sequence[RunRecord]], title: str) -> None:
    """Write a plot of mean accuracy by round with a band of one standard deviation."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with _literal_text():
        figure = _curves(runs, title)
        ConstrainedLayoutEngine().execute(figure)  # once: a layout of its own is laid out twice
        _write(path, figure)


def _curves(runs: Mapping[str, Sequence[RunRecord]], title: str) -> Any:
    """The figure of a comparison."""
    columns = -(-len(runs) // LEGEND_ROWS)
    wider = 0.0 if columns == 1 else 2.2 * columns
    figure, [axes] = _figure(1, (1.0,), 6.4 + wider)
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
    return figure


def _scale(record: RunRecord) -> float:
    """Accuracies are plotted in percent, other metrics as they are."""
    return 100.0 if record.metric == ACCURACY else 1.0


def _curve(record: RunRecord) -> list[float]:
    """Scores by evaluated round; NaN where a score was not finite."""
    scores = (np.nan if point.accuracy is None else point.accuracy for point in record.metrics)
    return [_scale(record) * one for one in scores]


def _literal_text() -> AbstractContextManager[None]:
    """Text without TeX formulas in dollar signs."""
    from matplotlib import rc_context

    return rc_context({"text.parse_math": False})


def _figure(panels: int, widths: Sequence[float], wide: float) -> tuple[Any, Any]:
    with undocumented():
        from matplotlib.figure import Figure

    figure = Figure(figsize=(wide, HEIGHT), dpi=120)
    return figure, figure.subplots(1, panels, width_ratios=widths, squeeze=False)[0]


def _by_round(axes: Any, last: int, record: RunRecord) -> None:
    """Axes from round 0, so that a curve starts at the round of its first evaluation."""
    axes.set_xlim(0, last * 1.02)
    axes.set_xlabel("round")
    unit = " (%)" if record.metric == ACCURACY else ""
    axes.set_ylabel(f"test {record.metric}{unit}")
    axes.grid(alpha=0.3)


def _write(path: Path, figure: Any) -> None:
    content = io.BytesIO()
    figure.savefig(content, format="png", pil_kwargs={"compress_level": 1})
    write_bytes(path, content.getvalue())
