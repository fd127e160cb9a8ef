"""Plots of test accuracy by round."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privplan.io.files import write_bytes
from privplan.record import ACCURACY, RunRecord
from privplan.report.plots import verbatim

LEGEND_ROWS = 16
"""Most entries per column of the legend."""
COLOURS = 10
"""Length of matplotlib's cycle of colours."""
STYLES = ("-", "--", ":", "-.")


def accuracy_by_round(path: Path, record: RunRecord) -> None:
    """Write a plot of a run's test accuracy by round, with the final accuracy per group."""
    figure, axes = _figure()
    rounds = [point.round for point in record.metrics]
    axes.plot(rounds, _curve(record), marker="o", ms=3)
    scale = _scale(record)
    for name, accuracy in record.accuracy_by_group.items():
        axes.plot(rounds[-1:], [scale * accuracy], "_", ms=14, label=name)
    if record.accuracy_by_group:
        axes.legend(title="at the end, by group", fontsize=8)
    axes.set_title(f"{record.algorithm} on {record.dataset}, {record.partition}")
    _write(path, figure, axes, record)


def comparison(path: Path, runs: Mapping[str, Sequence[RunRecord]], title: str) -> None:
    """Write a plot of mean accuracy by round with a band of one standard deviation.

    Args:
        path: the image file.
        runs: the runs per algorithm, one per seed, evaluated in the same rounds.
        title: title of the plot.
    """
    columns = -(-len(runs) // LEGEND_ROWS)
    figure, axes = _figure(wider=0.0 if columns == 1 else 2.2 * columns)
    for number, (name, records) in enumerate(runs.items()):
        rounds = [point.round for point in records[0].metrics]
        values = np.array([_curve(run) for run in records])
        mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1 if len(records) > 1 else 0)
        style = STYLES[number // COLOURS % len(STYLES)]
        [line] = axes.plot(rounds, mean, style, marker="o", ms=3, label=name)
        axes.fill_between(rounds, mean - spread, mean + spread, alpha=0.2, color=line.get_color())
    if columns == 1:
        axes.legend(fontsize=8)
    else:
        figure.legend(loc="outside right upper", fontsize=8, ncols=columns)
    axes.set_title(title)
    _write(path, figure, axes, next(iter(runs.values()))[0])


def _scale(record: RunRecord) -> float:
    """Accuracies are plotted in percent, other metrics as they are."""
    return 100.0 if record.metric == ACCURACY else 1.0


def _curve(record: RunRecord) -> list[float]:
    """Scores by evaluated round; NaN where a score was not finite."""
    scores = (np.nan if point.accuracy is None else point.accuracy for point in record.metrics)
    return [_scale(record) * one for one in scores]


def _figure(wider: float = 0.0) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4 + wider, 4.0), layout="constrained")
    return figure, figure.subplots()


def _write(path: Path, figure: Any, axes: Any, record: RunRecord) -> None:
    axes.set_xlabel("round")
    unit = " (%)" if record.metric == ACCURACY else ""
    axes.set_ylabel(f"test {record.metric}{unit}")
    axes.grid(alpha=0.3)
    content = io.BytesIO()
    verbatim(figure)
    figure.savefig(content, format="png", dpi=120)
    write_bytes(path, content.getvalue())
