"""Cohorts, noise and weights decided together: the search behind every error objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.release import SamplingLaw
from privplan.planning.dual_bound import lower_bound
from privplan.planning.error_terms import Coefficients, ReleaseKind, best_weights, spread, terms
from privplan.planning.group_noise import group_noise
from privplan.planning.noise_model import BASES, NoiseCurve, build_curve, noise_at, refine
from privplan.planning.optimiser import descend, descend_worst, project
from privplan.planning.problem import Limits, Problem, whole_cohorts
from privplan.planning.weights import weights as ruled

Floats = NDArray[np.float64]

_STARTS = 8
_ROUNDS_OF_REFINEMENT = 4
_CURVE_ERROR = 3e-3
_PROVEN = 1e-3
LEFT_OUT = 0.02
"""A group whose weight is below this part of its share is all but left out."""


@dataclass(frozen=True)
class Task:
    """Everything that decides the error of a choice of cohorts.

    Attributes:
        problem: what is given.
        limits: bounds on the decisions.
        prices: what each kind of error costs.
        release: one noisy sum of all groups, or one a group.
        rule: ``optimal``, or a rule of ``privplan.planning.weights`` that the weights follow.
        accountant: the accountant that calibrates.
    """

    problem: Problem
    limits: Limits
    prices: Coefficients
    release: ReleaseKind
    rule: str
    accountant: str


@dataclass(frozen=True)
class Allocation:
    """The decisions that were found.

    Attributes:
        cohorts: r_m, shape (groups,).
        noise: sigma_m, exactly calibrated, shape (groups,).
        weights: w_m, shape (groups,).
        status: how far the solution is certified to be from the optimum.
    """

    cohorts: Floats
    noise: Floats
    weights: Floats
    status: str


def allocate(task: Task) -> Allocation:
    """The cohorts, noise and weights of least error.

    The search runs on interpolated noise; nodes are added where the optimum lies until the
    interpolation is exact there, so the noise that is returned is calibrated.

    Raises:
        InfeasibleError: when a group's budget cannot be met.
    """
    problem, limits = task.problem, task.limits
    clients = np.asarray(problem.clients, dtype=float)
    curves = [
        build_curve(problem, m, task.accountant, limits.least[m] / n, limits.most[m] / n)
        for m, n in enumerate(clients)
    ]
    starts = _starts(task)
    if task.accountant in BASES:
        even = project(starts[0], limits.least, limits.most, problem.cohort)
        curves, _ = _refined(task, curves, even)
    cohorts, agreeing = _search(task, curves, starts)
    for _ in range(_ROUNDS_OF_REFINEMENT):
        curves, error = _refined(task, curves, cohorts)
        if error <= _CURVE_ERROR:
            break
        again = [cohorts] if task.release == "joint" else [cohorts, *starts]
        cohorts, _ = _search(task, curves, again)
    status = _status(task, curves, cohorts, agreeing)
    if problem.sampling == SamplingLaw.FIXED_SIZE:
        cohorts = _whole(task, curves, cohorts)
        status += "; then rounded to whole cohorts"
    noise = _calibrated(task, curves, cohorts)
    return Allocation(cohorts, noise, weights_of(task, cohorts, noise), status)


def weights_of(task: Task, cohorts: Floats, noise: Floats) -> Floats:
    """The weights of a choice: the best, or those of the rule."""
    if task.rule == "optimal":
        return best_weights(cohorts, noise, task.prices, task.release, task.limits.weights)
    return ruled(task.rule, cohorts, noise, task.problem.clients)


def error_of(task: Task, cohorts: Floats, noise: Floats) -> float:
    """The error of cohorts with the task's weights."""
    weights = weights_of(task, cohorts, noise)
    return terms(weights, cohorts, noise, task.prices, task.release).total


def _noise(task: Task, curves: Sequence[NoiseCurve], cohorts: Floats) -> Floats:
    ratios = cohorts / np.asarray(task.problem.clients, dtype=float)
    return np.array([noise_at(curve, ratios[m : m + 1])[0][0] for m, curve in enumerate(curves)])


def _objective(task: Task, curves: Sequence[NoiseCurve]) -> Callable[[Floats], float]:
    return lambda cohorts: error_of(task, cohorts, _noise(task, curves, cohorts))


def _starts(task: Task) -> list[Floats]:
    """Even ratios, Problem 1's, then some groups without the others."""
    clients = np.asarray(task.problem.clients, dtype=float)
    published = clients / np.sqrt(np.asarray(task.problem.closed_form_factors))
    shapes = [clients, published]
    for size in (1, 2):
        for chosen in combinations(range(len(clients)), size):
            some = np.zeros_like(clients)
            some[list(chosen)] = published[list(chosen)]
            shapes.append(some)
    return [task.problem.cohort * shape / shape.sum() for shape in shapes[:_STARTS]]


def _search(
    task: Task, curves: Sequence[NoiseCurve], starts: Sequence[Floats]
) -> tuple[Floats, int]:
    """The best of several local searches, and how many of them reached it."""
    limits, total = task.limits, task.problem.cohort
    objective = _objective(task, curves)
    begins = [project(start, limits.least, limits.most, total) for start in starts]
    if np.all(limits.most - limits.least <= 1e-9 * total):
        return begins[0], len(begins)
    scale = max(objective(begins[0]), 1e-300)
    found = [_descent(task, curves, begin, scale) for begin in begins]
    values = np.array([objective(cohorts) for cohorts in [*found, *begins]])
    best = int(values.argmin())
    agreeing = int(np.sum(values[: len(found)] <= values[best] * (1 + 1e-4)))
    return [*found, *begins][best], agreeing


def _descent(task: Task, curves: Sequence[NoiseCurve], begin: Floats, scale: float) -> Floats:
    limits, total, prices = task.limits, task.problem.cohort, task.prices
    if task.release == "per_group" or task.rule == "optimal":
        objective = _objective(task, curves)
        return descend(lambda r: objective(r) / scale, begin, limits.least, limits.most, total)

    def parts(cohorts: Floats) -> Floats:
        noise = _noise(task, curves, cohorts)
        shares = weights_of(task, cohorts, noise) * noise / cohorts
        return np.asarray(shares * np.sqrt(prices.noise / scale))

    def smooth(cohorts: Floats) -> float:
        noise = _noise(task, curves, cohorts)
        found = terms(weights_of(task, cohorts, noise), cohorts, noise, prices, task.release)
        return (found.sampling + found.leaning) / scale

    return descend_worst(smooth, parts, begin, limits.least, limits.most, total)


def _asked(task: Task, curves: Sequence[NoiseCurve], cohorts: Floats) -> list[str]:
    """The accountant of each group: a group all but left out takes its cheaper base.

    Loss distributions of very rare participation are costly, and the noise of a group without
    weight decides nothing; the base's is more than enough and is certified like all others.
    """
    weights = weights_of(task, cohorts, _noise(task, curves, cohorts))
    small = weights < LEFT_OUT * task.prices.shares
    base = BASES.get(task.accountant, task.accountant)
    return [base if left_out else task.accountant for left_out in small]


def _calibrated(task: Task, curves: Sequence[NoiseCurve], cohorts: Floats) -> Floats:
    """The noise of a choice, exactly calibrated; the curves only say where to look first."""
    ratios = np.minimum(cohorts / np.asarray(task.problem.clients, dtype=float), 1.0)
    expected, asked = _noise(task, curves, cohorts), _asked(task, curves, cohorts)
    return np.array(
        [
            group_noise(
                task.problem,
                m,
                ratios[m],
                name,
                near=float(expected[m]) if name == task.accountant else None,
            )
            for m, name in enumerate(asked)
        ]
    )


def _refined(
    task: Task, curves: Sequence[NoiseCurve], cohorts: Floats
) -> tuple[list[NoiseCurve], float]:
    ratios = cohorts / np.asarray(task.problem.clients, dtype=float)
    asked = _asked(task, curves, cohorts)
    pairs = [
        refine(curve, task.problem, m, task.accountant, min(float(ratios[m]), 1.0))
        if asked[m] == task.accountant
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
    value = terms(weights, cohorts, noise, task.prices, task.release).total
    nu = spread(weights, cohorts, noise, task.release)
    bound = lower_bound(curves, task.problem, task.limits, task.prices, task.release, (value, nu))
    gap = max((value - bound) / value, 0.0)
    kind = "optimal" if gap <= _PROVEN else "multi-start"
    return f"{kind}: within {gap:.2g} of the dual bound; {searches}"


def _whole(task: Task, curves: Sequence[NoiseCurve], cohorts: Floats) -> Floats:
    """Whole cohorts: rounded, then improved by moving clients between groups."""
    objective = _objective(task, curves)
    clients = np.asarray(task.problem.clients, dtype=float)
    limits = replace(task.limits, most=np.minimum(task.limits.most, clients))
    whole = whole_cohorts(cohorts, limits.most, round(task.problem.cohort))
    whole = np.clip(whole, limits.least, limits.most)
    least, improved = objective(whole), True
    while improved:
        improved = False
        for giver in range(len(whole)):
            for taker in range(len(whole)):
                moved = whole.copy()
                moved[giver] -= 1
                moved[taker] += 1
                inside = moved[giver] >= limits.least[giver] and moved[taker] <= limits.most[taker]
                if giver != taker and inside and objective(moved) < least * (1 - 1e-12):
                    whole, least, improved = moved, objective(moved), True
    return whole
