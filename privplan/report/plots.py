"""What plans, runs, comparisons, frontiers and trade-off curves look like, panel by panel.

An epsilon in a picture is an upper bound, with delta, sampling law, relation and accountant on its
axis.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from privplan.accounting.tradeoff import LEVELS, TradeOff
from privplan.record import ACCURACY, ReleaseRecord, RunRecord
from privplan.report.style import (
    LIGHT,
    Panel,
    Theme,
    at_most,
    beside,
    by_factors,
    from_zero,
    name_lines,
    name_rows,
    picture,
    shortened,
    with_room,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from privplan.accounting.release import History
    from privplan.plan import GroupPlan, Plan
    from privplan.planning.frontier import FrontierPoint
    from privplan.verification.verify import Verdict

MOST_GROUPS = 40
"""Most groups with a row of their own."""
MOST_LINES = 24
"""Most lines with a name."""
_POINTS = 10
"""Rounds at which spending is computed."""
EpsilonRow = tuple[str, float, float, float]
"""A group's name, its budget, and its epsilon from below (0: unknown) and above."""

# --- Groups of a plan: budgets, sampling, noise, and who pays for whose privacy. -----------------


def _some(items: Sequence[Any]) -> tuple[list[Any], str]:
    """The first items that have a row each, and a note on how many that are of all."""
    shown = list(items[:MOST_GROUPS])
    return shown, "" if len(shown) == len(items) else f" (first {len(shown)} of {len(items)})"


def _height(rows: int) -> float:
    return 0.95 + 0.3 * max(rows, 2)


def plan_panels(plan: Plan) -> list[Panel]:
    """Budgets, who pays and who gains, sampling ratios and noise multipliers; one row a group."""
    upper = {row.group: row.epsilon_upper for row in plan.certificate if row.guarantee}
    lower = {row.group: row.epsilon_lower for row in plan.certificate if row.guarantee}
    rows = [
        (one.name, one.epsilon, lower.get(one.name, 0.0), upper.get(one.name, math.inf))
        for one in plan.groups
    ]
    groups, some = _some(plan.groups)
    names = [one.name for one in groups]
    ratios = [100 * (one.record_sampling_ratio or one.sampling_ratio) for one in groups]
    noise = [one.noise_multiplier for one in groups]
    whose = "of a record to be in a batch" if plan.unit == "record" else "of a client in a round"
    return [
        epsilon_panel("budgets", "Budgets, and what the plan spends", rows, law_of(plan)),
        _influence(plan, some),
        bars("sampling", f"Sampling ratio{some}", names, ratios, f"chance {whose} (%)"),
        bars("noise", f"Noise by group{some}", names, noise,
              "noise multiplier (standard deviation over clipping norm)"),
    ]  # fmt: skip


def law_of(plan: Plan) -> str:
    """What an epsilon of a plan depends on besides its group, for the label of an axis."""
    deltas = sorted({f"{group.delta:.3g}" for group in plan.groups}, key=float)
    delta = deltas[0] if len(deltas) == 1 else f"{deltas[0]} to {deltas[-1]}"
    return f"delta {delta}, {plan.spec.sampling} sampling, {plan.spec.relation}, {plan.guarantee}"


def epsilon_panel(name: str, title: str, rows: Sequence[EpsilonRow], law: str) -> Panel:
    """Budgets as wide bars, upper bounds as narrow ones with a tick at the lower bound."""
    shown, some = _some(rows)
    alt = f"{title}: " + "; ".join(f"{row[0]} {_spent(row)}" for row in shown) + f". {law}."
    return Panel(name, title + some, alt, partial(_epsilons, shown, law), _height(len(shown)) + 0.2)


def _spent(row: EpsilonRow) -> str:
    _, budget, lower, upper = row
    if math.isinf(upper):
        return f"no bound, budget {budget:g}"
    low, high = f"{math.floor(lower * 1e4) / 1e4:g}", at_most(upper)
    return f"{low}–{high} of {budget:g}" if lower and low != high else f"{high} of {budget:g}"


def _epsilons(rows: Sequence[EpsilonRow], law: str, axes: Axes, theme: Theme) -> None:
    places = range(len(rows))
    known = [row[3] for row in rows if math.isfinite(row[3])]
    most = 1.1 * max([row[1] for row in rows] + known)
    reached = [row[3] if math.isfinite(row[3]) else most for row in rows]
    colours = [theme.good if row[3] <= row[1] else theme.bad for row in rows]
    axes.barh(places, [row[1] for row in rows], color=theme.limit, height=0.74)
    axes.barh(places, reached, color=colours, height=0.34)
    for place, (_, budget, lower, _) in enumerate(rows):
        axes.plot([budget] * 2, [place - 0.37, place + 0.37], color=theme.ink, lw=1.6)
        if lower:
            axes.plot([lower], [place], "|", color=theme.ground, ms=8, mew=1.2)
    for place, (row, value) in enumerate(zip(rows, reached, strict=True)):
        beside(axes, max(value, row[1]), place, _spent(row))
    with_room(axes, most / 1.1, 1.45)
    name_rows(axes, [row[0] for row in rows], f"epsilon: bar spent (at most), grey budget\n{law}")


def _influence(plan: Plan, some: str) -> Panel:
    """Share of the clients and weight of each group: whose privacy costs influence."""
    groups = _some(plan.groups)[0]
    share = [100 * group.clients / plan.spec.population for group in groups]
    weight = [100 * group.weight for group in groups]

    def draw(axes: Axes, theme: Theme) -> None:
        for place, (one, two) in enumerate(zip(share, weight, strict=True)):
            colour = theme.bad if two < one else theme.good
            axes.plot([one, two], [place] * 2, color=colour, lw=2.4)
            axes.plot([one], [place], "o", mfc=theme.ground, mec=colour, ms=7, mew=1.6)
            axes.plot([two], [place], "o", color=colour, ms=7.5)
            beside(axes, max(one, two), place, f"{one:.0f}% → {two:.0f}%", 9)
        with_room(axes, max(share + weight), 1.35)
        unit = "ring: share of the clients, dot: weight in the model's step (%)"
        name_rows(axes, [group.name for group in groups], unit)

    said = "; ".join(
        f"{group.name} has {one:.0f}% of the clients and {two:.0f}% of the weight"
        for group, one, two in zip(groups, share, weight, strict=True)
    )
    return Panel("influence", f"Who pays, who gains{some}", f"{said}.", draw, _height(len(groups)))


def bars(
    name: str,
    title: str,
    names: Sequence[str],
    values: Sequence[float],
    unit: str,
    said: str = "{:.3g}",
    ends: Sequence[tuple[float, float]] = (),
) -> Panel:
    """One bar per name with its value; ``ends`` are those of intervals beside them."""

    def draw(axes: Axes, theme: Theme) -> None:
        axes.barh(range(len(values)), values, color=theme.good, height=0.5)
        for place, (low, high) in enumerate(ends):
            axes.plot([low, high], [place + 0.36] * 2, color=theme.bad, lw=2.4)
        for place, value in enumerate(values):
            beside(axes, value, place, said.format(value))
        with_room(axes, max([*values, *(high for _, high in ends)], default=1.0) or 1.0, 1.2)
        name_rows(axes, names, unit)

    pairs = zip(names, values, strict=True)
    alt = f"{unit}: " + ", ".join(f"{one} {said.format(value)}" for one, value in pairs) + "."
    return Panel(name, title, alt, draw, _height(len(names)))


def plan_picture(plan: Plan, form: str = "png", theme: Theme = LIGHT) -> bytes:
    """The panels of a plan."""
    title = f"{shortened(plan.spec.name, 40)}: {plan.spec.rounds} rounds, protects each {plan.unit}"
    return picture(plan_panels(plan), form, title=title, theme=theme, columns=2)


# --- Budgets spent over rounds, as planned or as a ledger has it, and a verdict. -----------------


def spending_panel(plan: Plan, releases: Sequence[ReleaseRecord] = ()) -> Panel | None:
    """Upper bounds on epsilon up to a round, of a plan or of releases; None where not by pld."""
    from privplan.accounting.accountant import accountant
    from privplan.accounting.calibrate import PLD
    from privplan.errors import PrivplanError
    from privplan.ledger import history_of

    groups = plan.groups[: len(LIGHT.series)]
    if plan.guarantee != PLD or (plan.unit == "record" and not releases):
        return None
    last = max((one.round for one in releases), default=plan.spec.rounds)
    rounds = sorted({math.ceil(last * (at / _POINTS) ** 2) for at in range(1, _POINTS + 1)})
    lines: dict[str, list[float]] = {}
    for group in groups:
        for end in rounds:
            until = [one for one in releases if one.round <= end]
            made = history_of(until, group.name) if until else _planned(plan, group, end)
            try:
                bounds = accountant(PLD).epsilon(made, group.delta, plan.spec.relation)
            except PrivplanError:
                return None
            lines.setdefault(group.name, []).append(bounds.upper)

    def draw(axes: Axes, theme: Theme) -> None:
        ends = []
        for number, (group, values) in enumerate(zip(groups, lines.values(), strict=True)):
            colour = theme.line(number)[0]
            known = [value if math.isfinite(value) else math.nan for value in values]
            axes.plot([0, *rounds], [0, *known], color=colour)
            axes.axhline(group.epsilon, color=colour, lw=0.9, ls=":")
            end = known[-1] if math.isfinite(known[-1]) else group.epsilon
            ends.append((last, end, shortened(f"{group.name} {at_most(values[-1])}", 18), colour))
        axes.set_xlim(0, last)
        from_zero(axes, [group.epsilon for group in groups] + [y for _, y, _, _ in ends])
        axes.set_xlabel("round")
        axes.set_ylabel("epsilon so far, at most")
        axes.annotate(f"dotted: budgets. {law_of(plan)}", (0, 1), (0, 4), va="bottom",
                      xycoords="axes fraction", textcoords="offset points", fontsize=7.5,
                      color=theme.quiet)  # fmt: skip
        axes.set_title(axes.get_title(loc="left"), pad=18, loc="left")
        name_lines(axes, ends)

    said = "; ".join(
        f"{group.name} {at_most(lines[group.name][-1])} of {group.epsilon:g} after round {last}"
        for group in groups
    )
    title = "Budget spent over the rounds" if releases else "Budget over the rounds, as planned"
    return Panel("spending", title, f"{title}, epsilon at most: {said}. {law_of(plan)}.", draw, 3.0)


def _planned(plan: Plan, group: GroupPlan, rounds: int) -> History:
    """What a client of the group will have been part of after so many rounds of the plan."""
    from privplan.accounting.release import History, Release

    law = plan.spec.sampling
    parts = Counter(plan.at_round(group, at) for at in range(1, rounds + 1))
    if group.segments is None:
        parts = Counter(dict.fromkeys(parts, law.law.rounds_of_client(rounds)))
    return History((Release(noise, ratio, law), count) for (ratio, noise), count in parts.items())


def verdict_panel(verdict: Verdict) -> Panel:
    """Budget and realised epsilon of every group, from below and above."""
    first = verdict.groups[0]
    rows = [
        (one.group, one.budget, one.realised_lower or 0.0, _or_infinite(one.realised_upper))
        for one in verdict.groups
    ]
    deltas = sorted({one.delta for one in verdict.groups})
    delta = " to ".join(f"{one:.3g}" for one in dict.fromkeys((deltas[0], deltas[-1])))
    law = f"delta {delta}, {first.sampling} sampling, {first.relation}, {first.accountant}"
    return epsilon_panel("verdict", f"What the run spent: {verdict.outcome}", rows, law)


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value


# --- Scores of a run beside its forecast, and of several methods. --------------------------------


def _scale(record: RunRecord) -> float:
    """Accuracies are drawn in percent, other metrics as they are."""
    return 100.0 if record.metric == ACCURACY else 1.0


def _unit(record: RunRecord) -> str:
    return f"test {record.metric}" + " (%)" * (record.metric == ACCURACY)


def _curve(record: RunRecord) -> list[float]:
    """Scores by evaluated round; NaN where a score was not finite."""
    scores = (math.nan if point.accuracy is None else point.accuracy for point in record.metrics)
    return [_scale(record) * one for one in scores]


def score_panels(record: RunRecord, plan: Plan) -> list[Panel]:
    """Score by round with the band of its forecast, and the score of each group at the end."""
    forecast = plan.forecast if record.metric == ACCURACY else None
    rounds, values = [point.round for point in record.metrics], _curve(record)
    said = "{:.1f}" if record.metric == ACCURACY else "{:.3g}"

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot(rounds, values, "o-", color=theme.good, ms=3.5)
        ends = []
        if values and math.isfinite(values[-1]):
            ends.append((rounds[-1], values[-1], f"reached {said.format(values[-1])}", theme.good))
        if forecast is not None:
            low, middle, high = (
                100 * one for one in (forecast.lower, forecast.accuracy, forecast.upper)
            )
            axes.axhspan(low, high, color=theme.bad, alpha=0.16, lw=0)
            axes.axhline(middle, color=theme.bad, lw=1.2, ls="--")
            ends.append((plan.spec.rounds, middle, f"forecast {middle:.1f}", theme.bad))
        axes.set_xlim(0, 1.02 * plan.spec.rounds)
        axes.set_xlabel("round")
        axes.set_ylabel(_unit(record))
        name_lines(axes, ends)

    last = said.format(values[-1]) if values else "none"
    alt = f"{_unit(record)} of {record.algorithm} by round, at the end {last}"
    if forecast is not None:
        alt += (
            f"; forecast {forecast.accuracy:.1%}, between {forecast.lower:.1%} and "
            f"{forecast.upper:.1%} at level {forecast.level:g}"
        )
    title = f"{record.algorithm} on {record.dataset or 'its data'}"
    panels = [Panel("accuracy", shortened(title, 40), f"{alt}.", draw, 3.0)]
    known = [group.name for group in plan.groups if group.name in record.accuracy_by_group]
    if known:
        shown, some = _some(known)
        scores = [_scale(record) * record.accuracy_by_group[name] for name in shown]
        bounds = {one.group: (100 * one.lower, 100 * one.upper)
                  for one in (forecast.groups if forecast else ())}  # fmt: skip
        ends = [bounds[name] for name in shown] if set(shown) <= set(bounds) else []
        unit = _unit(record) + "; line below: forecast" * bool(ends)
        panels.append(bars("groups", f"By group{some}", shown, scores, unit, said, ends))
    return panels


def run_picture(record: RunRecord, plan: Plan, spent: Mapping[str, float]) -> bytes:
    """Score by round and by group, and the budget that was spent."""
    rows = [(one.name, one.epsilon, 0.0, spent.get(one.name, math.inf)) for one in plan.groups]
    budgets = epsilon_panel("budgets", "What the run spent", rows, law_of(plan))
    return picture([*score_panels(record, plan), budgets])


def comparison_panels(
    runs: Mapping[str, Sequence[RunRecord]], notes: Mapping[str, str] | None = None
) -> list[Panel]:
    """Mean score of each method with its deviation and every seed, and the means by round."""
    first = next(iter(runs.values()))[0]
    finals = {
        name: [_scale(one) * _or_nan(one.accuracy) for one in records]
        for name, records in runs.items()
    }
    means = {name: statistics.fmean(scores) for name, scores in finals.items()}
    order = sorted(means, key=lambda name: (math.isnan(means[name]), -means[name]))
    spread = {name: statistics.stdev(scores) if len(scores) > 1 else 0.0
              for name, scores in finals.items()}  # fmt: skip
    said = "{:.1f}" if first.metric == ACCURACY else "{:.3g}"
    words = {name: said.format(means[name]) for name in order}
    if any(len(scores) > 1 for scores in finals.values()):
        words = {name: f"{one} ± {said.format(spread[name])}" for name, one in words.items()}
    noted = {name: (notes or {}).get(name, "") for name in order}

    def ranked(axes: Axes, theme: Theme) -> None:
        for place, name in enumerate(order):
            colour = theme.bad if noted[name] else theme.good
            axes.errorbar(means[name], place, xerr=spread[name], fmt="o", color=colour, capsize=3)
            axes.plot(finals[name], [place] * len(finals[name]), "|", color=colour, ms=9)
            text = f"{words[name]}  {noted[name]}".rstrip()
            beside(axes, means[name] + spread[name], place, text, 8)
        low, high = axes.get_xlim()
        with_room(axes, high, 1.9 if any(noted.values()) else 1.45, low)
        name_rows(axes, order, f"{_unit(first)}: mean ± standard deviation; ticks: seeds")

    def curves(axes: Axes, theme: Theme) -> None:
        ends = []
        for number, (name, records) in enumerate(runs.items()):
            colour, dashes = theme.line(number)
            rounds = [point.round for point in records[0].metrics]
            columns = list(zip(*map(_curve, records), strict=True))
            mean = [statistics.fmean(values) for values in columns]
            axes.plot(rounds, mean, dashes, color=colour)
            if len(records) > 1:
                wide = [statistics.stdev(values) for values in columns]
                lows = [one - other for one, other in zip(mean, wide, strict=True)]
                highs = [one + other for one, other in zip(mean, wide, strict=True)]
                axes.fill_between(rounds, lows, highs, color=colour, alpha=0.16, lw=0)
            if rounds:
                ends.append((rounds[-1], mean[-1], shortened(name, 16), colour))
        axes.set_xlim(0, max((end[0] for end in ends), default=1))
        axes.set_xlabel("round")
        axes.set_ylabel(_unit(first))
        name_lines(axes, ends)

    table = "; ".join(f"{name} {words[name]} {noted[name]}".rstrip() for name in order)
    alt = f"{_unit(first)}, mean and standard deviation over the seeds: {table}."
    ranks = Panel("ranking", "Methods, best first", alt, ranked, _height(len(order)))
    by_round = f"{_unit(first)} by round, a line for each of {', '.join(runs)}."
    tall = max(3.0, 0.6 + 0.21 * len(runs))
    return [ranks, Panel("curves", "By round, mean over the seeds", by_round, curves, tall)]


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


# --- Sweeps, frontiers and trade-off curves. -----------------------------------------------------


def _lines(
    name: str,
    labels: tuple[str, str, str],
    found: Mapping[str, Mapping[float, float]],
    *,
    logarithmic: bool = False,
    chosen: float | None = None,
) -> Panel:
    """Lines of y by x; ``labels`` are title, horizontal and vertical axis, ``chosen`` an x."""
    title, across, up = labels

    def draw(axes: Axes, theme: Theme) -> None:
        ends = []
        for number, (label, line) in enumerate(found.items()):
            colour, dashes = theme.line(number)
            axes.plot(list(line), list(line.values()), dashes, marker="o", ms=3, color=colour)
            if chosen is not None and chosen in line:
                axes.plot([chosen], [line[chosen]], "o", ms=9, mfc="none", mec=theme.ink, mew=1.6)
                if label == next(iter(found)):
                    falls = line[max(line)] < line[min(line)]
                    axes.annotate("this plan", (chosen, line[chosen]), (7 if falls else -7, 7),
                                  ha="left" if falls else "right", color=theme.ink,
                                  textcoords="offset points")  # fmt: skip
            if label and number < MOST_LINES:
                ends.append((*max(line.items()), label, colour))
        values = [value for line in found.values() for value in line.values()]
        from_zero(axes, [1.1 * value if chosen is not None else value for value in values])
        if logarithmic:
            by_factors(axes, sorted({value for line in found.values() for value in line}))
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        name_lines(axes, ends)

    said = "; ".join(
        f"{label} {', '.join(f'{y:.4g} at {x:.4g}' for x, y in line.items())}".strip()
        for label, line in found.items()
    )
    tall = max(2.8, 0.6 + 0.21 * min(len(found), MOST_LINES))
    return Panel(name, title, f"{up} by {across}: {said}.", draw, tall)


def sweep_panels(
    rows: Iterable[Mapping[str, Any]], paths: Sequence[str], *, logarithmic: bool = False
) -> list[Panel]:
    """Noise of the mean update and the groups' weights against the first varied number."""
    noise: dict[str, dict[float, float]] = {}
    weights: dict[str, dict[float, float]] = {}
    for row in (row for row in rows if not row.get("error")):
        others = ", ".join(f"{path} {row[path]:g}" for path in paths[1:])
        noise.setdefault(shortened(others, 40), {})[row[paths[0]]] = row["noise_norm"]
        label = f"{shortened(str(row['group']))} {shortened(others, 40)}".strip()
        weights.setdefault(label, {})[row[paths[0]]] = row["weight"]
    across = shortened(paths[0], 50)
    return [
        _lines("noise", ("Noise of the mean update", across, "norm, in units of an update"),
               noise, logarithmic=logarithmic),
        _lines("weights", ("Weight of each group", across, "weight in the model's step"),
               weights, logarithmic=logarithmic),
    ]  # fmt: skip


def frontier_panels(points: Sequence[FrontierPoint]) -> list[Panel]:
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
        line, chosen = {}, None
        for point in points:
            if point.question == question and point.noise is not None:
                at = float(point.what.removeprefix("x "))
                line[at] = point.noise
                chosen = at if point.change == 0 else chosen
        if line:
            labels = (title, across, "noise of the mean update, norm")
            panels.append(
                _lines(question, labels, {"": line}, logarithmic=question != "groups",
                       chosen=chosen)
            )  # fmt: skip
    return panels


def tradeoff_panels(found: TradeOff, title: str) -> list[Panel]:
    """True positives against false positives, on linear and logarithmic axes."""

    def draw(scale: str, axes: Axes, theme: Theme) -> None:
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
            axes.text(0.97, 0.26 - 0.09 * at, word, color=colour, ha="right", fontsize=8.5)

    rates = ", ".join(
        f"{rate:.3g} at {level:g} false positives"
        for level, rate in zip(LEVELS, found.true_positives, strict=True)
    )
    alt = f"{title}: no attack has an advantage above {found.advantage:.4g}; true positives {rates}"
    return [
        Panel("tradeoff", shortened(title, 44), f"{alt}.", partial(draw, "linear"), 3.4),
        Panel("tradeoff-log", f"Advantage at most {found.advantage:.4g}", f"{alt}, on logarithmic "
              "axes.", partial(draw, "log"), 3.4),
    ]  # fmt: skip
