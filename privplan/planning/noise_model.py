"""Noise curves of groups: few calibrations, interpolated.

Curves of ``pld`` (and of ``prv``, which differs by far less than ratios depend on) have their
nodes on a lattice (``privplan.planning.loss_nodes``). For other accountants every node that is
added is first predicted, so the interpolation error is measured, not assumed. Plans do not rely
on a curve: their noise multipliers are calibrated with full precision and certified.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from privplan.planning.budget_nodes import budget_of
from privplan.planning.group_noise import group_noise, single_group
from privplan.planning.loss_nodes import loss_curve, refined
from privplan.planning.noise_curve import NoiseCurve, log_noise_at, make_curve
from privplan.planning.problem import Problem

Floats = NDArray[np.float64]

FROM_LOSSES = ("pld", "prv")
"""Accountants whose curves are those of ``pld``."""
CHEAPER = "rdp"
"""The accountant that calibrates negligible groups in place of those."""
_MAX_NODE_DISTANCE = math.log(4.0)
_CURVE_TOLERANCE = 2e-3
_LARGE_DELTA = 1e-2
"""Above it, Rényi divergence is too loose to take the place of another accountant."""


@lru_cache(maxsize=100_000)
def _log_noise(
    problem: Problem, log_ratio: float, accountant: str, log_near: float | None = None
) -> float:
    """Logarithm of the calibrated noise multiplier of a problem with one group."""
    near = None if log_near is None else math.exp(log_near)
    return math.log(group_noise(problem, 0, min(math.exp(log_ratio), 1.0), accountant, near=near))


def exact_noise(problem: Problem, group: int, ratio: float, accountant: str) -> float:
    """The noise multiplier of a group, calibrated with full precision and cached."""
    return math.exp(_log_noise(single_group(problem, group), math.log(ratio), accountant))


def cheaper(accountant: str, delta: float) -> str:
    """The accountant that calibrates a negligible group; itself where none is cheaper."""
    return CHEAPER if accountant in FROM_LOSSES and delta <= _LARGE_DELTA else accountant


def build_curve(
    problem: Problem, group: int, accountant: str, least: float, most: float
) -> NoiseCurve:
    """The curve over [least, most]; nodes are added until predictions are within tolerance.

    Args:
        problem: budgets, rounds, sampling law and relation.
        group: index of the group.
        accountant: the accountant that calibrates.
        least: smallest ratio, positive.
        most: largest ratio, at most 1.
    """
    if accountant in FROM_LOSSES:
        usual = problem.cohort / problem.population
        return loss_curve(budget_of(problem, group), least, most, usual)
    one = single_group(problem, group)
    low, high = math.log(least), math.log(most)
    if high - low < 1e-9:
        return make_curve(np.array([high]), np.array([_log_noise(one, high, accountant)]))
    count = 2 + math.ceil((high - low) / _MAX_NODE_DISTANCE)
    nodes: dict[float, float] = {}
    for x in np.linspace(low, high, count):
        nodes[x] = _log_noise(one, x, accountant, _extrapolated(nodes))
    pending = list(pairwise(sorted(nodes)))
    while pending:
        left, right = pending.pop()
        middle = (left + right) / 2
        predicted = log_noise_at(_through(nodes), middle)
        nodes[middle] = _log_noise(one, middle, accountant, predicted)
        if abs(predicted - nodes[middle]) > _CURVE_TOLERANCE and right - left > 0.05:
            pending += [(left, middle), (middle, right)]
    return _through(nodes)


def refine(
    curve: NoiseCurve, problem: Problem, group: int, accountant: str, ratio: float
) -> tuple[NoiseCurve, float]:
    """The curve with a node at ``ratio``, and the relative error of the curve there before."""
    if accountant in FROM_LOSSES:
        return refined(curve, budget_of(problem, group), ratio)
    log_ratio = math.log(ratio)
    log_noise = _log_noise(single_group(problem, group), log_ratio, accountant)
    error = abs(log_noise - log_noise_at(curve, log_ratio))
    nodes = dict(zip(curve.log_ratios.tolist(), curve.log_noise.tolist(), strict=True))
    if min(abs(log_ratio - node) for node in nodes) < 1e-3:
        return curve, error
    nodes[log_ratio] = log_noise
    return _through(nodes), error


def _extrapolated(nodes: dict[float, float]) -> float | None:
    """Value of the next of evenly spaced nodes, linear in the last two; None without two."""
    if len(nodes) < 2:
        return None
    *_, before, last = nodes.values()
    return 2 * last - before


def _through(nodes: dict[float, float]) -> NoiseCurve:
    log_ratios = sorted(nodes)
    return make_curve(np.array(log_ratios), np.array([nodes[x] for x in log_ratios]))
