"""Lower bounds on the error over all cohorts and weights, by Lagrangian duality.

With a multiplier lambda on the cohort constraint the groups separate; each is solved on
a fine grid of cohorts, so the bound needs no convexity of the noise. R is the cohort, r
the groups' cohorts, w = v / sum v their weights; A, b_m and H_m = r_m / sigma_m are
those of ``privplan.planning.error``.

The bias term is not negative, so a bound for a smaller h is a bound, too. Where h^2
dwarfs the error, the bound for h itself is a difference of nearly equal numbers, and
smaller h have a sharper one.

- One sum per group: the error plus h^2 is 1 / sum_m F_m(r_m) with
  F_m = 1 / (A sigma_m^2 / r_m^2 + b_m), and
  sum F <= lambda R + sum_m max_r (F_m - lambda r) for every lambda.
- One sum of all groups: with u = sum v the error plus h^2 is (A + phi(u)) / u^2, where
phi
  is the least sum b_m v_m^2. For every slope nu and price lambda,
  phi(u) >= nu u - lambda R + sum_m min_{r, v <= H_m(r)} (b_m v^2 - nu v + lambda r).
  Between the points where two such lines cross, (A + line) / u^2 has no inner minimum,
  so the bound is the least value at the crossings and at the largest u that any cohorts
  reach.

Floors on weights give every group a price c_m with sum c w >= 1 for all weights within
them. So c_m nu takes the place of nu above, and c_m^2 F_m that of F_m; without floors,
all c_m are 1. The prices are what a unit of weight costs at the end of a search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privplan.planning.descent import local_minimum
from privplan.planning.error import mean_noise_multiplier, terms
from privplan.planning.problem import Limits
from privplan.planning.task import ErrorModel

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

_GRID = 200  # points of the grid over all cohorts
# Steps of the grid are smallest, and even in log r, so far around the cohorts that a
# search ended at.
_FINE = 0.02
# Slopes of the first lines below phi over the tangent there, closest where it touches.
_SLOPES = np.exp([-3.0, -0.5, -0.05, -0.005, 0.0, 0.005, 0.05, 0.5, 3.0])
_MOST_LINES = 40  # how many more are drawn
# Neighbouring slopes that are relatively closer leave nothing between them: what the
# bound still gains is of the order of the square.
_SAME_SLOPE = 1e-3
_BISECTIONS = 26
_HINTS = 3
# Squares of smaller h that are tried, over the error.
_SMALLER_BIAS = (100.0, 30.0, 10.0, 3.0, 0.0)
_ROUNDING = 1e-12


class Gap(NamedTuple):
    """How far cohorts may be above the least error.

    Attributes:
        relative: in [0, 1], over the error of the cohorts.
        hints: cohorts that meet bounds, from which a search may find less; none where
            the
            gap is small enough.
    """

    relative: float
    hints: list[Floats]


class LowerBound(NamedTuple):
    """A lower bound on the error.

    Attributes:
        error: the bound.
        cohorts: cohorts by which it is met, which sum to about the cohort only, shape
            (cases, groups).
    """

    error: float
    cohorts: Floats


def relative_gap(model: ErrorModel, cohorts: Floats, enough: float) -> Gap:
    """How far the error of cohorts may be above the least one, over that error.

    Args:
        model: the error and the limits.
        cohorts: where a search ended, shape (groups,).
        enough: the search for a sharper bound ends at this gap.
    """
    error = model.error(cohorts)
    gap = 1.0
    hints = np.empty((0, len(cohorts)))
    for bound in _bounds(model, cohorts, error):
        hints = np.vstack([hints, bound.cohorts])
        gap = min(gap, max((error - bound.error) / error, 0.0))
        if gap <= enough:
            return Gap(gap, [])
    starts = [model.task.nearest(hint) for hint in np.unique(hints, axis=0)]
    starts.sort(key=model.error)
    return Gap(gap, starts[:_HINTS])


def _bounds(model: ErrorModel, cohorts: Floats, error: float) -> Iterator[LowerBound]:
    """Lower bounds on the error, for the task's h and then for smaller ones."""
    release = model.task.release
    noise = model.noise(cohorts)
    weights = model.weights(cohorts)
    nu = mean_noise_multiplier(weights, cohorts, noise, release)
    full_bias = model.task.coefficients.bias
    smaller = [error * factor for factor in _SMALLER_BIAS if error * factor < full_bias]
    for bias in (full_bias, *smaller):
        reduced = model.with_bias(bias)
        # The slope of phi where (A + phi(u)) / u^2 is least, with u = 1 / nu.
        coefficients = reduced.task.coefficients
        error_terms = terms(weights, cohorts, noise, coefficients, release)
        tangent = 2 * (error_terms.total + bias) / nu
        prices = _weight_prices(reduced, cohorts)
        yield lower_bound(reduced, tangent, prices, cohorts)


def _weight_prices(model: ErrorModel, cohorts: Floats) -> Floats:
    """Prices c_m with sum c w >= 1 for all weights above their floors."""
    floors = model.task.limits.min_weights
    if not floors.any():
        return np.ones_like(cohorts)
    costs = local_minimum(model, cohorts).weight_costs
    # A price above the lowest is paid for a floor only.
    lowest = costs.min()
    costs = np.where(floors > 0, costs, lowest)
    return np.asarray(costs / (lowest + float((costs - lowest) @ floors)))


def lower_bound(
    model: ErrorModel, tangent: float, prices: Floats, near: Floats
) -> LowerBound:
    """A lower bound on the error over all cohorts and weights within the limits.

    Args:
        model: the error and the limits.
        tangent: slope of the first lines below phi; the bound is sharpest where it is
            that of phi at the least error.
        prices: c_m, shape (groups,).
        near: cohorts around which the grid is finest, shape (groups,).
    """
    task = model.task
    coefficients = task.coefficients
    grid = _grid(task.limits, near)
    reach = grid / model.curves.evaluate(grid / task.clients[:, None]).noise
    bias_costs = coefficients.bias / coefficients.shares
    costs = coefficients.sampling / grid + bias_costs[:, None]
    if task.release == "joint":
        return _joint_bound(model, tangent, prices, _Grid(grid, reach, costs))

    gain = prices[:, None] ** 2 / (coefficients.noise / reach**2 + costs)
    dual = _dual_maximum(gain[None], grid, task.problem.cohort)
    return LowerBound(1 / float(dual.values[0]) - coefficients.bias, dual.cohorts)


def _grid(limits: Limits, near: Floats) -> Floats:
    """Cohorts between the limits, closest near some, shape (groups, points)."""
    # Even steps of x where log (r / near) = fine sinh x: even near 0, growing beyond.
    ends = np.arcsinh(
        np.log(np.array([limits.min_cohorts, limits.max_cohorts]) / near) / _FINE
    )
    x = np.linspace(ends[0], ends[1], _GRID, axis=1)
    return np.asarray(near[:, None] * np.exp(_FINE * np.sinh(x)))


class _Grid(NamedTuple):
    """What the cohorts of a grid allow, shape (groups, points).

    Attributes:
        cohorts: r.
        reach: H = r / sigma.
        costs: b.
    """

    cohorts: Floats
    reach: Floats
    costs: Floats


def _joint_bound(
    model: ErrorModel, tangent: float, prices: Floats, grid: _Grid
) -> LowerBound:
    """The bound with one sum of all groups, by lines below phi."""
    total = model.task.problem.cohort
    noise_price = model.task.coefficients.noise
    paid = prices[:, None]
    gains = np.stack([grid.reach, paid * grid.reach])
    dual = _dual_maximum(gains, grid.cohorts, total)
    largest_sum = float(dual.values.min())
    if not np.any(grid.costs > 0):
        return LowerBound(noise_price / largest_sum**2, dual.cohorts)

    # Where the bound is least, another line is drawn between the two that cross there.
    lines = _LinesBelow(noise_price, largest_sum)
    meeting: list[Floats] = []
    new_slopes = (tangent * _SLOPES).tolist()
    for _ in range(_MOST_LINES):
        slopes = np.array(new_slopes)[:, None, None] * paid
        v = np.minimum(grid.reach, slopes / (2 * grid.costs))
        dual = _dual_maximum((slopes - grid.costs * v) * v, grid.cohorts, total)
        meeting.append(dual.cohorts)
        lines.add(new_slopes, dual.values.tolist())
        lowest_bound, between = lines.least_bound()
        if between is None:
            break
        new_slopes = [between]
    return LowerBound(lowest_bound - model.task.coefficients.bias, np.vstack(meeting))


class _LinesBelow:
    """Lines nu u - g below phi(u), with slopes nu and the dual values g of each.

    Attributes:
        noise_price: A, factor on 1 / u^2.
        largest_sum: the largest u that any cohorts reach.
    """

    def __init__(self, noise_price: float, largest_sum: float) -> None:
        self.noise_price = noise_price
        self.largest_sum = largest_sum
        self._lines: list[tuple[float, float]] = []

    def add(self, slopes: list[float], dual_values: list[float]) -> None:
        """Draw more lines.

        Args:
            slopes: of the lines, nu.
            dual_values: g at each of them, as the dual of the groups' problem gives it.
        """
        new = zip(slopes, dual_values, strict=True)
        self._lines = sorted([*self._lines, *new])

    def least_bound(self) -> tuple[float, float | None]:
        """The least (A + phi) / u^2 that the lines allow, and a slope to draw there.

        The slope lies between those of the lines that cross there; None where the bound
        is not at a crossing, or where no slope is left between.
        """
        slopes, values = np.array(self._lines).T
        crossings = np.diff(values) / np.diff(slopes)
        first_crossing = values[:1] / slopes[:1]
        sums = np.concatenate([first_crossing, crossings, [self.largest_sum]])
        inside = (sums > 0) & (sums <= self.largest_sum * (1 + _ROUNDING))
        phi = np.maximum(np.max(np.outer(sums, slopes) - values, axis=1), 0.0)
        bounds = np.full(len(sums), np.inf)
        bounds[inside] = (self.noise_price + phi)[inside] / sums[inside] ** 2

        index = int(bounds.argmin())
        smallest = float(bounds.min())
        if not 0 < index < len(slopes):
            return smallest, None
        if slopes[index] < slopes[index - 1] * (1 + _SAME_SLOPE):
            return smallest, None
        return smallest, math.sqrt(slopes[index - 1] * slopes[index])


class _DualMaximum(NamedTuple):
    """Upper bounds on maxima.

    Attributes:
        values: one for each case, shape (cases,).
        cohorts: those at both ends of the last intervals, shape (ends, groups).
    """

    values: Floats
    cohorts: Floats


def _dual_maximum(gain: Floats, grid: Floats, total: float) -> _DualMaximum:
    """Upper bounds on sum_m gain_m(r_m) with sum r = total: the least dual values.

    Bisection on the multiplier, by the sum of the cohorts that maximise the Lagrangian.
    Any multiplier gives a bound, so the least of all that were tried is taken.

    Args:
        gain: shape (cases, groups, points).
        grid: the cohorts of the points, shape (groups, points).
        total: the cohort.
    """
    cases = np.arange(len(gain))
    groups = np.arange(len(grid))
    low = np.zeros(len(gain))
    high = np.max(gain / grid, axis=(1, 2)) * 2
    reduced = np.empty_like(gain)  # in place, since memory is most of the time
    ends = np.zeros((2, len(gain), len(grid)))
    prices = np.empty((_BISECTIONS, len(gain)))
    largest = np.empty((_BISECTIONS, *gain.shape[:2]), dtype=np.intp)
    for step in range(_BISECTIONS):
        price = (low + high) / 2
        np.multiply(price[:, None, None], grid, out=reduced)
        np.subtract(gain, reduced, out=reduced)
        prices[step] = price
        np.argmax(reduced, axis=2, out=largest[step])
        cohorts = grid[groups, largest[step]]
        is_above = cohorts.sum(axis=1) > total
        low = np.where(is_above, price, low)
        high = np.where(is_above, high, price)
        ends[is_above.astype(int), cases] = cohorts
    peaks = _peaks(gain, grid, prices, largest)
    lowest = np.min(prices * total + peaks.sum(axis=2), axis=0)
    # An end that was never reached is zero.
    return _DualMaximum(lowest, ends[ends.sum(axis=2) > 0])


class _Points(NamedTuple):
    """A grid point of each price, case and group, and the value there."""

    x: Floats
    value: Floats


def _peaks(gain: Floats, grid: Floats, prices: Floats, largest: Indices) -> Floats:
    """Upper bounds on the maxima of gain less price between grid points.

    A function that is concave around its maximum lies, between two points, below the
    lines through the two points before and the two after.

    Args:
        gain: shape (cases, groups, points).
        grid: the cohorts of the points, shape (groups, points).
        prices: of a client, shape (prices, cases).
        largest: index of the largest value, shape (prices, cases, groups).
    """
    cases = np.arange(len(gain))[:, None]
    groups = np.arange(len(grid))
    around: list[_Points] = []
    for offset in range(-2, 3):
        index = np.minimum(np.maximum(largest + offset, 0), grid.shape[1] - 1)
        cohorts = grid[groups, index]
        values = gain[cases, groups, index] - prices[:, :, None] * cohorts
        around.append(_Points(cohorts, values))
    peaks = around[2].value
    peaks = np.fmax(peaks, _highest_between(*around[1:]))
    return np.asarray(np.fmax(peaks, _highest_between(*around[3::-1])))


def _highest_between(
    before: _Points, left: _Points, right: _Points, after: _Points
) -> Floats:
    """Where the line through two points meets that through the next two.

    At ends of the grid two points are the same and the slope of a line is NaN; then the
    other line is taken at the end.
    """
    with np.errstate(all="ignore"):
        rise = (left.value - before.value) / (left.x - before.x)
        fall = (after.value - right.value) / (after.x - right.x)
        meeting = (right.value - left.value + rise * left.x - fall * right.x) / (
            rise - fall
        )
        lower = np.minimum(left.x, right.x)
        upper = np.maximum(left.x, right.x)
        meeting = np.minimum(np.maximum(meeting, lower), upper)
        height = np.fmin(
            left.value + rise * (meeting - left.x),
            right.value + fall * (meeting - right.x),
        )
        height_at_end = np.fmin(
            left.value + rise * (right.x - left.x),
            right.value + fall * (left.x - right.x),
        )
    return np.where(np.isnan(height), height_at_end, height)
