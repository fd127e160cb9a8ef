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
    certify_noise,
    single_group,
)
from privplan.planning.problem import problem_of
from privplan.spec.spec import Spec
from privplan.spec.training import without_recipe

# --- Variance of the update that a client computes by DP-SGD on its own records. -----------------
# Source: Malekmohammadi, Yu, Cao (ICML 2024), Section 3. Every variance is the sum over the
# coordinates. A client takes noisy steps theta <- theta - eta g with
#
#     g = (sum of the clipped gradients of a batch + N(0, c^2 z^2 I_p)) / b,
#
# so that its update's variance is, to first order in eta, the number of steps times
# eta^2 Var(g) (Eq. 7); with a curvature lambda along a direction, a step's noise shrinks by
# 1 - eta lambda at each later step, which Eq. 7 leaves out.

Floats = NDArray[np.float64]


def clipped_gradient_variance(
    clip: float,
    z: float,
    batch_size: float,
    dimension: int,
    mean_norm: float | None = None,
) -> float:
    """Eq. 3: variance of a noisy batch gradient when every record's gradient is clipped."""
    sampling = 0.0 if mean_norm is None else (clip**2 - mean_norm**2) / batch_size
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
    """Eq. 8: the weights that minimise the variance of the mean, 1 / sigma_i^2 normalised."""
    precision = 1 / np.asarray(variances, dtype=float)
    return np.asarray(precision / precision.sum())


def mean_variance(
    weights: Sequence[float] | Floats, variances: Sequence[float] | Floats
) -> float:
    """Variance of the weighted mean of independent updates, sum w_i^2 sigma_i^2."""
    return float(np.sum(np.asarray(weights) ** 2 * np.asarray(variances)))


# Plans that protect records: each client runs DP-SGD with its own budget on its own records.


def solve_records(
    spec: Spec,
    *,
    participations: int | None = None,
    strictest: bool = False,
    second_opinion: bool = False,
) -> Plan:
    """The certified plan of a spec of records, with each group's budget or the strictest one."""
    if spec.unit != "record":
        raise InputError.one("unit", "must be record", spec.unit)
    times = most_participations(spec) if participations is None else participations
    if not 1 <= times <= spec.rounds:
        raise InputError.one("participations", f"must be in [1, {spec.rounds}]", times)
    problem, accountant = problem_of(spec), spec.planning.accountant
    accountants = CERTIFICATE_ACCOUNTANTS if second_opinion else FAST_ACCOUNTANTS
    share = round(spec.expected_cohort) / spec.population
    groups: list[GroupPlan] = []
    rows: list[CertificateRow] = []
    warnings: list[str] = []
    for m, group in enumerate(spec.groups):
        records, batch = group.records or 1, spec.batch_size_of(group)
        steps, ratio = (
            local_steps(records, batch, spec.local.epochs or 1),
            batch / records,
        )
        own = replace(single_group(problem, m), rounds=steps * times)
        kept = own
        if strictest:
            kept = replace(
                own, epsilons=(min(problem.epsilons),), deltas=(min(problem.deltas),)
            )
        z = least_noise(kept, 0, ratio, accountant)
        sure = certify_noise(
            own, np.array([ratio]), np.array([z]), accountant, accountants
        )
        rows += sure.certificate
        warnings += sure.warnings
        groups.append(
            GroupPlan(
                name=group.name,
                clients=group.clients,
                epsilon=group.epsilon,
                delta=problem.deltas[m],
                contributions=group.contributions,
                sampling_ratio=share,
                expected_cohort=share * group.clients,
                noise_multiplier=float(sure.noise[0]),
                kept_fraction=1.0,
                weight=0.0,
                records=group.records,
                record_sampling_ratio=ratio,
                steps=steps,
                participations=times,
            )
        )
    variances, counts = _variances(spec, groups), [group.clients for group in groups]
    single, of_all = single_weights(spec, variances), np.repeat(variances, counts)
    variance = mean_variance(np.repeat(single, counts), of_all) / share
    optimum = mean_variance(oracle_weights(of_all), of_all) / share
    unit = spec.model.parameters * spec.local.learning_rate**2
    return make_plan(
        spec,
        tuple(
            group.model_copy(update={"weight": float(weight * group.clients)})
            for group, weight in zip(groups, single, strict=True)
        ),
        release="per_group",
        objective=ObjectiveValue(name="noise_variance", value=variance / unit),
        bound={"noise": variance / unit, "least": optimum / unit},
        mean_noise_std=math.sqrt(variance / spec.model.parameters),
        status=f"evaluated: the least noise for each client, weights {spec.weighting}",
        certificate=tuple(rows),
        warnings=tuple(warnings),
    )


def most_participations(spec: Spec) -> int:
    """Largest number of rounds in which a client takes part, when clients take part in turn."""
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
    """The plan in which the budgets of a client-level spec or plan protect records."""
    spec = source.spec if isinstance(source, Plan) else source
    if spec.unit != "client":
        raise InputError.one("unit", "must be client", spec.unit)
    faults = [
        Fault(f"records.{group.name}", "must be 1 or more", records.get(group.name, 0))
        for group in spec.groups
        if records.get(group.name, 0) < 1
    ]
    where, rule = (
        "groups.{}.contributions",
        "must be 1 for a method that protects records",
    )
    persons = [one for one in spec.groups if one.contributions > 1]
    faults += [
        Fault(where.format(one.name), rule, one.contributions) for one in persons
    ]
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
    """sigma_i^2 of a group's client in round 1 by Eq. 3 and 7, without batch sampling."""
    return _variances(plan.spec, plan.groups)


def _variances(spec: Spec, groups: Sequence[GroupPlan]) -> Floats:
    found = []
    for group in groups:
        batch = (group.records or 1) * (group.record_sampling_ratio or 1.0)
        clip, z = spec.clipping_norm, group.noise_multiplier
        gradient = clipped_gradient_variance(clip, z, batch, spec.model.parameters)
        found.append(
            update_variance(group.steps or 1, spec.local.learning_rate, gradient)
        )
    return np.array(found)


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
