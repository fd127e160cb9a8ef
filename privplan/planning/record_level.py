"""Plans that protect records: each client runs DP-SGD with its own budget on its own records.

A record of client i is in a batch with probability q_i = b_i / N_i, independently (Poisson), in
each of the K ceil(N_i / b_i) noisy steps of each round in which the client takes part, and its
budget covers all of them. The noise multiplier z_i is the smallest that keeps it. When the cohort
is smaller than the population, clients take part in turn, each in at most ceil(T cohort / n)
rounds.

Updates are private before the server receives them, so any weights are allowed. By name of
``planning.weights`` (Malekmohammadi, Yu, Cao, ICML 2024, Table 1):

- ``inverse_variance``: 1 / sigma_i^2, what Robust-HDP estimates (Eq. 8);
- ``epsilon``: by budget, as WeiAvg and PFA do (Liu et al., 2021);
- ``population``: by records N_i, as DPFedAvg does (Noble et al., 2021);
- ``uniform``: equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.certificate import CertificateRow
from privplan.errors import Fault, InputError
from privplan.plan import GroupPlan, ObjectiveValue, Plan
from privplan.planning.assemble import make_plan
from privplan.planning.group_noise import (
    CERTIFICATE_ACCOUNTANTS,
    FAST_ACCOUNTANTS,
    certify_noise,
    group_noise,
    single_group,
)
from privplan.planning.problem import Problem, problem_of
from privplan.planning.update_noise import (
    clipped_gradient_variance,
    local_steps,
    mean_variance,
    oracle_weights,
    update_variance,
)
from privplan.spec.recipe import without_recipe
from privplan.spec.spec import Spec

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RecordNoise:
    """DP-SGD of the clients of one group, with its certificate.

    Attributes:
        ratio: q_i = b_i / N_i.
        steps: noisy steps per round.
        z: noise multiplier of a step.
        certificate: one row per accountant, on the whole history of a record.
        warnings: one when the noise multiplier of the spec's accountant had to be raised.
    """

    ratio: float
    steps: int
    z: float
    certificate: tuple[CertificateRow, ...] = ()
    warnings: tuple[str, ...] = ()


def solve_records(
    spec: Spec,
    *,
    participations: int | None = None,
    strictest: bool = False,
    second_opinion: bool = False,
) -> Plan:
    """The certified plan of a spec that protects records.

    Args:
        spec: with ``unit: record``.
        participations: rounds in which a client takes part; ceil(rounds cohort / n) by default.
        strictest: whether all clients add the noise of the smallest epsilon and delta, the
            baseline that the paper calls minimum epsilon.
        second_opinion: whether the certificate has rows of prv-accountant.

    Raises:
        InputError: when the spec protects clients, or the participations are out of range.
        InfeasibleError: naming the group whose budget no noise meets.
        UnsupportedError: when the spec's accountant does not cover Poisson batches.
    """
    if spec.unit != "record":
        raise InputError.one("unit", "must be record", spec.unit)
    times = turns(spec) if participations is None else participations
    if not 1 <= times <= spec.rounds:
        raise InputError.one("participations", f"must be in [1, {spec.rounds}]", times)
    problem = problem_of(spec)
    noises = [_calibrated(spec, problem, m, times, strictest) for m in range(len(spec.groups))]
    accountants = CERTIFICATE_ACCOUNTANTS if second_opinion else FAST_ACCOUNTANTS
    certified = [
        _certified(spec, problem, m, times, noise, accountants) for m, noise in enumerate(noises)
    ]
    return _plan(spec, problem, certified, times)


def turns(spec: Spec) -> int:
    """Largest number of rounds in which a client takes part, when clients take part in turn."""
    return math.ceil(spec.rounds * round(spec.expected_cohort) / spec.population)


def record_spec(
    source: Spec | Plan,
    records: Mapping[str, int],
    *,
    weights: str = "inverse_variance",
    epochs: int = 1,
) -> Spec:
    """The record-level spec with the budgets of a client-level one.

    Args:
        source: the spec, or a plan of it.
        records: group name -> smallest number of records of one of its clients (N_i). Clients with
            more records, sampled with the same ratio, have the same privacy.
        weights: see the module's docstring.
        epochs: K, passes over a client's records per round.

    Returns:
        The spec with batches of ``local.batch_size``, or of all records where there are fewer.

    Raises:
        InputError: when the spec already protects records, or a group has no records.
    """
    spec = source.spec if isinstance(source, Plan) else source
    if spec.unit != "client":
        raise InputError.one("unit", "must be client", spec.unit)
    faults = [
        Fault(f"records.{group.name}", "must be 1 or more", records.get(group.name, 0))
        for group in spec.groups
        if records.get(group.name, 0) < 1
    ]
    if faults:
        raise InputError(faults)
    data = without_recipe(spec.model_dump(mode="json"))
    data["groups"] = [
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
    return Spec.parse(
        {
            **data,
            "unit": "record",
            "sampling": "poisson",
            "groups_from": None,
            "epsilon_distribution": None,
            "cohort": max(round(spec.expected_cohort), 1),
            "local": {**data["local"], "epochs": epochs},
            "planning": {"weights": weights},
        }
    )


def record_level(
    source: Spec | Plan,
    records: Mapping[str, int],
    participations: int | None = None,
    *,
    weights: str = "inverse_variance",
    epochs: int = 1,
    strictest: bool = False,
) -> Plan:
    """The record-level plan with the budgets of a client-level spec or plan.

    Each group's (epsilon, delta) then protects a record instead of a client. Arguments and errors
    are those of ``record_spec`` and ``solve_records``.
    """
    spec = record_spec(source, records, weights=weights, epochs=epochs)
    return solve_records(spec, participations=participations, strictest=strictest)


def minimum_epsilon(spec: Spec) -> Plan:
    """The baseline minimum epsilon: noise of the strictest budget, weights by records."""
    data = spec.model_dump(mode="json")
    data["planning"]["weights"] = "population"
    return solve_records(Spec.parse(data), strictest=True)


def noise_variances(plan: Plan) -> Floats:
    """sigma_i^2 of a client of each group in round 1, by Eq. 3 and Eq. 7, shape (groups,).

    Only the noise: the sampling of batches adds a variance smaller by a factor of order p.
    """
    return np.array(
        [
            _variance(
                plan.spec,
                group.records or 1,
                RecordNoise(
                    group.record_sampling_ratio or 1.0, group.steps or 1, group.noise_multiplier
                ),
            )
            for group in plan.groups
        ]
    )


def client_weights(plan: Plan) -> Floats:
    """Weight of one client of each group, shape (groups,)."""
    return np.array([group.weight / group.clients for group in plan.groups])


def _calibrated(spec: Spec, problem: Problem, m: int, times: int, strictest: bool) -> RecordNoise:
    """The smallest noise for one group, not yet certified."""
    group = spec.groups[m]
    records, batch = group.records or 1, spec.batch_size_of(group)
    steps = local_steps(records, batch, spec.local.epochs or 1)
    one = replace(single_group(problem, m), rounds=steps * times)
    if strictest:
        one = replace(one, epsilons=(min(problem.epsilons),), deltas=(min(problem.deltas),))
    ratio = batch / records
    return RecordNoise(ratio, steps, group_noise(one, 0, ratio, spec.planning.accountant))


def _certified(
    spec: Spec,
    problem: Problem,
    m: int,
    times: int,
    noise: RecordNoise,
    accountants: tuple[str, ...],
) -> RecordNoise:
    one = replace(single_group(problem, m), rounds=noise.steps * times)
    ratios, multipliers = np.array([noise.ratio]), np.array([noise.z])
    certified = certify_noise(one, ratios, multipliers, spec.planning.accountant, accountants)
    return replace(
        noise,
        z=float(certified.noise[0]),
        certificate=certified.certificate,
        warnings=certified.warnings,
    )


def _variance(spec: Spec, records: int, noise: RecordNoise) -> float:
    gradient = clipped_gradient_variance(
        spec.clipping_norm, noise.z, records * noise.ratio, spec.model.parameters
    )
    return update_variance(noise.steps, spec.local.learning_rate, gradient)


def _plan(spec: Spec, problem: Problem, certified: list[RecordNoise], times: int) -> Plan:
    """The plan of certified noise; the weights of a cohort are its clients', normalised."""
    share = round(spec.expected_cohort) / spec.population
    variances = np.array(
        [
            _variance(spec, group.records or 1, one)
            for group, one in zip(spec.groups, certified, strict=True)
        ]
    )
    single = single_weights(spec, variances)
    counts = [group.clients for group in spec.groups]
    all_variances = np.repeat(variances, counts)
    variance = mean_variance(np.repeat(single, counts), all_variances) / share
    optimum = mean_variance(oracle_weights(all_variances), all_variances) / share
    unit = spec.model.parameters * spec.local.learning_rate**2
    groups = tuple(
        GroupPlan(
            name=group.name,
            clients=group.clients,
            epsilon=group.epsilon,
            delta=problem.deltas[m],
            sampling_ratio=share,
            expected_cohort=share * group.clients,
            noise_multiplier=one.z,
            kept_fraction=1.0,
            weight=float(single[m] * group.clients),
            records=group.records,
            record_sampling_ratio=one.ratio,
            steps=one.steps,
            participations=times,
        )
        for m, (group, one) in enumerate(zip(spec.groups, certified, strict=True))
    )
    rows = tuple(row for one in certified for row in one.certificate)
    return make_plan(
        spec,
        groups,
        release="per_group",
        objective=ObjectiveValue(name="noise_variance", value=variance / unit),
        bound={"noise": variance / unit, "least": optimum / unit},
        noise_std=math.sqrt(variance / spec.model.parameters),
        status=f"evaluated: the least noise for each client, weights {spec.weighting}",
        certificate=rows,
        warnings=tuple(line for one in certified for line in one.warnings),
    )


def single_weights(spec: Spec, variances: Floats) -> Floats:
    """Weight of one client of each group; over all clients they sum to 1."""
    clients = np.array([group.clients for group in spec.groups], dtype=float)
    by_rule = {
        "inverse_variance": 1 / variances,
        "epsilon": np.array([group.epsilon for group in spec.groups]),
        "population": np.array([float(group.records or 1) for group in spec.groups]),
        "uniform": np.ones(len(clients)),
    }
    raw = by_rule[spec.weighting]
    return np.asarray(raw / np.sum(raw * clients))
