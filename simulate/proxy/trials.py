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
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from privplan.accounting.release import SamplingLaw
from privplan.errors import InputError
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.values import Count, Fraction, NonNegative, Positive, Value, is_none
from simulate.algorithms.registry import ALGORITHMS, algorithm
from simulate.data.dataset import Dataset, fitted
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load, whole
from simulate.engine.evaluation import AccuracyMeasures
from simulate.engine.experiment import Experiment
from simulate.engine.loop import evaluate, initial_state, one_core, run_round
from simulate.models.registry import model
from simulate.runs.ledger_writer import MemoryLedger
from simulate.runs.study import Space

# --- Recipes to try: points around the recipe of a plan. -----------------------------------------

FACTORS = MappingProxyType({"clipping_norm": 4.0, "step": 2.5, "local_rate": 2.0})
"""Largest factor between a recipe that is tried and the default recipe, in either direction."""
MOMENTA = (0.0, 0.5, 0.8)
"""Values of the server's momentum."""
DECAYS = (0.0, 0.7, 0.8, 0.9)
"""Values of the decay of averages; 0 releases the last model."""
LOCAL_DECAYS = (0.98, 0.99, 1.0)
"""Values of the decay of the local learning rate."""
SHIFTS = (0, 1, 2)
"""Values of the largest random shift of images, in pixels of 28 x 28."""


class Candidate(Value):
    """A recipe to try.

    Attributes:
        clipping_norm: C, in units of an update.
        step: server learning rate over 1 - momentum, times C.
        momentum: momentum of the server.
        decay: decay of the average of the models.
        local_rate: local learning rate.
        local_decay: its factor per round.
        local_steps: local steps.
        shift: most pixels by which images are moved at random in training.
        server: whether the recipe has a server; a method with its own has no step, momentum or
            average to choose.
    """

    clipping_norm: Positive
    step: Positive
    momentum: NonNegative
    decay: NonNegative
    local_rate: Positive
    local_decay: Positive
    local_steps: Count
    shift: Annotated[int, Field(ge=0)] = 0
    server: bool = Field(True, exclude_if=bool)

    def numbers(self) -> dict[str, float]:
        """The numbers that are chosen, by name; a shift only where there is one."""
        server = () if self.server else ("step", "momentum", "decay")
        return self.model_dump(exclude={"server", *server, *(() if self.shift else ("shift",))})

    def fields(self) -> dict[str, Any]:
        """The fields of a spec that the recipe decides, but for local training."""
        if not self.server:
            return {"clipping_norm": self.clipping_norm, "server": None, "averaging": None}
        rate = float(f"{self.step * (1 - self.momentum) / self.clipping_norm:.4g}")
        server: dict[str, Any] = {"optimizer": "sgd", "learning_rate": rate}
        if self.momentum:
            server = {"optimizer": "momentum", "learning_rate": rate, "momentum": self.momentum}
        averaging = {"method": "ema", "decay": self.decay} if self.decay else None
        return {"clipping_norm": self.clipping_norm, "server": server, "averaging": averaging}

    def applied(self, data: dict[str, Any]) -> dict[str, Any]:
        """A spec's plain data with the candidate; no other recipe is decided for them."""
        return {**data, **self.fields(), "local": self.local(data), "recipe": "none"}

    def local(self, data: dict[str, Any]) -> dict[str, Any]:
        """Local training of a spec's plain data with the candidate's numbers."""
        local = data.get("local") or {}
        augmentation = {**(local.get("augmentation") or {}), "shift": self.shift or None}
        augmentation = {name: value for name, value in augmentation.items() if value is not None}
        local = {
            **local,
            "learning_rate": self.local_rate,
            "learning_rate_decay": self.local_decay,
            "steps": self.local_steps,
            "augmentation": augmentation or None,
        }
        return {name: value for name, value in local.items() if value is not None}


def default_candidate(plan: Plan, *, own_server: bool = False) -> Candidate:
    """The recipe of a solved plan."""
    spec, server, averaging = plan.spec, plan.spec.server, plan.spec.averaging
    if server is not None and server.optimizer not in ("sgd", "momentum"):
        rule = "must be sgd or momentum, or left out, to be tuned"
        raise InputError.one("server.optimizer", rule, server.optimizer)
    if averaging is not None and averaging.method != "ema":
        raise InputError.one("averaging.method", "must be ema to be tuned", averaging.method)
    momentum = 0.0 if server is None else server.momentum or 0.0
    rate = 1.0 if server is None else server.learning_rate or 1.0
    return Candidate(
        clipping_norm=spec.clipping_norm,
        step=rate * spec.clipping_norm / (1 - momentum),
        momentum=momentum,
        decay=0.0 if averaging is None else averaging.decay or 0.0,
        local_rate=spec.local.learning_rate,
        local_decay=spec.local.learning_rate_decay,
        local_steps=spec.local.steps,
        shift=0 if spec.local.augmentation is None else spec.local.augmentation.numbers[0],
        server=not own_server,
    )


def space(default: Candidate, shifts: Sequence[int]) -> Space:
    """The recipes to try around the default one; local work at most doubles."""

    def choices(name: str, values: Sequence[float]) -> list[float]:
        return sorted({getattr(default, name), *values})

    steps = default.local_steps
    ranges: Space = {
        name: (getattr(default, name) / factor, getattr(default, name) * factor)
        for name, factor in FACTORS.items()
        if default.server or name != "step"
    }
    own = {"momentum": choices("momentum", MOMENTA), "decay": choices("decay", DECAYS)}
    return {
        **ranges,
        **(own if default.server else {}),
        "local_decay": choices("local_decay", LOCAL_DECAYS),
        "local_steps": choices("local_steps", (max(1, round(steps / 2)), 2 * steps)),
        **({"shift": choices("shift", shifts)} if shifts else {}),
    }


def shifts_of(data: Dataset) -> tuple[int, ...]:
    """Largest shifts to try on images, in proportion to their sides; none for other records."""
    if data.kind != "image" or len(data.shape) != 3:
        return ()
    side = min(data.shape[1:])
    return tuple(dict.fromkeys(round(shift * side / 28) for shift in SHIFTS))


# --- One trial of a recipe: a whole training run on proxy data with the plan's noise. ------------


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
    if share == 1 or plan.spec.sampling.law.single != SamplingLaw.POISSON:
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
    """Returns the test accuracy of a trial on the proxy data, in [0, 1]."""
    setting, trial = task
    plan = solve(Spec.parse(trial.recipe.applied(setting.spec)), second_opinion=False)
    return trained(setting, plan, trial.share, trial.seed)[1].accuracy


def trained(
    setting: Setting, plan: Plan, share: float, seed: int
) -> tuple[Experiment, AccuracyMeasures]:
    """Trains a plan on the proxy data with a share of its cohort."""
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
