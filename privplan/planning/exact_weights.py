"""Exact minimisers of price max(w / H)^2 + sum b w^2 over weights w >= floors with sum w = 1.

Without floors, w = v / sum v with v = min(H, x / b) and the x at which the cap's price is right;
``privplan.planning.error_terms`` derives it. That price divided by t = max(w / H) depends on
neither t nor the floors, so with floors w = max(f, t v), where t makes the weights sum to 1. Where
that t is below f / H of some group, t is the largest f / H, since the error is convex in t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_TIED = 1e-4
"""Relative distance from the peak within which weights count as being at it."""
_HELD = 1e-6
"""The same for floors."""


@dataclass(frozen=True)
class Floored:
    """The best weights with floors.

    Attributes:
        weights: w_m, shape (groups,).
        peak: t = max(w / H).
        level: common slope of the error in weights that neither floor nor cap holds.
        held: groups at their floor, shape (groups,).
        at_peak: how much the caps t H cost groups above their floors, shape (groups,).
        rest: the sum of cost times H that is left for groups whose floor is at the peak.
    """

    weights: Floats
    peak: float
    level: float
    held: NDArray[np.bool_]
    at_peak: Floats
    rest: float


def joint_values(
    reach: Floats, costs: Floats, price: float
) -> tuple[Floats, NDArray[np.bool_], float]:
    """The v of the exact solution without floors, which are at their cap H, and the level x."""
    order = np.argsort(costs * reach)
    edges = (costs * reach)[order]
    levels = (price + np.cumsum((costs * reach**2)[order])) / np.cumsum(reach[order])
    fits = np.append(levels[:-1] <= edges[1:], True)
    level = levels[int(np.argmax(fits))]
    over = np.divide(level, costs, out=np.full_like(costs, np.inf), where=costs > 0)
    return np.asarray(np.minimum(reach, over)), np.asarray(reach <= over), float(level)


def joint_with_floors(reach: Floats, costs: Floats, price: float, floors: Floats) -> Floored:
    """The best weights with floors that sum to at most 1, some of them positive."""
    values, _, level = joint_values(reach, costs, price)
    peak, lowest = _scale(values, floors), float(np.max(floors / reach))
    if peak >= lowest:
        weights, level = np.maximum(floors, peak * values), 2 * peak * level
    else:
        peak = lowest
        positive = np.where(costs > 0, costs, 1e-12 * price / reach)
        weights, level = water_filling(positive, floors, peak * reach)
    held = weights <= floors * (1 + _HELD)
    slopes = 2 * costs * weights
    if np.all(held):
        level = float(np.min(slopes))
    capped = ~held & (weights >= peak * reach * (1 - 1e-12))
    at_peak = np.where(capped, np.maximum(level - slopes, 0.0), 0.0)
    rest = max(2 * price * peak - float(np.sum(at_peak * reach)), 0.0) if peak == lowest else 0.0
    return Floored(np.asarray(weights / weights.sum()), peak, level, held, at_peak, rest)


def _scale(values: Floats, floors: Floats) -> float:
    """The t with sum max(floors, t values) = 1; 0 when the floors alone sum to 1."""
    free = np.ones(len(values), dtype=bool)
    while free.any():
        scale = max((1 - float(floors[~free].sum())) / float(values[free].sum()), 0.0)
        below = free & (scale * values < floors)
        if not below.any():
            return scale
        free &= ~below
    return 0.0


def slopes_by_level(found: Floored, reach: Floats, costs: Floats) -> Floats:
    """Slope of the error in each weight with its cap's cost, shape (groups,).

    The level for groups that their floor does not hold, at least the level for the others.
    """
    cost = found.at_peak.copy()
    first = int(np.argmax(np.where(found.held, found.weights / reach, 0.0)))
    cost[first] += found.rest / reach[first]
    return at_floors(2 * costs * found.weights + cost, found.held, found.level)


def slopes_by_worth(
    found: Floored, reach: Floats, costs: Floats, reach_slope: Floats, cost_slope: Floats
) -> Floats:
    """The same where several groups meet at the peak, which leaves the level open.

    The best cohorts share out the cost of the peak, sum cost H, so that a client more is worth the
    same in each of these groups.

    Args:
        found: the best weights.
        reach: H.
        costs: b.
        reach_slope: dH / dr, positive.
        cost_slope: db / dr.
    """
    weights, slopes = found.weights, 2 * costs * found.weights
    tied = weights >= found.peak * reach * (1 - _TIED)
    total = float(np.sum(found.at_peak * reach)) + found.rest
    per_client = found.peak * reach_slope[tied]
    gain = cost_slope[tied] * weights[tied] ** 2
    share = reach[tied] / per_client
    worth = (total - float(np.sum(gain * share))) / float(np.sum(share))
    slopes[tied] += np.maximum((worth + gain) / per_client, 0.0)
    free = slopes if np.all(found.held) else slopes[~found.held]
    return at_floors(slopes, found.held, float(np.min(free)))


def at_floors(slopes: Floats, held: NDArray[np.bool_], level: float) -> Floats:
    """The slopes where floors hold weights, the level elsewhere; none is below the level."""
    return np.asarray(np.where(held, np.maximum(slopes, level), level))


def water_filling(costs: Floats, min_weights: Floats, caps: Floats) -> tuple[Floats, float]:
    """Minimises sum c w^2 with min_weights <= w <= caps and sum w = 1; returns w and the slope x.

    w = clip(x / 2c, min_weights, caps); its sum is piecewise linear in x, so x is found exactly
    between the breakpoints.
    """
    levels = np.sort(np.concatenate([2 * costs * min_weights, 2 * costs * caps]))
    sums = np.clip(levels[:, None] / (2 * costs), min_weights, caps).sum(axis=1)
    level = float(np.interp(1.0, sums, levels))
    weights = np.clip(level / (2 * costs), min_weights, caps)
    return np.asarray(weights / weights.sum()), level
