"""Ratios at which a group's noise jumps: up to there delta covers ever taking part.

Up to the ratio 1 - (1 - delta)^(1/T) any noise keeps a budget, since what is released depends on
a client with a chance of delta only. Above it the noise is what epsilon asks for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privplan.planning.budget_nodes import covered_ratio
from privplan.planning.loss_nodes import JUMP
from privplan.planning.noise_curve import NoiseCurves
from privplan.planning.problem import Limits, Problem

Floats = NDArray[np.float64]

_BOTH_SIDES = 3
"""Up to so many groups whose noise jumps, each combination of sides is searched; of more groups,
none, one and all of them below."""
_BELOW_JUMP = 1 - 1e-9
_TIMES_DELTA = 2.0


def above_jumps(problem: Problem, limits: Limits, curves: NoiseCurves, equal: Floats) -> Limits:
    """Limits within which every budget needs noise, where equal ratios are within them.

    Below the jump of a noise curve, delta is the chance to take part with hardly any noise. Such a
    plan keeps the budget, but protects nobody who takes part; it is left to specs whose cohort
    allows no other. Groups whose curve jumps take part with a chance of twice their delta or more,
    or halfway between delta and their chance at equal ratios.

    Args:
        problem: budgets, clients and rounds.
        limits: of the cohorts.
        curves: the groups' noise.
        equal: cohorts of equal ratios within the limits, shape (groups,).
    """
    clients = np.asarray(problem.clients, dtype=float)
    if not np.any(curves.covered > 0) or np.any(equal <= curves.covered * clients):
        return limits
    least = limits.min_cohorts.copy()
    for m in np.flatnonzero(curves.covered > 0):
        taking_part = 1 - (1 - min(equal[m] / clients[m], 1.0)) ** problem.rounds
        delta = problem.deltas[m]
        bound = clients[m] * covered_ratio(
            min(_TIMES_DELTA * delta, (delta + taking_part) / 2), problem.rounds
        )
        if problem.sampling.law.whole_cohorts:
            bound = min(math.ceil(bound), math.floor(equal[m]))
        least[m] = max(least[m], min(bound, equal[m]))
    return replace(limits, min_cohorts=least)


def sides_of_jumps(problem: Problem, limits: Limits, curves: NoiseCurves) -> list[Limits]:
    """Limits within which no noise jumps, which together are those that are given.

    Args:
        problem: clients and cohort.
        limits: of the cohorts.
        curves: the groups' noise.
    """
    total = problem.cohort
    jump = curves.covered * np.asarray(problem.clients, dtype=float)
    inner = (limits.min_cohorts < jump * _BELOW_JUMP) & (jump * JUMP < limits.max_cohorts)
    where = [int(m) for m in np.flatnonzero(inner)]
    if len(where) <= _BOTH_SIDES:
        choices = [chosen for size in range(len(where) + 1) for chosen in combinations(where, size)]
    else:
        choices = [(), *((m,) for m in where), tuple(where)]
    sides = []
    for below in choices:
        least, most = limits.min_cohorts.copy(), limits.max_cohorts.copy()
        for m in where:
            if m in below:
                most[m] = jump[m] * _BELOW_JUMP
            else:
                least[m] = jump[m] * JUMP
        if least.sum() <= total <= most.sum():
            sides.append(Limits(least, most, limits.min_weights))
    return sides or [limits]
