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
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from privplan.errors import InputError
from privplan.processes import Progress, ignore_sigint, in_jobs, keyed, resumable
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress as State
from simulate.engine.loop import initial_state, one_core, run_round
from simulate.runs.ledger_writer import MemoryLedger

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

Item = TypeVar("Item")
Space = Mapping[str, "tuple[float, float] | list[Any]"]
"""What is varied, by name: the ends of a range on a logarithmic scale, or choices."""
BATCH = 4  # trials that are proposed together, from the same finished ones
KEPT = 3  # of so many trials one goes on to the next rung


@dataclass(frozen=True)
class Problem:
    """What one study varies."""

    space: Space
    first: dict[str, Any]  # the first trial, which is never pruned
    rungs: Sequence[Sequence[str]] = (
        ("score",),
    )  # keys of the runs; the last rung's mean counts
    startup: int = (
        BATCH  # trials that are drawn at random before the estimator proposes any
    )


@dataclass(frozen=True)
class Tried:
    """A trial: its values, the scores of its last rung (None where it was pruned), its runs."""

    params: dict[str, Any]
    scores: tuple[float, ...] | None
    runs: int


def search(
    file: Path,
    problems: Mapping[str, Problem],
    item: Callable[[str, str, dict[str, Any]], Item],
    work: Callable[[Item], float],
    *,
    identity: str,
    seed: int,
    trials: int,
    jobs: int,
    progress: Progress = lambda done, total: None,
) -> dict[str, list[Tried]]:
    """The finished trials of each study in a file, by name.

    ``item`` makes what is worked on from a study's name, a run's key and a trial's values;
    ``work`` returns the score of a run, and processes import it. ``identity`` is the digest of
    all that scores depend on: a file of another one is refused. Stored runs are not repeated.
    """
    with resumable(file.parent), _opened(file) as storage:
        studies = {
            k: _Study(storage, k, identity, one, seed) for k, one in problems.items()
        }
        while True:
            for study in studies.values():
                with ignore_sigint():  # what a score decides is stored in several steps
                    study.judge()
                study.propose(trials)
            done = {name: study.finished() for name, study in studies.items()}
            progress(sum(map(len, done.values())), trials * len(studies))
            tasks = [
                (work, (name, number, key), item(name, key, params))
                for name, study in studies.items()
                for number, key, params in study.missing()
            ]
            if not tasks:
                return done
            for (name, number, key), score in in_jobs(min(jobs, len(tasks)))(
                keyed, tasks
            ):
                studies[name].store(number, key, score)


def to_the_end(experiment: Experiment) -> State:
    """The state of a run after its last round; nothing is evaluated or written."""
    now, ledger = initial_state(experiment), MemoryLedger("")
    with one_core():
        while now.round < experiment.rounds:
            now = run_round(experiment, now, ledger)
    return now


def _optuna() -> ModuleType:
    """The library, which reports warnings only."""
    try:
        import optuna
    except ImportError:
        rule = "needs the library Optuna: pip install 'privplan[simulate]'"
        raise InputError.one("tune", rule, "no module named optuna") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@contextmanager
def _opened(path: Path) -> Iterator[BaseStorage]:
    """The storage in a file, which is created where it is missing."""
    optuna = _optuna()
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


class _Study:
    """One study in the storage."""

    def __init__(
        self,
        storage: BaseStorage,
        name: str,
        identity: str,
        problem: Problem,
        seed: int,
    ) -> None:
        self._optuna, self._problem, self._seed = _optuna(), problem, seed
        known = self._optuna.distributions
        self._space: dict[str, BaseDistribution] = {
            key: known.CategoricalDistribution(one)
            if isinstance(one, list)
            else known.FloatDistribution(*one, log=True)
            for key, one in problem.space.items()
        }
        self._study = self._optuna.create_study(
            storage=storage, study_name=name, direction="maximize", load_if_exists=True,
            pruner=self._optuna.pruners.SuccessiveHalvingPruner(1, KEPT),
        )  # fmt: skip
        if self._study.user_attrs.setdefault("identity", identity) != identity:
            rule = (
                "must not hold results of other settings; delete it or choose another"
            )
            raise InputError.one("output", rule, f"study {name}")
        self._study.set_user_attr("identity", identity)

    def propose(self, most: int) -> None:
        """Add the trials that are missing in the current batch, of at most so many in all."""
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

    def _proposal(self, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Values of a trial and the sampler's notes, from a copy of the study in memory."""
        if number == 0:
            return self._problem.first, {}
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        startup = self._problem.startup
        sampler = self._optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup)
        copy = self._optuna.create_study(direction="maximize", sampler=sampler)
        trials = self._study.get_trials(deepcopy=False)
        copy.add_trials([one for one in trials if one.state.is_finished()])
        params = dict(copy.ask(self._space).params)
        for key, one in self._space.items():
            if isinstance(one, self._optuna.distributions.FloatDistribution):
                params[key] = min(max(float(f"{params[key]:.3g}"), one.low), one.high)
        return params, copy.trials[-1].system_attrs

    def missing(self) -> list[tuple[int, str, dict[str, Any]]]:
        """The runs that the open trials need next: number of the trial, key of the run, values."""
        rung, trials = self._open()
        return [
            (one.number, key, one.params)
            for one in trials
            for key in self._problem.rungs[rung]
            if key not in one.user_attrs
        ]

    def store(self, number: int, key: str, score: float) -> None:
        """Store the score of a run."""
        self._trial(self._study.get_trials(deepcopy=False)[number]).set_user_attr(
            key, score
        )

    def judge(self) -> None:
        """Prune, promote or finish the open trials of a rung, in order, once all are scored."""
        rungs = self._problem.rungs
        while (found := self._open())[1] and not self.missing():
            rung, trials = found
            for one in trials:
                score = fmean(one.user_attrs[key] for key in rungs[rung])
                if rung == len(rungs) - 1:
                    self._study.tell(one.number, score)
                    continue
                trial = self._trial(one)
                trial.report(score, KEPT**rung)
                if trial.should_prune() and one.number > 0:
                    self._study.tell(
                        one.number, state=self._optuna.trial.TrialState.PRUNED
                    )

    def finished(self) -> list[Tried]:
        """The trials that are finished, in the order of their numbers."""
        found = []
        for one in self._study.get_trials(deepcopy=False):
            if one.state.is_finished():
                whole = one.state == self._optuna.trial.TrialState.COMPLETE
                scores = tuple(
                    one.user_attrs[key] for key in self._problem.rungs[-1] if whole
                )
                found.append(
                    Tried(dict(one.params), scores or None, len(one.user_attrs))
                )
        return found

    def _open(self) -> tuple[int, list[FrozenTrial]]:
        """The lowest rung of the trials that are not finished, and the trials in it."""
        trials = self._study.get_trials(deepcopy=False)
        rungs = [(len(one.intermediate_values), one) for one in trials
                 if not one.state.is_finished()]  # fmt: skip
        lowest = min((rung for rung, _ in rungs), default=0)
        return lowest, [one for rung, one in rungs if rung == lowest]

    def _trial(self, one: FrozenTrial) -> Any:
        return self._optuna.trial.Trial(self._study, one._trial_id)
