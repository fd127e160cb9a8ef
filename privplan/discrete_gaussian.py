"""Discrete Gaussian noise on the integers, sampled exactly.

N_Z(0, s^2) has the probability of k proportional to exp(-k^2 / (2 s^2)). The sampler is
that of C. Canonne, G. Kamath, T. Steinke, The Discrete Gaussian for Differential
Privacy, NeurIPS 2020: a discrete Laplace variable of scale t (Algorithm 2) is accepted
with probability exp(-(|Y| - s^2/t)^2 / (2 s^2)) (Algorithm 3), for any t; here t is a
power of two. Two steps differ from the paper's, with equal distributions:

- The geometric part V of Algorithm 2 is the number of thresholds exp(-v), v = 1, 2,
  ..., above one uniform number, and its two acceptances (of U, with exp(-U/t), and of
  Y) are one.
- A Bernoulli variable of probability exp(-x) with x rational (Algorithm 1) is the
  comparison of a uniform number with exp(-x). 64 bits of the uniform number are drawn
  first. They are compared with the floating-point value of 2^64 exp(-x), whose error is
  bounded; where the bound does not decide, further bits are drawn, and exp(-x) is
  enclosed by decimal numbers of growing precision.

So no decision depends on a rounding error, and the samples have exactly the law above.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Protocol

import numpy as np

from privplan.errors import InputError

# The standard deviation is at least 2^BITS and below 2^(BITS + 1) steps of the grid.
BITS = 36
# Standard deviation from which usual updates are lost. Releases are float32, rounded by
# 2^-24 of it, and a verifier accepts ten times that: over a million coordinates a norm
# of 0.6, less than that of a usual client's update.
WIDEST = 2.0**10
# Scale up to which the evaluation below is within its error bound.
LARGEST = 1 << 42
# Values of |Y| beyond so many deviations are compared exactly.
MOST_DEVIATIONS = 60
# Bound on the relative error of the floating-point value of exp(-x). With |Y| at most
# 60 s, x is at most 2000 and computed with a relative error of at most 16 units of
# 2^-53 of its terms, so within 1e-11; exp adds 1e-15.
RELATIVE_ERROR = 1e-10
# Number of proposals per missing sample, about one over the rate of acceptance.
PROPOSALS = 2.2
# Most proposals at a time, so that they stay in the cache.
CHUNK = 1 << 15
# Number of thresholds exp(-v) that 64 bits can decide.
_THRESHOLDS = 40
# Steps by which the deviation exceeds that of the equivalent noise.
SMOOTHING = 4


class Words(Protocol):
    """A source of random words."""

    def words(self, count: int) -> np.ndarray:
        """Independent uniform words [count], uint64."""


def _exp_bounds(x: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Bounds of exp(-x) from below and above, x >= 0, within about 10^-digits of it."""
    with decimal.localcontext() as context:
        # No exponent of any x here under- or overflows.
        context.Emin = -(10**9)
        context.Emax = 10**9
        context.prec = digits + 10
        context.rounding = decimal.ROUND_HALF_EVEN
        # Both are correctly rounded.
        quotient = Decimal(x.numerator) / Decimal(x.denominator)
        value = (-quotient).exp()
        error = (x + 2) * (Fraction(10) ** -(digits + 9))
        middle = Fraction(value)
    return middle * (1 - error), middle * (1 + error)


class Uniform:
    """A uniform number in [0, 1) of which bits are drawn as they are needed.

    Args:
        word: its first 64 bits.
        source: of further ones.
    """

    def __init__(self, word: int, source: Words) -> None:
        # The number is in [low, low + 1) / 2^bits.
        self._low = word
        self._bits = 64
        self._source = source

    def below(self, x: Fraction) -> bool:
        """Whether it is below exp(-x), for x >= 0 (exact)."""
        digits = 40
        if x == 0:
            return True
        while True:
            lower, upper = _exp_bounds(x, digits)
            if Fraction(self._low + 1, 1 << self._bits) <= lower:
                return True
            if Fraction(self._low, 1 << self._bits) >= upper:
                return False
            self._low = (self._low << 64) | int(self._source.words(1)[0])
            self._bits += 64
            digits = max(2 * digits, self._bits)


@cache
def _floors() -> np.ndarray:
    """The whole parts of 2^64 exp(-v), v = _THRESHOLDS, ..., 1, ascending, uint64."""
    floors = []
    for v in range(_THRESHOLDS, 0, -1):
        bounds = _exp_bounds(Fraction(v), 60)
        lower, upper = (math.floor(bound * (1 << 64)) for bound in bounds)
        assert lower == upper
        floors.append(lower)
    return np.array(floors, np.uint64)


def _geometric(source: Words, count: int) -> np.ndarray:
    """Geometric variables [count], int64: P(V >= v) = exp(-v)."""
    words = source.words(count)
    floors = _floors()
    above = np.searchsorted(floors, words, side="right")
    v = (_THRESHOLDS - above).astype(np.int64)
    # A word equal to the floor of a threshold, or below all of them, does not decide.
    is_equal = words == floors[np.maximum(above - 1, 0)]
    for index in np.flatnonzero(is_equal | (above == 0)):
        number = Uniform(int(words[index]), source)
        v[index] = 0
        while number.below(Fraction(int(v[index]) + 1)):
            v[index] += 1
    return v


def _accepted(
    u: np.ndarray, y: np.ndarray, scale: float, t: int, source: Words, margin: float
) -> np.ndarray:
    """Whether each proposal is accepted, with probability exp(-x) [n].

    Here x = u / t + (y - scale^2 / t)^2 / (2 scale^2), with y = u + t v the absolute
    value of the proposal.
    """
    words = source.words(len(y))
    centre = scale * scale / t
    x = u / t + np.square((y - centre) / scale) / 2
    expected = np.exp(-x) * 2.0**64
    uniform = words.astype(np.float64)
    accepted: np.ndarray = uniform + 2 < expected * (1 - margin)
    unclear = ~accepted & (uniform - 1 < expected * (1 + margin))
    unclear |= y > float(MOST_DEVIATIONS) * scale
    variance = Fraction(scale) ** 2
    for index in np.flatnonzero(unclear):
        exact = Fraction(int(u[index]), t)
        exact += (int(y[index]) - variance / t) ** 2 / (2 * variance)
        accepted[index] = Uniform(int(words[index]), source).below(exact)
    return accepted


def discrete_gaussian(
    source: Words, scale: float, count: int, *, margin: float = RELATIVE_ERROR
) -> np.ndarray:
    """Independent samples of N_Z(0, scale^2) [count], int64.

    Args:
        source: of random words.
        scale: standard deviation of the continuous law, in [1, ``LARGEST``].
        count: number of samples.
        margin: bound on the relative error of the floating-point value of exp(-x).

    Raises:
        InputError: for another scale.
    """
    if not 1 <= scale <= LARGEST:
        raise InputError.one("scale", f"must be in [1, {LARGEST}]", scale)
    scale = float(scale)
    t = 1 << round(math.log2(scale))
    bits = np.uint64(t - 1)
    batches: list[np.ndarray] = []
    missing = count
    while missing > 0:
        proposed = min(int(missing * PROPOSALS) + 16, CHUNK)
        words = source.words(proposed)
        u = (words & bits).astype(np.int64)
        negative = (words >> np.uint64(63)).astype(bool)
        y = u + t * _geometric(source, proposed)
        accepted = _accepted(u, y, scale, t, source, margin)
        # 0 has no second sign.
        accepted &= ~(negative & (y == 0))
        batches.append(np.where(negative, -y, y)[accepted][:missing])
        missing -= len(batches[-1])
    if batches:
        return np.concatenate(batches)
    return np.empty(0, np.int64)


def grid_of(std: float) -> float:
    """The step of the grid for noise of a standard deviation: a power of two."""
    return float(2.0 ** (math.frexp(std)[1] - 1 - BITS))


def grid_fault(noise_multipliers: Iterable[float], clipping_norm: float) -> str | None:
    """The rule that noise too wide for updates breaks; None otherwise.

    Args:
        noise_multipliers: of all groups, in units of the clipping norm.
        clipping_norm: of the plan.
    """
    if max(noise_multipliers) * clipping_norm < WIDEST:
        return None
    return (
        "must not be secure-discrete where the clipping norm times a noise multiplier "
        f"is {WIDEST:.0f} or more: releases are rounded to single precision, in which "
        "usual updates are lost"
    )


def scale_for(std: float) -> float:
    """The least scale, in steps of the grid, whose noise protects as normal noise does.

    Args:
        std: standard deviation of the normal noise.
    """
    variance = (Fraction(std) / Fraction(grid_of(std))) ** 2 + SMOOTHING**2
    scale = math.sqrt(variance)
    while Fraction(scale) ** 2 < variance:
        scale = math.nextafter(scale, math.inf)
    return scale
