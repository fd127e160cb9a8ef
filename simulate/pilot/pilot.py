"""A pilot: short training without any privacy, to measure the constants of planning.

Everything here looks at single clients' updates and gradients, and nothing is noisy. So the
data must be public, or stand in for the private ones (proxy data); what is measured is handed
back as a value, which ``privplan.spec.measured`` writes into a spec.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from privplan.accounting.release import SamplingLaw
from privplan.errors import Fault, InputError
from privplan.plan import GroupPlan, Objective, Plan
from privplan.spec.measured import Measured, Number
from privplan.spec.spec import Spec
from simulate.algorithm import compose
from simulate.components import Transform, TransformContext
from simulate.data.dataset import Dataset
from simulate.data.partition.registry import partition, scheme
from simulate.data.registry import load
from simulate.engine.experiment import Experiment
from simulate.engine.loop import initial_state, one_core, run_round
from simulate.models.registry import model
from simulate.pilot import estimators
from simulate.pilot.estimators import Estimate, pooled
from simulate.pilot.observation import Observation, observed
from simulate.runs.ledger_writer import MemoryLedger

LEVELS = 20
"""How many quantiles of the update norms are kept."""
FEWEST = 3
"""Least clients of a group in a cohort of the pilot."""
TWO_SIDED = 1.96
"""Standard errors to the end of an interval of 95%."""

Seen = dict[str, list[Tensor]]
"""Updates of a round [K, d] by name of the group."""


@dataclass(frozen=True)
class Pilot:
    """What a pilot is asked for.

    Attributes:
        spec: the planning problem; its model, local training and groups' shares are used.
        dataset: name of a public or proxy data set.
        rounds: rounds of training, 1 or more.
        clients: clients a round over all groups; at least three of each group take part.
        seed: seed of everything that is drawn.
        partition: as in ``simulate.data.partition.registry``; what groups hold decides h.
        records: records of a client; None for as many as each of the spec's clients would
            have of this data set, at least a mini-batch.
        data_dir: where data are kept.
        download: whether missing data may be fetched.
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


def run(pilot: Pilot, report: Callable[[int, int], None] = lambda done, rounds: None) -> Measured:
    """Train without privacy, measure, and hand back the constants.

    Args:
        pilot: what is asked for.
        report: told the rounds done and the rounds in all.

    Returns:
        The constants with their standard errors; equal for equal arguments.

    Raises:
        PrivplanError: for data that are missing or too few, or a model that does not fit them.
    """
    setting, seen = setting_of(pilot)
    names = [group.name for group in setting.algorithm.plan.groups]
    progress, journal = initial_state(setting), MemoryLedger(setting.algorithm.plan.digest)
    rounds = []
    with one_core():
        for round_ in range(1, pilot.rounds + 1):
            report(round_ - 1, pilot.rounds)
            before = progress.theta
            seen.clear()
            progress = run_round(setting, progress, journal)
            updates = torch.cat([part for name in names for part in seen[name]])
            counts = [sum(len(part) for part in seen[name]) for name in names]
            owners = np.repeat(np.arange(len(names)), counts)
            rounds.append(observed(setting, before, round_, updates, owners))
    report(pilot.rounds, pilot.rounds)
    return handed_back(pilot, setting, rounds)


def setting_of(pilot: Pilot) -> tuple[Experiment, Seen]:
    """The pilot's FedAvg run, and where the engine leaves each round's updates.

    Raises:
        PrivplanError: as ``run``.
    """
    data = load(pilot.dataset, pilot.data_dir, pilot.download)
    network = model(pilot.spec.model.name)
    plan = _plan(pilot, data)
    labels, people = data.train_y.numpy(), data.train_people
    held = partition(scheme(pilot.partition), labels, plan.groups, pilot.seed, people)
    seen: Seen = {}

    def keep(updates: Tensor, context: TransformContext) -> tuple[Tensor, None]:
        seen.setdefault(context.group.name, []).append(updates.clone())
        return updates, None

    observe = Transform("observe", keep, lambda bound, group: bound)
    algorithm = compose("pilot", plan, transforms=(observe,))
    return Experiment(algorithm, network, data, held, pilot.seed, torch.device("cpu")), seen


def _plan(pilot: Pilot, data: Dataset) -> Plan:
    """Groups in proportion, as many clients as the data set has records for, fixed cohorts.

    It protects nobody: no noise is calibrated, and the algorithm that runs it draws none.
    """
    spec, total = pilot.spec, len(data.train_y)
    records = pilot.records or max(spec.local.batch_size, total // spec.population)
    shares = np.array([group.clients for group in spec.groups]) / spec.population
    sizes = np.floor(shares * (total // records)).astype(int)
    cohorts = np.maximum(np.round(shares * pilot.clients), FEWEST).astype(int)
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
        objective=Objective(name="pilot", value=0.0),
        bound={},
        noise_std=0.0,
        status="pilot without privacy",
        certificate=(),
    )


def handed_back(pilot: Pilot, setting: Experiment, rounds: Sequence[Observation]) -> Measured:
    """The constants from the estimates of all rounds; docs/planning.md says why so."""
    norms = np.sort(np.concatenate([one.norms for one in rounds]))
    levels = (np.arange(LEVELS) + 0.5) / LEVELS
    clients = sum(len(part) for part in setting.held.members)
    return Measured(
        source=(
            f"{pilot.rounds} rounds, {len(norms) // len(rounds)} of {clients} clients a round, "
            f"data set {setting.data.name}, partition {pilot.partition}, seed {pilot.seed}"
        ),
        update_norm=_number(estimators.root_mean_square(norms)),
        update_norms=tuple(float(f"{x:.4g}") for x in np.quantile(norms, levels)),
        update_coherence=_root(pooled([one.coherence for one in rounds])),
        heterogeneity=_root(pooled([one.heterogeneity for one in rounds])),
        smoothness=_largest([one.smoothness for one in rounds]),
        noise_curvature=_number(pooled([one.noise_curvature for one in rounds])),
        sampling_curvature=_number(pooled([one.sampling_curvature for one in rounds])),
        initial_gap=_number(rounds[0].loss),
        local_variance=_number(pooled([one.local_variance for one in rounds])),
        dissimilarity=_number(pooled([one.dissimilarity for one in rounds])),
    )


def _number(estimate: Estimate) -> Number:
    """An estimate with its interval of 95%."""
    reach = TWO_SIDED * estimate.error
    return Number(value=estimate.value, low=estimate.value - reach, high=estimate.value + reach)


def _root(estimate: Estimate) -> Number:
    """The root of an estimated square; a negative estimate of a square is a zero."""
    square = _number(estimate)
    return Number(**{name: math.sqrt(max(x, 0.0)) for name, x in square.model_dump().items()})


def _largest(values: Sequence[float]) -> Number:
    """The largest of the rounds, from the smallest to it."""
    return Number(value=max(values), low=min(values), high=max(values))
