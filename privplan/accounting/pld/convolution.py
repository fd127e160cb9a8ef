"""Composition of one-round lattices: tilted convolution by FFT, with error bounds.

The masses of a lattice are multiplied by ``exp(tilt * loss)`` before the transform and
divided by it afterwards. At the tilt where Chernoff's bound on delta is tightest the
masses that decide delta are of order one in the transform, so that rounding stays small
beside a delta of 1e-15 and a window of a few standard deviations suffices. Every
rounding error is bounded and added.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.pld.lattice import Lattice
from privplan.accounting.pld.pairs import UNIT, Array

Placed = tuple[NDArray[np.int64], Array, float]
"""Places modulo the number of points, masses that sum to one, how often to convolve."""

Part = tuple[Lattice, NDArray[np.float64]]
"""Lattices of a kind, how often each is composed."""

FFT_UNITS = 6.0  # the constant of an FFT's rounding error, in units per stage
FADED = -80.0  # log of what a product of transforms must exceed to be kept
MOST_POINTS = 1 << 21  # longest circle, 16 MB for each of its arrays
ALIASED = 1e-12  # tilted mass that may lie outside the window on either side

# Expected draws away from place 0, up to which these are transformed alone.
_MAX_MOVES = 30.0
# Largest exponent of a weight, so that sums of weighted masses stay finite.
_LARGEST_WEIGHT = 300.0
# Log of how far the bound on delta at the chosen tilt may be above the best one.
_FORGONE = 4.0
# Exponentials that stay in the processor's cache, for a block of tilts.
_CACHED_VALUES = 1 << 15
# Shares of a window's exponent that are tried for heavy tails.
_GENTLE_SHARES = 2.0 ** -np.arange(2.0, 11.0)
# Multiples of the usual exponent of a window's end: a small one, which tells the mean,
# and two that are tried.
_PULLS = np.array([0.1, 0.7, 1.0])
# A tail is heavy where the window reaches beyond this many times the usual distance.
_HEAVY = 3
# Losses whose discount factors e^-loss are held at a time: e^-400 does not underflow.
_DISCOUNTED_LOSSES = 400.0


def convolved(rounds: Iterable[Placed], points: int) -> tuple[Array, float]:
    """Circular convolution of all the rounds, and a bound on the 2-norm of its error.

    Each output of a transform of N points is a sum through ``log2 N`` stages, so its
    error is at most ``e = c u log2 N`` times the sum of the absolute inputs, which is 1
    (Higham 2002, chapter 24; ``c`` is ``2 FFT_UNITS``, ``u`` the unit of rounding).
    Replacing factors one by one, a product of powers ``prod s_i^n_i`` is off by at most
    ``sum_i n_i e / m_i`` times ``prod m_i^n_i`` with ``m_i = max(|s_i|, e) + e``; so it
    is for the rounding of logarithms and angles, which the constant includes.
    Frequencies whose product is below ``e^-80`` are dropped. Parseval turns the errors
    into one of the masses.
    """
    product = _Product(points)
    for places, masses, count in rounds:
        circle = np.asarray(np.bincount(places, masses, points), dtype=np.float64)
        product.multiply(circle, count)
    return product.transformed()


class _Product:
    """Powers of transforms, multiplied, with a bound on the error of each frequency.

    Attributes:
        alive: the frequencies that have not faded.
        log_size: log of the product's absolute value, or more, at each of these.
        angle: what the product is still to be turned by.
        doubt: sum of the relative errors of the factors.
        values: the product, but for its angle.
    """

    def __init__(self, points: int) -> None:
        self._points = points
        self._unit = 2 * FFT_UNITS * UNIT * math.log2(points)
        frequencies = points // 2 + 1
        self.alive = np.arange(frequencies)
        self.log_size = np.zeros(frequencies)
        self.angle = np.zeros(frequencies)
        self.doubt = np.zeros(frequencies)
        self.values = np.ones(frequencies, dtype=np.complex128)

    def multiply(self, masses: Array, count: float) -> None:
        """Multiply by the power ``count`` of the transform of a circle of masses."""
        spectrum = np.fft.rfft(masses)[self.alive]
        squares = spectrum.real**2 + spectrum.imag**2
        unit = self._unit
        self.log_size += 0.5 * count * np.log(np.maximum(squares, unit**2))

        # Drop what has faded: later rounds need not be computed there.
        lasting = self.log_size > FADED
        if not lasting.all():
            self.alive = self.alive[lasting]
            self.log_size = self.log_size[lasting]
            self.angle = self.angle[lasting]
            self.doubt = self.doubt[lasting]
            self.values = self.values[lasting]
            spectrum = spectrum[lasting]
            squares = squares[lasting]

        # Small powers are products; others multiply the angle and the logarithm.
        if count == 1:
            self.values *= spectrum
        elif count <= 2:
            self.values *= spectrum * spectrum
        else:
            self.angle += count * np.angle(spectrum)
            self.values *= np.exp(0.5 * count * np.log(squares))
        self.doubt += count * unit / (np.sqrt(squares) + unit)

    def transformed(self) -> tuple[Array, float]:
        """The masses of the product, and a bound on the 2-norm of their error."""
        power = np.zeros(self._points // 2 + 1, dtype=np.complex128)
        turn = np.cos(self.angle) + 1j * np.sin(self.angle)
        power[self.alive] = self.values * turn
        masses = np.fft.irfft(power, self._points)

        # e^(2 doubt) turns |s_i| into m_i. All but two frequencies count twice, which
        # is the factor of 2; then come the error of the transform back, and the
        # frequencies that were dropped.
        errors = self.doubt * np.exp(np.minimum(self.log_size, 0.0) + 2 * self.doubt)
        norm = math.sqrt(2 * float((errors**2).sum()) / self._points)
        norm += self._unit * float(np.linalg.norm(masses)) + 2 * math.exp(FADED)
        return masses, norm


def powered(law: Placed, points: int) -> tuple[Array, float]:
    """As ``convolved`` for one law, whose first place is 0; closer where few leave it.

    The rounding of the mass that stays at 0 would hide the others, so that only these
    are transformed: with ``r`` their transform over the mass ``m`` that stays, the n-th
    power is ``m^n (1 + ((1 + r)^n - 1))``.
    """
    places, masses, count = law
    stays = float(masses[0])
    moves = count * float(masses[1:].sum())
    if moves > _MAX_MOVES or stays < 0.5:
        return convolved([law], points)
    ratio = np.fft.rfft(np.bincount(places[1:], masses[1:], points)) / stays

    # log(1 + x + i y); numpy's complex log1p loses digits.
    x = ratio.real
    y = ratio.imag
    log_size = count * np.log1p(2 * x + x * x + y * y) / 2
    power = np.expm1(log_size + 1j * count * np.arctan2(y, 1 + x))
    total = np.fft.irfft(power, points)
    total[0] += 1
    error = moves * (2 * FFT_UNITS * math.log2(points) + 16) * UNIT
    return stays**count * total, error


def _fast_lengths() -> Iterator[int]:
    """Products of powers of 2, 3 and 5, among them all up to 2^25."""
    for twos in range(26):
        for threes in range(17):
            for fives in range(12):
                yield 2**twos * 3**threes * 5**fives


_FAST_LENGTHS: list[int] = sorted(_fast_lengths())


def fast_length(size: int) -> int:
    """The smallest product of powers of 2, 3 and 5 that is at least ``size``.

    For sizes up to 2^25. As SciPy's ``next_fast_len``, whose import takes longer than a
    plan's transforms.
    """
    return _FAST_LENGTHS[bisect_left(_FAST_LENGTHS, size)]


def cumulant(parts: Sequence[Part], tilt: float) -> float:
    """``sum_i n_i log E exp(tilt * loss_i)`` over the finite losses."""
    return float(cumulants(parts, np.array([tilt]))[0])


def cumulants(parts: Sequence[Part], tilts: Array) -> Array:
    """The cumulant at each tilt, shape (tilts,)."""
    total = np.zeros(len(tilts))
    for lattices, counts in parts:
        losses = lattices.losses
        occupied = lattices.masses > 0
        has_gaps = not occupied.all()

        # The largest exponent is at the first or at the last loss that has mass.
        lowest = losses[:, 0]
        highest = losses[:, -1]
        if has_gaps:
            lowest = np.where(occupied, losses, np.inf).min(axis=1)
            highest = np.where(occupied, losses, -np.inf).max(axis=1)

        block = max(1, _CACHED_VALUES // losses.size)
        for first in range(0, len(tilts), block):
            column = tilts[first : first + block, None]
            top = np.maximum(column * lowest, column * highest)
            exponent = column[:, :, None] * losses - top[:, :, None]
            if has_gaps:
                exponent = np.where(occupied, exponent, -np.inf)
            sums = np.einsum("trp,rp->tr", np.exp(exponent), lattices.masses)
            total[first : first + block] += (top + np.log(sums)) @ counts
    return total


@lru_cache(maxsize=2)
def tilted_masses(lattices: Lattice, tilt: float) -> tuple[Array, Array]:
    """Tilted masses that sum to one, and the log of their factor, shape (rows, 1).

    Both are shared between callers, not to be changed.
    """
    exponent = np.where(lattices.masses > 0, tilt * lattices.losses, -np.inf)
    top = exponent.max(axis=1, keepdims=True)
    weighted = lattices.masses * np.exp(exponent - top)
    total = weighted.sum(axis=1, keepdims=True)
    weighted /= total
    return weighted, top + np.log(total)


def best_tilt(parts: Sequence[Part], log_inverse_delta: float) -> float:
    """A tilt near that of Chernoff's bound, a power of the square root of 2.

    It is the smallest tilt at which the bound on delta is at most ``e^_FORGONE`` times
    the best: the window then centres a little above that loss, and rare large losses,
    which a larger tilt would bring in, stay out.
    """
    octave = round(-math.log2(tilted_moments(parts, 0.0).spread))
    tilts = 2.0 ** np.arange(octave - 20, octave + 10.25, 0.5)

    # Chernoff: epsilon <= (K(tilt) + log(1 / delta)) / tilt, K the cumulant.
    moments = cumulants(parts, tilts)
    epsilons = (moments + log_inverse_delta) / tilts
    best = int(np.argmin(epsilons))

    # The bounds on log delta at that epsilon; from the best tilt down to where they
    # are no longer close.
    log_deltas = moments - tilts * epsilons[best]
    close = log_deltas[: best + 1] <= log_deltas[best] + _FORGONE
    if close.all():
        return float(tilts[0])
    return float(tilts[best - int(np.argmin(close[::-1])) + 1])


@dataclass(frozen=True)
class Moments:
    """Of the tilted loss, with one entry for each pair.

    Attributes:
        means: of one round, shape (pairs,).
        deviations: standard deviations of one round, shape (pairs,).
        counts: rounds of each pair, shape (pairs,).
    """

    means: Array
    deviations: Array
    counts: Array

    @property
    def spread(self) -> float:
        """Standard deviation of the composed loss."""
        return math.sqrt(max(float(self.counts @ self.deviations**2), 1e-300))


def tilted_moments(parts: Sequence[Part], tilt: float) -> Moments:
    """Means and standard deviations of the tilted loss of each pair."""
    means = []
    deviations = []
    for lattices, _ in parts:
        weights = tilted_masses(lattices, tilt)[0]
        mean = (weights * lattices.losses).sum(axis=1)
        squares = (lattices.losses - mean[:, None]) ** 2
        means.append(mean)
        deviations.append(np.sqrt((weights * squares).sum(axis=1)))
    counts = np.concatenate([counts for _, counts in parts])
    return Moments(np.concatenate(means), np.concatenate(deviations), counts)


@dataclass(frozen=True)
class Composed:
    """Delta as a function of epsilon on a window of equally spaced losses.

    Between two losses delta is linear in ``e^epsilon``, as for any distribution on
    them.

    Attributes:
        losses: ascending, shape (points,).
        values: delta at each loss, shape (points,).
        error: bound on the rounding and wrapping error of ``values``, shape (points,).
        outside: bound on what the window misses.
        blur: bound on the rounding of the losses themselves.
    """

    losses: Array
    values: Array
    error: Array
    outside: float
    blur: float

    def deltas(self, sign: int) -> Array:
        """Delta at each loss: an upper bound (sign 1) or a lower bound (sign -1)."""
        bounds: Array = self.values + sign * (self.error + self.outside)
        return bounds

    def epsilon_upper(self, delta: float) -> float:
        """An epsilon that suffices for ``delta``; inf when the window shows none."""
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
        """The epsilon in the cell that ends at ``first`` where delta passes ``goal``.

        Delta is linear in ``e^epsilon`` there: with the cell's width w, a share s of
        its rise is reached ``log(1 + s (e^-w - 1))`` above the upper end.
        """
        low = float(self.losses[first - 1])
        high = float(self.losses[first])
        rise = float(self.values[first - 1] - self.values[first])
        share = 0.0
        if rise > 0:
            share = (goal - float(self.values[first])) / rise
        if share <= 0:
            return high
        if not share < 1:
            return low
        epsilon = high + math.log1p(share * math.expm1(low - high))
        return min(high, max(low, epsilon))

    def delta(self, epsilon: float, sign: int) -> float:
        """Delta at one epsilon: an upper bound (sign 1) or a lower bound (sign -1)."""
        epsilon -= sign * self.blur
        first = int(np.searchsorted(self.losses, epsilon, side="right"))

        # Below the window delta is at least what it is at the first loss.
        if first == 0:
            if sign > 0:
                return 1.0
            return max(0.0, float(self.values[0] - self.error[0]) - self.outside)

        # Above it there is only what the window misses.
        doubt = sign * (float(self.error[first - 1]) + self.outside)
        if first == len(self.losses):
            return min(1.0, max(0.0, doubt))

        low = float(self.losses[first - 1])
        high = float(self.losses[first])
        share = math.expm1(epsilon - high) / math.expm1(low - high)
        rise = float(self.values[first - 1] - self.values[first])
        delta = float(self.values[first]) + share * rise + doubt
        return min(1.0, max(0.0, delta))


def suffix_deltas(masses: Array, step: float) -> Array:
    """Delta at each loss of a distribution on losses one ``step`` apart.

    ``sum_j>k m_j (1 - e^-(j-k)step)`` is ``1 - e^-step`` times the sum of the tails
    beyond k, discounted by ``e^-step`` for each further loss: sums of positive terms
    only.
    """
    tails = np.cumsum(masses[::-1])[::-1]
    discounted = np.empty_like(masses)

    # From the last block down, since each adds what lies after it.
    block = max(1, int(_DISCOUNTED_LOSSES / step))
    after = 0.0
    for stop in range(len(masses), 0, -block):
        start = max(0, stop - block)
        decay = np.exp(-step * np.arange(stop - start))
        sums = np.cumsum((tails[start:stop] * decay)[::-1])[::-1] / decay
        if after:
            sums = sums + after * math.exp(-step) * decay[::-1]
        discounted[start:stop] = sums
        after = float(discounted[start])

    values = np.zeros_like(masses)
    values[:-1] = -math.expm1(-step) * discounted[1:]
    return values


def compose_at(parts: Sequence[Part], tilt: float) -> Composed | None:
    """Compose the lattices at one tilt; None when the window would be too large.

    The errors that ``Composed`` carries:

    - ``outside``: mass above the window, infinite losses, and what lower bounds take
      off.
    - ``error``: what wraps around the window, tilted mass of at most twice ``ALIASED``;
      the rounding of the transforms, by the bound of ``convolved``; and that of the
      tilts, of sums and of weights, relative to delta.
    - ``blur``: the rounding of the losses.
    """
    step = parts[0][0].step
    window = _window(parts, tilt, 2 * step)
    needed_points = (window.top - window.bottom) / step + 3
    if needed_points > MOST_POINTS:
        return None
    points = fast_length(int(needed_points))

    # The circle starts at the lowest loss of the window.
    sums = _sums(parts, tilt)
    start = math.floor((window.bottom - sums.offset) / step)
    losses = sums.offset + step * np.arange(start, start + points, dtype=np.float64)
    circle, error = convolved(_placed(parts, tilt, points), points)
    masses = np.roll(circle, -(start % points))

    # Untilt. Where the weight would overflow nothing is known: the error is infinite.
    # The first exponent is the largest.
    exponent = sums.log_scale - tilt * losses
    overflows = exponent[0] > _LARGEST_WEIGHT
    weights = np.exp(np.minimum(exponent, _LARGEST_WEIGHT) if overflows else exponent)
    values = suffix_deltas(masses * weights, step)
    rounding = _weighted_error(error, tilt, step) * weights
    rounding += (sums.drift + 4 * points * UNIT) * np.abs(values)
    if overflows:
        rounding[exponent > _LARGEST_WEIGHT] = math.inf
    return Composed(losses, values, rounding, window.missed + sums.infinite, sums.blur)


class _Sums(NamedTuple):
    """Sums over all rounds.

    Attributes:
        offset: loss of index 0.
        infinite: mass of infinite losses, and what lower bounds take off delta.
        blur: rounding of the losses, eight units of the largest of each round.
        log_scale: log of the factor of the tilted masses.
        drift: relative error of the tilts: a factor ``e^(tilt loss)`` is off by as many
            units as its exponent, and by eight for the sums and logarithms of its row.
    """

    offset: float
    infinite: float
    blur: float
    log_scale: float
    drift: float


def _sums(parts: Sequence[Part], tilt: float) -> _Sums:
    offset = sum(float(counts @ lattices.offset) for lattices, counts in parts)
    infinite = sum(
        float(counts @ (lattices.infinite + lattices.slack))
        for lattices, counts in parts
    )
    largest = sum(float(counts @ _largest(lattices)) for lattices, counts in parts)
    log_scale = 0.0
    drift = 0.0
    for lattices, counts in parts:
        log_scale += float(counts @ tilted_masses(lattices, tilt)[1][:, 0])
        drift += float(counts @ (tilt * _largest(lattices) + 8.0)) * UNIT
    return _Sums(offset, infinite, 8 * UNIT * largest, log_scale, drift)


def _placed(parts: Sequence[Part], tilt: float, points: int) -> Iterator[Placed]:
    """The tilted masses of each row, on a circle of ``points``."""
    for lattices, counts in parts:
        weights = tilted_masses(lattices, tilt)[0]
        for row, count in enumerate(counts):
            yield lattices.index[row] % points, weights[row], float(count)


def _weighted_error(error: float, tilt: float, step: float) -> float:
    """What the errors of the tilted masses add to delta, before it is untilted.

    The rounding error of 2-norm ``error`` is multiplied, at a distance x above a loss,
    by ``e^(-tilt x) (1 - e^-x)``, which is at most ``e^(-tilt x) min(1, x)``. By Cauchy
    and Schwarz that adds ``error`` times the 2-norm of these weights at most: with
    ``r = e^(-2 tilt step)`` the sum of ``r^k`` is ``1 / (1 - r)``, and that of
    ``k^2 r^k`` is ``r (1 + r) / (1 - r)^3``.

    Mass that wraps around is multiplied by their maximum, ``1 / (e tilt)`` or 1.
    """
    decay = math.exp(-2 * tilt * step)
    gap = -math.expm1(-2 * tilt * step)
    norm_of_ones = 1 / math.sqrt(gap)
    norm_of_losses = step * math.sqrt(decay * (1 + decay) / gap) / gap
    wrapped = 2 * ALIASED * min(1.0, 1 / (math.e * tilt))
    return error * min(norm_of_ones, norm_of_losses) + wrapped


class _Window(NamedTuple):
    """The losses that a composition keeps, and the mass above them, at most."""

    bottom: float
    top: float
    missed: float


def _window(parts: Sequence[Part], tilt: float, least_width: float) -> _Window:
    """Ends of the losses by the best of a few Chernoff bounds."""
    quiet = -math.log(ALIASED)
    lowest = sum(float(counts @ lattices.losses[:, 0]) for lattices, counts in parts)
    highest = sum(float(counts @ lattices.losses[:, -1]) for lattices, counts in parts)

    # The tilted loss is nearly normal: its ends are sqrt(2 quiet) deviations out, where
    # the best exponent is sqrt(2 quiet) over the deviation.
    pull = math.sqrt(2 * quiet) / tilted_moments(parts, tilt).spread
    up = pull * _PULLS
    values = cumulants(parts, tilt + np.concatenate([[0.0], up, -up]))
    base = float(values[0])
    rises_up = values[1 : 1 + len(up)] - base
    rises_down = values[1 + len(up) :] - base
    top = _chernoff_end(parts, tilt, base, rises_up, up)
    bottom = _chernoff_end(parts, tilt, base, rises_down, -up)

    # Tilted mass m above the top stands for e^(K(tilt) - tilt top) m, or less.
    if top >= highest:
        return _Window(max(bottom, lowest), highest + least_width, 0.0)
    missed = math.exp(min(0.0, base - quiet - tilt * top))
    return _Window(max(bottom, lowest), max(top, bottom + least_width), missed)


def _chernoff_end(
    parts: Sequence[Part], tilt: float, base: float, rises: Array, pulls: Array
) -> float:
    """The loss beyond which the tilted mass is ``ALIASED`` or less.

    Beyond a loss x, on the side of the sign of p, it is at most
    ``exp(K(tilt + p) - K(tilt) - p x)``, with K the cumulant.

    Args:
        parts: what is composed.
        tilt: of the composition.
        base: ``K(tilt)``.
        rises: ``K(tilt + p) - K(tilt)`` for each of the ``pulls``.
        pulls: exponents p of one sign; the first, a small one, tells the mean.
    """
    quiet = -math.log(ALIASED)
    sign = 1.0 if pulls[0] > 0 else -1.0
    mean = float(rises[0] / pulls[0])
    ends = (rises[1:] + quiet) / pulls[1:]
    distance = float((sign * ends).min())

    # A heavy tail: try exponents nearer to 0.
    if distance - sign * mean > _HEAVY * quiet / abs(float(pulls[-1])):
        gentle = pulls[-1] * _GENTLE_SHARES
        ends = (cumulants(parts, tilt + gentle) - base + quiet) / gentle
        distance = min(distance, float((sign * ends).min()))
    return sign * distance


def _largest(lattices: Lattice) -> Array:
    """Largest absolute loss of each row, shape (rows,)."""
    return np.maximum(np.abs(lattices.losses[:, 0]), np.abs(lattices.losses[:, -1]))
