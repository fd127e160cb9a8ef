"""Assembles plans: certifies a planner's decisions, and makes every ``Plan``.

``make_plan`` is the only place in privplan that constructs a plan; ``assemble`` goes from
decisions to a certified plan and is the last step of the planners of client-level budgets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privplan.accounting import closed_form
from privplan.accounting.certificate import CertificateRow, certify, disagreements
from privplan.errors import Fault, InfeasibleError, InputError
from privplan.plan import Clipping, GroupPlan, ObjectiveValue, Plan
from privplan.planning.error import ReleaseKind, mean_noise_multiplier
from privplan.planning.noise import (
    CERTIFICATE_ACCOUNTANTS,
    FAST_ACCOUNTANTS,
    GUARANTEE,
    certify_noise,
    history_of,
    rounded_up,
)
from privplan.planning.problem import Problem, noise_provision
from privplan.spec.spec import Spec

# --- Noise multipliers of adaptive clipping: the sum of updates and the count share one budget. --
#
# Source: G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy, Differentially Private Learning with
# Adaptive Clipping, NeurIPS 2021. Beside the sum of updates clipped at C, each round releases a
# noisy count of the updates not longer than C, and C moves towards a quantile of their norms.
#
# Both releases are of the same cohort and form one Gaussian mechanism with two components: a
# client with indicator b in {0, 1} changes the count of b - 1/2 by at most 1/2. A noise
# multiplier z of the sum and a standard deviation z_b of the noise on the count are as private as
# one sum with
#
#     (z^-2 + (2 z_b)^-2)^(-1/2)
#
# for every accountant and sampling law, because a rotation maps the two components to one. A
# share a of the precision 1 / sigma^2 goes to the count, and the rest to the sum.


@dataclass(frozen=True)
class NoiseSplit:
    """Noise of the two releases of a round.

    Attributes:
        update: noise multiplier of the sum of updates, over the clipping norm.
        count: standard deviation of the noise on the count of b - 1/2.
    """

    update: float
    count: float


def split_noise(noise_multiplier: float, share: float) -> NoiseSplit:
    """The pair with the epsilon of one sum with the noise multiplier; never more."""
    faults = []
    if not 0 < noise_multiplier < math.inf:
        rule = "must be positive and finite"
        faults.append(Fault("noise_multiplier", rule, noise_multiplier))
    if not 0 < share < 1:
        faults.append(Fault("share", "must be in (0, 1)", share))
    if faults:
        raise InputError(faults)
    update = rounded_up(noise_multiplier / math.sqrt(1 - share))
    return NoiseSplit(update, rounded_up(noise_multiplier / (2 * math.sqrt(share))))


def combined_noise_multiplier(update: float, count: float) -> float:
    """The noise multiplier of one sum with the epsilon of the pair."""
    return 1 / math.hypot(1 / update, 1 / (2 * count))


def update_noise(noise_multiplier: float, count: float) -> float:
    """z_Delta = (z^-2 - (2 z_b)^-2)^(-1/2), Andrew et al., Theorem 1."""
    if not 2 * count > noise_multiplier:
        rule = f"must be above {noise_multiplier / 2:g}, half the noise multiplier that it shares"
        raise InputError.one("count_noise_multiplier", rule, count)
    return 1 / math.sqrt(noise_multiplier**-2 - (2 * count) ** -2)


# --- Assembles plans: certifies a planner's decisions, and makes every ``Plan``. -----------------

Floats = NDArray[np.float64]


def make_plan(
    spec: Spec,
    groups: tuple[GroupPlan, ...],
    *,
    release: ReleaseKind,
    objective: ObjectiveValue,
    bound: dict[str, float],
    noise_std: float,
    status: str,
    certificate: tuple[CertificateRow, ...] | None = None,
    warnings: tuple[str, ...] = (),
    clipping: Clipping | None = None,
) -> Plan:
    """Returns the plan of certified groups, with the spec's warnings and the certificate's."""
    plan = Plan(
        spec=spec,
        release=release,
        groups=groups,
        clipping=clipping,
        objective=objective,
        bound=bound,
        noise_std=noise_std,
        status=status,
        certificate=certificate or (),
    )
    rows = certificate_of(plan) if certificate is None else certificate
    lines = (*spec.warnings(), *warnings, *disagreements(rows))
    return plan.model_copy(update={"certificate": rows, "warnings": lines})


def certificate_of(plan: Plan) -> tuple[CertificateRow, ...]:
    """Certificate of each group's whole history, by the quick accountants."""
    rows: list[CertificateRow] = []
    for group in plan.groups:
        certified = certify(
            plan.history(group),
            group=group.name,
            delta=group.delta,
            relation=plan.spec.relation,
            accountants=FAST_ACCOUNTANTS,
            unit=plan.unit,
        )
        worst = max(row.epsilon_upper for row in certified if row.guarantee)
        if worst > group.epsilon:
            raise InfeasibleError(
                f"groups.{group.name}.epsilon: {group.epsilon:g} is overspent: {GUARANTEE} "
                f"certifies only {worst:.6g} (delta {group.delta:.3g}, {plan.spec.sampling}, "
                f"{plan.spec.relation})"
            )
        rows += certified
    return tuple(rows)


@dataclass(frozen=True)
class Decisions:
    """A planner's decisions. Arrays have one entry per group, in the spec's order.

    Attributes:
        cohorts: expected clients r_m.
        noise: noise multipliers sigma_m, before certification.
        weights: w_m, summing to 1.
        kept_fractions: k_m / d.
        release: one noisy sum per group, or one of all groups.
        objective: name and value of what was minimised.
        bound: terms of the objective or of the bound behind it, by name.
        status: how far the solution is certified to be from the optimum.
        warnings: warnings of the planner.
    """

    cohorts: Floats
    noise: Floats
    weights: Floats
    kept_fractions: Floats
    release: ReleaseKind
    objective: ObjectiveValue
    bound: dict[str, float]
    status: str
    warnings: tuple[str, ...] = ()


def assemble(
    spec: Spec,
    problem: Problem,
    chosen: Decisions,
    notes: tuple[str, ...] = (),
    second_opinion: bool | None = None,
) -> Plan:
    """The certified plan of a planner's decisions."""
    ratios = np.minimum(chosen.cohorts / np.asarray(problem.clients, dtype=float), 1.0)
    accountant = spec.planning.accountant
    if second_opinion is None:
        second_opinion = accountant == "prv"
    accountants = CERTIFICATE_ACCOUNTANTS if second_opinion else FAST_ACCOUNTANTS
    sure = certify_noise(problem, ratios, _faced_noise(chosen), accountant, accountants)
    weights = chosen.weights
    if chosen.release == "joint":
        weights = chosen.cohorts / sure.noise / np.sum(chosen.cohorts / sure.noise)
    scales = _scales(sure.noise, chosen.release)
    groups = tuple(
        GroupPlan(
            name=problem.names[m],
            clients=spec.groups[m].clients,
            epsilon=problem.epsilons[m],
            delta=problem.deltas[m],
            sampling_ratio=float(ratios[m]),
            expected_cohort=float(chosen.cohorts[m]),
            noise_multiplier=float(sure.noise[m]),
            kept_fraction=float(chosen.kept_fractions[m]),
            weight=float(weights[m]),
            scale=float(scales[m]),
        )
        for m in range(len(ratios))
    )
    # the noise per coordinate of the weighted mean update, before any sparsification
    nu = mean_noise_multiplier(weights, chosen.cohorts, sure.noise, chosen.release)
    return make_plan(
        spec,
        groups,
        release=chosen.release,
        clipping=quantile_clipping(spec, float(sure.noise.min())),
        objective=chosen.objective,
        bound=chosen.bound,
        noise_std=spec.clipping_norm * nu * math.sqrt(noise_provision(spec)),
        status=chosen.status,
        certificate=sure.certificate,
        warnings=(*notes, *chosen.warnings, *sure.warnings),
    )


def _faced_noise(chosen: Decisions) -> Floats:
    """Noise multipliers that clients face under these weights, shape (groups,).

    In one sum per group's weight is r_m s_m, so that s_m is proportional to w_m / r_m and the
    noise multiplier that its clients face is nu r_m / w_m: the calibrated one where
    w_m sigma_m / r_m is largest, and more elsewhere.
    """
    if chosen.release == "per_group":
        return chosen.noise
    nu = mean_noise_multiplier(chosen.weights, chosen.cohorts, chosen.noise, "joint")
    faced = nu * chosen.cohorts / chosen.weights
    return np.array(
        [
            least if actual <= least * (1 + 1e-6) else rounded_up(actual)
            for least, actual in zip(chosen.noise, faced, strict=True)
        ]
    )


def _scales(noise: Floats, release: str) -> Floats:
    """s_m = s / sigma_m with s the least sigma, so that no update is enlarged."""
    return noise.min() / noise if release == "joint" else np.ones_like(noise)


def mean_noise(spec: Spec, chosen: Decisions, weights: Floats, noise: Floats) -> float:
    """Noise of the weighted mean update, per coordinate, before any sparsification.

    C sqrt(sum w_m^2 sigma_m^2 / r_m^2) with one sum per group;
    C max_m (w_m sigma_m / r_m) with one sum of all groups; times the root of the provision.
    """
    nu = mean_noise_multiplier(weights, chosen.cohorts, noise, chosen.release)
    return spec.clipping_norm * nu * math.sqrt(noise_provision(spec))


def quantile_clipping(spec: Spec, noise: float) -> Clipping | None:
    """Parameters of adaptive clipping; None where the spec's clipping norm is fixed."""
    requested = spec.planning.clipping
    if requested is None:
        return None
    parts = split_noise(noise, requested.share)
    return Clipping(
        quantile=requested.quantile,
        count_noise_multiplier=parts.count,
        update_noise_multiplier=parts.update,
        learning_rate=requested.learning_rate,
    )


def failed_conditions(problem: Problem, cohorts: Floats, noise: Floats) -> list[str]:
    """Warnings on the conditions of Theorem 1 that fail, one line per group."""
    lines = []
    for m, name in enumerate(problem.names):
        history = history_of(problem, min(cohorts[m] / problem.clients[m], 1.0), noise[m])
        failed = closed_form.failed_conditions(history, problem.deltas[m], problem.relation)
        if failed:
            lines.append(
                f"groups.{name}: Theorem 1's closed form is NOT a guarantee here, its "
                f"conditions fail: {'; '.join(failed)}; rely on the pld rows"
            )
    return lines
