"""How far a release is from the replayed one, in units of its noise, and what agrees.

A deviation is divided by the standard deviation of the release's noise, which the plan
gives and the replay draws, or without noise by the root mean square of the replayed
vector. No number of the run is ever a unit or a limit: a run could choose it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

FLOAT32 = 2.0**-24  # relative error of rounding to float32
ROUNDINGS = 10.0
"""Largest L2 deviation that agrees, as a multiple of ``rounding_of``. Measured on the CPU:
0.4 to 1.8 in 1,000 releases of honest runs (perceptron and convolutions on the digits,
five methods). Noise on a grid of 3e-6 of its deviation has 11.6 in the digits
preset."""
NUDGED_PAIRS = 4
"""Random directions in which starts are nudged, and opposite to them: where a direction
keeps to a side of a kink, the opposite one crosses it."""
MOVED = 5.0
"""Largest distance that training explains, as a multiple of the most that nudges move.
Honest runs had up to 2.3 in 109 comparisons beyond rounding; the sum within noise on a
fine grid has 5 to 10."""
LINES = 1e-5
"""Relative error of norms and sums of squares in ledger lines: some hundred roundings."""
TINY = 1e-300  # unit of a release that is zero


@dataclass(frozen=True)
class Deviation:
    """The distance of a vector from a replayed one, in deviations of its noise."""

    coordinate: float  # of the coordinate that is furthest off
    norm: float  # L2 norm over all coordinates


def deviation(run: ArrayLike, replay: ArrayLike, unit: float) -> Deviation:
    """The deviation of a run's vector from the replayed one; infinite for another size.

    Args:
        run: the vector of the run [k].
        replay: the replayed vector [k].
        unit: standard deviation of the release's noise, as ``unit_of`` gives it.
    """
    run_vector = np.asarray(run, np.float64)
    replayed_vector = np.asarray(replay, np.float64)
    if run_vector.shape != replayed_vector.shape:
        return Deviation(math.inf, math.inf)
    if not run_vector.size:
        return Deviation(0.0, 0.0)
    distances = np.abs(run_vector - replayed_vector) / unit
    return Deviation(float(distances.max()), float(np.linalg.norm(distances)))


def unit_of(noise_std: float, replay: ArrayLike) -> float:
    """Deviation of the noise; without noise the replayed vector's root mean square."""
    if noise_std > 0:
        return noise_std
    vector = np.asarray(replay, np.float64)
    mean_square = float(np.square(vector).mean()) if vector.size else 0.0
    return max(math.sqrt(mean_square), TINY)


def rounding_of(replay: ArrayLike, summed_norms: float, unit: float) -> float:
    """L2 error of rounding each summand and the release to float32 once, in units.

    Args:
        replay: the replayed vector [k].
        summed_norms: the norms of the replayed summands, added up.
        unit: standard deviation of the release's noise.
    """
    norm = float(np.linalg.norm(np.asarray(replay, np.float64)))
    return FLOAT32 * (norm + summed_norms) / unit
