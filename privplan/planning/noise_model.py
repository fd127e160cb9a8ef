"""Noise as a function of the sampling ratio: few calibrations, interpolated, error-controlled.

In log-log coordinates sigma(q) is smooth: flat while a round's loss is large, of slope 1 in
the small-loss limit. A curve holds values at its nodes and a cubic between them. Every node
that is added is first predicted, so the error of the interpolation is measured, not assumed.

Privacy loss distributions cost much more than Rényi moments, and the ratio of their noise
varies slowly with q. So the curve of ``pld`` and ``prv`` is the curve of ``rdp`` times a
correction, which is calibrated only where the search needs it, with bounds a little apart.
Plans never rest on a curve: their noise is calibrated again, exactly, and certified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import Accountant
from privplan.planning.group_noise import GUARANTEE, group_noise
from privplan.planning.problem import Problem

Floats = NDArray[np.float64]

_WIDEST = math.log(4.0)
_TOLERANCE = 2e-3
_LOOSE = 2e-3
_APART = 0.5
BASES = {"pld": "rdp", "prv": "rdp"}
"""Accountants whose curve is that of another one, corrected."""


@dataclass(frozen=True)
class NoiseCurve:
    """sigma(q) of one group.

    Attributes:
        log_ratios: log q of the nodes, increasing, shape (nodes,).
        log_noise: log sigma at the nodes, shape (nodes,).
        slopes: d log sigma / d log q at the nodes, shape (nodes,).
        correction: coefficients of a parabola in log q, added to log sigma.
        span: log q between which the parabola holds; constant beyond.
    """

    log_ratios: Floats
    log_noise: Floats
    slopes: Floats
    correction: tuple[float, ...] = ()
    span: tuple[float, float] = (0.0, 0.0)


def make_curve(log_ratios: Floats, log_noise: Floats) -> NoiseCurve:
    """A curve through nodes, with slopes of the parabolas through three neighbours."""
    if len(log_ratios) == 1:
        return NoiseCurve(log_ratios, log_noise, np.zeros(1))
    steps = np.diff(log_ratios)
    secants = np.diff(log_noise) / steps
    slopes = np.empty_like(log_ratios)
    slopes[1:-1] = (secants[:-1] * steps[1:] + secants[1:] * steps[:-1]) / (steps[:-1] + steps[1:])
    slopes[0] = 2 * secants[0] - slopes[1] if len(steps) > 1 else secants[0]
    slopes[-1] = 2 * secants[-1] - slopes[-2] if len(steps) > 1 else secants[0]
    return NoiseCurve(log_ratios, log_noise, slopes)


def noise_at(curve: NoiseCurve, ratios: Floats) -> tuple[Floats, Floats]:
    """sigma(q) and d log sigma / d log q; beyond the nodes the curve goes on straight.

    Args:
        curve: the curve.
        ratios: q, any shape, positive.
    """
    where = np.log(ratios)
    noise, slope = _cubic(curve, where)
    if curve.correction:
        noise = noise * np.exp(np.polyval(curve.correction, np.clip(where, *curve.span)))
    return noise, slope


def _cubic(curve: NoiseCurve, where: Floats) -> tuple[Floats, Floats]:
    nodes = curve.log_ratios
    if len(nodes) == 1:
        return np.full_like(where, math.exp(curve.log_noise[0])), np.zeros_like(where)
    left = np.clip(np.searchsorted(nodes, where) - 1, 0, len(nodes) - 2)
    width = nodes[left + 1] - nodes[left]
    t = (where - nodes[left]) / width
    inner = np.clip(t, 0, 1)
    low, high = curve.log_noise[left], curve.log_noise[left + 1]
    low_slope, high_slope = curve.slopes[left] * width, curve.slopes[left + 1] * width
    rise = high - low
    second = 3 * rise - 2 * low_slope - high_slope
    third = low_slope + high_slope - 2 * rise
    value = low + inner * (low_slope + inner * (second + inner * third))
    slope = low_slope + inner * (2 * second + 3 * inner * third)
    value = value + slope * (t - inner)
    return np.exp(value), slope / width


@lru_cache(maxsize=100_000)
def _log_noise(
    problem: Problem, log_ratio: float, accountant: str, loose: bool, near: float | None = None
) -> float:
    """Log of the calibrated noise; ``near`` is where to look first, as a logarithm."""
    ratio = min(math.exp(log_ratio), 1.0)
    first = None if near is None else math.exp(near)
    if loose and accountant == GUARANTEE:
        from privplan.accounting.pld.accountant import PldAccountant

        rough = cast(Accountant, PldAccountant(tolerance=_LOOSE))
        return math.log(group_noise(problem, 0, ratio, rough, _LOOSE, first))
    return math.log(group_noise(problem, 0, ratio, accountant, near=first))


def exact_noise(problem: Problem, group: int, ratio: float, accountant: str) -> float:
    """The calibrated noise multiplier of a group, remembered."""
    return math.exp(_log_noise(alone(problem, group), math.log(ratio), accountant, False))


def alone(problem: Problem, group: int) -> Problem:
    """The problem of one group by itself, so that equal groups share their calibrations."""
    return Problem(
        names=(problem.names[group],),
        clients=(1,),
        epsilons=(problem.epsilons[group],),
        deltas=(problem.deltas[group],),
        rounds=problem.rounds,
        cohort=1.0,
        sampling=problem.sampling,
        relation=problem.relation,
        clipping_norm=1.0,
        dimension=1,
        constants=problem.constants,
        calibration=problem.calibration,
    )


def build_curve(
    problem: Problem, group: int, accountant: str, least: float, most: float
) -> NoiseCurve:
    """A curve over [least, most], nodes added until predictions are within tolerance.

    Args:
        problem: what is given.
        group: which group.
        accountant: the accountant that calibrates; its base if it has one.
        least: smallest ratio, positive.
        most: largest ratio, at most 1.
    """
    one, base = alone(problem, group), BASES.get(accountant, accountant)
    low, high = math.log(least), math.log(most)
    if high - low < 1e-9:
        return make_curve(np.array([high]), np.array([_log_noise(one, high, base, False)]))
    count = 2 + math.ceil((high - low) / _WIDEST)
    nodes: dict[float, float] = {}
    for x in np.linspace(low, high, count):
        nodes[x] = _log_noise(one, x, base, False, _straight_on(nodes))
    pending = _gaps(sorted(nodes))
    while pending:
        left, right = pending.pop()
        middle = (left + right) / 2
        predicted = noise_at(_through(nodes), np.array([math.exp(middle)]))[0][0]
        nodes[middle] = _log_noise(one, middle, base, False, math.log(predicted))
        if abs(math.log(predicted) - nodes[middle]) > _TOLERANCE and right - left > 0.05:
            pending += [(left, middle), (middle, right)]
    return _through(nodes)


def refine(
    curve: NoiseCurve, problem: Problem, group: int, accountant: str, ratio: float
) -> tuple[NoiseCurve, float]:
    """The curve with a node at ``ratio``, and the relative error that the node had."""
    one, where = alone(problem, group), math.log(ratio)
    if accountant in BASES:
        return _corrected(curve, one, where, accountant)
    found = _log_noise(one, where, accountant, True)
    error = abs(found - math.log(noise_at(curve, np.array([ratio]))[0][0]))
    nodes = dict(zip(curve.log_ratios.tolist(), curve.log_noise.tolist(), strict=True))
    if min(abs(where - node) for node in nodes) < 1e-3:
        return curve, error
    nodes[where] = found
    return _through(nodes), error


def _corrected(
    curve: NoiseCurve, one: Problem, where: float, accountant: str
) -> tuple[NoiseCurve, float]:
    """The curve with its correction calibrated at three places around ``where``, or only there.

    Nothing is done, and the error is 0, where the correction already reaches.
    """
    low, high = curve.span
    if curve.correction and low - _APART / 4 <= where <= high + _APART / 4:
        return curve, 0.0
    beside = (-_APART, 0.0, _APART) if len(curve.log_ratios) > 1 else (0.0,)
    places = np.minimum(where + np.array(beside), 0.0)
    places = np.unique(np.round(places, 9))
    base = _cubic(curve, places)[0]
    added: list[float] = []
    for place, log_base in zip(places, np.log(base), strict=True):
        near = log_base + added[-1] if added else None
        added.append(_log_noise(one, float(place), accountant, True, near) - log_base)
    fitted = np.polyfit(places, added, len(places) - 1)
    span = (float(places[0]), float(places[-1]))
    corrected = replace(curve, correction=tuple(float(x) for x in fitted), span=span)
    return corrected, 1.0


def _straight_on(nodes: dict[float, float]) -> float | None:
    """Where the next of evenly spaced nodes lies if the last two go on straight."""
    if len(nodes) < 2:
        return None
    *_, before, last = nodes.values()
    return 2 * last - before


def _through(nodes: dict[float, float]) -> NoiseCurve:
    places = sorted(nodes)
    return make_curve(np.array(places), np.array([nodes[place] for place in places]))


def _gaps(places: list[float]) -> list[tuple[float, float]]:
    return list(pairwise(places))
