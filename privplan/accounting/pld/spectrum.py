"""The transform of a sum of rounds, kept only where it still matters; it grows round by round.

With many rounds the product of the transforms fades at all but the lowest frequencies, and what
has faded stays faded, since no factor exceeds 1. So the first rounds are transformed by FFT, and
the others are evaluated at the few frequencies that are left: a sum over the points of a round,
not over the points of the circle. 10,000 different rounds cost little more than their lattices.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.pld.convolution import FADED, FFT_UNITS
from privplan.accounting.pld.pairs import UNIT, Array

Complex = NDArray[np.complex128]
Indices = NDArray[np.int64]

_FEWER = 0.9
_PER_TERM = 80.0
_PER_POINT = 25.0
_LEAST_ROWS = 8
_IN_MEMORY = 1 << 18


class Spectrum:
    """The product of powers of transforms on a circle, with a bound on its error.

    Args:
        points: length of the circle, N.
    """

    def __init__(self, points: int) -> None:
        self.points = points
        frequencies = points // 2 + 1
        self._frequencies: Indices = np.arange(frequencies)
        self._product = np.ones(frequencies, dtype=np.complex128)
        self._size = np.zeros(frequencies)
        self._doubt = np.zeros(frequencies)

    def multiply(self, pattern: Indices, base: Indices, weights: Array, counts: Array) -> None:
        """Multiply with the transforms of rounds on common points.

        Args:
            pattern: places relative to the first, shape (points,).
            base: place of the first point of each round, shape (rows,).
            weights: masses that sum to one, shape (rows, points).
            counts: how often each round happens, shape (rows,).
        """
        places = np.arange(len(pattern)) * 1.0
        spread = weights @ places**2 - (weights @ places) ** 2
        order = np.argsort(-counts * spread, kind="stable")
        while len(order):
            batch = order[: max(_LEAST_ROWS, _IN_MEMORY // max(len(self._frequencies), 1))]
            if self._few(len(pattern), len(batch)):
                self._directly(pattern, base[batch], weights[batch], counts[batch])
                order = order[len(batch) :]
                continue
            row, order = order[0], order[1:]
            self._by_fft((base[row] + pattern) % self.points, weights[row], float(counts[row]))

    def _few(self, points: int, rows: int) -> bool:
        """Whether the sums at the frequencies that are left cost less than transforms."""
        sums = points * len(self._frequencies) * (_PER_TERM + rows)
        return sums < rows * self.points * (_PER_POINT + math.log2(self.points))

    def _by_fft(self, places: Indices, masses: Array, count: float) -> None:
        """One round by FFT; each output is within ``e = c u log2 N`` (see ``convolved``)."""
        found = np.fft.rfft(np.bincount(places, masses, self.points))[self._frequencies]
        unit = 2 * FFT_UNITS * UNIT * math.log2(self.points)
        self._absorb(found[None], np.array([count]), unit)

    def _directly(self, pattern: Indices, base: Indices, weights: Array, counts: Array) -> None:
        """Rounds on common points, at the frequencies that are left.

        A sum of P terms is within ``P u`` times the sum of their sizes, which is 1; the angles
        are reduced exactly before they are rounded, so cosines and sines are within ``15 u``.
        """
        turn = 2 * math.pi / self.points
        angle = turn * (np.outer(pattern, self._frequencies) % self.points)
        found = weights @ np.cos(angle) - 1j * (weights @ np.sin(angle))
        if base.any():
            moved = turn * (np.outer(base % self.points, self._frequencies) % self.points)
            found *= np.cos(moved) - 1j * np.sin(moved)
        self._absorb(found, counts, 2 * UNIT * (len(pattern) + 32))

    def _absorb(self, found: Complex, counts: Array, unit: float) -> None:
        """Multiply with powers of transforms, each within ``unit``, and drop what has faded.

        Replacing factors one by one, the product is off by at most ``sum_i n_i e / m_i`` times
        ``prod m_i^n_i`` (see ``convolved``). The angle of a power is reduced to one turn before
        it is added to others, so its rounding is within that of its transform.
        """
        squares = found.real**2 + found.imag**2
        logs = 0.5 * np.log(np.maximum(squares, unit**2))
        self._size += counts @ logs
        self._doubt += counts @ (unit / (np.sqrt(squares) + unit))
        few, many = counts <= 2, counts > 2
        if few.any():
            self._product *= np.prod(found[few], axis=0)
            self._product *= np.prod(found[counts == 2], axis=0)
        if many.any():
            often = counts[many]
            turns = np.remainder(often[:, None] * np.angle(found[many]), 2 * math.pi).sum(axis=0)
            power = np.exp(np.maximum(often @ logs[many], 2 * FADED))
            self._product *= power * (np.cos(turns) + 1j * np.sin(turns))
        nonzero = self._size > FADED
        if np.count_nonzero(nonzero) < _FEWER * len(nonzero):
            self._frequencies = self._frequencies[nonzero]
            self._product, self._size = self._product[nonzero], self._size[nonzero]
            self._doubt = self._doubt[nonzero]

    def inverse(self) -> tuple[Array, float]:
        """Masses on the circle, shape (points,), and a bound on the 2-norm of their error.

        Frequencies that have faded are below ``e^-80``. Parseval turns the errors of the others
        into one of the masses.
        """
        power = np.zeros(self.points // 2 + 1, dtype=np.complex128)
        power[self._frequencies] = self._product
        errors = self._doubt * np.exp(np.minimum(self._size, 0.0) + 2 * self._doubt)
        total = np.fft.irfft(power, self.points)
        norm = math.sqrt(2 * float((errors**2).sum()) / self.points) * (1 + 1e-6)
        norm += 2 * FFT_UNITS * UNIT * math.log2(self.points) * float(np.linalg.norm(total))
        return total, norm + 2 * math.exp(FADED)
