"""A pilot: short training without privacy that measures the constants of planning.

The pilot uses updates and gradients of single clients without noise, so its data must be public
or proxy data. The result is a value, which ``privplan.spec.measured`` writes into a spec.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from simulate.data.dataset import Dataset
from simulate.data.own import Data
from simulate.data.partition.clients import ClientPartition
from simulate.data.partition.registry import partition, scheme
from simulate.data.registry import load
from simulate.engine.experiment import Experiment
from simulate.engine.loop import initial_state, one_core, run_round
from simulate.models.network import Model
from simulate.models.own import OwnModel
from simulate.models.registry import model
from simulate.pilot import estimators
from simulate.pilot.estimators import Estimate, pooled
from simulate.pilot.observation import Observation, observe_round
from simulate.runs.ledger_writer import MemoryLedger
from simulate.tasks import MULTI_CLASS, objective_of

QUANTILES = 20
"""Number of quantiles of the update norms in the result."""
LEAST_COHORT = 3
"""Least number of clients per group in a pilot's cohort."""
Z_95 = 1.96
"""Half width of a 95% interval in standard errors."""

UpdatesByGroup = dict[str, list[Tensor]]
"""Updates of a round, chunks [K, d] by name of the group."""


@dataclass(frozen=True)
class Pilot:
    """Parameters of a pilot.

    Attributes:
        spec: the planning problem; its model, local training and groups' shares are used.
        dataset: name of a public or proxy data set.
        rounds: rounds of training, 1 or more.
        clients: clients per round over all groups; at least three of each group take part, and at
            most all where own data name the clients.
        seed: seed of all random streams.
        partition: as in ``simulate.data.partition.registry``; it determines the measured
            heterogeneity h.
        records: records per client; None for as many as each of the spec's clients would
            have of this data set, at least a mini-batch.
        data_dir: folder with data sets.
        download: whether missing data may be downloaded.
        own_data: the user's own public or proxy data, instead of ``dataset``; where they name
            clients, these are the spec's clients.
        own_model: the user's own module, under the spec's name of the model.
        loss: the user's own loss.
    """

    spec: Spec
    dataset: str
    rounds: int = 10
    clients: int = 50
    seed: int = 0
    partition: str = "iid"
    records: int | None = None
    data_dir: Path | None = None
    download: bool = False
    own_data: Data | None = None
    own_model: OwnModel | None = None
    loss: Any = None


def run(pilot: Pilot, report: Callable[[int, int], None] = lambda done, rounds: None) -> Measured:
    """Train without privacy and return the measured constants.

    Args:
        pilot: parameters of the pilot.
        report: called with the number of completed rounds and of all rounds.

    Returns:
        The constants with their standard errors; equal for equal arguments.

    Raises:
        PrivplanError: for missing or too few data, or a model that does not match them.
    """
    experiment, updates_by_group = pilot_experiment(pilot)
    names = [group.name for group in experiment.algorithm.plan.groups]
    progress, ledger = initial_state(experiment), MemoryLedger(experiment.algorithm.plan.digest)
    rounds = []
    with one_core():
        for round_ in range(1, pilot.rounds + 1):
            report(round_ - 1, pilot.rounds)
            before = progress.theta
            updates_by_group.clear()
            progress = run_round(experiment, progress, ledger)
            updates = torch.cat([part for name in names for part in updates_by_group[name]])
            counts = [sum(len(part) for part in updates_by_group[name]) for name in names]
            owners = np.repeat(np.arange(len(names)), counts)
            rounds.append(observe_round(experiment, before, round_, updates, owners))
    report(pilot.rounds, pilot.rounds)
    return measured_constants(pilot, experiment, rounds)


def pilot_experiment(pilot: Pilot) -> tuple[Experiment, UpdatesByGroup]:
    """The pilot's FedAvg run, and the mapping that receives each round's updates.

    Raises:
        PrivplanError: as ``run``.
    """
    own = pilot.own_data
    assigned: ClientPartition | None = None
    if own is None:
        data = load(pilot.dataset, pilot.data_dir, pilot.download)
        plan = _plan(pilot, len(data.train_y), pilot.records)
    else:
        plan = _plan(pilot, len(own.records), 1 if own.clients is not None else pilot.records)
        data, assigned = own.prepared(plan.groups)
    network = _model(pilot, data)
    if assigned is None:
        labels, people = data.train_labels.numpy(), data.train_people
        assigned = partition(scheme(pilot.partition), labels, plan.groups, pilot.seed, people)
    updates_by_group: UpdatesByGroup = {}

    def record_updates(updates: Tensor, context: TransformContext) -> tuple[Tensor, None]:
        updates_by_group.setdefault(context.group.name, []).append(updates.clone())
        return updates, None

    observe = Transform("observe", record_updates, lambda bound, group: bound)
    algorithm = compose("pilot", plan, transforms=(observe,))
    return Experiment(
        algorithm, network, data, assigned, pilot.seed, torch.device("cpu")
    ), updates_by_group


def _model(pilot: Pilot, data: Dataset) -> Model:
    """The registered model of the spec's name, or the user's own."""
    if pilot.own_model is None:
        return model(pilot.spec.model.name)
    task = MULTI_CLASS if pilot.own_data is None else pilot.own_data.task
    objective = objective_of(task, pilot.loss, data.targets)
    return pilot.own_model.model(pilot.spec.model.name, data, objective=objective)


def _plan(pilot: Pilot, total: int, given: int | None) -> Plan:
    """A plan with proportional groups, as many clients as the data allow, and fixed cohorts.

    The plan protects no client: no noise is calibrated, and the algorithm draws none.
    """
    spec = pilot.spec
    records = given or max(spec.local.batch_size, total // spec.population)
    shares = np.array([group.clients for group in spec.groups]) / spec.population
    sizes = np.floor(shares * (total // records)).astype(int)
    wanted = np.round(shares * pilot.clients).astype(int)
    if pilot.own_data is not None and pilot.own_data.clients is not None:
        sizes = np.array([group.clients for group in spec.groups])
        wanted = np.minimum(wanted, sizes)
    cohorts = np.maximum(wanted, LEAST_COHORT)
    faults = [
        Fault("dataset", f"must have records for {cohort} clients of group {group.name}", int(size))
        for group, size, cohort in zip(spec.groups, sizes, cohorts, strict=True)
        if size < cohort
    ]
    if faults:
        raise InputError(faults)
    groups = tuple(
        GroupPlan(
            name=group.name,
            clients=int(size),
            epsilon=group.epsilon,
            delta=spec.delta_of(group),
            sampling_ratio=float(cohort / size),
            expected_cohort=float(cohort),
            noise_multiplier=1.0,
            kept_fraction=1.0,
            weight=float(share),
        )
        for group, size, cohort, share in zip(spec.groups, sizes, cohorts, shares, strict=True)
    )
    return Plan(
        spec=spec.model_copy(update={"sampling": SamplingLaw.FIXED_SIZE}),
        groups=groups,
        objective=ObjectiveValue(name="pilot", value=0.0),
        bound={},
        noise_std=0.0,
        status="pilot without privacy",
        certificate=(),
    )


def measured_constants(
    pilot: Pilot, experiment: Experiment, rounds: Sequence[Observation]
) -> Measured:
    """The constants from the estimates of all rounds; docs/planning.md gives the reasons."""
    norms = np.sort(np.concatenate([estimates.norms for estimates in rounds]))
    levels = (np.arange(QUANTILES) + 0.5) / QUANTILES
    clients = sum(len(part) for part in experiment.partition.members)
    return Measured(
        source=(
            f"{pilot.rounds} rounds, {len(norms) // len(rounds)} of {clients} clients per round, "
            f"data set {experiment.data.name}, partition {pilot.partition}, seed {pilot.seed}"
        ),
        update_norm=_number(estimators.root_mean_square(norms)),
        update_norms=tuple(float(f"{x:.4g}") for x in np.quantile(norms, levels)),
        update_coherence=_root(pooled([estimates.coherence for estimates in rounds])),
        heterogeneity=_root(pooled([estimates.heterogeneity for estimates in rounds])),
        smoothness=_largest([estimates.smoothness for estimates in rounds]),
        noise_curvature=_number(pooled([estimates.noise_curvature for estimates in rounds])),
        sampling_curvature=_number(pooled([estimates.sampling_curvature for estimates in rounds])),
        initial_gap=_number(rounds[0].loss),
        local_variance=_number(pooled([estimates.local_variance for estimates in rounds])),
        dissimilarity=_number(pooled([estimates.dissimilarity for estimates in rounds])),
    )


def _number(estimate: Estimate) -> Number:
    """An estimate with its 95% interval."""
    margin = Z_95 * estimate.error
    return Number(value=estimate.value, low=estimate.value - margin, high=estimate.value + margin)


def _root(estimate: Estimate) -> Number:
    """The root of an estimated square; a negative estimate counts as zero."""
    square = _number(estimate)
    return Number(**{name: math.sqrt(max(x, 0.0)) for name, x in square.model_dump().items()})


def _largest(values: Sequence[float]) -> Number:
    """The largest value over the rounds, with the range of values as its interval."""
    return Number(value=max(values), low=min(values), high=max(values))
