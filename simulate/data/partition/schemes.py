"""Partition schemes by name: the text of ``--partition`` to the records of each client.

A scheme of the project is registered by a module of this package; other packages
register theirs in the entry-point group ``privplan.partitions``. Privacy groups are
drawn first and independently of the data, unless the scheme is ``by-class``.
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
    # The person that each training record is from [n]; None when the data names no
    # people.
    people: np.ndarray | None = None

    @property
    def clients(self) -> int:
        """Number of clients of all groups."""
        return sum(len(members) for members in self.members)

    def generator(self) -> np.random.Generator:
        """The random stream of the partition, from its start."""
        return stream(self.seed, Purpose.PARTITION)

    def stored(self, records: Sequence[np.ndarray]) -> Partition:
        """The partition in which client i has the i-th array of records."""
        starts = np.concatenate([[0], np.cumsum([len(rows) for rows in records])])
        order = np.concatenate(records).astype(np.int64)
        return Partition(order, starts.astype(np.int64), self.members)

    def require_records(self, per_client: int = 1) -> None:
        """Refuse more clients than there are records for."""
        if self.clients * per_client > len(self.labels):
            available = f"{len(self.labels)} training records"
            rule = f"must not exceed the {available} unless by iid:SIZE"
            if per_client > 1:
                rule += f", at {per_client} per client"
            raise InputError.one("groups.clients", rule, self.clients)


Assignment = Callable[[PartitionRequest], ClientPartition]
"""Assigns records to clients; raises InputError when the request does not fit."""


@dataclass(frozen=True)
class SchemeKind:
    """A kind of partition."""

    form: str  # how it is written
    meaning: str  # what it does, in one line
    # From the text after the colon (or "") to the assignment; raises ValueError for a
    # text that does not have the form.
    parse: Callable[[str], Assignment]
    # Whether clients share no record, for each text after the colon.
    disjoint: Callable[[str], bool] = lambda settings: True


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
    """Parse ``iid``, ``dirichlet:0.3`` and so on.

    Raises:
        InputError: no scheme is written like this.
    """
    name, colon, settings = text.partition(":")
    if PARTITIONS.has_exactly(name) and bool(colon) == bool(settings):
        kind = PARTITIONS.get(name)
        with suppress(ValueError):
            return Scheme(text, kind.parse(settings), kind.disjoint(settings))
    rule = f"must be {', '.join(forms())}"
    if PARTITIONS.has_exactly(name):
        kind = PARTITIONS.get(name)
        rule = f"must be {kind.form}: {kind.meaning}"
    raise InputError.one("partition", rule, text)


def partition(
    chosen: Scheme,
    labels: np.ndarray,
    groups: Sequence[GroupPlan],
    seed: int,
    people: np.ndarray | None = None,
) -> ClientPartition:
    """Assign records to the clients of a plan.

    Args:
        chosen: the scheme.
        labels: label of each training record [n].
        groups: the plan's groups, whose numbers of clients count here.
        seed: the run's seed.
        people: the person that each training record is from [n], if the data says.

    Raises:
        InputError: the scheme does not fit the data or the groups.
    """
    # Which clients are in which group is drawn without a look at the data.
    group_sizes = [group.clients for group in groups]
    shuffled = stream(seed, Purpose.GROUPS).permutation(sum(group_sizes))
    cuts = np.cumsum(group_sizes)[:-1]
    members = tuple(np.sort(clients) for clients in np.split(shuffled, cuts))
    names = tuple(group.name for group in groups)
    return chosen.assign(PartitionRequest(labels, names, members, seed, people))


def positive_int(text: str) -> int:
    """A number from 1, in digits."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(text)
    return int(text)


def even_starts(records: int, pieces: int) -> np.ndarray:
    """Starts of parts whose sizes differ by at most one [parts + 1]."""
    return np.arange(pieces + 1, dtype=np.int64) * records // pieces


def require_disjoint(
    algorithm: str, chosen: Scheme, assigned: ClientPartition, total: int
) -> None:
    """Refuse clients that share records.

    Algorithms with one budget per client's records protect a record only once.
    """
    record = first_shared_record(assigned, total)
    if record is not None:
        rule = (
            f"must leave each record with one client for {algorithm}, which protects "
            f"records; several hold record {record}, and each would spend a whole "
            "budget on it"
        )
        raise InputError.one("partition", rule, chosen.text)


# Partitions without skew by design: even and random, drawn by each client, or by
# person.


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
    """Each client is one person with all of its records.

    If the data names more people than there are clients, the people are drawn.
    """
    if request.people is None:
        rule = "must not be natural for a data set that names no people"
        raise InputError.one("partition", rule, "natural")
    names, person = np.unique(request.people, return_inverse=True)
    if request.clients > len(names):
        people = f"{len(names)} people of the data set's training records"
        rule = f"must not exceed the {people}"
        raise InputError.one("groups.clients", rule, request.clients)

    chosen = request.generator().permutation(len(names))[: request.clients]
    order = np.argsort(person, kind="stable")
    ends = np.cumsum(np.bincount(person))
    records_by_person = np.split(order, ends[:-1])
    records = [records_by_person[index] for index in chosen]
    return replace(request.stored(records), people=names[chosen])


# Labels that only the clients of one privacy group hold: the strongest correlation of
# budgets.


def assign_by_class(
    request: PartitionRequest, group: str, exclusive: tuple[int, ...]
) -> Partition:
    """Only one group holds some labels; others fill it up to its share of all records.

    Args:
        request: what to partition.
        group: name of the group.
        exclusive: the labels that no other group holds.

    Raises:
        InputError: there is no such group or label, or a client would have no record.
    """
    request.require_records()
    if group not in request.names:
        rule = f"must name one of the groups {', '.join(request.names)}"
        raise InputError.one("partition", rule, group)
    absent = [label for label in exclusive if label not in request.labels]
    if absent:
        raise InputError.one("partition", "must name labels of the data set", absent[0])

    inside = request.members[request.names.index(group)]
    outside = np.setdiff1d(np.arange(request.clients), inside)

    # The group's share of all records is in proportion to its clients.
    generator = request.generator()
    is_exclusive = np.isin(request.labels, exclusive)
    exclusive_records = generator.permutation(np.flatnonzero(is_exclusive))
    free_records = generator.permutation(np.flatnonzero(~is_exclusive))
    share = len(request.labels) * len(inside) // request.clients
    filled = max(0, share - len(exclusive_records))

    group_records = np.concatenate([exclusive_records, free_records[:filled]])
    other_records = free_records[filled:]
    if len(group_records) < len(inside) or len(other_records) < len(outside):
        rule = "must leave each client at least one record"
        raise InputError.one("partition", rule, f"by-class:{group}={exclusive}")

    records: list[np.ndarray] = [np.empty(0, np.int64)] * request.clients
    _deal(generator.permutation(group_records), np.sort(inside), records)
    _deal(other_records, outside, records)
    return request.stored(records)


def _deal(pool: np.ndarray, clients: np.ndarray, records: list[np.ndarray]) -> None:
    """Give each client a piece of the records; the sizes differ by at most one."""
    cuts = even_starts(len(pool), max(1, len(clients)))[1:-1]
    # Without clients there is one piece, which is empty.
    for client, piece in zip(clients, np.split(pool, cuts), strict=False):
        records[client] = piece


# Label skew: Dirichlet mixes, a fixed number of classes, and dominant classes per
# client.
#
# Sources: T.-M. H. Hsu, H. Qi, M. Brown, Measuring the Effects of Non-Identical Data
# Distribution (2019), for ``dirichlet``; the experiments of DP2-FedSAM (Section VI) for
# ``pathological``; the experiments of HyperFL (Appendix D.1) for ``dominant``.

# Added to the probability of each label, so that a client whose mix has only exhausted
# labels still draws records: then all remaining labels are equally likely.
_LEAST_ODDS = 1e-12


def assign_dirichlet(request: PartitionRequest, alpha: float) -> Partition:
    """Clients of equal size with Dirichlet label mixes; exhausted labels leave the mix.

    Args:
        request: what to partition.
        alpha: concentration of the symmetric Dirichlet distribution, above 0.
    """
    request.require_records()
    generator = request.generator()
    pools = _LabelPools(request.labels, generator)
    starts = even_starts(len(request.labels), request.clients)
    records = []
    for size in np.diff(starts):
        mix = generator.dirichlet(np.full(len(pools.records), alpha))
        records += pools.draw(mix, size)
    return Partition(np.concatenate(records), starts, request.members)


class _LabelPools:
    """The records of each label in random order; clients take the next of them."""

    def __init__(self, labels: np.ndarray, generator: np.random.Generator) -> None:
        self.records = [
            generator.permutation(np.flatnonzero(labels == label))
            for label in np.unique(labels)
        ]
        self._remaining = np.array([len(pool) for pool in self.records])
        self._generator = generator

    def draw(self, mix: np.ndarray, size: int) -> list[np.ndarray]:
        """Records of one client.

        Args:
            mix: probability of each label.
            size: number of records, at most those that remain.
        """
        records = []
        # A draw may ask for more records of a label than remain; what it lacks is drawn
        # again from the other labels.
        while size > 0:
            odds = (mix + _LEAST_ODDS) * (self._remaining > 0)
            counts = self._generator.multinomial(size, odds / odds.sum())
            counts = np.minimum(counts, self._remaining)
            for index in np.flatnonzero(counts):
                pool = self.records[index]
                start = len(pool) - self._remaining[index]
                records.append(pool[start : start + counts[index]])
            self._remaining = self._remaining - counts
            size -= int(counts.sum())
        return records


def assign_pathological(
    request: PartitionRequest, clients: int | None, classes: int
) -> Partition:
    """Exactly ``classes`` classes per client, each cut evenly among its clients.

    A class has clients in proportion to its records, so clients are nearly equal in
    size when classes are. The records of a class are unused only when there are more
    classes than N times S.

    Args:
        request: what to partition.
        clients: number of clients (N), to be that of the plan; None to leave it out.
        classes: classes of each client (S).

    Raises:
        InputError: another number of clients, or too few records or classes.
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

    # A piece of each class for each of its holders.
    pieces = []
    for label, parts in zip(names, holders, strict=True):
        pool = generator.permutation(np.flatnonzero(request.labels == label))
        pieces.append(np.split(pool, even_starts(len(pool), max(1, int(parts)))[1:-1]))

    # A client takes a piece of the classes with most remaining pieces, ties at random,
    # so that no client lacks classes later.
    records = []
    for _ in range(request.clients):
        by_remaining = np.lexsort((generator.random(len(names)), -holders))
        client_classes = by_remaining[:classes]
        holders[client_classes] -= 1
        parts = [pieces[index][holders[index]] for index in client_classes]
        records.append(np.concatenate(parts))
    order = generator.permutation(request.clients)
    return request.stored([records[index] for index in order])


def _holders(sizes: np.ndarray, clients: int, classes: int) -> np.ndarray | None:
    """Number of clients that hold each class, in proportion to its records.

    Args:
        sizes: records of each class.
        clients: number of clients.
        classes: classes of each client.

    Returns:
        The numbers, with the sum clients * classes; None when there is no such choice.
    """
    # A class has at most a holder per record, and each client at most once.
    limits = np.minimum(sizes, clients)
    if limits.sum() < clients * classes or len(sizes) < classes:
        return None

    # Shares are rounded down and cut at the limits. What is missing is shared again
    # among the classes below their limits, at last one each in the order of their
    # shares.
    holders = np.zeros(len(sizes), np.int64)
    while (missing := clients * classes - holders.sum()) > 0:
        is_open = holders < limits
        share = np.where(is_open, sizes, 0) * missing / sizes[is_open].sum()
        added = np.minimum(np.floor(share).astype(np.int64), limits - holders)
        if not added.any():
            by_share = np.argsort(-np.where(is_open, share, -1.0), kind="stable")
            added[by_share[: min(missing, is_open.sum())]] = 1
        holders += added
    return holders


CHARACTERS = (range(10), range(10, 36), range(36, 62))
"""Digits, capital and small letters, in the order of EMNIST's labels."""


def dominant_sets(classes: int) -> list[np.ndarray]:
    """Dominant classes: three from every second class on, or kinds of characters."""
    if classes == CHARACTERS[-1].stop:
        return [np.array(kind) for kind in CHARACTERS]
    sets = []
    for start in range(0, classes, 2):
        sets.append(np.unique(np.arange(start, start + 3) % classes))
    return sets


def assign_dominant(request: PartitionRequest, share: float) -> Partition:
    """Clients with a share of records of all classes, the others of dominant classes.

    Sets of dominant classes are assigned evenly to clients. A class in several sets is
    divided evenly among them. Clients have equal sizes. The size is the largest for
    which every set has enough records; the remaining records are not used.

    Args:
        request: what to partition.
        share: part of a client's records that is from all classes, in [0, 1].

    Raises:
        InputError: some client would have no record.
    """
    request.require_records()
    generator = request.generator()
    mixed = generator.permutation(len(request.labels))
    dominant = dominant_sets(int(request.labels.max()) + 1)
    set_of_client = generator.permutation(request.clients) % len(dominant)
    clients_of_set = np.bincount(set_of_client, minlength=len(dominant))

    def pools(size: int) -> list[np.ndarray] | None:
        """Records of each set for clients of ``size`` records; None if too few."""
        uniform = round(share * size)
        remaining = mixed[uniform * request.clients :]
        records_of_sets = _records_by_set(
            remaining, request.labels[remaining], dominant
        )
        required = clients_of_set * (size - uniform)
        lengths = np.array([len(set_rows) for set_rows in records_of_sets])
        if (lengths >= required).all():
            return records_of_sets
        return None

    available = len(request.labels) // request.clients
    size = _largest(lambda size: pools(size) is not None, available)
    chosen = pools(size)
    if size == 0 or chosen is None:
        rule = "must leave each client a record of its dominant classes"
        raise InputError.one("partition", rule, f"dominant:{100 * share:g}")
    return request.stored(_dominated(mixed, chosen, set_of_client, size, share))


def _largest(suffices: Callable[[int], bool], limit: int) -> int:
    """The largest number up to a limit that suffices, by bisection, or 0."""
    low = 0
    high = limit
    while low < high:
        middle = (low + high + 1) // 2
        if suffices(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _records_by_set(
    records: np.ndarray, labels: np.ndarray, dominant: list[np.ndarray]
) -> list[np.ndarray]:
    """The records of each set of classes; a record goes to one set with its class."""
    rows: list[list[np.ndarray]] = []
    for _ in dominant:
        rows.append([np.empty(0, np.int64)])
    for label in np.unique(labels):
        containing = [index for index, kind in enumerate(dominant) if label in kind]
        label_rows = np.flatnonzero(labels == label)
        for turn, index in enumerate(containing):
            rows[index].append(label_rows[turn :: len(containing)])
    return [records[np.sort(np.concatenate(set_rows))] for set_rows in rows]


def _dominated(
    mixed: np.ndarray,
    pools: list[np.ndarray],
    set_of_client: np.ndarray,
    size: int,
    share: float,
) -> list[np.ndarray]:
    """Each client's records: the next from all classes, then the next of its set."""
    uniform = round(share * size)
    used = np.zeros(len(pools), np.int64)
    records = []
    for client, index in enumerate(set_of_client):
        dominated = pools[index][used[index] : used[index] + size - uniform]
        used[index] += len(dominated)
        mixture = mixed[client * uniform : (client + 1) * uniform]
        records.append(np.concatenate([mixture, dominated]))
    return records


# The schemes by name, and how the text after the colon is read.


def _parse(name: str, settings: str) -> Assignment:
    """The assignment of a scheme of this module; ValueError for another form."""
    match name:
        case "iid" if settings:
            return partial(assign_drawn, size=positive_int(settings))
        case "iid":
            return assign_even
        case "natural" if not settings:
            return assign_natural
        case "by-class":
            group, _, labels = settings.rpartition("=")
            exclusive = tuple(sorted({int(label) for label in labels.split(",")}))
            if group and exclusive[0] >= 0:
                return partial(assign_by_class, group=group, exclusive=exclusive)
        case "dirichlet":
            alpha = float(settings)
            if 0 < alpha < math.inf:
                return partial(assign_dirichlet, alpha=alpha)
        case "pathological":
            *clients, classes = map(positive_int, settings.split(","))
            if len(clients) < 2:
                plan_clients = clients[0] if clients else None
                return partial(
                    assign_pathological, clients=plan_clients, classes=classes
                )
        case "dominant":
            percentage = float(settings.removesuffix("%"))
            if 0 <= percentage <= 100:
                return partial(assign_dominant, share=percentage / 100)
    raise ValueError(settings)


def _is_disjoint(name: str, settings: str) -> bool:
    """Whether clients share no record: ``iid:SIZE`` draws for each client afresh."""
    return name != "iid" or not settings


for _form, _meaning in (
    (
        "iid or iid:SIZE",
        "records spread evenly; with SIZE each client draws that many, and clients may "
        "share them",
    ),
    (
        "natural",
        "each client is a person of the data set (writer, role), drawn at random if "
        "there are more",
    ),
    (
        "by-class:GROUP=LABEL,LABEL",
        "one privacy group alone holds the labels (numbers), filled up to its share of "
        "records",
    ),
    (
        "dirichlet:ALPHA",
        "label mixes from a Dirichlet distribution, ALPHA above 0; the smaller, the "
        "more skewed",
    ),
    (
        "pathological:N,S or pathological:S",
        "each of the plan's N clients holds S classes, no more",
    ),
    (
        "dominant:S%",
        "S percent of a client's records are from all classes, the rest from its "
        "dominant ones",
    ),
):
    _name = re.split("[: ]", _form)[0]
    _kind = SchemeKind(
        _form, _meaning, partial(_parse, _name), partial(_is_disjoint, _name)
    )
    PARTITIONS.register(_name, _kind)
