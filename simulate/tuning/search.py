"""Search of a recipe on proxy data: successive halving with a surrogate, resumable.

Rungs of growing cohorts: all recipes train with a small share of the plan's cohort, the better
third with a larger one, the best with the whole cohort and several seeds, each for all rounds. A
Gaussian process over the recipes' coordinates, fitted to the first rung, adds recipes to it. The
default recipe takes part in the last rung, so that the result is compared with it. Where shifts of
images are tried, the first rung has the default recipe with each of them, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from privplan.errors import InputError
from privplan.io.resume import Journal, Progress, finish, in_jobs, key_of, resumable
from privplan.plan import Plan
from privplan.planning.recipe import relative_noise
from privplan.planning.solver import solve
from privplan.spec.recipe import TuningEvidence, fields_digest, without_recipe
from privplan.spec.spec import Spec
from privplan.values import digest
from simulate.algorithms.entry import no_server
from simulate.algorithms.registry import ALGORITHMS, as_given
from simulate.tuning.candidates import Candidate, default_candidate, draws, shifts_of
from simulate.tuning.trials import Setting, Trial, accuracy, loaded, smaller

PLANNED = "planned"
"""The algorithm whose plans say that their recipe was tuned."""
JOURNAL = "trials.jsonl"
SHARES = (1 / 8, 1 / 3, 1.0)
"""Shares of the plan's cohort in the rungs."""
KEPT = 3
"""Of so many recipes one goes on to the next rung."""
FINAL_SEEDS = 2
"""Seeds of the last rung."""
FINALISTS = 3
"""Recipes of the last rung, beside the default recipe."""
POOL = 1000
"""Recipes among which the surrogate chooses."""


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
        """Standard deviation over seeds; 0 with one seed."""
        return stdev(self.scores) if len(self.scores) > 1 else 0.0


@dataclass(frozen=True)
class Found:
    """Result of a search: the last rung from the best recipe down, and what it rests on."""

    ranked: tuple[Ranked, ...]
    default: Ranked
    evidence: TuningEvidence
    warnings: tuple[str, ...]

    @property
    def best(self) -> Ranked:
        """The best recipe; the default one unless another is better."""
        return self.ranked[0]


class Search:
    """A search of a recipe for a spec.

    Args:
        setting: the spec, the algorithm and the proxy data.
        trials: recipes of the first rung, at least 4; a quarter of them by the surrogate.
        minutes: the last rungs begin when so many minutes are over; None for no limit.
        shifts: whether random shifts of images are tried, too.
        seed: seed of the recipes that are drawn, and first seed of the runs.
        jobs: processes.
        folder: where the trials are journalled; None when they are not.
    """

    def __init__(
        self,
        setting: Setting,
        trials: int,
        seed: int = 0,
        jobs: int = 1,
        folder: Path | None = None,
        minutes: float | None = None,
        *,
        shifts: bool = False,
    ) -> None:
        self._setting, self._trials, self._seed, self._jobs = setting, trials, seed, jobs
        self._folder, self._minutes = folder, minutes
        self._shifts = shifts_of(loaded(setting)) if shifts else ()
        if shifts and not self._shifts:
            raise InputError.one("shifts", "is only for images", setting.dataset)
        self._plan = solve(Spec.parse(setting.spec), second_opinion=False)
        own_server = no_server in ALGORITHMS.get(setting.algorithm).requires
        if own_server and (fault := no_server(self._plan)):
            rule = f"{fault.rule} for {setting.algorithm}, which has its own"
            raise InputError.one(fault.field.removeprefix("plan."), rule, fault.found)
        self._default = default_candidate(self._before(), own_server=own_server)
        identity = {"setting": setting.model_dump(mode="json", exclude={"data_dir"}), "seed": seed}
        self._journal: Journal[float] | None = None
        if folder is not None:
            self._journal = Journal(folder / JOURNAL, digest(identity), _check)
        self._runs = 0

    def _before(self) -> Plan:
        """The plan whose recipe the search begins with.

        A method that plans for itself trains without the plan's recipe, so it begins there too:
        steps that are meant for clipped updates would let it diverge.
        """
        if ALGORITHMS.get(self._setting.algorithm).plan is as_given:
            return self._plan
        spec = Spec.parse(without_recipe(self._plan.spec.model_dump(mode="json")))
        return solve(spec, second_opinion=False)

    def run(self, progress: Progress = lambda done, total: None) -> Found:
        """The recipes of the last rung.

        Args:
            progress: called with the number of finished and of all trials of each rung.

        Raises:
            InterruptedSweepError: on Ctrl-C; the same call resumes.
            PrivplanError: when the spec does not fit the proxy data.
        """
        if self._journal is not None:
            self._journal.load()  # another search is refused before the lock is created
        with resumable(self._folder):
            return self._search(progress)

    def _search(self, progress: Progress) -> Found:
        source, begin = np.random.default_rng(self._seed), time.monotonic()
        drawn = max(3, self._trials - self._trials // 4)
        endless = draws(self._default, source, self._shifts)
        moved = [self._default.model_copy(update={"shift": shift}) for shift in self._shifts]
        first = dict.fromkeys([self._default, *moved])
        recipes = [*first, *islice(endless, max(1, drawn - len(first)))]
        scores = self._rung(recipes, SHARES[0], 1, progress)
        limit = math.inf if self._minutes is None else 60 * self._minutes
        if time.monotonic() - begin < 0.4 * limit and self._trials >= 8:
            pool = list(islice(endless, POOL))
            added = propose(recipes, [one.mean for one in scores], pool, self._trials // 4)
            scores += self._rung(added, SHARES[0], 1, progress)
        middle = sorted(scores, key=_rank)[: max(FINALISTS, len(scores) // KEPT)]
        if time.monotonic() - begin < 0.7 * limit:
            middle = self._rung([one.recipe for one in middle], SHARES[1], 1, progress)
        best = [one.recipe for one in sorted(middle, key=_rank)[:FINALISTS]]
        last = self._rung([self._default, *best], SHARES[2], FINAL_SEEDS, progress)
        [default] = [one for one in last if one.recipe == self._default]
        ranked = tuple(sorted(last, key=_rank))
        algorithm = self._setting.algorithm
        trained = Spec.parse(ranked[0].recipe.applied(self._setting.spec))
        evidence = TuningEvidence(
            dataset=self._setting.dataset,
            partition=self._setting.partition,
            runs=self._runs,
            seed=self._seed,
            accuracy=ranked[0].mean,
            seeds=FINAL_SEEDS,
            default_accuracy=default.mean,
            rounds=self._plan.spec.rounds,
            noise=relative_noise(self._plan),
            model=trained.model.name,
            recipe=fields_digest(trained.model_dump(mode="json")),
            algorithm=None if algorithm == PLANNED else algorithm,
        )
        return Found(ranked, default, evidence, tuple(self._warnings(ranked, default)))

    def _rung(
        self, recipes: Sequence[Candidate], share: float, seeds: int, progress: Progress
    ) -> list[Ranked]:
        """Scores of recipes at a share of the cohort, each once."""
        recipes = list(dict.fromkeys(recipes))
        if smaller(self._plan, share) == self._plan:
            share = 1.0
        items = {
            key_of(trial.model_dump()): (self._setting, trial)
            for recipe in recipes
            for trial in _trials(recipe, share, self._seed, seeds)
        }
        spread = in_jobs(min(self._jobs, len(items)))
        done = finish(items, accuracy, spread=spread, journal=self._journal, progress=progress)
        self._runs += len(items)
        return [
            Ranked(
                recipe,
                tuple(
                    done[key_of(trial.model_dump())]
                    for trial in _trials(recipe, share, self._seed, seeds)
                ),
            )
            for recipe in recipes
        ]

    def _warnings(self, ranked: Sequence[Ranked], default: Ranked) -> list[str]:
        """What a reader of the result should know."""
        lines, best, first = [], ranked[0], self._default
        error = math.hypot(best.sd, default.sd) / math.sqrt(FINAL_SEEDS)
        if best is default:
            lines.append("no recipe was better than the one before, which is kept")
        else:
            gain = 100 * (best.mean - default.mean)
            if best.mean - default.mean < 2 * error:
                lines.append(
                    f"{gain:+.2f} points over the recipe before are within twice the standard "
                    f"error, {100 * error:.2f}"
                )
            if self._setting.algorithm != PLANNED:
                lines.append(
                    f"the fields are those for {self._setting.algorithm}; while they stand in the "
                    f"spec, {PLANNED} trains with them, too, not with its default recipe"
                )
        for name, factor in (("clipping_norm", 4.0), ("step", 2.5), ("local_rate", 2.0)):
            value, middle = getattr(best.recipe, name), getattr(first, name)
            if abs(math.log(value / middle)) > 0.9 * math.log(factor):
                lines.append(
                    f"{name} {value:g} is at the edge of what was tried, [{middle / factor:.3g}, "
                    f"{middle * factor:.3g}]: the best one may lie beyond"
                )
        return lines


def propose(
    tried: Sequence[Candidate], scores: Sequence[float], pool: Sequence[Candidate], count: int
) -> list[Candidate]:
    """Recipes of a pool by the upper confidence bound of a Gaussian process.

    Args:
        tried: recipes that were tried.
        scores: their accuracies.
        pool: recipes to choose from.
        count: how many.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import Matern, WhiteKernel

    x, y = np.array([one.features() for one in tried]), np.array(scores)
    middle, scale = x.mean(0), x.std(0) + 1e-9
    kernel = Matern(length_scale=2.0, length_scale_bounds="fixed", nu=2.5) + WhiteKernel(
        0.05, noise_level_bounds="fixed"
    )
    process = GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True)
    process.fit((x - middle) / scale, y)
    features = np.array([one.features() for one in pool])
    mean, deviation = process.predict((features - middle) / scale, return_std=True)
    order = np.argsort(-(mean + 0.5 * deviation), kind="stable")
    return [pool[int(at)] for at in order[:count]]


def _trials(recipe: Candidate, share: float, seed: int, seeds: int) -> list[Trial]:
    return [Trial(recipe=recipe, share=share, seed=seed + one) for one in range(seeds)]


def _rank(one: Ranked) -> float:
    """Sort key, the best first."""
    return -one.mean


def _check(point: Any, result: Any) -> None:
    """Check that a line of a journal can be a trial's.

    Raises:
        ValueError: when it cannot.
    """
    if not isinstance(result, float) or not 0 <= result <= 1 or set(point) != {*Trial.model_fields}:
        raise ValueError
