"""Decisions into a certified plan: the last step of every planner."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.certificate import disagreements
from privplan.plan import Clipping, GroupPlan, Objective, Plan
from privplan.planning.adaptive_clipping import split_noise
from privplan.planning.error_terms import ReleaseKind, spread
from privplan.planning.group_noise import CERTIFICATE_ACCOUNTANTS, certify_noise, rounded_up
from privplan.planning.problem import Problem
from privplan.planning.sparsification import error
from privplan.spec.spec import Spec

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Decisions:
    """What a planner chose. Arrays have one entry a group, in the order of the spec.

    Attributes:
        cohorts: expected clients r_m.
        noise: noise multipliers sigma_m, before certification.
        weights: w_m, summing to 1.
        kept_fractions: k_m / d.
        release: one noisy sum a group, or one of all groups.
        objective: what was minimised.
        bound: terms of the objective or of the bound behind it, by name.
        status: how far the solution is certified to be from the optimum.
        warnings: what the planner has to say.
    """

    cohorts: Floats
    noise: Floats
    weights: Floats
    kept_fractions: Floats
    release: ReleaseKind
    objective: Objective
    bound: dict[str, float]
    status: str
    warnings: tuple[str, ...] = ()


def assemble(
    spec: Spec,
    problem: Problem,
    chosen: Decisions,
    notes: tuple[str, ...] = (),
    opinions: tuple[str, ...] = CERTIFICATE_ACCOUNTANTS,
) -> Plan:
    """The certified plan of a planner's decisions.

    Args:
        spec: the planning problem.
        problem: the same as numbers.
        chosen: the decisions.
        notes: further warnings to put on the plan.
        opinions: the accountants of the certificate.

    Raises:
        InfeasibleError: when the guarantee finds a budget overspent whatever the noise.
    """
    ratios = np.minimum(chosen.cohorts / np.asarray(problem.clients, dtype=float), 1.0)
    sure = certify_noise(problem, ratios, _one_noise(chosen), spec.planning.accountant, opinions)
    weights = chosen.weights
    if chosen.release == "joint":
        weights = chosen.cohorts / sure.noise / np.sum(chosen.cohorts / sure.noise)
    scales = _scales(sure.noise, chosen.release)
    groups = tuple(
        GroupPlan(
            name=problem.names[m],
            clients=problem.clients[m],
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
    warnings = [*spec.warnings(), *notes, *chosen.warnings, *sure.warnings]
    warnings += disagreements(sure.certificate)
    noise_std = mean_noise(spec, chosen, weights, sure.noise)
    return Plan(
        spec=spec,
        release=chosen.release,
        groups=groups,
        clipping=_clipping(spec, sure.noise),
        objective=chosen.objective,
        bound=chosen.bound,
        noise_std=noise_std,
        status=chosen.status,
        certificate=sure.certificate,
        warnings=tuple(warnings),
    )


def _one_noise(chosen: Decisions) -> Floats:
    """Noise multipliers, shape (groups,), that one noisy sum with these weights really has.

    In one sum a group's weight is r_m s_m, so that s_m is proportional to w_m / r_m and the
    noise multiplier that its clients face is nu r_m / w_m: the calibrated one where
    w_m sigma_m / r_m is largest, and more elsewhere.
    """
    if chosen.release == "per_group":
        return chosen.noise
    nu = spread(chosen.weights, chosen.cohorts, chosen.noise, "joint")
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
    """Noise of the weighted mean update, a coordinate, before any sparsification.

    C sqrt(sum w_m^2 sigma_m^2 / r_m^2) with one sum a group;
    C max_m (w_m sigma_m / r_m) with one sum of all groups; times the root of the provision.
    """
    nu = spread(weights, chosen.cohorts, noise, chosen.release)
    return spec.clipping_norm * nu * math.sqrt(noise_provision(spec))


def noise_provision(spec: Spec) -> float:
    """How much more variance is drawn than the noise multipliers say.

    Where a fraction x of the cohort may stay silent, the shares of the others carry its noise
    too, 1 / (1 - x) if nobody is; where a share a of the precision counts updates below the
    clipping norm, the sum of updates gets 1 / (1 - a).
    """
    clipping = spec.planning.clipping
    counted = 0.0 if clipping is None else clipping.share
    return 1 / ((1 - spec.planning.dropout_tolerance) * (1 - counted))


def _clipping(spec: Spec, noise: Floats) -> Clipping | None:
    """The plan's quantile clipping; a group of scale 1 has the least noise multiplier."""
    asked = spec.planning.clipping
    if asked is None:
        return None
    parts = split_noise(float(noise.min()), asked.share)
    return Clipping(
        quantile=asked.quantile,
        count_noise_multiplier=parts.count,
        update_noise_multiplier=parts.update,
        learning_rate=asked.learning_rate,
    )


def published_terms(
    problem: Problem,
    weights: Floats,
    cohorts: Floats,
    noise: Floats,
    kept_fractions: Floats,
    release: ReleaseKind,
) -> dict[str, float]:
    """The terms of Theorem 3 that planning can move, as Appendix F has them.

    In units of L d C^2 (smoothness, parameters, squared clipping norm), with the local
    variance at its bound C^2. Theorem 3 prints r_m q_m in its last term; its proof and
    Problem 1 have r_m^2, which is what stands here.
    """
    constants = problem.constants
    heard = spread(weights * np.sqrt(kept_fractions), cohorts, noise, release) ** 2
    return {
        "local_variance": constants.mu4,
        "sparsification": float(constants.mu4 * np.sum(weights * error(kept_fractions))),
        "privacy_noise": float(constants.mu5 * heard),
    }
