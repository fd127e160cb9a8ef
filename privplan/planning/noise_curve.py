"""Noise multiplier as a function of the sampling ratio: values between nodes.

In log-log coordinates sigma(q) is smooth: flat while the loss per round is large, of slope 1 in
the small-loss limit. Between nodes it is a cubic, outside them a line. Where delta is so large that
it covers the chance of ever taking part, any noise keeps the budget, so the curve jumps to the
least noise that is certified.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NoiseCurve:
    """Interpolated sigma(q) of one group.

    Attributes:
        log_ratios: log q of the nodes, increasing, shape (nodes,).
        log_noise: log sigma at the nodes, shape (nodes,).
        slopes: d log sigma / d log q at the nodes, shape (nodes,).
        precise: lattice indices of the nodes that are known precisely, for curves of
            ``privplan.planning.loss_nodes``; empty for others.
        covered: log q up to which any noise keeps the budget; -inf where that is nowhere known.
        least: log of the least noise multiplier that is certified, which is the curve up to there.
    """

    log_ratios: Floats
    log_noise: Floats
    slopes: Floats
    precise: frozenset[int] = frozenset()
    covered: float = -math.inf
    least: float = -math.inf


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


def spline(log_ratios: Floats, log_noise: Floats) -> NoiseCurve:
    """The curve through nodes with a continuous second derivative, where that is monotone.

    A cubic spline whose third derivative is continuous at the second and the last but one node.
    Slopes are limited to three times the neighbouring secants, which keeps the curve monotone
    (Fritsch and Carlson 1980).
    """
    if len(log_ratios) < 4:
        return make_curve(log_ratios, log_noise)
    h = np.diff(log_ratios)
    secants = np.diff(log_noise) / h
    count = len(log_ratios)
    system, right = np.zeros((count, count)), np.empty(count)
    inner = np.arange(1, count - 1)
    system[inner, inner - 1], system[inner, inner + 1] = h[1:], h[:-1]
    system[inner, inner] = 2 * (h[:-1] + h[1:])
    right[1:-1] = 3 * (h[1:] * secants[:-1] + h[:-1] * secants[1:])
    for row, near, far, at in ((0, 0, 1, 1), (-1, -1, -2, -2)):
        both = h[near] + h[far]
        system[row, row], system[row, at] = h[far], both
        right[row] = (
            (h[near] + 2 * both) * h[far] * secants[near] + h[near] ** 2 * secants[far]
        ) / both
    slopes = np.linalg.solve(system, right)
    limits = 3 * np.minimum(np.append(secants, np.inf), np.append(np.inf, secants))
    slopes = np.minimum(np.maximum(slopes, 0.0), np.maximum(limits, 0.0))
    return NoiseCurve(log_ratios, log_noise, slopes)


class NoiseCurves:
    """The curves of all groups, evaluated in one pass.

    Args:
        curves: one curve per group.
    """

    def __init__(self, curves: Sequence[NoiseCurve]) -> None:
        self.curves = tuple(curves)
        most = max(2, *(len(curve.log_ratios) for curve in curves))
        self._nodes = np.full((len(curves), most), np.inf)
        self._noise, self._slopes = np.zeros_like(self._nodes), np.zeros_like(self._nodes)
        for row, curve in enumerate(curves):
            count = len(curve.log_ratios)
            self._nodes[row, :count] = curve.log_ratios
            self._noise[row, :count] = curve.log_noise
            self._slopes[row, :count] = curve.slopes
            if count == 1:  # constant
                self._nodes[row, 1] = curve.log_ratios[0] + 1
                self._noise[row, 1] = curve.log_noise[0]
        counts = np.array([max(len(curve.log_ratios), 2) for curve in curves])
        self._last_cell = (counts - 2)[:, None]
        self._rows = np.arange(len(curves))[:, None]
        self._covered = np.array([curve.covered for curve in curves])[:, None]
        self._least = np.array([curve.least for curve in curves])[:, None]
        self._jumps = bool(np.any(np.isfinite(self._least)))

    @property
    def covered(self) -> Floats:
        """Largest ratios at which any noise keeps the budget, 0 without; shape (groups,)."""
        return np.asarray(np.exp(self._covered[:, 0]), dtype=np.float64)

    def at(self, ratios: Floats) -> tuple[Floats, Floats]:
        """sigma(q) and d log sigma / d log q, extrapolated linearly outside the nodes.

        Args:
            ratios: q of each group, positive, shape (groups,) or (groups, ratios).

        Returns:
            Two arrays of that shape.
        """
        if ratios.ndim == 1:
            noise, slope = self.at(ratios[:, None])
            return noise[:, 0], slope[:, 0]
        x, rows = np.log(ratios), self._rows
        below = (self._nodes[:, None, :] < x[:, :, None]).sum(axis=2) - 1
        left = np.minimum(np.maximum(below, 0), self._last_cell)
        right = left + 1
        start = self._nodes[rows, left]
        width = self._nodes[rows, right] - start
        t = (x - start) / width
        inner = np.minimum(np.maximum(t, 0.0), 1.0)  # np.clip costs more than all the rest
        low = self._noise[rows, left]
        low_slope, high_slope = self._slopes[rows, left] * width, self._slopes[rows, right] * width
        rise = self._noise[rows, right] - low
        second = 3 * rise - 2 * low_slope - high_slope
        third = low_slope + high_slope - 2 * rise
        value = low + inner * (low_slope + inner * (second + inner * third))
        slope = low_slope + inner * (2 * second + 3 * inner * third)
        value = value + slope * (t - inner)
        if self._jumps:
            low_part = x <= self._covered
            value, slope = np.where(low_part, self._least, value), np.where(low_part, 0.0, slope)
        return np.exp(value), slope / width


def noise_at(curve: NoiseCurve, ratio: float) -> float:
    """sigma(q) of one curve."""
    return float(NoiseCurves([curve]).at(np.array([ratio]))[0][0])


def log_noise_at(curve: NoiseCurve, log_ratio: float) -> float:
    """Log sigma of one curve at log q."""
    return math.log(noise_at(curve, math.exp(log_ratio)))
