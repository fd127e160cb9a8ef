"""Dominating pairs of one round, as mixtures of unit Gaussians on a line.

Noise is scaled to one, so that a client's contribution shifts the release by
``shift = distance / noise_multiplier``. Every pair is written

    P = (1 - p) N(0) + p N(+shift),        Q = (1 - q) N(0) + q N(-shift),

oriented so that the privacy loss ``log(dP/dQ)`` grows with the outcome ``y``:

``REMOVE``   p = ratio, q = 0: the client is in the first data set only.
``ADD``      p = 0, q = ratio: the client is in the second data set only.
``SWAP``     p = q = ratio: the client's contribution is turned round.
``STITCHED`` losses above 0 of ``REMOVE``, losses below 0 of ``ADD`` and an atom at 0:
             the profile of Zhu, Dong and Wang (2022), Proposition 30.

Arrays have one row for each pair and one column for each outcome; ``shift`` and ``ratio``
have shape (rows, 1).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from privplan.laws.law import AnyPair, DiscretePair, Kind

Array = NDArray[np.float64]
_Falling = Callable[[float], float]
UNIT = float(np.finfo(np.float64).eps)
LARGEST_SHIFT = (
    20.0  # beyond it the likelihood ratio may leave the floating-point range
)

_FINE_SHIFT = 0.2
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True)
class Rows:
    """Pairs of one kind stacked into columns; ``shift`` and ``ratio`` have shape (rows, 1)."""

    kind: Kind
    shift: Array
    ratio: Array

    @property
    def p_ratio(self) -> Array:
        """Weight of the shifted part of P, shape (rows, 1)."""
        return np.zeros_like(self.ratio) if self.kind == Kind.ADD else self.ratio

    @property
    def q_ratio(self) -> Array:
        """Weight of the shifted part of Q, shape (rows, 1)."""
        return np.zeros_like(self.ratio) if self.kind == Kind.REMOVE else self.ratio

    @property
    def edge(self) -> Array:
        """The loss that ``REMOVE`` exceeds everywhere, shape (rows, 1); -inf at ratio 1."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log1p(-self.ratio))

    def halves(self) -> tuple[Rows, Rows]:
        """The ``REMOVE`` and the ``ADD`` pair that a ``STITCHED`` one is made of."""
        return (
            Rows(Kind.REMOVE, self.shift, self.ratio),
            Rows(Kind.ADD, self.shift, self.ratio),
        )


def log_mixture(ratio: Array, exponent: Array) -> Array:
    """``log(1 - ratio + ratio * exp(exponent))`` without overflow or cancellation."""
    with np.errstate(divide="ignore"):
        found = np.log1p(ratio * np.expm1(np.minimum(exponent, 30.0)))
    if not exponent.max() <= 30.0:
        with np.errstate(divide="ignore"):
            large = np.log(ratio) + exponent
        above = np.exp(-np.maximum(exponent, 30.0))
        large = large + np.log1p((1 - ratio) / np.maximum(ratio, 1e-300) * above)
        found = np.where((exponent > 30.0) & (ratio > 0), large, found)
    return (
        np.where(ratio == 1.0, exponent, found)
        if ratio.max() == 1.0
        else np.asarray(found)
    )


def loss(rows: Rows, outcome: Array) -> Array:
    """Privacy loss at each outcome (not for ``STITCHED``), shape (rows, outcomes)."""
    up = rows.shift * outcome - rows.shift**2 / 2
    down = -rows.shift * outcome - rows.shift**2 / 2
    total = np.zeros(np.broadcast(rows.shift, outcome).shape)
    if rows.kind != Kind.ADD:
        total = total + log_mixture(rows.ratio, up)
    if rows.kind != Kind.REMOVE:
        total = total - log_mixture(rows.ratio, down)
    return total


def threshold(rows: Rows, level: Array) -> Array:
    """The outcome at which the loss equals ``level``; -inf or inf where no outcome reaches it."""
    if rows.kind == Kind.ADD:
        return -_remove_threshold(rows, -level)
    if rows.kind == Kind.REMOVE:
        return _remove_threshold(rows, level)
    half = level / 2
    odds = (1 - rows.ratio) / rows.ratio * np.exp(rows.shift**2 / 2)
    angle = np.arcsinh(odds * np.sinh(half.clip(-60.0, 60.0)))
    beyond = np.abs(half) - np.abs(half).clip(0.0, 60.0)
    return np.asarray(
        (half + angle + np.sign(half) * np.where(odds > 0, beyond, 0.0)) / rows.shift
    )


def _remove_threshold(rows: Rows, level: Array) -> Array:
    ratio = rows.ratio
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        growth = np.expm1(np.minimum(level, 40.0)) / ratio
        exponent = np.log1p(np.maximum(growth, -0.5))
        if not growth.min() > -0.5:
            above_edge = np.expm1(np.minimum(np.maximum(level - rows.edge, 0.0), 700.0))
            low = np.log(above_edge) + np.log1p(-ratio) - np.log(ratio)
            exponent = np.where(growth > -0.5, exponent, low)
        if not level.max() <= 30.0:
            above = np.log1p(-(1 - ratio) * np.exp(-np.maximum(level, 30.0)))
            exponent = np.where(level > 30.0, level - np.log(ratio) + above, exponent)
        if ratio.max() == 1.0:
            exponent = np.where(ratio == 1.0, level, exponent)
    return exponent / rows.shift + rows.shift / 2


def tail_outcomes(rows: Rows, tail: float | Array) -> tuple[Array, Array]:
    """Outcomes (rows, 1) beyond which P has ``tail`` at most, as Phi(-z) <= exp(-z^2 / 2)."""
    with np.errstate(divide="ignore"):
        shifted = np.sqrt(np.maximum(2 * np.log(2 * rows.p_ratio / tail), 0.0))
        centred = np.sqrt(np.maximum(2 * np.log(2 * (1 - rows.p_ratio) / tail), 0.0))
    high = np.where(rows.p_ratio > 0, rows.shift + shifted, -np.inf)
    high = np.maximum(high, np.where(rows.p_ratio < 1, centred, -np.inf))
    low = np.where(rows.p_ratio < 1, -centred, np.inf)
    return np.minimum(
        low, np.where(rows.p_ratio > 0, rows.shift - shifted, np.inf)
    ), high


@dataclass(frozen=True)
class Cells:
    """Integrals over the cells between neighbouring outcomes, each of shape (rows, cells)."""

    rows: Rows
    centred: Array  # mass of N(0) in each cell
    up: (
        Array | None
    )  # mass of N(+shift) less that of N(0), or None when P has no shifted part
    down: (
        Array | None
    )  # mass of N(-shift) less that of N(0), or None when Q has no shifted part
    centred_error: Array
    up_error: Array | None
    down_error: Array | None
    first: Array | None = None
    first_error: Array | None = None

    def first_mass(self) -> Array:
        """Mass of P in each cell."""
        mixed = (
            self.centred
            if self.up is None
            else self.centred + self.rows.ratio * self.up
        )
        return mixed if self.first is None else self.first

    def excess(self, level: Array) -> tuple[Array, Array]:
        """``P(cell) - exp(level) Q(cell)`` and a bound on its rounding error.

        Written with the common mass taken out, so that nothing of size 1 cancels:
        ``p (N+ - N0) - e^level q (N- - N0) - (e^level - 1) N0``. At ratio 1 P and Q have none.
        """
        if self.first is not None and self.first_error is not None:
            factor = np.exp(np.minimum(level, 700.0))
            value = self.first - factor * self.centred
            scale = 4 * UNIT * (self.first + factor * self.centred)
            return value, self.first_error + factor * self.centred_error + scale
        growth = np.expm1(np.minimum(level, 700.0))
        value = -growth * self.centred
        error = np.abs(growth) * self.centred_error
        if self.up is not None and self.up_error is not None:
            value = value + self.rows.ratio * self.up
            error = error + self.rows.ratio * self.up_error
        if self.down is not None and self.down_error is not None:
            factor = np.exp(np.minimum(level, 700.0))
            value = value - factor * self.rows.ratio * self.down
            error = error + factor * self.rows.ratio * self.down_error
        return value, error


@dataclass(frozen=True)
class FineCells:
    """Cells under small shifts, where differences of normal masses lose digits.

    Narrow cells are integrated with eight Gauss-Legendre points: the integrand
    ``exp(level) (exp(loss - level) - 1) dQ`` has one sign beside the level, so nothing cancels.
    At cells of width w around y with ``w <= 1/2``, ``w y <= 3`` and a shift of 1 / 10 w at most
    the rule is off by less than one unit of rounding. The other cells are taken from ``wide``.
    """

    wide: Cells
    bounds: Array

    def first_mass(self) -> Array:
        """Mass of P in each cell."""
        return self.wide.first_mass()

    def excess(self, level: Array) -> tuple[Array, Array]:
        """``P(cell) - exp(level) Q(cell)`` and a bound on its rounding error."""
        value, error = self.wide.excess(level)
        low, high = self.bounds[:, :-1], self.bounds[:, 1:]
        with np.errstate(invalid="ignore"):
            width, far = high - low, np.maximum(np.abs(low), np.abs(high))
            narrow = (width <= 0.5) & (width * far <= 3.0) & (width > 0)
            narrow &= width * self.wide.rows.shift <= 0.1
        if not narrow.any():
            return value, error
        row, column = np.nonzero(narrow)
        rows = self.wide.rows
        some = Rows(rows.kind, rows.shift[row], rows.ratio[row])
        half = width[row, column, None] / 2
        outcome = low[row, column, None] + half * (1 + _NODES)
        at = np.broadcast_to(level, value.shape)[row, column, None]
        lost = loss(some, outcome)
        below = 1 + some.q_ratio * np.expm1(-some.shift * outcome - some.shift**2 / 2)
        weight = (
            half
            * _WEIGHTS
            * np.exp(at - outcome**2 / 2)
            * below
            / math.sqrt(2 * math.pi)
        )
        value[row, column] = (weight * np.expm1(lost - at)).sum(axis=1)
        doubt = np.abs(lost) + np.abs(at) + 2 * np.abs(lost - at)
        for sign, share in (
            (1, some.p_ratio),
            (-1, some.q_ratio),
        ):  # rounding of the exponents
            grown = share * np.exp(
                np.minimum(some.shift * (sign * outcome - some.shift / 2), 30.0)
            )
            doubt += (
                grown
                / (1 - share + grown)
                * some.shift
                * (np.abs(outcome) + some.shift / 2)
            )
        error[row, column] = 16 * UNIT * (weight * doubt).sum(axis=1)
        return value, error


def cells(rows: Rows, bounds: Array, *, fine: bool = False) -> Cells | FineCells:
    """Integrals over the cells between ``bounds`` (increasing along axis 1)."""
    wide = _wide_cells(rows, bounds)
    return (
        FineCells(wide, bounds)
        if fine or float(rows.shift.max()) < _FINE_SHIFT
        else wide
    )


def _wide_cells(rows: Rows, bounds: Array) -> Cells:
    centred, centred_error = normal_cells(bounds)
    up = down = up_error = down_error = None
    if rows.kind != Kind.ADD:
        mass, error = normal_cells(bounds - rows.shift)
        if rows.kind == Kind.REMOVE and rows.ratio.min() == 1:
            return Cells(
                rows, centred, None, None, centred_error, None, None, mass, error
            )
        up, up_error = mass - centred, error + centred_error
    if rows.kind != Kind.REMOVE:
        mass, error = normal_cells(bounds + rows.shift)
        down, down_error = mass - centred, error + centred_error
    return Cells(rows, centred, up, down, centred_error, up_error, down_error)


def normal_cells(bounds: Array) -> tuple[Array, Array]:
    """Unit normal mass between neighbouring bounds and a bound on its rounding error.

    Differences are taken on the side of the smaller tail. ``ndtr`` is taken to be within
    ``4 + z^2`` units of relative rounding, its argument's own rounding included.
    """
    below, above = ndtr(bounds), ndtr(-bounds)
    right = bounds[:, :-1] > 0
    mass = np.where(right, above[:, :-1] - above[:, 1:], below[:, 1:] - below[:, :-1])
    size = np.where(right, above[:, :-1], below[:, 1:])
    far = np.minimum(np.abs(bounds), 40.0)
    reach = np.maximum(far[:, :-1], far[:, 1:]) ** 2
    return np.maximum(mass, 0.0), UNIT * (8.0 + 2.0 * reach) * size


# --- Delta of one round as a function of epsilon, and its inverse, with bounds on rounding. ------
# In closed form for Gaussian pairs, a sum for discrete ones, and of the Gaussian mechanism.

_CLOSE, _REACH = 1e-13, 2e-10  # relative: of the bounds, to where a sum is tried first


def delta_of(pair: AnyPair, epsilon: float) -> tuple[float, float]:
    """Lower and upper bound on ``H(P, Q)`` at an epsilon of 0 or more; rounding only.

    The loss grows with the outcome, so the best test is "outcome above the one whose loss is
    epsilon". A test at a misplaced outcome loses the square of the misplacement only.
    For ``STITCHED`` an epsilon of 0 or more is in its ``REMOVE`` half.
    """
    if isinstance(pair, DiscretePair):
        return _of_discrete(
            np.array(pair.losses), np.array(pair.masses), pair.infinite, epsilon
        )
    kind = Kind.REMOVE if pair.kind == Kind.STITCHED else pair.kind
    rows = Rows(kind, np.array([[pair.shift]]), np.array([[pair.ratio]]))
    level = np.array([[epsilon]])
    bound = threshold(rows, level)
    value, error = cells(rows, np.concatenate([bound, [[np.inf]]], axis=1)).excess(
        level
    )
    misplaced = (
        64 * UNIT * (1 + abs(float(bound[0, 0]))) if math.isfinite(bound[0, 0]) else 0.0
    )
    doubt = float(error[0, 0]) + misplaced**2
    return max(0.0, float(value[0, 0]) - doubt), min(1.0, float(value[0, 0]) + doubt)


def _of_discrete(
    losses: Array, masses: Array, rest: float, epsilon: float
) -> tuple[float, float]:
    """Bounds on ``sum_l mass_l max(0, 1 - e^(epsilon - l))`` and the infinite mass: n + 4 units."""
    value = rest - float((np.expm1(np.minimum(epsilon - losses, 0.0)) * masses).sum())
    doubt = UNIT * (len(losses) + 8) * value
    return max(0.0, value - doubt), min(1.0, value + doubt)


def epsilon_of(pair: AnyPair, delta: float, *, from_above: bool) -> float:
    """The epsilon of one round at ``delta``, rounded up (``from_above``) or down."""
    side = 1 if from_above else 0
    if not isinstance(pair, DiscretePair):
        return _smallest(
            lambda one: delta_of(pair, one)[side], delta, pair.shift, 1e6, side
        )
    known = losses, masses, rest = (
        np.array(pair.losses),
        np.array(pair.masses),
        pair.infinite,
    )
    places = np.clip(losses, -600.0, 600.0)
    beyond = np.cumsum(np.stack([masses, masses * np.exp(-places)])[:, ::-1], axis=1)[
        :, ::-1
    ]
    at = int((beyond[0] - np.exp(places) * beyond[1] > delta - rest)[:-1].sum())
    share = float(beyond[0, at] + rest - delta) / max(float(beyond[1, at]), 1e-300)
    start = (
        math.log(share) * (1 + _REACH / 2) if share > 1 else float(np.abs(losses).max())
    )
    return _smallest(
        lambda one: _of_discrete(*known, one)[side], delta, start, 1e6, side, _REACH
    )


def _smallest(
    delta_at: _Falling,
    delta: float,
    start: float,
    most: float,
    side: int,
    reach: float = 1.0,
) -> float:
    """Where a falling function reaches ``delta``, not far below ``start``: rounded down or up."""
    if delta_at(0.0) <= delta:
        return 0.0
    low, high = (
        (start * (1 - reach) if delta_at(start * (1 - reach)) > delta else 0.0),
        start,
    )
    while delta_at(high) > delta:
        low, high = high, 2 * high
        if high > most:
            return math.inf if side else low
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        if delta_at(middle) > delta:
            low = middle
        else:
            high = middle
    return high if side else low


def gaussian_delta(mu: float, epsilon: float) -> tuple[float, float]:
    """Lower and upper bound on delta of the mu-Gaussian (Balle and Wang 2018, Theorem 8).

    ``Phi(x) - e^epsilon Phi(x - mu)`` with ``x = mu / 2 - epsilon / mu``. The argument is rounded
    by a few units of its two terms, which changes a tail by ``|x| + 1`` times as much.
    """
    if mu == 0:
        return 0.0, 0.0
    half, shift = mu / 2, epsilon / mu
    above = float(ndtr(half - shift))
    below = math.exp(min(float(log_ndtr(-half - shift)) + epsilon, 0.0))
    steep = (abs(half - shift) + 1) * (half + shift) + epsilon
    doubt = 8 * UNIT * (above + below) * (1 + steep)
    return max(0.0, above - below - doubt), min(1.0, max(0.0, above - below) + doubt)


def gaussian_epsilon(mu: float, delta: float) -> tuple[float, float]:
    """Bounds on the epsilon of the mu-Gaussian at ``delta``; mu may be rounded by a few units."""
    low, high, most = mu * (1 - 8 * UNIT), mu * (1 + 8 * UNIT), sys.float_info.max
    return (
        _smallest(lambda epsilon: gaussian_delta(low, epsilon)[0], delta, low, most, 0),
        _smallest(
            lambda epsilon: gaussian_delta(high, epsilon)[1], delta, high, most, 1
        ),
    )
