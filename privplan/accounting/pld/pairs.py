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

Arrays have one row for each pair and one column for each outcome; ``shift`` and
``ratio`` have shape (rows, 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from privplan.laws.law import Kind

Array = NDArray[np.float64]
UNIT = float(np.finfo(np.float64).eps)
# Beyond it the likelihood ratio may leave the floating-point range.
LARGEST_SHIFT = 20.0

# Below this shift differences of normal masses lose digits, and cells are integrated.
_FINE_SHIFT = 0.2
# Gauss and Legendre's rule in a cell that ``FineCells`` calls narrow.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_MAX_WIDTH = 0.5
_MAX_WIDTH_TIMES_OUTCOME = 3.0
_MAX_WIDTH_TIMES_SHIFT = 0.1
# Largest exponent of a factor e^level: e^709 is near the largest float.
_LARGEST_EXPONENT = 700.0
# Above this exponent x, e^x - 1 is e^x but for less than a unit of rounding.
_LARGE_EXPONENT = 30.0
# Beyond this outcome the mass of the unit normal law is 0 in floating point.
_LAST_OUTCOME = 40.0


@dataclass(frozen=True)
class Rows:
    """Pairs of one kind, stacked into columns of shape (rows, 1)."""

    kind: Kind
    shift: Array
    ratio: Array

    @property
    def p_ratio(self) -> Array:
        """Weight of the shifted part of P, shape (rows, 1)."""
        if self.kind == Kind.ADD:
            return np.zeros_like(self.ratio)
        return self.ratio

    @property
    def q_ratio(self) -> Array:
        """Weight of the shifted part of Q, shape (rows, 1)."""
        if self.kind == Kind.REMOVE:
            return np.zeros_like(self.ratio)
        return self.ratio

    @property
    def edge(self) -> Array:
        """The loss that ``REMOVE`` exceeds everywhere, (rows, 1); -inf at ratio 1."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log1p(-self.ratio))

    def halves(self) -> tuple[Rows, Rows]:
        """The ``REMOVE`` and the ``ADD`` pair that a ``STITCHED`` one is made of."""
        remove = Rows(Kind.REMOVE, self.shift, self.ratio)
        add = Rows(Kind.ADD, self.shift, self.ratio)
        return remove, add


def log_mixture(ratio: Array, exponent: Array) -> Array:
    """``log(1 - ratio + ratio * exp(exponent))`` without overflow or cancellation."""
    with np.errstate(divide="ignore"):
        growth = np.expm1(np.minimum(exponent, _LARGE_EXPONENT))
        logs = np.log1p(ratio * growth)

    # Of a large exponent x: log(ratio) + x + log1p((1 - ratio) e^-x / ratio).
    if not exponent.max() <= _LARGE_EXPONENT:
        with np.errstate(divide="ignore"):
            large = np.log(ratio) + exponent
        above = np.exp(-np.maximum(exponent, _LARGE_EXPONENT))
        large = large + np.log1p((1 - ratio) / np.maximum(ratio, 1e-300) * above)
        logs = np.where((exponent > _LARGE_EXPONENT) & (ratio > 0), large, logs)
    if ratio.max() == 1.0:
        logs = np.where(ratio == 1.0, exponent, logs)
    return np.asarray(logs)


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
    """The outcome at which the loss equals ``level``; infinite where none does.

    For ``SWAP`` the loss is odd, and with ``o = (1 - ratio) / ratio exp(shift^2 / 2)``
    ``shift y = level / 2 + arcsinh(o sinh(level / 2))``.
    """
    if rows.kind == Kind.ADD:
        return -_remove_threshold(rows, -level)
    if rows.kind == Kind.REMOVE:
        return _remove_threshold(rows, level)
    half = level / 2
    odds = (1 - rows.ratio) / rows.ratio * np.exp(rows.shift**2 / 2)

    # Beyond 60 the arcsinh grows as its argument's logarithm does.
    angle = np.arcsinh(odds * np.sinh(half.clip(-60.0, 60.0)))
    beyond = np.abs(half) - np.abs(half).clip(0.0, 60.0)
    further = np.sign(half) * np.where(odds > 0, beyond, 0.0)
    return np.asarray((half + angle + further) / rows.shift)


def _remove_threshold(rows: Rows, level: Array) -> Array:
    """That of ``REMOVE``: ``log(1 + (e^level - 1) / ratio) / shift + shift / 2``."""
    ratio = rows.ratio
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        growth = np.expm1(np.minimum(level, 40.0)) / ratio
        exponent = np.log1p(np.maximum(growth, -0.5))

        # Near the edge of the loss, from the distance to it.
        if not growth.min() > -0.5:
            distance = np.minimum(np.maximum(level - rows.edge, 0.0), _LARGEST_EXPONENT)
            low = np.log(np.expm1(distance)) + np.log1p(-ratio) - np.log(ratio)
            exponent = np.where(growth > -0.5, exponent, low)

        # Of a large level: level - log(ratio), and what e^-level adds.
        if not level.max() <= _LARGE_EXPONENT:
            fading = np.exp(-np.maximum(level, _LARGE_EXPONENT))
            above = np.log1p(-(1 - ratio) * fading)
            large = level - np.log(ratio) + above
            exponent = np.where(level > _LARGE_EXPONENT, large, exponent)
        if ratio.max() == 1.0:
            exponent = np.where(ratio == 1.0, level, exponent)
    return exponent / rows.shift + rows.shift / 2


def tail_outcomes(rows: Rows, tail: float | Array) -> tuple[Array, Array]:
    """Outcomes (rows, 1) beyond which P has ``tail`` at most on either side.

    By ``Phi(-z) <= exp(-z^2 / 2) / 2``, for each part of the mixture half of it.
    """
    present = rows.p_ratio
    with np.errstate(divide="ignore"):
        shifted = np.sqrt(np.maximum(2 * np.log(2 * present / tail), 0.0))
        centred = np.sqrt(np.maximum(2 * np.log(2 * (1 - present) / tail), 0.0))
    high = np.where(present > 0, rows.shift + shifted, -np.inf)
    high = np.maximum(high, np.where(present < 1, centred, -np.inf))
    low = np.where(present < 1, -centred, np.inf)
    low = np.minimum(low, np.where(present > 0, rows.shift - shifted, np.inf))
    return low, high


@dataclass(frozen=True)
class Cells:
    """Integrals over the cells between neighbouring outcomes, shape (rows, cells) each.

    Attributes:
        rows: the pairs.
        centred: mass of N(0) in each cell.
        up: mass of N(+shift) less that of N(0); None when P has no shifted part.
        down: mass of N(-shift) less that of N(0); None when Q has no shifted part.
        centred_error: bound on the rounding error of ``centred``.
        up_error: of ``up``.
        down_error: of ``down``.
        first: mass of P itself, where everybody takes part.
        first_error: of ``first``.
    """

    rows: Rows
    centred: Array
    up: Array | None
    down: Array | None
    centred_error: Array
    up_error: Array | None
    down_error: Array | None
    first: Array | None = None
    first_error: Array | None = None

    def first_mass(self) -> Array:
        """Mass of P in each cell."""
        if self.first is not None:
            return self.first
        if self.up is None:
            return self.centred
        return self.centred + self.rows.ratio * self.up

    def excess(self, level: Array) -> tuple[Array, Array]:
        """``P(cell) - exp(level) Q(cell)`` and a bound on its rounding error.

        Written with the common mass taken out, so that nothing of size 1 cancels:
        ``p (N+ - N0) - e^level q (N- - N0) - (e^level - 1) N0``. At ratio 1 P and Q
        have none.
        """
        if self.first is not None and self.first_error is not None:
            factor = np.exp(np.minimum(level, _LARGEST_EXPONENT))
            value = self.first - factor * self.centred
            scale = 4 * UNIT * (self.first + factor * self.centred)
            return value, self.first_error + factor * self.centred_error + scale
        growth = np.expm1(np.minimum(level, _LARGEST_EXPONENT))
        value = -growth * self.centred
        error = np.abs(growth) * self.centred_error
        if self.up is not None and self.up_error is not None:
            value = value + self.rows.ratio * self.up
            error = error + self.rows.ratio * self.up_error
        if self.down is not None and self.down_error is not None:
            factor = np.exp(np.minimum(level, _LARGEST_EXPONENT))
            value = value - factor * self.rows.ratio * self.down
            error = error + factor * self.rows.ratio * self.down_error
        return value, error


@dataclass(frozen=True)
class FineCells:
    """Cells under small shifts, where differences of normal masses lose digits.

    Narrow cells are integrated with eight Gauss-Legendre points: the integrand
    ``exp(level) (exp(loss - level) - 1) dQ`` has one sign beside the level, so nothing
    cancels. At cells of width w around y with ``w <= 1/2``, ``w y <= 3`` and a shift of
    1 / 10 w at most the rule is off by less than one unit of rounding. The other cells
    are taken from ``wide``.
    """

    wide: Cells
    bounds: Array

    def first_mass(self) -> Array:
        """Mass of P in each cell."""
        return self.wide.first_mass()

    def excess(self, level: Array) -> tuple[Array, Array]:
        """``P(cell) - exp(level) Q(cell)`` and a bound on its rounding error."""
        value, error = self.wide.excess(level)
        row, column = np.nonzero(self._narrow())
        if not len(row):
            return value, error
        rows = self.wide.rows
        narrow = Rows(rows.kind, rows.shift[row], rows.ratio[row])
        ends = self.bounds[row, column, None], self.bounds[row, column + 1, None]
        own_level = np.broadcast_to(level, value.shape)[row, column, None]
        value[row, column], error[row, column] = _quadrature(narrow, *ends, own_level)
        return value, error

    def _narrow(self) -> NDArray[np.bool_]:
        """Which cells the rule serves."""
        low = self.bounds[:, :-1]
        high = self.bounds[:, 1:]
        with np.errstate(invalid="ignore"):
            width = high - low
            furthest = np.maximum(np.abs(low), np.abs(high))
            narrow = (width <= _MAX_WIDTH) & (width > 0)
            narrow &= width * furthest <= _MAX_WIDTH_TIMES_OUTCOME
            narrow &= width * self.wide.rows.shift <= _MAX_WIDTH_TIMES_SHIFT
        return np.asarray(narrow)


def _quadrature(
    rows: Rows, low: Array, high: Array, level: Array
) -> tuple[Array, Array]:
    """The excess of one cell of each pair, and a bound on its rounding error.

    Args:
        rows: the pairs.
        low: lower end of the cell of each, shape (rows, 1).
        high: its upper end, likewise.
        level: of the excess, likewise.

    Returns:
        Both of shape (rows,).
    """
    half = (high - low) / 2
    outcome = low + half * (1 + _NODES)
    losses = loss(rows, outcome)
    down = -rows.shift * outcome - rows.shift**2 / 2
    density_of_q = np.exp(level - outcome**2 / 2) * (1 + rows.q_ratio * np.expm1(down))
    weight = half * _WEIGHTS * density_of_q / math.sqrt(2 * math.pi)
    value = (weight * np.expm1(losses - level)).sum(axis=1)

    # Units by which losses and levels are off, and those of the exponents within.
    doubt = np.abs(losses) + np.abs(level) + 2 * np.abs(losses - level)
    for sign, share in ((1, rows.p_ratio), (-1, rows.q_ratio)):
        exponent = rows.shift * (sign * outcome - rows.shift / 2)
        grown = share * np.exp(np.minimum(exponent, _LARGE_EXPONENT))
        size = rows.shift * (np.abs(outcome) + rows.shift / 2)
        doubt += grown / (1 - share + grown) * size
    return value, 16 * UNIT * (weight * doubt).sum(axis=1)


def cells(rows: Rows, bounds: Array, *, fine: bool = False) -> Cells | FineCells:
    """Integrals over the cells between ``bounds`` (increasing along axis 1).

    Args:
        rows: pairs of one kind, not ``STITCHED``.
        bounds: outcomes, shape (rows, cells + 1); infinite ones at the ends.
        fine: whether narrow cells are integrated whatever the shift.
    """
    wide = _wide_cells(rows, bounds)
    if fine or float(rows.shift.max()) < _FINE_SHIFT:
        return FineCells(wide, bounds)
    return wide


def _wide_cells(rows: Rows, bounds: Array) -> Cells:
    """Cells by differences of normal masses."""
    centred, centred_error = normal_cells(bounds)
    up = None
    up_error = None
    if rows.kind != Kind.ADD:
        mass, error = normal_cells(bounds - rows.shift)
        if rows.kind == Kind.REMOVE and rows.ratio.min() == 1:
            return Cells(
                rows, centred, None, None, centred_error, None, None, mass, error
            )
        up = mass - centred
        up_error = error + centred_error
    down = None
    down_error = None
    if rows.kind != Kind.REMOVE:
        mass, error = normal_cells(bounds + rows.shift)
        down = mass - centred
        down_error = error + centred_error
    return Cells(rows, centred, up, down, centred_error, up_error, down_error)


def normal_cells(bounds: Array) -> tuple[Array, Array]:
    """Unit normal mass between neighbouring bounds and a bound on its rounding error.

    Differences are taken on the side of the smaller tail. ``ndtr`` is taken to be
    within ``4 + z^2`` units of relative rounding, its argument's own included.
    """
    below = ndtr(bounds)
    above = ndtr(-bounds)
    is_right = bounds[:, :-1] > 0
    from_above = above[:, :-1] - above[:, 1:]
    from_below = below[:, 1:] - below[:, :-1]
    mass = np.where(is_right, from_above, from_below)
    size = np.where(is_right, above[:, :-1], below[:, 1:])
    outcomes = np.minimum(np.abs(bounds), _LAST_OUTCOME)
    squares = np.maximum(outcomes[:, :-1], outcomes[:, 1:]) ** 2
    return np.maximum(mass, 0.0), UNIT * (8.0 + 2.0 * squares) * size
