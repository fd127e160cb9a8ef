"""Assembles plans: certifies a planner's decisions, and makes every ``Plan``.

A weight that a group has in one sum of all groups decides its noise, and the noise of
the certificate its scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privplan.accounting import closed_form
from privplan.accounting.accountant import at_most
from privplan.accounting.certificate import CertificateRow, certify, disagreements
from privplan.errors import InfeasibleError
from privplan.plan import (
    Clipping,
    GroupPlan,
    NoiseFactors,
    ObjectiveValue,
    Plan,
)
from privplan.planning.adaptive_clipping import quantile_clipping
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

Floats = NDArray[np.float64]

# A noise multiplier that is above the calibrated one by less is that one, but for
# rounding.
_SAME_NOISE = 1e-6


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
    """The plan of certified groups, with warnings of the spec and the certificate."""
    plan = Plan(
        spec=spec,
        release=release,
        groups=groups,
        clipping=clipping,
        objective=objective,
        bound=bound,
        mean_noise_std=mean_noise_std,
        status=status,
        certificate=certificate or (),
        noise_factors=NoiseFactors.of_law(spec.sampling),
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
                f"certifies only {at_most(worst, 6)} (delta {group.delta:.3g}, "
                f"{plan.law_of(group)}, {plan.spec.relation})"
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
        warnings: what the plan has to say on the decisions.
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
    """The certified plan of a planner's decisions.

    Args:
        spec: the spec, without free rounds, cohort or clipping norm.
        problem: the same as numbers.
        chosen: the decisions.
        notes: on free choices, which come first among the warnings.
        second_opinion: as in ``privplan.planning.solver.solve``.
    """
    ratios = problem.ratios(chosen.cohorts)
    accountant = spec.planning.accountant
    if second_opinion is None:
        second_opinion = accountant == "prv"
    accountants = CERTIFICATE_ACCOUNTANTS if second_opinion else FAST_ACCOUNTANTS
    noise = _noise_of_weights(chosen)
    certified = certify_noise(problem, ratios, noise, accountant, accountants)
    # Weights and scales of one sum follow from the noise. s_m = s / sigma_m with s the
    # least sigma, so that no update is enlarged.
    weights = chosen.weights
    scales = np.ones_like(certified.noise)
    if chosen.release == "joint":
        reach = chosen.cohorts / certified.noise
        weights = reach / np.sum(reach)
        scales = certified.noise.min() / certified.noise
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
            noise_multiplier=float(certified.noise[m]),
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
        clipping=quantile_clipping(spec, float(certified.noise.min())),
        objective=chosen.objective,
        bound=chosen.bound,
        mean_noise_std=mean_noise(
            spec, replace(chosen, weights=weights, noise=certified.noise)
        ),
        status=chosen.status,
        certificate=certified.certificate,
        warnings=(*notes, *chosen.warnings, *certified.warnings),
    )


def _noise_of_weights(chosen: Decisions) -> Floats:
    """Noise multipliers of the groups under these weights, shape (groups,).

    In one sum of all groups a group's weight is r_m s_m, so that s_m is proportional to
    w_m / r_m and its noise multiplier is nu r_m / w_m: the calibrated one where w_m
    sigma_m / r_m is largest, and more elsewhere.
    """
    noise = chosen.noise
    if chosen.release == "joint":
        nu = mean_noise_multiplier(chosen.weights, chosen.cohorts, noise, "joint")
        implied = nu * chosen.cohorts / chosen.weights
        is_calibrated = implied <= noise * (1 + _SAME_NOISE)
        noise = np.where(is_calibrated, noise, implied)
    return np.array([rounded_up(float(multiplier)) for multiplier in noise])


def mean_noise(spec: Spec, chosen: Decisions) -> float:
    """Standard deviation of the noise of the mean update per coordinate, by provision.

    C sqrt(sum w_m^2 sigma_m^2 / r_m^2), or C max_m (w_m sigma_m / r_m) with one sum.
    """
    nu = mean_noise_multiplier(
        chosen.weights, chosen.cohorts, chosen.noise, chosen.release
    )
    return spec.clipping_norm * nu * math.sqrt(noise_provision(spec))


def failed_conditions(problem: Problem, cohorts: Floats, noise: Floats) -> list[str]:
    """Warnings on the conditions of Theorem 1 that fail, one line per group."""
    lines: list[str] = []
    ratios = problem.ratios(cohorts)
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
