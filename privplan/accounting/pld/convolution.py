"""Composition of one-round lattices: exponentially tilted convolution by FFT, with error bounds.

The masses of a lattice are multiplied by ``exp(tilt * loss)`` before the transform and divided
by it afterwards. At the tilt where Chernoff's bound on delta is tightest the masses that decide
delta are of order one in the transform, so that rounding stays small beside a delta of 1e-15
and a window of a few standard deviations suffices. Every rounding error is bounded and added.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.pld.lattice import Lattice
from privplan.accounting.pld.pairs import UNIT, Array

Placed = tuple[NDArray[np.int64], Array, float]
"""Places modulo the number of points, masses that sum to one, and how often to convolve."""

FFT_UNITS = 6.0  # the constant of an FFT's rounding error, in units per stage
_FEW = 30.0  # draws away from place 0, below which these are transformed alone
FADED = -80.0  # log of what a product of transforms must exceed to be kept


def convolved(rounds: Iterable[Placed], points: int) -> tuple[Array, float]:
    """Circular convolution of all the rounds, and a bound on the 2-norm of its error.

    Each output of a transform of N points is a sum through ``log2 N`` stages, so its error is at
    most ``e = c u log2 N`` times the sum of the absolute inputs, which is 1 (Higham 2002, chapter
    24). Replacing factors one by one, a product of powers ``prod s_i^n_i`` is off by at most
    ``sum_i n_i e / m_i`` times ``prod m_i^n_i`` with ``m_i = max(|s_i|, e) + e``; so it is for
    the rounding of logarithms and angles, which the constant includes. Frequencies whose
    product is below ``e^-80`` are dropped. Parseval turns the errors into one of the masses.
    """
    every = points // 2 + 1
    alive = np.arange(every)
    size, angle, doubt = np.zeros(every), np.zeros(every), np.zeros(every)
    product = np.ones(every, dtype=np.complex128)
    unit = 2 * FFT_UNITS * UNIT * math.log2(points)
    for places, masses, count in rounds:
        spectrum = np.fft.rfft(np.bincount(places, masses, points))[alive]
        squares = spectrum.real**2 + spectrum.imag**2
        size += 0.5 * count * np.log(np.maximum(squares, unit**2))
        left = size > FADED
        if not left.all():
            alive, size, angle, doubt = (
                alive[left],
                size[left],
                angle[left],
                doubt[left],
            )
            product, spectrum, squares = product[left], spectrum[left], squares[left]
        if count <= 2:
            product *= spectrum if count == 1 else spectrum * spectrum
        else:
            angle += count * np.angle(spectrum)
            product *= np.exp(0.5 * count * np.log(squares))
        doubt += count * unit / (np.sqrt(squares) + unit)
    power = np.zeros(every, dtype=np.complex128)
    power[alive] = product * (np.cos(angle) + 1j * np.sin(angle))
    errors = doubt * np.exp(np.minimum(size, 0.0) + 2 * doubt)
    total = np.fft.irfft(power, points)
    norm = math.sqrt(2 * float((errors**2).sum()) / points)
    norm += unit * float(np.linalg.norm(total)) + 2 * math.exp(FADED)
    return total, norm


def powered(one: Placed, points: int) -> tuple[Array, float]:
    """As ``convolved`` for one law, whose first place is 0; closer where few draws leave it.

    The rounding of the mass that stays at 0 would hide the others, so that only these are
    transformed.
    """
    (places, masses, count), stays = one, float(one[1][0])
    moves = count * float(masses[1:].sum())
    if moves > _FEW or stays < 0.5:
        return convolved([one], points)
    spectrum = np.fft.rfft(np.bincount(places[1:], masses[1:], points)) / stays
    x, y = spectrum.real, spectrum.imag
    size = (
        count * np.log1p(2 * x + x * x + y * y) / 2
    )  # numpy's complex log1p loses digits
    total = np.fft.irfft(np.expm1(size + 1j * count * np.arctan2(y, 1 + x)), points)
    total[0] += 1
    return stays**count * total, moves * (2 * FFT_UNITS * math.log2(points) + 16) * UNIT


_FAST: list[int] = sorted(
    2**i * 3**j * 5**k for i in range(26) for j in range(17) for k in range(12)
)


def fast_length(size: int) -> int:
    """The smallest product of powers of 2, 3 and 5 that is at least ``size``, up to 2^25.

    As SciPy's ``next_fast_len``, whose import takes longer than a plan's transforms.
    """
    return _FAST[bisect_left(_FAST, size)]


Part = tuple[
    Lattice, NDArray[np.float64]
]  # lattices of a kind, how often each is composed

MOST_POINTS = 1 << 21  # longest circle, 16 MB for each of its arrays
ALIASED = 1e-12  # tilted mass that may lie outside the window on either side
_LARGEST_WEIGHT = (
    300.0  # largest exponent of a weight, so that sums of weighted masses stay finite
)
_FORGONE = (
    4.0  # log of how far the bound on delta at the chosen tilt may be above the best
)
_IN_MEMORY = 1 << 15
_GENTLE = 2.0 ** -np.arange(
    2.0, 11.0
)  # shares of a window's exponent tried for heavy tails


def cumulant(parts: Sequence[Part], tilt: float) -> float:
    """``sum_i n_i log E exp(tilt * loss_i)`` over the finite losses."""
    return float(cumulants(parts, np.array([tilt]))[0])


def cumulants(parts: Sequence[Part], tilts: Array) -> Array:
    """The cumulant at each tilt, shape (tilts,)."""
    total = np.zeros(len(tilts))
    for one, counts in parts:
        losses, masses = one.losses, one.masses
        found = masses > 0
        gaps = not found.all()
        ends = losses[:, [0, -1]].T
        if gaps:
            lowest = np.where(found, losses, np.inf).min(axis=1)
            ends = np.stack([lowest, np.where(found, losses, -np.inf).max(axis=1)])
        block = max(1, _IN_MEMORY // masses.size)
        for first in range(0, len(tilts), block):
            some = tilts[first : first + block, None]
            top = np.maximum(some * ends[0], some * ends[1])
            exponent = some[:, :, None] * losses - top[:, :, None]
            tilted = np.exp(np.where(found, exponent, -np.inf) if gaps else exponent)
            sums = np.einsum("trp,rp->tr", tilted, masses)
            total[first : first + block] += (top + np.log(sums)) @ counts
    return total


@lru_cache(maxsize=2)
def tilted_masses(one: Lattice, tilt: float) -> tuple[Array, Array]:
    """Tilted masses that sum to one, and the log of their factor; shared, not to be changed."""
    exponent = np.where(one.masses > 0, tilt * one.losses, -np.inf)
    top = exponent.max(axis=1, keepdims=True)
    weighted = one.masses * np.exp(exponent - top)
    total = weighted.sum(axis=1, keepdims=True)
    weighted /= total
    return weighted, top + np.log(total)


def best_tilt(parts: Sequence[Part], goal: float) -> float:
    """A tilt near that of Chernoff's bound, a power of the square root of 2.

    The goal is ``log(1 / delta)``. The smallest tilt at which the bound on delta is at most
    ``e^_FORGONE`` times the best: the window then centres a little above that loss, and rare large
    losses, which a larger tilt would bring in, stay out.
    """
    octave = round(-math.log2(tilted_moments(parts, 0.0).spread))
    tilts = 2.0 ** np.arange(octave - 20, octave + 10.25, 0.5)
    moments = cumulants(parts, tilts)
    values = (moments + goal) / tilts
    best = int(np.argmin(values))
    bounds = moments - tilts * values[best]
    close = bounds[: best + 1] <= bounds[best] + _FORGONE
    return float(
        tilts[best - int(np.argmin(close[::-1])) + 1] if not close.all() else tilts[0]
    )


@dataclass(frozen=True)
class Moments:
    """Of the tilted loss: one mean and standard deviation per pair, and the sum's deviation."""

    means: Array
    deviations: Array
    counts: Array

    @property
    def spread(self) -> float:
        """Standard deviation of the composed loss."""
        return math.sqrt(max(float(self.counts @ self.deviations**2), 1e-300))


def tilted_moments(parts: Sequence[Part], tilt: float) -> Moments:
    """Means and standard deviations of the tilted loss of each pair."""
    means, deviations = [], []
    for one, _ in parts:
        losses, weights = one.losses, tilted_masses(one, tilt)[0]
        mean = (weights * losses).sum(axis=1)
        deviations.append(
            np.sqrt((weights * (losses - mean[:, None]) ** 2).sum(axis=1))
        )
        means.append(mean)
    counts = np.concatenate([counts for _, counts in parts])
    return Moments(np.concatenate(means), np.concatenate(deviations), counts)


_BLOCK = 400.0


@dataclass(frozen=True)
class Composed:
    """Delta as a function of epsilon on a window of equally spaced losses.

    Between two losses delta is linear in ``e^epsilon``, as for any distribution on them.
    """

    losses: Array  # shape (points,), ascending
    values: Array  # delta at each loss, shape (points,)
    error: (
        Array  # bound on the rounding and wrapping error of ``values``, shape (points,)
    )
    outside: float  # bound on what the window misses
    blur: float  # bound on the rounding of the losses themselves

    def deltas(self, sign: int) -> Array:
        """Delta at each loss: an upper bound (sign 1) or a lower bound (sign -1)."""
        found: Array = self.values + sign * (self.error + self.outside)
        return found

    def epsilon_upper(self, delta: float) -> float:
        """An epsilon that suffices for ``delta``; inf when the window cannot show one."""
        enough = self.deltas(1) <= delta
        first = int(enough.argmax())
        if not enough[first]:
            return math.inf
        if first == 0:
            return max(0.0, float(self.losses[0]) + self.blur)
        goal = delta - float(self.error[first - 1]) - self.outside
        return max(0.0, self._within(first, goal) + self.blur)

    def epsilon_lower(self, delta: float) -> float:
        """An epsilon that does not suffice for ``delta``, or 0."""
        short = np.flatnonzero(self.deltas(-1) > delta)
        if not len(short) or short[-1] + 1 >= len(self.losses):
            return 0.0
        first = int(short[-1]) + 1
        goal = delta + float(self.error[first - 1]) + self.outside
        return max(0.0, self._within(first, goal) - self.blur)

    def _within(self, first: int, goal: float) -> float:
        """The epsilon of the cell that ends at ``first`` where ``values`` passes ``goal``."""
        low, high = float(self.losses[first - 1]), float(self.losses[first])
        rise = float(self.values[first - 1] - self.values[first])
        share = (goal - float(self.values[first])) / rise if rise > 0 else 0.0
        if not 0 < share < 1:
            return high if share <= 0 else low
        return min(high, max(low, high + math.log1p(share * math.expm1(low - high))))

    def delta(self, epsilon: float, sign: int) -> float:
        """Delta at one epsilon: an upper bound (sign 1) or a lower bound (sign -1)."""
        epsilon -= sign * self.blur
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        if first == 0:  # at least what it is at the first loss, where that is known
            known = float(self.values[0] - self.error[0]) - self.outside
            return 1.0 if sign > 0 else max(0.0, known)
        doubt = sign * (float(self.error[first - 1]) + self.outside)
        if first == len(self.losses):
            return min(1.0, max(0.0, doubt))
        low, high = float(self.losses[first - 1]), float(self.losses[first])
        share = math.expm1(epsilon - high) / math.expm1(low - high)
        rise = float(self.values[first - 1] - self.values[first])
        return min(1.0, max(0.0, float(self.values[first]) + share * rise + doubt))


def suffix_deltas(masses: Array, step: float) -> Array:
    """Delta at each loss of a distribution on losses one ``step`` apart.

    ``sum_j>k m_j (1 - e^-(j-k)step)`` is ``1 - e^-step`` times the sum of the tails beyond k,
    discounted by ``e^-step`` for each further loss: sums of positive terms only.
    """
    tails = np.cumsum(masses[::-1])[::-1]
    block = max(1, int(_BLOCK / step))
    found = np.empty_like(masses)
    after = 0.0
    for stop in range(len(masses), 0, -block):
        start = max(0, stop - block)
        decay = np.exp(-step * np.arange(stop - start))
        own = np.cumsum((tails[start:stop] * decay)[::-1])[::-1] / decay
        found[start:stop] = (
            own + after * math.exp(-step) * decay[::-1] if after else own
        )
        after = float(found[start])
    values = np.zeros_like(masses)
    values[:-1] = -math.expm1(-step) * found[1:]
    return values


def compose_at(parts: Sequence[Part], tilt: float) -> Composed | None:
    """Compose the lattices at one tilt; None when the window would be too large.

    Mass above the window is missed, which is given back as ``outside``; the tilted mass that wraps
    around the window is at most twice ``ALIASED``.
    """
    step = parts[0][0].step
    bottom, top, missed = _window(parts, tilt, 2 * step)
    wanted = (top - bottom) / step + 3
    if wanted > MOST_POINTS:
        return None
    points = fast_length(int(wanted))
    offset = sum(float(counts @ one.offset) for one, counts in parts)
    start = math.floor((bottom - offset) / step)
    losses = offset + step * np.arange(start, start + points, dtype=np.float64)

    # What the tilted masses are to be multiplied with, and the relative error of the tilting.
    log_scale = drift = 0.0
    for one, counts in parts:
        log_scale += float(counts @ tilted_masses(one, tilt)[1][:, 0])
        drift += float(counts @ (tilt * _largest(one) + 8.0)) * UNIT
    circle, error = convolved(
        (
            (one.index[row] % points, tilted_masses(one, tilt)[0][row], float(count))
            for one, counts in parts
            for row, count in enumerate(counts)
        ),
        points,
    )
    turn = start % points
    masses = np.concatenate([circle[turn:], circle[:turn]])
    infinite = sum(float(counts @ (one.infinite + one.slack)) for one, counts in parts)
    blur = 8 * UNIT * sum(float(counts @ _largest(one)) for one, counts in parts)

    # Untilt. Where the weight would overflow nothing is known, and the error is infinite.
    exponent = log_scale - tilt * losses
    heavy = exponent[0] > _LARGEST_WEIGHT
    weights = np.exp(np.minimum(exponent, _LARGEST_WEIGHT) if heavy else exponent)
    values = suffix_deltas(masses * weights, step)

    # Cauchy-Schwarz turns the 2-norm of the rounding error into an error of delta, with the norm
    # of the weights e^(-tilt x) min(1, x) at distances x from each loss on.
    decay, gap = math.exp(-2 * tilt * step), -math.expm1(-2 * tilt * step)
    norm = min(1 / math.sqrt(gap), step * math.sqrt(decay * (1 + decay) / gap) / gap)
    rounding = (error * norm + 2 * ALIASED * min(1.0, 1 / (math.e * tilt))) * weights
    rounding += (drift + 4 * points * UNIT) * np.abs(values)
    if heavy:
        rounding[exponent > _LARGEST_WEIGHT] = math.inf
    return Composed(losses, values, rounding, missed + infinite, blur)


def _window(
    parts: Sequence[Part], tilt: float, scale: float
) -> tuple[float, float, float]:
    """Ends of the losses by the best of a few Chernoff bounds, and the mass above the top."""
    spread = tilted_moments(parts, tilt).spread
    quiet = -math.log(ALIASED)
    pull = math.sqrt(2 * quiet) / spread
    lowest = sum(float(counts @ one.losses[:, 0]) for one, counts in parts)
    highest = sum(float(counts @ one.losses[:, -1]) for one, counts in parts)
    usual = pull * np.array([0.0, 0.1, 0.7, 1.0, -0.1, -0.7, -1.0])
    known = cumulants(parts, tilt + usual)
    base = float(known[0])

    def needed(sign: int, start: int) -> float:
        """The loss on one side beyond which the tilted mass is ``ALIASED`` or less."""
        centre = float((known[start] - base) / usual[start])
        rises = (known[start + 1 : start + 3] - base + quiet) / usual[
            start + 1 : start + 3
        ]
        best = float((sign * rises).min())
        if (
            best - sign * centre > 3 * quiet / pull
        ):  # a heavy tail: try exponents nearer to 0
            gentle = sign * pull * _GENTLE
            rises = (cumulants(parts, tilt + gentle) - base + quiet) / gentle
            best = min(best, float((sign * rises).min()))
        return sign * best

    top, bottom = needed(1, 1), needed(-1, 4)
    if top >= highest:
        return max(bottom, lowest), highest + scale, 0.0
    missed = math.exp(min(0.0, base - quiet - tilt * top))
    return max(bottom, lowest), max(top, bottom + scale), missed


def _largest(one: Lattice) -> Array:
    """Largest absolute loss of each row, shape (rows,)."""
    return np.maximum(np.abs(one.losses[:, 0]), np.abs(one.losses[:, -1]))
