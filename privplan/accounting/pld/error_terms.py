"""What a composed bound carries for errors: one function for each term.

Each docstring states a lemma. ``docs/decisions/error-terms.md`` derives them, and
``tests/accounting/pld/test_error_terms.py`` shows for each a place where bounds without
it are wrong. Write P for the tilted law of the composed loss, whose masses sum to one,
t for the tilt, K for the cumulant of the untilted loss and u for the unit of rounding.
A tilted mass m at a loss x is an untilted one of ``m exp(K(t) - t x)``.

The terms of one round's lattice are where its masses are computed: ``lattice.tails``
(losses above the span), ``lattice.lower`` (what no line covers) and
``pairs.normal_cells`` (rounding of the masses of cells).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.pld.pairs import UNIT

Array = NDArray[np.float64]

# Units of rounding per stage of a fast Fourier transform. Higham's bound for exact
# twiddle factors rounded once is below 5; pocketfft computes its own within one unit.
FFT_UNITS = 6.0
# Log of what a product of transforms must exceed to be kept.
FADED = -80.0
# Tilted mass that may lie outside of the window on either side.
ALIASED = 1e-12


def transform_unit(points: int) -> float:
    """Relative error e of a transform of ``points`` numbers, and of one back.

    Lemma. Each output is a sum through ``log2 N`` stages of two numbers each, so its
    error is at most ``c u log2 N`` times the sum of the absolute inputs (Higham 2002,
    chapter 24). Twice that covers logarithms, angles and powers computed from it.
    """
    return 2 * FFT_UNITS * UNIT * math.log2(points)


def product_error(log_size: Array, doubt: Array, masses: Array, points: int) -> float:
    """Bound on the 2-norm of the error of masses whose transform is a product.

    Lemma. Let ``s_i`` be the computed transforms, each off by e at most, and
    ``m_i = max(|s_i|, e) + e``. Replacing factors one by one, ``prod s_i^n_i`` is off
    by at most ``sum_i n_i e / m_i`` times ``prod m_i^n_i``, at each frequency. Those
    that were dropped are below ``exp(FADED)``. By Parseval the 2-norm of the masses'
    error is that of the frequencies' over ``sqrt(N)``; all but two frequencies count
    twice. The transform back adds e times the masses' 2-norm.

    Args:
        log_size: log of ``prod max(|s_i|, e)^n_i`` at each frequency that was kept.
        doubt: ``sum_i n_i e / (|s_i| + e)`` there; ``exp(2 doubt)`` turns the product
            of the ``max(|s_i|, e)`` into that of the m_i.
        masses: of the transform back, shape (points,).
        points: N.
    """
    errors = doubt * np.exp(np.minimum(log_size, 0.0) + 2 * doubt)
    norm = math.sqrt(2 * float((errors**2).sum()) / points)
    norm += transform_unit(points) * float(np.linalg.norm(masses))
    return norm + 2 * math.exp(FADED)


def moved_error(moves: float, points: int) -> float:
    """The same bound where nearly all mass of each round stays at one place.

    Lemma. Let ``r_i`` be the transform of what leaves the place over the mass ``m_i``
    that stays, ``s_i = sum |r_i| <= 1/4``, ``moves = sum_i n_i s_i``. The exponent
    ``F = sum_i n_i log(1 + r_i)`` is off by ``moves (2 e + 32 u)``: each transform is
    off by ``e s_i``, the logarithm by twice that, and all further operations by units
    of their results, which are ``4/3 s_i`` at most. ``prod m_i^n_i |e^F| <= 1``, as the
    transform of a law is, so that no frequency is further off than F. By Parseval nor
    are the masses; the transform back adds ``e moves``.

    Args:
        moves: expected moves away from the places where rounds stay.
        points: of the circle.
    """
    return moves * (3 * transform_unit(points) + 32 * UNIT)


def spread_error(norm: float, tilt: float, step: float) -> float:
    """What an error of the tilted masses adds to delta, before it is untilted.

    Lemma. Delta at a loss x is the sum over y > x of ``m(y) exp(-t (y - x))
    (1 - e^-(y - x))``, times ``exp(K(t) - t x)``. The factor is at most
    ``exp(-t d) min(1, d)`` at a distance d, so by Cauchy and Schwarz the sum is off by
    the 2-norm of the masses' error times that of these factors. With
    ``r = exp(-2 t step)`` the sum of ``r^k`` is ``1 / (1 - r)``, and that of
    ``k^2 r^k`` is ``r (1 + r) / (1 - r)^3``.

    Args:
        norm: 2-norm of the errors of the tilted masses.
        tilt: t.
        step: distance of neighbouring losses.
    """
    decay = math.exp(-2 * tilt * step)
    gap = -math.expm1(-2 * tilt * step)
    norm_of_ones = 1 / math.sqrt(gap)
    norm_of_losses = step * math.sqrt(decay * (1 + decay) / gap) / gap
    return norm * min(norm_of_ones, norm_of_losses)


def wrapped_error(tilt: float) -> float:
    """What mass that wraps around the circle adds to delta, before it is untilted.

    Lemma. At most ``ALIASED`` of the tilted mass lies above the window and as much
    below it. Wherever it appears, ``exp(-t d) min(1, d)`` multiplies it, which is at
    most ``1 / (e t)`` and at most 1.
    """
    return 2 * ALIASED * min(1.0, 1 / (math.e * tilt))


def mass_above(cumulant: float, tilt: float, top: float) -> float:
    """Untilted mass above a window of which at most ``ALIASED`` of the tilted mass is.

    Lemma. A tilted mass above ``top`` is an untilted one of at most
    ``exp(K(t) - t top)`` times it, and no more than 1.
    """
    return math.exp(min(0.0, cumulant + math.log(ALIASED) - tilt * top))


def tilt_drift(counts: Array, tilt: float, largest: Array) -> float:
    """Relative error of delta by the rounding of tilts.

    Lemma. A factor ``exp(t loss)`` is off by as many units as its exponent. The sum of
    a round's masses, their division by it and its logarithm add eight units, and every
    round of a kind has the same error, so that errors add up.

    Args:
        counts: rounds of each pair, shape (pairs,).
        tilt: t.
        largest: largest absolute loss of a round, shape (pairs,).
    """
    return float(counts @ (tilt * largest + 8.0)) * UNIT


def sum_rounding(points: int) -> float:
    """Relative error of delta by the rounding of sums over a window.

    Lemma. Delta is a sum of sums of nonnegative numbers, each of ``points`` of them:
    ``2 N`` units. The factors that discount them add as many units as their exponents
    span, which a block limits to 400, and as many for the factors back.
    """
    return 4 * max(points, 512) * UNIT


def loss_blur(counts: Array, largest: Array) -> float:
    """Bound on the rounding of the losses of sums.

    Lemma. An offset or a multiple of the step is off by a unit of itself, and so is
    each of the few sums that make a composed loss of them.

    Args:
        counts: rounds of each pair, shape (pairs,).
        largest: largest absolute loss of a round, shape (pairs,).
    """
    return 8 * UNIT * float(counts @ largest)
