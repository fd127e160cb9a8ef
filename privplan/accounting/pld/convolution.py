"""Composition of one-round lattices: tilted convolution by FFT, with error bounds.

The masses of a lattice are multiplied by ``exp(tilt * loss)`` before the transform and
divided by it afterwards. At the tilt where Chernoff's bound on delta is tightest the
masses that decide delta are of order one in the transform, so that rounding stays small
beside a delta of 1e-15 and a window of a few standard deviations suffices. Every
error is bounded and added: see ``error_terms``.
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

from privplan.accounting.pld import error_terms
from privplan.accounting.pld.lattice import Lattice
from privplan.accounting.pld.pairs import Array

Placed = tuple[NDArray[np.int64], Array, float]
"""Places modulo the number of points, masses that sum to one, how often to convolve."""

Part = tuple[Lattice, NDArray[np.float64]]
"""Lattices of a kind, how often each is composed."""

MOST_POINTS = 1 << 21  # longest circle, 16 MB for each of its arrays

# Expected moves away from the places where rounds stay, up to which these are
# transformed alone: e^moves must not overflow.
_MAX_MOVES = 300.0
# Least mass that stays, so that what moves is a quarter of it at most.
_LEAST_STAYING = 0.8
# Largest exponent of a weight, so that sums of weighted masses stay finite.
_LARGEST_WEIGHT = 300.0
# Log of how far the bound on delta at the chosen tilt may be above the best one.
_FORGONE = 4.0
# Log of an error over delta that a gentle tilt may leave.
_NEGLIGIBLE_ERROR = -12.0
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

    Powers of transforms are multiplied, or of their small parts where nearly all mass
    stays at one place. Frequencies whose product is below ``e^-80`` are dropped.
    """
    laws = list(rounds)
    conditioned = _conditioned(laws, points)
    if conditioned is not None:
        return conditioned
    product = _Product(points)
    for places, masses, count in laws:
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
        self._unit = error_terms.transform_unit(points)
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
        lasting = self.log_size > error_terms.FADED
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

        norm = error_terms.product_error(
            self.log_size, self.doubt, masses, self._points
        )
        return masses, norm


def _conditioned(laws: Sequence[Placed], points: int) -> tuple[Array, float] | None:
    """As ``convolved``, where nearly all mass of each round stays at one place.

    So it is where a client hardly ever takes part. The rounding of the mass that stays
    would hide the others, so that only these are transformed: with ``r_i`` their
    transform over the mass ``m_i`` that stays, the product of the n_i-th powers is

        prod m_i^n_i (1 + expm1(sum_i n_i log(1 + r_i)))

    and its first term 1 is the chance that no round leaves its place. None where mass
    does move.
    """
    moves = 0.0
    log_stays = 0.0
    start = 0
    power = np.zeros(points // 2 + 1, dtype=np.complex128)
    for places, masses, count in laws:
        stay = int(masses.argmax())
        stays = float(masses[stay])
        moved = masses / stays
        moved[stay] = 0.0
        moves += count * float(moved.sum())
        if stays < _LEAST_STAYING or moves > _MAX_MOVES:
            return None
        log_stays += count * math.log(stays)
        start += int(count) * int(places[stay])

        # log(1 + x + i y); numpy's complex log1p loses digits.
        ratio = np.fft.rfft(
            np.bincount((places - places[stay]) % points, moved, points)
        )
        x = ratio.real
        y = ratio.imag
        power += 0.5 * count * np.log1p(2 * x + x * x + y * y)
        power += 1j * count * np.arctan2(y, 1 + x)

    total = np.fft.irfft(np.expm1(power), points)
    total[0] += 1
    circle = math.exp(log_stays) * np.roll(total, start % points)
    return circle, error_terms.moved_error(moves, points)


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


def cumulant(counted_lattices: Sequence[Part], tilt: float) -> float:
    """``sum_i n_i log E exp(tilt * loss_i)`` over the finite losses."""
    return float(cumulants(counted_lattices, np.array([tilt]))[0])


def cumulants(counted_lattices: Sequence[Part], tilts: Array) -> Array:
    """The cumulant at each tilt, shape (tilts,)."""
    total = np.zeros(len(tilts))
    for lattices, counts in counted_lattices:
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
        for start in range(0, len(tilts), block):
            column = tilts[start : start + block, None]
            top = np.maximum(column * lowest, column * highest)
            exponent = column[:, :, None] * losses - top[:, :, None]
            if has_gaps:
                exponent = np.where(occupied, exponent, -np.inf)
            sums = np.einsum("trp,rp->tr", np.exp(exponent), lattices.masses)
            total[start : start + block] += (top + np.log(sums)) @ counts
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


def best_tilt(counted_lattices: Sequence[Part], log_inverse_delta: float) -> float:
    """A tilt near that of Chernoff's bound, a power of the square root of 2.

    It is the smallest tilt at which the bound on delta is at most ``e^_FORGONE`` times
    the best: the window then centres a little above that loss, and rare large losses,
    which a larger tilt would bring in, stay out.
    """
    octave = round(-math.log2(tilted_moments(counted_lattices, 0.0).spread))
    tilts = 2.0 ** np.arange(octave - 20, octave + 10.25, 0.5)

    # Chernoff: epsilon <= (K(tilt) + log(1 / delta)) / tilt, K the cumulant.
    moments = cumulants(counted_lattices, tilts)
    epsilons = (moments + log_inverse_delta) / tilts
    best = int(np.argmin(epsilons))

    # The bounds on log delta at that epsilon; from the best tilt down to where they
    # are no longer close.
    log_deltas = moments - tilts * epsilons[best]
    close = log_deltas[: best + 1] <= log_deltas[best] + _FORGONE
    if close.all():
        return float(tilts[0])
    return float(tilts[best - int(np.argmin(close[::-1])) + 1])


def gentle_tilt(
    counted_lattices: Sequence[Part], epsilon: float, delta: float
) -> float:
    """The smallest tilt by which errors are far below ``delta`` near an epsilon.

    They are about ``ALIASED e^(K(t) - t epsilon) / t`` at the tilt t.
    """
    octave = round(-math.log2(tilted_moments(counted_lattices, 0.0).spread))
    tilts = 2.0 ** np.arange(octave - 20, octave + 10.25, 0.5)
    log_errors = cumulants(counted_lattices, tilts) - tilts * epsilon - np.log(tilts)
    log_errors += math.log(error_terms.ALIASED / delta)
    enough = max(float(log_errors.min()), _NEGLIGIBLE_ERROR)
    return float(tilts[np.argmax(log_errors <= enough)])


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


def tilted_moments(counted_lattices: Sequence[Part], tilt: float) -> Moments:
    """Means and standard deviations of the tilted loss of each pair."""
    means = []
    deviations = []
    for lattices, _ in counted_lattices:
        weights = tilted_masses(lattices, tilt)[0]
        mean = (weights * lattices.losses).sum(axis=1)
        squares = (lattices.losses - mean[:, None]) ** 2
        means.append(mean)
        deviations.append(np.sqrt((weights * squares).sum(axis=1)))
    counts = np.concatenate([counts for _, counts in counted_lattices])
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
        cell_end = int(enough.argmax())
        if not enough[cell_end]:
            return math.inf
        if cell_end == 0:
            return max(0.0, float(self.losses[0]) + self.blur)
        goal = delta - float(self.error[cell_end - 1]) - self.outside
        return max(0.0, self._within(cell_end, goal) + self.blur)

    def epsilon_lower(self, delta: float) -> float:
        """An epsilon that does not suffice for ``delta``, or 0."""
        insufficient = np.flatnonzero(self.deltas(-1) > delta)
        if not len(insufficient) or insufficient[-1] + 1 >= len(self.losses):
            return 0.0
        cell_end = int(insufficient[-1]) + 1
        goal = delta + float(self.error[cell_end - 1]) + self.outside
        return max(0.0, self._within(cell_end, goal) - self.blur)

    def _within(self, cell_end: int, goal: float) -> float:
        """The epsilon in the cell up to ``cell_end`` where delta passes ``goal``.

        Delta is linear in ``e^epsilon`` there: with the cell's width w, a share s of
        its rise is reached ``log(1 + s (e^-w - 1))`` above the upper end.
        """
        low = float(self.losses[cell_end - 1])
        high = float(self.losses[cell_end])
        rise = float(self.values[cell_end - 1] - self.values[cell_end])
        share = 0.0
        if rise > 0:
            share = (goal - float(self.values[cell_end])) / rise
        if share <= 0:
            return high
        if not share < 1:
            return low
        epsilon = high + math.log1p(share * math.expm1(low - high))
        return min(high, max(low, epsilon))

    def delta(self, epsilon: float, sign: int) -> float:
        """Delta at one epsilon: an upper bound (sign 1) or a lower bound (sign -1)."""
        epsilon -= sign * self.blur
        cell_end = int(np.searchsorted(self.losses, epsilon, side="right"))

        # Below the window delta is at least what it is at the first loss.
        if cell_end == 0:
            if sign > 0:
                return 1.0
            return max(0.0, float(self.values[0] - self.error[0]) - self.outside)

        # Above it there is only what the window misses.
        doubt = sign * (float(self.error[cell_end - 1]) + self.outside)
        if cell_end == len(self.losses):
            return min(1.0, max(0.0, doubt))

        low = float(self.losses[cell_end - 1])
        high = float(self.losses[cell_end])
        share = math.expm1(epsilon - high) / math.expm1(low - high)
        rise = float(self.values[cell_end - 1] - self.values[cell_end])
        delta = float(self.values[cell_end]) + share * rise + doubt
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


def compose_at(counted_lattices: Sequence[Part], tilt: float) -> Composed | None:
    """Compose the lattices at one tilt; None when the window would be too large.

    The errors that ``Composed`` carries are those of ``error_terms``: ``outside`` has
    the mass above the window, infinite losses and what lower bounds take off;
    ``error`` the rounding of transforms, tilts and sums and what wraps around;
    ``blur`` the rounding of the losses.
    """
    step = counted_lattices[0][0].step
    window = _window(counted_lattices, tilt, 2 * step)
    needed_points = (window.top - window.bottom) / step + 3
    if needed_points > MOST_POINTS:
        return None
    points = fast_length(int(needed_points))

    # The circle starts at the lowest loss of the window.
    sums = _sums(counted_lattices, tilt)
    start = math.floor((window.bottom - sums.offset) / step)
    losses = sums.offset + step * np.arange(start, start + points, dtype=np.float64)
    circle, error = convolved(_placed(counted_lattices, tilt, points), points)
    masses = np.roll(circle, -(start % points))

    # Untilt. Where the weight would overflow nothing is known: the error is infinite.
    # The first exponent is the largest.
    exponent = sums.log_scale - tilt * losses
    overflows = exponent[0] > _LARGEST_WEIGHT
    weights = np.exp(np.minimum(exponent, _LARGEST_WEIGHT) if overflows else exponent)
    values = suffix_deltas(masses * weights, step)
    error = error_terms.spread_error(error, tilt, step)
    rounding = (error + error_terms.wrapped_error(tilt)) * weights
    rounding += (sums.drift + error_terms.sum_rounding(points)) * np.abs(values)
    if overflows:
        rounding[exponent > _LARGEST_WEIGHT] = math.inf
    return Composed(losses, values, rounding, window.missed + sums.infinite, sums.blur)


class _Sums(NamedTuple):
    """Sums over all rounds.

    Attributes:
        offset: loss of index 0.
        infinite: mass of infinite losses, and what lower bounds take off delta.
        blur: rounding of the losses.
        log_scale: log of the factor of the tilted masses.
        drift: relative error by the rounding of tilts.
    """

    offset: float
    infinite: float
    blur: float
    log_scale: float
    drift: float


def _sums(counted_lattices: Sequence[Part], tilt: float) -> _Sums:
    offset = sum(
        float(counts @ lattices.offset) for lattices, counts in counted_lattices
    )
    infinite = sum(
        float(counts @ (lattices.infinite + lattices.slack))
        for lattices, counts in counted_lattices
    )
    log_scale = 0.0
    drift = 0.0
    blur = 0.0
    for lattices, counts in counted_lattices:
        largest = _largest(lattices)
        log_scale += float(counts @ tilted_masses(lattices, tilt)[1][:, 0])
        drift += error_terms.tilt_drift(counts, tilt, largest)
        blur += error_terms.loss_blur(counts, largest)
    return _Sums(offset, infinite, blur, log_scale, drift)


def _placed(
    counted_lattices: Sequence[Part], tilt: float, points: int
) -> Iterator[Placed]:
    """The tilted masses of each row, on a circle of ``points``."""
    for lattices, counts in counted_lattices:
        weights = tilted_masses(lattices, tilt)[0]
        for row, count in enumerate(counts):
            yield lattices.index[row] % points, weights[row], float(count)


class _Window(NamedTuple):
    """The losses that a composition keeps, and the mass above them, at most."""

    bottom: float
    top: float
    missed: float


def _window(
    counted_lattices: Sequence[Part], tilt: float, least_width: float
) -> _Window:
    """Ends of the losses by the best of a few Chernoff bounds."""
    quiet = -math.log(error_terms.ALIASED)
    lowest = sum(
        float(counts @ lattices.losses[:, 0]) for lattices, counts in counted_lattices
    )
    highest = sum(
        float(counts @ lattices.losses[:, -1]) for lattices, counts in counted_lattices
    )

    # The tilted loss is nearly normal: its ends are sqrt(2 quiet) deviations out, where
    # the best exponent is sqrt(2 quiet) over the deviation.
    pull = math.sqrt(2 * quiet) / tilted_moments(counted_lattices, tilt).spread
    up = pull * _PULLS
    values = cumulants(counted_lattices, tilt + np.concatenate([[0.0], up, -up]))
    base = float(values[0])
    rises_up = values[1 : 1 + len(up)] - base
    rises_down = values[1 + len(up) :] - base
    top = _chernoff_end(counted_lattices, tilt, base, rises_up, up)
    bottom = _chernoff_end(counted_lattices, tilt, base, rises_down, -up)
    if top >= highest:
        return _Window(max(bottom, lowest), highest + least_width, 0.0)
    missed = error_terms.mass_above(base, tilt, top)
    return _Window(max(bottom, lowest), max(top, bottom + least_width), missed)


def _chernoff_end(
    counted_lattices: Sequence[Part],
    tilt: float,
    base: float,
    rises: Array,
    pulls: Array,
) -> float:
    """The loss beyond which the tilted mass is ``ALIASED`` or less.

    Beyond a loss x, on the side of the sign of p, it is at most
    ``exp(K(tilt + p) - K(tilt) - p x)``, with K the cumulant.

    Args:
        counted_lattices: what is composed.
        tilt: of the composition.
        base: ``K(tilt)``.
        rises: ``K(tilt + p) - K(tilt)`` for each of the ``pulls``.
        pulls: exponents p of one sign; the first, a small one, tells the mean.
    """
    quiet = -math.log(error_terms.ALIASED)
    sign = 1.0 if pulls[0] > 0 else -1.0
    mean = float(rises[0] / pulls[0])
    ends = (rises[1:] + quiet) / pulls[1:]
    distance = float((sign * ends).min())

    # A heavy tail: try exponents nearer to 0.
    if distance - sign * mean > _HEAVY * quiet / abs(float(pulls[-1])):
        gentle = pulls[-1] * _GENTLE_SHARES
        ends = (cumulants(counted_lattices, tilt + gentle) - base + quiet) / gentle
        distance = min(distance, float((sign * ends).min()))
    return sign * distance


def _largest(lattices: Lattice) -> Array:
    """Largest absolute loss of each row, shape (rows,)."""
    return np.maximum(np.abs(lattices.losses[:, 0]), np.abs(lattices.losses[:, -1]))
