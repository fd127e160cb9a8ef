"""Searches of hyperparameters by Optuna in a SQLite file, the same after Ctrl-C.

Trials are proposed in batches, each from the finished batches before it, by a sampler
whose seed follows from the number of the trial. So what is tried depends neither on the
number of processes nor on interruptions. A trial consists of rungs of runs, and
successive halving prunes it between them. The score of each run is stored as soon as it
is known, so that no run is repeated.

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
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from privplan.errors import InputError
from privplan.processes import ignore_sigint, in_jobs
from privplan.sweeps import Progress, keyed, resumable
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress as State
from simulate.engine.loop import initial_state, run_round
from simulate.parallel import one_core
from simulate.runs.ledger_writer import MemoryLedger

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

Item = TypeVar("Item")
Space = Mapping[str, "tuple[float, float] | list[Any]"]
"""What is varied, by name: the ends of a range on a logarithmic scale, or choices."""
BATCH = 4  # trials that are proposed together, from the same finished ones
REDUCTION = 3  # of so many trials one goes on to the next rung


@dataclass(frozen=True)
class Problem:
    """What one study varies.

    Attributes:
        space: the values, by name.
        first: values of the first trial, which is never pruned.
        rungs: keys of the runs of each rung; the mean score of the last rung counts.
        startup: trials that are drawn at random before the estimator proposes any.
    """

    space: Space
    first: dict[str, Any]
    rungs: Sequence[Sequence[str]] = (("score",),)
    startup: int = BATCH


@dataclass(frozen=True)
class Tried:
    """A finished trial.

    Attributes:
        params: its values, by name.
        scores: of the runs of its last rung; None where it was pruned.
        runs: how many runs it had.
    """

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
    """The finished trials of each study in a file; stored runs are not repeated.

    Args:
        file: the storage, in a folder that is locked meanwhile.
        problems: by name of the study.
        item: makes what is worked on, from a study's name, a run's key and a trial's
            values.
        work: returns the score of a run; processes import it.
        identity: digest of all that scores depend on.
        seed: of the proposals.
        trials: of each study.
        jobs: processes.
        progress: told of finished trials.

    Raises:
        InputError: for a file of another identity, a file that is no storage, or where
            Optuna is missing.
    """
    with resumable(file.parent), _opened(file) as storage:
        studies = {
            name: _Study(storage, name, identity, problem, seed)
            for name, problem in problems.items()
        }
        while True:
            for study in studies.values():
                # What a score decides is stored in several steps.
                with ignore_sigint():
                    study.judge()
                study.propose(trials)
            finished = {name: study.finished() for name, study in studies.items()}
            progress(sum(map(len, finished.values())), trials * len(studies))
            tasks = []
            for name, study in studies.items():
                for run in study.missing():
                    run_key = (name, run.trial, run.key)
                    tasks.append((work, run_key, item(name, run.key, run.params)))
            if not tasks:
                return finished
            spread = in_jobs(min(jobs, len(tasks)))
            for (name, trial, key), score in spread(keyed, tasks):
                studies[name].store(trial, key, score)


def to_the_end(experiment: Experiment) -> State:
    """The state of a run after its last round; nothing is evaluated or written."""
    state = initial_state(experiment)
    ledger = MemoryLedger("")
    with one_core():
        while state.round < experiment.rounds:
            state = run_round(experiment, state, ledger)
    return state


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
        reason = " ".join(str(error).split())[:80]
        rule = f"must be the storage of a search ({reason})"
        raise InputError.one("output", rule, str(path)) from None
    try:
        yield storage
    finally:
        storage.engine.dispose()


class _Run(NamedTuple):
    """A run that a trial needs: the trial's number and values, and the run's key."""

    trial: int
    key: str
    params: dict[str, Any]


class _Study:
    """One study in the storage.

    A trial keeps the scores of its runs as user attributes, by key of the run. The rung
    that an open trial is in is the number of scores that were reported of it.
    """

    def __init__(
        self,
        storage: BaseStorage,
        name: str,
        identity: str,
        problem: Problem,
        seed: int,
    ) -> None:
        self._optuna = _optuna()
        self._problem = problem
        self._seed = seed
        distributions = self._optuna.distributions
        self._space: dict[str, BaseDistribution] = {}
        for key, values in problem.space.items():
            if isinstance(values, list):
                distribution = distributions.CategoricalDistribution(values)
            else:
                distribution = distributions.FloatDistribution(*values, log=True)
            self._space[key] = distribution
        self._study = self._optuna.create_study(
            storage=storage,
            study_name=name,
            direction="maximize",
            load_if_exists=True,
            pruner=self._optuna.pruners.SuccessiveHalvingPruner(1, REDUCTION),
        )
        if self._study.user_attrs.setdefault("identity", identity) != identity:
            rule = (
                "must not hold results of other settings; delete it or choose another"
            )
            raise InputError.one("output", rule, f"study {name}")
        self._study.set_user_attr("identity", identity)

    def propose(self, trials: int) -> None:
        """Add what the current batch lacks, up to ``trials`` trials in all."""
        existing = self._trials()
        # The batch of the first open trial is the current one; else the next begins.
        first_open = len(existing)
        for trial in existing:
            if not trial.state.is_finished():
                first_open = trial.number
                break
        end_of_batch = (first_open // BATCH + 1) * BATCH
        for number in range(len(existing), min(trials, end_of_batch)):
            params, notes = self._proposal(number)
            added = self._optuna.trial.create_trial(
                state=self._optuna.trial.TrialState.RUNNING,
                params=params,
                distributions=self._space,
                system_attrs=notes,
            )
            self._study.add_trial(added)

    def _proposal(self, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Values of a trial and the sampler's notes, by a copy of the study in memory.

        The copy has the finished trials alone, and its sampler's seed follows from the
        number, so a proposal does not depend on runs that are under way.
        """
        if number == 0:
            return self._problem.first, {}
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        startup = self._problem.startup
        sampler = self._optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup)
        copy = self._optuna.create_study(direction="maximize", sampler=sampler)
        copy.add_trials(
            [trial for trial in self._trials() if trial.state.is_finished()]
        )
        params = dict(copy.ask(self._space).params)
        for key, values in self._space.items():
            if isinstance(values, self._optuna.distributions.FloatDistribution):
                rounded = float(f"{params[key]:.3g}")
                params[key] = min(max(rounded, values.low), values.high)
        return params, copy.trials[-1].system_attrs

    def missing(self) -> list[_Run]:
        """The runs that the open trials need next."""
        rung, trials = self._lowest_rung()
        runs = []
        for trial in trials:
            for key in self._problem.rungs[rung]:
                if key not in trial.user_attrs:
                    runs.append(_Run(trial.number, key, trial.params))
        return runs

    def store(self, number: int, key: str, score: float) -> None:
        """Store the score of a run of a trial."""
        self._to_write(self._trials()[number]).set_user_attr(key, score)

    def judge(self) -> None:
        """Prune, promote or finish trials of a rung, in order, once all are scored."""
        rungs = self._problem.rungs
        rung, trials = self._lowest_rung()
        while trials and not self.missing():
            for trial in trials:
                score = fmean(trial.user_attrs[key] for key in rungs[rung])
                if rung == len(rungs) - 1:
                    self._study.tell(trial.number, score)
                    continue
                # The pruner compares trials at the same step; steps grow as a rung's
                # resources do under successive halving.
                writable = self._to_write(trial)
                writable.report(score, REDUCTION**rung)
                if writable.should_prune() and trial.number > 0:
                    pruned = self._optuna.trial.TrialState.PRUNED
                    self._study.tell(trial.number, state=pruned)
            rung, trials = self._lowest_rung()

    def finished(self) -> list[Tried]:
        """The trials that are finished, in the order of their numbers."""
        finished = []
        for trial in self._trials():
            if not trial.state.is_finished():
                continue
            scores = None
            if trial.state == self._optuna.trial.TrialState.COMPLETE:
                last_rung = self._problem.rungs[-1]
                scores = tuple(trial.user_attrs[key] for key in last_rung)
            finished.append(Tried(dict(trial.params), scores, len(trial.user_attrs)))
        return finished

    def _trials(self) -> list[FrozenTrial]:
        """The trials, in the order of their numbers."""
        trials: list[FrozenTrial] = self._study.get_trials(deepcopy=False)
        return trials

    def _lowest_rung(self) -> tuple[int, list[FrozenTrial]]:
        """The lowest rung of the trials that are not finished, and the trials in it."""
        by_rung: dict[int, list[FrozenTrial]] = {}
        for trial in self._trials():
            if not trial.state.is_finished():
                rung = len(trial.intermediate_values)
                by_rung.setdefault(rung, []).append(trial)
        lowest = min(by_rung, default=0)
        return lowest, by_rung.get(lowest, [])

    def _to_write(self, trial: FrozenTrial) -> Any:
        """The trial as Optuna lets it be written."""
        return self._optuna.trial.Trial(self._study, trial._trial_id)
