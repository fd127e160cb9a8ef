"""Which coordinates leave the clients in a round: named, and drawn again without any data."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from privplan.values import Count, Natural, Value

STREAM = 6
"""Purpose of the stream of random masks; part of what a seed means."""
LETTERS = 24


class Mask(Value):
    """A random mask as every client knows it.

    Attributes:
        index: its place among the transforms; it names the stream.
        name: name of the transform.
        size: how many coordinates it keeps.
    """

    index: Natural
    name: str
    size: Count


def mask_digest(coordinates: np.ndarray) -> str:
    """A hash of sorted coordinates: equal sets have equal names."""
    content = np.ascontiguousarray(coordinates, dtype="<i8").tobytes()
    return hashlib.sha256(content).hexdigest()[:LETTERS]


def draw_mask(seed: int, round_: int, masks: Sequence[Mask], dimension: int) -> np.ndarray:
    """The coordinates that all the masks of a round keep, sorted.

    Args:
        seed: the run's seed.
        round_: training round, from 1.
        masks: uniform masks without replacement, at least one.
        dimension: length of the global vector.
    """
    kept = np.arange(dimension)
    for mask in masks:
        words = np.random.SeedSequence(entropy=seed, spawn_key=(STREAM, round_, mask.index))
        generator = np.random.Generator(np.random.Philox(words))
        one = generator.choice(dimension, size=mask.size, replace=False, shuffle=False)
        kept = np.intersect1d(kept, one)
    return kept
