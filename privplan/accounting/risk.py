"""Budgets stated as an attacker's success: the (epsilon, delta) that implies a risk.

An (epsilon, delta)-private mechanism allows a true-positive rate of at most
``min(delta + e^eps a, 1 - e^-eps (1 - delta - a))`` at the false-positive rate a, and an advantage
(true minus false positives) of at most ``(e^eps - 1 + 2 delta) / (e^eps + 1)`` (Dong, Roth and Su
2022, Proposition 2.5; Kairouz, Oh and Viswanath 2015, Remark A.1). An attack that reconstructs a
target with chance kappa before the release succeeds with chance at most ``1 - f(kappa)`` after it,
with f the trade-off curve: a true-positive rate at the false-positive rate kappa (Hayes,
Mahloujifar and Balle 2023, Theorem 2; Kulynych et al. 2025). So each of these risks is a point that
the trade-off curve may not exceed. The budget is the tangent of the Gaussian curve through that
point: whatever the mechanism, it implies the risk, and it is the weakest such budget where the
mechanism is close to Gaussian.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from privplan.accounting.tradeoff import Profile, true_positive
from privplan.scipy_functions import ndtri

_LEAST_SLOPE = 0.05
"""Least epsilon of a budget over mu. At 0 the accountants have no relative precision; this much
costs an eighth of a percent of the risk."""
_EPSILONS = 400


class Point(NamedTuple):
    """A point that the trade-off curve may not exceed; for an advantage on its diagonal.

    Attributes:
        false_positives: rate in (0, 1).
        true_positives: rate in (0, 1), above ``false_positives``.
        advantage: whether the limit is on the difference of the rates, wherever it is largest.
    """

    false_positives: float
    true_positives: float
    advantage: bool = False


def advantage_point(advantage: float) -> Point:
    """The point of the symmetric curve at which the rates differ most, by ``advantage``."""
    return Point((1 - advantage) / 2, (1 + advantage) / 2, advantage=True)


def budget_of(point: Point) -> tuple[float, float]:
    """The (epsilon, delta) that keeps the curve below the point, tight for Gaussian curves."""
    low, high = float(ndtri(point.false_positives)), float(ndtri(point.true_positives))
    mu = high - low
    slope = max(abs((low * low - high * high) / 2), _LEAST_SLOPE * mu)
    return slope, delta_for(point, slope)


def delta_for(point: Point, epsilon: float) -> float:
    """The largest delta at which ``epsilon`` keeps the curve below the point; may be negative."""
    false, true = point.false_positives, point.true_positives
    if point.advantage:
        return (true - false) * (math.exp(epsilon) + 1) / 2 - math.expm1(epsilon) / 2
    return max(true - math.exp(epsilon) * false, 1 - false - math.exp(epsilon) * (1 - true))


def implied_risk(point: Point, epsilon: float, delta: float) -> float:
    """Bound on the advantage, or on the true-positive rate of the point, by a budget."""
    if point.advantage:
        return min((math.expm1(epsilon) + 2 * delta) / (math.exp(epsilon) + 1), 1.0)
    found = true_positive(np.array([epsilon]), np.array([delta]), (point.false_positives,))
    return float(found[0])


def limit_of(point: Point) -> float:
    """The risk that the point allows: an advantage, or a true-positive rate."""
    rise = point.true_positives - point.false_positives
    return rise if point.advantage else point.true_positives


def tightest_budget(point: Point, profile: Profile) -> tuple[float, tuple[float, float]]:
    """The risk of a mechanism, and the budget that implies the point with the most delta to spare.

    Args:
        point: the limit.
        profile: upper bounds on delta at each epsilon.

    Returns:
        Bound on the mechanism's advantage or true-positive rate, and (epsilon, delta).
    """
    start, _ = budget_of(point)
    epsilons = np.concatenate([[0.0], np.geomspace(start / 30, 8 * start + 2, _EPSILONS)])
    deltas = np.clip(profile(epsilons), 0.0, 1.0)
    usual = start / 4, delta_for(point, start / 4)
    if point.advantage and float(profile(np.array([usual[0]]))[0]) <= usual[1]:
        return float(deltas[0]), usual
    found = true_positive(epsilons, deltas, (point.false_positives,))[0]
    risk = deltas[0] if point.advantage else found
    wanted = np.array([delta_for(point, float(epsilon)) for epsilon in epsilons[1:]])
    best = int(np.argmax(np.where(wanted > 0, wanted - deltas[1:], -np.inf)))
    return float(risk), (float(epsilons[1:][best]), float(wanted[best]))
