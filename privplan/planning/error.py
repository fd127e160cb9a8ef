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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from privplan.errors import InputError
from privplan.plan import GroupPlan, Plan

# --- Weights of the groups by rule, and factors that turn noisy sums into the weighted mean. -----
#
# ``weights`` gives w_m by the rule of a spec; ``rule_of`` gives the factor on each group's sum in
# a round by the name of the aggregator in a run's record. The factors depend on expected cohorts
# only, never on the clients who took part.

Rule = Callable[[GroupPlan, Plan], float]
"""(group as planned for a round, plan) -> factor on the sum that contains the group."""


def literal(group: GroupPlan, plan: Plan) -> float:
    """w_m / (q n), with q n the expected cohort (GDPFed+, Algorithm 1 and Appendix B.2)."""
    return group.weight / sum(one.expected_cohort for one in plan.groups)


def normalised(group: GroupPlan, plan: Plan) -> float:
    """w_m / (r_m s_m): the weights on the groups' mean updates add up to 1."""
    return group.weight / (group.expected_cohort * group.scale)


def mean(group: GroupPlan, plan: Plan) -> float:
    """1 / sum_m s_m r_m, one factor for all groups."""
    return 1.0 / sum(one.scale * one.expected_cohort for one in plan.groups)


RULES: MappingProxyType[str, Rule] = MappingProxyType(
    {"literal": literal, "normalised": normalised, "mean": mean}
)
"""Rules of sums of clipped updates by their name in a run's record."""


def _by_epsilon(group: GroupPlan, plan: Plan) -> float:
    """epsilon_m / sum_j epsilon_j r_j (WeiAvg)."""
    return group.epsilon / sum(one.epsilon * one.expected_cohort for one in plan.groups)


def _one_cohort(group: GroupPlan, plan: Plan) -> float:
    """1 / sum_m r_m, with which a hypernetwork's derivatives are added (pFedHN)."""
    return 1.0 / sum(one.expected_cohort for one in plan.groups)


def _per_client(group: GroupPlan, plan: Plan) -> float:
    """w_m / n_m: what an update counts that its client sends by itself."""
    return group.weight / group.clients


_OF_SUMS: dict[str, Rule] = {
    **RULES,
    "by epsilon": _by_epsilon,
    "through the hypernetwork": _one_cohort,
}
_OF_CLIENTS: dict[str, Rule] = dict.fromkeys(
    ("by records", "by epsilon", "by estimated noise", "by noise", "by norm"), _per_client
)


def rule_of(aggregator: str, plan: Plan) -> Rule | None:
    """The rule of an aggregator by its name in a run's record; None where the name is not known."""
    inner = aggregator.rpartition(", ")[2].removeprefix("unshifted ")
    return (_OF_CLIENTS if plan.spec.unit == "record" else _OF_SUMS).get(inner)


Floats = NDArray[np.float64]


def participation(cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats) -> Floats:
    """r_m^2 / sum r^2 (GDPFed+, Appendix B.2), whatever the noise."""
    square = np.asarray(cohorts, dtype=float) ** 2
    return np.asarray(square / square.sum())


def uniform(cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats) -> Floats:
    """1 / M for each of M groups."""
    return np.full(len(cohorts), 1 / len(cohorts))


def inverse_variance(cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats) -> Floats:
    """r_m^2 / sigma_m^2 normalised: the least noise with one noisy sum per group."""
    precision = (np.asarray(cohorts, dtype=float) / np.asarray(noise, dtype=float)) ** 2
    return np.asarray(precision / precision.sum())


def inverse_noise(cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats) -> Floats:
    """r_m / sigma_m normalised: the least noise with one noisy sum of all groups."""
    precision = np.asarray(cohorts, dtype=float) / np.asarray(noise, dtype=float)
    return np.asarray(precision / precision.sum())


WEIGHTS = {
    "participation": participation,
    "uniform": uniform,
    "inverse_variance": inverse_variance,
}


def weights(
    rule: str,
    cohorts: Sequence[float] | Floats,
    noise: Sequence[float] | Floats,
    clients: Sequence[float] | Floats,
) -> Floats:
    """Weights by the rule of a spec."""
    if rule == "population":
        sizes = np.asarray(clients, dtype=float)
        return np.asarray(sizes / sizes.sum())
    if rule not in WEIGHTS:
        raise InputError.one(
            "planning.weights", f"must be one of population, {', '.join(WEIGHTS)}", rule
        )
    return WEIGHTS[rule](cohorts, noise)


# -------------------------------------------------------------------------------------------------
# Exact minimisers of price max(w / H)^2 + sum b w^2 over weights w >= floors with sum w = 1.
#
# Without floors, w = v / sum v with v = min(H, x / b) and the x at which the cap's price is
# right; ``privplan.planning.error`` derives it. That price divided by t = max(w / H)
# depends on neither t nor the floors, so with floors w = max(f, t v), where t makes the weights
# sum to 1. Where that t is below f / H of some group, t is the largest f / H, since the error is
# convex in t.

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


# --- The weighted error of a plan: noise, sampling, and bias from non-population weights. --------

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
    """The error of cohorts, noise multipliers and weights."""
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
    """Returns the exact minimiser of the error over weights, for given cohorts and noise."""
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
