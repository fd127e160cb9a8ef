"""What a guarantee means to an attacker: trade-off curve, advantage, true positives.

An attacker who must tell two neighbouring data sets apart has a false-positive rate a
and a true-positive rate at most ``1 - f(a)``, where f is the trade-off function (Dong,
Roth and Su 2022). Given delta as a function of epsilon, valid for both orders of the
neighbours, each pair allows at most ``min(delta + e^eps a, 1 - e^-eps (1 - delta -
a))`` (their Proposition 2.5); the smallest over many epsilons bounds every attack. With
delta from a pessimistic distribution all results are upper bounds on the attacker's
power.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from privplan.accounting.accountant import checked_relation
from privplan.accounting.gdp import mu_of
from privplan.accounting.release import History, Relation
from privplan.errors import UnsupportedError
from privplan.values import Shown

if TYPE_CHECKING:
    from privplan.accounting.pld.convolution import Composed
    from privplan.accounting.pld.direction import Direction

Floats = NDArray[np.float64]
Profile = Callable[[Floats], Floats]
"""Upper bounds on delta at each epsilon of an array."""

LEVELS = (0.001, 0.01, 0.1)
"""False-positive rates at which the best attack is reported."""

# Epsilons at which a profile is evaluated, besides 0.
_POINTS = 600
# Every tenth of them is enough for mu, whose evaluation is slow.
_MU_STRIDE = 10
# Grid of the composition, in standard deviations of a round's loss.
_STEP = 0.02
# Mass that all rounds leave out at either end.
_TAIL = 1e-12
# Deltas around which the composition is sharp.
_TARGETS = (0.3, 1e-2, 1e-4, 1e-7)
# A formula of some operations is off by eight of these, relatively.
_ROUNDING = 1e-15
# False-positive rates of the curve: dense near 0, where attacks are compared.
_CURVE_AXIS = np.concatenate(
    [[0.0], np.geomspace(1e-6, 0.05, 120), np.linspace(0.0505, 1.0, 191)]
)


@dataclass(frozen=True, repr=False)
class TradeOff(Shown):
    """Upper bounds on what any attack achieves.

    Attributes:
        advantage: true-positive minus false-positive rate at its largest (total
            variation), at most what epsilon at delta implies.
        mu: an attack does no better than on mu-GDP at points of the curve, as far as
            epsilon at delta reaches; not proven between them. Below, under subsampling,
            it may do better; ``inf`` where none is known.
        true_positives: best true-positive rate at each of ``LEVELS``.
        false_positive_axis: rates of the curve, ascending, shape (points,).
        true_positive_axis: bound on the true-positive rate there, shape (points,).
    """

    advantage: float
    mu: float
    true_positives: tuple[float, ...]
    false_positive_axis: tuple[float, ...]
    true_positive_axis: tuple[float, ...]

    def to_dict(self) -> dict[str, float | str]:
        """The scalar bounds by name, for JSON; an infinite mu is the string ``inf``."""
        rates = zip(LEVELS, self.true_positives, strict=True)
        return {
            "gdp_mu": "inf" if math.isinf(self.mu) else self.mu,
            "advantage": self.advantage,
            **{f"tpr_at_fpr_{level:g}": rate for level, rate in rates},
        }


def profile_of(history: History, relation: Relation | str) -> Profile:
    """Delta as a function of epsilon, an upper bound by privacy loss distributions.

    Each direction is composed a few times, tilted towards different deltas; every one
    of them is an upper bound everywhere, so the smallest is taken at each epsilon. No
    delta exceeds the total variation, which a grid in steps of a very wide loss does
    not resolve.

    Raises:
        UnsupportedError: when the loss is too wide to compose.
    """
    from privplan.accounting.pld.accountant import compose

    loss = compose(history, checked_relation(relation))
    if loss.unbounded or loss.mu is not None or not loss.directions:
        return np.vectorize(
            lambda epsilon: loss.delta(float(epsilon)).upper, otypes=[float]
        )
    directions = []
    for above, _ in loss.directions:
        directions.append((_tilted(above), above.variation()))

    def delta_at(epsilon: float) -> float:
        """The largest delta of all directions."""
        deltas = []
        for compositions, variation in directions:
            bounds = [composed.delta(epsilon, 1) for composed in compositions]
            deltas.append(min(variation, *bounds))
        return max(deltas)

    def profile(epsilons: Floats) -> Floats:
        return np.array([delta_at(float(epsilon)) for epsilon in epsilons])

    return profile


def _tilted(direction: Direction) -> list[Composed]:
    """One direction composed for several deltas."""
    from privplan.accounting.pld.convolution import best_tilt, compose_at

    counted_lattices = direction.parts(
        _STEP * direction.deviation(), _TAIL / direction.rounds
    )
    compositions = []
    for delta in _TARGETS:
        composed = compose_at(
            counted_lattices, best_tilt(counted_lattices, math.log(1 / delta))
        )
        if composed is not None:
            compositions.append(composed)
    if not compositions:
        raise UnsupportedError(
            "tradeoff: the loss of this history is too wide to compose"
        )
    return compositions


def tradeoff(profile: Profile, delta: float, epsilon: float) -> TradeOff:
    """Trade-off, advantage and mu of one privacy profile.

    Args:
        profile: upper bounds on delta.
        delta: of the guarantee.
        epsilon: of the guarantee, at ``delta``.
    """
    if math.isinf(epsilon):
        return TradeOff(1.0, math.inf, (1.0,) * len(LEVELS), (0.0, 1.0), (1.0, 1.0))
    epsilons = _grid(epsilon)
    deltas = np.clip(profile(epsilons), 0.0, 1.0)
    rates = true_positive(epsilons, deltas, LEVELS)
    return TradeOff(
        advantage=min(float(deltas[0]), _implied(epsilon, delta)),
        mu=_mu(epsilons, deltas, delta, epsilon),
        true_positives=tuple(float(rate) for rate in rates),
        false_positive_axis=tuple(_CURVE_AXIS.tolist()),
        true_positive_axis=tuple(true_positive(epsilons, deltas, _CURVE_AXIS).tolist()),
    )


def _implied(epsilon: float, delta: float) -> float:
    """Advantage that (epsilon, delta) allows, rounded up.

    ``(1 - e^-eps + 2 delta e^-eps) / (1 + e^-eps)`` (Kairouz, Oh and Viswanath 2015,
    Remark A.1).
    """
    shrunk = math.exp(-epsilon)
    advantage = (1 - shrunk + 2 * delta * shrunk) / (1 + shrunk)
    return min(1.0, advantage * (1 + 8 * _ROUNDING))


def _grid(epsilon: float) -> Floats:
    """Epsilons to evaluate: dense near 0, up to well beyond the one at delta."""
    largest = 2 * epsilon + 1
    return np.concatenate([[0.0], np.geomspace(largest * 1e-5, largest, _POINTS)])


def true_positive(
    epsilons: Floats, deltas: Floats, false_positive: Floats | tuple[float, ...]
) -> Floats:
    """Bound on the true-positive rate at each false-positive rate a.

    The smallest of ``min(delta + e^eps a, 1 - e^-eps (1 - delta - a))`` over all pairs
    (Dong, Roth and Su 2022, Proposition 2.5); guessing achieves a.
    """
    level = np.asarray(false_positive, dtype=np.float64)[:, None]
    growth = np.exp(np.minimum(epsilons, 700.0))
    steep = deltas + growth * level
    flat = 1 - (1 - deltas - level) / growth
    bounds: Floats = np.minimum(np.minimum(steep, flat), 1.0).min(axis=1)
    return np.maximum(bounds, level[:, 0])


def _mu(epsilons: Floats, deltas: Floats, delta: float, epsilon: float) -> float:
    """Smallest mu whose Gaussian profile is above all pairs up to ``epsilon``."""
    within = (epsilons <= epsilon) & (deltas > delta) & (deltas < 1) & (epsilons > 0)
    pairs = list(
        zip(epsilons[within][::_MU_STRIDE], deltas[within][::_MU_STRIDE], strict=True)
    )
    if epsilon > 0:
        pairs.append((epsilon, delta))
    mus = [mu_of(float(each_epsilon), float(bound)) for each_epsilon, bound in pairs]

    # At epsilon 0 the delta of mu-GDP is 2 Phi(mu / 2) - 1.
    if 0 < deltas[0] < 1:
        mus.append(float(2 * ndtri((1 + deltas[0]) / 2)))
    return max(mus, default=math.inf if deltas[0] > 0 else 0.0)


# Budgets stated as an attacker's success: the (epsilon, delta) that implies a risk.
#
# An (epsilon, delta)-private mechanism allows a true-positive rate of at most
# ``min(delta + e^eps a, 1 - e^-eps (1 - delta - a))`` at the false-positive rate a, and
# an advantage (true minus false positives) of at most ``(e^eps - 1 + 2 delta) / (e^eps
# + 1)`` (Dong, Roth and Su 2022, Proposition 2.5; Kairouz, Oh and Viswanath 2015,
# Remark A.1). An attack that reconstructs a target with chance kappa before the release
# succeeds with chance at most ``1 - f(kappa)`` after it, with f the trade-off curve: a
# true-positive rate at the false-positive rate kappa (Hayes, Mahloujifar and Balle
# 2023, Theorem 2; Kulynych et al. 2025). So each of these risks is a point that the
# trade-off curve may not exceed. The budget is the tangent of the Gaussian curve
# through that point: whatever the mechanism, it implies the risk, and it is the weakest
# such budget where the mechanism is close to Gaussian.

# Least epsilon of a budget over mu. At 0 the accountants have no relative precision;
# this much costs an eighth of a percent of the risk.
_LEAST_SLOPE = 0.05
# Epsilons at which a mechanism is compared with the risk, besides 0.
_EPSILONS = 400


class Point(NamedTuple):
    """A point that the trade-off curve may not exceed; an advantage's on its diagonal.

    Attributes:
        false_positives: rate in (0, 1).
        true_positives: rate in (0, 1), above ``false_positives``.
        advantage: whether the limit is on the difference of the rates, wherever it is
            largest.
    """

    false_positives: float
    true_positives: float
    advantage: bool = False


def advantage_point(advantage: float) -> Point:
    """The point of the symmetric curve at which the rates differ by ``advantage``."""
    return Point((1 - advantage) / 2, (1 + advantage) / 2, advantage=True)


def budget_of(point: Point) -> tuple[float, float]:
    """The (epsilon, delta) that keeps the curve below the point.

    It is the tangent of the Gaussian curve through the point, whose slope there is
    ``e^((low^2 - high^2) / 2)`` with the normal quantiles of both rates.
    """
    low = float(ndtri(point.false_positives))
    high = float(ndtri(point.true_positives))
    slope = abs((low * low - high * high) / 2)
    epsilon = max(slope, _LEAST_SLOPE * (high - low))
    return epsilon, delta_for(point, epsilon)


def delta_for(point: Point, epsilon: float) -> float:
    """The largest delta at which ``epsilon`` keeps the curve below the point.

    It may be negative, where no delta does.
    """
    false_positives = point.false_positives
    true_positives = point.true_positives
    growth = math.exp(epsilon)
    if point.advantage:
        rise = true_positives - false_positives
        return rise * (growth + 1) / 2 - math.expm1(epsilon) / 2
    steep = true_positives - growth * false_positives
    flat = 1 - false_positives - growth * (1 - true_positives)
    return max(steep, flat)


def implied_risk(point: Point, epsilon: float, delta: float) -> float:
    """Bound on the advantage, or on the true-positive rate of the point."""
    if point.advantage:
        return min((math.expm1(epsilon) + 2 * delta) / (math.exp(epsilon) + 1), 1.0)
    return float(
        true_positive(np.array([epsilon]), np.array([delta]), (point.false_positives,))[
            0
        ]
    )


def limit_of(point: Point) -> float:
    """The risk that the point allows: an advantage, or a true-positive rate."""
    rise = point.true_positives - point.false_positives
    if point.advantage:
        return rise
    return point.true_positives


def tightest_budget(
    point: Point, profile: Profile
) -> tuple[float, tuple[float, float]]:
    """The risk of a mechanism, and the budget that implies it with most to spare.

    Args:
        point: the risk that is allowed.
        profile: upper bounds on the mechanism's delta.

    Returns:
        The risk, and an (epsilon, delta) whose delta the profile keeps.
    """
    start = budget_of(point)[0]
    epsilons = np.concatenate(
        [[0.0], np.geomspace(start / 30, 8 * start + 2, _EPSILONS)]
    )
    deltas = np.clip(profile(epsilons), 0.0, 1.0)

    # An advantage is the delta at 0; a small epsilon that keeps it suffices.
    usual_epsilon = start / 4
    usual_delta = delta_for(point, usual_epsilon)
    if point.advantage and float(profile(np.array([usual_epsilon]))[0]) <= usual_delta:
        return float(deltas[0]), (usual_epsilon, usual_delta)

    risk = true_positive(epsilons, deltas, (point.false_positives,))[0]
    if point.advantage:
        risk = deltas[0]

    # The pair whose delta is furthest above that of the mechanism.
    allowed = np.array([delta_for(point, float(epsilon)) for epsilon in epsilons[1:]])
    spare = np.where(allowed > 0, allowed - deltas[1:], -np.inf)
    best = int(np.argmax(spare))
    return float(risk), (float(epsilons[1:][best]), float(allowed[best]))
