"""Partition schemes by name: the text of ``--partition`` to the records of each client.

A scheme of the project is registered by a module of this package; other packages register theirs
in the entry-point group ``privplan.partitions``. Privacy groups are drawn first and independently
of the data, unless the scheme is ``by-class``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from privplan.errors import InputError
from privplan.plan import GroupPlan
from privplan.registry import Registry, instance_of
from privplan.streams import Purpose, stream
from simulate.data.partition.clients import (
    ClientPartition,
    LazyPartition,
    Partition,
    first_shared_record,
)


@dataclass(frozen=True)
class PartitionRequest:
    """Arguments of a partition."""

    labels: np.ndarray  # label of each training record [n]
    names: tuple[str, ...]  # names of the plan's groups
    members: tuple[np.ndarray, ...]  # the clients of each group
    seed: int  # the run's seed
    # the person that each training record is from [n]; None when the data set does not name people
    people: np.ndarray | None = None

    @property
    def clients(self) -> int:
        """Number of clients of all groups."""
        return sum(len(part) for part in self.members)

    def generator(self) -> np.random.Generator:
        """The random stream of the partition, from its start."""
        return stream(self.seed, Purpose.PARTITION)

    def stored(self, records: Sequence[np.ndarray]) -> Partition:
        """The partition in which client i has the i-th array of records."""
        starts = np.concatenate([[0], np.cumsum([len(part) for part in records])])
        order = np.concatenate(records).astype(np.int64)
        return Partition(order, starts.astype(np.int64), self.members)

    def require_records(self, per_client: int = 1) -> None:
        """Refuse more clients than there are records for."""
        if self.clients * per_client > len(self.labels):
            rule = f"must not exceed the {len(self.labels)} training records unless by iid:SIZE"
            if per_client > 1:
                rule += f", at {per_client} per client"
            raise InputError.one("groups.clients", rule, self.clients)


Assignment = Callable[[PartitionRequest], ClientPartition]
"""Assigns records to clients; raises InputError when the scheme does not fit the request."""


@dataclass(frozen=True)
class SchemeKind:
    """A kind of partition."""

    form: str  # how it is written
    meaning: str  # what it does, in one line
    # from the text after the colon (or "") to the assignment; raises ValueError for a text that
    # does not have the form
    parse: Callable[[str], Assignment]
    # whether clients share no record, for each text after the colon
    disjoint: Callable[[str], bool] = lambda rest: True


PARTITIONS: Registry[SchemeKind] = Registry(
    "partition",
    "privplan.partitions",
    "simulate.data.partition",
    instance_of(SchemeKind),
)


def forms() -> dict[str, str]:
    """Every way to write a scheme, with its meaning, by name; for messages and help."""
    return {kind.form: kind.meaning for _, kind in sorted(PARTITIONS.items())}


@dataclass(frozen=True)
class Scheme:
    """A parsed partition scheme."""

    text: str  # as written; part of a run's identity
    assign: Assignment
    disjoint: bool = True  # whether clients share no record by construction


def scheme(text: str) -> Scheme:
    """Parse ``iid``, ``dirichlet:0.3`` and so on."""
    name, colon, rest = text.partition(":")
    if PARTITIONS.has_exactly(name) and bool(colon) == bool(rest):
        kind = PARTITIONS.get(name)
        with suppress(ValueError):
            return Scheme(text, kind.parse(rest), kind.disjoint(rest))
    raise InputError.one("partition", f"must be {', '.join(forms())}", text)


def partition(
    chosen: Scheme,
    labels: np.ndarray,
    groups: Sequence[GroupPlan],
    seed: int,
    people: np.ndarray | None = None,
) -> ClientPartition:
    """Assign records to the clients of a plan."""
    shuffled = stream(seed, Purpose.GROUPS).permutation(
        sum(group.clients for group in groups)
    )
    cuts = np.cumsum([group.clients for group in groups])[:-1]
    members = tuple(np.sort(part) for part in np.split(shuffled, cuts))
    names = tuple(group.name for group in groups)
    return chosen.assign(PartitionRequest(labels, names, members, seed, people))


def positive_int(text: str) -> int:
    """A number from 1, in digits."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(text)
    return int(text)


def even_starts(records: int, parts: int) -> np.ndarray:
    """Starts of parts whose sizes differ by at most one [parts + 1]."""
    return np.arange(parts + 1, dtype=np.int64) * records // parts


def require_disjoint(
    algorithm: str, chosen: Scheme, assigned: ClientPartition, total: int
) -> None:
    """Refuse clients that share records, for algorithms with one budget per client's records."""
    record = first_shared_record(assigned, total)
    if record is not None:
        rule = (
            f"must leave each record with one client for {algorithm}, which protects records; "
            f"several hold record {record}, and each would spend a whole budget on it"
        )
        raise InputError.one("partition", rule, chosen.text)


# --- Partitions without skew by design: even and random, drawn by each client, or by person. -----


def assign_even(request: PartitionRequest) -> Partition:
    """All records in random order, in parts whose sizes differ by at most one."""
    request.require_records()
    order = request.generator().permutation(len(request.labels))
    return Partition(order, even_starts(len(order), request.clients), request.members)


def assign_drawn(request: PartitionRequest, size: int) -> LazyPartition:
    """Each client draws ``size`` distinct records; clients may share records."""
    if size > len(request.labels):
        rule = f"must not exceed the {len(request.labels)} training records in iid:SIZE"
        raise InputError.one("partition", rule, size)
    return LazyPartition(len(request.labels), size, request.seed, request.members)


def assign_natural(request: PartitionRequest) -> Partition:
    """Each client is one person with all of its records; of too many people some are drawn."""
    if request.people is None:
        rule = "must not be natural for a data set that names no people"
        raise InputError.one("partition", rule, "natural")
    names, person = np.unique(request.people, return_inverse=True)
    if request.clients > len(names):
        rule = f"must not exceed the {len(names)} people of the data set's training records"
        raise InputError.one("groups.clients", rule, request.clients)
    chosen = request.generator().permutation(len(names))[: request.clients]
    records = np.split(
        np.argsort(person, kind="stable"), np.cumsum(np.bincount(person))[:-1]
    )
    return replace(
        request.stored([records[one] for one in chosen]), people=names[chosen]
    )


# --- Labels that only the clients of one privacy group hold: the strongest correlation of budgets.


def assign_by_class(
    request: PartitionRequest, group: str, exclusive: tuple[int, ...]
) -> Partition:
    """Only one group holds some labels; other labels fill it up to its share of all records."""
    request.require_records()
    labels, clients, generator = request.labels, request.clients, request.generator()
    if group not in request.names:
        rule = f"must name one of the groups {', '.join(request.names)}"
        raise InputError.one("partition", rule, group)
    absent = [label for label in exclusive if label not in labels]
    if absent:
        raise InputError.one("partition", "must name labels of the data set", absent[0])
    named = np.isin(labels, exclusive)
    inside = request.members[request.names.index(group)]
    outside = np.setdiff1d(np.arange(clients), inside)
    own = generator.permutation(np.flatnonzero(named))
    others = generator.permutation(np.flatnonzero(~named))
    filled = max(0, len(labels) * len(inside) // clients - len(own))
    if len(own) + filled < len(inside) or len(others) - filled < len(outside):
        rule = "must leave each client at least one record"
        raise InputError.one("partition", rule, f"by-class:{group}={exclusive}")
    pool = generator.permutation(np.concatenate([own, others[:filled]]))
    records: list[np.ndarray] = [np.empty(0, np.int64)] * clients
    for part, holders in ((pool, np.sort(inside)), (others[filled:], outside)):
        cuts = even_starts(len(part), max(1, len(holders)))[1:-1]
        for client, piece in zip(holders, np.split(part, cuts), strict=False):
            records[client] = piece
    return request.stored(records)


# -------------------------------------------------------------------------------------------------
# Label skew: Dirichlet mixes, a fixed number of classes, and dominant classes per client.
#
# Sources: T.-M. H. Hsu, H. Qi, M. Brown, Measuring the Effects of Non-Identical Data Distribution
# (2019), for ``dirichlet``; the experiments of DP2-FedSAM (Section VI) for ``pathological``; the
# experiments of HyperFL (Appendix D.1) for ``dominant``.


def assign_dirichlet(request: PartitionRequest, alpha: float) -> Partition:
    """Clients of equal size with Dirichlet label mixes; exhausted labels leave the mix."""
    request.require_records()
    labels, generator = request.labels, request.generator()
    names = np.unique(labels)
    pools = [generator.permutation(np.flatnonzero(labels == name)) for name in names]
    used, sizes = (
        np.zeros(len(names), np.int64),
        np.array([len(pool) for pool in pools]),
    )
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


def assign_pathological(
    request: PartitionRequest, clients: int | None, classes: int
) -> Partition:
    """Exactly ``classes`` classes per client; each class is cut evenly among its clients.

    A class has clients in proportion to its records, so clients are nearly equal in size when
    classes are. The records of a class are unused only when there are more classes than N times S.
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
    return request.stored(
        [records[one] for one in generator.permutation(request.clients)]
    )


def _holders(sizes: np.ndarray, clients: int, classes: int) -> np.ndarray | None:
    """Number of clients that hold each class, in proportion to its records."""
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


CHARACTERS = (range(10), range(10, 36), range(36, 62))
"""Digits, capital and small letters, in the order of EMNIST's labels."""


def dominant_sets(classes: int) -> list[np.ndarray]:
    """Sets of dominant classes: three from every second class on, or the kinds of characters."""
    if classes == 62:
        return [np.array(kind) for kind in CHARACTERS]
    return [
        np.unique(np.arange(first, first + 3) % classes)
        for first in range(0, classes, 2)
    ]


def assign_dominant(request: PartitionRequest, share: float) -> Partition:
    """Clients of equal size with a share of records of all classes, the rest of dominant classes.

    Sets of dominant classes are assigned evenly to clients. A class in several sets is divided
    evenly among them. The size is the largest for which every set has enough records; the
    remaining records are not used.
    """
    request.require_records()
    labels, generator = request.labels, request.generator()
    mixed = generator.permutation(len(labels))
    dominant = dominant_sets(int(labels.max()) + 1)
    own = generator.permutation(request.clients) % len(dominant)
    users = np.bincount(own, minlength=len(dominant))

    def pools(size: int) -> list[np.ndarray] | None:
        """Records of each set for clients of ``size`` records; None when they do not suffice."""
        uniform = round(share * size)
        rest = mixed[uniform * request.clients :]
        classes = labels[rest]
        rows: list[list[np.ndarray]] = [[np.empty(0, np.int64)] for _ in dominant]
        for label in np.unique(
            classes
        ):  # each record goes to one of the sets with its class
            containing = [index for index, kind in enumerate(dominant) if label in kind]
            for turn, index in enumerate(containing):
                rows[index].append(
                    np.flatnonzero(classes == label)[turn :: len(containing)]
                )
        parts = [rest[np.sort(np.concatenate(part))] for part in rows]
        needed = users * (size - uniform)
        return (
            parts
            if all(len(p) >= n for p, n in zip(parts, needed, strict=True))
            else None
        )

    low, high = 0, len(labels) // request.clients
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if pools(middle) is not None else (low, middle - 1)
    chosen = pools(low)
    if low == 0 or chosen is None:
        rule = "must leave each client a record of its dominant classes"
        raise InputError.one("partition", rule, f"dominant:{100 * share:g}")
    uniform, used, records = round(share * low), np.zeros(len(dominant), np.int64), []
    for client, kind in enumerate(own):
        dominated = chosen[kind][used[kind] : used[kind] + low - uniform]
        used[kind] += len(dominated)
        mixture = mixed[client * uniform : (client + 1) * uniform]
        records.append(np.concatenate([mixture, dominated]))
    return request.stored(records)


# --- The schemes by name, and how the text after the colon is read. ------------------------------


def _parse(name: str, rest: str) -> Assignment:
    match name:
        case "iid":
            return (
                partial(assign_drawn, size=positive_int(rest)) if rest else assign_even
            )
        case "natural" if not rest:
            return assign_natural
        case "by-class":
            group, _, labels = rest.rpartition("=")
            exclusive = tuple(sorted({int(label) for label in labels.split(",")}))
            if group and exclusive[0] >= 0:
                return partial(assign_by_class, group=group, exclusive=exclusive)
        case "dirichlet":
            if 0 < (alpha := float(rest)) < math.inf:
                return partial(assign_dirichlet, alpha=alpha)
        case "pathological":
            *clients, classes = map(positive_int, rest.split(","))
            if len(clients) < 2:
                clients_ = clients[0] if clients else None
                return partial(assign_pathological, clients=clients_, classes=classes)
        case "dominant":
            if 0 <= (share := float(rest.removesuffix("%"))) <= 100:
                return partial(assign_dominant, share=share / 100)
    raise ValueError(rest)


for _form, _meaning in (
    (
        "iid or iid:SIZE",
        "records spread evenly; with SIZE each client draws that many, and clients may share them",
    ),
    (
        "natural",
        "each client is a person of the data set (writer, role), drawn at random if there are more",
    ),
    (
        "by-class:GROUP=LABEL,LABEL",
        "one privacy group alone holds the labels (numbers), filled up to its share of records",
    ),
    (
        "dirichlet:ALPHA",
        "label mixes from a Dirichlet distribution, ALPHA above 0; the smaller, the more skewed",
    ),
    (
        "pathological:N,S or pathological:S",
        "each of the plan's N clients holds S classes, no more",
    ),
    (
        "dominant:S%",
        "S percent of a client's records are from all classes, the rest from its dominant ones",
    ),
):
    _name = re.split("[: ]", _form)[0]
    _disjoint = (lambda rest: not rest) if _name == "iid" else (lambda rest: True)
    PARTITIONS.register(
        _name, SchemeKind(_form, _meaning, partial(_parse, _name), _disjoint)
    )
