"""Noise multipliers as functions of the sampling ratio, for a search to evaluate.

log sigma exceeds its central limit by a smooth function of log q. The polynomial
through few roots of the estimate gives it within some percent, which shows where an
optimum lies. A parabola of what is missing at three more roots around that ratio gives
it within some 1e-5.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privplan.planning.budget import Budget, budget_of, central_limit
from privplan.planning.noise import FROM_LOSSES, GUARANTEE, root
from privplan.planning.noise_jumps import covered_ratio
from privplan.planning.problem import Limits, Problem

Floats = NDArray[np.float64]

# From this many alike groups on they share coarse curves, at budgets so far apart in
# log epsilon.
_MANY = 60
_LOG_EPSILON_STEP = 0.15
# Roots of a curve besides those for its width: three make a parabola.
_FEWEST_NODES = 3
# Roots for each unit of log q. Bounds by moments have kinks and need more.
_NODES_PER_UNIT = 1
_NODES_PER_UNIT_OF_MOMENTS = 3
# A step that ends the search for a root of a coarse curve, which is within percent
# anyway.
_LAST_STEP = 5e-3
# Ratios below this part of the usual one count as the smallest above: no optimum is
# there.
_RARE = 0.1
# Ends of curves are multiples of this in log q, so that similar cohorts share them.
_GRAIN = math.log(2.0)
# Ratios that are relatively closer than this leave no range, and are one.
_SAME_RATIO = 1e-9
# How far a parabola reaches to either side in log q; beyond it is constant.
_REACH = 0.35
_REACH_OF_MOMENTS = 0.1
# Centres of parabolas are multiples of this part of the reach in log q, so that points
# of a sweep and searches without a floor share them. A ratio is off by half of it at
# most, which moves no optimum by 1e-4 of its error.
_CENTRE_STEP = 0.3


class NoiseValues(NamedTuple):
    """Values of curves.

    Attributes:
        noise: sigma(q).
        slopes: d log sigma / d log q, not below 0.
    """

    noise: Floats
    slopes: Floats


@dataclass(frozen=True)
class NoiseCurve:
    """sigma(q) of one group; constant where it has no width.

    Attributes:
        budget: what the curve meets.
        accountant: the accountant that says so.
        low: log q at the lower end.
        high: log q at the upper end.
        polynomial: coefficients of the excess over the central limit on [low, high] as
            [-1, 1], lowest power first; of log sigma itself for a constant.
        centre: log q in the middle of the parabola that is added.
        parabola: its coefficients on the reach to either side as [-1, 1].
    """

    budget: Budget
    accountant: str
    low: float
    high: float
    polynomial: tuple[float, ...]
    centre: float = 0.0
    parabola: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def reach(self) -> float:
        """How far the parabola reaches in log q; bounds by moments have kinks."""
        if self.accountant in FROM_LOSSES:
            return _REACH
        return _REACH_OF_MOMENTS

    def refined(self, ratio: float) -> NoiseCurve:
        """The curve with its parabola around a ratio, or close to it."""
        if self.low == self.high:
            return self
        step = _CENTRE_STEP * self.reach
        centre = round(math.log(ratio) / step) * step
        centre = min(centre, self.high - self.reach)
        coarse = replace(self, centre=0.0, parabola=(0.0, 0.0, 0.0))
        return _refined(coarse, centre)


@lru_cache(maxsize=4096)
def _refined(coarse: NoiseCurve, centre: float) -> NoiseCurve:
    """The curve with its parabola around a place in log q."""
    curves = NoiseCurves([coarse])
    missing: list[float] = []
    slope: float | None = None
    for log_ratio in (centre, centre - coarse.reach, centre + coarse.reach):
        ratio = math.exp(log_ratio)
        expected = math.log(curves.evaluate(np.array([ratio])).noise[0])
        # What is missing at the centre is a good guess of what is missing beside it.
        start = expected
        if missing:
            start += missing[0]
        log_noise, slope = root(coarse.budget, ratio, coarse.accountant, start, slope)
        missing.append(log_noise - expected)
    middle, below, above = missing
    parabola = (middle, (above - below) / 2, (above + below) / 2 - middle)
    return replace(coarse, centre=centre, parabola=parabola)


class _Polynomials(NamedTuple):
    """A polynomial in log q for each group, constant beyond its ends.

    Attributes:
        coefficients: on [-1, 1], lowest power first, shape (powers, groups, 1).
        centre: log q at 0, shape (groups, 1).
        width: log q from 0 to 1, shape (groups, 1).
    """

    coefficients: Floats
    centre: Floats
    width: Floats

    def evaluate(self, log_ratios: Floats) -> tuple[Floats, Floats]:
        """Values and their derivatives by log q, for shape (groups, ratios)."""
        x = (log_ratios - self.centre) / self.width
        inside = np.minimum(np.maximum(x, -1.0), 1.0)
        # Horner's scheme of value and derivative.
        value = np.zeros_like(x)
        change = np.zeros_like(x)
        for coefficient in self.coefficients[::-1]:
            change = change * inside + value
            value = value * inside + coefficient
        return value, np.where(x == inside, change / self.width, 0.0)


class NoiseCurves:
    """The curves of all groups, evaluated in one pass."""

    def __init__(self, curves: Sequence[NoiseCurve]) -> None:
        self.curves = tuple(curves)
        low = _column([curve.low for curve in curves])
        high = _column([curve.high for curve in curves])
        self._varying = high > low

        powers = max(len(curve.polynomial) for curve in curves)
        coefficients = np.zeros((powers, len(curves), 1))
        for group, curve in enumerate(curves):
            coefficients[: len(curve.polynomial), group, 0] = curve.polynomial
        self._polynomials = _Polynomials(
            coefficients,
            centre=(low + high) / 2,
            width=np.where(self._varying, (high - low) / 2, 1.0),
        )
        self._parabolas = _Polynomials(
            np.array([curve.parabola for curve in curves]).T[:, :, None],
            centre=_column([curve.centre for curve in curves]),
            width=_column([curve.reach for curve in curves]),
        )

        budgets = [curve.budget for curve in curves]
        self._squared_mu = _column([budget.squared_mu_per_round for budget in budgets])
        self._sensitivity = _column([budget.sensitivity for budget in budgets])
        self._compares_mixtures = budgets[0].compares_mixtures
        self._lowest_log_noise = _column(
            [budget.lowest_log_noise for budget in budgets]
        )

    def evaluate(self, ratios: Floats) -> NoiseValues:
        """sigma(q) and its slope d log sigma / d log q.

        Args:
            ratios: sampling ratios, shape (groups,) or (groups, ratios).

        Returns:
            Noise multipliers and slopes, of the same shape.
        """
        if ratios.ndim == 1:
            noise, slopes = self.evaluate(ratios[:, None])
            return NoiseValues(noise[:, 0], slopes[:, 0])

        log_ratios = np.log(ratios)
        log_noise, slopes = central_limit(
            self._squared_mu / ratios**2, self._sensitivity, self._compares_mixtures
        )
        for polynomials in (self._polynomials, self._parabolas):
            excess, change = polynomials.evaluate(log_ratios)
            log_noise = log_noise + excess
            slopes = slopes + change

        # No noise below the smallest is certified, and more ratio never needs less
        # noise.
        log_noise = np.maximum(log_noise, self._lowest_log_noise)
        slopes = np.maximum(slopes, 0.0)
        constant = self._polynomials.coefficients[0]
        log_noise = np.where(self._varying, log_noise, constant)
        return NoiseValues(np.exp(log_noise), np.where(self._varying, slopes, 0.0))


def _column(values: list[float]) -> Floats:
    """Values of the groups, shape (groups, 1)."""
    return np.array(values)[:, None]


def curves_of(problem: Problem, limits: Limits, accountant: str) -> NoiseCurves:
    """The coarse curves of all groups over the ratios that limits allow.

    Args:
        problem: the groups with their budgets.
        limits: bounds on the cohorts, which hold each group on one side of its jump.
        accountant: name of the accountant that says what is spent.
    """
    clients = np.asarray(problem.clients, dtype=float)
    highest = np.minimum(limits.max_cohorts / clients, 1.0)
    usual = problem.cohort / problem.population
    rare = np.minimum(_RARE * usual, highest)
    lowest = np.maximum(limits.min_cohorts / clients, rare)
    budgets = [budget_of(problem, group) for group in range(len(clients))]
    alike = Counter(replace(budget, epsilon=1.0) for budget in budgets)

    curves: list[NoiseCurve] = []
    for group, budget in enumerate(budgets):
        fixed_noise = problem.fixed_noise[group] if problem.fixed_noise else None
        if fixed_noise:
            curves.append(_constant(budget, accountant, math.log(fixed_noise)))
            continue
        curves.append(
            _curve_between(
                budget,
                accountant,
                float(lowest[group]),
                float(highest[group]),
                shared=alike[replace(budget, epsilon=1.0)] > _MANY,
            )
        )
    return NoiseCurves(curves)


def _constant(budget: Budget, accountant: str, log_noise: float) -> NoiseCurve:
    """The curve of a group that has one ratio only: a point."""
    return NoiseCurve(budget, accountant, 0.0, 0.0, (log_noise,))


def _curve_between(
    budget: Budget, accountant: str, lowest: float, highest: float, shared: bool
) -> NoiseCurve:
    """The coarse curve between two ratios; from shared ones among many alike."""
    covered = 0.0
    if accountant == GUARANTEE:
        covered = covered_ratio(budget.delta, budget.chances)
    if highest <= covered:
        return _constant(budget, accountant, budget.lowest_log_noise)
    if highest - lowest <= _SAME_RATIO * highest:
        return _only_point(budget, accountant, highest)

    # Ends on the grain, but above the jump of the noise and at most at a ratio of 1.
    low = math.floor(math.log(lowest) / _GRAIN) * _GRAIN
    if covered > 0:
        low = max(low, math.log(covered) + _SAME_RATIO)
    high = min(math.ceil(math.log(highest) / _GRAIN) * _GRAIN, 0.0)
    if shared:
        return _shared_curve(budget, accountant, low, high)
    return _coarse_curve(budget, accountant, low, high)


@lru_cache(maxsize=4096)
def _only_point(budget: Budget, accountant: str, ratio: float) -> NoiseCurve:
    """The curve of a group that has one ratio; tasks that are compared share many."""
    log_noise, _ = root(budget, ratio, accountant)
    return _constant(budget, accountant, log_noise)


def _shared_curve(
    budget: Budget, accountant: str, low: float, high: float
) -> NoiseCurve:
    """The coarse curve by a cubic in log epsilon through those of four budgets."""
    place = math.log(budget.epsilon) / _LOG_EPSILON_STEP
    nodes = [math.floor(place) + step for step in (-1, 0, 1, 2)]
    # Weights of Lagrange's interpolation.
    weights: list[float] = []
    polynomials: list[tuple[float, ...]] = []
    for node in nodes:
        factors = [(place - rival) / (node - rival) for rival in nodes if rival != node]
        weights.append(math.prod(factors))
        neighbour = replace(budget, epsilon=math.exp(node * _LOG_EPSILON_STEP))
        curve = _coarse_curve(neighbour, accountant, low, high)
        polynomials.append(curve.polynomial)
    polynomial = np.array(weights) @ np.array(polynomials)
    return NoiseCurve(budget, accountant, low, high, tuple(polynomial.tolist()))


@lru_cache(maxsize=4096)
def _coarse_curve(
    budget: Budget, accountant: str, low: float, high: float
) -> NoiseCurve:
    """The curve through roots at Chebyshev nodes, each found from those before."""
    density = _NODES_PER_UNIT_OF_MOMENTS
    if accountant in FROM_LOSSES:
        density = _NODES_PER_UNIT
    count = _FEWEST_NODES + math.ceil(density * (high - low))
    x = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    nodes = ((low + high) / 2 + x * (high - low) / 2).tolist()

    excess: list[float] = []
    log_noise = 0.0
    slope: float | None = None
    for index, node in enumerate(nodes):
        ratio = math.exp(node)
        central = budget.central_log_noise(ratio)
        start = central
        if excess:  # along the parabola through the last three
            last_three = slice(max(index - 3, 0), index)
            parabola = _interpolation(x[last_three], excess[last_three])
            start += float(np.polynomial.polynomial.polyval(x[index], parabola))
        if slope is not None:
            slope *= budget.steepness(start) / budget.steepness(log_noise)
        log_noise, slope = root(budget, ratio, accountant, start, slope, _LAST_STEP)
        excess.append(log_noise - central)
    polynomial = tuple(_interpolation(x, excess).tolist())
    return NoiseCurve(budget, accountant, low, high, polynomial)


def _interpolation(x: Floats, values: list[float]) -> Floats:
    """Coefficients of the polynomial through points, lowest power first."""
    powers = x[:, None] ** np.arange(len(values))
    return np.asarray(np.linalg.solve(powers, np.array(values)))
