"""How far a released vector is from the replayed one, in units of its noise, and what agrees.

A deviation is divided by the standard deviation of the release's noise, which the plan
gives and the replay draws, or without noise by the root mean square of the replayed
vector. No number of the run is ever a unit: a run could choose it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

NORM_LIMIT = 2e-3
COORDINATE_LIMIT = 1e-3
EXAMINED = 0.5
LINES = 1e-5


@dataclass(frozen=True)
class Deviation:
    """The distance of a vector from a replayed one, in units of the noise of one coordinate."""

    coordinate: float  # of the coordinate that is furthest off
    norm: float  # L2 norm over all coordinates

    @property
    def agrees(self) -> bool:
        """Whether rounding explains it."""
        return self.norm <= NORM_LIMIT and self.coordinate <= COORDINATE_LIMIT


NONE, OTHER = Deviation(0.0, 0.0), Deviation(math.inf, math.inf)
TINY = 1e-300  # unit of a release that is zero


def deviation(run: ArrayLike, replay: ArrayLike, unit: float) -> Deviation:
    """The deviation of a run's vector from the replayed one.

    Args:
        run: the vector of the run [k].
        replay: the replayed vector [k].
        unit: standard deviation of the release's noise, as ``unit_of`` gives it.
    """
    one, other = np.asarray(run, np.float64), np.asarray(replay, np.float64)
    if one.shape != other.shape:
        return OTHER
    if not one.size:
        return NONE
    difference = np.abs(one - other) / unit
    return Deviation(float(difference.max()), float(np.linalg.norm(difference)))


def unit_of(noise_std: float, replay: ArrayLike) -> float:
    """Standard deviation of the noise, or the replayed vector's root mean square without noise."""
    if noise_std > 0:
        return noise_std
    vector = np.asarray(replay, np.float64)
    return max(float(np.linalg.norm(vector)) / math.sqrt(max(vector.size, 1)), TINY)
