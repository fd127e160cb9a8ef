"""Assembles plans: certifies a planner's decisions, and makes every ``Plan``.

``make_plan`` is the only place in privplan that constructs a plan; ``assemble`` goes from
decisions to a certified plan and is the last step of the planners of client-level budgets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privplan.accounting import closed_form
from privplan.accounting.accountant import at_most
from privplan.accounting.certificate import CertificateRow, certify, disagreements
from privplan.errors import InfeasibleError, InputError
from privplan.plan import Clipping, GroupPlan, ObjectiveValue, Plan
from privplan.planning.budget import history_of
from privplan.planning.error import ReleaseKind, mean_noise_multiplier
from privplan.planning.noise import GUARANTEE, rounded_up
from privplan.planning.noise_certificate import (
    CERTIFICATE_ACCOUNTANTS,
    FAST_ACCOUNTANTS,
    certify_noise,
)
from privplan.planning.problem import Problem, noise_provision
from privplan.spec.spec import Spec

# --- Noise multipliers of adaptive clipping: the sum of updates and the count share one budget. --
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


def split_noise(noise_multiplier: float, share: float) -> tuple[float, float]:
    """Noise multiplier of the sum, and deviation of the count, with the epsilon of one sum."""
    update = rounded_up(noise_multiplier / math.sqrt(1 - share))
    return update, rounded_up(noise_multiplier / (2 * math.sqrt(share)))


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
    mean_noise_std: float,
    status: str,
    certificate: tuple[CertificateRow, ...] | None = None,
    warnings: tuple[str, ...] = (),
    clipping: Clipping | None = None,
) -> Plan:
    """Returns the plan of certified groups, with the spec's warnings and the certificate's."""
    plan = Plan(
        spec=spec, release=release, groups=groups, clipping=clipping, objective=objective,
        bound=bound, mean_noise_std=mean_noise_std, status=status, certificate=certificate or (),
    )  # fmt: skip
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
                f"certifies only {at_most(worst, 6)} (delta {group.delta:.3g}, "
                f"{plan.law_of(group)}, {plan.spec.relation})"
            )
        rows += certified
    return tuple(rows)


@dataclass(frozen=True)
class Decisions:
    """A planner's decisions. Arrays have one entry per group, in the spec's order."""

    cohorts: Floats  # expected clients r_m
    noise: Floats  # noise multipliers sigma_m, before certification
    weights: Floats  # w_m, summing to 1
    kept_fractions: Floats  # k_m / d
    release: ReleaseKind  # one noisy sum per group, or one of all groups
    objective: ObjectiveValue  # name and value of what was minimised
    bound: dict[str, float]  # terms of the objective or of the bound behind it, by name
    status: str  # how far the solution is certified to be from the optimum
    warnings: tuple[str, ...] = ()


def assemble(
    spec: Spec,
    problem: Problem,
    chosen: Decisions,
    notes: tuple[str, ...] = (),
    second_opinion: bool | None = None,
) -> Plan:
    """The certified plan of a planner's decisions."""
    ratios = problem.ratios(chosen.cohorts)
    accountant = spec.planning.accountant
    if second_opinion is None:
        second_opinion = accountant == "prv"
    accountants = CERTIFICATE_ACCOUNTANTS if second_opinion else FAST_ACCOUNTANTS
    sure = certify_noise(
        problem, ratios, _noise_of_weights(chosen), accountant, accountants
    )
    weights, joint = chosen.weights, chosen.release == "joint"
    if joint:
        weights = chosen.cohorts / sure.noise / np.sum(chosen.cohorts / sure.noise)
    # s_m = s / sigma_m with s the least sigma, so that no update is enlarged
    scales = sure.noise.min() / sure.noise if joint else np.ones_like(sure.noise)
    groups = tuple(
        GroupPlan(
            name=problem.names[m],
            clients=spec.groups[m].clients,
            epsilon=problem.epsilons[m],
            delta=problem.deltas[m],
            contributions=spec.groups[m].contributions,
            sampling=spec.groups[m].sampling,
            sampling_ratio=float(ratios[m]),
            expected_cohort=float(chosen.cohorts[m]),
            noise_multiplier=float(sure.noise[m]),
            kept_fraction=float(chosen.kept_fractions[m]),
            weight=float(weights[m]),
            scale=float(scales[m]),
        )
        for m in range(len(ratios))
    )
    return make_plan(
        spec,
        groups,
        release=chosen.release,
        clipping=quantile_clipping(spec, float(sure.noise.min())),
        objective=chosen.objective,
        bound=chosen.bound,
        mean_noise_std=mean_noise(
            spec, replace(chosen, weights=weights, noise=sure.noise)
        ),
        status=chosen.status,
        certificate=sure.certificate,
        warnings=(*notes, *chosen.warnings, *sure.warnings),
    )


def _noise_of_weights(chosen: Decisions) -> Floats:
    """Noise multipliers of the groups under these weights, shape (groups,).

    In one sum of all groups a group's weight is r_m s_m, so that s_m is proportional to w_m / r_m
    and its noise multiplier is nu r_m / w_m: the calibrated one where w_m sigma_m / r_m is largest,
    and more elsewhere.
    """
    if chosen.release == "per_group":
        return chosen.noise
    nu = mean_noise_multiplier(chosen.weights, chosen.cohorts, chosen.noise, "joint")
    found = nu * chosen.cohorts / chosen.weights
    return np.array(
        [
            least if actual <= least * (1 + 1e-6) else rounded_up(actual)
            for least, actual in zip(chosen.noise, found, strict=True)
        ]
    )


def mean_noise(spec: Spec, chosen: Decisions) -> float:
    """C sqrt(sum w_m^2 sigma_m^2 / r_m^2), or C max_m (w_m sigma_m / r_m) jointly, by provision."""
    nu = mean_noise_multiplier(
        chosen.weights, chosen.cohorts, chosen.noise, chosen.release
    )
    return spec.clipping_norm * nu * math.sqrt(noise_provision(spec))


def quantile_clipping(spec: Spec, noise: float) -> Clipping | None:
    """Parameters of adaptive clipping; None where the spec's clipping norm is fixed."""
    requested = spec.planning.clipping
    if requested is None:
        return None
    update, count = split_noise(noise, requested.share)
    return Clipping(
        quantile=requested.quantile,
        count_noise_multiplier=count,
        update_noise_multiplier=update,
        learning_rate=requested.learning_rate,
    )


def failed_conditions(problem: Problem, cohorts: Floats, noise: Floats) -> list[str]:
    """Warnings on the conditions of Theorem 1 that fail, one line per group."""
    lines, ratios = [], problem.ratios(cohorts)
    for m, name in enumerate(problem.names):
        history = history_of(problem, m, float(ratios[m]), noise[m])
        failed = closed_form.failed_conditions(
            history, problem.deltas[m], problem.relation
        )
        if failed:
            lines.append(
                f"groups.{name}: Theorem 1's closed form is NOT a guarantee here, its "
                f"conditions fail: {'; '.join(failed)}; rely on the pld rows"
            )
    return lines
