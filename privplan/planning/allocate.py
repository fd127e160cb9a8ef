"""Multi-start search for the cohorts, noise multipliers and weights of least weighted error.

Noise multipliers come from interpolated curves during the search and are calibrated exactly at
its end; the result is compared with a lower bound from Lagrangian duality.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import ACCOUNTANTS
from privplan.planning.dual_bound import lower_bound
from privplan.planning.error_terms import (
    Allocation,
    Coefficients,
    ReleaseKind,
    best_weights,
    mean_noise_multiplier,
    terms,
)
from privplan.planning.group_noise import group_noise
from privplan.planning.noise_model import (
    BASES,
    NoiseCurve,
    base_of,
    build_curve,
    noise_at,
    refine,
)
from privplan.planning.optimiser import descend, descend_worst, project
from privplan.planning.problem import Limits, Problem, whole_cohorts
from privplan.planning.weights import weights as weights_by_rule

Floats = NDArray[np.float64]

_STARTS = 8
_ROUNDS_OF_REFINEMENT = 4
_CURVE_ERROR = 3e-3
_PROVEN = 1e-3
NEGLIGIBLE = 0.02
"""Weight over population share below which a group has a negligible weight."""


@dataclass(frozen=True)
class Task:
    """Everything that the error of a choice of cohorts depends on.

    Attributes:
        problem: the planning problem.
        limits: bounds on the decisions.
        coefficients: coefficients of the error terms.
        release: one noisy sum of all groups, or one per group.
        rule: ``optimal``, or a rule of ``privplan.planning.weights`` that the weights follow.
        accountant: the accountant that calibrates.
    """

    problem: Problem
    limits: Limits
    coefficients: Coefficients
    release: ReleaseKind
    rule: str
    accountant: str


def allocate(task: Task) -> Allocation:
    """Returns the cohorts, noise and weights of least error.

    The search runs on interpolated noise; nodes are added where the optimum lies until the
    interpolation is exact there, so the noise that is returned is calibrated.

    Raises:
        InfeasibleError: when a group's budget cannot be met.
    """
    problem, limits = task.problem, task.limits
    clients = np.asarray(problem.clients, dtype=float)
    curves = [
        build_curve(
            problem, m, task.accountant, limits.min_cohorts[m] / n, limits.max_cohorts[m] / n
        )
        for m, n in enumerate(clients)
    ]
    starts = _starts(task)
    if task.accountant in BASES:
        even = project(starts[0], limits.min_cohorts, limits.max_cohorts, problem.cohort)
        curves, _ = _refined(task, curves, even)
    cohorts, agreeing = _search(task, curves, starts)
    for _ in range(_ROUNDS_OF_REFINEMENT):
        curves, error = _refined(task, curves, cohorts)
        if error <= _CURVE_ERROR:
            break
        starts_again = [cohorts] if task.release == "joint" else [cohorts, *starts]
        cohorts, _ = _search(task, curves, starts_again)
    status = _status(task, curves, cohorts, agreeing)
    if problem.sampling.law.whole_cohorts:
        cohorts = _whole(task, curves, cohorts)
        status += "; then rounded to whole cohorts"
    noise = _calibrated(task, curves, cohorts)
    return Allocation(cohorts, noise, weights_of(task, cohorts, noise), task.release, status)


def weights_of(task: Task, cohorts: Floats, noise: Floats) -> Floats:
    """Weights for given cohorts and noise: the best, or those of the rule."""
    if task.rule == "optimal":
        return best_weights(
            cohorts, noise, task.coefficients, task.release, task.limits.min_weights
        )
    return weights_by_rule(task.rule, cohorts, noise, task.problem.clients)


def error_of(task: Task, cohorts: Floats, noise: Floats) -> float:
    """The error of cohorts and noise with the task's weights."""
    weights = weights_of(task, cohorts, noise)
    return terms(weights, cohorts, noise, task.coefficients, task.release).total


def _noise(task: Task, curves: Sequence[NoiseCurve], cohorts: Floats) -> Floats:
    ratios = cohorts / np.asarray(task.problem.clients, dtype=float)
    return np.array([noise_at(curve, ratios[m : m + 1])[0][0] for m, curve in enumerate(curves)])


def _objective(task: Task, curves: Sequence[NoiseCurve]) -> Callable[[Floats], float]:
    return lambda cohorts: error_of(task, cohorts, _noise(task, curves, cohorts))


def _starts(task: Task) -> list[Floats]:
    """Starting cohorts: equal ratios, Problem 1's ratios, then subsets of one and two groups."""
    clients = np.asarray(task.problem.clients, dtype=float)
    published = clients / np.sqrt(np.asarray(task.problem.closed_form_factors))
    shapes = [clients, published]
    for size in (1, 2):
        for chosen in combinations(range(len(clients)), size):
            subset = np.zeros_like(clients)
            subset[list(chosen)] = published[list(chosen)]
            shapes.append(subset)
    return [task.problem.cohort * shape / shape.sum() for shape in shapes[:_STARTS]]


def _search(
    task: Task, curves: Sequence[NoiseCurve], starts: Sequence[Floats]
) -> tuple[Floats, int]:
    """Returns the best of several local searches, and how many of them reached it."""
    limits, total = task.limits, task.problem.cohort
    objective = _objective(task, curves)
    projected = [project(start, limits.min_cohorts, limits.max_cohorts, total) for start in starts]
    if np.all(limits.max_cohorts - limits.min_cohorts <= 1e-9 * total):
        return projected[0], len(projected)
    scale = max(objective(projected[0]), 1e-300)
    found = [_descent(task, curves, begin, scale) for begin in projected]
    values = np.array([objective(cohorts) for cohorts in [*found, *projected]])
    best = int(values.argmin())
    agreeing = int(np.sum(values[: len(found)] <= values[best] * (1 + 1e-4)))
    return [*found, *projected][best], agreeing


def _descent(task: Task, curves: Sequence[NoiseCurve], begin: Floats, scale: float) -> Floats:
    limits, total, coefficients = task.limits, task.problem.cohort, task.coefficients
    if task.release == "per_group" or task.rule == "optimal":
        objective = _objective(task, curves)
        return descend(
            lambda r: objective(r) / scale,
            begin,
            limits.min_cohorts,
            limits.max_cohorts,
            total,
            lambda *points: _errors_beside(task, curves, np.stack(points), scale),
        )

    def parts(cohorts: Floats) -> Floats:
        noise = _noise(task, curves, cohorts)
        shares = weights_of(task, cohorts, noise) * noise / cohorts
        return np.asarray(shares * np.sqrt(coefficients.noise / scale))

    def smooth(cohorts: Floats) -> float:
        noise = _noise(task, curves, cohorts)
        weights = weights_of(task, cohorts, noise)
        error = terms(weights, cohorts, noise, coefficients, task.release)
        return (error.sampling + error.bias) / scale

    return descend_worst(smooth, parts, begin, limits.min_cohorts, limits.max_cohorts, total)


def _errors_beside(
    task: Task, curves: Sequence[NoiseCurve], points: Floats, scale: float
) -> tuple[Floats, Floats]:
    """Error over ``scale`` with each single cohort raised, and with it lowered, shape (groups,).

    A group's noise depends on its own cohort only, so every curve is evaluated three times.

    Args:
        task: the search task.
        curves: sigma(q) of each group.
        points: cohorts, raised and lowered cohorts, shape (3, groups).
        scale: divisor of the errors.
    """
    clients = np.asarray(task.problem.clients, dtype=float)
    noise = np.stack(
        [noise_at(curve, points[:, m] / clients[m])[0] for m, curve in enumerate(curves)], axis=1
    )
    found = np.empty((2, points.shape[1]))
    for side in (1, 2):
        for m in range(points.shape[1]):
            cohorts, sigma = points[0].copy(), noise[0].copy()
            cohorts[m], sigma[m] = points[side, m], noise[side, m]
            found[side - 1, m] = error_of(task, cohorts, sigma) / scale
    return found[0], found[1]


def _accountants(task: Task, curves: Sequence[NoiseCurve], cohorts: Floats) -> list[str]:
    """The accountant of each group; a group of negligible weight takes the cheaper base.

    Loss distributions of very rare participation are costly, and the noise of a group without
    weight does not change the error; the base asks for more noise, certified like all others.
    """
    weights = weights_of(task, cohorts, _noise(task, curves, cohorts))
    small = weights < NEGLIGIBLE * task.coefficients.shares
    bases = [base_of(task.accountant, delta) for delta in task.problem.deltas]
    return [
        base if negligible and base in ACCOUNTANTS else task.accountant
        for negligible, base in zip(small, bases, strict=True)
    ]


def _calibrated(task: Task, curves: Sequence[NoiseCurve], cohorts: Floats) -> Floats:
    """The noise of cohorts, exactly calibrated; the curves give the first guess."""
    ratios = np.minimum(cohorts / np.asarray(task.problem.clients, dtype=float), 1.0)
    expected = _noise(task, curves, cohorts)
    return np.array(
        [
            group_noise(
                task.problem,
                m,
                ratios[m],
                name,
                near=float(expected[m]) if name == task.accountant else None,
            )
            for m, name in enumerate(_accountants(task, curves, cohorts))
        ]
    )


def _refined(
    task: Task, curves: Sequence[NoiseCurve], cohorts: Floats
) -> tuple[list[NoiseCurve], float]:
    ratios = cohorts / np.asarray(task.problem.clients, dtype=float)
    accountants = _accountants(task, curves, cohorts)
    pairs = [
        refine(curve, task.problem, m, task.accountant, min(float(ratios[m]), 1.0))
        if accountants[m] == task.accountant
        else (curve, 0.0)
        for m, curve in enumerate(curves)
    ]
    return [curve for curve, _ in pairs], max(error for _, error in pairs)


def _status(task: Task, curves: Sequence[NoiseCurve], cohorts: Floats, agreeing: int) -> str:
    searches = f"best of {len(_starts(task))} searches, {agreeing} of them agree"
    if task.rule != "optimal":
        return f"multi-start: {searches}; no bound for weights by the rule {task.rule}"
    noise = _noise(task, curves, cohorts)
    weights = weights_of(task, cohorts, noise)
    value = terms(weights, cohorts, noise, task.coefficients, task.release).total
    nu = mean_noise_multiplier(weights, cohorts, noise, task.release)
    bound = lower_bound(
        curves, task.problem, task.limits, task.coefficients, task.release, (value, nu)
    )
    gap = max((value - bound) / value, 0.0)
    kind = "optimal" if gap <= _PROVEN else "multi-start"
    return f"{kind}: within {gap:.2g} of the dual bound; {searches}"


def _whole(task: Task, curves: Sequence[NoiseCurve], cohorts: Floats) -> Floats:
    """Rounds cohorts to whole numbers, then improves them by single moves between groups."""
    objective = _objective(task, curves)
    clients = np.asarray(task.problem.clients, dtype=float)
    limits = replace(task.limits, max_cohorts=np.minimum(task.limits.max_cohorts, clients))
    whole = whole_cohorts(cohorts, limits.max_cohorts, round(task.problem.cohort))
    whole = np.clip(whole, limits.min_cohorts, limits.max_cohorts)
    least, improved = objective(whole), True
    while improved:
        improved = False
        for giver in range(len(whole)):
            for taker in range(len(whole)):
                moved = whole.copy()
                moved[giver] -= 1
                moved[taker] += 1
                inside = (
                    moved[giver] >= limits.min_cohorts[giver]
                    and moved[taker] <= limits.max_cohorts[taker]
                )
                if giver != taker and inside and objective(moved) < least * (1 - 1e-12):
                    whole, least, improved = moved, objective(moved), True
    return whole
