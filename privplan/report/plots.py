"""What plans, runs, comparisons, sweeps and frontiers look like, panel by panel.

An epsilon in a picture is an upper bound, with delta, sampling law, relation and
accountant on its axis.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from privplan.accounting.accountant import at_most
from privplan.accounting.calibrate import PLD
from privplan.accounting.release import named_law, with_article
from privplan.planning.sweep import CHANCES
from privplan.record import ACCURACY, ReleaseRecord, RunRecord
from privplan.report import style
from privplan.report.panels import (
    Band,
    EpsilonRow,
    Line,
    Lines,
    Row,
    bars,
    epsilon_panel,
    first_items,
    law_label,
    rows_panel,
)
from privplan.report.protection import BLIND

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from privplan.accounting.release import History
    from privplan.plan import Forecast, GroupPlan, Plan
    from privplan.planning.frontier import FrontierPoint
    from privplan.verification.verdict import Verdict

_LINE_LETTERS = 16  # of the name at the end of a line, where it stays distinct
_ROUNDS_OF_SPENDING = 10  # at which it is computed; each composes all rounds before it
_ROUNDING = 1e-6  # percent, below which a weight is the share of the clients


def law_of(plan: Plan) -> str:
    """What an epsilon of a plan depends on besides its group, as text."""
    law = named_law(plan.spec.laws, plan.unit)
    return law_label(plan.groups, law, plan.spec.relation, plan.guarantee)


def plan_panels(plan: Plan) -> list[style.Panel]:
    """Budgets, who pays and who gains, sampling ratios and noise; one row a group."""
    groups, note = first_items(plan.groups)
    certified = {row.group: row for row in plan.certificate if row.guarantee}
    rows = []
    ratios = []
    for group in groups:
        bounds = certified[group.name]
        row = EpsilonRow(
            group.name, group.epsilon, bounds.epsilon_lower, bounds.epsilon_upper
        )
        rows.append(row)
        # Under random allocation a client is in one round of several.
        chance = group.expected_cohort / group.clients
        ratios.append(100 * (group.record_sampling_ratio or chance))
    names = [group.name for group in groups]
    whose = f"{with_article(plan.whom())} in a round"
    if plan.unit == "record":
        whose = "a record to be in a batch"
    return [
        epsilon_panel(
            "budgets", f"Budgets, and what the plan spends{note}", rows, law_of(plan)
        ),
        _influence_panel(groups, note, plan.spec.population),
        bars(
            "sampling", f"Sampling ratio{note}", f"chance of {whose} (%)", names, ratios
        ),
        bars(
            "noise",
            f"Noise by group{note}",
            "noise multiplier (standard deviation over clipping norm)",
            names,
            [group.noise_multiplier for group in groups],
        ),
    ]


def _influence_panel(
    groups: Sequence[GroupPlan], note: str, population: int
) -> style.Panel:
    """A ring at a group's share of the clients, and a dot at its weight in a step."""
    shares = [100 * group.clients / population for group in groups]
    weights = [100 * group.weight for group in groups]

    def marks(axes: Axes, theme: style.Theme) -> None:
        for place, (share, weight) in enumerate(zip(shares, weights, strict=True)):
            if weight < share - _ROUNDING:
                colour = theme.bad
            else:
                colour = theme.good
            axes.plot([share, weight], [place] * 2, color=colour, lw=2.4)
            axes.plot(
                [share], [place], "o", mfc=theme.ground, mec=colour, ms=7, mew=1.6
            )
            axes.plot([weight], [place], "o", color=colour, ms=7.5)
        axes.set_xlim(left=0)

    rows = [
        Row(group.name, max(share, weight), f" {share:.0f}% → {weight:.0f}%")
        for group, share, weight in zip(groups, shares, weights, strict=True)
    ]
    unit = "ring: share of the clients, dot: weight in the model's step (%)"
    return rows_panel("influence", f"Who pays, who gains{note}", unit, rows, marks)


def verdict_panel(verdict: Verdict) -> style.Panel:
    """Budget and realised epsilon of every group, from below and above."""
    rows = []
    for group in verdict.groups:
        if group.realised_upper is None:
            upper = math.inf
        else:
            upper = group.realised_upper
        lower = group.realised_lower or 0.0
        rows.append(EpsilonRow(group.group, group.budget, lower, upper))
    first_group = verdict.groups[0]
    drawn = named_law(verdict.laws, verdict.unit)
    law = law_label(verdict.groups, drawn, first_group.relation, first_group.accountant)
    return epsilon_panel("verdict", f"What the run spent: {verdict.outcome}", rows, law)


def spending_panel(
    plan: Plan, releases: Sequence[ReleaseRecord] = ()
) -> style.Panel | None:
    """Upper bounds on epsilon up to a round.

    Args:
        plan: whose budgets are drawn.
        releases: of a run; without any, the planned ones count.

    Returns:
        The panel; None where the bounds are not by pld, or cannot be computed.
    """
    from privplan.errors import PrivplanError

    is_planned_for_records = plan.unit == "record" and not releases
    if plan.guarantee != PLD or is_planned_for_records:
        return None
    rounds = _rounds_of_spending(plan, releases)
    groups = plan.groups[: len(style.LIGHT.series)]
    spent: dict[str, Line] = {}
    for group in groups:
        try:
            line = _spending_line(plan, group, releases, rounds)
        except PrivplanError:
            return None
        label = f"{group.name} {at_most(line[rounds[-1]])}"
        spent[style.shortened(label, 18)] = {
            round_: epsilon if math.isfinite(epsilon) else math.nan
            for round_, epsilon in line.items()
        }
    title = "Budget over the rounds, as planned"
    if releases:
        title = "Budget spent over the rounds"
    drawing = Lines(
        f"round (dotted: budgets)\n{law_of(plan)}",
        "epsilon so far, at most",
        spent,
        limits=[group.epsilon for group in groups],
    )
    return drawing.panel("spending", title)


def _rounds_of_spending(plan: Plan, releases: Sequence[ReleaseRecord]) -> list[int]:
    """Rounds up to the last, closer together where epsilon grows fastest."""
    last_round = max((record.round for record in releases), default=plan.spec.rounds)
    steps = range(1, _ROUNDS_OF_SPENDING + 1)
    rounds = {
        math.ceil(last_round * (step / _ROUNDS_OF_SPENDING) ** 2) for step in steps
    }
    return sorted(rounds)


def _spending_line(
    plan: Plan,
    group: GroupPlan,
    releases: Sequence[ReleaseRecord],
    rounds: Sequence[int],
) -> dict[float, float]:
    """Upper bounds on a group's epsilon after some rounds."""
    from privplan.accounting.accountant import accountant
    from privplan.ledger import history_of

    pld = accountant(PLD)
    line = {0.0: 0.0}
    for end in rounds:
        until = [record for record in releases if record.round <= end]
        history = _planned(plan, group, end)
        if until:
            history = history_of(until, group.name)
        line[end] = pld.epsilon(history, group.delta, plan.spec.relation).upper
    return line


def _planned(plan: Plan, group: GroupPlan, rounds: int) -> History:
    """What a client of a group is part of in so many rounds of a plan."""
    from privplan.accounting.release import History, Release

    law = plan.law_of(group)
    counts = Counter(plan.at_round(group, round_) for round_ in range(1, rounds + 1))
    if group.segments is None:
        counts = Counter(dict.fromkeys(counts, law.law.rounds_of_client(rounds)))
    return History(
        (Release(noise_multiplier, ratio, law), count)
        for (ratio, noise_multiplier), count in counts.items()
    )


class _Scores(NamedTuple):
    """How the scores of a run are drawn: accuracies in percent."""

    scale: float
    form: str  # of a scaled score as text
    unit: str

    def text(self, score: float) -> str:
        return self.form.format(self.scale * score)


def _scores_of(record: RunRecord) -> _Scores:
    if record.metric == ACCURACY:
        return _Scores(100.0, "{:.1f}", f"test {record.metric} (%)")
    return _Scores(1.0, "{:.3g}", f"test {record.metric}")


def _curve(record: RunRecord) -> dict[float, float]:
    """Scores by evaluated round; NaN where a score was not finite."""
    scale = _scores_of(record).scale
    curve: dict[float, float] = {}
    for metrics in record.metrics:
        score = metrics.accuracy
        if score is None:
            curve[metrics.round] = math.nan
        else:
            curve[metrics.round] = scale * score
    return curve


def score_panels(record: RunRecord, plan: Plan) -> list[style.Panel]:
    """Score by round with the band of its forecast, and of each group at the end."""
    scores = _scores_of(record)
    forecast = plan.forecast if record.metric == ACCURACY else None
    band = None
    if forecast is not None:
        band = Band(100 * forecast.lower, 100 * forecast.accuracy, 100 * forecast.upper)
    reached = ""
    if record.accuracy is not None:
        reached = f"reached {scores.text(record.accuracy)}"
    title = style.shortened(f"{record.algorithm} on {record.dataset or 'its data'}", 40)
    curve = {reached: _curve(record)}
    drawing = Lines("round", scores.unit, curve, band=band, from_zero=False)
    panels = [drawing.panel("accuracy", title)]
    if any(group.name in record.accuracy_by_group for group in plan.groups):
        panels.append(_group_scores_panel(record, plan, forecast))
    return panels


def _group_scores_panel(
    record: RunRecord, plan: Plan, forecast: Forecast | None
) -> style.Panel:
    """The score of each group at the end, with its forecast."""
    scores = _scores_of(record)
    by_group = record.accuracy_by_group
    scored = [group.name for group in plan.groups if group.name in by_group]
    names, note = first_items(scored)
    values = [scores.scale * by_group[name] for name in names]
    forecasts = {}
    if forecast is not None:
        for group in forecast.groups:
            forecasts[group.group] = (100 * group.lower, 100 * group.upper)
    intervals = [forecasts[name] for name in names if name in forecasts]
    unit = scores.unit
    if intervals:
        unit += "; line below: forecast"
    title = f"By group{note}"
    return bars("groups", title, unit, names, values, scores.form, intervals)


def run_picture(record: RunRecord, plan: Plan, spent: Mapping[str, float]) -> bytes:
    """Score by round and by group, and the budget that was spent.

    Args:
        record: of the run.
        plan: of the run.
        spent: epsilon by group.
    """
    rows = [
        EpsilonRow(group.name, group.epsilon, 0.0, spent.get(group.name, math.inf))
        for group in plan.groups
    ]
    budgets = epsilon_panel("budgets", "What the run spent", rows, law_of(plan))
    return style.picture([*score_panels(record, plan), budgets])


def comparison_panels(rows: Sequence[Any]) -> list[style.Panel]:
    """Mean score of each method with every seed, and the means by round."""
    means = {}
    deviations = {}
    names = _distinct([row.algorithm for row in rows])
    for name, row in zip(names, rows, strict=True):
        of_seeds = [_curve(record) for record in row.records]
        places = list(of_seeds[0])
        scores_by_round = [list(map(itemgetter(place), of_seeds)) for place in places]
        mean = map(statistics.fmean, scores_by_round)
        means[name] = dict(zip(places, mean, strict=True))
        if len(of_seeds) > 1:
            deviation = map(statistics.stdev, scores_by_round)
            deviations[name] = dict(zip(places, deviation, strict=True))
    unit = _scores_of(rows[0].records[0]).unit
    curves = Lines("round", unit, means, spread=deviations, from_zero=False)
    return [
        _ranking_panel(rows),
        curves.panel("curves", "By round, mean over the seeds"),
    ]


def _distinct(names: Sequence[str]) -> list[str]:
    """Names for the ends of lines, as short as they can be and stay distinct."""
    for letters in range(_LINE_LETTERS, max(map(len, names))):
        shortened = [style.shortened(name, letters) for name in names]
        if len({*shortened}) == len(names):
            return shortened
    return [style.shortened(name, max(map(len, names))) for name in names]


def _ranking_panel(rows: Sequence[Any]) -> style.Panel:
    """Methods by their mean score, with its deviation and a tick for every seed."""
    scores = _scores_of(rows[0].records[0])
    scale = scores.scale
    order = sorted(rows, key=lambda row: (math.isnan(row.mean), -row.mean))

    def marks(axes: Axes, theme: style.Theme) -> None:
        for place, row in enumerate(order):
            colour = theme.bad if row.note else theme.good
            axes.errorbar(
                scale * row.mean,
                place,
                xerr=scale * row.deviation,
                fmt="o",
                color=colour,
                capsize=3,
            )
            seeds = [scale * score for score in row.accuracies]
            axes.plot(seeds, [place] * len(seeds), "|", color=colour, ms=9)

    unit = f"{scores.unit}: mean ± standard deviation; ticks: seeds"
    room = 1.9 if any(row.note for row in rows) else 1.45
    labelled = [_ranked(row, scores) for row in order]
    title = "Methods by mean score"
    return rows_panel("ranking", title, unit, labelled, marks, room)


def _ranked(row: Any, scores: _Scores) -> Row:
    """The mean of a method, its deviation over the seeds, and what is to be noted."""
    words = scores.text(row.mean)
    if len(row.records) > 1:
        words += f" ± {scores.text(row.deviation)}"
    # Behind the bar and behind the tick of every seed.
    end = scores.scale * max(row.mean + row.deviation, *row.accuracies)
    return Row(row.algorithm, end, f"{words}  {row.note}".rstrip())


def sweep_panels(
    rows: Iterable[Mapping[str, Any]],
    paths: Sequence[str],
    *,
    logarithmic: bool = False,
) -> list[style.Panel]:
    """An attacker's guesses, weights and noise, by the first varied number.

    Args:
        rows: one per point and group.
        paths: the fields of the spec that vary; a line for each value of all but the
            first.
        logarithmic: whether the axis of the first is.
    """
    first_path, *further = paths
    guesses: dict[str, dict[float, float]] = {}
    noise: dict[str, dict[float, float]] = {}
    weights: dict[str, dict[float, float]] = {}
    for row in rows:
        if row.get("error"):
            continue
        label = style.shortened(
            ", ".join(f"{path} {row[path]:g}" for path in further), 40
        )
        noise.setdefault(label, {})[row[first_path]] = row["relative_noise"]
        label = f"{style.shortened(str(row['group']))} {label}".strip()
        weights.setdefault(label, {})[row[first_path]] = row["weight"]
        if row.get(CHANCES[0]) is not None:
            right = BLIND * (1 + row[CHANCES[0]])
            guesses.setdefault(label, {})[row[first_path]] = right
    across = style.shortened(first_path, 50)
    step = "weight in the model's step"
    panels = []
    if guesses:
        right_of_hundred = Lines(
            across,
            "right guesses of 100, at most",
            guesses,
            logarithmic=logarithmic,
            from_zero=False,
        )
        title = "How often an attacker is right (blind: 50)"
        panels.append(right_of_hundred.panel("guesses", title))
    return [
        *panels,
        Lines(across, step, weights, logarithmic=logarithmic).panel(
            "weights", "Weight of each group"
        ),
        Lines(across, "clipping norms", noise, logarithmic=logarithmic).panel(
            "noise", "Noise of the mean update"
        ),
    ]


# By the question of a frontier: the title of its panel, and the horizontal axis.
_FRONTIERS = {
    "rounds": ("Noise by rounds", "rounds"),
    "cohort": ("Noise by cohort", "clients per round"),
    "epsilon": ("Noise by budgets", "factor on every epsilon"),
    "groups": ("Noise by number of groups", "groups made of individual budgets"),
}


def frontier_panels(points: Sequence[FrontierPoint]) -> list[style.Panel]:
    """Noise of the mean update against rounds, cohort, budgets and groups.

    The plan's own point is the one without a change.
    """
    panels = []
    for question, (title, across) in _FRONTIERS.items():
        line: dict[float, float] = {}
        own_places = []
        for point in points:
            if point.question == question and point.noise is not None:
                place = float(point.what.removeprefix("x "))
                line[place] = point.noise
                if point.change == 0:
                    own_places.append(place)
        if not line:
            continue
        drawing = Lines(
            across,
            "noise of the mean update, norm",
            {"": line},
            chosen=own_places[0] if own_places else None,
            logarithmic=question != "groups",
        )
        panels.append(drawing.panel(question, title))
    return panels
