"""Partitions as values: indices of each client's training records, never copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, cast

import numpy as np

from privplan.laws.law import Clients
from privplan.plan import Plan
from privplan.streams import Purpose, key_of_client, stream, streams

Parts = tuple[int, ...]

# Most indices of records that are kept once they are drawn: 8 MB.
KEPT_INDICES = 2**20
# Index of a record that is not drawn yet.
UNDRAWN = -1


class ClientPartition(Protocol):
    """The training records of each client; clients are numbered from 0."""

    @property
    def members(self) -> tuple[np.ndarray, ...]:
        """The clients of each group of the plan, in its order.

        Within a group a client's position is its place in the sampling law.
        """

    @property
    def seats(self) -> tuple[int, ...]:
        """The number of clients of each group, with turns; empty before ``seated``."""

    def records(self, client: int) -> np.ndarray:
        """Indices of a client's training records; at least one."""

    def records_of(self, clients: np.ndarray) -> list[np.ndarray]:
        """``records`` of each of some clients, in less time than one by one."""

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        """Number of records of each of some clients [len(clients)]."""

    def stream_keys(self, clients: np.ndarray) -> np.ndarray:
        """What stands for each of some clients in its random streams [len(clients)].

        It depends on nothing but the client itself, so that nobody's presence changes
        what another client draws.
        """

    def person(self, client: int) -> int | None:
        """The data set's number of a client's person; None for synthetic clients."""

    def label_distribution(
        self, clients: Iterable[int], labels: np.ndarray, classes: int
    ) -> np.ndarray:
        """Share of each class among the records of some clients [classes]."""


def first_shared_record(partition: ClientPartition, total: int) -> int | None:
    """The first record of more than one client; None where clients share no record."""
    seen = np.zeros(total, dtype=bool)
    for client in np.concatenate(partition.members):
        records = partition.records(int(client))
        repeated = records[seen[records]]
        if repeated.size:
            return int(repeated[0])
        seen[records] = True
    return None


@dataclass(frozen=True)
class Partition:
    """A partition stored as an array; no two clients share a record."""

    order: np.ndarray  # indices of records, client after client [at most n]
    starts: np.ndarray  # where each client's records begin in ``order`` [clients + 1]
    members: tuple[np.ndarray, ...]
    people: np.ndarray | None = None  # the person that each client is [clients], if any
    seats: tuple[int, ...] = ()
    names: tuple[np.ndarray, ...] | None = (
        None  # of the clients of each group; None for numbers
    )

    def records(self, client: int) -> np.ndarray:
        """As ``ClientPartition.records``."""
        records: np.ndarray = self.order[self.starts[client] : self.starts[client + 1]]
        return records

    def records_of(self, clients: np.ndarray) -> list[np.ndarray]:
        """As ``ClientPartition.records_of``."""
        starts = self.starts[clients].tolist()
        ends = self.starts[clients + 1].tolist()
        pairs = zip(starts, ends, strict=True)
        return [self.order[start:end] for start, end in pairs]

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        """As ``ClientPartition.sizes``."""
        sizes: np.ndarray = np.diff(self.starts)[clients]
        return sizes

    def stream_keys(self, clients: np.ndarray) -> np.ndarray:
        """As ``ClientPartition.stream_keys``: of names, where clients have any."""
        if self._keys is None:
            return clients
        keys: np.ndarray = self._keys[clients]
        return keys

    @cached_property
    def _keys(self) -> np.ndarray | None:
        """The key of each client [clients]; None for clients that are only numbers."""
        if self.names is None:
            return None
        names = np.concatenate(self.names)
        return np.array([key_of_client(name) for name in names], np.int64)

    def person(self, client: int) -> int | None:
        """As ``ClientPartition.person``."""
        if self.people is None:
            return None
        return int(self.people[client])

    def label_distribution(
        self, clients: Iterable[int], labels: np.ndarray, classes: int
    ) -> np.ndarray:
        """As ``ClientPartition.label_distribution``, counted."""
        records = np.concatenate([self.records(client) for client in clients])
        shares: np.ndarray = np.bincount(labels[records], minlength=classes) / len(
            records
        )
        return shares


@dataclass(frozen=True)
class LazyPartition:
    """Records of each client drawn on request.

    Clients may share records. Records of few clients are kept, those of many are drawn
    each time, so that memory does not grow with their number.
    """

    total: int  # training records of the data set
    size: int  # records of each client
    seed: int  # the run's
    members: tuple[np.ndarray, ...]
    seats: tuple[int, ...] = ()

    def records(self, client: int) -> np.ndarray:
        """As ``ClientPartition.records``: distinct ones, from a stream per client."""
        generator = stream(self.seed, Purpose.PARTITION, int(client))
        return self._drawn(generator)

    def records_of(self, clients: np.ndarray) -> list[np.ndarray]:
        """As ``ClientPartition.records_of``."""
        rows = self._records_by_client
        if rows is None:
            return [self._drawn(source) for source in self._sources(clients)]
        missing = clients[rows[clients, 0] == UNDRAWN]
        for client, source in zip(missing, self._sources(missing), strict=True):
            rows[client] = self._drawn(source)
        return list(rows[clients])

    @cached_property
    def _records_by_client(self) -> np.ndarray | None:
        """Records of each client [clients, size], once drawn; None for many."""
        clients = sum(map(len, self.members))
        if clients * self.size > KEPT_INDICES:
            return None
        return np.full((clients, self.size), UNDRAWN)

    def _sources(self, clients: np.ndarray) -> Iterator[np.random.Generator]:
        """The generator of each client, until the next is asked for."""
        return streams(self.seed, Purpose.PARTITION, clients=clients)

    def _drawn(self, generator: np.random.Generator) -> np.ndarray:
        return generator.choice(self.total, self.size, replace=False)

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        """As ``ClientPartition.sizes``: equal for all clients."""
        return np.full(len(clients), self.size)

    def stream_keys(self, clients: np.ndarray) -> np.ndarray:
        """As ``ClientPartition.stream_keys``: their numbers."""
        return clients

    def person(self, client: int) -> int | None:
        """As ``ClientPartition.person``: None."""
        return None

    def label_distribution(
        self, clients: Iterable[int], labels: np.ndarray, classes: int
    ) -> np.ndarray:
        """As ``ClientPartition.label_distribution``: expected, that of the data set."""
        shares: np.ndarray = np.bincount(labels, minlength=classes) / len(labels)
        return shares


def seated(partition: ClientPartition, plan: Plan) -> ClientPartition:
    """The partition with the turns of its clients, as the sampling law seats them.

    Clients are seated by their names, or by their numbers in the group without names.
    """
    names = getattr(partition, "names", None)
    if names is None:
        names = [range(len(clients)) for clients in partition.members]

    seats = []
    members = []
    groups = zip(plan.groups, names, partition.members, strict=True)
    for group, group_names, clients in groups:
        group_seats, order = plan.law_of(group).law.seated(group.name, group_names)
        seats.append(group_seats)
        members.append(clients[order])
    stored = cast(Partition, partition)
    return replace(stored, members=tuple(members), seats=tuple(seats))


def parts_by_group(partition: ClientPartition, plan: Plan) -> dict[str, Parts]:
    """How many clients have each turn, by the name of each group that takes turns."""
    return {
        group.name: clients.parts
        for group, clients in zip(plan.groups, partition.seats, strict=False)
        if isinstance(clients, Clients)
    }


def client_arrays(partition: ClientPartition) -> dict[str, np.ndarray]:
    """The assignment of clients to groups and training records, as arrays."""
    sizes = [len(part) for part in partition.members]
    group = np.full(sum(sizes), -1, np.int64)
    group[np.concatenate(partition.members)] = np.repeat(np.arange(len(sizes)), sizes)
    if isinstance(partition, LazyPartition):
        empty = np.empty(0, np.int64)
        return {"group": group, "starts": empty, "records": empty}
    records = [partition.records(client) for client in range(len(group))]
    starts = np.concatenate([[0], np.cumsum([len(part) for part in records])])
    return {"group": group, "starts": starts, "records": np.concatenate(records)}
