"""Tuning of each method of a comparison by itself, with the same number of runs for all.

Each method has a study of its own (``simulate.runs.study``), whose first trial has its defaults.
Each run trains for all rounds of the plan, under the method's own plan, on a part of
the training records, and is scored on the others (``simulate.data.dataset``); test records are
not used. In a deployment the validation records would have to be public or proxy data: choosing by
private records is a release of its own.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import Field

from privplan.errors import InputError
from privplan.files import write_text
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.processes import Progress
from privplan.spec.planning import QuantileClipping
from privplan.spec.spec import Spec
from privplan.spec.training import without_recipe
from privplan.values import Value, digest
from privplan.verification.verify import load_run
from simulate.algorithms.registry import (
    ALGORITHMS,
    AlgorithmEntry,
    Hyperparameters,
    algorithm,
    as_given,
)
from simulate.engine.loop import evaluate, one_core
from simulate.runs.compare import (
    TUNING,
    ComparisonRow,
    Scores,
    clipped_share,
    compare,
    csv_text,
    epsilon_cells,
    least,
    outcomes,
    request_for,
    require_own,
    scores_of,
)
from simulate.runs.request import Request, prepare
from simulate.runs.study import Problem, search, to_the_end

# --- What ``compare --tune`` varies of a method, and the plan with other values of it. -----------

CLIPPING = (0.1, 2.0)
"""Least and largest clipping norm that is tried, over the plan's."""
RATE = (1 / 3, 3.0)
"""Least and largest local learning rate that is tried, over the plan's."""
QUANTILE = (0.1, 0.9)
"""Least and largest share of updates that an adaptive clipping norm leaves whole."""
FACTOR = 4.0
"""Largest factor between a hyperparameter that is tried and its default, in either direction."""


class Point(Value):
    """Values that a method trains with; clipping norm and rate are factors on the plan's."""

    clipping: float = 1.0  # of the first norm where it follows a quantile
    rate: float = 1.0
    quantile: float | None = None  # that the clipping norm follows; None where it is fixed
    values: dict[str, float] = Field(default_factory=dict)  # the method's own hyperparameters


class SearchSpace:
    """The values of a method that are tuned, each on a logarithmic scale.

    Hyperparameters that the user gave stay; a method without privacy has no norm to tune, and a
    quantile only where its clipping norm follows one.
    """

    def __init__(
        self, entry: AlgorithmEntry, given: Mapping[str, float], quantile: float | None = None
    ) -> None:
        clips = entry.unit != "none" and entry.released != "nothing"
        known = {"clipping": (1.0, *CLIPPING)} if clips else {}  # default, least and largest value
        known["rate"] = (1.0, *RATE)
        if clips and quantile is not None:
            known["quantile"] = (quantile, min(QUANTILE[0], quantile), max(QUANTILE[1], quantile))
        for name, one in entry.hyperparameters.items():
            if not one.integer and name not in given and one.default > 0:
                low, high = max(one.low, one.default / FACTOR), min(one.high, one.default * FACTOR)
                known[name] = (one.default, low, high)
        self.ranges = {name: (low, high) for name, (_, low, high) in known.items()}
        self.default = {name: middle for name, (middle, _, _) in known.items()}
        defaults = {name: one.default for name, one in entry.hyperparameters.items()}
        self._own, self._quantile = {**defaults, **given}, quantile if clips else None

    def point(self, found: Mapping[str, Any]) -> Point:
        """The values of a trial, with those that are not varied."""
        return Point(
            clipping=found.get("clipping", 1.0),
            rate=found.get("rate", 1.0),
            quantile=found.get("quantile", self._quantile),
            values={name: found.get(name, value) for name, value in self._own.items()},
        )


def retuned(plan: Plan, point: Point) -> Plan:
    """The plan with another clipping norm, quantile and local learning rate; same guarantees.

    Noise multipliers are in units of the clipping norm, and the noise on the count that follows a
    quantile is the same for every quantile, so no guarantee depends on any of these values.
    """
    spec = plan.spec
    rate = min(spec.local.learning_rate * point.rate, 1e6)
    local = spec.local.model_copy(update={"learning_rate": float(f"{rate:.6g}")})
    norm = float(f"{spec.clipping_norm * point.clipping:.6g}")
    factor = norm / spec.clipping_norm
    groups = tuple(
        group
        if group.clipping_norm is None
        else group.model_copy(update={"clipping_norm": group.clipping_norm * factor})
        for group in plan.groups
    )
    changed = spec.model_copy(update={"local": local, "clipping_norm": norm})
    update = {"spec": changed, "groups": groups, "mean_noise_std": plan.mean_noise_std * factor}
    if point.quantile is not None:
        chosen = {"quantile": point.quantile}
        if plan.clipping is not None:
            update["clipping"] = plan.clipping.model_copy(update=chosen)
        # without a request the method follows a quantile by default: here it has another one
        requested = (spec.planning.clipping or QuantileClipping()).model_copy(update=chosen)
        planning = spec.planning.model_copy(update={"clipping": requested})
        update["spec"] = changed.model_copy(update={"planning": planning})
    return plan.model_copy(update=update)


# --- Tuning of each method of a comparison by itself, with the same number of runs for all. ------

ACCOUNTANT = "pld"
"""Accountant of a tuned comparison: the guarantee's, with which every method can use its budgets
up, so that no lead is an accountant's."""
VALIDATION_SHARE = 0.2
"""Share of the training records that is held out for validation."""
VALIDATION_CLIENTS = 100
"""Most clients whose personal models are scored on validation records."""


@dataclass(frozen=True)
class Tuned:
    """A method with the values that have the best validation score."""

    algorithm: str
    point: Point
    score: float
    default_score: float
    runs: int


def same_accountant(plan: Plan) -> Plan:
    """The plan solved with the accountant that all methods of a tuned comparison calibrate with."""
    planning = plan.spec.planning
    if planning.accountant == ACCOUNTANT and planning.calibration == "exact":
        return plan
    data = plan.spec.model_dump(mode="json")
    data["planning"] = {**data["planning"], "accountant": ACCOUNTANT, "calibration": "exact"}
    return solve(Spec.parse(data), second_opinion=False)


def tune(
    base: Request,
    algorithms: Sequence[str],
    *,
    trials: int,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress = lambda done, total: None,
) -> dict[str, Tuned]:
    """The best values of each method, by name."""
    if trials < 2:
        raise InputError.one("trials", "must be 2 or more", trials)
    require_own(base.folder)
    request = replace(base, validation_share=VALIDATION_SHARE, seed=seed)
    given = base.hyperparameters
    identity = {
        "plan": base.plan.digest,
        "data": [base.dataset, base.partition_name, VALIDATION_SHARE],
        "given": [given.aggregation, dict(given.values)],
        "seed": seed,
    }
    spaces, requests = {}, {name: replace(request, algorithm=name) for name in algorithms}
    for name, one in requests.items():
        if (metric := prepare(one).metric) is not None:
            rule = "must be left out of a tuned comparison, whose measure is the accuracy"
            raise InputError.one("metric", rule, metric.name)
        # the private quantile that the method's clipping norm follows, if any
        clips_clients = ALGORITHMS.get(name).unit_under(base.plan) == "client"
        followed = algorithm(name, base.plan).plan.clipping if clips_clients else None
        quantile = None if followed is None else followed.quantile
        spaces[name] = SearchSpace(ALGORITHMS.get(name), given.values, quantile)

    def trial(name: str, key: str, params: dict[str, Any]) -> tuple[Request, Point]:
        return requests[name], spaces[name].point(params)

    tried = search(
        base.folder / TUNING,
        {name: Problem(space.ranges, space.default) for name, space in spaces.items()},
        trial,
        _score,
        identity=digest(identity),
        seed=seed,
        trials=trials,
        jobs=jobs,
        progress=progress,
    )
    found = {}
    for name, space in spaces.items():
        scores = [one.scores[0] for one in tried[name] if one.scores is not None]
        point = space.point(tried[name][scores.index(max(scores))].params)
        found[name] = Tuned(name, point, max(scores), scores[0], len(scores))
    return found


def _score(trial: tuple[Request, Point]) -> float:
    """Validation score of a run: what ``accuracy`` of a run is; 0 where it is not finite."""
    torch.set_num_threads(1)
    request, point = trial
    experiment = prepare(request)
    chosen = Hyperparameters(request.hyperparameters.aggregation, point.values)
    plan = retuned(experiment.algorithm.plan, point)
    built = ALGORITHMS.get(request.algorithm).build(plan, chosen)
    experiment = replace(experiment, algorithm=built)
    end = to_the_end(experiment)
    with one_core():
        score = evaluate(experiment, end, VALIDATION_CLIENTS).accuracy
    return score if math.isfinite(score) else 0.0


def tuned_request(base: Request, found: Tuned) -> Request:
    """The request of a method with the values that were found for it."""
    chosen = Hyperparameters(base.hyperparameters.aggregation, found.point.values)
    plan = base.plan
    if ALGORITHMS.get(found.algorithm).plan is not as_given:
        # a method that plans for itself starts from the values before the plan's recipe
        spec = Spec.parse(without_recipe(plan.spec.model_dump(mode="json")))
        plan = plan.model_copy(update={"spec": spec})
    return replace(base, plan=retuned(plan, found.point), hyperparameters=chosen)


# --- The table of a tuned comparison: per method its values, what it spent, and its accuracies. --

UNUSED = 0.01
"""Share of a budget below which what is left of it is not mentioned."""


@dataclass(frozen=True)
class TunedRow:
    """A method of a tuned comparison."""

    row: ComparisonRow
    tuned: Tuned
    scores: tuple[Scores, ...]  # one per seed
    clipped: float | None  # share of contributions over all seeds; None where nothing is clipped
    norm: float
    rate: float

    @property
    def own(self) -> list[float]:
        """Own accuracy per seed."""
        return [one.own for one in self.scores]

    @property
    def unused(self) -> list[str]:
        """Groups that did not use their budget up, with the share that they spent."""
        lines = []
        for group in self.row.verdicts[0].groups:
            spent = self.row.spent(group.group)
            if spent is not None and group.budget and spent < (1 - UNUSED) * group.budget:
                lines.append(f"{group.group} {100 * spent / group.budget:.0f}%")
        return lines


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half width of the 95% interval by Student's law; NaN with one value."""
    if len(values) < 2:
        return values[0], math.nan
    from scipy.special import stdtrit

    width = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values)
    return statistics.fmean(values), width / math.sqrt(len(values))


def tuned_table(
    title: str, rows: Sequence[TunedRow]
) -> tuple[str, list[str], list[list[str]], str]:
    """Title, columns, cells and caption, the best own accuracy first."""
    groups = rows[0].row.groups
    ordered = sorted(rows, key=lambda one: -statistics.fmean(one.own))
    columns = [
        "algorithm", "tuned", "C", "clipped", "own", "global", "own less best", "worst group",
        "worst class", *(f"{name} epsilon" for name in groups), "kept",
    ]  # fmt: skip
    return title, columns, [_cells(one, ordered[0]) for one in ordered], _caption(ordered)


def _cells(one: TunedRow, best: TunedRow) -> list[str]:
    values = {"rate": one.rate, **_own_values(one)}
    # the group and the class with the least accuracy, averaged over the seeds
    parts = ([score.own_by_group for score in one.scores], [score.by_class for score in one.scores])
    worst = [
        least({name: statistics.fmean(found[name] for found in part) for name in part[0]})
        for part in parts
    ]
    behind = [a - b for a, b in zip(one.own, best.own, strict=True)]  # equal seeds: equal clients
    return [
        one.row.algorithm,
        ", ".join(f"{name}={value:.3g}" for name, value in values.items()),
        f"{one.norm:.3g}",
        "-" if one.clipped is None else f"{100 * one.clipped:.0f}%",
        _percent(one.own),
        _percent([score.everybody for score in one.scores]),
        "" if one is best else _percent(behind, sign=True),
        *(f"{name} {100 * value:.2f}" for name, value in worst),
        *epsilon_cells(one.row),
        outcomes(one.row.verdicts),
    ]


def _own_values(one: TunedRow) -> dict[str, float]:
    """The quantile that the clipping norm follows, if any, and the method's hyperparameters."""
    point = one.tuned.point
    return point.values if point.quantile is None else {"quantile": point.quantile, **point.values}


def _percent(values: Sequence[float], sign: bool = False) -> str:
    mean, width = interval(values)
    text = f"{100 * mean:+.2f}" if sign else f"{100 * mean:.2f}"
    return text if math.isnan(width) else f"{text} ± {100 * width:.2f}"


def _caption(rows: Sequence[TunedRow]) -> str:
    """What the columns are, and which methods leave a part of their budgets."""
    first = rows[0].row.verdicts[0].groups[0]
    left = [f"{one.row.algorithm} ({', '.join(one.unused)})" for one in rows if one.unused]
    lines = [
        f"{rows[0].tuned.runs} runs each on validation records; own: each client's model on its "
        "own test records; global: on all test records; ±: 95% interval over seeds; "
        f"epsilon: largest realised upper bound at delta {first.delta:.3g}, {first.sampling} "
        f"sampling, {first.relation} neighbours, {first.accountant}"
    ]
    lines += [f"budgets not used up: {'; '.join(left)}"] if left else []
    return "; ".join(lines)


COLUMNS = (
    "algorithm", "unit", "seed", "runs", "clipping_norm", "learning_rate", "hyperparameters",
    "validation", "validation_default", "clipped", "own", "global", "worst_class",
    "worst_class_accuracy", "group", "group_own", "budget", "realised_upper", "verdict",
)  # fmt: skip


def tuned_plain(rows: Sequence[TunedRow]) -> list[dict[str, object]]:
    """One record per algorithm, seed and group, for JSON; an infinite epsilon is None."""
    return [dict(zip(COLUMNS, line, strict=True)) for one in rows for line in _lines(one)]


def tuned_csv(rows: Sequence[TunedRow]) -> str:
    """Tidy CSV: one line per algorithm, seed and group; an infinite epsilon is ``inf``."""
    lines, place = [line for one in rows for line in _lines(one)], COLUMNS.index("realised_upper")
    for line in lines:
        line[place] = "inf" if line[place] is None else line[place]
    return csv_text(COLUMNS, lines)


def _lines(one: TunedRow) -> Iterator[list[object]]:
    values = " ".join(f"{name}={value:g}" for name, value in _own_values(one).items())
    fixed = [one.tuned.runs, one.norm, one.rate, values, one.tuned.score, one.tuned.default_score]
    for record, verdict, scores in zip(one.row.records, one.row.verdicts, one.scores, strict=True):
        head = [one.row.algorithm, one.row.unit, record.seed, *fixed, one.clipped]
        head += [scores.own, scores.everybody, *least(scores.by_class)]
        for group in verdict.groups:
            own = scores.own_by_group.get(group.group)
            spent = [group.budget, group.realised_upper, verdict.word]
            yield [*head, group.group, own, *spent]


# --- A comparison in which each method trains with values that were tuned for it. ----------------

TUNED_TABLE = "tuned.csv"


def tuned_comparison(
    base: Request,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    trials: int,
    jobs: int,
    progress: Progress,
    finished: Callable[[ComparisonRow], None] = lambda row: None,
) -> list[TunedRow]:
    """Tune each method, train all with their own values, and write the table."""
    found = tune(base, algorithms, trials=trials, jobs=jobs, progress=progress)
    requests = {name: tuned_request(base, one) for name, one in found.items()}
    rows = compare(base, algorithms, seeds, jobs, progress, requests, finished)
    shown = []
    for row in rows:
        runs = [request_for(requests[row.algorithm], row.algorithm, seed) for seed in seeds]
        ledgers = [load_run(one.folder).ledger.records for one in runs]
        spec = requests[row.algorithm].plan.spec
        shown.append(
            TunedRow(
                row=row,
                tuned=found[row.algorithm],
                scores=tuple(scores_of(one) for one in runs),
                clipped=clipped_share(record for ledger in ledgers for record in ledger),
                norm=spec.clipping_norm,
                rate=spec.local.learning_rate,
            )
        )
    write_text(base.folder / TUNED_TABLE, tuned_csv(shown))
    return shown
