"""Tuning of each method of a comparison by itself, with the same number of runs for all.

Each method has a study of its own (``simulate.runs.study``), whose first trial has its defaults.
Each run trains for all rounds of the plan, under the method's own plan, on a part of
the training records, and is scored on the others (``simulate.data.dataset``); test records are
not used. In a deployment the validation records would have to be public or proxy data: choosing by
private records is a release of its own.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import Field

from privplan.errors import InputError
from privplan.files import csv_cell, write_text
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.planning import QuantileClipping
from privplan.spec.spec import Spec
from privplan.spec.training import without_recipe
from privplan.sweeps import Progress, resumable
from privplan.values import Value, digest
from privplan.verification.verify import load_run
from simulate.algorithms.registry import (
    ALGORITHMS,
    AlgorithmEntry,
    Hyperparameters,
    algorithm,
    as_given,
)
from simulate.engine.loop import evaluate, initial_state, one_core, run_round
from simulate.runs.compare import (
    TUNING,
    ComparisonRow,
    Scores,
    clipped_share,
    compare,
    request_for,
    require_own,
    scores_of,
)
from simulate.runs.ledger_writer import MemoryLedger
from simulate.runs.request import Request, prepare
from simulate.runs.study import Study, opened, search

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
    """Values that a method trains with.

    Attributes:
        clipping: clipping norm over the plan's; the first one where it follows a quantile.
        rate: local learning rate over the plan's.
        quantile: the private quantile that the clipping norm follows; None where it is fixed.
        values: the method's own hyperparameters by name.
    """

    clipping: float = 1.0
    rate: float = 1.0
    quantile: float | None = None
    values: dict[str, float] = Field(default_factory=dict)


class SearchSpace:
    """The values of a method that are tuned, each on a logarithmic scale.

    Args:
        entry: the method. A method without privacy does not clip, so its norm is not tuned.
        given: values of hyperparameters that the user chose, which stay.
        quantile: the private quantile that the method's clipping norm follows under its own plan;
            None where the norm is fixed.
    """

    def __init__(
        self, entry: AlgorithmEntry, given: Mapping[str, float], quantile: float | None = None
    ) -> None:
        clips = entry.unit != "none" and entry.released != "nothing"
        self.ranges = {"clipping": CLIPPING, "rate": RATE} if clips else {"rate": RATE}
        self._quantile = quantile if clips else None
        if self._quantile is not None:
            self.ranges["quantile"] = (
                min(QUANTILE[0], self._quantile),
                max(QUANTILE[1], self._quantile),
            )
        self._given = dict(given)
        self._defaults = {name: one.default for name, one in entry.hyperparameters.items()}
        for name, one in entry.hyperparameters.items():
            if one.integer or name in given or one.default <= 0:
                continue
            low, high = max(one.low, one.default / FACTOR), min(one.high, one.default * FACTOR)
            self.ranges[name] = (low, high)

    @property
    def default(self) -> dict[str, float]:
        """The plan's values and the defaults of what is varied, by name."""
        known = {"clipping": 1.0, "rate": 1.0, **self._defaults}
        if self._quantile is not None:
            known["quantile"] = self._quantile
        return {name: known[name] for name in self.ranges}

    def point(self, found: Mapping[str, Any]) -> Point:
        """The values of a trial, with those that are not varied."""
        own = {name: found.get(name, value) for name, value in self._defaults.items()}
        return Point(
            clipping=found.get("clipping", 1.0),
            rate=found.get("rate", 1.0),
            quantile=found.get("quantile", self._quantile),
            values={**own, **self._given},
        )

    def at_edge(self, point: Point) -> list[str]:
        """Names of the values within a tenth of an end of their range, on the log scale."""
        values = {**point.model_dump(exclude={"values"}), **point.values}
        names = []
        for name, (low, high) in self.ranges.items():
            place = math.log(values[name] / low) / math.log(high / low)
            names += [name] if not 0.1 < place < 0.9 else []
        return names


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
        group.model_copy(update={"clipping_norm": group.clipping_norm * factor})
        if group.clipping_norm is not None
        else group
        for group in plan.groups
    )
    changed = spec.model_copy(update={"local": local, "clipping_norm": norm})
    update = {"spec": changed, "groups": groups, "noise_std": plan.noise_std * factor}
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
VALIDATION_CLIENTS = 100
"""Most clients whose personal models are scored on validation records."""


@dataclass(frozen=True)
class Tuned:
    """A method with the values that were found for it.

    Attributes:
        algorithm: the method's name.
        point: the values with the best score.
        score: their validation score.
        default_score: that of the defaults.
        runs: runs that were spent.
        at_edge: values near the end of what was tried.
    """

    algorithm: str
    point: Point
    score: float
    default_score: float
    runs: int
    at_edge: tuple[str, ...]


@dataclass(frozen=True)
class _Trial:
    """One run: a request on the validation split, and the values to train with."""

    request: Request
    point: Point


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
    validation_share: float,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress = lambda done, total: None,
) -> dict[str, Tuned]:
    """The best values of each method, by name."""
    if trials < 2:
        raise InputError.one("trials", "must be 2 or more", trials)
    if not 0 < validation_share < 1:
        raise InputError.one("validation_share", "must be in (0, 1)", validation_share)
    require_own(base.folder)
    request = replace(base, validation_share=validation_share, seed=seed)
    given = base.hyperparameters
    identity = digest(
        {
            "plan": base.plan.digest,
            "data": [base.dataset, base.partition_name, validation_share],
            "given": [given.aggregation, dict(given.values)],
            "seed": seed,
        }
    )
    spaces, requests = {}, {name: replace(request, algorithm=name) for name in algorithms}
    for name, one in requests.items():
        if (metric := prepare(one).metric) is not None:
            rule = "must be left out of a tuned comparison, whose measure is the accuracy"
            raise InputError.one("metric", rule, metric.name)
        spaces[name] = SearchSpace(ALGORITHMS.get(name), given.values, _quantile(name, base))

    def trial(name: str, key: str, params: dict[str, Any]) -> _Trial:
        return _Trial(requests[name], spaces[name].point(params))

    with resumable(base.folder), opened(base.folder / TUNING) as storage:
        studies = {
            name: Study(storage, name, identity, space.ranges, [space.default], seed=seed)
            for name, space in spaces.items()
        }
        search(studies, trial, _score, trials=trials, jobs=jobs, progress=progress)
        return {name: _tuned(name, spaces[name], study) for name, study in studies.items()}


def tuned_request(base: Request, found: Tuned) -> Request:
    """The request of a method with the values that were found for it."""
    chosen = Hyperparameters(base.hyperparameters.aggregation, found.point.values)
    plan = base.plan
    if ALGORITHMS.get(found.algorithm).plan is not as_given:
        # a method that plans for itself starts from the values before the plan's recipe
        spec = Spec.parse(without_recipe(plan.spec.model_dump(mode="json")))
        plan = plan.model_copy(update={"spec": spec})
    return replace(base, plan=retuned(plan, found.point), hyperparameters=chosen)


def _quantile(name: str, base: Request) -> float | None:
    """The private quantile that a method's clipping norm follows; None where it is fixed."""
    if ALGORITHMS.get(name).unit_under(base.plan) != "client":
        return None
    followed = algorithm(name, base.plan).plan.clipping
    return None if followed is None else followed.quantile


def _tuned(name: str, space: SearchSpace, study: Study) -> Tuned:
    trials = study.finished()
    scores = [one.scores[0] for one in trials if one.scores is not None]
    score = max(scores)
    point = space.point(trials[scores.index(score)].params)
    return Tuned(name, point, score, scores[0], len(scores), tuple(space.at_edge(point)))


def _score(trial: _Trial) -> float:
    """Validation score of a run: what ``accuracy`` of a run is; 0 where it is not finite."""
    torch.set_num_threads(1)
    experiment = prepare(trial.request)
    entry = ALGORITHMS.get(trial.request.algorithm)
    aggregation = trial.request.hyperparameters.aggregation
    plan = retuned(experiment.algorithm.plan, trial.point)
    built = entry.build(plan, Hyperparameters(aggregation, trial.point.values))
    experiment = replace(experiment, algorithm=built)
    now, ledger = initial_state(experiment), MemoryLedger("")
    with one_core():
        while now.round < experiment.rounds:
            now = run_round(experiment, now, ledger)
        score = evaluate(experiment, now, VALIDATION_CLIENTS).accuracy
    return score if math.isfinite(score) else 0.0


# --- The table of a tuned comparison: per method its values, what it spent, and its accuracies. --

UNUSED = 0.01
"""Share of a budget below which what is left of it is not mentioned."""


@dataclass(frozen=True)
class TunedRow:
    """A method of a tuned comparison.

    Attributes:
        row: its runs and verdicts.
        tuned: the values that were found for it.
        scores: one per seed.
        clipped: share of clipped contributions over all seeds; None where nothing is clipped.
        norm: its clipping norm.
        rate: its local learning rate.
    """

    row: ComparisonRow
    tuned: Tuned
    scores: tuple[Scores, ...]
    clipped: float | None
    norm: float
    rate: float

    @property
    def own(self) -> list[float]:
        """Own accuracy per seed."""
        return [one.own for one in self.scores]

    @property
    def everybody(self) -> list[float]:
        """Global accuracy per seed."""
        return [one.everybody for one in self.scores]

    @property
    def worst_group(self) -> tuple[str, float]:
        """The group with the least own accuracy, averaged over the seeds."""
        return self._worst([one.own_by_group for one in self.scores])

    @property
    def worst_class(self) -> tuple[str, float]:
        """The class with the least global accuracy, averaged over the seeds."""
        return self._worst([one.by_class for one in self.scores])

    @property
    def unused(self) -> list[str]:
        """Groups that did not use their budget up, with the share that they spent."""
        lines = []
        for group in self.row.verdicts[0].groups:
            spent = self.row.spent(group.group)
            if spent is not None and group.budget and spent < (1 - UNUSED) * group.budget:
                lines.append(f"{group.group} {100 * spent / group.budget:.0f}%")
        return lines

    def _worst(self, found: Sequence[dict[str, float]]) -> tuple[str, float]:
        means = {name: statistics.fmean(one[name] for one in found) for name in found[0]}
        known = {name: value for name, value in means.items() if not math.isnan(value)}
        return min(known.items(), key=lambda pair: pair[1])


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
    spent = [one.row.spent(name) for name in one.row.groups]
    kept = sum(verdict.kept for verdict in one.row.verdicts)
    return [
        one.row.algorithm,
        _values(one),
        f"{one.norm:.3g}",
        "-" if one.clipped is None else f"{100 * one.clipped:.0f}%",
        _percent(one.own),
        _percent(one.everybody),
        "" if one is best else _percent(paired(one, best), sign=True),
        f"{one.worst_group[0]} {100 * one.worst_group[1]:.2f}",
        f"{one.worst_class[0]} {100 * one.worst_class[1]:.2f}",
        *("inf" if value is None else f"{value:.4f}" for value in spent),
        f"{kept}/{len(one.row.verdicts)}",
    ]


def paired(one: TunedRow, other: TunedRow) -> list[float]:
    """Differences of the own accuracy, seed by seed: equal seeds have equal clients and cohorts."""
    return [a - b for a, b in zip(one.own, other.own, strict=True)]


def _values(one: TunedRow) -> str:
    own = [f"{name}={value:.3g}" for name, value in _own_values(one).items()]
    return ", ".join([f"rate={one.rate:.3g}", *own])


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
    edges = [f"{one.row.algorithm} ({', '.join(one.tuned.at_edge)})" for one in rows
             if one.tuned.at_edge]  # fmt: skip
    lines = [
        f"{rows[0].tuned.runs} runs each on validation records; own: each client's model on its "
        "own test records; global: on all test records; ±: 95% interval over seeds; "
        f"epsilon: largest realised upper bound at delta {first.delta:.3g}, {first.sampling} "
        f"sampling, {first.relation} neighbours, {first.accountant}"
    ]
    lines += [f"budgets not used up: {'; '.join(left)}"] if left else []
    lines += [f"values near the end of what was tried: {'; '.join(edges)}"] if edges else []
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
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    place = COLUMNS.index("realised_upper")
    for one in rows:
        for line in _lines(one):
            line[place] = "inf" if line[place] is None else line[place]
            writer.writerow(map(csv_cell, line))
    return text.getvalue()


def _lines(one: TunedRow) -> Iterator[list[object]]:
    values = " ".join(f"{name}={value:g}" for name, value in _own_values(one).items())
    fixed = [one.tuned.runs, one.norm, one.rate, values, one.tuned.score, one.tuned.default_score]
    for record, verdict, scores in zip(one.row.records, one.row.verdicts, one.scores, strict=True):
        head = [one.row.algorithm, one.row.unit, record.seed, *fixed, one.clipped]
        head += [scores.own, scores.everybody, *scores.worst_class]
        for group in verdict.groups:
            own = scores.own_by_group.get(group.group)
            spent = [group.budget, group.realised_upper, verdict.outcome]
            yield [*head, group.group, own, *spent]


# --- A comparison in which each method trains with values that were tuned for it. ----------------

TUNED_TABLE = "tuned.csv"


def tuned_comparison(
    base: Request,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    trials: int,
    validation_share: float,
    jobs: int | None,
    progress: Progress,
    cluster: str | None = None,
    finished: Callable[[ComparisonRow], None] = lambda row: None,
) -> list[TunedRow]:
    """Tune each method, train all with their own values, and write the table."""
    found = tune(
        base,
        algorithms,
        trials=trials,
        validation_share=validation_share,
        jobs=jobs or 1,
        progress=progress,
    )
    requests = {name: tuned_request(base, one) for name, one in found.items()}
    rows = compare(base, algorithms, seeds, jobs, progress, cluster, requests, finished)
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
