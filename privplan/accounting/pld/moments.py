"""Moments of one round's loss, E_P[exp(z loss)], by Gauss's rule, with bounds on its error.

Outcomes far out are left out. What is left is an integral of an analytic function over an interval,
which panels cut. With M the largest value in the ellipse of Bernstein with parameter rho around a
panel of half width r, n nodes are off by 64 / 15 r M rho^-2n / (1 - rho^-2) at most (Trefethen
2008, Theorem 4.5): polynomials below degree 2 n are exact.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import erf, ndtr

from privplan.accounting.pld.pairs import UNIT, Array, Rows, log_mixture, tail_outcomes
from privplan.laws.law import Kind

NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_ELLIPSES = (1.8, 3.0)
_ANGLE = 3.0  # at most, below pi, where 1 - q + q e^(x + ia) may be 0


class Equal(NamedTuple):
    """Equal rounds of Gaussian pairs of one kind, one pair a question; arrays of shape (n,)."""

    kind: Kind
    shift: Array
    ratio: Array
    rounds: Array

    @property
    def rows(self) -> Rows:
        """Their pairs."""
        return Rows(self.kind, self.shift[:, None], self.ratio[:, None])


class Outcomes(NamedTuple):
    """Of one round, shape (n, nodes) each."""

    losses: Array
    masses: Array
    off: Array  # units of rounding of the masses, relative
    loss_off: Array  # units of rounding of the losses


def _mixture(part: Equal, places: Array, sign: int) -> tuple[Array, Array]:
    """Exponents of the shifted part and logs of (1 - ratio + ratio e^exponent)."""
    shift = part.rows.shift
    exponents = sign * shift * places - shift**2 / 2
    return exponents, log_mixture(part.rows.ratio, exponents)


def outcomes(part: Equal, ends: Array) -> Outcomes:
    """The nodes of Gauss's rule on panels between ``ends``, shape (n, panels + 1)."""
    half = np.diff(ends)[:, :, None] / 2
    places = (ends[:, :-1, None] + half * (1 + NODES)).reshape(len(ends), -1)
    masses = (half * _WEIGHTS).reshape(places.shape) * np.exp(-(places**2) / 2)
    masses /= math.sqrt(2 * math.pi)
    shift, q = part.rows.shift, part.rows.ratio
    losses, off = np.zeros(places.shape), 16 + 2 * places**2
    loss_off, far = np.zeros(places.shape), shift * (2 * np.abs(places) + shift)
    for sign in (1, -1):
        if part.kind == (Kind.ADD if sign > 0 else Kind.REMOVE):
            continue
        if sign < 0 and part.kind == Kind.STITCHED:
            continue
        exponents, logs = _mixture(part, places, sign)
        grown = q * np.exp(
            np.minimum(exponents - logs, 700.0)
        )  # share of the shifted part
        losses += sign * logs
        loss_off += 4 * np.abs(logs) + 2 * np.abs(-np.expm1(-logs)) + grown * far
        if sign > 0:
            plain, masses = masses, masses * np.exp(logs)
            off = off + grown * far + 4 * np.abs(logs) + 4
    if part.kind == Kind.STITCHED:
        atom = (1 - q) * erf(shift / math.sqrt(8))
        losses = np.concatenate([losses, -losses, np.zeros(atom.shape)], axis=1)
        masses = np.concatenate([masses, plain, atom], axis=1)
        off = np.concatenate([off, off, np.full(atom.shape, 16.0)], axis=1)
        loss_off = np.concatenate([loss_off, loss_off, np.zeros(atom.shape)], axis=1)
    return Outcomes(losses, masses, off, loss_off)


def _around(part: Equal, exponents: Array, angle: Array) -> tuple[Array, Array]:
    """Of 1 - ratio + ratio exp(exponent + i a): its largest argument, for a up to ``angle``.

    And the log of its least size over that at a = 0.
    """
    odds = (
        (1 - part.rows.ratio) / part.rows.ratio * np.exp(-exponents)
    )  # of the unshifted part
    plain = np.arctan2(np.sin(angle), odds + np.cos(angle))
    turned = np.where(
        np.cos(angle) * odds < -1, np.arcsin(1 / np.maximum(odds, 1.0)), plain
    )
    real = 1 - (1 - np.cos(angle)) / (1 + odds)
    return turned, np.log(np.maximum(real, np.cos(np.minimum(angle, _ANGLE) / 2)))


def off_by(part: Equal, ends: Array, tilt: Array, frequency: Array) -> Array:
    """Log of a bound on what Gauss's rule is off by, of a moment at a tilt and a frequency.

    On the ellipse |1 - q + q e^(x + ia)| is at most its value at a = 0, and no less than cos(a / 2)
    times that; the density of the normal law grows by exp(a^2 / 2). Logs that are to be bounded
    from above lie below a line: the chord of a convex one, the tangent of a concave one. With a
    line the density has its largest value where x is the slope.
    """
    half, middle = np.diff(ends) / 2, (ends[:, 1:] + ends[:, :-1]) / 2
    tilt, frequency = tilt[:, None], frequency[:, None]
    best = np.full(half.shape, np.inf)
    if part.kind in (Kind.ADD, Kind.SWAP):
        exponents, logs_there = _mixture(part, middle, -1)
        falls = part.rows.shift * part.rows.ratio * np.exp(exponents - logs_there)
    for rho in _ELLIPSES:
        across, up = (rho + 1 / rho) / 2 * half, (rho - 1 / rho) / 2 * half
        right, left = middle + across, middle - across
        angle = part.rows.shift * up
        size = up**2 / 2 + np.log(half) - 2 * len(NODES) * math.log(rho)
        size += math.log(64 / 15 / math.sqrt(2 * math.pi)) - math.log1p(-(rho**-2))
        found, slope = size, np.zeros(half.shape)
        if part.kind != Kind.ADD:
            exponents, logs = _mixture(part, right, 1)
            least = _mixture(part, left, 1)[1]
            turn, narrowed = _around(part, exponents, angle)
            found = found + (1 + tilt) * least + frequency * turn
            slope += (1 + tilt) * (logs - least) / (2 * across)
        if part.kind in (Kind.ADD, Kind.SWAP):
            turn, narrowed = _around(part, _mixture(part, left, -1)[0], angle)
            found = (
                found
                - tilt * (logs_there + falls * across + narrowed)
                + frequency * turn
            )
            slope += tilt * falls
        place = np.clip(slope, left, right)
        found = found + slope * (place - left) - place**2 / 2
        if part.kind == Kind.STITCHED:
            nearest = np.maximum(np.maximum(left, -right), 0.0)
            other = size - tilt * (least + narrowed) + frequency * turn - nearest**2 / 2
            found = np.logaddexp(found, other)
        best = np.minimum(best, np.where((angle < _ANGLE) & (half > 0), found, np.inf))
    best = np.where(half > 0, best, -np.inf)
    top = np.maximum(best.max(axis=1), -800.0)
    return np.asarray(top + np.log(np.exp(best - top[:, None]).sum(axis=1) + 1e-300))


def ends_of(part: Equal, tail: Array) -> tuple[Array, Array]:
    """Outcomes to cut at, shape (n,) each."""
    stitched = part.kind == Kind.STITCHED
    rows = Rows(
        Kind.REMOVE if stitched else part.kind, part.rows.shift, part.rows.ratio
    )
    low, high = (end[:, 0] for end in tail_outcomes(rows, tail[:, None]))
    if stitched:
        low, high = part.shift / 2, np.maximum(high, part.shift / 2 + 1)
    return (-high if part.kind == Kind.SWAP else low), high


def tilted(part: Equal, places: Array, tilt: Array) -> tuple[Array, Array]:
    """Losses at outcomes, and the log of the tilted density but for a factor."""
    up, down = np.zeros(places.shape), np.zeros(places.shape)
    if part.kind != Kind.ADD:
        up = _mixture(part, places, 1)[1]
    if part.kind in (Kind.ADD, Kind.SWAP):
        down = _mixture(part, places, -1)[1]
    losses = up - down
    return losses, tilt[:, None] * losses + up - places**2 / 2


def chernoff(part: Equal, ends: Array, one: Outcomes, tilt: Array) -> Array:
    """A bound from above on the log moment of a round at a tilt."""
    exponents = tilt[:, None] * one.losses
    top = exponents.max(axis=1)
    found = top + np.log(
        np.einsum("rn,rn->r", np.exp(exponents - top[:, None]), one.masses)
    )
    wrong = np.exp(
        np.minimum(off_by(part, ends, tilt, np.zeros(len(tilt))) - found, 700.0)
    )
    units = one.off.max(axis=1) + 16 * tilt * np.abs(one.losses).max(axis=1) + 64
    return np.asarray(found + np.log1p(wrong + 2 * UNIT * units))


def outside(part: Equal, ends: Array) -> Array:
    """Mass of a round beyond the ends."""
    low, high, p = ends[:, :1], ends[:, -1:], part.rows.p_ratio
    found = (1 - p) * ndtr(-high) + p * ndtr(part.rows.shift - high)
    if part.kind == Kind.STITCHED:  # the other half is that of the removal, turned
        found += ndtr(-high)
    else:
        found += (1 - p) * ndtr(low) + p * ndtr(low - part.rows.shift)
    return np.asarray(found[:, 0] * (1 + 1e-12))
