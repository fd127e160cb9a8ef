"""Plans that protect records: each client runs DP-SGD with its own budget on its own records.

A record of client i is in a batch with chance q_i = b_i / N_i, by itself (Poisson), in each of
the K ceil(N_i / b_i) noisy steps of each round that the client takes part in, and its budget
is spent over all of them. The noise multiplier z_i is the least that keeps it. Clients who do
not all fit into a round take turns, so that each takes part in at most ceil(T cohort / n).

What the server sees of a client is already private, so it may weight clients as it likes. By
name of ``planning.weights`` (Malekmohammadi, Yu, Cao, ICML 2024, Table 1):

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

from privplan.accounting.certificate import CertificateRow, disagreements
from privplan.errors import Fault, InputError
from privplan.plan import GroupPlan, Objective, Plan
from privplan.planning.group_noise import OPINIONS, QUICK, calibrated, certify_noise
from privplan.planning.problem import Problem, problem_of
from privplan.planning.update_noise import (
    clipped_gradient_variance,
    local_steps,
    mean_variance,
    oracle_weights,
    update_variance,
)
from privplan.spec.spec import Spec

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RecordNoise:
    """What the clients of one group do, and its certificate.

    Attributes:
        ratio: q_i = b_i / N_i.
        steps: noisy steps in a round.
        z: noise multiplier of a step.
        certificate: what each accountant says of a record's whole history.
        warnings: where the spec's accountant asked for too little noise.
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
        participations: rounds that a client takes part in; ceil(rounds cohort / n) when left
            out.
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
    noises = [_noise(spec, problem, m, times, strictest) for m in range(len(spec.groups))]
    opinions = OPINIONS if second_opinion else QUICK
    sure = [_certified(spec, problem, m, times, one, opinions) for m, one in enumerate(noises)]
    return _plan(spec, problem, sure, times)


def turns(spec: Spec) -> int:
    """Rounds that a client takes part in, at most, when clients take turns."""
    return math.ceil(spec.rounds * round(spec.expected_cohort) / spec.population)


def record_spec(
    source: Spec | Plan,
    records: Mapping[str, int],
    *,
    weights: str = "inverse_variance",
    epochs: int = 1,
) -> Spec:
    """A spec of clients as a spec of records: the same budgets, each for a record.

    Args:
        source: the spec, or a plan of it.
        records: for each group by name, the fewest records that one of its clients holds
            (N_i). Clients with more, who draw with the same chance, are as private.
        weights: see the file's docstring.
        epochs: K, passes over a client's records in a round.

    Returns:
        The spec with batches of ``local.batch_size``, or of all records where there are
        fewer; its whole cohort takes turns.

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
    data = spec.model_dump(mode="json")
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

    Each group's (epsilon, delta) is kept, for a record where it was for a client; see
    ``record_spec`` and ``solve_records``, whose arguments and errors these are.
    """
    spec = record_spec(source, records, weights=weights, epochs=epochs)
    return solve_records(spec, participations=participations, strictest=strictest)


def minimum_epsilon(spec: Spec) -> Plan:
    """The baseline minimum epsilon: the noise of the strictest budget, weights by records."""
    data = spec.model_dump(mode="json")
    data["planning"]["weights"] = "population"
    return solve_records(Spec.parse(data), strictest=True)


def noise_variances(plan: Plan) -> Floats:
    """sigma_i^2 of a client of each group in round 1, by Eq. 3 and Eq. 7, shape (groups,).

    The noise alone: what the choice of a batch adds is below it by a factor of order p.
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
    """Weight of a single client of each group, shape (groups,)."""
    return np.array([group.weight / group.clients for group in plan.groups])


def _noise(spec: Spec, problem: Problem, m: int, times: int, strictest: bool) -> RecordNoise:
    """The least noise for one group, not yet certified."""
    group = spec.groups[m]
    records, batch = group.records or 1, spec.batch_size_of(group)
    steps = local_steps(records, batch, spec.local.epochs or 1)
    alone = _alone(problem, m, steps * times)
    if strictest:
        alone = replace(alone, epsilons=(min(problem.epsilons),), deltas=(min(problem.deltas),))
    ratio = batch / records
    z = calibrated(alone, np.array([ratio]), spec.planning.accountant)
    return RecordNoise(ratio, steps, float(z[0]))


def _certified(
    spec: Spec, problem: Problem, m: int, times: int, one: RecordNoise, opinions: tuple[str, ...]
) -> RecordNoise:
    alone = _alone(problem, m, one.steps * times)
    ratio, z = np.array([one.ratio]), np.array([one.z])
    sure = certify_noise(alone, ratio, z, spec.planning.accountant, opinions)
    return replace(
        one, z=float(sure.noise[0]), certificate=sure.certificate, warnings=sure.warnings
    )


def _alone(problem: Problem, m: int, releases: int) -> Problem:
    """One group's budget over so many releases."""
    return replace(
        problem,
        names=(problem.names[m],),
        clients=(problem.clients[m],),
        epsilons=(problem.epsilons[m],),
        deltas=(problem.deltas[m],),
        rounds=releases,
    )


def _variance(spec: Spec, records: int, one: RecordNoise) -> float:
    gradient = clipped_gradient_variance(
        spec.clipping_norm, one.z, records * one.ratio, spec.model.parameters
    )
    return update_variance(one.steps, spec.local.learning_rate, gradient)


def _plan(spec: Spec, problem: Problem, sure: list[RecordNoise], times: int) -> Plan:
    """The plan of certified noise; a round's weights are those of its clients, normalised."""
    share = round(spec.expected_cohort) / spec.population
    variances = np.array(
        [
            _variance(spec, group.records or 1, one)
            for group, one in zip(spec.groups, sure, strict=True)
        ]
    )
    single = _single_weights(spec, variances)
    everybody = np.repeat(variances, problem.clients)
    found = mean_variance(np.repeat(single, problem.clients), everybody) / share
    least = mean_variance(oracle_weights(everybody), everybody) / share
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
        for m, (group, one) in enumerate(zip(spec.groups, sure, strict=True))
    )
    rows = tuple(row for one in sure for row in one.certificate)
    warnings = [*spec.warnings(), *(line for one in sure for line in one.warnings)]
    return Plan(
        spec=spec,
        groups=groups,
        objective=Objective(name="noise_variance", value=found / unit),
        bound={"noise": found / unit, "least": least / unit},
        noise_std=math.sqrt(found / spec.model.parameters),
        status=f"evaluated: the least noise for each client, weights {spec.weighting}",
        certificate=rows,
        warnings=(*warnings, *disagreements(rows)),
    )


def _single_weights(spec: Spec, variances: Floats) -> Floats:
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
