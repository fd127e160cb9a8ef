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
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from privplan.accounting.release import SamplingLaw
from privplan.errors import Fault, InputError
from privplan.plan import GroupPlan, ObjectiveValue, Plan
from privplan.spec.measured import Measured, Number
from privplan.spec.spec import Spec
from privplan.streams import Purpose, stream
from simulate.algorithm import compose
from simulate.components import Transform, TransformContext
from simulate.data.own import Data
from simulate.data.partition.clients import ClientPartition
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load
from simulate.engine.experiment import Experiment
from simulate.engine.loop import initial_state, one_core, run_round
from simulate.engine.round import batches, participants
from simulate.local.sgd import PADDING, gradients
from simulate.models.network import CROSS_ENTROPY
from simulate.models.own import OwnModel
from simulate.models.registry import model
from simulate.runs.ledger_writer import MemoryLedger
from simulate.tasks import MULTI_CLASS, objective_of

# --- Estimators of the constants of planning, as functions of updates and gradients. -------------
# Each returns an estimate with its standard error. The estimators are unbiased for independent
# clients, or their docstring states the direction of the bias. They provide no privacy.

Floats = NDArray[np.float64]
Gradient = Callable[[Tensor], Tensor]  # parameters [d] to a gradient [d]

POWER_STEPS = 16


@dataclass(frozen=True)
class Estimate:
    """A measured number with its standard error."""

    value: float
    error: float


def norms(updates: Tensor) -> Floats:
    """L2 norms [K] of updates [K, d]."""
    lengths: Floats = (
        torch.linalg.vector_norm(updates, dim=1, dtype=torch.float64).cpu().numpy()
    )
    return lengths


def root_mean_square(values: Floats) -> Estimate:
    """S = sqrt(mean x^2); error sd(x^2) / (2 s sqrt(K)) by the delta method."""
    squares = values**2
    mean = float(squares.mean())
    error = float(squares.std(ddof=1)) / math.sqrt(len(squares))
    return Estimate(math.sqrt(mean), error / (2 * math.sqrt(mean)) if mean else 0.0)


def mean_of(values: Floats) -> Estimate:
    """The mean of independent values [K], with sd / sqrt(K); K at least 2."""
    return Estimate(
        float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
    )


def heterogeneity(
    updates: Tensor, groups: NDArray[np.int64], shares: Floats
) -> Estimate:
    """h^2 = sum_m p_m |U_m - U|^2, U_m the mean update of group m and U = sum p_m U_m.

    Only products of the updates of two different clients enter,

        h^2 = sum_m p_m A_mm - sum_ml p_m p_l A_ml,
        A_ml = mean of <u_i, u_j> over i in m, j in l, i != j,

    so the scatter of clients inside a group does not add to it: the estimate is unbiased, and
    negative for about half of all cohorts when the groups are alike. The error is a jackknife's
    over clients.
    """
    wide = updates.to(torch.float64)
    gram = (wide @ wide.T).cpu().numpy()
    member = (groups[:, None] == np.arange(len(shares))).astype(float)
    sums, own = member.T @ gram @ member, member.T @ np.diag(gram)
    value = _between(sums, own, member.sum(0), shares)
    jackknife = []
    for i, group in enumerate(groups):
        across = gram[i] @ member
        fewer = sums.copy()
        fewer[group] -= across
        fewer[:, group] -= across
        fewer[group, group] += gram[i, i]
        own_left = own - gram[i, i] * member[i]
        jackknife.append(_between(fewer, own_left, member.sum(0) - member[i], shares))
    spread = float(np.var(jackknife)) * (len(groups) - 1)
    return Estimate(value, math.sqrt(spread))


def _between(sums: Floats, own: Floats, counts: Floats, shares: Floats) -> float:
    pairs = np.outer(counts, counts) - np.diag(counts)
    products = (sums - np.diag(own)) / pairs
    return float(shares @ np.diag(products) - shares @ products @ shares)


def local_variance(first: Tensor, second: Tensor) -> Estimate:
    """zeta^2 = E |g - E g|^2 / d, the variance per coordinate of a client's mini-batch gradient.

    Half the mean squared difference of two independent mini-batches of each client, over d.
    """
    squares = norms(first - second) ** 2 / (2 * first.shape[1])
    return mean_of(squares)


def dissimilarity(gradients: Tensor) -> Estimate:
    """kappa^2 = E |grad f_i - grad F|^2, with F the mean over the clients.

    The sample variance sum_i |g_i - mean|^2 / (K - 1) of the clients' whole gradients.
    """
    clients = len(gradients)
    squares = norms(gradients - gradients.mean(0)) ** 2 * clients / (clients - 1)
    return mean_of(squares)


def largest_curvature(
    gradient: Gradient, theta: Tensor, start: Tensor, radius: float
) -> float:
    """L at theta: the largest |eigenvalue| of the Hessian, by power iteration from below.

    The Hessian times a unit vector v is (grad(theta + radius v) - grad(theta - radius v)) over
    2 radius, exact for a quadratic.
    """
    direction, eigenvalue = start / start.norm(), 0.0
    for _ in range(POWER_STEPS):
        product = _hessian_product(gradient, theta, direction, radius)
        eigenvalue = float(product.norm())
        if eigenvalue == 0:
            break
        direction = product / eigenvalue
    return eigenvalue


def mean_curvature(
    gradient: Gradient, theta: Tensor, directions: Sequence[Tensor], radius: float
) -> Estimate:
    """tr(H) / d, the mean eigenvalue of the Hessian: mean of v' H v / |v|^2 over directions.

    Unbiased for isotropic directions (M. Hutchinson, 1990). It determines the effect of isotropic
    noise of variance s^2 per coordinate: E f(theta + noise) = f(theta) + d s^2 tr(H) / (2 d) + ...
    """
    curvatures = []
    for direction in directions:
        unit = direction / direction.norm()
        curvatures.append(float(unit @ _hessian_product(gradient, theta, unit, radius)))
    return mean_of(np.array(curvatures))


def _hessian_product(
    gradient: Gradient, theta: Tensor, unit: Tensor, radius: float
) -> Tensor:
    step = radius * unit
    return (gradient(theta + step) - gradient(theta - step)) / (2 * radius)


# --- Estimates of one round of a pilot, from single clients' updates and gradients. --------------

PROBES = 8  # directions per round for each mean curvature
SHORT_STEP, LONG_STEP = 0.01, 0.5
"""Steps of the differences for the largest and for mean curvatures, in parameter norm."""
GRADIENT_VALUES = 2**26  # most values of clients' gradients in memory at a time

Records = tuple[Tensor, Tensor]  # records [K, B, ...] and labels [K, B] of clients


@dataclass(frozen=True)
class Observation:
    """Estimates of one round, all at the parameters where it begins."""

    norms: NDArray[np.float64]  # of the clients' updates [K]
    heterogeneity: Estimate  # h^2 between the groups, in squared norm of an update
    smoothness: float  # largest curvature of the cohort's mean objective
    noise_curvature: Estimate  # mean curvature in isotropic directions
    sampling_curvature: Estimate  # the same along the scatter of the clients' updates
    loss: Estimate  # mean over the clients
    local_variance: Estimate  # zeta^2, per coordinate
    dissimilarity: Estimate  # kappa^2, in squared norm of a gradient


def observe_round(
    experiment: Experiment,
    theta: Tensor,
    round_: int,
    updates: Tensor,
    owners: NDArray[np.int64],
) -> Observation:
    """Returns the estimates of one round."""
    clients = np.concatenate(participants(experiment, round_))

    def drawn(stream_round: int, size: int) -> Records:
        """One batch of each client."""
        x, y = batches(
            experiment.data, experiment.partition, clients, seed=experiment.seed,
            round_=stream_round, steps=1, size=size, device=experiment.device,
        )  # fmt: skip
        return x[:, 0], y[:, 0]

    # all records of each client, padded to the longest, and two mini-batches from streams that no
    # training round uses
    everything = drawn(
        1, max(len(experiment.partition.records(client)) for client in clients)
    )
    batch = experiment.local.batch_size
    first, second = (drawn(2 * round_ + index + 1_000_000, batch) for index in (1, 2))

    def gradient(at: Tensor) -> Tensor:
        return client_gradients(experiment, at, everything).mean(0)

    source = torch.Generator()
    source.manual_seed(
        int(stream(experiment.seed, Purpose.SUPPORT, round_).integers(2**63 - 1))
    )
    probes = [
        torch.randn(experiment.model.parameters, generator=source)
        for _ in range(PROBES)
    ]
    scatter = list((updates - updates.mean(0))[:PROBES])
    shares = np.array([group.weight for group in experiment.algorithm.plan.groups])
    return Observation(
        norms=norms(updates),
        heterogeneity=heterogeneity(updates, owners, shares),
        smoothness=largest_curvature(gradient, theta, probes[0], SHORT_STEP),
        noise_curvature=mean_curvature(gradient, theta, probes, LONG_STEP),
        sampling_curvature=mean_curvature(gradient, theta, scatter, LONG_STEP),
        loss=_loss(experiment, theta, everything),
        local_variance=local_variance(
            client_gradients(experiment, theta, first),
            client_gradients(experiment, theta, second),
        ),
        dissimilarity=dissimilarity(client_gradients(experiment, theta, everything)),
    )


def client_gradients(experiment: Experiment, theta: Tensor, records: Records) -> Tensor:
    """Gradients of the clients' mean losses over their records [K, d], computed in chunks."""
    x, y = records
    step = max(1, GRADIENT_VALUES // len(theta))
    parts = [
        gradients(
            experiment.model,
            theta.expand(len(y[i : i + step]), -1),
            x[i : i + step],
            y[i : i + step],
            workers=experiment.workers,
        )
        for i in range(0, len(y), step)
    ]
    return torch.cat(parts)


def _loss(experiment: Experiment, theta: Tensor, records: Records) -> Estimate:
    """Mean over clients of their mean loss."""
    x, y = records
    with torch.no_grad():
        logits = experiment.model.logits(theta, x.flatten(0, 1))
        objective = experiment.model.objective
        if objective is not CROSS_ENTROPY:
            parts = zip(
                torch.unflatten(logits, 0, y.shape), y, y != PADDING, strict=True
            )
            own = [
                float(objective(outputs[rows], labels[rows]))
                for outputs, labels, rows in parts
            ]
            return mean_of(np.array(own))
        each = functional.cross_entropy(
            logits.double(), y.flatten(), ignore_index=PADDING, reduction="none"
        )
    counts = (y != PADDING).sum(1)
    return mean_of((each.view(y.shape).sum(1) / counts).numpy())


# --- A pilot: short training without privacy that measures the constants of planning. ------------

QUANTILES = 20  # number of quantiles of the update norms in the result
LEAST_COHORT = 3  # least number of clients per group in a pilot's cohort
Z_95 = 1.96  # half width of a 95% interval in standard errors

UpdatesByGroup = dict[
    str, list[Tensor]
]  # updates of a round, chunks [K, d] by name of the group


@dataclass(frozen=True)
class Pilot:
    """Parameters of a pilot; its data must be public or proxy data."""

    spec: Spec  # its model, local training and groups' shares are used
    dataset: str
    rounds: int = 10
    clients: int = (
        50  # per round; at least three of each group, at most all that own data name
    )
    seed: int = 0
    partition: str = "iid"  # decides the measured heterogeneity
    data_dir: Path | None = None
    download: bool = False
    own_data: Data | None = None  # instead of the data set
    own_model: OwnModel | None = None  # under the spec's name of the model
    loss: Any = None


def run(
    pilot: Pilot, report: Callable[[int, int], None] = lambda done, rounds: None
) -> Measured:
    """Train without privacy and return the measured constants."""
    experiment, updates_by_group = pilot_experiment(pilot)
    names = [group.name for group in experiment.algorithm.plan.groups]
    progress, ledger = (
        initial_state(experiment),
        MemoryLedger(experiment.algorithm.plan.digest),
    )
    rounds = []
    with one_core():
        for round_ in range(1, pilot.rounds + 1):
            report(round_ - 1, pilot.rounds)
            before = progress.theta
            updates_by_group.clear()
            progress = run_round(experiment, progress, ledger)
            updates = torch.cat(
                [part for name in names for part in updates_by_group[name]]
            )
            counts = [
                sum(len(part) for part in updates_by_group[name]) for name in names
            ]
            owners = np.repeat(np.arange(len(names)), counts)
            rounds.append(observe_round(experiment, before, round_, updates, owners))
    report(pilot.rounds, pilot.rounds)
    return measured_constants(pilot, experiment, rounds)


def pilot_experiment(pilot: Pilot) -> tuple[Experiment, UpdatesByGroup]:
    """The pilot's FedAvg run, and the mapping that receives each round's updates."""
    own = pilot.own_data
    assigned: ClientPartition | None = None
    if own is None:
        data = load(pilot.dataset, pilot.data_dir, pilot.download)
        plan = _plan(pilot, len(data.train_y))
    else:
        plan = _plan(pilot, len(own.records))
        data, assigned = own.prepared(plan.groups)
    name, task = pilot.spec.model.name, MULTI_CLASS if own is None else own.task
    if pilot.own_model is None:
        network = model(name)
    else:
        objective = objective_of(task, pilot.loss, data.targets)
        network = pilot.own_model.model(name, data, objective=objective)
    if assigned is None:
        labels, people = data.train_labels.numpy(), data.train_people
        assigned = partition(
            scheme(pilot.partition), labels, plan.groups, pilot.seed, people
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
    return Experiment(
        algorithm, network, data, assigned, pilot.seed, cpu
    ), updates_by_group


def _plan(pilot: Pilot, total: int) -> Plan:
    """A plan that protects nobody: proportional groups, as many clients as data allow."""
    spec = pilot.spec
    records = max(spec.local.batch_size, total // spec.population)
    shares = np.array([group.clients for group in spec.groups]) / spec.population
    sizes = np.floor(shares * (total // records)).astype(int)
    wanted = np.round(shares * pilot.clients).astype(int)
    if pilot.own_data is not None and pilot.own_data.clients is not None:
        sizes = np.array([group.clients for group in spec.groups])
        wanted = np.minimum(wanted, sizes)
    cohorts = np.maximum(wanted, LEAST_COHORT)
    faults = [
        Fault(
            "dataset",
            f"must have records for {cohort} clients of group {group.name}",
            int(size),
        )
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
        for group, size, cohort, share in zip(
            spec.groups, sizes, cohorts, shares, strict=True
        )
    )
    # The spec of the pilot, whose groups have as many clients as the data set has records for.
    pilot_groups = []
    for group, planned in zip(spec.groups, groups, strict=True):
        change = {
            "contributions": 1,
            "sampling": None,
            "clients": planned.clients,
            "delta": planned.delta,
        }
        pilot_groups.append(group.model_copy(update=change))
    kept = spec.planning.ratios == "given" or spec.cohort == round(spec.cohort or 0.5)
    changes = {
        "sampling": SamplingLaw.FIXED_SIZE,
        "groups": tuple(pilot_groups),
        "cohort": spec.cohort if kept else float(min(cohorts.sum(), spec.population)),
    }
    return Plan(
        spec=spec.model_copy(update=changes),
        groups=groups,
        objective=ObjectiveValue(name="pilot", value=0.0),
        bound={},
        mean_noise_std=0.0,
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

    def number(estimate: Estimate) -> Number:
        """An estimate with its 95% interval."""
        value, margin = estimate.value, Z_95 * estimate.error
        return Number(value=value, low=value - margin, high=value + margin)

    def pooled(name: str) -> Number:
        """The mean of the independent estimates of all rounds."""
        found: list[Estimate] = [getattr(estimates, name) for estimates in rounds]
        error = math.sqrt(sum(one.error**2 for one in found)) / len(found)
        return number(Estimate(sum(one.value for one in found) / len(found), error))

    # the root of an estimated square; a negative estimate counts as zero
    square = pooled("heterogeneity").model_dump().items()
    curvatures = [estimates.smoothness for estimates in rounds]
    return Measured(
        source=(
            f"{pilot.rounds} rounds, {len(norms) // len(rounds)} of {clients} clients per round, "
            f"data set {experiment.data.name}, partition {pilot.partition}, seed {pilot.seed}"
        ),
        update_norm=number(root_mean_square(norms)),
        update_norms=tuple(float(f"{x:.4g}") for x in np.quantile(norms, levels)),
        heterogeneity=Number(**{name: math.sqrt(max(x, 0.0)) for name, x in square}),
        smoothness=Number(
            value=max(curvatures), low=min(curvatures), high=max(curvatures)
        ),
        noise_curvature=pooled("noise_curvature"),
        sampling_curvature=pooled("sampling_curvature"),
        initial_gap=number(rounds[0].loss),
        local_variance=pooled("local_variance"),
        dissimilarity=pooled("dissimilarity"),
    )
