"""``simulate.train`` and ``simulate.compare``: runs under a plan, from Python."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import numpy as np
from torch import Tensor, nn

from privplan.bundle import Bundle
from privplan.errors import InputError, PrivplanError
from privplan.guidance import called_first, checked_call, instead_of_argument
from privplan.plan import Plan
from privplan.publishing import publish
from privplan.record import RunRecord
from privplan.releases import stores_releases
from privplan.report.plots import comparison_panels
from privplan.report.views import View
from privplan.values import Shown
from privplan.verification.verdict import Verdict
from privplan.verification.verify import judge, load_run
from privplan.vocabulary import purpose
from simulate.algorithms.registry import Build, Hyperparameters, registered_name
from simulate.cli.replay import OPTIONS, given_again
from simulate.data.own import Data
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress
from simulate.models.compiled import Compiled
from simulate.models.modular import Modular
from simulate.models.own import OwnModel
from simulate.replay.model import final_vector
from simulate.runs import compare as comparison
from simulate.runs.recipes import recipe_of_own, with_recipes
from simulate.runs.request import Request, prepare
from simulate.runs.rows import ComparisonRow
from simulate.runs.run import Report, run_prepared
from simulate.runs.tables import printed_table
from simulate.signatures import hints_of, require_types, typed
from simulate.tracking import Callback

_log = logging.getLogger(__name__)


_OF_ESTIMATORS = ("predict", "predict_proba", "score")
"""Methods of scikit-learn that users expect of a trained model."""


class _Uncallable(str):
    """What to write instead of a method, which is said where it is called."""

    __slots__ = ()

    def __call__(self, *values: Any, **named: Any) -> Any:
        raise PrivplanError(self)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """As plain text, so that a module that was saved is read without privplan."""
        return str, (str(self),)


@dataclass(frozen=True, repr=False)
class TrainedRun(Shown):
    """A finished run and what it reached."""

    record: RunRecord
    folder: Path  # the run folder
    # whether the folder held the finished run, so that nothing was trained
    reused: bool
    _experiment: Experiment = field(repr=False)
    _request: Request = field(repr=False)
    # The state of training after the last round; None where the run was reused.
    _end: Progress | None = field(default=None, repr=False)

    @property
    def metric(self) -> str:
        """Name of the metric of ``score``."""
        return self.record.metric

    @property
    def plan(self) -> Plan:
        """The plan that was executed."""
        return Plan.load(self.folder)

    @property
    def metrics(self) -> Any:
        """Score and loss by round, as a ``pandas.DataFrame``."""
        return self.to_frame()

    @property
    def score(self) -> float:
        """The metric on the test records; NaN if not finite."""
        accuracy = self.record.accuracy
        if accuracy is None:
            return math.nan
        return float(accuracy)

    @property
    def by_group(self) -> dict[str, float]:
        """Score per privacy group, by name of the group."""
        return dict(self.record.accuracy_by_group)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict of ``privplan verify``, with rounds executed again."""
        return judge(
            load_run(self.folder), options={OPTIONS: given_again(self._request)}
        )

    @called_first
    def model(self) -> nn.Module:
        """The trained global model as a PyTorch module on the CPU, in evaluation mode.

        >>> outputs = run.model()(records)

        It is computed from the releases in the run folder, as a verifier computes it. A
        run whose releases are too large to be stored hands out the model that it has in
        memory, with a warning that nothing has verified it.

        Raises:
            InputError: when the algorithm trains one model per client, or the releases
                are not in the folder of a run that was finished before.
        """
        experiment = self._experiment
        algorithm = experiment.algorithm
        if algorithm.personalisation.per_client:
            rule = "must train one global model; this one trains a model per client"
            raise InputError.one("algorithm", rule, algorithm.name)
        released = self._released()
        theta = algorithm.split.use(experiment.model, released, None, np.arange(0))
        theta = theta.cpu()

        # An own module goes back to the user as it was given, without what training
        # put around it.
        trained = experiment.model
        general = trained.source if isinstance(trained, Compiled) else trained
        export = general.export if isinstance(general, Modular) else None
        module = (export or trained.module)().cpu()
        begin = 0
        for name, shape in trained.shapes:
            parameter = module.get_parameter(name)
            end = begin + parameter.numel()
            parameter.data = theta[begin:end].view(shape).clone()
            begin = end
        # A property of a user's module is not computed only to see that it exists.
        attributes = dir(module)
        for name in _OF_ESTIMATORS:
            if name not in attributes and not hasattr(module, name):
                setattr(module, name, _Uncallable(f"{name}: {purpose('predict')}"))
        return module.eval()

    def _released(self) -> Tensor:
        """The global vector that is released [d], computed from the stored releases."""
        try:
            return final_vector(self.folder, self._experiment.model).vector
        except InputError as error:
            if self._end is None or stores_releases(self.folder, self.plan.digest):
                raise
            warnings.warn(f"unverified model, as trained: {error}", stacklevel=3)
        server = self._experiment.algorithm.server
        return server.released(self._end.theta, self._end.server).cpu()

    def publish(
        self,
        folder: Path | str,
        *,
        rounds: int | str = "all",
        plan: Plan | Path | str | None = None,
    ) -> Bundle:
        """Write what may be published of the run into a new folder, and return it.

        Plan, certificate and verdict, and the model where all rounds were executed
        again: it is the one that the verifier trained.

        Args:
            folder: the new one.
            rounds: how many are executed again.
            plan: that was approved before training; by default the one that was given
                to ``train``. A method with a plan of its own needs that one, which
                ``privplan simulate --plan-only`` writes before training.

        Raises:
            BrokenRunError: when the verdict is broken.
            UnverifiedRunError: when it is unverified, or the run is a rehearsal on own
                data.
        """
        # A method with a plan of its own executes another one than it was given.
        requested = self._request.plan
        if plan is None and self.plan.digest == requested.digest:
            plan = requested
        published = publish(
            self,
            folder,
            rounds=rounds,
            plan=plan,
            options={OPTIONS: given_again(self._request)},
            noise_key=self._request.noise_key_file,
        )
        return published.bundle


@checked_call
@typed(unchecked=("data", "dataset"))
def train(
    plan: Plan | Path | str,
    *,
    data: Data | None = None,
    dataset: str | None = None,
    data_dir: Path | str | None = None,
    model: Callable[..., nn.Module] | nn.Module | None = None,
    model_args: Mapping[str, Any] | None = None,
    algorithm: str | Build = "planned",
    seed: int = 0,
    folder: Path | str = "run",
    partition: str = "iid",
    hyperparameters: Mapping[str, float] | None = None,
    device: str = "auto",
    canaries: int = 0,
    report: Report = lambda done, rounds: None,
    loss: Any = None,
    metric: Any = None,
    fix: bool = False,
    callbacks: Sequence[Callback] = (),
    track: Sequence[str] = (),
    noise: str | None = None,
) -> TrainedRun:
    """Train a model under a plan and return the finished run.

    An interrupted run resumes when called again with the same arguments and folder, to
    the same result; a finished one is returned without training. Cohorts and noise are
    of a secret key, in a file beside the folder (``run.key``): whoever has it can
    remove the noise.

    Args:
        plan: the solved plan or the path of its file.
        data: own records; numbers of clients per group must be the plan's.
        dataset: instead, the name of a data set, such as ``digits``, which is built in.
        data_dir: folder of data sets; PRIVPLAN_DATA when None.
        model: a class or function that returns the module, or a module to start from;
            the registered model that the plan names when None.
        model_args: keyword arguments of the class or function.
        algorithm: name of a registered algorithm, or the function that was registered.
        seed: the run's seed, 0 or more.
        folder: the run folder.
        partition: partition of records that do not name clients, such as
            ``dirichlet:0.3``.
        hyperparameters: values that differ from the algorithm's defaults, by name.
        device: ``auto``, ``cpu``, ``cuda`` or, one GPU of several, ``cuda:N``.
        canaries: audit canaries per group, in addition to the plan's clients.
        report: called after each round with the number of completed rounds and of all
            rounds.
        loss: function of outputs and targets to their mean loss, or a module; the
            task's own when None.
        metric: name of one of the task's metrics, a function of outputs and targets, or
            a ``torchmetrics.Metric``; the task's first when None.
        fix: whether group normalisation replaces batch normalisation.
        callbacks: see ``simulate.Callback``.
        track: names of trackers: ``tensorboard``, ``mlflow``, ``wandb``.
        noise: ``secure``, ``secure-discrete`` or, for rehearsals that everybody who has
            the seed can undo, ``seeded``; secure for own data and seeded for a data set
            when None.

    >>> run = simulate.train(plan, dataset="digits", seed=1, folder="trained")
    >>> run.verdict.outcome, 0 < run.score < 1
    ('kept', True)
    """
    source = _source(data, dataset)
    solved = Plan.load(plan)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise InputError.one("seed", "must be a whole number from 0 to 2^64 - 1", seed)
    request = Request(
        plan=solved,
        algorithm=registered_name(algorithm),
        dataset=source,
        folder=Path(folder),
        seed=seed,
        device=device,
        partition=partition,
        hyperparameters=Hyperparameters(values=dict(hyperparameters or {})),
        data_dir=None if data_dir is None else Path(data_dir),
        canaries=canaries,
        own_data=data,
        own_model=_own_model(model, model_args, fix),
        loss=loss,
        metric=metric,
        track=tuple(track),
        noise=noise,
    )
    for line in recipe_of_own(request):
        _log.warning(line)
    experiment = prepare(request)
    outcome = run_prepared(request, experiment, report, callbacks)
    return TrainedRun(
        outcome.record, outcome.folder, outcome.reused, experiment, request, outcome.end
    )


def _own_model(
    model: Any, model_args: Mapping[str, Any] | None, fix: bool
) -> OwnModel | None:
    """A module of the caller's, or what makes one; None for the plan's own model.

    Raises:
        InputError: when it is neither.
    """
    if model is None:
        return None
    if not (callable(model) or isinstance(model, nn.Module)):
        rule = "must be a torch.nn.Module, or a class or function that returns one"
        raise InputError.one("model", rule, type(model).__name__)
    name = getattr(model, "__qualname__", type(model).__name__)
    return OwnModel(model, model_args or {}, name, fix)


def _source(data: Data | None, dataset: str | None) -> str:
    """The name of the data: own data or a data set are given, and of their kind."""
    if isinstance(data, Data) and dataset is None:
        return data.name
    if isinstance(dataset, str) and data is None:
        return dataset
    rule = (
        "must be data=simulate.Data(...), or simulate.Data.load(path, label=...) of a "
        "file, .from_table(table, ...), or dataset= with a name such as 'digits'"
    )
    kind = type(dataset if data is None else data).__name__
    if data is not None and dataset is not None:
        kind = "both"
    raise InputError.one("train", rule, kind)


class RunOptions(TypedDict, total=False):
    """What runs of a comparison share, as ``train`` takes it."""

    partition: str
    device: str
    canaries: int
    download: bool
    noise: str
    track: tuple[str, ...]
    loss: Any
    metric: Any


_MEANT = {
    "seed": "seeds",
    "on": "privplan compare --on ADDRESS in the shell, where workers have the methods",
}
"""What ``train`` calls otherwise."""


def _require_options(options: Mapping[str, Any]) -> None:
    """Raise for options of a comparison that are none, or of another kind."""
    hints = hints_of(RunOptions)
    for name, value in options.items():
        if name not in hints:
            hint = instead_of_argument(compare, name, {"plan": Plan, **hints})
            if name in _MEANT:
                hint = f"; write {_MEANT[name]}"
            raise InputError.one(name, f"is not an argument{hint}", value)
    require_types(options, hints)


class Comparison(Shown, tuple[ComparisonRow, ...]):
    """Rows of a comparison, one per algorithm; ``comparison["planned"]`` is a row."""

    if not TYPE_CHECKING:

        def __getitem__(self, place: Any) -> Any:
            """The row of an algorithm, or what a tuple has at a place."""
            if not isinstance(place, str):
                return super().__getitem__(place)
            rows = {row.algorithm: row for row in self}
            if place not in rows:
                rule = f"must be one of {', '.join(rows)}"
                raise InputError.one("algorithm", rule, place)
            return rows[place]

        def __contains__(self, place: object) -> bool:
            """Whether it has a row, which may be given by its algorithm."""
            names = [row.algorithm for row in self]
            return place in names or super().__contains__(place)

    def view(self) -> View:
        """What is shown of it."""
        table = printed_table("Comparison", self)
        lines: list[dict[str, object]] = []
        for row in self:
            lines += row.plain()
        return View(table[0], table, lines, lambda: comparison_panels(self))


@checked_call
@typed()
def compare(
    plan: Plan | Path | str,
    algorithms: str | Build | Sequence[str | Build],
    *,
    dataset: str | None = None,
    data: Data | None = None,
    data_dir: Path | str | None = None,
    seeds: int | Sequence[int] = 3,
    folder: Path | str = "results",
    jobs: int = 1,
    recipe: Literal["published", "ours", "both"] | None = None,
    model: Any = None,
    model_args: Mapping[str, Any] | None = None,
    fix: bool = False,
    **options: Unpack[RunOptions],
) -> Comparison:
    """Train several algorithms under one plan with several seeds.

    ``algorithms`` are names, or functions that were registered. One of your own trains
    as written, without the plan's recipe, unless ``recipe`` is ``ours``: all train with
    it then, ``published`` without, and with ``both`` each in two rows.
    Finished runs are reused. ``seeds`` are counted from 0, or named. One row per
    algorithm has ``mean`` and ``deviation`` of the score and ``spent(group)``;
    ``to_frame()`` has a line per seed and group. The data set is ``digits`` by default.
    ``data``, ``model``, ``model_args``, ``fix`` and ``options`` (``partition``,
    ``device``, ``canaries``) are those of ``train``.

    >>> found = simulate.compare(plan, ["planned", "FedAvg"], seeds=1)
    >>> [row.algorithm for row in found]
    ['planned', 'FedAvg']
    """
    solved = Plan.load(plan)
    where = None if data_dir is None else Path(data_dir)
    _require_options(options)
    source = "digits"
    if data is not None or dataset is not None:
        source = _source(data, dataset)
    base = Request(
        solved,
        "",
        source,
        Path(folder),
        data_dir=where,
        own_data=data,
        own_model=_own_model(model, model_args, fix),
        **options,
    )
    if jobs < 1:
        raise InputError.one("jobs", "must be 1 or more", jobs)
    if isinstance(algorithms, str) or callable(algorithms):
        algorithms = [algorithms]
    words = ",".join(map(registered_name, algorithms))
    names, _ = comparison.select(words, base)
    requests, lines = with_recipes(base, names, recipe)
    for line in lines:
        _log.warning(line)
    chosen = range(seeds) if isinstance(seeds, int) else list(map(int, seeds))
    return Comparison(
        comparison.compare(
            base, list(requests), chosen, jobs, lambda done, total: None, requests
        )
    )
