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


_OF_SUMS: dict[str, Rule] = {
    **RULES,
    # epsilon_m / sum_j epsilon_j r_j (WeiAvg)
    "by epsilon": lambda group, plan: (
        group.epsilon / sum(one.epsilon * one.expected_cohort for one in plan.groups)
    ),
    # 1 / sum_m r_m, with which a hypernetwork's derivatives are added (pFedHN)
    "through the hypernetwork": lambda _, plan: (
        1 / sum(one.expected_cohort for one in plan.groups)
    ),
}
# w_m / n_m: what an update counts that its client sends by itself
_OF_CLIENTS: dict[str, Rule] = dict.fromkeys(
    ("by records", "by epsilon", "by estimated noise", "by noise", "by norm"),
    lambda group, _: group.weight / group.clients,
)


def rule_of(aggregator: str, plan: Plan) -> Rule | None:
    """The rule of an aggregator by its name in a run's record; None where the name is not known."""
    inner = aggregator.rpartition(", ")[2].removeprefix("unshifted ")
    return (_OF_CLIENTS if plan.spec.unit == "record" else _OF_SUMS).get(inner)


Floats = NDArray[np.float64]


def participation(
    cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats
) -> Floats:
    """r_m^2 / sum r^2 (GDPFed+, Appendix B.2), whatever the noise."""
    square = np.asarray(cohorts, dtype=float) ** 2
    return np.asarray(square / square.sum())


def uniform(
    cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats
) -> Floats:
    """1 / M for each of M groups."""
    return np.full(len(cohorts), 1 / len(cohorts))


def inverse_variance(
    cohorts: Sequence[float] | Floats, noise: Sequence[float] | Floats
) -> Floats:
    """r_m^2 / sigma_m^2 normalised: the least noise with one noisy sum per group."""
    precision = (np.asarray(cohorts, dtype=float) / np.asarray(noise, dtype=float)) ** 2
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
        known = f"must be one of population, {', '.join(WEIGHTS)}"
        raise InputError.one("planning.weights", known, rule)
    return WEIGHTS[rule](cohorts, noise)


# --- The weighted error of a plan: noise, sampling, and bias from non-population weights. --------

ReleaseKind = Literal["joint", "per_group"]


@dataclass(frozen=True)
class Allocation:
    """Cohorts, noise multipliers and weights, with the release that they are for."""

    cohorts: Floats  # r_m, shape (groups,)
    noise: Floats  # sigma_m, calibrated, shape (groups,)
    weights: Floats  # w_m, shape (groups,)
    release: ReleaseKind  # one noisy sum of all groups, or one per group
    status: str  # how far the allocation is certified to be from the optimum


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of the three error terms."""

    # A, factor on the squared noise multiplier of the mean (price d C^2, with provisions for
    # dropouts)
    noise: float
    sampling: float  # price s^2
    bias: float  # h^2
    shares: Floats  # p_m = N_m / n, shape (groups,)


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
        noise=coefficients.noise
        * mean_noise_multiplier(weights, cohorts, noise, release) ** 2,
        sampling=float(coefficients.sampling * np.sum(weights**2 / cohorts)),
        bias=float(coefficients.bias * chi_square),
    )


# --- Exact weights of least error for given cohorts and noise, with floors on the weights. -------
# Of one sum the error is price t^2 + sum b w^2 with t = max(w / H). Without floors, w = v / sum v
# with v = min(H, x / b) and the x at which the cap's price is right. That price divided by t
# depends on neither t nor the floors, so with floors w = max(f, t v), where t makes the weights
# sum to 1. Where that t is below f / H of some group, t is the largest f / H, since the error is
# convex in t.


def fill(
    base: Floats, rate: Floats, lower: Floats, upper: Floats, total: float
) -> tuple[Floats, float]:
    """``clip(base + x rate, lower, upper)`` with the x at which it sums to ``total``, and that x.

    The sum is piecewise linear in x, so x is found exactly between the places where entries meet
    their bounds. Rates are positive.
    """
    edges = np.concatenate([(lower - base) / rate, (upper - base) / rate])
    order = np.argsort(edges)
    edges, rates = edges[order], np.cumsum(np.concatenate([rate, -rate])[order])
    sums = lower.sum() + np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(edges))])
    level = float(np.interp(total, sums, edges))
    for _ in range(2):  # the second time takes out what is left by rounding
        values = np.minimum(np.maximum(base + level * rate, lower), upper)
        free = float(rate[(values > lower) & (values < upper)].sum())
        level += (total - float(values.sum())) / free if free > 0 else 0.0
    return values, level


def best(
    cohorts: Floats,
    noise: Floats,
    coefficients: Coefficients,
    release: ReleaseKind,
    floors: Floats,
) -> Floats:
    """The exact minimiser of the error over weights, for given cohorts and noise."""
    price, reach = coefficients.noise, cohorts / noise
    costs = coefficients.sampling / cohorts + coefficients.bias / coefficients.shares
    none, ones = np.zeros_like(costs), np.ones_like(costs)
    if release == "per_group":
        return fill(none, 1 / (2 * (price / reach**2 + costs)), floors, ones, 1.0)[0]
    order = np.argsort(costs * reach)
    edges = (costs * reach)[order]
    levels = (price + np.cumsum((costs * reach**2)[order])) / np.cumsum(reach[order])
    level = float(levels[int(np.argmax(np.append(levels[:-1] <= edges[1:], True)))])
    over = np.divide(level, costs, out=np.full_like(costs, np.inf), where=costs > 0)
    values = np.minimum(reach, over)
    peak, lowest = 1 / float(values.sum()), float(np.max(floors / reach))
    if floors.any():
        _, peak = fill(none, values, floors, ones, 1.0)
    weights = np.maximum(floors, peak * values)
    if peak < lowest:  # the cheapest weights between floors and the caps of that peak
        positive = np.where(costs > 0, costs, 1e-12 * price / reach)
        weights = fill(
            none, 1 / (2 * positive), floors, np.maximum(lowest * reach, floors), 1.0
        )[0]
    return np.asarray(weights / weights.sum())
