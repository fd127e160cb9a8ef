"""What plans, runs, comparisons, frontiers and trade-off curves look like, panel by panel.

An epsilon in a picture is an upper bound, with delta, sampling law, relation and accountant on its
axis.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from privplan.accounting.accountant import at_most
from privplan.accounting.calibrate import PLD
from privplan.accounting.release import named_law
from privplan.accounting.tradeoff import LEVELS, TradeOff
from privplan.record import ACCURACY, ReleaseRecord, RunRecord
from privplan.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from privplan.accounting.release import History
    from privplan.plan import GroupPlan, Plan
    from privplan.planning.frontier import FrontierPoint
    from privplan.verification.verdict import Verdict

MOST_GROUPS = 40  # most groups with a row of their own
MOST_LINES = 24  # most lines with a name
_POINTS = 10  # rounds at which spending is computed
EpsilonRow = tuple[str, float, float, float]
"""A group's name, its budget, and its epsilon from below (0: unknown) and above."""
Line = Mapping[float, float]  # values of one line by their places

# --- Rows: groups of a plan, and methods. --------------------------------------------------------


def _rows(
    name: str,
    title: str,
    unit: str,
    rows: Sequence[tuple[str, float, str]],
    marks: Callable[[Axes, style.Theme], None],
    room: float = 1.3,
) -> style.Panel:
    """Rows of a name, the end of its marks and what is said beside it; ``marks`` draws them."""
    names, places, words = zip(*rows, strict=True)

    def draw(axes: Axes, theme: style.Theme) -> None:
        marks(axes, theme)
        for at, (place, word) in enumerate(zip(places, words, strict=True)):
            style.beside(axes, place, at, word)
        low, high = axes.get_xlim()
        style.with_room(axes, max(places) if low <= 0 else high, room, max(low, 0.0))
        style.name_rows(axes, names, unit)

    said = "; ".join(f"{one} {word}" for one, word in zip(names, words, strict=True))
    tall = 0.85 + 0.14 * (unit.count("\n") + 1) + 0.3 * max(len(rows), 2)
    return style.Panel(
        name, title, f"{title}, {' '.join(unit.split())}: {said}.", draw, tall
    )


def _some(items: Sequence[Any]) -> tuple[list[Any], str]:
    """The first items that have a row each, and a note on how many that are of all."""
    shown = list(items[:MOST_GROUPS])
    return shown, "" if len(shown) == len(
        items
    ) else f" (first {len(shown)} of {len(items)})"


def law_of(plan: Plan) -> str:
    """What an epsilon of a plan depends on besides its group, for the label of an axis."""
    drawn = named_law(plan.spec.laws, plan.unit)
    return _law(plan.groups, drawn, plan.spec.relation, plan.guarantee)


def _law(groups: Iterable[Any], drawn: str, *words: str) -> str:
    deltas = sorted({one.delta for one in groups})
    delta = " to ".join(dict.fromkeys(f"{one:.3g}" for one in (deltas[0], deltas[-1])))
    return ", ".join([f"delta {delta}", f"{drawn} sampling", *words])


def plan_panels(plan: Plan) -> list[style.Panel]:
    """Budgets, who pays and who gains, sampling ratios and noise multipliers; one row a group."""
    groups, some = _some(plan.groups)
    known = {row.group: row for row in plan.certificate if row.guarantee}
    rows = [
        (
            one.name,
            one.epsilon,
            known[one.name].epsilon_lower,
            known[one.name].epsilon_upper,
        )
        for one in groups
    ]
    names = [one.name for one in groups]
    ratios = [100 * (one.record_sampling_ratio or one.sampling_ratio) for one in groups]
    whose = (
        "a record to be in a batch" if plan.unit == "record" else "a client in a round"
    )
    share = [100 * one.clients / plan.spec.population for one in groups]
    weight = [100 * one.weight for one in groups]

    def influence(axes: Axes, theme: style.Theme) -> None:
        for at, (one, two) in enumerate(zip(share, weight, strict=True)):
            colour = theme.bad if two < one - 1e-6 else theme.good
            axes.plot([one, two], [at] * 2, color=colour, lw=2.4)
            axes.plot([one], [at], "o", mfc=theme.ground, mec=colour, ms=7, mew=1.6)
            axes.plot([two], [at], "o", color=colour, ms=7.5)
        axes.set_xlim(left=0)

    pays = [
        (one, max(two, three), f" {two:.0f}% → {three:.0f}%")
        for one, two, three in zip(names, share, weight, strict=True)
    ]
    ring = "ring: share of the clients, dot: weight in the model's step (%)"
    sigma = "noise multiplier (standard deviation over clipping norm)"
    noise = [one.noise_multiplier for one in groups]
    return [
        epsilon_panel(
            "budgets", f"Budgets, and what the plan spends{some}", rows, law_of(plan)
        ),
        _rows("influence", f"Who pays, who gains{some}", ring, pays, influence),
        bars(
            "sampling", f"Sampling ratio{some}", f"chance of {whose} (%)", names, ratios
        ),
        bars("noise", f"Noise by group{some}", sigma, names, noise),
    ]


def epsilon_panel(
    name: str, title: str, rows: Sequence[EpsilonRow], law: str
) -> style.Panel:
    """Budgets as wide bars, upper bounds as narrow ones with a tick at the lower bound."""
    rows, some = _some(rows)
    most = 1.1 * max(
        one for row in rows for one in (row[1], row[3]) if math.isfinite(one)
    )
    reached = [min(row[3], most) for row in rows]

    def marks(axes: Axes, theme: style.Theme) -> None:
        places = range(len(rows))
        colours = [theme.good if row[3] <= row[1] else theme.bad for row in rows]
        axes.barh(places, [row[1] for row in rows], color=theme.limit, height=0.74)
        axes.barh(places, reached, color=colours, height=0.34)
        for at, (_, budget, lower, _) in enumerate(rows):
            axes.plot([budget] * 2, [at - 0.37, at + 0.37], color=theme.ink, lw=1.6)
            if lower:
                axes.plot([lower], [at], "|", color=theme.ground, ms=8, mew=1.2)

    ends = [
        (row[0], max(row[1], end), _spent(row))
        for row, end in zip(rows, reached, strict=True)
    ]
    unit = f"epsilon: bar spent (at most), grey budget\n{law}"
    return _rows(name, title + some, unit, ends, marks, 1.45)


def verdict_panel(verdict: Verdict) -> style.Panel:
    """Budget and realised epsilon of every group, from below and above."""
    first = verdict.groups[0]
    drawn = named_law(verdict.laws, verdict.unit)
    rows = [
        (one.group, one.budget, one.realised_lower or 0.0,
         math.inf if one.realised_upper is None else one.realised_upper)
        for one in verdict.groups
    ]  # fmt: skip
    law = _law(verdict.groups, drawn, first.relation, first.accountant)
    return epsilon_panel("verdict", f"What the run spent: {verdict.outcome}", rows, law)


def _spent(row: EpsilonRow) -> str:
    _, budget, lower, upper = row
    if math.isinf(upper):
        return f"no bound, budget {budget:g}"
    low, high = f"{math.floor(lower * 1e4) / 1e4:g}", at_most(upper)
    return (
        f"{low}–{high} of {budget:g}"
        if lower and low != high
        else f"{high} of {budget:g}"
    )


def bars(
    name: str,
    title: str,
    unit: str,
    names: Sequence[str],
    values: Sequence[float],
    said: str = "{:.3g}",
    ends: Sequence[tuple[float, float]] = (),
) -> style.Panel:
    """One bar per name with its value; ``ends`` are those of intervals below them."""

    def marks(axes: Axes, theme: style.Theme) -> None:
        axes.barh(range(len(values)), values, color=theme.good, height=0.5)
        for at, (low, high) in enumerate(ends):
            axes.plot([low, high], [at + 0.36] * 2, color=theme.bad, lw=2.4)
        axes.set_xlim(left=0)

    rows = [
        (one, value, said.format(value))
        for one, value in zip(names, values, strict=True)
    ]
    return _rows(name, title, unit, rows, marks, 1.2)


# --- Lines: spending and scores by round, sweeps and frontiers. ----------------------------------


def lines(
    name: str,
    title: str,
    labels: tuple[str, str],
    found: Mapping[str, Line],
    *,
    spread: Mapping[str, Line] | None = None,
    limits: Sequence[float] = (),
    band: tuple[float, float, float] | None = None,
    chosen: float | None = None,
    logarithmic: bool = False,
    zero: bool = True,
) -> style.Panel:
    """Lines with their names; ``labels`` are those of the horizontal and the vertical axis.

    Around a line is its ``spread``, and dotted the level of its limit. ``band`` is a forecast: low
    end, middle and high end; ``chosen`` the place of the plan itself; ``zero`` says where the
    vertical axis begins.
    """
    across, up = labels

    def draw(axes: Axes, theme: style.Theme) -> None:
        ends = []
        for number, (label, line) in enumerate(found.items()):
            colour, dashes = theme.line(number)
            places, values = list(line), list(line.values())
            mark = "o" if len(line) < _POINTS else None
            axes.plot(places, values, dashes, marker=mark, ms=3, color=colour)
            wide = list((spread or {}).get(label, {}).values())
            pairs = list(zip(values, wide, strict=False))
            if wide:
                axes.fill_between(places, [one - two for one, two in pairs],
                                  [one + two for one, two in pairs], color=colour, alpha=0.16,
                                  lw=0)  # fmt: skip
            if limits:
                axes.axhline(limits[number], color=colour, lw=0.9, ls=":")
            if chosen is not None and chosen in line:
                axes.plot(
                    [chosen],
                    [line[chosen]],
                    "o",
                    ms=9,
                    mfc="none",
                    mec=theme.ink,
                    mew=1.6,
                )
                side = 7 if values[-1] < values[0] else -7
                axes.annotate("this plan", (chosen, line[chosen]), (side, 7), color=theme.ink,
                              textcoords="offset points",
                              ha="left" if side > 0 else "right")  # fmt: skip
            if label and line and number < MOST_LINES:
                last = max(line)
                end = (
                    limits[number] if limits and math.isnan(line[last]) else line[last]
                )
                ends.append((last, end, label, colour))
        if band is not None:
            axes.axhspan(band[0], band[2], color=theme.bad, alpha=0.16, lw=0)
            axes.axhline(band[1], color=theme.bad, lw=1.2, ls="--")
            ends.append(
                (axes.get_xlim()[1], band[1], f"forecast {band[1]:.1f}", theme.bad)
            )
        known = [value for line in found.values() for value in line.values()] + [
            *limits
        ]
        if zero:
            style.from_zero(axes, [one for one in known if math.isfinite(one)])
        if logarithmic:
            style.by_factors(
                axes, sorted({place for line in found.values() for place in line})
            )
        elif across.split()[0] == "round":
            axes.set_xlim(
                0, max((one for line in found.values() for one in line), default=1)
            )
            axes.locator_params(axis="x", integer=True)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        style.name_lines(axes, ends)

    said = "; ".join(
        f"{label} {', '.join(f'{y:.5g} at {x:g}' for x, y in line.items())}".strip()
        if len(line) < _POINTS
        else label
        for label, line in found.items()
    )
    if band is not None:
        said += f"; forecast {band[0]:.1f} to {band[2]:.1f}, most likely {band[1]:.1f}"
    tall = max(2.8, 0.6 + 0.21 * min(len(found), MOST_LINES))
    return style.Panel(
        name, title, f"{up} by {' '.join(across.split())}: {said}.", draw, tall
    )


def spending_panel(
    plan: Plan, releases: Sequence[ReleaseRecord] = ()
) -> style.Panel | None:
    """Upper bounds on epsilon up to a round, of a plan or of releases; None where not by pld."""
    from privplan.accounting.accountant import accountant
    from privplan.errors import PrivplanError
    from privplan.ledger import history_of

    groups = plan.groups[: len(style.LIGHT.series)]
    if plan.guarantee != PLD or (plan.unit == "record" and not releases):
        return None
    last = max((one.round for one in releases), default=plan.spec.rounds)
    rounds = sorted(
        {math.ceil(last * (at / _POINTS) ** 2) for at in range(1, _POINTS + 1)}
    )
    spent: dict[str, Line] = {}
    for group in groups:
        line = {0.0: 0.0}
        for end in rounds:
            until = [one for one in releases if one.round <= end]
            made = (
                history_of(until, group.name) if until else _planned(plan, group, end)
            )
            try:
                upper = (
                    accountant(PLD).epsilon(made, group.delta, plan.spec.relation).upper
                )
            except PrivplanError:
                return None
            line[end] = upper if math.isfinite(upper) else math.nan
        spent[style.shortened(f"{group.name} {at_most(upper)}", 18)] = line
    title = (
        "Budget spent over the rounds"
        if releases
        else "Budget over the rounds, as planned"
    )
    return lines(
        "spending", title, (f"round (dotted: budgets)\n{law_of(plan)}", "epsilon so far, at most"),
        spent, limits=[group.epsilon for group in groups],
    )  # fmt: skip


def _planned(plan: Plan, group: GroupPlan, rounds: int) -> History:
    """What a client of the group will have been part of after so many rounds of the plan."""
    from privplan.accounting.release import History, Release

    law = plan.law_of(group)
    parts = Counter(plan.at_round(group, at) for at in range(1, rounds + 1))
    if group.segments is None:
        parts = Counter(dict.fromkeys(parts, law.law.rounds_of_client(rounds)))
    return History(
        (Release(noise, ratio, law), count) for (ratio, noise), count in parts.items()
    )


def _shown(record: RunRecord) -> tuple[float, str, str]:
    """Factor, format and unit of a run's scores: accuracies are drawn in percent."""
    if record.metric == ACCURACY:
        return 100.0, "{:.1f}", f"test {record.metric} (%)"
    return 1.0, "{:.3g}", f"test {record.metric}"


def _curve(record: RunRecord) -> dict[float, float]:
    """Scores by evaluated round; NaN where a score was not finite."""
    scale = _shown(record)[0]
    scores = {one.round: one.accuracy for one in record.metrics}
    return {at: math.nan if one is None else scale * one for at, one in scores.items()}


def score_panels(record: RunRecord, plan: Plan) -> list[style.Panel]:
    """Score by round with the band of its forecast, and the score of each group at the end."""
    forecast = plan.forecast if record.metric == ACCURACY else None
    scale, said, unit = _shown(record)
    line = _curve(record)
    reached = (
        ""
        if record.accuracy is None
        else f"reached {said.format(scale * record.accuracy)}"
    )
    ends, band = dict[str, tuple[float, float]](), None
    if forecast is not None:
        band = (100 * forecast.lower, 100 * forecast.accuracy, 100 * forecast.upper)
        ends = {
            one.group: (100 * one.lower, 100 * one.upper) for one in forecast.groups
        }
    title = style.shortened(f"{record.algorithm} on {record.dataset or 'its data'}", 40)
    panels = [
        lines(
            "accuracy", title, ("round", unit), {reached: line}, band=band, zero=False
        )
    ]
    known = [
        group.name for group in plan.groups if group.name in record.accuracy_by_group
    ]
    if known:
        shown, some = _some(known)
        values = [scale * record.accuracy_by_group[name] for name in shown]
        bounds = [ends[name] for name in shown if name in ends]
        below = unit + "; line below: forecast" * bool(bounds)
        panels.append(
            bars("groups", f"By group{some}", below, shown, values, said, bounds)
        )
    return panels


def run_picture(record: RunRecord, plan: Plan, spent: Mapping[str, float]) -> bytes:
    """Score by round and by group, and the budget that was spent."""
    rows = [
        (one.name, one.epsilon, 0.0, spent.get(one.name, math.inf))
        for one in plan.groups
    ]
    budgets = epsilon_panel("budgets", "What the run spent", rows, law_of(plan))
    return style.picture([*score_panels(record, plan), budgets])


def comparison_panels(rows: Sequence[Any]) -> list[style.Panel]:
    """Mean score of each method with its deviation and every seed, and the means by round."""
    scale, said, unit = _shown(rows[0].records[0])
    order = sorted(rows, key=lambda row: (math.isnan(row.mean), -row.mean))
    ends = []
    for row in order:
        wide = (
            f" ± {said.format(scale * row.deviation)}" if len(row.records) > 1 else ""
        )
        word = f"{said.format(scale * row.mean)}{wide}  {row.note}".rstrip()
        ends.append((row.algorithm, scale * (row.mean + row.deviation), word))

    def marks(axes: Axes, theme: style.Theme) -> None:
        for at, row in enumerate(order):
            colour, spread = (
                theme.bad if row.note else theme.good,
                scale * row.deviation,
            )
            axes.errorbar(
                scale * row.mean, at, xerr=spread, fmt="o", color=colour, capsize=3
            )
            seeds = [scale * one for one in row.accuracies]
            axes.plot(seeds, [at] * len(seeds), "|", color=colour, ms=9)

    means, spreads = {}, {}
    for row in rows:
        columns = [
            [_curve(one)[at] for one in row.records] for at in _curve(row.records[0])
        ]
        name, places = style.shortened(row.algorithm, 16), list(_curve(row.records[0]))
        means[name] = dict(zip(places, map(statistics.fmean, columns), strict=True))
        if len(row.records) > 1:
            spreads[name] = dict(
                zip(places, map(statistics.stdev, columns), strict=True)
            )
    unit_line = f"{unit}: mean ± standard deviation; ticks: seeds"
    room = 1.9 if any(row.note for row in rows) else 1.45
    return [
        _rows("ranking", "Methods by mean score", unit_line, ends, marks, room),
        lines("curves", "By round, mean over the seeds", ("round", unit), means, spread=spreads,
               zero=False),
    ]  # fmt: skip


def sweep_panels(
    rows: Iterable[Mapping[str, Any]],
    paths: Sequence[str],
    *,
    logarithmic: bool = False,
) -> list[style.Panel]:
    """Noise of the mean update and the groups' weights against the first varied number."""
    noise: dict[str, dict[float, float]] = {}
    weights: dict[str, dict[float, float]] = {}
    for row in (row for row in rows if not row.get("error")):
        others = ", ".join(f"{path} {row[path]:g}" for path in paths[1:])
        noise.setdefault(style.shortened(others, 40), {})[row[paths[0]]] = row[
            "noise_norm"
        ]
        label = f"{style.shortened(str(row['group']))} {style.shortened(others, 40)}".strip()
        weights.setdefault(label, {})[row[paths[0]]] = row["weight"]
    across = style.shortened(paths[0], 50)
    return [
        lines("noise", "Noise of the mean update", (across, "norm"),
               noise, logarithmic=logarithmic),
        lines("weights", "Weight of each group", (across, "weight in the model's step"),
               weights, logarithmic=logarithmic),
    ]  # fmt: skip


def frontier_panels(points: Sequence[FrontierPoint]) -> list[style.Panel]:
    """Noise of the mean update against rounds, cohort, budgets and groups, with the plan's point.

    The plan's own point is the one without a change.
    """
    titles = {
        "rounds": ("Noise by rounds", "rounds"),
        "cohort": ("Noise by cohort", "clients per round"),
        "epsilon": ("Noise by budgets", "factor on every epsilon"),
        "groups": ("Noise by number of groups", "groups made of individual budgets"),
    }
    panels = []
    for question, (title, across) in titles.items():
        known = [
            one for one in points if one.question == question and one.noise is not None
        ]
        line = {float(one.what.removeprefix("x ")): one.noise or 0.0 for one in known}
        own = [place for place, one in zip(line, known, strict=True) if one.change == 0]
        labels, scaled = (
            (across, "noise of the mean update, norm"),
            question != "groups",
        )
        if line:
            chosen = own[0] if own else None
            panels.append(lines(question, title, labels, {"": line}, chosen=chosen,
                                 logarithmic=scaled))  # fmt: skip
    return panels


# --- Trade-off curves. ---------------------------------------------------------------------------


def tradeoff_panels(found: TradeOff, title: str) -> list[style.Panel]:
    """True positives against false positives, on linear and logarithmic axes."""

    def draw(scale: str, axes: Axes, theme: style.Theme) -> None:
        from scipy.special import ndtr, ndtri

        wrong, right = found.false_positive_axis[1:], found.true_positive_axis[1:]
        gaussian = ndtr(ndtri(wrong) + min(found.mu, 40.0))
        axes.plot(wrong, wrong, color=theme.quiet, lw=1, ls="--")
        axes.plot(wrong, gaussian, color=theme.bad, lw=1.2)
        axes.plot(wrong, right, color=theme.good, lw=2.2)
        axes.set_xlabel("false positives: of those who did not take part (share)")
        axes.set_ylabel("true positives (share)")
        if scale == "log":
            for axis, own in (("x", axes.xaxis), ("y", axes.yaxis)):
                axes.set(**{f"{axis}scale": "log", f"{axis}lim": (1e-5, 1.0)})
                own.set_major_formatter(lambda value, _: f"{value:g}")
            axes.minorticks_off()
            axes.plot(LEVELS, found.true_positives, "o", color=theme.good, ms=5)
            for level, rate in zip(LEVELS, found.true_positives, strict=True):
                axes.annotate(f"{rate:.2g}", (level, rate), (-5, 5), ha="right",
                              textcoords="offset points", fontsize=8.5)  # fmt: skip
            return
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        words = [("no attack is above", theme.good), ("guessing", theme.quiet)]
        words.insert(1, (f"{found.mu:.3g}-GDP, down to delta", theme.bad))
        for at, (word, colour) in enumerate(words):
            axes.text(
                0.97, 0.26 - 0.09 * at, word, color=colour, ha="right", fontsize=8.5
            )

    rates = ", ".join(
        f"{rate:.3g} at {level:g} false positives"
        for level, rate in zip(LEVELS, found.true_positives, strict=True)
    )
    most = at_most(found.advantage)
    alt = f"{title}: no attack has an advantage above {most}; true positives {rates}"
    return [
        style.Panel(
            "tradeoff", style.shortened(title, 44), f"{alt}.", partial(draw, "linear"), 3.4),
        style.Panel(
            "tradeoff-log", f"Advantage at most {most}", f"{alt}, on logarithmic axes.",
            partial(draw, "log"), 3.4),
    ]  # fmt: skip
