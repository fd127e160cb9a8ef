"""The error that a plan leaves in the run: noise, sampling, and leaning away from the mean.

    E(r, w) = price [ d C^2 nu^2 + s^2 sum_m w_m^2 / r_m ] + h^2 sum_m (w_m - p_m)^2 / p_m

with p_m = N_m / n, and nu = max_m (w_m sigma_m / r_m) for one noisy sum of all groups, or
the root of sum_m (w_m sigma_m / r_m)^2 for a sum of each group. Units: squared norm of a
client's update. docs/planning.md derives it from one descent lemma whose target is fixed at
the mean over all clients, so that no choice of weights changes what is minimised.

For fixed cohorts the best weights are exact. Since sum w = 1, the last term is
h^2 (sum w^2 / p - 1), and everything is quadratic in w. With b_m = price s^2 / r_m + h^2 / p_m
and A = price d C^2:

- a sum of each group: w_m proportional to 1 / (A sigma_m^2 / r_m^2 + b_m)
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
class Coefficients:
    """What each kind of error costs.

    Attributes:
        noise: A, price of the squared noise multiplier of the mean (price d C^2, with
            provisions for dropouts).
        sampling: price s^2.
        leaning: h^2.
        shares: p_m = N_m / n, shape (groups,).
    """

    noise: float
    sampling: float
    leaning: float
    shares: Floats


@dataclass(frozen=True)
class Terms:
    """The three terms of the error, in squared norm of an update."""

    noise: float
    sampling: float
    leaning: float

    @property
    def total(self) -> float:
        """Their sum."""
        return self.noise + self.sampling + self.leaning


def spread(weights: Floats, cohorts: Floats, noise: Floats, release: ReleaseKind) -> float:
    """nu: noise of the weighted mean over the clipping norm, a coordinate."""
    shares = weights * noise / cohorts
    return float(shares.max() if release == "joint" else np.sqrt(np.sum(shares**2)))


def terms(
    weights: Floats, cohorts: Floats, noise: Floats, prices: Coefficients, release: ReleaseKind
) -> Terms:
    """The error of a choice.

    Args:
        weights: w_m, shape (groups,), summing to 1.
        cohorts: r_m, shape (groups,).
        noise: sigma_m, shape (groups,).
        prices: what each kind of error costs.
        release: one noisy sum of all groups, or one a group.
    """
    lean = np.sum((weights - prices.shares) ** 2 / prices.shares)
    return Terms(
        noise=prices.noise * spread(weights, cohorts, noise, release) ** 2,
        sampling=float(prices.sampling * np.sum(weights**2 / cohorts)),
        leaning=float(prices.leaning * lean),
    )


def best_weights(
    cohorts: Floats, noise: Floats, prices: Coefficients, release: ReleaseKind, floors: Floats
) -> Floats:
    """The weights that minimise the error for given cohorts and noise; exact.

    Args:
        cohorts: r_m, shape (groups,).
        noise: sigma_m, shape (groups,).
        prices: what each kind of error costs.
        release: one noisy sum of all groups, or one a group.
        floors: least weights, shape (groups,), summing to at most 1.
    """
    costs = prices.sampling / cohorts + prices.leaning / prices.shares
    reach = cohorts / noise
    if release == "per_group":
        return _above_floors(prices.noise / reach**2 + costs, floors)
    if np.any(floors > 0):
        return _one_noise_above_floors(reach, costs, prices.noise, floors)
    return _one_noise(reach, costs, prices.noise)


def _above_floors(costs: Floats, floors: Floats) -> Floats:
    """Least sum c w^2 with w >= floors and sum w = 1, c positive."""
    return _filled(costs, floors, np.ones_like(floors))[0]


def _one_noise(reach: Floats, costs: Floats, price: float) -> Floats:
    """Least price max(w / H)^2 + sum b w^2 with sum w = 1; the exact solution above."""
    order = np.argsort(costs * reach)
    edges = (costs * reach)[order]
    levels = (price + np.cumsum((costs * reach**2)[order])) / np.cumsum(reach[order])
    fits = np.append(levels[:-1] <= edges[1:], True)
    level = levels[int(np.argmax(fits))]
    over = np.divide(level, costs, out=np.full_like(costs, np.inf), where=costs > 0)
    values = np.minimum(reach, over)
    return np.asarray(values / values.sum())


def _one_noise_above_floors(reach: Floats, costs: Floats, price: float, floors: Floats) -> Floats:
    """The same with w >= floors: a bisection on t = max(w / H), in which the error is convex.

    The slope in t is 2 price t - sum_m mu_m H_m, where mu_m = max(x - 2 b_m w_m, 0) is what a
    group at its cap t H_m would gain, and x the common slope of the groups inside.
    """
    costs = np.where(costs > 0, costs, 1e-12 * price / reach)
    low = max(float(np.max(floors / reach)), 1 / float(reach.sum()))
    high = max(2 * low, float(np.max(1 / reach)))

    def slope(t: float) -> float:
        weights, level = _filled(costs, floors, t * reach)
        capped = weights >= t * reach * (1 - 1e-12)
        gains = np.where(capped, np.maximum(level - 2 * costs * weights, 0.0), 0.0)
        return 2 * price * t - float(np.sum(gains * reach))

    for _ in range(60):
        middle = (low + high) / 2
        if slope(middle) < 0:
            low = middle
        else:
            high = middle
    return _filled(costs, floors, high * reach)[0]


def _filled(costs: Floats, floors: Floats, caps: Floats) -> tuple[Floats, float]:
    """Least sum c w^2 with floors <= w <= caps and sum w = 1, and the common slope x.

    w = clip(x / 2c, floors, caps); its sum is piecewise linear in x, so x is found exactly
    between the breakpoints.
    """
    levels = np.sort(np.concatenate([2 * costs * floors, 2 * costs * caps]))
    sums = np.clip(levels[:, None] / (2 * costs), floors, caps).sum(axis=1)
    level = float(np.interp(1.0, sums, levels))
    weights = np.clip(level / (2 * costs), floors, caps)
    return np.asarray(weights / weights.sum()), level
