"""Which clients of different deltas may share a group.

A group has the least epsilon and the least delta of its members. Where these are two clients', the
group's budget is stricter than both, often by far: (4, 1e-9) and (1, 1e-2) make (1, 1e-9). So the
deltas are lowered to few levels, in each of some ways, and groups are made within a level, whose
best ones are intervals of epsilon (``privplan.spec.grouping``); the best of the ways is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVELS = 4
"""Most levels of delta; there are 2^(LEVELS - 1) ways to lower to some of them."""


def lowerings(deltas: Floats) -> Iterator[Floats]:
    """The deltas lowered to one or more levels, in each way; shape (clients,) each.

    With more than LEVELS distinct deltas the levels are the least one and quantiles over clients.

    Args:
        deltas: failure probability of each client, shape (clients,).
    """
    levels = np.unique(deltas)
    if len(levels) > LEVELS:
        ends = [len(deltas) * level // LEVELS for level in range(LEVELS)]
        levels = np.unique(np.sort(deltas)[ends])
    least, others = levels[0], levels[1:]
    for size in range(len(others) + 1):
        for kept in combinations(others, size):
            some = np.array([least, *kept])
            yield some[np.searchsorted(some, deltas, side="right") - 1]
