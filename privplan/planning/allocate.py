"""Multi-start search for the cohorts, noise multipliers and weights of least weighted error.

Noise multipliers come from interpolated curves during the search and are calibrated exactly at
its end; the result is compared with a lower bound from Lagrangian duality. Where the noise of a
group jumps with its ratio, both sides of the jump are searched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privplan.errors import InfeasibleError
from privplan.planning.dual_bound import relative_gap
from privplan.planning.error_terms import (
    Allocation,
    Coefficients,
    ReleaseKind,
    best_weights,
    least_error,
    least_error_with_floors,
    terms,
)
from privplan.planning.group_noise import GUARANTEE, group_noise
from privplan.planning.loss_nodes import least_noise
from privplan.planning.noise_curve import NoiseCurves
from privplan.planning.noise_jumps import above_jumps, sides_of_jumps
from privplan.planning.noise_model import FROM_LOSSES, build_curve, cheaper, refine
from privplan.planning.optimiser import descend, descend_worst, project
from privplan.planning.problem import Limits, Problem, whole_cohorts
from privplan.planning.weights import weights as weights_by_rule

Floats = NDArray[np.float64]

_STARTS = 8
_FEW_STARTS = 2
_ROUNDS_OF_REFINEMENT = 4
_CURVE_ERROR = 3e-3
_NODE_ERROR = 1e-5
_PROVEN = 1e-3
_SETTLED = 1e-4
"""Gap to the dual bound that further searches could close, below which there are none."""
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
    problem, curves = task.problem, curves_of(task)
    task = _above_jumps(task, curves)
    starts = _starts(task)
    few = starts[:_FEW_STARTS]
    curves, cohorts, agreeing = _optimum(task, curves, few)
    gap = _dual_gap(task, curves, cohorts)
    if len(few) < len(starts) and (gap is None or gap > _SETTLED):
        few = starts
        curves, cohorts, agreeing = _optimum(task, curves, starts)
        gap = _dual_gap(task, curves, cohorts)
    status = _status(task, gap, len(few), agreeing)
    if problem.sampling.law.whole_cohorts:
        cohorts = _whole(task, curves, cohorts)
        status += "; then rounded to whole cohorts"
    noise = _calibrated(task, curves, cohorts)
    return Allocation(cohorts, noise, weights_of(task, cohorts, noise), task.release, status)


def estimated(task: Task) -> Allocation:
    """``allocate`` with the noise of the curves: within 1e-3 of calibrated noise, and faster.

    For choices that compare many tasks; what is chosen is then allocated and certified.

    Raises:
        InfeasibleError: when a group's budget cannot be met.
    """
    curves = curves_of(task)
    task = _above_jumps(task, curves)
    curves, cohorts, _ = _optimum(task, curves, _starts(task)[:_FEW_STARTS])
    if task.problem.sampling.law.whole_cohorts:
        cohorts = _whole(task, curves, cohorts)
    noise = _noise(task, curves, cohorts)
    return Allocation(cohorts, noise, weights_of(task, cohorts, noise), task.release, "estimated")


def curves_of(task: Task) -> NoiseCurves:
    """The noise curves of all groups over the ratios that the limits allow."""
    limits = task.limits
    return NoiseCurves(
        [
            build_curve(
                task.problem,
                m,
                task.accountant,
                float(limits.min_cohorts[m] / n),
                float(min(limits.max_cohorts[m] / n, 1.0)),
            )
            for m, n in enumerate(task.problem.clients)
        ]
    )


def _above_jumps(task: Task, curves: NoiseCurves) -> Task:
    """The task within ratios at which every budget needs noise; see ``above_jumps``."""
    limits = task.limits
    equal = project(_starts(task)[0], limits.min_cohorts, limits.max_cohorts, task.problem.cohort)
    return replace(task, limits=above_jumps(task.problem, limits, curves, equal))


def _optimum(
    task: Task, curves: NoiseCurves, starts: Sequence[Floats]
) -> tuple[NoiseCurves, Floats, int]:
    """The curves refined at the optimum, its cohorts, and how many searches agreed on it."""
    cohorts, agreeing = _search(task, curves, starts)
    enough = _NODE_ERROR if task.accountant in FROM_LOSSES else _CURVE_ERROR
    for _ in range(_ROUNDS_OF_REFINEMENT):
        curves, error = _refined(task, curves, cohorts)
        if error <= enough:
            break
        starts_again = [cohorts] if task.release == "joint" else [cohorts, *starts]
        cohorts, _ = _search(task, curves, starts_again)
    return curves, cohorts, agreeing


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


def _noise(task: Task, curves: NoiseCurves, cohorts: Floats) -> Floats:
    return curves.at(cohorts / np.asarray(task.problem.clients, dtype=float))[0]


def _objective(task: Task, curves: NoiseCurves) -> Callable[[Floats], float]:
    return lambda cohorts: error_of(task, cohorts, _noise(task, curves, cohorts))


def _with_gradient(
    task: Task, curves: NoiseCurves
) -> Callable[[Floats], tuple[float, Floats]] | None:
    """Error of the best weights and its gradient in the cohorts; None where it has no formula."""
    if task.rule != "optimal":
        return None
    clients, floors = np.asarray(task.problem.clients, dtype=float), task.limits.min_weights

    def evaluate(cohorts: Floats) -> tuple[float, Floats]:
        noise, slopes = curves.at(cohorts / clients)
        given = cohorts, noise, slopes, task.coefficients, task.release
        return least_error_with_floors(*given, floors) if floors.any() else least_error(*given)

    return evaluate


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


def _search(task: Task, curves: NoiseCurves, starts: Sequence[Floats]) -> tuple[Floats, int]:
    """Returns the best of several local searches, and how many of them reached it."""
    sides = sides_of_jumps(task.problem, task.limits, curves)
    found = [_search_smooth(replace(task, limits=side), curves, starts) for side in sides]
    if len(found) == 1:
        return found[0]
    objective = _objective(task, curves)
    return min(found, key=lambda one: objective(one[0]))


def _search_smooth(task: Task, curves: NoiseCurves, starts: Sequence[Floats]) -> tuple[Floats, int]:
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


def _descent(task: Task, curves: NoiseCurves, begin: Floats, scale: float) -> Floats:
    limits, total, coefficients = task.limits, task.problem.cohort, task.coefficients
    if task.release == "per_group" or task.rule == "optimal":
        error, both = _objective(task, curves), _with_gradient(task, curves)
        bounds = limits.min_cohorts, limits.max_cohorts, total
        exact = None if both is None else lambda r: _scaled(both(r), scale)
        found = descend(lambda r: error(r) / scale, begin, *bounds, exact)
        if both is not None and task.release == "joint" and limits.min_weights.any():
            # differences see both sides of the kinks where an exact gradient gets stuck
            found = descend(lambda r: error(r) / scale, found, *bounds)
        return found

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


def _scaled(found: tuple[float, Floats], scale: float) -> tuple[float, Floats]:
    return found[0] / scale, found[1] / scale


def _accountants(task: Task, curves: NoiseCurves, cohorts: Floats) -> list[str]:
    """The accountant of each group; a group of negligible weight takes the cheaper base.

    Loss distributions of very rare participation are costly, and the noise of a group without
    weight does not change the error; the base asks for more noise, certified like all others.
    """
    if not any(cheaper(task.accountant, delta) != task.accountant for delta in task.problem.deltas):
        return [task.accountant] * len(cohorts)
    weights = weights_of(task, cohorts, _noise(task, curves, cohorts))
    small = weights < NEGLIGIBLE * task.coefficients.shares
    return [
        cheaper(task.accountant, delta) if negligible else task.accountant
        for negligible, delta in zip(small, task.problem.deltas, strict=True)
    ]


def _calibrated(task: Task, curves: NoiseCurves, cohorts: Floats) -> Floats:
    """The noise of cohorts, exactly calibrated; the curves give the first guess."""
    ratios = np.minimum(cohorts / np.asarray(task.problem.clients, dtype=float), 1.0)
    expected = _noise(task, curves, cohorts)
    noise = []
    for m, name in enumerate(_accountants(task, curves, cohorts)):
        ratio, near = float(ratios[m]), float(expected[m]) if name == task.accountant else None
        fixed = task.problem.fixed_noise and task.problem.fixed_noise[m] is not None
        if name == GUARANTEE and near is not None and not fixed:
            noise.append(least_noise(task.problem, m, ratio, near))
            continue
        try:
            noise.append(group_noise(task.problem, m, ratio, name, near=near))
        except InfeasibleError:  # the budget may be one that only the tighter accountant meets
            if name == task.accountant:
                raise
            noise.append(group_noise(task.problem, m, ratio, task.accountant))
    return np.array(noise)


def _refined(task: Task, curves: NoiseCurves, cohorts: Floats) -> tuple[NoiseCurves, float]:
    ratios = cohorts / np.asarray(task.problem.clients, dtype=float)
    accountants = _accountants(task, curves, cohorts)
    pairs = [
        refine(curve, task.problem, m, task.accountant, min(float(ratios[m]), 1.0))
        if accountants[m] == task.accountant
        else (curve, 0.0)
        for m, curve in enumerate(curves.curves)
    ]
    error = max(error for _, error in pairs)
    return (NoiseCurves([curve for curve, _ in pairs]) if error else curves), error


def _dual_gap(task: Task, curves: NoiseCurves, cohorts: Floats) -> float | None:
    """How far the error may be above the least one, relatively; None where no bound is known."""
    if task.rule != "optimal":
        return None
    weights = weights_of(task, cohorts, _noise(task, curves, cohorts))
    return relative_gap(
        curves,
        task.problem,
        task.limits,
        task.coefficients,
        task.release,
        (weights, cohorts),
        _SETTLED,
    )


def _status(task: Task, gap: float | None, searches: int, agreeing: int) -> str:
    several = f"best of {searches} searches, {agreeing} of them agree"
    if gap is None:
        return f"multi-start: {several}; no bound for weights by the rule {task.rule}"
    kind = "optimal" if gap <= _PROVEN else "multi-start"
    return f"{kind}: within {gap:.2g} of the dual bound; {several}"


def _whole(task: Task, curves: NoiseCurves, cohorts: Floats) -> Floats:
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
