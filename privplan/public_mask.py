"""Public random masks: the coordinates released in a round, drawn from the seed without data."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from privplan.record import Mask
from privplan.seeded_streams import seeded_stream

STREAM = 6
"""Key of the random stream of masks; changing it changes the result of every seed."""
LETTERS = 24
"""Length of a digest."""


def mask_digest(coordinates: np.ndarray) -> str:
    """A hash of sorted coordinates."""
    content = np.ascontiguousarray(coordinates, dtype="<i8").tobytes()
    return hashlib.sha256(content).hexdigest()[:LETTERS]


def draw_mask(seed: int, round_: int, masks: Sequence[Mask], dimension: int) -> np.ndarray:
    """The coordinates in all masks of a round, sorted.

    Args:
        seed: the run's seed.
        round_: training round, from 1.
        masks: uniform masks without replacement, at least one.
        dimension: length of the global vector.
    """
    released = np.arange(dimension)
    for mask in masks:
        generator = seeded_stream(seed, STREAM, round_, mask.index)
        drawn = generator.choice(dimension, size=mask.size, replace=False, shuffle=False)
        released = np.intersect1d(released, drawn)
    return released
