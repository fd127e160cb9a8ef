"""Epsilon of equal sampled rounds by inverting the moment generating function of their loss.

An estimate without bounds, within some 1e-6 of epsilon: where a calibration starts, at a fraction
of the cost of bounds. With ``K(z) = T log E exp(z L)`` and any ``t > 0``

    delta(epsilon) = 1/pi * integral over u > 0 of Re exp(K(z) - z epsilon) / (z (1 + z)),
    z = t - iu,

since ``1 / (z (1 + z))`` is the transform of ``max(0, 1 - exp(-x))``. At the saddle point ``t``
the integrand fades fast, and the trapezoidal rule is off only by what wraps around its period.
Where clients take part rarely it does not fade, for the probability that nearly nothing is lost; a
window then ends it, which smooths that probability and leaves what lies as far away as epsilon. The
expectation is a Gauss-Legendre rule over the outcomes of one round, whose losses are split between
the six points of a lattice around them, so that one transform gives all ``u``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import erfc, ndtr

from privplan.accounting.pld.convolution import fast_length
from privplan.accounting.pld.pairs import Array, log_mixture
from privplan.laws.law import AnyPair, Kind, Pair

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_REACH = 8.0
"""How far outcomes reach beyond the centres of their normal parts."""
_WIDEST, _TURN = 2.0, 20.0
"""Widest panel of the rule, and the largest angle by which the phase turns in a panel."""
_POWERS = 2.0 ** np.arange(-2.0, 4.0)[:, None]
_MISSED = 15.0
"""Minus the log of the share of delta that may wrap around the period."""
_FADED = 1e-6
_FREQUENT = 7.5
"""Highest frequency that is looked at first, in inverse deviations of the loss."""
_SMOOTH = 110.0
"""Highest frequency at most, over the distance of epsilon from the loss of rounds in which a client
hardly takes part: so far from there the density is smooth. A smooth window ends the integral."""
_SPLIT = 2e-5
_MOST_POINTS = 1 << 18
_MOST_STEPS = 40
_MOST_TRIES = 5
_MOST_TILT = 1e4
_FLAT = 0.5
_CLOSE = 0.1
_SETTLED = 1e-6


@dataclass(frozen=True)
class _Rule:
    """Losses of one round and their masses under P tilted by ``tilt``, shape (points,) each."""

    losses: Array  # the losses
    masses: Array  # tilted masses, summing to one
    log_moment: float  # log of what they are to be multiplied with

    @property
    def mean(self) -> float:
        """Mean of the tilted loss."""
        return float(self.masses @ self.losses)

    @property
    def variance(self) -> float:
        """Variance of the tilted loss."""
        return float(self.masses @ (self.losses - self.mean) ** 2)


def epsilon_estimate(pair: AnyPair, rounds: int, delta: float, near: float) -> float | None:
    """Epsilon at ``delta`` of equal rounds, from one of the same order (``near``).

    The pair is of the direction that spends more; None where the method does not serve: for
    ``ADD``, full participation and discrete pairs.
    """
    served = isinstance(pair, Pair) and pair.kind != Kind.ADD and pair.ratio < 1
    if not isinstance(pair, Pair) or not served or not 0 < near < math.inf:
        return None
    tilt = min(-math.log(delta) / near, 100.0)
    for _ in range(_MOST_TRIES):
        tilt, rule = _saddle(pair, rounds, near, tilt)
        found = _read(pair, rounds, delta, near, tilt, rule) if tilt < _MOST_TILT else None
        if found is None or found[0] <= 0:
            return None
        following, settled = found
        if settled and abs(following - near) <= _CLOSE * near:
            return following
        near = following
    return None


def _saddle(pair: Pair, rounds: int, epsilon: float, tilt: float) -> tuple[float, _Rule]:
    """The tilt at which the integrand at ``epsilon`` is flat, within a third of its width."""
    limit = 2 * tilt
    outcomes = _outcomes(pair, limit, 0.0)
    low, high = 0.0, math.inf
    for turn in range(_MOST_STEPS):
        rule = _tilted(*outcomes, tilt)
        width = _width(rule, rounds, tilt)
        slope = rounds * rule.mean - epsilon - 1 / tilt - 1 / (1 + tilt)
        low, high = (tilt, high) if slope < 0 else (low, tilt)
        following = min(max(tilt - slope / width**2, tilt / 3), 3 * tilt)
        if abs(following - tilt) * width < _FLAT or tilt >= _MOST_TILT:
            break
        both = low > 0 and high < math.inf
        if both and (turn % 2 or not low < following < high):
            following = math.sqrt(low * high)
        tilt = following
        if tilt > limit:
            limit = 2 * tilt
            outcomes = _outcomes(pair, limit, 0.0)
    return tilt, rule


def _width(rule: _Rule, rounds: int, tilt: float) -> float:
    """Root of the second derivative of the integrand's exponent."""
    return math.sqrt(rounds * rule.variance + 1 / tilt**2 + 1 / (1 + tilt) ** 2)


def _read(
    pair: Pair, rounds: int, delta: float, epsilon: float, tilt: float, rule: _Rule
) -> tuple[float, bool] | None:
    """Epsilon at ``delta`` by the integral at one tilt, if it fades, and whether Newton settled."""
    width = _width(rule, rounds, tilt)
    period = _period(rule, rounds, delta, epsilon, tilt, width)
    middle, core = _core(rule)
    highest = max(_FREQUENT / max(math.sqrt(rounds) * core, 1e-300), 0.7 * _FREQUENT / width)
    smooth = _SMOOTH / max(epsilon - rounds * middle, 1e-300)
    windowed, highest = smooth < highest, min(smooth, highest)
    for _ in range(_MOST_TRIES):
        step = 2 * (_SPLIT / rounds) ** (1 / 6) / highest
        if not period / step < _MOST_POINTS:
            return None
        points = fast_length(int(period / step) + 8)
        rule = _tilted(*_outcomes(pair, tilt, highest), tilt)
        moments = np.fft.rfft(_split(rule, period / points, points))
        apart = 2 * math.pi / period
        u = apart * np.arange(min(int(highest / apart) + 3, len(moments)))
        z = tilt - 1j * u
        terms = np.exp(rounds * np.log(moments[: len(u)]) + 1j * u * epsilon) / (z * (1 + z))
        if windowed:
            terms *= erfc(12 * u / highest - 8) / 2
        if np.abs(terms[-3:]).max() < _FADED * abs(terms[0]):
            break
        highest *= 2
    else:
        return None
    terms[0] /= 2
    scale = rounds * rule.log_moment + math.log(apart / math.pi) - math.log(delta)
    for _ in range(_MOST_TRIES):
        total, slope = float(terms.real.sum()), float((terms * z).real.sum())
        if not (total > 0 and slope > 0):
            return None
        move = (scale - tilt * epsilon + math.log(total)) * total / slope
        epsilon += move
        if abs(move) <= _SETTLED * abs(epsilon):
            return epsilon, True
        if abs(move) > 1 / width:
            break
        terms *= np.exp(1j * u * move)
    return epsilon, False


def _period(
    rule: _Rule, rounds: int, delta: float, epsilon: float, tilt: float, width: float
) -> float:
    """How far apart losses are to be that the trapezoidal rule takes for one.

    Delta is at most 1 a period below, and at most Chernoff's bound a period above.
    """
    log_delta = math.log(delta)
    pulls = _POWERS / width
    exponent = pulls * rule.losses + np.log(np.maximum(rule.masses, 1e-300))
    top = exponent.max(axis=1)
    rises = rounds * (top + np.log(np.exp(exponent - top[:, None]).sum(axis=1)))
    peak = max(rounds * rule.log_moment - tilt * epsilon - log_delta, 0.0)
    above = float(((rises + _MISSED + peak) / pulls[:, 0]).min()) - epsilon
    return max(above, (_MISSED - log_delta) / tilt)


def _core(rule: _Rule) -> tuple[float, float]:
    """Median of the tilted loss, and half of the distance of its quantiles at one deviation."""
    order = np.argsort(rule.losses)
    masses, losses = np.cumsum(rule.masses[order]), rule.losses[order]
    low, middle, high = np.interp((0.1587, 0.5, 0.8413), masses, losses)
    return float(middle), float(high - low) / 2


def _tilted(losses: Array, log_masses: Array, tilt: float) -> _Rule:
    exponent = tilt * losses + log_masses
    top = float(exponent.max())
    weighted = np.exp(exponent - top)
    total = float(weighted.sum())
    return _Rule(losses, weighted / total, top + math.log(total))


def _outcomes(pair: Pair, tilt: float, frequency: float) -> tuple[Array, Array]:
    """Losses of one round and the logs of their masses under P, shape (points,) each.

    The transform of the masses tilted by ``tilt`` is exact up to the frequency.
    """
    losses, masses = [], []
    for kind, outcome, weight in _pieces(pair, tilt, frequency):
        density = np.log(weight / math.sqrt(2 * math.pi)) - outcome**2 / 2
        up = _log_part(pair, outcome) if kind != Kind.ADD else np.zeros_like(outcome)
        down = _log_part(pair, -outcome) if kind != Kind.REMOVE else np.zeros_like(outcome)
        losses.append(up - down)
        masses.append(density + up)
    if pair.kind == Kind.STITCHED:
        half = pair.shift / 2
        losses.append(np.zeros(1))
        masses.append(np.log(np.array([(1 - pair.ratio) * float(ndtr(half) - ndtr(-half))])))
    return np.concatenate(losses), np.concatenate(masses)


def _log_part(pair: Pair, outcome: Array) -> Array:
    """Log of the mixture's density over that of N(0)."""
    return log_mixture(np.array(pair.ratio), pair.shift * outcome - pair.shift**2 / 2)


def _pieces(pair: Pair, tilt: float, frequency: float) -> Iterator[tuple[Kind, Array, Array]]:
    """Nodes and weights of the rule, with the kind that the loss is of there."""
    far, half = pair.shift * (tilt + 1) + _REACH, pair.shift / 2
    if pair.kind != Kind.STITCHED:
        yield pair.kind, *_nodes(pair, pair.kind, -_REACH, far, frequency)
        return
    yield Kind.REMOVE, *_nodes(pair, Kind.REMOVE, half, far, frequency)
    yield Kind.ADD, *_nodes(pair, Kind.ADD, -max(_REACH, 2 * half), -half, frequency)


def _nodes(
    pair: Pair, kind: Kind, low: float, high: float, frequency: float
) -> tuple[Array, Array]:
    """Panels that are narrow where the loss changes fast with the outcome."""
    if frequency == 0:
        count = math.ceil((high - low) / _WIDEST)
        return _panels(np.linspace(low, high, count + 1))
    places = np.linspace(low, high, 64)
    slope = np.zeros_like(places)
    for sign, used in ((1, kind != Kind.ADD), (-1, kind != Kind.REMOVE)):
        if used:
            exponent = pair.shift * sign * places - pair.shift**2 / 2
            log_share = math.log(pair.ratio) + exponent - _log_part(pair, sign * places)
            slope += pair.shift * np.exp(np.minimum(log_share, 0.0))
    needed = np.maximum(1 / _WIDEST, frequency / _TURN * slope)
    passed = np.concatenate([[0.0], np.cumsum(np.maximum(needed[1:], needed[:-1]))])
    passed *= places[1] - places[0]
    count = math.ceil(passed[-1])
    return _panels(np.interp(np.linspace(0, passed[-1], count + 1), passed, places))


def _panels(edges: Array) -> tuple[Array, Array]:
    """Nodes and weights between edges, shape (points,) each."""
    widths = np.diff(edges)[:, None] / 2
    nodes = edges[:-1, None] + widths * (1 + _NODES)
    return nodes.ravel(), (widths * _WEIGHTS).ravel()


def _split(rule: _Rule, step: float, points: int) -> Array:
    """The tilted masses on a circle of losses ``step`` apart, shape (points,).

    Each is split by the polynomial through the six points around it, which keeps
    ``exp(iux)`` within ``0.005 (u step)^6``.
    """
    place = rule.losses / step
    first = np.floor(place)
    f = place - first
    at = first.astype(np.int64)
    below, middle, above = (f + 2) * (f + 1), f * (f - 1), (f - 2) * (f - 3)
    shares = (
        (f + 1) * middle * above / -120,
        (f + 2) * middle * above / 24,
        below * (f - 1) * above / -12,
        below * f * above / 12,
        below * middle * (f - 3) / -24,
        below * middle * (f - 2) / 120,
    )
    total = np.zeros(points)
    for offset, share in enumerate(shares, start=-2):
        total += np.bincount((at + offset) % points, rule.masses * share, points)
    return total
