"""The convex hull of a piecewise linear profile, in terms of its measure.

A profile that is not convex has points of negative mass. Such a point lies above the chord of
its neighbours, so it is no corner of the hull: its mass goes to its two neighbours, keeping
mass and mean under Q, which is the profile with the point left out. The hull lies below.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.pld.dominating_pairs import Array

_WORTH_A_HULL = 1e-13
_PASSES = 60
_MOVES = 12


def convex(masses: Array, step: float, index: NDArray[np.int64]) -> tuple[Array, Array]:
    """The measure of the convex hull: no negative masses; and the slack that is left over.

    Negative crumbs are moved up one point at a time, which lowers the profile, since
    ``max(0, 1 - x e^-l)`` grows with the loss; what is left then comes off delta.

    Args:
        masses: shape (rows, points).
        step: distance of neighbouring losses.
        index: losses over the step, shape (points,).

    Returns:
        Masses of shape (rows, points), 0 or more, and the slack of each row, 0 or more.
    """
    for row in np.flatnonzero((masses < -_WORTH_A_HULL).any(axis=1)):
        masses[row] = _hull(masses[row], step, index)
    for _ in range(_MOVES):
        negative = np.minimum(masses, 0.0)
        if not negative.any():
            return masses, np.zeros(len(masses))
        masses = masses - negative
        masses[:, 1:] += negative[:, :-1]
        masses[:, -1] += negative[:, -1]
    crumbs = -np.minimum(masses, 0.0).sum(axis=1)
    return np.maximum(masses, 0.0), crumbs


def _hull(masses: Array, step: float, index: NDArray[np.int64]) -> Array:
    """One row's hull: leaves out points of negative mass, no two neighbours in one pass."""
    place, kept = np.arange(len(masses)), masses.copy()
    for _ in range(_PASSES):
        bad = np.flatnonzero(kept < -_WORTH_A_HULL)
        bad = bad[(bad > 0) & (bad < len(kept) - 1)]
        if not len(bad):
            break
        runs = np.cumsum(np.concatenate([[0], np.diff(bad) > 1]))
        starts = bad[np.concatenate([[True], np.diff(runs) > 0])]
        bad = bad[(bad - starts[runs]) % 2 == 0]
        at = index[place]
        after, before = (at[bad + 1] - at[bad]) * step, (at[bad] - at[bad - 1]) * step
        up, down = np.expm1(after), -np.expm1(-before)
        np.add.at(kept, bad - 1, kept[bad] * np.exp(-before) * up / (up + down))
        np.add.at(kept, bad + 1, kept[bad] * np.exp(after) * down / (up + down))
        stay = np.ones(len(kept), dtype=bool)
        stay[bad] = False
        kept, place = kept[stay], place[stay]
    out = np.zeros_like(masses)
    out[place] = kept
    return out
