"""Label skew: Dirichlet mixes, shards, a fixed number of classes, and dominant classes per client.

Sources: T.-M. H. Hsu, H. Qi, M. Brown, Measuring the Effects of Non-Identical Data Distribution
(2019), for ``dirichlet``; H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas,
Communication-Efficient Learning of Deep Networks from Decentralized Data (2017), Section 3, for
``shards``; the experiments of DP2-FedSAM (Section VI) for ``pathological``; the experiments of
HyperFL (Appendix D.1) for ``dominant``.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from privplan.errors import InputError
from simulate.data.partition.clients import Partition
from simulate.data.partition.registry import (
    PARTITIONS,
    Assignment,
    PartitionRequest,
    SchemeKind,
    even_starts,
    positive_int,
)


def parse_dirichlet(rest: str) -> Assignment:
    """The assignment of ``dirichlet:ALPHA``."""
    alpha = float(rest)
    if not 0 < alpha < math.inf:
        raise ValueError(rest)
    return partial(assign_dirichlet, alpha=alpha)


def assign_dirichlet(request: PartitionRequest, alpha: float) -> Partition:
    """Clients of equal size with label distributions from a symmetric Dirichlet distribution.

    A client draws its records without replacement; exhausted labels leave its distribution.
    """
    request.require_records()
    labels, generator = request.labels, request.generator()
    names = np.unique(labels)
    pools = [generator.permutation(np.flatnonzero(labels == name)) for name in names]
    used, sizes = np.zeros(len(names), np.int64), np.array([len(pool) for pool in pools])
    starts = even_starts(len(labels), request.clients)
    order = np.empty(len(labels), np.int64)
    for client in range(request.clients):
        mix = generator.dirichlet(np.full(len(names), alpha))
        position, end = starts[client], starts[client + 1]
        while position < end:
            remaining = sizes - used
            odds = (mix + 1e-12) * (remaining > 0)
            counts = generator.multinomial(end - position, odds / odds.sum())
            counts = np.minimum(counts, remaining)
            for label in np.flatnonzero(counts):
                taken = pools[label][used[label] : used[label] + counts[label]]
                order[position : position + len(taken)] = taken
                position += len(taken)
            used += counts
    return Partition(order, starts, request.members)


PARTITIONS.register(
    "dirichlet",
    SchemeKind(
        "dirichlet:ALPHA",
        "label mixes from a Dirichlet distribution, ALPHA above 0; the smaller, the more skewed",
        parse_dirichlet,
    ),
)


def parse_shards(rest: str) -> Assignment:
    """The assignment of ``shards:S``."""
    return partial(assign_shards, shards=positive_int(rest))


def assign_shards(request: PartitionRequest, shards: int) -> Partition:
    """A random choice of ``shards`` pieces per client of the records sorted by label.

    A shard may contain two or more labels, so a client has few labels, not always at most
    ``shards``; ``pathological`` enforces that limit. Records of one label are shuffled first.
    """
    request.require_records(shards)
    generator = request.generator()
    shuffled = generator.permutation(len(request.labels))
    by_label = shuffled[np.argsort(request.labels[shuffled], kind="stable")]
    pieces = np.split(by_label, even_starts(len(by_label), request.clients * shards)[1:-1])
    chosen = generator.permutation(len(pieces)).reshape(request.clients, shards)
    return request.stored([np.concatenate([pieces[one] for one in row]) for row in chosen])


PARTITIONS.register(
    "shards",
    SchemeKind(
        "shards:S", "records sorted by label and cut up; each client gets S pieces", parse_shards
    ),
)


def parse_pathological(rest: str) -> Assignment:
    """The assignment of ``pathological:N,S``, or of ``pathological:S`` for any N."""
    *clients, classes = (positive_int(number) for number in rest.split(","))
    if len(clients) > 1:
        raise ValueError(rest)
    return partial(assign_pathological, clients=clients[0] if clients else None, classes=classes)


def assign_pathological(request: PartitionRequest, clients: int | None, classes: int) -> Partition:
    """Exactly ``classes`` classes per client; each class is cut evenly among its clients.

    A class has clients in proportion to its records, so clients are nearly equal in size when
    classes are. The records of a class are unused only when there are more classes than N times S.

    Raises:
        InputError: when the plan has another number of clients, or there are too few classes or
            records.
    """
    if clients is not None and clients != request.clients:
        rule = f"must name the plan's {request.clients} clients in pathological:N,S"
        raise InputError.one("partition", rule, clients)
    request.require_records(classes)
    generator = request.generator()
    names, sizes = np.unique(request.labels, return_counts=True)
    holders = _holders(sizes, request.clients, classes)
    if holders is None:
        rule = f"must leave records of {classes} classes for each client"
        raise InputError.one("partition", rule, f"pathological:{classes}")
    pieces = []
    for name, parts in zip(names, holders, strict=True):
        pool = generator.permutation(np.flatnonzero(request.labels == name))
        pieces.append(np.split(pool, even_starts(len(pool), max(1, int(parts)))[1:-1]))
    records = []
    for _ in range(request.clients):
        # The classes with most remaining pieces, ties at random: no client lacks classes later.
        own = np.lexsort((generator.random(len(names)), -holders))[:classes]
        holders[own] -= 1
        records.append(np.concatenate([pieces[index][holders[index]] for index in own]))
    order = generator.permutation(request.clients)
    return request.stored([records[one] for one in order])


def _holders(sizes: np.ndarray, clients: int, classes: int) -> np.ndarray | None:
    """Number of clients that hold each class, in proportion to its records.

    Returns:
        Numbers [labels] of at most ``clients`` with the sum ``clients * classes``; None when no
        such numbers exist.
    """
    most = np.minimum(sizes, clients)
    if most.sum() < clients * classes or len(sizes) < classes:
        return None
    holders = np.zeros(len(sizes), np.int64)
    while (missing := clients * classes - holders.sum()) > 0:
        open_ = holders < most
        share = np.where(open_, sizes, 0) * missing / sizes[open_].sum()
        added = np.minimum(np.floor(share).astype(np.int64), most - holders)
        if not added.any():
            first = np.argsort(-np.where(open_, share, -1.0), kind="stable")
            added[first[: min(missing, open_.sum())]] = 1
        holders += added
    return holders


PARTITIONS.register(
    "pathological",
    SchemeKind(
        "pathological:N,S or pathological:S",
        "each of the plan's N clients holds S classes, no more",
        parse_pathological,
    ),
)


CHARACTERS = (range(10), range(10, 36), range(36, 62))
"""Digits, capital and small letters, in the order of EMNIST's labels."""


def parse_dominant(rest: str) -> Assignment:
    """The assignment of ``dominant:S%``, S from 0 to 100."""
    share = float(rest.removesuffix("%"))
    if not 0 <= share <= 100:
        raise ValueError(rest)
    return partial(assign_dominant, share=share / 100)


def dominant_sets(classes: int) -> list[np.ndarray]:
    """Sets of dominant classes: three from every second class on, or the kinds of characters."""
    if classes == 62:
        return [np.array(kind) for kind in CHARACTERS]
    return [np.unique(np.arange(first, first + 3) % classes) for first in range(0, classes, 2)]


def assign_dominant(request: PartitionRequest, share: float) -> Partition:
    """Clients of equal size with a share of records of all classes, the rest of dominant classes.

    Sets of dominant classes are assigned evenly to clients. A class in several sets is divided
    evenly among them. The size is the largest for which every set has enough records; the
    remaining records are not used.

    Args:
        request: the arguments of the partition.
        share: of records of all classes, from 0 to 1.

    Raises:
        InputError: when the size would be 0.
    """
    request.require_records()
    labels, generator = request.labels, request.generator()
    mixed = generator.permutation(len(labels))
    dominant = dominant_sets(int(labels.max()) + 1)
    own = generator.permutation(request.clients) % len(dominant)
    users = np.bincount(own, minlength=len(dominant))

    def pools(size: int) -> list[np.ndarray] | None:
        """Records of each set for clients of ``size`` records; None when they do not suffice."""
        uniform = _uniform(share, size)
        rest = mixed[uniform * request.clients :]
        parts = _divided(labels, rest, dominant)
        needed = users * (size - uniform)
        return parts if all(len(p) >= n for p, n in zip(parts, needed, strict=True)) else None

    low, high = 0, len(labels) // request.clients
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if pools(middle) is not None else (low, middle - 1)
    chosen = pools(low)
    if low == 0 or chosen is None:
        rule = "must leave each client a record of its dominant classes"
        raise InputError.one("partition", rule, f"dominant:{100 * share:g}")
    uniform, used, records = _uniform(share, low), np.zeros(len(dominant), np.int64), []
    for client, kind in enumerate(own):
        dominated = chosen[kind][used[kind] : used[kind] + low - uniform]
        used[kind] += len(dominated)
        mixture = mixed[client * uniform : (client + 1) * uniform]
        records.append(np.concatenate([mixture, dominated]))
    return request.stored(records)


def _uniform(share: float, size: int) -> int:
    """Number of records of all classes among ``size`` records."""
    return round(share * size)


def _divided(labels: np.ndarray, rest: np.ndarray, dominant: list[np.ndarray]) -> list[np.ndarray]:
    """Records in random order, each assigned to one of the sets that contain its class."""
    classes = labels[rest]
    parts: list[list[np.ndarray]] = [[] for _ in dominant]
    for label in np.unique(classes):
        containing = [index for index, kind in enumerate(dominant) if label in kind]
        for turn, index in enumerate(containing):
            parts[index].append(np.flatnonzero(classes == label)[turn :: len(containing)])
    empty = np.empty(0, np.int64)
    return [rest[np.sort(np.concatenate([empty, *part]))] for part in parts]


PARTITIONS.register(
    "dominant",
    SchemeKind(
        "dominant:S%",
        "S percent of a client's records are from all classes, the rest from its dominant ones",
        parse_dominant,
    ),
)
