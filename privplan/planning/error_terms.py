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

from privplan.planning.exact_weights import (
    at_floors,
    joint_values,
    joint_with_floors,
    slopes_by_level,
    slopes_by_worth,
    water_filling,
)

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
        return joint_with_floors(reach, costs, coefficients.noise, min_weights).weights
    values, _, _ = joint_values(reach, costs, coefficients.noise)
    return np.asarray(values / values.sum())


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
    costs, cost_slope = _costs(cohorts, coefficients)
    reach = cohorts / noise
    if release == "per_group":
        total = price / reach**2 + costs
        inverse = 1 / np.sum(1 / total)
        slope = 2 * price * (slopes - 1) / (reach**2 * cohorts) + cost_slope
        return float(inverse - coefficients.bias), np.asarray((inverse / total) ** 2 * slope)
    values, capped, _ = joint_values(reach, costs, price)
    mass = values.sum()
    error = (price + np.sum(costs * values**2)) / mass**2
    at_cap = np.where(capped, 2 * (costs * values / mass - error) / mass, 0.0)
    gradient = at_cap * (1 - slopes) / noise + (values / mass) ** 2 * cost_slope
    return float(error - coefficients.bias), np.asarray(gradient)


def _costs(cohorts: Floats, coefficients: Coefficients) -> tuple[Floats, Floats]:
    """The costs b and their slopes db / dr, shape (groups,) each."""
    costs = coefficients.sampling / cohorts + coefficients.bias / coefficients.shares
    return np.asarray(costs), np.asarray(-coefficients.sampling / cohorts**2)


def least_error_with_floors(
    cohorts: Floats,
    noise: Floats,
    slopes: Floats,
    coefficients: Coefficients,
    release: ReleaseKind,
    min_weights: Floats,
) -> tuple[float, Floats]:
    """``least_error`` with floors on the weights, some of them positive.

    The error of one sum has a kink where several groups have their floor at the largest
    w_m sigma_m / r_m; the gradient there is that of one side.
    """
    price = coefficients.noise
    costs, cost_slope = _costs(cohorts, coefficients)
    reach = cohorts / noise
    if release == "per_group":
        weights = _with_minimum(price / reach**2 + costs, min_weights)
        noise_slope = 2 * price * (slopes - 1) / (reach**2 * cohorts)
        gradient = weights**2 * (noise_slope + cost_slope)
    else:
        found = joint_with_floors(reach, costs, price, min_weights)
        weights, at_peak = found.weights, found.at_peak.copy()
        first = int(np.argmax(min_weights / reach))
        at_peak[first] += found.rest / reach[first]
        gradient = weights**2 * cost_slope - at_peak * found.peak * (1 - slopes) / noise
    return terms(weights, cohorts, noise, coefficients, release).total, np.asarray(gradient)


def floor_prices(
    cohorts: Floats,
    noise: Floats,
    slopes: Floats,
    coefficients: Coefficients,
    release: ReleaseKind,
    min_weights: Floats,
) -> list[Floats]:
    """Prices of the groups' weights at the best weights with floors, for dual bounds.

    All are such that sum prices w >= 1 for all weights within the floors; a group that its floor
    holds has a price above that of the others. Which bound is sharpest depends on the floors.

    Args:
        cohorts: r_m, shape (groups,).
        noise: sigma_m, shape (groups,).
        slopes: d log sigma_m / d log r_m, shape (groups,).
        coefficients: coefficients of the error terms.
        release: one noisy sum of all groups, or one per group.
        min_weights: least weights, shape (groups,), summing to at most 1, some positive.
    """
    price = coefficients.noise
    costs = coefficients.sampling / cohorts + coefficients.bias / coefficients.shares
    reach = cohorts / noise
    if release == "per_group":
        costs = price / reach**2 + costs
        weights = _with_minimum(costs, min_weights)
        held = weights <= min_weights * (1 + 1e-12)
        marginal = 2 * costs * weights
        level = float(np.min(marginal if held.all() else marginal[~held]))
        found = [at_floors(marginal, held, level)]
    else:
        best = joint_with_floors(reach, costs, price, min_weights)
        reach_slope = np.maximum(1 - slopes, 1e-9) / noise
        cost_slope = -coefficients.sampling / cohorts**2
        found = [
            slopes_by_level(best, reach, costs),
            slopes_by_worth(best, reach, costs, reach_slope, cost_slope),
        ]
    return [one / (one.min() + np.sum((one - one.min()) * min_weights)) for one in found]


def _with_minimum(costs: Floats, min_weights: Floats) -> Floats:
    """Minimises sum c w^2 with w >= min_weights and sum w = 1, c positive."""
    return water_filling(costs, min_weights, np.ones_like(min_weights))[0]
