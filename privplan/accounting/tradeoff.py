"""What a guarantee means to an attacker: trade-off curve, advantage, mu, true positives.

An attacker who must tell two neighbouring data sets apart has a false-positive rate a and
a true-positive rate at most ``1 - f(a)``, where f is the trade-off function (Dong, Roth and
Su 2022). Given delta as a function of epsilon, valid for both orders of the neighbours,
each pair allows at most ``min(delta + e^eps a, 1 - e^-eps (1 - delta - a))`` (their
Proposition 2.5); the smallest over many epsilons bounds every attack. With delta from a
pessimistic distribution all results are upper bounds on the attacker's power.
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
Profile = Callable[
    [Floats], Floats
]  # upper bounds on delta at each epsilon of an array

LEVELS = (0.001, 0.01, 0.1)  # false-positive rates at which the best attack is reported
_POINTS = 600
# Grid of the composition in standard deviations of a round's loss, mass left out of a run,
# and the deltas around which it is exact.
_STEP, _TAIL = 0.02, 1e-12
_TARGETS = (0.3, 1e-2, 1e-4, 1e-7)
_ROUNDING = 1e-15


@dataclass(frozen=True, repr=False)
class TradeOff(Shown):
    """Upper bounds on what any attack achieves."""

    # true-positive minus false-positive rate at its largest (total variation), at most what epsilon
    # at delta implies
    advantage: float
    # an attack does no better than on mu-GDP at points of the curve, as far as epsilon at delta
    # reaches; not proven between them. Below, under subsampling, it may do better; ``inf`` where
    # none is known
    mu: float
    true_positives: tuple[float, ...]  # best true-positive rate at each of ``LEVELS``
    # false-positive rates of the curve, ascending, shape (points,)
    false_positive_axis: tuple[float, ...]
    true_positive_axis: tuple[
        float, ...
    ]  # bound on the true-positive rate there, shape (points,)

    def to_dict(self) -> dict[str, float | str]:
        """The scalar bounds by name, for JSON; an infinite mu is the string ``inf``."""
        rates = zip(LEVELS, self.true_positives, strict=True)
        return {
            "gdp_mu": "inf" if math.isinf(self.mu) else self.mu,
            "advantage": self.advantage,
            **{f"tpr_at_fpr_{level:g}": rate for level, rate in rates},
        }


def profile_of(history: History, relation: Relation | str) -> Profile:
    """Delta as a function of epsilon, from the own privacy loss distribution (upper bound).

    Each direction is composed a few times, tilted towards different deltas; every one of
    them is an upper bound everywhere, so the smallest is taken at each epsilon. No delta exceeds
    the total variation, which a grid in steps of a very wide loss does not resolve.
    """
    from privplan.accounting.pld.accountant import compose

    composed = compose(history, checked_relation(relation))
    if composed.unbounded or composed.mu is not None or not composed.directions:
        return np.vectorize(
            lambda epsilon: composed.delta(float(epsilon)).upper, otypes=[float]
        )
    directions = [
        (_tilted(above), above.variation()) for above, _ in composed.directions
    ]

    def profile(epsilons: Floats) -> Floats:
        return np.array(
            [
                max(
                    min(most, *(one.delta(float(e), 1) for one in tilted))
                    for tilted, most in directions
                )
                for e in epsilons
            ]
        )

    return profile


def _tilted(direction: Direction) -> list[Composed]:
    """One direction composed for several deltas."""
    from privplan.accounting.pld.convolution import best_tilt, compose_at

    parts = direction.parts(_STEP * direction.deviation(), _TAIL / direction.rounds)
    found = [
        compose_at(parts, best_tilt(parts, math.log(1 / delta))) for delta in _TARGETS
    ]
    usable = [one for one in found if one is not None]
    if not usable:
        raise UnsupportedError(
            "tradeoff: the loss of this history is too wide to compose"
        )
    return usable


def tradeoff(profile: Profile, delta: float, epsilon: float) -> TradeOff:
    """Trade-off, advantage and mu of one privacy profile."""
    if math.isinf(epsilon):
        return TradeOff(1.0, math.inf, (1.0,) * len(LEVELS), (0.0, 1.0), (1.0, 1.0))
    epsilons = _grid(epsilon)
    deltas = np.clip(profile(epsilons), 0.0, 1.0)
    axis = np.concatenate(
        [[0.0], np.geomspace(1e-6, 0.05, 120), np.linspace(0.0505, 1.0, 191)]
    )
    return TradeOff(
        advantage=min(float(deltas[0]), _implied(epsilon, delta)),
        mu=_mu(epsilons, deltas, delta, epsilon),
        true_positives=tuple(
            float(rate) for rate in true_positive(epsilons, deltas, LEVELS)
        ),
        false_positive_axis=tuple(axis.tolist()),
        true_positive_axis=tuple(true_positive(epsilons, deltas, axis).tolist()),
    )


def _implied(epsilon: float, delta: float) -> float:
    """Advantage that (epsilon, delta) allows (Kairouz, Oh and Viswanath 2015, Remark A.1)."""
    shrunk = math.exp(-epsilon)
    return min(
        1.0, (1 - shrunk + 2 * delta * shrunk) / (1 + shrunk) * (1 + 8 * _ROUNDING)
    )


def _grid(epsilon: float) -> Floats:
    """Epsilons to read at: dense near 0, up to well beyond the one at delta."""
    most = 2 * epsilon + 1
    return np.concatenate([[0.0], np.geomspace(most * 1e-5, most, _POINTS)])


def true_positive(
    epsilons: Floats, deltas: Floats, false_positive: Floats | tuple[float, ...]
) -> Floats:
    """Bound on the true-positive rate at each false-positive rate."""
    level = np.asarray(false_positive, dtype=np.float64)[:, None]
    grown = np.exp(np.minimum(epsilons, 700.0))
    steep, flat = deltas + grown * level, 1 - (1 - deltas - level) / grown
    best: Floats = np.minimum(np.minimum(steep, flat), 1.0).min(axis=1)
    return np.maximum(best, level[:, 0])


def _mu(epsilons: Floats, deltas: Floats, delta: float, epsilon: float) -> float:
    """Smallest mu whose Gaussian profile is above all pairs up to ``epsilon``."""
    within = (epsilons <= epsilon) & (deltas > delta) & (deltas < 1) & (epsilons > 0)
    pairs = list(zip(epsilons[within][::10], deltas[within][::10], strict=True))
    if epsilon > 0:
        pairs.append((epsilon, delta))
    mus = [mu_of(float(e), float(d)) for e, d in pairs]
    if 0 < deltas[0] < 1:
        from scipy.special import ndtri

        mus.append(float(2 * ndtri((1 + deltas[0]) / 2)))
    return max(mus, default=math.inf if deltas[0] > 0 else 0.0)


# --- Budgets stated as an attacker's success: the (epsilon, delta) that implies a risk. ----------
# An (epsilon, delta)-private mechanism allows a true-positive rate of at most ``min(delta + e^eps
# a, 1 - e^-eps (1 - delta - a))`` at the false-positive rate a, and an advantage (true minus
# false positives) of at most ``(e^eps - 1 + 2 delta) / (e^eps + 1)`` (Dong, Roth and Su 2022,
# Proposition 2.5; Kairouz, Oh and Viswanath 2015, Remark A.1). An attack that reconstructs a
# target with chance kappa before the release succeeds with chance at most ``1 - f(kappa)`` after
# it, with f the trade-off curve: a true-positive rate at the false-positive rate kappa (Hayes,
# Mahloujifar and Balle 2023, Theorem 2; Kulynych et al. 2025). So each of these risks is a point
# that the trade-off curve may not exceed. The budget is the tangent of the Gaussian curve through
# that point: whatever the mechanism, it implies the risk, and it is the weakest such budget where
# the mechanism is close to Gaussian.

_LEAST_SLOPE = 0.05
"""Least epsilon of a budget over mu. At 0 the accountants have no relative precision; this much
costs an eighth of a percent of the risk."""
_EPSILONS = 400


class Point(NamedTuple):
    """A point that the trade-off curve may not exceed; for an advantage on its diagonal."""

    false_positives: float  # rate in (0, 1)
    true_positives: float  # rate in (0, 1), above ``false_positives``
    # whether the limit is on the difference of the rates, wherever it is largest
    advantage: bool = False


def advantage_point(advantage: float) -> Point:
    """The point of the symmetric curve at which the rates differ most, by ``advantage``."""
    return Point((1 - advantage) / 2, (1 + advantage) / 2, advantage=True)


def budget_of(point: Point) -> tuple[float, float]:
    """The (epsilon, delta) that keeps the curve below the point, tight for Gaussian curves."""
    low, high = float(ndtri(point.false_positives)), float(ndtri(point.true_positives))
    slope = max(abs((low * low - high * high) / 2), _LEAST_SLOPE * (high - low))
    return slope, delta_for(point, slope)


def delta_for(point: Point, epsilon: float) -> float:
    """The largest delta at which ``epsilon`` keeps the curve below the point; may be negative."""
    false, true = point.false_positives, point.true_positives
    if point.advantage:
        return (true - false) * (math.exp(epsilon) + 1) / 2 - math.expm1(epsilon) / 2
    return max(
        true - math.exp(epsilon) * false, 1 - false - math.exp(epsilon) * (1 - true)
    )


def implied_risk(point: Point, epsilon: float, delta: float) -> float:
    """Bound on the advantage, or on the true-positive rate of the point, by a budget."""
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
    return rise if point.advantage else point.true_positives


def tightest_budget(
    point: Point, profile: Profile
) -> tuple[float, tuple[float, float]]:
    """The risk of a mechanism, and the (epsilon, delta) that implies it with most to spare."""
    start, _ = budget_of(point)
    epsilons = np.concatenate(
        [[0.0], np.geomspace(start / 30, 8 * start + 2, _EPSILONS)]
    )
    deltas = np.clip(profile(epsilons), 0.0, 1.0)
    usual = start / 4, delta_for(point, start / 4)
    if point.advantage and float(profile(np.array([usual[0]]))[0]) <= usual[1]:
        return float(deltas[0]), usual
    found = true_positive(epsilons, deltas, (point.false_positives,))[0]
    risk = deltas[0] if point.advantage else found
    wanted = np.array([delta_for(point, float(epsilon)) for epsilon in epsilons[1:]])
    best = int(np.argmax(np.where(wanted > 0, wanted - deltas[1:], -np.inf)))
    return float(risk), (float(epsilons[1:][best]), float(wanted[best]))
