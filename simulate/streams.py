"""Independent random streams, one for every purpose, round and client.

A stream is identified by its purpose and its indices, independent of earlier draws, so results
depend neither on chunk sizes nor on interruptions, and no generator state is used twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import numpy as np

from privplan import streams as seeded_streams


class Purpose(IntEnum):
    """Purpose of a stream. The numbers never change, because they determine a seed's results."""

    INITIAL = 0
    PARTITION = 1
    GROUPS = 2
    SAMPLING = seeded_streams.SAMPLING
    CLIENT = 4
    NOISE = seeded_streams.NOISE
    SUPPORT = 6
    OWN_TEST = 7
    RECORD_NOISE = 8
    EVALUATION = 9
    CANARY = 10
    DROPOUT = 12
    AUGMENTATION = 13


def stream(seed: int, purpose: Purpose, *indices: int) -> np.random.Generator:
    """Returns the generator of one stream."""
    return seeded_streams.seeded_stream(seed, int(purpose), *indices)


def streams(
    seed: int, purpose: Purpose, *indices: int, clients: np.ndarray
) -> Iterator[np.random.Generator]:
    """Yields the generators of one stream per client, each valid until the next is asked for."""
    return seeded_streams.seeded_streams(seed, int(purpose), *indices, last=clients)
