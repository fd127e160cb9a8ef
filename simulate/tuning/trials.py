"""One trial of a recipe: a whole training run on proxy data with the plan's noise.

A trial goes through all rounds of the plan, because the first rounds have longer updates than
later ones, so that what is best for a short pilot is not best for the run. It is made cheaper by a
smaller cohort instead: with ratios and noise multipliers times a share, the noise of the mean
update stays that of the plan. Such a plan protects nobody, as nobody needs protection in proxy
data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from privplan.errors import InputError
from privplan.laws.cyclic_poisson import is_poisson
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.values import Fraction, Value, is_none
from simulate.algorithms.registry import ALGORITHMS, algorithm
from simulate.data.dataset import Dataset
from simulate.data.fitting import fitted
from simulate.data.partition.registry import partition, scheme
from simulate.data.registry import load, whole
from simulate.engine.evaluation import AccuracyMeasures
from simulate.engine.experiment import Experiment
from simulate.engine.loop import evaluate, initial_state, one_core, run_round
from simulate.models.registry import model
from simulate.runs.ledger_writer import MemoryLedger
from simulate.tuning.candidates import Candidate


class Trial(Value):
    """One training run on proxy data.

    Attributes:
        recipe: the recipe.
        share: share of the plan's cohort that takes part.
        seed: seed of partition, cohorts, mini-batches and noise.
    """

    recipe: Candidate
    share: Fraction
    seed: int


class Setting(Value):
    """What all trials of a search share.

    Attributes:
        spec: plain data of the spec.
        algorithm: name of the algorithm.
        dataset: name of the proxy data.
        partition: partition of its records over the spec's clients.
        data_dir: folder with data sets.
        classes: the only classes whose records are used; all when None.
    """

    spec: dict[str, Any]
    algorithm: str
    dataset: str
    partition: str
    data_dir: str | None = None
    classes: tuple[int, ...] | None = Field(None, exclude_if=is_none)


def smaller(plan: Plan, share: float) -> Plan:
    """The plan with a share of the cohort and the same noise of the mean; it certifies nothing."""
    if share == 1 or not is_poisson(plan.spec.sampling):
        return plan
    groups = tuple(
        group.model_copy(
            update={
                name: getattr(group, name) * share
                for name in ("sampling_ratio", "expected_cohort", "noise_multiplier")
            }
        )
        for group in plan.groups
    )
    return plan.model_copy(update={"groups": groups})


def accuracy(task: tuple[Setting, Trial]) -> float:
    """Returns the test accuracy of a trial on the proxy data, in [0, 1].

    Raises:
        PrivplanError: when the spec has no plan, or does not fit the data.
    """
    setting, trial = task
    plan = solve(Spec.parse(trial.recipe.applied(setting.spec)), second_opinion=False)
    return trained(setting, plan, trial.share, trial.seed)[1].accuracy


def trained(
    setting: Setting, plan: Plan, share: float, seed: int
) -> tuple[Experiment, AccuracyMeasures]:
    """Trains a plan on the proxy data with a share of its cohort.

    Args:
        setting: the algorithm and the proxy data.
        plan: the plan; a baseline solves its spec its own way.
        share: share of the plan's cohort that takes part.
        seed: seed of partition, cohorts, mini-batches and noise.

    Returns:
        The experiment and the accuracy after the last round.

    Raises:
        PrivplanError: when the plan does not fit the data, or its initial parameters were trained
            on the same records.
    """
    initial = plan.spec.model.initial
    source = None if initial is None else initial.source
    if setting.classes is None and source and whole(source) == whole(setting.dataset):
        rule = "must be other data than those that model.initial was trained on"
        raise InputError.one("dataset", rule, setting.dataset)
    # the algorithm's own plan first: a baseline solves the spec its own way
    executed = algorithm(setting.algorithm, plan).plan
    built = ALGORITHMS.get(setting.algorithm).build(smaller(executed, share))
    data = loaded(setting)
    labels = data.train_y.numpy()
    assigned = partition(scheme(setting.partition), labels, plan.groups, seed, data.train_people)
    network = model(built.plan.spec.model.name)
    device = torch.device("cpu")
    experiment = Experiment(built, network, data, assigned, seed, device, workers=1)
    now, ledger = initial_state(experiment), MemoryLedger("")
    with one_core():
        while now.round < experiment.rounds:
            now = run_round(experiment, now, ledger)
        return experiment, evaluate(experiment, now, most=100)


def loaded(setting: Setting) -> Dataset:
    """The proxy data of a search, with the classes that it uses and images that fit the model."""
    data = _loaded(setting.dataset, setting.data_dir, setting.spec["model"]["name"])
    return data if setting.classes is None else of_classes(data, setting.classes)


def of_classes(data: Dataset, classes: Sequence[int]) -> Dataset:
    """The records of some classes, with the same labels."""
    wanted = torch.tensor(classes)
    train, test = torch.isin(data.train_y, wanted), torch.isin(data.test_y, wanted)

    def people(of: np.ndarray | None, chosen: Tensor) -> np.ndarray | None:
        return None if of is None else of[chosen.numpy()]

    return replace(
        data,
        train_x=data.train_x[train],
        train_y=data.train_y[train],
        test_x=data.test_x[test],
        test_y=data.test_y[test],
        train_people=people(data.train_people, train),
        test_people=people(data.test_people, test),
        test_groups=None,
    )


@lru_cache(maxsize=1)
def _loaded(dataset: str, folder: str | None, network: str) -> Dataset:
    """The proxy data, read and fitted once per process."""
    data = load(dataset, None if folder is None else Path(folder))
    return fitted(data, model(network).input_shape)
