"""A part of each client's records is from all classes, the rest from its dominant classes.

Source: the experiments of HyperFL (Appendix D.1): all clients have the same number of records,
S percent of them from all classes at random (20 there) and the others from the dominant classes
of the client's set. Ten classes make five sets of three classes in a row, from 0, 2, 4, 6 and 8;
the 62 characters of EMNIST make three sets: digits, capital letters, small letters.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from privplan.errors import InputError
from simulate.data.partition.clients import Partition
from simulate.data.partition.scheme import Assignment, PartitionRequest, SchemeKind, in_order

CHARACTERS = (range(10), range(10, 36), range(36, 62))
"""Digits, capital and small letters, in the order of EMNIST's labels."""


def read(rest: str) -> Assignment:
    """``dominant:S``, a percentage from 0 to 100."""
    share = float(rest.removesuffix("%"))
    if not 0 <= share <= 100:
        raise ValueError(rest)
    return partial(deal, share=share / 100)


def sets(classes: int) -> list[np.ndarray]:
    """The sets of dominant classes: by threes from every second class, or kinds of characters."""
    if classes == 62:
        return [np.array(kind) for kind in CHARACTERS]
    return [np.unique(np.arange(first, first + 3) % classes) for first in range(0, classes, 2)]


def deal(problem: PartitionRequest, share: float) -> Partition:
    """Clients of one size, each record at one client at most, sets dealt evenly to clients.

    A class in several sets is divided evenly among them. The size is the largest that every
    set's records suffice for; what is left over is not used.

    Raises:
        InputError: when that size is zero.
    """
    problem.require_records()
    labels, generator = problem.labels, problem.generator()
    mixed = generator.permutation(len(labels))
    dominant = sets(int(labels.max()) + 1)
    own = generator.permutation(problem.clients) % len(dominant)
    users = np.bincount(own, minlength=len(dominant))

    def pools(size: int) -> list[np.ndarray] | None:
        """What remains for each set when each client has ``size`` records; None: too few."""
        uniform = _uniform(share, size)
        rest = mixed[uniform * problem.clients :]
        found = _divided(labels, rest, dominant)
        needed = users * (size - uniform)
        return found if all(len(p) >= n for p, n in zip(found, needed, strict=True)) else None

    low, high = 0, len(labels) // problem.clients
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if pools(middle) is not None else (low, middle - 1)
    chosen = pools(low)
    if low == 0 or chosen is None:
        rule = "must leave each client a record of its dominant classes"
        raise InputError.one("partition", rule, f"dominant:{100 * share:g}")
    uniform, used, held = _uniform(share, low), np.zeros(len(dominant), np.int64), []
    for client, kind in enumerate(own):
        mine = chosen[kind][used[kind] : used[kind] + low - uniform]
        used[kind] += len(mine)
        held.append(np.concatenate([mixed[client * uniform : (client + 1) * uniform], mine]))
    return problem.written(*in_order(held))


def _uniform(share: float, size: int) -> int:
    return round(share * size)


def _divided(labels: np.ndarray, rest: np.ndarray, dominant: list[np.ndarray]) -> list[np.ndarray]:
    """Records in random order, dealt to the sets that have their class; each to one set."""
    held = labels[rest]
    parts: list[list[np.ndarray]] = [[] for _ in dominant]
    for label in np.unique(held):
        having = [index for index, kind in enumerate(dominant) if label in kind]
        for turn, index in enumerate(having):
            parts[index].append(np.flatnonzero(held == label)[turn :: len(having)])
    empty = np.empty(0, np.int64)
    return [rest[np.sort(np.concatenate([empty, *part]))] for part in parts]


DOMINANT = SchemeKind(
    "dominant:S%",
    "S percent of a client's records are from all classes, the rest from its dominant ones",
    read,
)
