"""The weighted error of a plan: noise, sampling, and bias from non-population weights.

    E(r, w) = price [ d C^2 nu^2 + s^2 sum_m w_m^2 / r_m ] + h^2 sum_m (w_m - p_m)^2 / p_m

with p_m = N_m / n, and nu = max_m (w_m sigma_m / r_m) for one noisy sum of all groups, or
the root of sum_m (w_m sigma_m / r_m)^2 for one noisy sum per group. Units: squared norm of a
client's update. docs/planning.md derives it from one descent lemma whose target is fixed at
the mean over all clients, so that no choice of weights changes what is minimised.

For fixed cohorts the best weights are exact. Since sum w = 1, the last term is
h^2 (sum w^2 / p - 1), and everything is quadratic in w. With b_m = price s^2 / r_m + h^2 / p_m
and A = price d C^2:

- one sum per group: w_m proportional to 1 / (A sigma_m^2 / r_m^2 + b_m)
  where no floor on a weight holds;
- one sum: write w = v / sum v with v_m <= H_m = r_m / sigma_m. (A + sum b v^2) / (sum v)^2 is
  least where v_m = min(H_m, x / b_m); groups in the order of b_m H_m are at their cap H_m
  until x = (A + sum_capped b H^2) / sum_capped H fits between two of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ReleaseKind = Literal["joint", "per_group"]


@dataclass(frozen=True)
class Allocation:
    """Cohorts, noise multipliers and weights, with the release that they are for.

    Attributes:
        cohorts: r_m, shape (groups,).
        noise: sigma_m, calibrated, shape (groups,).
        weights: w_m, shape (groups,).
        release: one noisy sum of all groups, or one per group.
        status: how far the allocation is certified to be from the optimum.
    """

    cohorts: Floats
    noise: Floats
    weights: Floats
    release: ReleaseKind
    status: str


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of the three error terms.

    Attributes:
        noise: A, factor on the squared noise multiplier of the mean (price d C^2, with
            provisions for dropouts).
        sampling: price s^2.
        bias: h^2.
        shares: p_m = N_m / n, shape (groups,).
    """

    noise: float
    sampling: float
    bias: float
    shares: Floats


@dataclass(frozen=True)
class Terms:
    """The three terms of the error, in squared norm of an update."""

    noise: float
    sampling: float
    bias: float

    @property
    def total(self) -> float:
        """Their sum."""
        return self.noise + self.sampling + self.bias


def mean_noise_multiplier(
    weights: Floats, cohorts: Floats, noise: Floats, release: ReleaseKind
) -> float:
    """nu: noise per coordinate of the weighted mean update, over the clipping norm."""
    shares = weights * noise / cohorts
    return float(shares.max() if release == "joint" else np.sqrt(np.sum(shares**2)))


def terms(
    weights: Floats,
    cohorts: Floats,
    noise: Floats,
    coefficients: Coefficients,
    release: ReleaseKind,
) -> Terms:
    """The error of cohorts, noise multipliers and weights.

    Args:
        weights: w_m, shape (groups,), summing to 1.
        cohorts: r_m, shape (groups,).
        noise: sigma_m, shape (groups,).
        coefficients: coefficients of the error terms.
        release: one noisy sum of all groups, or one per group.
    """
    chi_square = np.sum((weights - coefficients.shares) ** 2 / coefficients.shares)
    return Terms(
        noise=coefficients.noise * mean_noise_multiplier(weights, cohorts, noise, release) ** 2,
        sampling=float(coefficients.sampling * np.sum(weights**2 / cohorts)),
        bias=float(coefficients.bias * chi_square),
    )


def best_weights(
    cohorts: Floats,
    noise: Floats,
    coefficients: Coefficients,
    release: ReleaseKind,
    min_weights: Floats,
) -> Floats:
    """Returns the exact minimiser of the error over weights, for given cohorts and noise.

    Args:
        cohorts: r_m, shape (groups,).
        noise: sigma_m, shape (groups,).
        coefficients: coefficients of the error terms.
        release: one noisy sum of all groups, or one per group.
        min_weights: least weights, shape (groups,), summing to at most 1.
    """
    costs = coefficients.sampling / cohorts + coefficients.bias / coefficients.shares
    reach = cohorts / noise
    if release == "per_group":
        return _with_minimum(coefficients.noise / reach**2 + costs, min_weights)
    if np.any(min_weights > 0):
        return _joint_with_minimum(reach, costs, coefficients.noise, min_weights)
    return _joint(reach, costs, coefficients.noise)


def least_error(
    cohorts: Floats,
    noise: Floats,
    slopes: Floats,
    coefficients: Coefficients,
    release: ReleaseKind,
) -> tuple[float, Floats]:
    """The error of the best weights without floors, and its gradient in the cohorts.

    By the envelope theorem the weights count as fixed. For one sum the error plus h^2 is
    (A + sum b v^2) / (sum v)^2 with v_m = min(H_m, x / b_m): it changes with H_m where v_m is at
    that cap, and with b_m everywhere. For one sum per group it is 1 / sum_m 1 / c_m with
    c_m = A / H_m^2 + b_m.

    Args:
        cohorts: r_m, shape (groups,).
        noise: sigma_m, shape (groups,).
        slopes: d log sigma_m / d log r_m, shape (groups,).
        coefficients: coefficients of the error terms.
        release: one noisy sum of all groups, or one per group.

    Returns:
        The error and its gradient, shape (groups,).
    """
    price = coefficients.noise
    costs = coefficients.sampling / cohorts + coefficients.bias / coefficients.shares
    cost_slope = -coefficients.sampling / cohorts**2
    reach = cohorts / noise
    if release == "per_group":
        total = price / reach**2 + costs
        inverse = 1 / np.sum(1 / total)
        slope = 2 * price * (slopes - 1) / (reach**2 * cohorts) + cost_slope
        return float(inverse - coefficients.bias), np.asarray((inverse / total) ** 2 * slope)
    values, capped = _joint_values(reach, costs, price)
    mass = values.sum()
    error = (price + np.sum(costs * values**2)) / mass**2
    at_cap = np.where(capped, 2 * (costs * values / mass - error) / mass, 0.0)
    gradient = at_cap * (1 - slopes) / noise + (values / mass) ** 2 * cost_slope
    return float(error - coefficients.bias), np.asarray(gradient)


def _with_minimum(costs: Floats, min_weights: Floats) -> Floats:
    """Minimises sum c w^2 with w >= min_weights and sum w = 1, c positive."""
    return _water_filling(costs, min_weights, np.ones_like(min_weights))[0]


def _joint(reach: Floats, costs: Floats, price: float) -> Floats:
    """Minimises price max(w / H)^2 + sum b w^2 with sum w = 1; the exact solution above."""
    values, _ = _joint_values(reach, costs, price)
    return np.asarray(values / values.sum())


def _joint_values(reach: Floats, costs: Floats, price: float) -> tuple[Floats, NDArray[np.bool_]]:
    """The v of the exact solution above, and which of them are at their cap H."""
    order = np.argsort(costs * reach)
    edges = (costs * reach)[order]
    levels = (price + np.cumsum((costs * reach**2)[order])) / np.cumsum(reach[order])
    fits = np.append(levels[:-1] <= edges[1:], True)
    level = levels[int(np.argmax(fits))]
    over = np.divide(level, costs, out=np.full_like(costs, np.inf), where=costs > 0)
    return np.asarray(np.minimum(reach, over)), np.asarray(reach <= over)


def _joint_with_minimum(reach: Floats, costs: Floats, price: float, min_weights: Floats) -> Floats:
    """The same with w >= min_weights, by bisection on t = max(w / H), in which the error is convex.

    The slope in t is 2 price t - sum_m mu_m H_m, where mu_m = max(x - 2 b_m w_m, 0) is the
    multiplier of the cap t H_m, and x the common slope of the groups below their caps.
    """
    costs = np.where(costs > 0, costs, 1e-12 * price / reach)
    low = max(float(np.max(min_weights / reach)), 1 / float(reach.sum()))
    high = max(2 * low, float(np.max(1 / reach)))

    def slope(t: float) -> float:
        weights, level = _water_filling(costs, min_weights, t * reach)
        capped = weights >= t * reach * (1 - 1e-12)
        gains = np.where(capped, np.maximum(level - 2 * costs * weights, 0.0), 0.0)
        return 2 * price * t - float(np.sum(gains * reach))

    for _ in range(60):
        middle = (low + high) / 2
        if slope(middle) < 0:
            low = middle
        else:
            high = middle
    return _water_filling(costs, min_weights, high * reach)[0]


def _water_filling(costs: Floats, min_weights: Floats, caps: Floats) -> tuple[Floats, float]:
    """Minimises sum c w^2 with min_weights <= w <= caps and sum w = 1; returns w and the slope x.

    w = clip(x / 2c, min_weights, caps); its sum is piecewise linear in x, so x is found exactly
    between the breakpoints.
    """
    levels = np.sort(np.concatenate([2 * costs * min_weights, 2 * costs * caps]))
    sums = np.clip(levels[:, None] / (2 * costs), min_weights, caps).sum(axis=1)
    level = float(np.interp(1.0, sums, levels))
    weights = np.clip(level / (2 * costs), min_weights, caps)
    return np.asarray(weights / weights.sum()), level
