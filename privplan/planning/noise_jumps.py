"""Ratios at which a group's noise jumps: up to there delta covers ever taking part.

A client who takes part in no round loses nothing. Where the chance of ever taking part
is below delta, a budget of any epsilon is kept with the smallest noise that is
certified, and just above that ratio it needs much more. No search should step over such
a jump.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privplan.planning.budget import budget_of
from privplan.planning.problem import Limits, Problem

Floats = NDArray[np.float64]

# Share of delta not counted on to cover taking part: accountants round losses up, so
# that a client's chance of just delta would be certified as a little more.
_UNCOUNTED_SHARE = 1e-6
# A lower limit this far above the jump, relatively, is clear of it and stays.
_CLEAR_OF_JUMP = 1.001
# Groups above the jump take part with this many times delta at least. Closer to the
# jump the plan would still protect hardly anybody who takes part.
_CHANCE_OVER_DELTA = 2.0


def covered_ratio(delta: float, rounds: int) -> float:
    """Largest ratio at which any noise keeps a budget, since delta covers taking part.

    It solves 1 - (1 - q)^T = delta, the chance that a client takes part in any round.

    Args:
        delta: the budget's delta.
        rounds: T, how often the client can be drawn.
    """
    return -math.expm1(math.log1p(-delta * (1 - _UNCOUNTED_SHARE)) / rounds)


def on_one_side(problem: Problem, limits: Limits, equal: Floats) -> Limits:
    """Limits that hold each group on the side of its jump where equal ratios have it.

    Below its jump a plan keeps the budget, but protects nobody who takes part; it is
    left to specs whose cohort allows no other. Groups above take part with a chance of
    twice their delta or more, or halfway between delta and their chance at equal
    ratios.

    Args:
        problem: the groups with their budgets.
        limits: bounds on the cohorts, shape (groups,).
        equal: the cohorts at equal sampling ratios, shape (groups,).
    """
    lower = limits.min_cohorts.copy()
    upper = limits.max_cohorts.copy()
    for group, clients in enumerate(problem.clients):
        delta = problem.deltas[group]
        chances = budget_of(problem, group).chances
        jump = covered_ratio(delta, chances) * clients
        if equal[group] <= jump:
            upper[group] = max(min(upper[group], jump), lower[group])
            continue

        twice_delta = min(_CHANCE_OVER_DELTA * delta, 1.0)
        clear = _CLEAR_OF_JUMP * covered_ratio(twice_delta, chances) * clients
        if lower[group] >= clear:
            continue
        taking_part = 1 - (1 - min(equal[group] / clients, 1.0)) ** chances
        chance = min(_CHANCE_OVER_DELTA * delta, (delta + taking_part) / 2)
        bound = clients * covered_ratio(chance, chances)
        if problem.sampling.law.whole_cohorts:
            bound = min(math.ceil(bound), math.floor(equal[group]))
        lower[group] = max(lower[group], min(bound, equal[group]))
    return replace(limits, min_cohorts=lower, max_cohorts=upper)
