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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.certificate import CertificateRow
from privplan.errors import Fault, InputError
from privplan.plan import GroupPlan, ObjectiveValue, Plan
from privplan.planning.assemble import make_plan
from privplan.planning.choices import minimiser
from privplan.planning.noise import (
    CERTIFICATE_ACCOUNTANTS,
    FAST_ACCOUNTANTS,
    certify_noise,
    exact_noise,
    group_noise,
    single_group,
)
from privplan.planning.objectives import clip_bias
from privplan.planning.problem import Problem, problem_of
from privplan.spec.planning import RECORD_FREE
from privplan.spec.spec import Spec
from privplan.spec.training import without_recipe

# --- Variance of the update that a client computes by DP-SGD on its own records. -----------------
#
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
    clip: float, z: float, batch_size: float, dimension: int, mean_norm: float | None = None
) -> float:
    """Eq. 3: variance of a noisy batch gradient when every record's gradient is clipped."""
    sampling = 0.0 if mean_norm is None else (clip**2 - mean_norm**2) / batch_size
    return sampling + dimension * (clip * z / batch_size) ** 2


def unclipped_gradient_variance(
    gradient_variance: float, clip: float, z: float, batch_size: float, dimension: int
) -> float:
    """Eq. 5: upper bound on the variance of a noisy batch gradient when no gradient is clipped."""
    return gradient_variance + clipped_gradient_variance(clip, z, batch_size, dimension)


def local_steps(records: int, batch_size: int, epochs: int) -> int:
    """E_i = K ceil(N / b): steps of a client per round."""
    return epochs * math.ceil(records / batch_size)


def update_variance(steps: int, learning_rate: float, gradient_variance: float) -> float:
    """Eq. 7: variance of a client's update per round, E_i eta^2 Var(g)."""
    return steps * learning_rate**2 * gradient_variance


def oracle_weights(variances: Sequence[float] | Floats) -> Floats:
    """Eq. 8: the weights that minimise the variance of the mean, 1 / sigma_i^2 normalised."""
    precision = 1 / np.asarray(variances, dtype=float)
    return np.asarray(precision / precision.sum())


def mean_variance(weights: Sequence[float] | Floats, variances: Sequence[float] | Floats) -> float:
    """Variance of the weighted mean of independent updates, sum w_i^2 sigma_i^2."""
    return float(np.sum(np.asarray(weights) ** 2 * np.asarray(variances)))


# -------------------------------------------------------------------------------------------------
# Plans that protect records: each client runs DP-SGD with its own budget on its own records.


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
    """The certified plan of a spec that protects records."""
    if spec.unit != "record":
        raise InputError.one("unit", "must be record", spec.unit)
    times = most_participations(spec) if participations is None else participations
    if not 1 <= times <= spec.rounds:
        raise InputError.one("participations", f"must be in [1, {spec.rounds}]", times)
    problem = problem_of(spec)
    noises = [_calibrated(spec, problem, m, times, strictest) for m in range(len(spec.groups))]
    accountants = CERTIFICATE_ACCOUNTANTS if second_opinion else FAST_ACCOUNTANTS
    certified = [
        _certified(spec, problem, m, times, noise, accountants) for m, noise in enumerate(noises)
    ]
    return _plan(spec, problem, certified, times)


def most_participations(spec: Spec) -> int:
    """Largest number of rounds in which a client takes part, when clients take part in turn."""
    return math.ceil(spec.rounds * round(spec.expected_cohort) / spec.population)


def record_spec(
    source: Spec | Plan,
    records: Mapping[str, int],
    *,
    weights: str = "inverse_variance",
    epochs: int = 1,
) -> Spec:
    """The record-level spec with the budgets of a client-level one."""
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


# --- Decides rounds, epochs, batch sizes and clipping norm of plans that protect records. --------
#
# With gamma = sum_i w_i eta E_i the length of a round's step, the descent lemma of
# docs/planning.md bounds the mean squared gradient over T rounds by
#
#     2 (F_0 - F*) / (gamma T) + (L_n V_noise + L_s V_batches) / gamma + bias^2.
#
# V_noise and V_batches are the variances of the mean update by DP noise and by the draw of
# batches (Malekmohammadi, Yu and Cao 2024, Eq. 3 and 7), L_n and L_s the curvatures that they
# meet, and bias the mean excess of a pilot's gradient norms over the clipping norm. More steps
# shorten the first term and cost noise; larger batches need fewer steps and less noise; a smaller
# norm has less noise and more bias. The choices are improved in turn; noise comes from RDP until
# they are made.

_EPOCHS = (1, 2, 3, 4, 6, 8, 12)
_FACTORS = 9
_SWEEPS = 3


def decide_record_choices(spec: Spec) -> tuple[Spec, tuple[str, ...]]:
    """Returns the spec with its free choices decided, and notes on them."""
    free = [name for name in RECORD_FREE if name in spec.planning.free]
    if not free:
        return spec, ()
    kept = [name for name in spec.planning.free if name not in RECORD_FREE]
    decided = _with(spec, planning={**spec.planning.model_dump(mode="json"), "free": kept})
    most = spec.planning.max_rounds or 10 * spec.rounds
    best = math.inf
    for _ in range(_SWEEPS):
        for name in free:
            decided = _STEPS[name](decided, most)
        error = run_error(decided)
        if error > best * (1 - 1e-3):
            break
        best = error
    return decided, tuple(f"planning.free: {name} is {_shown(decided, name)}" for name in free)


def run_error(spec: Spec) -> float:
    """The bound of the module's docstring for a spec with constants."""
    constants = spec.planning.constants
    assert constants is not None  # free choices require them
    problem, times = problem_of(spec), most_participations(spec)
    clients = np.asarray(problem.clients, dtype=float)
    lengths, noise, batches = [], [], []
    for m, group in enumerate(spec.groups):
        records, batch = group.records or 1, spec.batch_size_of(group)
        steps = local_steps(records, batch, spec.local.epochs or 1)
        one = replace(single_group(problem, m), rounds=steps * times)
        z = exact_noise(one, 0, min(batch / records, 1.0), "rdp")
        rate, clip = spec.local.learning_rate, spec.clipping_norm
        lengths.append(rate * steps)
        gradient = spec.model.parameters * (clip * z / batch) ** 2
        noise.append(update_variance(steps, rate, gradient))
        batches.append(update_variance(steps, rate, clip**2 / batch))
    weights = single_weights(spec, np.array(noise))
    share = round(spec.expected_cohort) / spec.population
    length = float(np.sum(clients * weights * np.array(lengths)))
    squares = clients * weights**2 / share
    random = (constants.noise_curvature or constants.smoothness) * float(squares @ np.array(noise))
    random += (constants.sampling_curvature or constants.smoothness) * float(
        squares @ np.array(batches)
    )
    progress = 2 * constants.initial_gap / (length * spec.rounds)
    return progress + random / length + clip_bias(spec) ** 2


def _rounds(spec: Spec, most: int) -> Spec:
    def at(log_rounds: float) -> Spec:
        return _with(spec, rounds=max(round(math.exp(log_rounds)), 1))

    return at(minimiser(lambda x: run_error(at(x)), 0.0, math.log(most)))


def _epochs(spec: Spec, most: int) -> Spec:
    local = spec.local.model_dump(mode="json")
    return min(
        (_with(spec, local={**local, "epochs": epochs}) for epochs in _EPOCHS), key=run_error
    )


def _batch_size(spec: Spec, most: int) -> Spec:
    """All batches times one factor, up to all records."""
    sizes = np.array([spec.batch_size_of(group) for group in spec.groups], dtype=float)
    records = np.array([group.records or 1 for group in spec.groups], dtype=float)
    factors = np.geomspace(1 / sizes.min(), float(np.max(records / sizes)), _FACTORS)

    def at(factor: float) -> Spec:
        groups = [
            {**group.model_dump(mode="json"), "batch_size": int(np.clip(round(b * factor), 1, n))}
            for group, b, n in zip(spec.groups, sizes, records, strict=True)
        ]
        return _with(spec, groups=groups)

    return min((at(float(factor)) for factor in (1.0, *factors)), key=run_error)


def _clipping_norm(spec: Spec, most: int) -> Spec:
    norms = np.asarray(spec.planning.update_norms, dtype=float)

    def at(log_clip: float) -> Spec:
        return _with(spec, clipping_norm=math.exp(log_clip))

    low, high = math.log(norms.max() / 30), math.log(norms.max())
    return at(minimiser(lambda x: run_error(at(x)), low, high))


_STEPS: dict[str, Callable[[Spec, int], Spec]] = {
    "rounds": _rounds,
    "epochs": _epochs,
    "batch_size": _batch_size,
    "clipping_norm": _clipping_norm,
}


def _shown(spec: Spec, name: str) -> str:
    if name == "epochs":
        return f"{spec.local.epochs or 1}"
    if name == "batch_size":
        sizes = dict.fromkeys(spec.batch_size_of(group) for group in spec.groups)
        return ", ".join(map(str, sizes))
    return f"{getattr(spec, name):g}"


def _with(spec: Spec, **changes: Any) -> Spec:
    return Spec.parse({**spec.model_dump(mode="json"), **changes})
