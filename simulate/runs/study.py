"""Searches of hyperparameters by Optuna, in a SQLite file, with the same result after Ctrl-C.

Trials are proposed in batches, each from the finished batches before it, by a sampler whose seed
follows from the number of the trial. So what is tried depends neither on the number of processes
nor on interruptions. A trial consists of rungs of runs, and successive halving prunes it between
them. The score of each run is stored as soon as it is known, so that no run is repeated.

``optuna-dashboard sqlite:///FILE`` shows a study while it goes on and afterwards.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import fmean
from time import monotonic
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from privplan.errors import InputError
from privplan.processes import ignore_sigint
from privplan.sweeps import Progress, in_jobs

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

Item = TypeVar("Item")
Space = Mapping[str, "tuple[float, float] | list[Any]"]
"""What is varied, by name: the ends of a range on a logarithmic scale, or choices."""
BATCH = 4
"""Trials that are proposed together, from the same finished ones."""
KEPT = 3
"""Of so many trials one goes on to the next rung."""
SAMPLERS = ("tpe", "grid")
"""Tree-structured Parzen estimator, or all combinations of choices in random order."""


def optuna_library() -> ModuleType:
    """Returns the library Optuna, which reports warnings only."""
    try:
        import optuna
    except ImportError:
        rule = "needs the library Optuna: pip install 'privplan[simulate]'"
        raise InputError.one("tune", rule, "no module named optuna") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@contextmanager
def opened(path: Path | None) -> Iterator[BaseStorage]:
    """The storage in a file, which is created where it is missing; in memory without a file."""
    optuna = optuna_library()
    if path is None:
        yield optuna.storages.InMemoryStorage()
        return
    try:
        with warnings.catch_warnings(action="ignore"):
            storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    except Exception as error:  # a damaged file can fail in any way
        rule = f"must be the storage of a search ({' '.join(str(error).split())[:80]})"
        raise InputError.one("output", rule, str(path)) from None
    try:
        yield storage
    finally:
        storage.engine.dispose()


@dataclass(frozen=True)
class Tried:
    """The values of a trial, and the scores of its last rung; None where it was pruned."""

    params: dict[str, Any]
    scores: tuple[float, ...] | None


class Study:
    """One search.

    Args:
        storage: where it is stored.
        name: name in the storage.
        identity: digest of everything that the scores depend on.
        space: what is varied.
        first: trials before anything is proposed; the first one is never pruned.
        rungs: keys of the runs of each rung; a trial's score is the mean of the last rung's.
        seed: seed of the proposals.
        startup: trials before the estimator proposes; those before are drawn at random.
        sampler: one of SAMPLERS; a grid has the ends and the first trial's value of a range.

    Raises:
        InputError: when the storage holds a study with another identity.
    """

    def __init__(
        self,
        storage: BaseStorage,
        name: str,
        identity: str,
        space: Space,
        first: Sequence[dict[str, Any]],
        rungs: Sequence[Sequence[str]] = (("score",),),
        *,
        seed: int = 0,
        startup: int = BATCH,
        sampler: str = "tpe",
    ) -> None:
        self._optuna, self._first, self._rungs = optuna_library(), list(first), rungs
        self._seed, self._startup = seed, startup
        self._grid: dict[str, list[Any]] | None = None
        if sampler == "grid":
            middle = first[0]
            self._grid = {
                key: list(dict.fromkeys((one[0], middle[key], one[1])))
                if isinstance(one, tuple)
                else one
                for key, one in space.items()
            }
            space = self._grid
        self._space = {key: self._distribution(one) for key, one in space.items()}
        halving = self._optuna.pruners.SuccessiveHalvingPruner(1, KEPT)
        pruner = halving if len(rungs) > 1 else self._optuna.pruners.NopPruner()
        self._study = self._optuna.create_study(
            storage=storage, study_name=name, direction="maximize", load_if_exists=True,
            pruner=pruner, sampler=self._optuna.samplers.RandomSampler(seed),
        )  # fmt: skip
        known = self._study.user_attrs.get("identity")
        if known is None:
            self._study.set_user_attr("identity", identity)
        elif known != identity:
            rule = "must not hold results of other settings; delete it or choose another"
            raise InputError.one("output", rule, f"study {name}")

    def propose(self, most: int) -> None:
        """Add the trials that are missing in the current batch, of at most so many in all."""
        if self._grid is not None:
            most = min(most, prod(map(len, self._grid.values())) + len(self._first))
        trials = self._study.get_trials(deepcopy=False)
        open_ = (one.number for one in trials if not one.state.is_finished())
        end = min(most, (min(open_, default=len(trials)) // BATCH + 1) * BATCH)
        for number in range(len(trials), end):
            params, notes = self._proposal(number)
            added = self._optuna.trial.create_trial(
                state=self._optuna.trial.TrialState.RUNNING, params=params,
                distributions=self._space, system_attrs=notes,
            )  # fmt: skip
            self._study.add_trial(added)

    def missing(self) -> list[tuple[int, str, dict[str, Any]]]:
        """The runs that the open trials need next: number of the trial, key of the run, values."""
        rung, trials = self._open()
        return [
            (one.number, key, one.params)
            for one in trials
            for key in self._rungs[rung]
            if key not in one.user_attrs
        ]

    def store(self, number: int, key: str, score: float) -> None:
        """Store the score of a run."""
        trial = self._study.get_trials(deepcopy=False)[number]
        self._trial(trial).set_user_attr(key, score)

    def judge(self) -> None:
        """Prune, promote or finish the open trials of a rung, in order, once all are scored."""
        while (found := self._open())[1] and not self.missing():
            rung, trials = found
            for one in trials:
                score = fmean(one.user_attrs[key] for key in self._rungs[rung])
                if rung == len(self._rungs) - 1:
                    self._study.tell(one.number, score)
                    continue
                trial = self._trial(one)
                trial.report(score, KEPT**rung)
                if trial.should_prune() and one.number > 0:
                    self._study.tell(one.number, state=self._optuna.trial.TrialState.PRUNED)

    def finished(self) -> list[Tried]:
        """The trials that are finished, in the order of their numbers."""
        state, found = self._optuna.trial.TrialState, []
        for one in self._study.get_trials(deepcopy=False):
            if one.state == state.COMPLETE:
                scores = tuple(one.user_attrs[key] for key in self._rungs[-1])
                found.append(Tried(dict(one.params), scores))
            elif one.state == state.PRUNED:
                found.append(Tried(dict(one.params), None))
        return found

    @property
    def runs(self) -> int:
        """Number of runs whose score is stored."""
        return sum(len(one.user_attrs) for one in self._study.get_trials(deepcopy=False))

    def _open(self) -> tuple[int, list[FrozenTrial]]:
        """The lowest rung of the trials that are not finished, and the trials in it."""
        trials = self._study.get_trials(deepcopy=False)
        rungs = [(len(one.intermediate_values), one) for one in trials
                 if not one.state.is_finished()]  # fmt: skip
        lowest = min((rung for rung, _ in rungs), default=0)
        return lowest, [one for rung, one in rungs if rung == lowest]

    def _trial(self, one: FrozenTrial) -> Any:
        return self._optuna.trial.Trial(self._study, one._trial_id)

    def _proposal(self, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Values of a trial, and the sampler's notes on it.

        They come from a copy of the study in memory, so that the file holds whole trials only.
        """
        if number < len(self._first):
            return self._first[number], {}
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        trials = self._study.get_trials(deepcopy=False)
        if self._grid is None:
            sampler = self._optuna.samplers.TPESampler(seed=seed, n_startup_trials=self._startup)
            trials = [one for one in trials if one.state.is_finished()]
        else:
            sampler = self._optuna.samplers.GridSampler(self._grid, seed)
        copy = self._optuna.create_study(direction="maximize", sampler=sampler)
        copy.add_trials(trials)
        params = dict(copy.ask(self._space).params)
        for key, one in self._space.items():
            if isinstance(one, self._optuna.distributions.FloatDistribution):
                params[key] = min(max(float(f"{params[key]:.3g}"), one.low), one.high)
        return params, copy.trials[-1].system_attrs

    def _distribution(self, one: tuple[float, float] | list[Any]) -> BaseDistribution:
        known = self._optuna.distributions
        if isinstance(one, list):
            found: BaseDistribution = known.CategoricalDistribution(one)
            return found
        return known.FloatDistribution(*one, log=True)  # type: ignore[no-any-return]


def search(
    studies: Mapping[str, Study],
    item: Callable[[str, str, dict[str, Any]], Item],
    work: Callable[[Item], float],
    *,
    trials: int,
    jobs: int,
    progress: Progress = lambda done, total: None,
    seconds: float | None = None,
) -> None:
    """Finish the trials of several studies, batch by batch; stored runs are not repeated."""
    begin, total = monotonic(), trials * len(studies)

    while True:
        for study in studies.values():
            with ignore_sigint():  # what a score decides is stored in several steps
                study.judge()
            if seconds is None or not study.finished() or monotonic() - begin < seconds:
                study.propose(trials)
        progress(sum(len(study.finished()) for study in studies.values()), total)
        tasks = [
            ((name, number, key), work, item(name, key, params))
            for name, study in studies.items()
            for number, key, params in study.missing()
        ]
        if not tasks:
            return
        for (name, number, key), score in in_jobs(min(jobs, len(tasks)))(_keyed, tasks):
            studies[name].store(number, key, score)


def _keyed(task: tuple[tuple[str, int, str], Callable[[Item], float], Item]) -> tuple[Any, float]:
    key, work, item = task
    return key, work(item)
