"""Noise multiplier as a function of the sampling ratio: few calibrations, interpolated.

In log-log coordinates sigma(q) is smooth: flat while the loss per round is large, of slope 1 in
the small-loss limit. A curve holds values at nodes and a cubic between them. Every node that is
added is first predicted, so the interpolation error is measured, not assumed. A calibration with
privacy loss distributions costs much more than one with RDP, and the ratio of their results varies
slowly with q: the curve of ``pld`` and ``prv`` is that of ``rdp`` times a correction, calibrated
with a larger tolerance, only near the optimum. Plans do not rely on a curve: their noise
multipliers are calibrated with full precision and certified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.target import CalibrationTarget, coarse_accountant
from privplan.planning.group_noise import group_noise, single_group
from privplan.planning.problem import Problem

Floats = NDArray[np.float64]

_MAX_NODE_DISTANCE = math.log(4.0)
_CURVE_TOLERANCE = 2e-3
_COARSE_TOLERANCE = 2e-3
_CORRECTION_DISTANCE = 0.5
BASES = {"pld": "rdp", "prv": "rdp"}
"""Accountants whose curve is that of another accountant times a correction."""
_CENTRAL_LIMIT = "central limit"
_LARGE_DELTA = 1e-2
"""Above it, Rényi divergence is too loose for a base, and the central limit takes its place."""


@dataclass(frozen=True)
class NoiseCurve:
    """Interpolated sigma(q) of one group.

    Attributes:
        log_ratios: log q of the nodes, increasing, shape (nodes,).
        log_noise: log sigma at the nodes, shape (nodes,).
        slopes: d log sigma / d log q at the nodes, shape (nodes,).
        correction: coefficients of a parabola in log q, added to log sigma.
        span: interval of log q in which the parabola holds; constant outside.
    """

    log_ratios: Floats
    log_noise: Floats
    slopes: Floats
    correction: tuple[float, ...] = ()
    span: tuple[float, float] = (0.0, 0.0)


def make_curve(log_ratios: Floats, log_noise: Floats) -> NoiseCurve:
    """The curve through nodes; slopes are those of parabolas through three neighbours."""
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
    """sigma(q) and d log sigma / d log q, extrapolated linearly outside the nodes.

    Args:
        curve: the curve.
        ratios: q, any shape, positive.
    """
    log_ratios = np.log(ratios)
    noise, slope = _cubic(curve, log_ratios)
    if curve.correction:
        inside = np.minimum(np.maximum(log_ratios, curve.span[0]), curve.span[1])
        log_factor = np.zeros_like(inside)
        for coefficient in curve.correction:  # Horner's rule
            log_factor = log_factor * inside + coefficient
        noise = noise * np.exp(log_factor)
    return noise, slope


def _cubic(curve: NoiseCurve, log_ratios: Floats) -> tuple[Floats, Floats]:
    """Noise multiplier and its logarithmic slope, without the correction."""
    nodes = curve.log_ratios
    if len(nodes) == 1:
        return np.full_like(log_ratios, math.exp(curve.log_noise[0])), np.zeros_like(log_ratios)
    left = np.minimum(np.maximum(nodes.searchsorted(log_ratios) - 1, 0), len(nodes) - 2)
    width = nodes[left + 1] - nodes[left]
    t = (log_ratios - nodes[left]) / width
    inner = np.minimum(np.maximum(t, 0.0), 1.0)  # np.clip costs more than all the rest
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
    problem: Problem, log_ratio: float, accountant: str, coarse: bool, log_near: float | None = None
) -> float:
    """Logarithm of the calibrated noise multiplier of a problem with one group."""
    ratio = min(math.exp(log_ratio), 1.0)
    if accountant == _CENTRAL_LIMIT:
        budget = problem.epsilons[0], problem.deltas[0]
        target = CalibrationTarget(*budget, problem.sampling, problem.relation, by_name("pld"))
        return math.log(target.central_noise(ratio, problem.rounds))
    near = None if log_near is None else math.exp(log_near)
    faster = coarse_accountant(by_name(accountant), _COARSE_TOLERANCE) if coarse else None
    if faster is not None:
        return math.log(group_noise(problem, 0, ratio, faster, _COARSE_TOLERANCE, near))
    return math.log(group_noise(problem, 0, ratio, accountant, near=near))


def exact_noise(problem: Problem, group: int, ratio: float, accountant: str) -> float:
    """The noise multiplier of a group, calibrated with full precision and cached."""
    return math.exp(_log_noise(single_group(problem, group), math.log(ratio), accountant, False))


def base_of(accountant: str, delta: float) -> str:
    """The accountant whose curve is corrected to that of an accountant; itself where none is."""
    large = accountant in BASES and delta > _LARGE_DELTA
    return _CENTRAL_LIMIT if large else BASES.get(accountant, accountant)


def build_curve(
    problem: Problem, group: int, accountant: str, least: float, most: float
) -> NoiseCurve:
    """The curve over [least, most], with nodes added until predictions are within tolerance.

    Args:
        problem: budgets, rounds, sampling law and relation.
        group: index of the group.
        accountant: the accountant that calibrates; its base accountant where it has one.
        least: smallest ratio, positive.
        most: largest ratio, at most 1.
    """
    one, base = single_group(problem, group), base_of(accountant, problem.deltas[group])
    low, high = math.log(least), math.log(most)
    if high - low < 1e-9:
        return make_curve(np.array([high]), np.array([_log_noise(one, high, base, False)]))
    count = 2 + math.ceil((high - low) / _MAX_NODE_DISTANCE)
    nodes: dict[float, float] = {}
    for x in np.linspace(low, high, count):
        nodes[x] = _log_noise(one, x, base, False, _extrapolated(nodes))
    pending = list(pairwise(sorted(nodes)))
    while pending:
        left, right = pending.pop()
        middle = (left + right) / 2
        predicted = noise_at(_through(nodes), np.array([math.exp(middle)]))[0][0]
        nodes[middle] = _log_noise(one, middle, base, False, math.log(predicted))
        if abs(math.log(predicted) - nodes[middle]) > _CURVE_TOLERANCE and right - left > 0.05:
            pending += [(left, middle), (middle, right)]
    return _through(nodes)


def refine(
    curve: NoiseCurve, problem: Problem, group: int, accountant: str, ratio: float
) -> tuple[NoiseCurve, float]:
    """The curve with a node at ``ratio``, and the relative error of the curve there before."""
    one, log_ratio = single_group(problem, group), math.log(ratio)
    if accountant in BASES:
        return _corrected(curve, one, log_ratio, accountant)
    log_noise = _log_noise(one, log_ratio, accountant, True)
    error = abs(log_noise - math.log(noise_at(curve, np.array([ratio]))[0][0]))
    nodes = dict(zip(curve.log_ratios.tolist(), curve.log_noise.tolist(), strict=True))
    if min(abs(log_ratio - node) for node in nodes) < 1e-3:
        return curve, error
    nodes[log_ratio] = log_noise
    return _through(nodes), error


def _corrected(
    curve: NoiseCurve, one: Problem, log_ratio: float, accountant: str
) -> tuple[NoiseCurve, float]:
    """The curve with its correction calibrated around ``log_ratio``, and an error estimate.

    The correction is a parabola through three points, or a constant where the curve has one node.
    Where the present correction holds, the curve is returned unchanged with an error of 0.
    """
    (low, high), margin = curve.span, _CORRECTION_DISTANCE / 4
    if curve.correction and low - margin <= log_ratio <= high + margin:
        return curve, 0.0
    distance = _CORRECTION_DISTANCE
    offsets = (-distance, 0.0, distance) if len(curve.log_ratios) > 1 else (0.0,)
    points = np.minimum(log_ratio + np.array(offsets), 0.0)
    points = np.array(sorted(set(np.round(points, 9).tolist())))  # np.unique loads numpy.ma
    base = _cubic(curve, points)[0]
    corrections: list[float] = []
    for point, log_base in zip(points, np.log(base), strict=True):
        log_near = log_base + corrections[-1] if corrections else None
        log_noise = _log_noise(one, float(point), accountant, True, log_near)
        corrections.append(log_noise - log_base)
    fitted = np.polyfit(points, corrections, len(points) - 1)
    span = (float(points[0]), float(points[-1]))
    corrected = replace(curve, correction=tuple(float(x) for x in fitted), span=span)
    return corrected, 1.0


def _extrapolated(nodes: dict[float, float]) -> float | None:
    """Value of the next of evenly spaced nodes, linear in the last two; None without two."""
    if len(nodes) < 2:
        return None
    *_, before, last = nodes.values()
    return 2 * last - before


def _through(nodes: dict[float, float]) -> NoiseCurve:
    log_ratios = sorted(nodes)
    return make_curve(np.array(log_ratios), np.array([nodes[x] for x in log_ratios]))
