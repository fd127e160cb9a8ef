"""Tuning of each method of a comparison by itself, with the same number of runs for all.

Half of the runs of a method are its defaults and random values, the other half values around the
best so far. Each run trains for all rounds of the plan, under the method's own plan, on a part of
the training records, and is scored on the others (``simulate.data.validation``); test records are
not used. In a deployment the validation records would have to be public or proxy data: choosing by
private records is a release of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from privplan.errors import InputError
from privplan.io.resume import Journal, Progress, finish, in_jobs, key_of, resumable
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.recipe import without_recipe
from privplan.spec.spec import Spec
from privplan.values import digest
from simulate.algorithms.entry import Hyperparameters
from simulate.algorithms.registry import ALGORITHMS, algorithm, as_given
from simulate.engine.loop import evaluate, initial_state, one_core, run_round
from simulate.runs.compare import TUNING, require_own
from simulate.runs.ledger_writer import MemoryLedger
from simulate.runs.request import Request, prepare
from simulate.runs.search_space import Point, SearchSpace, retuned

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
    """The best values of each method, by name.

    Args:
        base: plan, data and device; trials are journalled in its folder and not run again.
        algorithms: names of the catalogue.
        trials: runs of each method, 2 or more, of which the first has the defaults.
        validation_share: share of the training records on which runs are scored.
        seed: seed of the runs and of the values that are drawn.
        jobs: runs at the same time.
        progress: called with the number of finished and of all runs of each half.

    Raises:
        InterruptedSweepError: on Ctrl-C; the same call resumes.
        PrivplanError: when a method cannot execute the plan on the validation split.
    """
    if trials < 2:
        raise InputError.one("trials", "must be 2 or more", trials)
    if not 0 < validation_share < 1:
        raise InputError.one("validation_share", "must be in (0, 1)", validation_share)
    require_own(base.folder)
    request = replace(base, validation_share=validation_share, seed=seed)
    identity = {
        "plan": base.plan.digest,
        "data": [base.dataset, base.partition_name, validation_share],
        "given": [base.hyperparameters.aggregation, dict(base.hyperparameters.values)],
        "trials": trials,
        "seed": seed,
    }
    given = base.hyperparameters.values
    spaces = {
        name: SearchSpace(ALGORITHMS.get(name), given, _quantile(name, base)) for name in algorithms
    }
    journal: Journal[float] = Journal(base.folder / TUNING, digest(identity), _check)
    scores: dict[str, list[tuple[Point, float]]] = {name: [] for name in algorithms}
    with resumable(base.folder):
        first = trials - trials // 2
        for half in range(2):
            items: dict[str, _Trial] = {}
            for number, name in enumerate(algorithms):
                source, space = np.random.default_rng([seed, half, number]), spaces[name]
                if half == 0:
                    points = [space.default, *islice(space.draws(source), first - 1)]
                else:
                    points = [*islice(space.near(_best(scores[name])[0], source), trials - first)]
                for index, point in enumerate(points):
                    key = {"algorithm": name, "half": half, "trial": index}
                    one = replace(request, algorithm=name)
                    items[key_of({**key, **point.model_dump(exclude_none=True)})] = _Trial(
                        one, point
                    )
            spread = in_jobs(min(jobs, len(items)))
            done = finish(items, _score, spread=spread, journal=journal, progress=progress)
            for key_text, trial in items.items():
                scores[trial.request.algorithm].append((trial.point, done[key_text]))
    return {name: _tuned(name, spaces[name], scores[name]) for name in algorithms}


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


def _tuned(name: str, space: SearchSpace, scores: list[tuple[Point, float]]) -> Tuned:
    point, score = _best(scores)
    return Tuned(name, point, score, scores[0][1], len(scores), tuple(space.at_edge(point)))


def _best(scores: list[tuple[Point, float]]) -> tuple[Point, float]:
    """The first of the points with the best score."""
    return max(scores, key=lambda pair: pair[1])


def _score(trial: _Trial) -> float:
    """Validation score of a run: what ``accuracy`` of a run is; 0 where it is not finite."""
    torch.set_num_threads(1)
    experiment = prepare(trial.request)
    if experiment.metric is not None:
        rule = "must be left out of a tuned comparison, whose measure is the accuracy"
        raise InputError.one("metric", rule, experiment.metric.name)
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


def _check(point: Any, result: Any) -> None:
    """Check that a line of a journal can be a trial's.

    Raises:
        ValueError: when it cannot.
    """
    fields = {"algorithm", "half", "trial", *Point.model_fields}
    if not isinstance(result, float) or set(point) | {"quantile"} != fields:
        raise ValueError
