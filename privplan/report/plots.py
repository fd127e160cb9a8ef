"""Figures of plans, sweeps, frontiers and trade-off curves, as the bytes of an image file."""

from __future__ import annotations

import math
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from privplan.accounting.tradeoff import LEVELS, TradeOff
from privplan.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from privplan.plan import Plan
    from privplan.planning.frontier import FrontierPoint

_MOST_TICKS = 5
_MOST_LINES = 40
"""Most lines that the legend of a sweep names."""
_STYLES = ("-", "--", ":", "-.")
MOST_LETTERS = 24
"""Most letters of a group's name in a picture."""
FORMATS = ("png", "svg", "pdf")
BLUE, ORANGE, GREY = "#3b6ea5", "#d9822b", "#b8bec6"


@contextmanager
def undocumented() -> Iterator[None]:
    """Matplotlib, imported in this block, leaves the properties of artists out of docstrings.

    It inspects every class for them, a third of the time of its import; no drawing reads them.
    """
    from matplotlib import artist

    written = artist.kwdoc
    setattr(artist, "kwdoc", lambda one: "")  # noqa: B010
    try:
        yield
    finally:
        setattr(artist, "kwdoc", written)  # noqa: B010


def picture_name(path: str) -> str:
    """The image format of a file name."""
    ending = Path(path).suffix.lower().lstrip(".")
    if ending not in FORMATS:
        raise InputError.one("plot", f"must end in .{', .'.join(FORMATS)}", path)
    return ending


def picture(figure: Figure, form: str) -> bytes:
    """The figure as the bytes of an image file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    verbatim(figure)
    buffer = BytesIO()
    figure.savefig(buffer, format=form, dpi=150)
    return buffer.getvalue()


def verbatim(figure: Figure) -> None:
    """Draw all text literally, without TeX formulas in dollar signs."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)


def figure(width: float, height: float) -> Figure:
    """An empty figure without a display."""
    with undocumented():
        from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def tidy(axes: Axes, title: str) -> None:
    """Set a title and remove the upper and right spines."""
    axes.set_title(title, loc="left", fontsize=10, y=1.0)  # no search for a place above ticks
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)


def shortened(name: str, most: int = MOST_LETTERS) -> str:
    """The name, with its middle left out where it is longer than so many letters."""
    end = most // 3
    return name if len(name) <= most else f"{name[: most - end - 1]}…{name[-end:]}"


def plan_picture(plan: Plan, form: str = "png") -> bytes:
    """Sampling ratios, noise multipliers, weights and budgets, one panel each, one bar a group.

    Bars are horizontal: names and values of many groups stand below each other.
    """
    names = [shortened(group.name) for group in plan.groups]
    wide = 10.0 + 0.075 * max(map(len, names))
    high = 0.24 * max(len(names), 5)
    page = figure(wide, 1.7 + high)
    panels = page.subplots(1, 4, sharey=True)
    ratios = [100 * (g.record_sampling_ratio or g.sampling_ratio) for g in plan.groups]
    whose = "record " if plan.unit == "record" else ""
    _bars(panels[0], f"{whose}sampling ratio, %", ratios)
    _bars(panels[1], "noise multiplier sigma", [g.noise_multiplier for g in plan.groups])
    _bars(panels[2], "weight in the step", [g.weight for g in plan.groups])
    _budgets(panels[3], plan)
    panels[3].legend(
        fontsize=8,
        frameon=False,
        loc="upper right",
        bbox_to_anchor=(1, -0.3 / (high + 0.6)),
        ncols=2,
    )
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.4, -0.6)  # the first group on top
    spec = plan.spec
    page.suptitle(
        f"{shortened(spec.name, 40)}: unit {spec.unit}, {spec.sampling} sampling, "
        f"{spec.relation}, {spec.rounds} rounds, sigma by {spec.planning.accountant}",
        x=0.01,
        ha="left",
        fontsize=11,
    )
    return picture(page, form)


def _bars(axes: Axes, title: str, values: list[float]) -> None:
    bars = axes.barh(range(len(values)), values, color=BLUE, height=0.6)
    axes.bar_label(bars, fmt="%.3g", fontsize=8, padding=2)
    axes.margins(x=0.25)
    tidy(axes, title)


def _budgets(axes: Axes, plan: Plan) -> None:
    """Budgets as wide bars, certified upper bounds as narrow ones; deltas where they differ."""
    deltas = sorted({group.delta for group in plan.groups})
    rows = range(len(plan.groups))
    certified = {row.group: row.epsilon_upper for row in plan.certificate if row.guarantee}
    spent = [certified.get(group.name, 0.0) for group in plan.groups]
    budgets = [group.epsilon for group in plan.groups]
    own = len(deltas) > 1
    labels = [
        f"{value:.3g}{f' at {group.delta:.2g}' if own else ''}"
        for value, group in zip(spent, plan.groups, strict=True)
    ]
    by = next((row.accountant for row in plan.certificate if row.guarantee), "none")
    wide = axes.barh(rows, budgets, color=GREY, height=0.8, label="budget")
    axes.barh(rows, spent, color=ORANGE, height=0.5, label=f"spent, by {by}")
    axes.bar_label(wide, labels, fontsize=8, padding=2)
    axes.margins(x=0.55 if own else 0.25)
    tidy(axes, "epsilon at own delta" if own else f"epsilon at delta {deltas[0]:.2g}")


def sweep_picture(
    rows: Sequence[dict[str, Any]],
    paths: Sequence[str],
    form: str = "png",
    *,
    logarithmic: bool = False,
) -> bytes:
    """Noise of the mean update and the groups' weights against the first varied number."""
    page = figure(9.0, 3.6)
    noise, weight = page.subplots(1, 2)
    lines: dict[str, dict[float, float]] = {}
    shares: dict[str, dict[float, float]] = {}
    for row in (row for row in rows if not row.get("error")):
        others = ", ".join(f"{path} {row[path]:g}" for path in paths[1:])
        lines.setdefault(others, {})[row[paths[0]]] = row["noise_norm"]
        label = f"{shortened(str(row['group']))} {shortened(others, 40)}".strip()
        shares.setdefault(label, {})[row[paths[0]]] = row["weight"]
    longest = max(map(len, shares), default=0)
    page.set_size_inches(8.0 + 0.075 * longest, max(3.6, 0.15 * min(len(shares), _MOST_LINES)))
    for axes, title, found in (
        (noise, "noise of the mean, norm", lines),
        (weight, "weight", shares),
    ):
        for number, (label, line) in enumerate(found.items()):
            style = _STYLES[number // 10 % len(_STYLES)]  # after ten colours the next style
            axes.plot(list(line), list(line.values()), style, marker="o", markersize=3, label=label)
        if logarithmic:
            _by_factors(axes, sorted({value for line in found.values() for value in line}))
        axes.set_xlabel(shortened(paths[0], 50))
        _from_zero(axes, [value for line in found.values() for value in line.values()])
        tidy(axes, title)
        if any(found):
            handles, labels = axes.get_legend_handles_labels()
            axes.legend(
                handles[:_MOST_LINES],
                labels[:_MOST_LINES],
                fontsize=7,
                frameon=False,
                loc="upper left",
                bbox_to_anchor=(1.0, 1.0),
            )
    return picture(page, form)


def _by_factors(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic horizontal axis with some of the values as ticks."""
    axes.set_xscale("log")
    axes.minorticks_off()
    shown = values[:: math.ceil(len(values) / _MOST_TICKS) or 1]
    axes.set_xticks(shown, [f"{value:.4g}" for value in shown])


def _from_zero(axes: Axes, values: Sequence[float]) -> None:
    """A vertical axis from zero to above the largest value, so that no flat curve is cut off."""
    axes.set_ylim(0, 1.05 * max(values, default=0.0) or 1.0)


def frontier_picture(points: Sequence[FrontierPoint], form: str = "png") -> bytes:
    """Noise of the mean update against rounds, cohort, budgets and number of groups."""
    titles = {
        "rounds": "rounds",
        "cohort": "clients per round",
        "epsilon": "every epsilon, times",
        "groups": "groups made of individual budgets",
    }
    lines = {
        question: [
            (float(point.what.removeprefix("x ")), point.noise)
            for point in points
            if point.question == question and point.noise is not None
        ]
        for question in titles
    }
    lines = {question: line for question, line in lines.items() if line}
    page = figure(3.2 * max(len(lines), 1), 3.2)
    for axes, (question, line) in zip(
        page.subplots(1, len(lines), squeeze=False)[0], lines.items(), strict=True
    ):
        axes.plot(*zip(*line, strict=True), marker="o", markersize=3, color=BLUE)
        if question != "groups":
            _by_factors(axes, [value for value, _ in line])
        axes.set_xlabel(titles[question])
        _from_zero(axes, [noise for _, noise in line])
        tidy(axes, "noise of the mean, norm")
    return picture(page, form)


def tradeoff_picture(found: TradeOff, title: str, form: str = "png") -> bytes:
    """True-positive rate against false-positive rate, on linear and logarithmic axes."""
    from scipy.special import ndtr, ndtri

    page = figure(9.0, 4.0)
    panels = page.subplots(1, 2)
    wrong, right = found.false_positive_axis[1:], found.true_positive_axis[1:]
    gaussian = ndtr(ndtri(wrong) + min(found.mu, 40.0))
    for axes, scale in zip(panels, ("linear", "log"), strict=True):
        axes.plot(wrong, wrong, color=GREY, lw=1, ls="--", label="guessing")
        axes.plot(wrong, gaussian, color=ORANGE, lw=1, label=f"{found.mu:.4g}-GDP (down to delta)")
        axes.plot(wrong, right, color=BLUE, lw=2, label="no attack is above")
        axes.set_xscale(scale)
        axes.set_yscale(scale)
        axes.set_xlabel("false-positive rate")
    panels[1].set_xlim(1e-5, 1)
    panels[1].set_ylim(1e-5, 1.2)
    panels[1].plot(LEVELS, found.true_positives, "o", color=BLUE, ms=4)
    panels[0].set_ylabel("true-positive rate")
    panels[0].legend(frameon=False, fontsize=8, loc="lower right")
    tidy(panels[0], title)
    tidy(panels[1], f"advantage at most {found.advantage:.4g}")
    return picture(page, form)
