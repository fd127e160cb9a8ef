"""Independent streams of randomness: one for every purpose, round and client.

A stream is named by its purpose and its indices, never by how much was drawn before it, so
results depend neither on batching nor on being interrupted, and no state is used twice.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream is for; the numbers are part of what a seed means, so they never change."""

    INITIAL = 0
    PARTITION = 1
    GROUPS = 2
    SAMPLING = 3
    CLIENT = 4
    NOISE = 5
    SUPPORT = 6
    OWN_TEST = 7
    RECORD_NOISE = 8
    EVALUATION = 9
    CANARY = 10


def stream(seed: int, purpose: Purpose, *indices: int) -> np.random.Generator:
    """The generator of one purpose.

    Args:
        seed: the run's seed, 0 or more.
        purpose: what is drawn.
        indices: for example (round, client) or (round, release), each 0 or more.

    Returns:
        A Philox generator keyed by all of them; equal arguments give equal streams.
    """
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(int(purpose), *indices))
    return np.random.Generator(np.random.Philox(sequence))
