"""Tuning of each method of a comparison by itself, with the same number of runs for all.

Each method has a study of its own (``simulate.runs.study``), whose first trial has its defaults.
Each run trains for all rounds of the plan, under the method's own plan, on a part of
the training records, and is scored on the others (``simulate.data.dataset``); test records are
not used. In a deployment the validation records would have to be public or proxy data: choosing by
private records is a release of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import Field

from privplan.errors import InputError
from privplan.files import write_text
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.processes import Progress
from privplan.spec.spec import Spec
from privplan.spec.training import without_recipe
from privplan.values import Value, digest
from simulate.algorithms.registry import ALGORITHMS, AlgorithmEntry, Hyperparameters
from simulate.engine.loop import evaluate, one_core
from simulate.runs.compare import TUNING, ComparisonRow, compare, require_own
from simulate.runs.request import Request, prepare
from simulate.runs.study import Problem, search, to_the_end

# --- What ``compare --tune`` varies of a method, and the plan with other values of it. -----------

CLIPPING = (0.1, 2.0)  # least and largest clipping norm that is tried, over the plan's
RATE = (
    1 / 3,
    3.0,
)  # least and largest local learning rate that is tried, over the plan's
FACTOR = 4.0  # largest factor between a hyperparameter that is tried and its default


class Point(Value):
    """Values that a method trains with; clipping norm and rate are factors on the plan's."""

    clipping: float = 1.0  # of the first norm where it follows a quantile
    rate: float = 1.0
    values: dict[str, float] = Field(
        default_factory=dict
    )  # the method's own hyperparameters


class SearchSpace:
    """The values of a method that are tuned, each on a logarithmic scale.

    Hyperparameters that the user gave stay; a method without privacy has no norm to tune.
    """

    def __init__(self, entry: AlgorithmEntry, given: Mapping[str, float]) -> None:
        clips = entry.unit != "none" and entry.released != "nothing"
        known = (
            {"clipping": (1.0, *CLIPPING)} if clips else {}
        )  # default, least and largest value
        known["rate"] = (1.0, *RATE)
        for name, one in entry.hyperparameters.items():
            if not one.integer and name not in given and one.default > 0:
                low, high = (
                    max(one.low, one.default / FACTOR),
                    min(one.high, one.default * FACTOR),
                )
                known[name] = (one.default, low, high)
        self.ranges = {name: (low, high) for name, (_, low, high) in known.items()}
        self.default = {name: middle for name, (middle, _, _) in known.items()}
        defaults = {name: one.default for name, one in entry.hyperparameters.items()}
        self._own = {**defaults, **given}

    def point(self, found: Mapping[str, Any]) -> Point:
        """The values of a trial, with those that are not varied."""
        return Point(
            clipping=found.get("clipping", 1.0),
            rate=found.get("rate", 1.0),
            values={name: found.get(name, value) for name, value in self._own.items()},
        )


def retuned(plan: Plan, point: Point) -> Plan:
    """The plan with another clipping norm and local learning rate; same guarantees.

    Noise multipliers are in units of the clipping norm, so no guarantee depends on either.
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
    update = {
        "spec": changed,
        "groups": groups,
        "mean_noise_std": plan.mean_noise_std * factor,
    }
    return plan.model_copy(update=update)


# --- Tuning of each method of a comparison by itself, with the same number of runs for all. ------

ACCOUNTANT = "pld"
"""Accountant of a tuned comparison: the guarantee's, with which every method can use its budgets
up, so that no lead is an accountant's."""
VALIDATION_SHARE = 0.2  # share of the training records that is held out for validation
VALIDATION_CLIENTS = (
    100  # most clients whose personal models are scored on validation records
)


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
    data["planning"] = {
        **data["planning"],
        "accountant": ACCOUNTANT,
        "calibration": "exact",
    }
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
    spaces, requests = (
        {},
        {name: replace(request, algorithm=name) for name in algorithms},
    )
    for name, one in requests.items():
        if (metric := prepare(one).metric) is not None:
            rule = (
                "must be left out of a tuned comparison, whose measure is the accuracy"
            )
            raise InputError.one("metric", rule, metric.name)
        spaces[name] = SearchSpace(ALGORITHMS.get(name), given.values)

    def trial(name: str, key: str, params: dict[str, Any]) -> tuple[Request, Point]:
        return requests[name], spaces[name].point(params)

    tried = search(
        base.folder / TUNING,
        {name: Problem(space.ranges, space.default) for name, space in spaces.items()}, trial,
        _score, identity=digest(identity), seed=seed, trials=trials, jobs=jobs, progress=progress,
    )  # fmt: skip
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
    if not ALGORITHMS.get(found.algorithm).executes(plan):
        # a method that plans for itself starts from the values before the plan's recipe
        spec = Spec.parse(without_recipe(plan.spec.model_dump(mode="json")))
        plan = plan.model_copy(update={"spec": spec})
    plan = retuned(plan, found.point)
    return replace(
        base, algorithm=found.algorithm, plan=plan, hyperparameters=chosen, tuned=True
    )


# --- A comparison in which each method trains with values that were tuned for it. ----------------

CHOSEN = "tuned.json"  # what each method trains with, by name


def tuned_comparison(
    base: Request,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    trials: int,
    jobs: int,
    progress: Progress,
    finished: Callable[[ComparisonRow], None] = lambda row: None,
) -> tuple[list[ComparisonRow], dict[str, dict[str, Any]]]:
    """Tune each method and train all with their own values: the rows, and the values by name."""
    found = tune(base, algorithms, trials=trials, jobs=jobs, progress=progress)
    requests = {name: tuned_request(base, one) for name, one in found.items()}
    chosen = {}
    for name, one in found.items():
        spec, point = requests[name].plan.spec, one.point
        chosen[name] = {
            "C": spec.clipping_norm,
            "rate": spec.local.learning_rate,
            **point.values,
            "runs": one.runs,
            "validation": one.score,
            "validation_default": one.default_score,
        }
    rows = compare(base, algorithms, seeds, jobs, progress, requests, finished)
    write_text(base.folder / CHOSEN, json.dumps(chosen, indent=1) + "\n")
    return rows, chosen
