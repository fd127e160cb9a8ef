"""Tuning of each method of a comparison by itself, with as many runs for each.

Each method has a study of its own (``simulate.runs.study``), whose first trial has its
defaults. Each run trains for all rounds of the plan, under the method's own plan, on a
part of the training records, and is scored on the others (``simulate.data.dataset``);
test records are not used. In a deployment the validation records would have to be
public or proxy data: choosing by private records is a release of its own.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from privplan.errors import InputError
from privplan.files import write_text
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.spec.training import without_recipe
from privplan.sweeps import Progress
from privplan.values import digest
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters
from simulate.engine.loop import evaluate
from simulate.parallel import device_of_job, one_core
from simulate.runs.compare import TUNING, compare, require_comparison_folder
from simulate.runs.request import Request, prepare
from simulate.runs.rows import ComparisonRow
from simulate.runs.study import Problem, Tried, search, to_the_end
from simulate.runs.tuning_space import Point, SearchSpace, retuned

ACCOUNTANT = "pld"
"""Accountant of a tuned comparison: the guarantee's, with which every method can use
its budgets up, so that no lead is an accountant's."""
VALIDATION_SHARE = 0.2  # share of the training records that is held out for validation
# Most clients whose personal models are scored on validation records, as in training.
VALIDATION_CLIENTS = 100
CHOSEN = "tuned.json"  # what each method trains with, by name
SEED = 0  # of the search and of its runs, the same for all methods


@dataclass(frozen=True)
class Tuned:
    """A method with the values that have the best validation score.

    Attributes:
        algorithm: name of the method.
        point: its values.
        score: the validation score of the values, in [0, 1].
        default_score: that of the method's defaults.
        runs: how many runs were scored.
    """

    algorithm: str
    point: Point
    score: float
    default_score: float
    runs: int


def same_accountant(plan: Plan) -> Plan:
    """The plan solved with the accountant with which all tuned methods calibrate."""
    planning = plan.spec.planning
    if planning.accountant == ACCOUNTANT and planning.calibration == "exact":
        return plan
    data = plan.spec.model_dump(mode="json")
    calibration = {"accountant": ACCOUNTANT, "calibration": "exact"}
    data["planning"] = {**data["planning"], **calibration}
    return solve(Spec.parse(data), second_opinion=False)


def tune(
    base: Request,
    algorithms: Sequence[str],
    *,
    trials: int,
    jobs: int = 1,
    progress: Progress = lambda done, total: None,
) -> dict[str, Tuned]:
    """The best values of each method, by name.

    Args:
        base: the request of the comparison, whose folder holds the studies.
        algorithms: names of the methods.
        trials: of each method, 2 or more; the first has its defaults.
        jobs: processes.
        progress: told of finished trials.

    Raises:
        InputError: for too few trials, a folder of something else, a fault in a request
            or a metric of its own.
    """
    if trials < 2:
        raise InputError.one("trials", "must be 2 or more", trials)
    require_comparison_folder(base.folder)
    request = replace(base, validation_share=VALIDATION_SHARE, seed=SEED)
    fixed = base.hyperparameters
    identity = {
        "plan": base.plan.digest,
        "data": [base.dataset, base.partition_name, VALIDATION_SHARE],
        "given": [fixed.aggregation, dict(fixed.values)],
        "seed": SEED,
    }
    requests = {name: replace(request, algorithm=name) for name in algorithms}
    spaces = {}
    for name, of_method in requests.items():
        metric = prepare(of_method).metric
        if metric is not None:
            rule = (
                "must be left out of a tuned comparison, whose measure is the accuracy"
            )
            raise InputError.one("metric", rule, metric.name)
        spaces[name] = SearchSpace(ALGORITHMS.get(name), fixed.values)

    job = itertools.count()

    def trial(name: str, key: str, params: dict[str, Any]) -> tuple[Request, Point]:
        request = requests[name]
        if jobs > 1:
            request = replace(request, device=device_of_job(request.device, next(job)))
        return request, spaces[name].point(params)

    tried_by_name = search(
        base.folder / TUNING,
        {name: Problem(space.ranges, space.default) for name, space in spaces.items()},
        trial,
        _score,
        identity=digest(identity),
        seed=SEED,
        trials=trials,
        jobs=jobs,
        progress=progress,
    )
    return {name: _best(name, spaces[name], tried_by_name[name]) for name in algorithms}


def _best(name: str, space: SearchSpace, trials: Sequence[Tried]) -> Tuned:
    """The first of the trials with the highest score."""
    scores = [trial.scores[0] for trial in trials if trial.scores is not None]
    highest = max(scores)
    point = space.point(trials[scores.index(highest)].params)
    return Tuned(name, point, highest, scores[0], len(scores))


def _score(trial: tuple[Request, Point]) -> float:
    """Validation score of a run, as its ``accuracy`` is; 0 where it is not finite."""
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
    if math.isfinite(score):
        return score
    return 0.0


def tuned_request(base: Request, tuned: Tuned) -> Request:
    """The request of a method with the values that were tuned for it."""
    chosen = Hyperparameters(base.hyperparameters.aggregation, tuned.point.values)
    plan = base.plan
    if not ALGORITHMS.get(tuned.algorithm).executes(plan):
        # A method that plans for itself starts from the values before the plan's
        # recipe.
        spec = Spec.parse(without_recipe(plan.spec.model_dump(mode="json")))
        plan = plan.model_copy(update={"spec": spec})
    return replace(
        base,
        algorithm=tuned.algorithm,
        plan=retuned(plan, tuned.point),
        hyperparameters=chosen,
        tuned=True,
    )


def tuned_comparison(
    base: Request,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    trials: int,
    jobs: int,
    progress: Progress,
    finished: Callable[[ComparisonRow], None] = lambda row: None,
) -> tuple[list[ComparisonRow], dict[str, dict[str, Any]]]:
    """Tune each method and train all with their values: rows, and values by name."""
    tuned_by_name = tune(base, algorithms, trials=trials, jobs=jobs, progress=progress)
    requests = {
        name: tuned_request(base, tuned) for name, tuned in tuned_by_name.items()
    }
    chosen = {}
    for name, tuned in tuned_by_name.items():
        spec = requests[name].plan.spec
        chosen[name] = {
            "C": spec.clipping_norm,
            "rate": spec.local.learning_rate,
            **tuned.point.values,
            "runs": tuned.runs,
            "validation": tuned.score,
            "validation_default": tuned.default_score,
        }
    rows = compare(base, algorithms, seeds, jobs, progress, requests, finished)
    write_text(base.folder / CHOSEN, json.dumps(chosen, indent=1) + "\n")
    return rows, chosen
