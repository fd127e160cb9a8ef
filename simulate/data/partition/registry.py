"""Partition schemes by name: the text of ``--partition`` to the records of each client.

A scheme of the project is registered by a module of this package; other packages register theirs
in the entry-point group ``privplan.partitions``. Privacy groups are drawn first and independently
of the data, unless the scheme is ``by-class`` or ends in ``+correlated:RHO``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privplan.errors import InputError
from privplan.plan import GroupPlan
from privplan.registry import Registry
from simulate.data.partition.clients import ClientPartition, Partition, first_shared_record
from simulate.engine.seeds import Purpose, stream


@dataclass(frozen=True)
class PartitionRequest:
    """Arguments of a partition.

    Attributes:
        labels: label of each training record [n].
        names: names of the plan's groups.
        members: the clients of each group.
        seed: the run's seed.
        people: the person that each training record is from [n]; None when the data set does not
            name people.
    """

    labels: np.ndarray
    names: tuple[str, ...]
    members: tuple[np.ndarray, ...]
    seed: int
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
        """Refuse more clients than there are records for.

        Args:
            per_client: the least number of records of a client.

        Raises:
            InputError: when the data set has fewer records.
        """
        if self.clients * per_client > len(self.labels):
            rule = f"must not exceed the {len(self.labels)} training records of the data set"
            if per_client > 1:
                rule += f", at {per_client} per client"
            raise InputError.one("groups.clients", rule, self.clients)


Assignment = Callable[[PartitionRequest], ClientPartition]
"""Assigns records to clients; raises InputError when the scheme does not fit the request."""


@dataclass(frozen=True)
class SchemeKind:
    """A kind of partition.

    Attributes:
        form: how it is written.
        meaning: what it does, in one line.
        parse: from the text after the colon (or "") to the assignment; raises ValueError for a
            text that does not have the form.
        disjoint: whether clients share no record, for each text after the colon.
        correlatable: whether ``+correlated:RHO`` may follow.
    """

    form: str
    meaning: str
    parse: Callable[[str], Assignment]
    disjoint: Callable[[str], bool] = lambda rest: True
    correlatable: bool = True


def _checked(component: object) -> SchemeKind:
    if not isinstance(component, SchemeKind):
        raise TypeError("must be a SchemeKind")
    return component


PARTITIONS: Registry[SchemeKind] = Registry(
    "partition", "privplan.partitions", "simulate.data.partition", _checked
)
MARK = "+correlated:"


def forms() -> dict[str, str]:
    """Every way to write a scheme, with its meaning, by name; for messages and help."""
    suffix = "any of them but by-class, with groups that follow clients' labels, RHO from 0 to 1"
    return {kind.form: kind.meaning for _, kind in sorted(PARTITIONS.items())} | {
        f"SCHEME{MARK}RHO": suffix
    }


@dataclass(frozen=True)
class Scheme:
    """A parsed partition scheme.

    Attributes:
        text: the scheme as written; part of a run's identity.
        assign: the function that assigns records to clients.
        disjoint: whether clients share no record by construction.
        correlation: correlation of privacy groups with labels, from 0 to 1.
    """

    text: str
    assign: Assignment
    disjoint: bool = True
    correlation: float = 0.0


def scheme(text: str) -> Scheme:
    """Parse ``iid``, ``dirichlet:0.3``, ``shards:2+correlated:0.5`` and so on.

    Raises:
        InputError: when no registered scheme has this form.
    """
    base, mark, rho = text.partition(MARK)
    name, colon, rest = base.partition(":")
    if PARTITIONS.has_exactly(name) and bool(colon) == bool(rest):
        kind = PARTITIONS.get(name)
        try:
            correlation = float(rho) if mark else 0.0
            if 0 <= correlation <= 1 and (kind.correlatable or not mark):
                return Scheme(text, kind.parse(rest), kind.disjoint(rest), correlation)
        except ValueError:
            pass
    raise InputError.one("partition", f"must be {', '.join(forms())}", text)


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
        groups: the plan's groups; clients are numbered 0..sum of their sizes - 1.
        seed: the run's seed.
        people: the person that each training record is from [n]; None when the data set does not
            name people.

    Returns:
        The records of each client: at least one, and disjoint unless clients draw their records.

    Raises:
        InputError: when the data set does not suffice for the clients, or the scheme names a
            group or label that does not exist.
    """
    clients = sum(group.clients for group in groups)
    shuffled = stream(seed, Purpose.GROUPS).permutation(clients)
    cuts = np.cumsum([group.clients for group in groups])[:-1]
    members = tuple(np.sort(part) for part in np.split(shuffled, cuts))
    names = tuple(group.name for group in groups)
    request = PartitionRequest(labels, names, members, seed, people)
    assigned = chosen.assign(request)
    if not chosen.correlation:
        return assigned
    return assigned.regrouped(_correlated_members(request, assigned, chosen.correlation))


def _correlated_members(
    request: PartitionRequest, assigned: ClientPartition, rho: float
) -> tuple[np.ndarray, ...]:
    """Privacy groups that depend on the mean label of their clients.

    With strength 1 the plan's first group gets the clients with the lowest mean labels, the next
    group the next ones, and so on. Otherwise each client keeps its rank with probability
    ``rho``; the others exchange ranks at random.

    Args:
        request: the arguments of the partition.
        assigned: the records of each client.
        rho: strength from 0 to 1; at 0 the groups are those drawn independently of the data.

    Returns:
        Sorted numbers of clients, as many for each group as in ``request.members``.
    """
    clients = request.clients
    means = [request.labels[assigned.records(client)].mean() for client in range(clients)]
    ranked = np.argsort(means, kind="stable")
    free = stream(request.seed, Purpose.GROUPS, 1).random(clients) >= rho
    ranked[free] = stream(request.seed, Purpose.GROUPS).permutation(np.sort(ranked[free]))
    cuts = np.cumsum([len(part) for part in request.members])[:-1]
    return tuple(np.sort(part) for part in np.split(ranked, cuts))


def positive_int(text: str) -> int:
    """A number from 1, in digits.

    Raises:
        ValueError: for any other text.
    """
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(text)
    return int(text)


def even_starts(records: int, parts: int) -> np.ndarray:
    """Starts of parts whose sizes differ by at most one [parts + 1]."""
    return np.arange(parts + 1, dtype=np.int64) * records // parts


def require_disjoint(algorithm: str, chosen: Scheme, assigned: ClientPartition, total: int) -> None:
    """Refuse clients that share records, for algorithms with one budget per client's records.

    Args:
        algorithm: its name, for the message.
        chosen: the scheme, for the message.
        assigned: the records of each client.
        total: training records of the data set (n).

    Raises:
        InputError: when two clients share a record.
    """
    record = first_shared_record(assigned, total)
    if record is not None:
        rule = (
            f"must leave each record with one client for {algorithm}, which protects records; "
            f"several hold record {record}, and each would spend a whole budget on it"
        )
        raise InputError.one("partition", rule, chosen.text)
