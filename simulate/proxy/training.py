"""A training run on proxy data with a plan's noise.

A run goes through all rounds of a plan with its noise, because the first rounds have
longer updates than later ones, so that what is best for a short pilot is not best for
the run. It is made cheaper by a smaller cohort instead: with ratios and noise
multipliers times a share, the noise of the mean update stays that of the plan. Such a
plan protects nobody, as nobody needs protection in proxy data.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from privplan.accounting.release import SamplingLaw
from privplan.errors import InputError
from privplan.plan import Plan
from privplan.public_data import whole_name
from privplan.values import Value
from simulate.algorithms.registry import ALGORITHMS, algorithm
from simulate.data.dataset import Dataset
from simulate.data.fitting import fitted
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load
from simulate.engine.evaluation import AccuracyMeasures
from simulate.engine.experiment import Experiment
from simulate.engine.loop import evaluate
from simulate.models.registry import model
from simulate.parallel import one_core
from simulate.runs.request import Request, prepare
from simulate.runs.study import to_the_end

# Most clients whose personal models are evaluated after a run, as while others train.
_EVALUATED_CLIENTS = 100


class Setting(Value):
    """What all runs on proxy data share.

    Attributes:
        spec: as plain data.
        algorithm: that is trained.
        dataset: its name.
        partition: of its records over clients.
        data_dir: of the data; the default one when None.
        own_parts: the user's data and model instead, as ``OwnParts``.
    """

    spec: dict[str, Any]
    algorithm: str
    dataset: str
    partition: str
    data_dir: str | None = None
    own_parts: Any = Field(None, exclude=True)


def smaller(plan: Plan, share: float) -> Plan:
    """The plan with a share of the cohort and the same noise of the mean.

    It certifies nothing. Under a law whose cohort has a size, the plan stays as it is.
    """
    laws = {sampling.law.single for sampling in plan.spec.plain_laws}
    if share == 1 or laws != {SamplingLaw.POISSON}:
        return plan
    names = ("sampling_ratio", "expected_cohort", "noise_multiplier")
    groups = []
    for group in plan.groups:
        scaled = {name: getattr(group, name) * share for name in names}
        groups.append(group.model_copy(update=scaled))
    return plan.model_copy(update={"groups": tuple(groups)})


def trained(
    setting: Setting, plan: Plan, share: float, seed: int
) -> tuple[Experiment, AccuracyMeasures]:
    """Train a plan on the proxy data with a share of its cohort.

    Args:
        setting: data and algorithm.
        plan: for all rounds of which the run goes on.
        share: of the plan's cohort, in (0, 1].
        seed: of partition, cohorts, mini-batches and noise.

    Raises:
        InputError: for data that the plan's initial parameters were trained on.
    """
    initial = plan.spec.model.initial
    source = None if initial is None else initial.source
    if source and whole_name(source) == whole_name(setting.dataset):
        rule = "must be other data than those that model.initial was trained on"
        raise InputError.one("dataset", rule, setting.dataset)
    # The algorithm's own plan first: a baseline solves the spec its own way.
    executed = algorithm(setting.algorithm, plan).plan
    built = ALGORITHMS.get(setting.algorithm).build(smaller(executed, share))
    if setting.own_parts is None:
        data = loaded(setting)
        labels = data.train_y.numpy()
        assigned = partition(
            scheme(setting.partition), labels, plan.groups, seed, data.train_people
        )
        experiment = Experiment(
            built,
            model(built.plan.spec.model.name),
            data,
            assigned,
            seed,
            torch.device("cpu"),
            workers=1,
        )
    else:
        request = Request(
            plan,
            setting.algorithm,
            setting.dataset,
            Path(),
            seed,
            device="cpu",
            partition=setting.partition,
            noise="seeded",
            own_data=setting.own_parts.data,
            own_model=setting.own_parts.model,
        )
        experiment = replace(prepare(request), algorithm=built, workers=1)
    end = to_the_end(experiment)
    with one_core():
        return experiment, evaluate(experiment, end, max_clients=_EVALUATED_CLIENTS)


def loaded(setting: Setting) -> Dataset:
    """The proxy data, with images that fit the model."""
    return _loaded(setting.dataset, setting.data_dir, setting.spec["model"]["name"])


@lru_cache(maxsize=1)
def _loaded(dataset: str, folder: str | None, network: str) -> Dataset:
    """The proxy data, read and fitted once per process."""
    data = load(dataset, None if folder is None else Path(folder))
    return fitted(data, model(network).input_shape)
