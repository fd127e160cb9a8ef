"""A pilot: short training without privacy that measures the constants of planning.

The pilot uses updates and gradients of single clients without noise, so its data must
be public or proxy data. The result is a value, which ``privplan.spec.measured`` writes
into a spec.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.accounting.release import SamplingLaw
from privplan.errors import Fault, InputError
from privplan.plan import GroupPlan, ObjectiveValue, Plan
from privplan.spec.measured import Measured, Number
from privplan.spec.spec import Spec
from simulate.algorithm import compose
from simulate.components import Transform, TransformContext
from simulate.data.own import Data
from simulate.data.partition.clients import ClientPartition
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load
from simulate.engine.experiment import Experiment
from simulate.engine.loop import initial_state, run_round
from simulate.models.own import OwnModel
from simulate.models.registry import model
from simulate.parallel import one_core
from simulate.proxy.estimators import Estimate, root_mean_square
from simulate.proxy.observation import Observation, observe_round
from simulate.runs.ledger_writer import MemoryLedger
from simulate.tasks import MULTI_CLASS, objective_of

QUANTILES = 20  # number of quantiles of the update norms in the result
# Least number of clients per group in a cohort: the jackknife of h^2 takes one away,
# and two make a pair.
LEAST_COHORT = 3
Z_95 = 1.96  # half width of a 95% interval in standard errors

UpdatesByGroup = dict[str, list[Tensor]]
"""Updates of a round, in chunks [K, d], by name of the group."""


@dataclass(frozen=True)
class Pilot:
    """Parameters of a pilot; its data must be public or proxy data.

    Attributes:
        spec: whose model, local training and groups' shares are used.
        dataset: its name.
        rounds: how many.
        clients: per round; at least three of each group, at most all that own data
            name.
        seed: of all draws.
        partition: of the records, which decides the measured heterogeneity.
        data_dir: of the data; the default one when None.
        download: whether missing data may be downloaded.
        own_data: instead of the data set.
        own_model: under the spec's name of the model.
        loss: of an own model.
    """

    spec: Spec
    dataset: str
    rounds: int = 10
    clients: int = 50
    seed: int = 0
    partition: str = "iid"
    data_dir: Path | None = None
    download: bool = False
    own_data: Data | None = None
    own_model: OwnModel | None = None
    loss: Any = None


def run(
    pilot: Pilot, report: Callable[[int, int], None] = lambda done, rounds: None
) -> Measured:
    """Train without privacy, and measure the constants.

    Args:
        pilot: what to train.
        report: told of completed rounds and of all rounds.

    Raises:
        InputError: for data with too few records or clients of a group.
    """
    experiment, updates_by_group = pilot_experiment(pilot)
    plan = experiment.algorithm.plan
    progress = initial_state(experiment)
    ledger = MemoryLedger(plan.digest)
    observations = []
    with one_core():
        for round_ in range(1, pilot.rounds + 1):
            report(round_ - 1, pilot.rounds)
            before = progress.theta
            updates_by_group.clear()
            progress = run_round(experiment, progress, ledger)
            by_group = [
                torch.cat(updates_by_group[group.name]) for group in plan.groups
            ]
            counts = [len(updates) for updates in by_group]
            owners = np.repeat(np.arange(len(counts)), counts)
            observations.append(
                observe_round(experiment, before, round_, torch.cat(by_group), owners)
            )
    report(pilot.rounds, pilot.rounds)
    return measured_constants(pilot, experiment, observations)


def pilot_experiment(pilot: Pilot) -> tuple[Experiment, UpdatesByGroup]:
    """The pilot's FedAvg run, and the mapping that receives each round's updates."""
    assigned: ClientPartition | None = None
    task = MULTI_CLASS
    if pilot.own_data is None:
        data = load(pilot.dataset, pilot.data_dir, pilot.download)
        plan = _plan(pilot, len(data.train_y))
    else:
        task = pilot.own_data.task
        plan = _plan(pilot, len(pilot.own_data.records))
        data, assigned = pilot.own_data.prepared(plan.groups)
    name = pilot.spec.model.name
    if pilot.own_model is None:
        network = model(name)
    else:
        objective = objective_of(task, pilot.loss, data.targets)
        network = pilot.own_model.model(name, data, objective=objective)
    if assigned is None:
        labels = data.train_labels.numpy()
        assigned = partition(
            scheme(pilot.partition), labels, plan.groups, pilot.seed, data.train_people
        )
    updates_by_group: UpdatesByGroup = {}

    def record_updates(
        updates: Tensor, context: TransformContext
    ) -> tuple[Tensor, None]:
        updates_by_group.setdefault(context.group.name, []).append(updates.clone())
        return updates, None

    observe = Transform("observe", record_updates, lambda bound, group: bound)
    algorithm = compose("pilot", plan, transforms=(observe,))
    cpu = torch.device("cpu")
    experiment = Experiment(algorithm, network, data, assigned, pilot.seed, cpu)
    return experiment, updates_by_group


def _plan(pilot: Pilot, total: int) -> Plan:
    """A plan that protects nobody: proportional groups, as many clients as data allow.

    Args:
        pilot: whose spec has the groups.
        total: number of records.
    """
    spec = pilot.spec
    shares = np.array([group.clients for group in spec.groups]) / spec.population
    cohorts = np.round(shares * pilot.clients).astype(int)
    if pilot.own_data is not None and pilot.own_data.clients is not None:
        sizes = np.array([group.clients for group in spec.groups])
        cohorts = np.minimum(cohorts, sizes)
    else:
        # A client has the records of a mini-batch, or more where the data have enough.
        records = max(spec.local.batch_size, total // spec.population)
        sizes = np.floor(shares * (total // records)).astype(int)
    cohorts = np.maximum(cohorts, LEAST_COHORT)
    groups = []
    faults = []
    for index, group in enumerate(spec.groups):
        size = int(sizes[index])
        cohort = int(cohorts[index])
        if size < cohort:
            rule = f"must have records for {cohort} clients of group {group.name}"
            faults.append(Fault("dataset", rule, size))
            continue
        groups.append(
            GroupPlan(
                name=group.name,
                clients=size,
                epsilon=group.epsilon,
                delta=spec.delta_of(group),
                sampling_ratio=cohort / size,
                expected_cohort=float(cohort),
                noise_multiplier=1.0,
                kept_fraction=1.0,
                weight=float(shares[index]),
            )
        )
    if faults:
        raise InputError(faults)
    has_whole_cohort = spec.cohort == round(spec.cohort or 0.5)
    cohort_size = spec.cohort
    if spec.planning.ratios != "given" and not has_whole_cohort:
        cohort_size = float(min(cohorts.sum(), spec.population))
    return Plan(
        spec=_pilot_spec(spec, groups, cohort_size),
        groups=tuple(groups),
        objective=ObjectiveValue(name="pilot", value=0.0),
        bound={},
        mean_noise_std=0.0,
        status="pilot without privacy",
        certificate=(),
    )


def _pilot_spec(spec: Spec, planned: Sequence[GroupPlan], cohort: float | None) -> Spec:
    """The spec, with groups that have as many clients as there are records for."""
    groups = []
    for group, group_plan in zip(spec.groups, planned, strict=True):
        update = {
            "contributions": 1,
            "sampling": None,
            "clients": group_plan.clients,
            "delta": group_plan.delta,
        }
        groups.append(group.model_copy(update=update))
    return spec.model_copy(
        update={
            "sampling": SamplingLaw.FIXED_SIZE,
            "groups": tuple(groups),
            "cohort": cohort,
        }
    )


def measured_constants(
    pilot: Pilot, experiment: Experiment, observations: Sequence[Observation]
) -> Measured:
    """The constants from the estimates of all rounds; see docs/planning.md."""
    norms = np.sort(np.concatenate([of_round.norms for of_round in observations]))
    levels = (np.arange(QUANTILES) + 0.5) / QUANTILES
    curvatures = [of_round.smoothness for of_round in observations]
    # The root of an estimated square; a negative estimate counts as zero.
    square = _pooled(of_round.heterogeneity for of_round in observations)
    heterogeneity = Number(
        value=math.sqrt(max(square.value, 0.0)),
        low=math.sqrt(max(square.low, 0.0)),
        high=math.sqrt(max(square.high, 0.0)),
    )
    clients = sum(len(members) for members in experiment.partition.members)
    source = (
        f"{pilot.rounds} rounds, {len(norms) // len(observations)} of {clients} clients "
        f"per round, data set {experiment.data.name}, partition {pilot.partition}, "
        f"seed {pilot.seed}"
    )
    return Measured(
        source=source,
        update_norm=_number(root_mean_square(norms)),
        update_norms=tuple(float(f"{x:.4g}") for x in np.quantile(norms, levels)),
        heterogeneity=heterogeneity,
        smoothness=Number(
            value=max(curvatures), low=min(curvatures), high=max(curvatures)
        ),
        noise_curvature=_pooled(of_round.noise_curvature for of_round in observations),
        sampling_curvature=_pooled(
            of_round.sampling_curvature for of_round in observations
        ),
        initial_gap=_number(observations[0].loss),
        local_variance=_pooled(of_round.local_variance for of_round in observations),
        dissimilarity=_pooled(of_round.dissimilarity for of_round in observations),
    )


def _number(estimate: Estimate) -> Number:
    """An estimate with its 95% interval."""
    margin = Z_95 * estimate.error
    value = estimate.value
    return Number(value=value, low=value - margin, high=value + margin)


def _pooled(estimates: Iterable[Estimate]) -> Number:
    """The mean of the independent estimates of all rounds."""
    rounds = list(estimates)
    error = math.sqrt(sum(estimate.error**2 for estimate in rounds)) / len(rounds)
    mean = sum(estimate.value for estimate in rounds) / len(rounds)
    return _number(Estimate(mean, error))
