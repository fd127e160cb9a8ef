"""Lower bounds on the error over all cohorts and weights, by Lagrangian duality.

With a multiplier lambda on the cohort constraint the groups separate; each is solved on a fine
grid of cohorts, so the bound needs no convexity of the noise.

The bias term is not negative, so a bound for a smaller h is a bound, too. Where h^2 dwarfs the
error, the bound for h itself is a difference of nearly equal numbers, and smaller h have a
sharper one.

- One sum per group: the error plus h^2 is 1 / sum_m F_m(r_m) with
  F_m = 1 / (A sigma_m^2 / r_m^2 + b_m), and sum F <= lambda R + sum_m max_r (F_m - lambda r)
  for every lambda.
- One sum of all groups: with u = sum v the error plus h^2 is (A + phi(u)) / u^2, where phi is
  the least sum b_m v_m^2. For every slope nu and price lambda,
  phi(u) >= nu u - lambda R + sum_m min_{r, v <= H_m(r)} (b_m v^2 - nu v + lambda r).
  Between the points where two such lines cross, (A + line) / u^2 has no inner minimum, so the
  bound is the least value at the crossings and at the largest u that any cohorts reach.

Floors on weights give every group a price c_m with sum c w >= 1 for all weights within them. So
c_m nu takes the place of nu above, and c_m^2 F_m that of F_m; without floors, all c_m are 1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privplan.planning.error_terms import (
    Coefficients,
    ReleaseKind,
    floor_prices,
    mean_noise_multiplier,
    terms,
)
from privplan.planning.noise_curve import NoiseCurves
from privplan.planning.problem import Limits, Problem

Floats = NDArray[np.float64]

_GRID = 400
_LINES = 41
_REACH = 3.0
_BISECTIONS = 26
_SMALLER_BIAS = (100.0, 30.0, 10.0, 3.0, 0.0)
"""Squares of smaller h that are tried, over the error."""


def relative_gap(
    curves: NoiseCurves,
    problem: Problem,
    limits: Limits,
    coefficients: Coefficients,
    release: ReleaseKind,
    found: tuple[Floats, Floats],
    enough: float,
) -> float:
    """How far the error of a solution may be above the least one, over that error; in [0, 1].

    Args:
        curves: sigma(q) of each group.
        problem: the planning problem.
        limits: bounds on the cohorts.
        coefficients: coefficients of the error terms.
        release: one noisy sum of all groups, or one per group.
        found: weights and cohorts of the solution, shape (groups,) each.
        enough: gap below which no sharper bound is looked for.
    """
    weights, cohorts = found
    noise, slopes = curves.at(cohorts / np.asarray(problem.clients, dtype=float))
    floors = limits.min_weights
    nu = mean_noise_multiplier(weights, cohorts, noise, release)
    value = terms(weights, cohorts, noise, coefficients, release).total
    smaller = [value * factor for factor in _SMALLER_BIAS if value * factor < coefficients.bias]
    gap = 1.0
    for bias in (coefficients.bias, *smaller):
        reduced = replace(coefficients, bias=bias)
        error = terms(weights, cohorts, noise, reduced, release).total
        choices: list[Floats | None] = [None]
        if floors.any():
            choices += floor_prices(cohorts, noise, slopes, reduced, release, floors)
        for prices in reversed(choices):
            bound = lower_bound(curves, problem, limits, reduced, release, (error, nu), prices)
            gap = min(gap, max((value - bound) / value, 0.0))
            if gap <= enough:
                return gap
    return gap


def lower_bound(
    curves: NoiseCurves,
    problem: Problem,
    limits: Limits,
    coefficients: Coefficients,
    release: ReleaseKind,
    found: tuple[float, float],
    prices: Floats | None = None,
) -> float:
    """A lower bound on the error over all cohorts and weights within limits.

    Args:
        curves: sigma(q) of each group.
        problem: the planning problem.
        limits: bounds on the cohorts.
        coefficients: coefficients of the error terms.
        release: one noisy sum of all groups, or one per group.
        found: error and nu of a solution; the bound is sharpest near it.
        prices: of the groups' weights under the floors, by ``floor_prices``; floors are ignored
            when None, which keeps it a bound.
    """
    clients = np.asarray(problem.clients, dtype=float)
    grid = np.geomspace(limits.min_cohorts, limits.max_cohorts, _GRID, axis=1)
    grid = _with_jumps(grid, curves.covered * clients)
    noise = curves.at(grid / clients[:, None])[0]
    reach = grid / noise
    costs = coefficients.sampling / grid + (coefficients.bias / coefficients.shares)[:, None]
    total = problem.cohort
    if release == "per_group":
        gain = 1 / (coefficients.noise / reach**2 + costs)
        gain = gain if prices is None else gain * prices[:, None] ** 2
        return 1 / float(_dual_maximum(gain[None], grid, total)[0]) - coefficients.bias
    tangent = 2 * (found[0] + coefficients.bias) / found[1]
    bound = _joint_bound(reach, costs, grid, coefficients.noise, total, tangent, prices)
    return bound - coefficients.bias


def _with_jumps(grid: Floats, jumps: Floats) -> Floats:
    """The grid with the largest cohorts of least noise, in place of those next to them."""
    for row, jump in zip(grid, jumps, strict=True):
        if row[0] < jump < row[-1]:
            row[np.searchsorted(row, jump) - 1] = jump * (1 - 1e-9)
    return grid


def _dual_maximum(gain: Floats, grid: Floats, total: float) -> Floats:
    """Upper bounds on sum_m gain_m(r_m) with sum r = total: the least dual values evaluated.

    Bisection on the multiplier, by the sum of the cohorts that maximise the Lagrangian.

    Args:
        gain: shape (problems, groups, cohorts).
        grid: the cohorts, shape (groups, cohorts).
        total: sum of the cohorts.

    Returns:
        Shape (problems,).
    """
    low, high = np.zeros(len(gain)), np.max(gain / grid, axis=(1, 2)) * 2
    problems, rows = np.arange(len(gain))[:, None], np.arange(len(grid))
    best, reduced = np.full(len(gain), np.inf), np.empty_like(gain)
    for _ in range(_BISECTIONS):
        price = (low + high) / 2
        np.multiply(price[:, None, None], grid, out=reduced)
        np.subtract(gain, reduced, out=reduced)
        chosen = np.argmax(reduced, axis=2)
        best = np.minimum(best, price * total + reduced[problems, rows, chosen].sum(axis=1))
        above = grid[rows, chosen].sum(axis=1) > total
        low, high = np.where(above, price, low), np.where(above, high, price)
    return best


def _joint_bound(
    reach: Floats,
    costs: Floats,
    grid: Floats,
    price: float,
    total: float,
    tangent: float,
    prices: Floats | None,
) -> float:
    highest = float(_dual_maximum(reach[None], grid, total)[0])
    if prices is not None:
        priced = (prices[:, None] * reach)[None]
        highest = min(highest, float(_dual_maximum(priced, grid, total)[0]))
    if not np.any(costs > 0):
        return price / highest**2
    slopes, values = _lines(reach, costs, grid, total, tangent, prices)
    where = np.concatenate([_crossings(slopes, values), [highest]])
    where = where[(where > 0) & (where <= highest * (1 + 1e-12))]
    floor = np.max(np.outer(where, slopes) + values, axis=1)
    return float(np.min((price + np.maximum(floor, 0.0)) / where**2))


def _lines(
    reach: Floats,
    costs: Floats,
    grid: Floats,
    total: float,
    tangent: float,
    prices: Floats | None,
) -> tuple[Floats, Floats]:
    """Slopes nu and intercepts of lines below phi, closest together near ``tangent``."""
    steps = np.linspace(-1, 1, _LINES)
    slopes = tangent * np.exp(np.sign(steps) * np.abs(steps) ** 3 * _REACH)
    paid = slopes[:, None, None] if prices is None else slopes[:, None, None] * prices[:, None]
    chosen = np.minimum(reach, paid / (2 * costs))
    gain = (paid - costs * chosen) * chosen
    return slopes, -_dual_maximum(gain, grid, total)


def _crossings(slopes: Floats, values: Floats) -> Floats:
    """Abscissae where neighbouring lines cross, preceded by the zero of the first line."""
    inner = -np.diff(values) / np.diff(slopes)
    return np.concatenate([-values[:1] / slopes[:1], inner])
