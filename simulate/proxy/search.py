"""The search of a recipe on public or proxy data, by successive halving.

A recipe trains with a small share of the plan's cohort, and if it is among the better
third so far with a larger one, then with the whole cohort and several seeds. The recipe
before is the first trial and passes all rungs, so that the result is compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.planning.recipe import relative_noise
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.spec.training import fields_digest, without_recipe
from privplan.sweeps import Progress
from privplan.values import Fraction, Value, digest
from simulate.algorithms.registry import ALGORITHMS, no_server
from simulate.proxy.candidate import Candidate, default_candidate, space
from simulate.proxy.training import Setting, loaded, smaller, trained
from simulate.runs.study import Problem, Tried, search

PLANNED = "planned"  # the algorithm whose plans say that their recipe was tuned
STORAGE = "study.db"
# Shares of the plan's cohort in the rungs: each about three times as much work, as one
# of three trials goes on.
SHARES = (1 / 8, 1 / 3, 1.0)
FINAL_SEEDS = 2  # seeds of the last rung: the fewest that show how much they scatter
STARTUP = 8  # recipes that are drawn at random before the estimator proposes any
# A lead within about a 95% interval is reported as doubtful.
_STANDARD_ERRORS = 2


class Trial(Value):
    """One run of a recipe.

    Attributes:
        recipe: that is trained.
        share: of the plan's cohort.
        seed: of partition, cohorts, mini-batches and noise.
    """

    recipe: Candidate
    share: Fraction
    seed: int


def accuracy(task: tuple[Setting, Trial]) -> float:
    """The test accuracy of a trial on the proxy data, in [0, 1]."""
    setting, trial = task
    plan = solve(Spec.parse(trial.recipe.applied(setting.spec)), second_opinion=False)
    _, measures = trained(setting, plan, trial.share, trial.seed)
    return measures.accuracy


class Evidence(Value):
    """Runs that a tuned recipe rests on, written beside the spec.

    Attributes:
        dataset: its name.
        partition: of its records over clients.
        algorithm: that was trained.
        runs: how many there were.
        seed: of the first run.
        accuracy: of the recipe, mean over the seeds, in [0, 1].
        seeds: of the last rung.
        default_accuracy: of the recipe before.
        rounds: of the plan.
        noise: norm of the noise of the mean update over the clipping norm.
        model: its name.
        recipe: its ``fields_digest``.
        trials: of the last rung, best first.
    """

    dataset: str
    partition: str
    algorithm: str
    runs: int
    seed: int
    accuracy: float
    seeds: int
    default_accuracy: float
    rounds: int
    noise: float
    model: str
    recipe: str
    trials: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Ranked:
    """A recipe of the last rung with its accuracies, one per seed, in [0, 1]."""

    recipe: Candidate
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean accuracy."""
        return fmean(self.scores)

    @property
    def sd(self) -> float:
        """Standard deviation over seeds."""
        return stdev(self.scores)


@dataclass(frozen=True)
class SearchResult:
    """The last rung from the best recipe down, and what it rests on."""

    ranked: tuple[Ranked, ...]
    default: Ranked
    evidence: Evidence
    warnings: tuple[str, ...]

    @property
    def best(self) -> Ranked:
        """The best recipe; the default one unless another is better."""
        return self.ranked[0]


def search_recipe(
    setting: Setting,
    trials: int,
    folder: Path,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress = lambda done, total: None,
) -> SearchResult:
    """The best of so many recipes; the trials are stored in the folder.

    Args:
        setting: data, spec and algorithm.
        trials: how many recipes are tried; the first is the default one.
        folder: holds the trials, and resumes a search of the same setting and seed.
        seed: of the proposals, and of the first run of a recipe.
        jobs: processes.
        progress: told of finished trials.

    Raises:
        InputError: for a recipe that cannot be tuned, missing data, or a folder of
            another search.
    """
    plan = solve(Spec.parse(setting.spec), second_opinion=False)
    default = _recipe_before(setting.algorithm, plan)
    loaded(setting)  # missing data are refused before anything is written
    rungs, runs = _rungs(plan, seed)

    def recipe(params: dict[str, Any]) -> Candidate:
        return Candidate(**{**default.model_dump(), **params})

    def task(name: str, key: str, params: dict[str, Any]) -> tuple[Setting, Trial]:
        share, run_seed = runs[key]
        return setting, Trial(recipe=recipe(params), share=share, seed=run_seed)

    varied = space(default)
    first_trial = {name: getattr(default, name) for name in varied}
    plain = setting.model_dump(mode="json", exclude={"data_dir"})
    identity = {"setting": plain, "seed": seed, "shifts": [], "sampler": "tpe"}
    tried = search(
        folder / STORAGE,
        {"recipe": Problem(varied, first_trial, rungs, STARTUP)},
        task,
        accuracy,
        identity=digest(identity),
        seed=seed,
        trials=trials,
        jobs=jobs,
        progress=progress,
    )["recipe"]
    last_rung = [
        Ranked(recipe(trial.params), trial.scores)
        for trial in tried
        if trial.scores is not None
    ]
    return _result(setting, plan, seed, tried, last_rung)


def _recipe_before(name: str, plan: Plan) -> Candidate:
    """The recipe of a plan with which an algorithm would train."""
    entry = ALGORITHMS.get(name)
    has_server = no_server in entry.requires
    fault = no_server(plan) if has_server else None
    if fault:
        rule = f"{fault.rule} for {name}, which has its own"
        raise InputError.one(fault.field.removeprefix("plan."), rule, fault.found)
    if not entry.executes(plan):
        # A method that plans for itself trains without the plan's recipe, so the search
        # begins there too: steps that are meant for clipped updates would let it
        # diverge.
        plain = without_recipe(plan.spec.model_dump(mode="json"))
        plan = solve(Spec.parse(plain), second_opinion=False)
    return default_candidate(plan, own_server=has_server)


def _rungs(
    plan: Plan, seed: int
) -> tuple[list[list[str]], dict[str, tuple[float, int]]]:
    """The keys of each rung's runs; share of the cohort and seed of each, by key."""
    rungs = []
    runs = {}
    for share in SHARES:
        seeds = FINAL_SEEDS if share == 1 else 1
        # Under a law that takes no smaller cohort, all rungs train with the whole one.
        if smaller(plan, share) == plan:
            share = 1.0
        rung = []
        for run_seed in range(seed, seed + seeds):
            key = f"{share:.4g}, seed {run_seed}"
            runs[key] = (share, run_seed)
            rung.append(key)
        rungs.append(rung)
    return rungs, runs


def _result(
    setting: Setting,
    plan: Plan,
    seed: int,
    tried: Sequence[Tried],
    last_rung: Sequence[Ranked],
) -> SearchResult:
    """The result of a search, whose first trial has the default recipe."""
    default = last_rung[0]
    ranked = tuple(sorted(last_rung, key=lambda candidate: -candidate.mean))
    best = ranked[0]
    tuned = Spec.parse(best.recipe.applied(setting.spec))
    evidence = Evidence(
        dataset=setting.dataset,
        partition=setting.partition,
        algorithm=setting.algorithm,
        runs=sum(trial.runs for trial in tried),
        seed=seed,
        accuracy=best.mean,
        seeds=FINAL_SEEDS,
        default_accuracy=default.mean,
        rounds=plan.spec.rounds,
        noise=relative_noise(plan),
        model=tuned.model.name,
        recipe=fields_digest(tuned.model_dump(mode="json")),
        trials=tuple(
            {**candidate.recipe.numbers(), "scores": candidate.scores}
            for candidate in ranked
        ),
    )
    warnings = tuple(_warnings(setting.algorithm, best, default))
    return SearchResult(ranked, default, evidence, warnings)


def _warnings(name: str, best: Ranked, default: Ranked) -> Iterator[str]:
    """What a reader of the result should know."""
    if best is default:
        yield "no recipe was better than the one before, which is kept"
        return
    gain = best.mean - default.mean
    # Standard error of a difference of two means over the seeds.
    error = math.hypot(best.sd, default.sd) / math.sqrt(FINAL_SEEDS)
    if gain < _STANDARD_ERRORS * error:
        yield (
            f"{100 * gain:+.2f} points over the recipe before are within twice the "
            f"standard error, {100 * error:.2f}"
        )
    if name != PLANNED:
        yield (
            f"the fields are those for {name}; while they stand in the spec, {PLANNED} "
            "trains with them, too, not with its default recipe"
        )
