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
from dataclasses import replace
from functools import lru_cache

import numpy as np

from privplan.accounting.target import NOISE_RANGE
from privplan.errors import TooLittleNoiseError
from privplan.planning.budget_nodes import (
    CLOSE,
    COARSE,
    FAR,
    STEP,
    Budget,
    Node,
    budget_of,
    coarse_after,
    coarse_before,
    root,
)
from privplan.planning.group_noise import GUARANTEE, group_noise, history_of, rounded_up
from privplan.planning.noise_curve import NoiseCurve, log_noise_at, make_curve, spline
from privplan.planning.noise_lattice import node, predicted
from privplan.planning.problem import Problem
from privplan.planning.sweeping import guarantee

_RARE = 0.04
_RTOL = 1e-4
_AIM = 0.8e-4
"""How far below its budget epsilon is aimed at: bounds are above it by some 2e-5 to 5e-5."""
_TRIES = 4
_BESIDE_JUMP = (1.001, 1.03, 1.1, 1.3)
_CLEAR_OF_JUMP = 1.5
"""Nodes lie at these multiples of the ratio where a curve jumps, and on the lattice beyond."""
JUMP = _BESIDE_JUMP[0]
"""The first of them: searches above a jump start there."""


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
    covered = math.log(budget.covered) if budget.covered >= least else -math.inf
    if math.log(most) <= covered:
        one = make_curve(np.array([math.log(most)]), np.array([budget.least]))
        return replace(one, covered=covered, least=budget.least)
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
    used = [i for i in indices if i >= coarse_before(coarse_before(first))]
    return _through(budget, used, frozenset(), covered)


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
    better = _through(budget, sorted(known | around), curve.precise | around, curve.covered)
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
        near: noise multiplier within some percent of the result.

    Raises:
        InfeasibleError: as ``group_noise``.
    """
    budget = budget_of(problem, group)
    accountant = guarantee(budget.epsilon)
    if ratio <= budget.covered:
        return group_noise(problem, group, ratio, GUARANTEE)
    index = round(-math.log(ratio) / STEP / COARSE) * COARSE
    slope = node(budget, min(index, FAR), False).slope * (
        budget.steepness(math.log(near))
        / budget.steepness(node(budget, min(index, FAR), False).log_noise)
    )
    known = predicted(budget, ratio, near, slope)
    noise = rounded_up(near if known is None else math.exp(known + _AIM / slope))
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


def _through(
    budget: Budget, indices: list[int], precise: frozenset[int], covered: float
) -> NoiseCurve:
    """The spline through nodes; where it jumps, through nodes beside the jump, too."""
    clear = covered + math.log(_CLEAR_OF_JUMP)
    order = [i for i in sorted(indices, reverse=True) if -STEP * i > clear or i == 0]
    places = [-STEP * index for index in order]
    log_noise = [node(budget, index, index in precise).log_noise for index in order]
    if len(order) < len(indices):
        beside = [covered + math.log(factor) for factor in _BESIDE_JUMP]
        beside = [place for place in beside if place < 0]
        places = beside + places
        log_noise = [_beside_jump(budget, place).log_noise for place in beside] + log_noise
    curve = spline(np.array(places), np.maximum.accumulate(log_noise))
    least = -math.inf if covered == -math.inf else budget.least
    return replace(curve, precise=precise, covered=covered, least=least)


@lru_cache(maxsize=4096)
def _beside_jump(budget: Budget, log_ratio: float) -> Node:
    """The noise multiplier at any ratio, without one nearby to start from."""
    return root(budget, log_ratio, budget.central(math.exp(log_ratio)), None, CLOSE)
