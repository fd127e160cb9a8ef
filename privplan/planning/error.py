"""The weighted error of a plan: noise, sampling, and bias from unequal weights.

    E(r, w) = price [ d C^2 nu^2 + s^2 sum_m w_m^2 / r_m ] + h^2 sum_m (w_m - p_m)^2 /
    p_m

with p_m = N_m / n, and nu = max_m (w_m sigma_m / r_m) for one noisy sum of all groups,
or the root of sum_m (w_m sigma_m / r_m)^2 for one noisy sum per group. Units: squared
norm of a client's update. docs/planning.md derives it from one descent lemma whose
target is fixed at the mean over all clients, so that no choice of weights changes what
is minimised.

For fixed cohorts the best weights are exact. Since sum w = 1, the last term is
h^2 (sum w^2 / p - 1), and everything is quadratic in w. With b_m = price s^2 / r_m +
h^2 / p_m and A = price d C^2:

- one sum per group: w_m proportional to 1 / (A sigma_m^2 / r_m^2 + b_m)
  where no floor on a weight holds;
- one sum: write w = v / sum v with v_m <= H_m = r_m / sigma_m.
  (A + sum b v^2) / (sum v)^2 is least where v_m = min(H_m, x / b_m); groups in the
  order of b_m H_m are at their cap H_m until x = (A + sum_capped b H^2) / sum_capped H
  fits between two of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privplan.errors import InputError

Floats = NDArray[np.float64]
Numbers = Sequence[float] | Floats
ReleaseKind = Literal["joint", "per_group"]

# A cost of zero would make weights infinite; this part of the noise's is as good as
# none.
_SMALLEST_COST = 1e-12


def participation(cohorts: Numbers, noise: Numbers) -> Floats:
    """r_m^2 / sum r^2 (GDPFed+, Appendix B.2), whatever the noise."""
    square = np.asarray(cohorts, dtype=float) ** 2
    return np.asarray(square / square.sum())


def uniform(cohorts: Numbers, noise: Numbers) -> Floats:
    """1 / M for each of M groups."""
    return np.full(len(cohorts), 1 / len(cohorts))


def inverse_variance(cohorts: Numbers, noise: Numbers) -> Floats:
    """r_m^2 / sigma_m^2 normalised: the least noise with one noisy sum per group."""
    ratio = np.asarray(cohorts, dtype=float) / np.asarray(noise, dtype=float)
    precision = ratio**2
    return np.asarray(precision / precision.sum())


WEIGHTS = {
    "participation": participation,
    "uniform": uniform,
    "inverse_variance": inverse_variance,
}


def weights(rule: str, cohorts: Numbers, noise: Numbers, clients: Numbers) -> Floats:
    """Weights of the groups by the rule of a spec, shape (groups,).

    Args:
        rule: ``population`` or a name in ``WEIGHTS``.
        cohorts: expected clients of each group in a round.
        noise: noise multipliers of the groups.
        clients: how many clients each group has.

    Raises:
        InputError: for another rule.
    """
    if rule == "population":
        sizes = np.asarray(clients, dtype=float)
        return np.asarray(sizes / sizes.sum())
    if rule not in WEIGHTS:
        text = f"must be one of population, {', '.join(WEIGHTS)}"
        raise InputError.one("planning.weights", text, rule)
    return WEIGHTS[rule](cohorts, noise)


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


def error_coefficients(
    noise_price: Any,
    dimension: Any,
    clipping_norm: Any,
    shares: Any,
    sampling_price: Any = 0.0,
    update_norm: Any = 0.0,
    heterogeneity: Any = 0.0,
) -> Coefficients:
    """Coefficients of numbers or symbols, by default of the noise alone.

    Args:
        noise_price: price of the noise (rho).
        dimension: parameters of the model (d).
        clipping_norm: C.
        shares: p_m, shape (groups,).
        sampling_price: price of the sampling (rho_s).
        update_norm: s.
        heterogeneity: h.
    """
    return Coefficients(
        noise=noise_price * dimension * clipping_norm**2,
        sampling=sampling_price * update_norm**2,
        bias=heterogeneity**2,
        shares=shares,
    )


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


def squared_noise_multiplier(
    weights: Any,
    cohorts: Any,
    noise: Any,
    release: ReleaseKind,
    kept_fractions: Any = 1.0,
    largest: Callable[[Any], Any] = np.max,
) -> Any:
    """nu^2: the largest k_m (w_m sigma_m / r_m)^2 in one sum of all, else their sum.

    Args:
        weights: w_m, shape (groups,), numbers or symbols as all that follows.
        cohorts: r_m, shape (groups,).
        noise: sigma_m, shape (groups,).
        release: one noisy sum of all groups, or one per group.
        kept_fractions: k_m / d of sparsified updates, shape (groups,).
        largest: the maximum of an array.
    """
    squares = kept_fractions * (weights * noise / cohorts) ** 2
    return largest(squares) if release == "joint" else squares.sum()


def mean_noise_multiplier(
    weights: Floats, cohorts: Floats, noise: Floats, release: ReleaseKind
) -> float:
    """nu: noise per coordinate of the weighted mean update, over the clipping norm."""
    return math.sqrt(squared_noise_multiplier(weights, cohorts, noise, release))


def error_terms(
    weights: Any, cohorts: Any, squared_noise: Any, coefficients: Coefficients
) -> Terms:
    """The error by nu^2, in numbers or symbols; weights and cohorts (groups,)."""
    chi_square = ((weights - coefficients.shares) ** 2 / coefficients.shares).sum()
    return Terms(
        noise=coefficients.noise * squared_noise,
        sampling=coefficients.sampling * (weights**2 / cohorts).sum(),
        bias=coefficients.bias * chi_square,
    )


def terms(
    weights: Floats,
    cohorts: Floats,
    noise: Floats,
    coefficients: Coefficients,
    release: ReleaseKind,
) -> Terms:
    """The error of cohorts, noise multipliers and weights, each of shape (groups,)."""
    squared_noise = squared_noise_multiplier(weights, cohorts, noise, release)
    error = error_terms(weights, cohorts, squared_noise, coefficients)
    return Terms(float(error.noise), float(error.sampling), float(error.bias))


# Exact weights of least error for given cohorts and noise, with floors on the weights.
# Of one sum the error is price t^2 + sum b w^2 with t = max(w / H). Without floors,
# w = v / sum v with v = min(H, x / b) and the x at which the cap's price is right. That
# price divided by t depends on neither t nor the floors, so with floors w = max(f, t
# v), where t makes the weights sum to 1. Where that t is below f / H of some group, t
# is the largest f / H, since the error is convex in t.


def fill(
    base: Floats, rate: Floats, lower: Floats, upper: Floats, total: float
) -> tuple[Floats, float]:
    """``clip(base + x rate, lower, upper)`` with the x at which it sums to ``total``.

    The sum is piecewise linear in x, so x is found exactly between the places where
    entries meet their bounds.

    Args:
        base: values at x = 0.
        rate: how they grow with x, positive.
        lower: their lower bounds.
        upper: their upper bounds.
        total: what they sum to.

    Returns:
        The values, and x.
    """
    # At each edge an entry leaves its lower bound, or meets its upper one.
    edges = np.concatenate([(lower - base) / rate, (upper - base) / rate])
    order = np.argsort(edges)
    edges = edges[order]
    rates = np.cumsum(np.concatenate([rate, -rate])[order])
    sums = lower.sum() + np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(edges))])
    level = float(np.interp(total, sums, edges))
    for _ in range(2):  # the second time takes out what is left by rounding
        values = np.minimum(np.maximum(base + level * rate, lower), upper)
        free = float(rate[(values > lower) & (values < upper)].sum())
        if free > 0:
            level += (total - float(values.sum())) / free
    return values, level


def best(
    cohorts: Floats,
    noise: Floats,
    coefficients: Coefficients,
    release: ReleaseKind,
    floors: Floats,
) -> Floats:
    """The exact minimiser of the error over weights, for given cohorts and noise.

    Args:
        cohorts: r_m, shape (groups,).
        noise: sigma_m, shape (groups,).
        coefficients: those of the error terms.
        release: one noisy sum of all groups, or one per group.
        floors: the least weights, shape (groups,).
    """
    reach = cohorts / noise
    costs = coefficients.sampling / cohorts + coefficients.bias / coefficients.shares
    none = np.zeros_like(costs)
    ones = np.ones_like(costs)
    if release == "per_group":
        rates = 1 / (2 * (coefficients.noise / reach**2 + costs))
        separate, _ = fill(none, rates, floors, ones, 1.0)
        return separate

    capped = _without_floors(reach, costs, coefficients.noise)
    peak = 1 / float(capped.sum())
    if floors.any():
        _, peak = fill(none, capped, floors, ones, 1.0)
    weights = np.maximum(floors, peak * capped)
    lowest_peak = float(np.max(floors / reach))
    if peak < lowest_peak:
        # The cheapest weights between floors and the caps of the lowest peak.
        smallest = _SMALLEST_COST * coefficients.noise / reach
        positive = np.where(costs > 0, costs, smallest)
        caps = np.maximum(lowest_peak * reach, floors)
        weights, _ = fill(none, 1 / (2 * positive), floors, caps, 1.0)
    return np.asarray(weights / weights.sum())


def _without_floors(reach: Floats, costs: Floats, noise_price: float) -> Floats:
    """V of least (A + sum b v^2) / (sum v)^2 with v <= H, shape (groups,)."""
    order = np.argsort(costs * reach)
    edges = (costs * reach)[order]
    capped_costs = np.cumsum((costs * reach**2)[order])
    levels = (noise_price + capped_costs) / np.cumsum(reach[order])
    # The first level that fits below the next group's edge; the last one always fits.
    fits = np.append(levels[:-1] <= edges[1:], True)
    level = float(levels[int(np.argmax(fits))])
    free = np.divide(level, costs, out=np.full_like(costs, np.inf), where=costs > 0)
    return np.asarray(np.minimum(reach, free))
