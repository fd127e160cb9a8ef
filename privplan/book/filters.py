"""Privacy filters: costs of releases when later ones are chosen after seeing them.

Composing privacy losses exactly is no valid filter: an adversary that chooses the next
release by the outcome of the last exceeds delta (arXiv 2602.06756). Two filters are
valid. Each adds up one non-negative cost per release against a capacity that is fixed
before the first release:

- ``renyi``: the Rényi divergence at one order alpha. While its sum is at most R, every
  adaptive sequence has a divergence of at most R (Feldman and Zrnic 2021, arXiv
  2008.11193, Theorem 4.3), and R converts to (epsilon, delta).
- ``gaussian``: mu^2 of Gaussian releases in which everybody takes part. While the sum
  is at most mu^2, the sequence is mu-GDP (Smith and Thakurta 2022, arXiv 2210.17520).
  It costs nothing over composition fixed in advance, and does not cover sampling.

Costs are whole numbers of a fixed unit, rounded up, and capacities are rounded down, so
that sums are exact, in whichever order concurrent runs add them.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from privplan.accounting.families import not_gaussian
from privplan.accounting.gdp import epsilon_of, mu_of
from privplan.accounting.rdp import ORDERS, rdp_of_release
from privplan.accounting.release import History, Relation, Release
from privplan.errors import InputError, UnsupportedError

Filter = Literal["renyi", "gaussian"]

UNIT = 10.0**-10  # a cost of one, as a Rényi divergence or as mu^2
MOST_UNITS = 2**62  # no capacity is larger; it fits a column of 64 bits

_MAX_EPSILON = 1000  # e^1000 is no number of floating point
_MIN_DIVERGENCE = 1e-300  # a divisor where typical releases cost nothing
_MIN_NOISE_MULTIPLIER = 1e-9  # costs more than any capacity; less would overflow
_ROUNDING = 1e-12  # relative; more than the roundings of a cost or capacity
# Relative; against 60 digits, conversions between mu and epsilon were off by 1e-9 at
# most (epsilon from 1e-6 to 5e5, delta from 1e-12 to 1e-3).
_CONVERSION = 1e-8


def order_of(
    epsilon: float,
    delta: float,
    typical: History | None = None,
    relation: Relation = Relation.ADD_REMOVE,
) -> int:
    """The order of the Rényi filter at which most runs fit into a budget.

    Any order that is fixed before the first release gives a valid filter.

    Args:
        epsilon: the budget.
        delta: its failure probability.
        typical: releases of a typical run; Gaussian ones without sampling by default.
        relation: neighbouring relation.

    Returns:
        The index of the order in ``ORDERS``.

    Raises:
        InputError: when the budget is out of range.
    """
    _check_budget(epsilon, delta)

    # Gaussian releases without sampling diverge in proportion to the order.
    divergences = ORDERS
    if typical is not None:
        divergences = np.zeros_like(ORDERS)
        for release, count in typical:
            divergences = divergences + count * rdp_of_release(release, relation)

    divisors = np.maximum(divergences, _MIN_DIVERGENCE)
    runs_that_fit = _capacities(epsilon, delta) / divisors
    return int(np.argmax(runs_that_fit))


def _capacities(epsilon: float, delta: float) -> np.ndarray:
    """Rényi divergence at each order that implies (epsilon, delta); may be negative.

    A divergence R at order a implies epsilon = R + log(1 - 1/a) - log(delta a)/(a - 1)
    (Canonne, Kamath and Steinke 2020, arXiv 2004.00010, Proposition 12).
    """
    log_delta_order = math.log(delta) + np.log(ORDERS)
    converted = np.log1p(-1 / ORDERS) - log_delta_order / (ORDERS - 1)
    return np.asarray(epsilon - converted)


def capacity(rule: Filter, epsilon: float, delta: float, order: int) -> int:
    """The capacity of a budget, in units.

    Args:
        rule: the filter.
        epsilon: the budget.
        delta: its failure probability.
        order: index in ``ORDERS``, for the Rényi filter.

    Raises:
        InputError: when the budget is out of range, or too small for this order.
    """
    _check_budget(epsilon, delta)
    if rule == "gaussian":
        return _rounded_down((mu_of(epsilon, delta) * (1 - _CONVERSION)) ** 2)
    divergence = float(_capacities(epsilon, delta)[order])
    if divergence <= UNIT:
        raise InputError.one(
            "epsilon", "must be larger for a Rényi filter at this delta", epsilon
        )
    return _rounded_down(divergence)


def cost(rule: Filter, history: History, relation: Relation, order: int) -> int:
    """The cost of releases, in units; ``MOST_UNITS`` where they have no noise.

    Args:
        rule: the filter.
        history: the releases.
        relation: neighbouring relation.
        order: index in ``ORDERS``, for the Rényi filter.

    Raises:
        UnsupportedError: when the filter does not cover a release.
    """
    reason = not_gaussian(history) if rule == "gaussian" else None
    if reason is not None:
        raise UnsupportedError(f"gaussian filter: {reason}")
    units = 0
    for release, count in history:
        # A release of single clients, in the same account, would have to count for a
        # person with several; but releases are charged one by one.
        contributions = release.sampling.law.contributions
        if contributions > 1:
            raise UnsupportedError(
                f"{rule} filter: covers persons with one client each, found up to "
                f"{contributions}; compose by --rule exact, without an account"
            )
        if release.sampling_ratio == 0 or math.isinf(release.noise_multiplier):
            continue
        if rule == "gaussian":
            release_cost = _squared_mu(release, relation)
        else:
            release_cost = float(rdp_of_release(release, relation)[order])
        if not release_cost < MOST_UNITS * UNIT:
            return MOST_UNITS
        units += math.ceil(release_cost / UNIT * (1 + _ROUNDING)) * count
    return min(units, MOST_UNITS)


def _squared_mu(release: Release, relation: Relation) -> float:
    """mu^2 of a Gaussian release: its sensitivity over its noise, squared."""
    if release.sampling_ratio != 1:
        raise UnsupportedError(
            "gaussian filter: covers releases in which everybody takes part, found "
            f"ratio {release.sampling_ratio:g}; use the renyi filter"
        )
    noise = release.noise_multiplier / release.sampling.law.sensitivity(relation)
    if noise < _MIN_NOISE_MULTIPLIER:
        return math.inf
    return noise**-2


def spent_epsilon(rule: Filter, units: int, delta: float, order: int) -> float:
    """Upper bound on the epsilon of releases with this cost, chosen adaptively.

    Args:
        rule: the filter.
        units: the cost of all releases.
        delta: failure probability.
        order: index in ``ORDERS``, for the Rényi filter.
    """
    if units == 0:
        return 0.0
    if units >= MOST_UNITS:
        return math.inf
    value = units * UNIT
    if rule == "gaussian":
        return epsilon_of(math.sqrt(value), delta) * (1 + _CONVERSION)

    # The conversion of ``_capacities``, the other way round.
    alpha = float(ORDERS[order])
    shift = math.log1p(-1 / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1)
    return max(0.0, value + shift)


def _check_budget(epsilon: float, delta: float) -> None:
    if not (0 < epsilon < _MAX_EPSILON and 0 < delta < 1):
        rule = f"must have epsilon in (0, {_MAX_EPSILON}) and delta in (0, 1)"
        raise InputError.one("budget", rule, (epsilon, delta))


def _rounded_down(value: float) -> int:
    """A capacity in units, below every rounding of floating point."""
    return min(math.floor(value / UNIT * (1 - _ROUNDING)), MOST_UNITS)
