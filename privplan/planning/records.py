"""Plans that protect records: each client runs DP-SGD on its records with its budget.

A record of client i is in a batch with probability q_i = b_i / N_i, independently
(Poisson), in each of the K ceil(N_i / b_i) noisy steps of each round in which the
client takes part, and its budget covers all of them. The noise multiplier z_i is the
smallest that keeps it. When the cohort is smaller than the population, clients take
part in turn, each in at most ceil(T cohort / n) rounds.

Updates are private before the server receives them, so any weights are allowed. By name
of ``planning.weights`` (Malekmohammadi, Yu, Cao, ICML 2024, Table 1):

- ``inverse_variance``: 1 / sigma_i^2, what Robust-HDP estimates (Eq. 8);
- ``epsilon``: by budget, as WeiAvg and PFA do (Liu et al., 2021);
- ``population``: by records N_i, as DPFedAvg does (Noble et al., 2021);
- ``uniform``: equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.certificate import CertificateRow
from privplan.errors import Fault, InputError
from privplan.plan import GroupPlan, ObjectiveValue, Plan
from privplan.planning.assemble import make_plan
from privplan.planning.noise import least_noise
from privplan.planning.noise_certificate import (
    CERTIFICATE_ACCOUNTANTS,
    FAST_ACCOUNTANTS,
    CertifiedNoise,
    certify_noise,
    single_group,
)
from privplan.planning.problem import Problem, problem_of
from privplan.spec.spec import Spec
from privplan.spec.training import without_recipe

# --- Variance of the update that a client computes by DP-SGD on its records. ----------
# Source: Malekmohammadi, Yu, Cao (ICML 2024), Section 3. Every variance is the sum over
# the coordinates. A client takes noisy steps theta <- theta - eta g with
#
#     g = (sum of the clipped gradients of a batch + N(0, c^2 z^2 I_p)) / b,
#
# so that its update's variance is, to first order in eta, the number of steps times
# eta^2 Var(g) (Eq. 7); with a curvature lambda along a direction, a step's noise
# shrinks by 1 - eta lambda at each later step, which Eq. 7 leaves out.

Floats = NDArray[np.float64]


def clipped_gradient_variance(
    clip: float,
    z: float,
    batch_size: float,
    dimension: int,
    mean_norm: float | None = None,
) -> float:
    """Eq. 3: variance of a noisy batch gradient where every record's is clipped.

    Args:
        clip: c, the norm of every record's gradient.
        z: the noise multiplier.
        batch_size: b, expected records of a batch.
        dimension: p.
        mean_norm: norm of the mean gradient, for the variance by the choice of the
            batch, (c^2 - |mean|^2) / b; left out without it, as Eq. 3 does.
    """
    sampling = 0.0
    if mean_norm is not None:
        sampling = (clip**2 - mean_norm**2) / batch_size
    return sampling + dimension * (clip * z / batch_size) ** 2


def local_steps(records: int, batch_size: int, epochs: int) -> int:
    """E_i = K ceil(N / b): steps of a client per round."""
    return epochs * math.ceil(records / batch_size)


def update_variance(
    steps: int, learning_rate: float, gradient_variance: float
) -> float:
    """Eq. 7: variance of a client's update per round, E_i eta^2 Var(g)."""
    return steps * learning_rate**2 * gradient_variance


def oracle_weights(variances: Sequence[float] | Floats) -> Floats:
    """Eq. 8: 1 / sigma_i^2 normalised, which minimises the variance of the mean."""
    precision = 1 / np.asarray(variances, dtype=float)
    return np.asarray(precision / precision.sum())


def mean_variance(
    weights: Sequence[float] | Floats, variances: Sequence[float] | Floats
) -> float:
    """Variance of the weighted mean of independent updates, sum w_i^2 sigma_i^2."""
    return float(np.sum(np.asarray(weights) ** 2 * np.asarray(variances)))


# --- The plans. -----------------------------------------------------------------------


def solve_records(
    spec: Spec,
    *,
    participations: int | None = None,
    strictest: bool = False,
    second_opinion: bool = False,
) -> Plan:
    """The certified plan of a spec of records.

    Args:
        spec: the planning problem.
        participations: rounds in which a client takes part; the most that occur when
            clients take part in turn, where left out.
        strictest: whether all groups take the noise of the strictest budget.
        second_opinion: whether slower accountants certify the noise, too.

    Raises:
        InputError: for a spec of clients, or more participations than rounds.
    """
    if spec.unit != "record":
        raise InputError.one("unit", "must be record", spec.unit)
    if participations is None:
        participations = most_participations(spec)
    if not 1 <= participations <= spec.rounds:
        rule = f"must be in [1, {spec.rounds}]"
        raise InputError.one("participations", rule, participations)

    problem = problem_of(spec)
    accountants = CERTIFICATE_ACCOUNTANTS if second_opinion else FAST_ACCOUNTANTS
    groups: list[GroupPlan] = []
    noises: list[CertifiedNoise] = []
    for index in range(len(spec.groups)):
        group, noise = _planned_group(
            spec, problem, index, participations, strictest, accountants
        )
        groups.append(group)
        noises.append(noise)
    return _weighted(spec, groups, noises)


def _weighted(
    spec: Spec, groups: Sequence[GroupPlan], noises: Sequence[CertifiedNoise]
) -> Plan:
    """The plan of groups with their certified noise, which has yet to be weighted."""
    rows: list[CertificateRow] = []
    warnings: list[str] = []
    for noise in noises:
        rows += noise.certificate
        warnings += noise.warnings
    variances = _variances(spec, groups)
    weights = single_weights(spec, variances)
    weighted = [
        group.model_copy(update={"weight": float(weight * group.clients)})
        for group, weight in zip(groups, weights, strict=True)
    ]

    # The mean is over the clients that take part: its variance grows by population / r.
    clients = [group.clients for group in groups]
    of_all = np.repeat(variances, clients)
    variance = mean_variance(np.repeat(weights, clients), of_all) / _share(spec)
    optimum = mean_variance(oracle_weights(of_all), of_all) / _share(spec)
    # The objective is in units of the rate and of a coordinate, eta^2 p.
    unit = spec.model.parameters * spec.local.learning_rate**2
    return make_plan(
        spec,
        tuple(weighted),
        release="per_group",
        objective=ObjectiveValue(name="noise_variance", value=variance / unit),
        bound={"noise": variance / unit, "least": optimum / unit},
        mean_noise_std=math.sqrt(variance / spec.model.parameters),
        status=f"evaluated: the least noise for each client, weights {spec.weighting}",
        certificate=tuple(rows),
        warnings=tuple(warnings),
    )


def _share(spec: Spec) -> float:
    """Share of the clients that take part in a round."""
    return round(spec.expected_cohort) / spec.population


def _planned_group(
    spec: Spec,
    problem: Problem,
    index: int,
    participations: int,
    strictest: bool,
    accountants: tuple[str, ...],
) -> tuple[GroupPlan, CertifiedNoise]:
    """A group with the least noise that keeps its clients' budget, and no weight."""
    group = spec.groups[index]
    records = group.records or 1
    batch_size = spec.batch_size_of(group)
    ratio = batch_size / records
    steps = local_steps(records, batch_size, spec.local.epochs or 1)

    # The noise may follow the strictest budget; what is certified is the group's.
    client = replace(single_group(problem, index), rounds=steps * participations)
    calibrated = client
    if strictest:
        epsilon = min(problem.epsilons)
        delta = min(problem.deltas)
        calibrated = replace(client, epsilons=(epsilon,), deltas=(delta,))
    accountant = spec.planning.accountant
    z = least_noise(calibrated, 0, ratio, accountant)
    certified = certify_noise(
        client, np.array([ratio]), np.array([z]), accountant, accountants
    )
    planned = GroupPlan(
        name=group.name,
        clients=group.clients,
        epsilon=group.epsilon,
        delta=problem.deltas[index],
        contributions=group.contributions,
        sampling_ratio=_share(spec),
        expected_cohort=_share(spec) * group.clients,
        noise_multiplier=float(certified.noise[0]),
        kept_fraction=1.0,
        weight=0.0,
        records=group.records,
        record_sampling_ratio=ratio,
        steps=steps,
        participations=participations,
    )
    return planned, certified


def most_participations(spec: Spec) -> int:
    """Most rounds of a client, where clients take part in turn."""
    return math.ceil(spec.rounds * round(spec.expected_cohort) / spec.population)


def record_level(
    source: Spec | Plan,
    records: Mapping[str, int],
    participations: int | None = None,
    *,
    weights: str = "inverse_variance",
    epochs: int = 1,
    strictest: bool = False,
) -> Plan:
    """The plan in which the budgets of a client-level spec or plan protect records.

    Args:
        source: the spec of clients, or a plan of it.
        records: records of each client, by group.
        participations: as in ``solve_records``.
        weights: the name of a rule of ``planning.weights``.
        epochs: passes over the records in a round.
        strictest: as in ``solve_records``.

    Raises:
        InputError: for a spec of records, groups without records, and persons who
            contribute with several clients.
    """
    spec = source.spec if isinstance(source, Plan) else source
    if spec.unit != "client":
        raise InputError.one("unit", "must be client", spec.unit)
    faults: list[Fault] = []
    for group in spec.groups:
        count = records.get(group.name, 0)
        if count < 1:
            faults.append(Fault(f"records.{group.name}", "must be 1 or more", count))
    for group in spec.groups:
        if group.contributions > 1:
            field = f"groups.{group.name}.contributions"
            rule = "must be 1 for a method that protects records"
            faults.append(Fault(field, rule, group.contributions))
    if faults:
        raise InputError(faults)

    data = without_recipe(spec.model_dump(mode="json"))
    groups = [
        {
            "name": group.name,
            "clients": group.clients,
            "epsilon": group.epsilon,
            "delta": spec.delta_of(group),
            "records": records[group.name],
            "batch_size": min(spec.local.batch_size, records[group.name]),
        }
        for group in spec.groups
    ]
    changes = {
        "unit": "record",
        "sampling": "poisson",
        "groups": groups,
        "groups_from": None,
        "cohort": max(round(spec.expected_cohort), 1),
        "local": {**data["local"], "epochs": epochs},
        "planning": {"weights": weights},
    }
    protecting = Spec.parse({**data, **changes})
    return solve_records(protecting, participations=participations, strictest=strictest)


def noise_variances(plan: Plan) -> Floats:
    """sigma_i^2 of a group's client in round 1, by Eq. 3 and 7."""
    return _variances(plan.spec, plan.groups)


def _variances(spec: Spec, groups: Sequence[GroupPlan]) -> Floats:
    """As ``noise_variances``, of groups that are in no plan yet."""
    variances: list[float] = []
    for group in groups:
        batch_size = (group.records or 1) * (group.record_sampling_ratio or 1.0)
        gradient_variance = clipped_gradient_variance(
            spec.clipping_norm,
            group.noise_multiplier,
            batch_size,
            spec.model.parameters,
        )
        rate = spec.local.learning_rate
        variances.append(update_variance(group.steps or 1, rate, gradient_variance))
    return np.array(variances)


def client_weights(plan: Plan) -> Floats:
    """Weight of one client of each group, shape (groups,)."""
    return np.array([group.weight / group.clients for group in plan.groups])


def single_weights(spec: Spec, variances: Floats) -> Floats:
    """Weight of one client of each group; over all clients they sum to 1."""
    clients = np.array([group.clients for group in spec.groups], dtype=float)
    raw = {
        "inverse_variance": 1 / variances,
        "epsilon": np.array([group.epsilon for group in spec.groups]),
        "population": np.array([float(group.records or 1) for group in spec.groups]),
        "uniform": np.ones(len(clients)),
    }[spec.weighting]
    return np.asarray(raw / np.sum(raw * clients))
