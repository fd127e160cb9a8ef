"""Privacy filters: what a release costs when later releases are chosen after seeing earlier ones.

Composing privacy losses exactly is no valid filter: an adversary that chooses the next release by
the outcome of the last exceeds delta (arXiv 2602.06756). Two filters are valid. Each adds up one
non-negative cost per release against a capacity that is fixed before the first release:

- ``renyi``: the Rényi divergence at one order alpha. While its sum is at most R, every adaptive
  sequence has a divergence of at most R (Feldman and Zrnic 2021, arXiv 2008.11193, Theorem 4.3),
  and R converts to (epsilon, delta).
- ``gaussian``: mu^2 of Gaussian releases in which everybody takes part. While the sum is at most
  mu^2, the sequence is mu-GDP (Smith and Thakurta 2022, arXiv 2210.17520). It costs nothing
  over composition fixed in advance, and does not cover sampling.

Costs are whole numbers of a fixed unit, rounded up, and capacities are rounded down, so that sums
are exact.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from privplan.accounting.gdp import epsilon_of, mu_of
from privplan.accounting.noise_families import not_gaussian
from privplan.accounting.rdp import ORDERS, rdp_of_release
from privplan.accounting.release import History, Relation
from privplan.errors import InputError, UnsupportedError

Rule = Literal["renyi", "gaussian"]
UNIT = 10.0**-10
"""Cost of one unit: Rényi divergence or mu^2."""
MOST_UNITS = 2**62


def order_of(
    epsilon: float,
    delta: float,
    typical: History | None = None,
    relation: Relation = Relation.ADD_REMOVE,
) -> int:
    """Index in ``ORDERS`` of the order at which most runs fit into a budget.

    Any order that is fixed before the first release gives a valid filter.

    Args:
        epsilon: the budget.
        delta: its failure probability.
        typical: releases of a typical run; Gaussian releases without sampling by default.
        relation: neighbouring relation.
    """
    _check(epsilon, delta)
    each = ORDERS if typical is None else _divergences(typical, relation)
    return int(np.argmax(_capacities(epsilon, delta) / np.maximum(each, 1e-300)))


def _divergences(history: History, relation: Relation) -> np.ndarray:
    total = np.zeros_like(ORDERS)
    for release, count in history:
        total = total + count * rdp_of_release(release, relation)
    return total


def _capacities(epsilon: float, delta: float) -> np.ndarray:
    """Rényi divergence at each order that implies (epsilon, delta); may be negative."""
    converted = np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return np.asarray(epsilon - converted)


def capacity(rule: Rule, epsilon: float, delta: float, order: int) -> int:
    """The capacity of a budget, in units, at an order (Rényi filter).

    Raises:
        InputError: when the budget is out of range, or no order implies it.
    """
    _check(epsilon, delta)
    if rule == "gaussian":
        return _down(mu_of(epsilon, delta) ** 2)
    found = float(_capacities(epsilon, delta)[order])
    if found <= UNIT:
        raise InputError.one("epsilon", "must be larger for a Rényi filter at this delta", epsilon)
    return _down(found)


def cost(rule: Rule, history: History, relation: Relation, order: int) -> int:
    """The cost of releases, in units; more than any capacity where they have no noise.

    Args:
        rule: the filter.
        history: the releases.
        relation: neighbouring relation.
        order: index in ``ORDERS``, for the Rényi filter.

    Raises:
        UnsupportedError: when the filter does not cover a release.
    """
    reason = not_gaussian(history)
    if reason is not None:
        raise UnsupportedError(f"{rule} filter: {reason}")
    total = 0
    for release, count in history:
        if release.sampling_ratio == 0 or math.isinf(release.noise_multiplier):
            continue
        if rule == "gaussian":
            if release.sampling_ratio != 1:
                raise UnsupportedError(
                    "gaussian filter: covers releases in which everybody takes part, found "
                    f"ratio {release.sampling_ratio:g}; use the renyi filter"
                )
            noise = release.noise_multiplier / release.sampling.law.sensitivity(relation)
            one = math.inf if noise < 1e-9 else noise**-2
        else:
            one = float(rdp_of_release(release, relation)[order])
        total += _up(one) * count
        if total > MOST_UNITS:
            return MOST_UNITS
    return total


def spent_epsilon(rule: Rule, units: int, delta: float, order: int) -> float:
    """Upper bound on the epsilon at ``delta`` of releases with this cost, chosen adaptively."""
    if units == 0:
        return 0.0
    if units >= MOST_UNITS:
        return math.inf
    value = units * UNIT
    if rule == "gaussian":
        return epsilon_of(math.sqrt(value), delta)
    alpha = float(ORDERS[order])
    shift = math.log1p(-1 / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1)
    return max(0.0, value + shift)


def _check(epsilon: float, delta: float) -> None:
    if not (0 < epsilon < 1000 and 0 < delta < 1):
        rule = "must have epsilon in (0, 1000) and delta in (0, 1)"
        raise InputError.one("budget", rule, (epsilon, delta))


def _up(value: float) -> int:
    if not value < MOST_UNITS * UNIT:
        return MOST_UNITS
    return math.ceil(value / UNIT * (1 + 1e-12))


def _down(value: float) -> int:
    return min(math.floor(value / UNIT * (1 - 1e-12)), MOST_UNITS)
