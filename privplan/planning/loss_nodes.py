"""Noise curves of ``pld``: splines through noise multipliers on a lattice of sampling ratios.

log sigma as a function of log q is smooth enough that nodes 1.2 apart show where an optimum lies
(within 1%), and nodes 0.4 apart around it give its noise multiplier within some 1e-4. All ratios
are ``exp(-0.4 k)``, so groups of equal budgets, the starts of a search and the plans of a sweep
share nodes (``privplan.planning.budget_nodes``), and over a sweep budgets that lie close together
share those of a lattice of budgets (``privplan.planning.noise_lattice``).

Plans do not rely on nodes: ``least_noise`` evaluates the accountant itself, whose upper bound must
keep the budget.
"""

from __future__ import annotations

import math

import numpy as np

from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.target import NOISE_RANGE
from privplan.errors import TooLittleNoiseError
from privplan.planning.budget_nodes import (
    CLOSE,
    COARSE,
    FAR,
    STEP,
    Budget,
    budget_of,
    coarse_after,
    coarse_before,
    root,
)
from privplan.planning.group_noise import GUARANTEE, group_noise, history_of, rounded_up
from privplan.planning.noise_curve import NoiseCurve, log_noise_at, make_curve, spline
from privplan.planning.noise_lattice import node, predicted
from privplan.planning.problem import Problem

_RARE = 0.04
_RTOL = 1e-4
_TRIES = 4


def loss_curve(budget: Budget, least: float, most: float, usual: float | None = None) -> NoiseCurve:
    """The curve through the coarse nodes that span [least, most].

    Args:
        budget: the budget.
        least: smallest ratio, positive.
        most: largest ratio, at most 1.
        usual: a ratio of which the optimum is some multiple; nodes far below it are left out.
            There the curve is the line that continues it, which lies below it: log sigma is
            convex in log q at small ratios.
    """
    if usual is not None:
        least = max(least, min(usual * _RARE, most))
    if most - least < 1e-9 * most:
        log_ratio = math.log(most)
        found = root(budget, log_ratio, budget.central(most), None, CLOSE)
        return make_curve(np.array([log_ratio]), np.array([found.log_noise]))
    last = -math.log(least) / STEP - 1e-9
    indices = [0]
    while indices[-1] < last:
        indices.append(coarse_after(indices[-1]))
    first = max(i for i in indices if i * STEP <= -math.log(most) + 1e-9)
    return _through(
        budget, [i for i in indices if i >= coarse_before(coarse_before(first))], frozenset()
    )


def refined(curve: NoiseCurve, budget: Budget, ratio: float) -> tuple[NoiseCurve, float]:
    """The curve with precise nodes around a ratio, and its largest relative error there before."""
    log_ratio = math.log(ratio)
    if len(curve.log_ratios) == 1:
        return curve, 0.0
    below = min(math.floor(-log_ratio / STEP), round(-curve.log_ratios[0] / STEP) - 1)
    around = frozenset(range(max(below - 1, 0), below + 3))
    missing = around - curve.precise
    if not missing:
        return curve, 0.0
    known = {round(-x / STEP) for x in curve.log_ratios}
    better = _through(budget, sorted(known | around), curve.precise | around)
    places = [-STEP * index for index in missing] + [log_ratio]
    errors = [abs(log_noise_at(better, x) - log_noise_at(curve, x)) for x in places]
    return better, max(errors)


def least_noise(problem: Problem, group: int, ratio: float, near: float) -> float:
    """The smallest noise multiplier that keeps a group's budget by ``pld``, rounded up.

    The upper bound of the accountant keeps the budget and is within 1e-4 of it. Since epsilon
    falls at least as fast as 1 / sigma (it is proportional to it, or steeper, for a Gaussian, and
    sampling only steepens it), sigma is within 1e-4 of the smallest.

    Args:
        problem: budgets, rounds, sampling law and relation.
        group: index of the group.
        ratio: its sampling ratio.
        near: noise multiplier within some percent of the result; over a sweep, that of the
            lattice of budgets takes its place.

    Raises:
        InfeasibleError: as ``group_noise``.
    """
    budget, accountant = budget_of(problem, group), by_name(GUARANTEE)
    index = round(-math.log(ratio) / STEP / COARSE) * COARSE
    slope = node(budget, min(index, FAR), False).slope * (
        budget.steepness(math.log(near))
        / budget.steepness(node(budget, min(index, FAR), False).log_noise)
    )
    known = predicted(budget, ratio)
    noise = rounded_up(near if known is None else math.exp(known + _RTOL / slope))
    before = None
    for _ in range(_TRIES):
        if not NOISE_RANGE[0] < noise < NOISE_RANGE[1]:
            break
        try:
            history = history_of(problem, ratio, noise)
            spent = accountant.epsilon(history, budget.delta, budget.relation).upper
        except TooLittleNoiseError:
            break
        if not 0 < spent < math.inf:
            break
        gap = math.log(spent / budget.epsilon)
        if -_RTOL <= gap <= 0:
            return noise
        here = math.log(noise), gap
        if before is not None and abs(here[0] - before[0]) > 1e-6:
            secant = (before[1] - here[1]) / (here[0] - before[0])
            slope = secant if 0.5 < secant / slope < 2 else slope
        before = here
        noise = rounded_up(math.exp(here[0] + (gap + _RTOL / 2) / slope))
    return group_noise(problem, group, ratio, GUARANTEE, near=near)


def _through(budget: Budget, indices: list[int], precise: frozenset[int]) -> NoiseCurve:
    """The spline through nodes."""
    order = sorted(indices, reverse=True)
    log_noise = np.array([node(budget, index, index in precise).log_noise for index in order])
    curve = spline(-STEP * np.array(order, dtype=float), np.maximum.accumulate(log_noise))
    return NoiseCurve(curve.log_ratios, curve.log_noise, curve.slopes, precise)
