"""One side of a history composed at one tilt and one step, to which rounds can be added."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from privplan.accounting.pld.accountant import Reading, Side
from privplan.accounting.pld.convolution import (
    ALIASED,
    MOST_POINTS,
    Part,
    Tilted,
    cumulants,
    tilted_masses,
    untilted,
)
from privplan.accounting.pld.lattice import Lattice
from privplan.accounting.pld.pairs import UNIT, Array
from privplan.accounting.pld.profile import Composed
from privplan.accounting.pld.spectrum import Indices, Spectrum
from privplan.laws.law import AnyPair
from privplan.scipy_functions import next_fast_len

_QUIET = -math.log(ALIASED)
_PULLS = np.array([1.4, 1.0, 0.7, 0.4, 0.1, 0.02, 0.002])
_EXPONENTS = np.concatenate([_PULLS, -_PULLS])
_MARGIN = 1 + 1e-6
_LEAST_SUM = 1e-250


@dataclass
class Total:
    """A sum of many numbers, with the rounding of each addition added back (Neumaier 1974)."""

    high: float = 0.0
    low: float = 0.0

    def add(self, value: float) -> None:
        """Add a number."""
        total = self.high + value
        if abs(self.high) >= abs(value):
            self.low += (self.high - total) + value
        else:
            self.low += (value - total) + self.high
        self.high = total

    @property
    def value(self) -> float:
        """The sum."""
        return self.high + self.low


@dataclass
class _Waiting:
    """Rounds on common points whose transforms have not been multiplied yet."""

    pattern: Indices
    base: Indices
    weights: Array
    counts: Array


@dataclass
class _Sums:
    """What the composition needs of all rounds but their transforms."""

    offset: Total = field(default_factory=Total)
    log_scale: Total = field(default_factory=Total)
    lowest: float = 0.0
    highest: float = 0.0
    largest: float = 0.0
    infinite: float = 0.0
    rounds: float = 0.0
    rises: Array = field(default_factory=lambda: np.zeros(len(_EXPONENTS)))


class Running:
    """Bounds on delta of a growing number of rounds, for one tilt and one lattice step.

    Every answer is a bound, whatever the plan; the plan decides how close it is.

    Args:
        reading: tilt, step and tails, planned for all rounds that are to be added.
        room: how much longer the circle is to be than the first rounds need.
    """

    def __init__(self, reading: Reading, room: float = 1.0) -> None:
        self.reading = reading
        self._room = room
        self._exponents = _EXPONENTS * 2 * _QUIET / max(self.reach, 1e-150)
        self._sums = _Sums()
        self._waiting: list[_Waiting] = []
        self._spectrum: Spectrum | None = None
        self._last: tuple[AnyPair, Lattice] | None = None

    def fill(self, side: Side) -> None:
        """Add the rounds of a side; the lattice of a pair that comes again is made once."""
        plan = self.reading
        if len(side.pairs) > 1:
            for part in side.parts(plan.step, plan.tail, plan.spacing):
                self.add(part)
            return
        pair, count = side.pairs[0]
        if self._last is None or self._last[0] != pair:
            self._last = pair, side.parts(plan.step, plan.tail, plan.spacing)[0][0]
        self.add((self._last[1], np.array([float(count)])))

    def add(self, part: Part) -> None:
        """Add rounds, as lattices of this step."""
        one, counts = part
        sums, tilt = self._sums, self.reading.tilt
        weights, top = tilted_masses(one, tilt)
        losses = one.losses
        largest = np.abs(losses).max(axis=1)
        sums.offset.add(math.fsum(counts * one.offset))
        sums.log_scale.add(math.fsum(counts * top[:, 0]))
        sums.lowest += float(counts @ losses[:, 0])
        sums.highest += float(counts @ losses[:, -1])
        sums.largest += float(counts @ largest)
        sums.infinite += float(counts @ (one.infinite + one.slack))
        sums.rounds += float(counts.sum())
        sums.rises += self._rises(one, counts, weights)
        base = one.index[:, 0].copy()
        patterns = one.index - base[:, None]
        if (patterns == patterns[0]).all():
            self._waiting.append(_Waiting(patterns[0].copy(), base, weights, counts))
        else:
            self._waiting += [
                _Waiting(patterns[row].copy(), base[row : row + 1], weights[[row]], counts[[row]])
                for row in range(len(counts))
            ]

    def _rises(self, one: Lattice, counts: Array, weights: Array) -> Array:
        """``sum_i n_i log E exp(u loss_i)`` under the tilted rounds, at each exponent u."""
        first = one.losses[:, 0]
        apart = one.step * (one.index[0] - one.index[0, 0])
        if (one.index - one.index[:, :1] == one.index[0] - one.index[0, 0]).all():
            exponent = np.outer(apart, self._exponents)
            top = exponent.max(axis=0)
            sums = weights @ np.exp(exponent - top)
            if sums.min() > _LEAST_SUM:
                found: Array = counts @ (np.log(sums) + top + np.outer(first, self._exponents))
                return found
        tilted = Lattice(one.step, one.offset, one.index, weights, one.infinite, one.slack)
        return cumulants([(tilted, counts)], self._exponents)

    @property
    def reach(self) -> float:
        """Where a Gaussian loss of the planned spread would fade, from its mean."""
        return math.sqrt(2 * _QUIET) * self.reading.spread

    @property
    def width(self) -> float:
        """Width of the window in which the loss lies."""
        bottom, top, _ = self._window()
        return top - bottom

    def composed(self) -> Composed | None:
        """Bounds on delta of all rounds so far; None when the window does not fit."""
        sums, step, tilt = self._sums, self.reading.step, self.reading.tilt
        if not sums.rounds:
            return None
        bottom, top, missed = self._window()
        wanted = int((top - bottom) / step) + 4
        if self._spectrum is None:
            if wanted > MOST_POINTS:
                return None
            size = min(int(wanted * self._room), MOST_POINTS)
            self._spectrum = Spectrum(next_fast_len(size))
        points = self._spectrum.points
        if wanted > points:
            return None
        for one in self._waiting:
            self._spectrum.multiply(one.pattern, one.base, one.weights, one.counts)
        self._waiting = []
        offset, log_scale = sums.offset.value, sums.log_scale.value
        start = math.floor((bottom - offset) / step)
        masses, error = self._spectrum.inverse()
        drift = (tilt * sums.largest + 8.0 * sums.rounds) * UNIT * _MARGIN
        return untilted(
            Tilted(np.roll(masses, -start % points), error, tilt, log_scale, drift, step),
            offset + step * np.arange(start, start + points, dtype=np.float64),
            aliased=2 * ALIASED * _MARGIN,
            outside=(missed + sums.infinite) * _MARGIN,
            blur=8 * UNIT * sums.largest * _MARGIN,
        )

    def _window(self) -> tuple[float, float, float]:
        """Losses outside of which at most ``ALIASED`` is left on each side, and the mass above.

        The best of Chernoff's bounds over the exponents, as in ``convolution``.
        """
        sums, step, tilt = self._sums, self.reading.step, self.reading.tilt
        limits = (sums.rises + _QUIET) / self._exponents
        top = float(limits[: len(_PULLS)].min())
        bottom = max(float(limits[len(_PULLS) :].max()), sums.lowest)
        if top >= sums.highest:
            return bottom, max(sums.highest, bottom) + 2 * step, 0.0
        missed = math.exp(min(0.0, sums.log_scale.value - _QUIET - tilt * top))
        return bottom, max(top, bottom + 2 * step), missed
