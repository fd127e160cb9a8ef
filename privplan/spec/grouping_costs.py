"""What a grouping of budgets costs a plan with one release of all groups, by the central limit.

A client of Gaussian strength mu over T rounds that takes part with ratio q enters the sum with a
scale v of t(mu, q) = q sqrt(log(1 + mu^2 / (T q^2))) at most, its q / sigma. The error is

    (A + s sum_i v_i^2) / S^2 + h^2 (n sum_i v_i^2 / S^2 - 1),   S = sum_i v_i,

with A the cost of noise, s that of sampling per client and h^2 that of bias. It falls with v_i up
to the level x = (A + c sum v^2) / (c S), c = s + n h^2, by x v - v^2 / 2 to first order, so that
budgets beyond the level buy nothing; and clients share the cohort at one price per expected client.
What a client adds is thus gain(mu) = max_q v - v^2 / 2x - price q with v = t(mu, q) <= x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_NODES = 200
_BISECTIONS = 18
_PLACES = 8
_ROUNDS = 6
_PRICES = 1e-12, 1e6
_LEVELS = 1e-9, 1e3


@dataclass(frozen=True)
class Costs:
    """What the error of a plan with one release of all groups depends on, beside the budgets.

    Attributes:
        noise: A, cost of the squared noise multiplier of the mean.
        sampling: s, cost of sampling a client.
        bias: h^2, cost of weights other than the population's.
        cohort: expected clients per round.
        rounds: number of rounds.
        everyone: whether all clients take part in every round.
        sensitivity: distance of neighbouring sums, in clipping norms.
    """

    noise: float
    sampling: float
    bias: float
    cohort: float
    rounds: int
    everyone: bool = False
    sensitivity: float = 1.0


@dataclass(frozen=True)
class Balance:
    """The best scales of groups of clients.

    Attributes:
        error: their error.
        level: x, the scale beyond which more budget does not lower it.
        price: of an expected client, in the unit of gains.
    """

    error: float
    level: float
    price: float


def balance(mu: Floats, counts: Floats, costs: Costs) -> Balance:
    """The least error over sampling ratios and scales, up to the grid of the ratios.

    Args:
        mu: strengths, shape (groups,).
        counts: clients, shape (groups,).
        costs: of the plan's objective.
    """
    price = 0.0
    if not costs.everyone:

        def crowded(prices: Floats) -> NDArray[np.bool_]:
            levels = _level(mu, counts, prices, costs)
            return _ratios(mu, levels, prices, costs) @ counts > costs.cohort

        price = float(_crossing(crowded, *_PRICES, ()))
    level = float(_level(mu, counts, np.array(price), costs))
    scales = _scales(mu, _ratios(mu, level, price, costs), level, costs)
    total, clients = float(counts @ scales), float(counts.sum())
    spread = clients * float(counts @ (scales - total / clients) ** 2)
    error = costs.noise + costs.sampling * float(counts @ scales**2) + costs.bias * spread
    return Balance(error / total**2, level, price)


def gains(mu: Floats, found: Balance, costs: Costs) -> Floats:
    """What a client of each strength adds, at the level and price of a balance; increasing.

    Computed at nodes and interpolated where there are many strengths.
    """
    if len(mu) > 2 * _NODES:
        nodes = np.geomspace(mu.min(), mu.max() * (1 + 1e-12), _NODES)
        return np.interp(np.log(mu), np.log(nodes), gains(nodes, found, costs))
    ratios = _ratios(mu, found.level, found.price, costs)
    scales = _scales(mu, ratios, found.level, costs)
    return np.asarray(scales - scales**2 / (2 * found.level) - found.price * ratios)


def condensed(mu: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Many strengths at few nodes, with the clients between two nodes at the lower one."""
    if len(mu) <= 2 * _NODES:
        return mu, counts
    nodes = np.geomspace(mu.min(), mu.max(), _NODES)
    where = np.clip(np.searchsorted(nodes, mu * (1 + 1e-12), side="right") - 1, 0, _NODES - 1)
    sums = np.bincount(where, weights=counts, minlength=_NODES)
    return nodes[sums > 0], np.asarray(sums[sums > 0], dtype=float)


def _scales(mu: Floats, ratios: Floats, level: Floats | float, costs: Costs) -> Floats:
    """Scales at the ratios, at most the level, shape (*levels, groups)."""
    share = mu / math.sqrt(costs.rounds)
    if not costs.everyone:
        share = ratios * np.sqrt(np.log1p((share / ratios) ** 2))
    return np.asarray(np.minimum(share / costs.sensitivity, np.expand_dims(level, -1)))


def _ratios(mu: Floats, level: Floats | float, price: Floats | float, costs: Costs) -> Floats:
    """The ratio of most gain for each strength, by bisection, shape (*levels, groups).

    The slope of the gain, (1 - t / x) dt/dq, falls with q; it is the price at the best ratio.

    Args:
        mu: strengths, shape (groups,).
        level: x, shape (*levels,).
        price: of each level.
        costs: of the plan's objective.
    """
    shape = (*np.shape(level), len(mu))
    if costs.everyone:
        return np.ones(shape)
    low, high = np.full(shape, math.log(1e-9)), np.zeros(shape)
    share, most = mu / math.sqrt(costs.rounds), costs.sensitivity * np.expand_dims(level, -1)
    least = costs.sensitivity * np.expand_dims(price, -1)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        ratio = np.exp(middle)
        square = (share / ratio) ** 2
        root = np.sqrt(np.log1p(square))
        more = (1 - ratio * root / most) * (root - square / ((1 + square) * root)) > least
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return np.asarray(np.exp(high))


def _level(mu: Floats, counts: Floats, prices: Floats, costs: Costs) -> Floats:
    """The x of the module's docstring at each price; inf without costs per client."""
    client = costs.sampling + costs.bias * float(counts.sum())
    if client <= 0:
        return np.full(np.shape(prices), math.inf)

    def scarce(levels: Floats) -> NDArray[np.bool_]:
        own = np.broadcast_to(prices[..., None], levels.shape)
        scales = _scales(mu, _ratios(mu, levels, own, costs), levels, costs)
        return client * ((scales * (levels[..., None] - scales)) @ counts) < costs.noise

    return _crossing(scarce, *_LEVELS, np.shape(prices))


def _crossing(
    before: Callable[[Floats], NDArray[np.bool_]], low: float, high: float, shape: tuple[int, ...]
) -> Floats:
    """Where a condition that holds up to some place ends, to about 2e-4 of it.

    Args:
        before: values, shape (*shape, places) -> whether each lies before the place.
        low: least value.
        high: largest value, returned where all lie before.
        shape: of the result.
    """
    left, right = np.full(shape, math.log(low)), np.full(shape, math.log(high))
    for _ in range(_ROUNDS):
        width = (right - left) / _PLACES
        inner = left[..., None] + width[..., None] * np.arange(1, _PLACES)
        left = left + width * before(np.exp(inner)).sum(axis=-1)
        right = left + width
    return np.asarray(np.exp(right))
