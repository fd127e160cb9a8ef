"""Who holds which training records, as indices: no record is copied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from simulate.engine.seeds import Purpose, stream


class ClientPartition(Protocol):
    """What a run asks of a partition; clients are numbered from 0."""

    @property
    def members(self) -> tuple[np.ndarray, ...]:
        """The clients of each group, in the order of the plan's groups."""

    def records(self, client: int) -> np.ndarray:
        """Indices of the training records that a client holds; at least one."""

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        """How many records each of some clients holds [len(clients)]."""

    def person(self, client: int) -> int | None:
        """The data set's number of the person that a client is; None where clients are made up."""

    def mix(self, clients: Iterable[int], labels: np.ndarray, classes: int) -> np.ndarray:
        """Share of each class among the records of some clients [classes].

        Args:
            clients: their numbers.
            labels: label of each training record [n].
            classes: number of classes.
        """


def shared(held: ClientPartition, total: int) -> int | None:
    """A record that more than one client holds; None where each is at one client at most.

    Stops at the first that it finds: where clients draw their own, after few of them.

    Args:
        held: who holds which records.
        total: training records of the data set (n).
    """
    seen = np.zeros(total, dtype=bool)
    for client in np.concatenate(held.members):
        own = held.records(int(client))
        again = own[seen[own]]
        if again.size:
            return int(again[0])
        seen[own] = True
    return None


@dataclass(frozen=True)
class Partition:
    """A partition that is written out: each record at one client at most.

    Attributes:
        order: indices of records, client after client [at most n].
        starts: where each client's records begin in ``order`` [clients + 1].
        members: the clients of each group, in the order of the plan's groups.
        people: the person that each client is [clients]; None where clients are made up.
    """

    order: np.ndarray
    starts: np.ndarray
    members: tuple[np.ndarray, ...]
    people: np.ndarray | None = None

    def records(self, client: int) -> np.ndarray:
        """As ``Held.records``."""
        return self.order[self.starts[client] : self.starts[client + 1]]

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        """As ``Held.sizes``."""
        return np.diff(self.starts)[clients]

    def person(self, client: int) -> int | None:
        """As ``Held.person``."""
        return None if self.people is None else int(self.people[client])

    def mix(self, clients: Iterable[int], labels: np.ndarray, classes: int) -> np.ndarray:
        """As ``Held.mix``, counted."""
        held = np.concatenate([self.records(client) for client in clients])
        return np.bincount(labels[held], minlength=classes) / len(held)


@dataclass(frozen=True)
class Drawn:
    """A partition that is never written out: each client draws its records when asked.

    Any number of clients shares the records of one data set; what they hold needs no memory.

    Attributes:
        total: training records of the data set (n).
        size: records of each client.
        seed: the run's seed.
        members: the clients of each group, in the order of the plan's groups.
    """

    total: int
    size: int
    seed: int
    members: tuple[np.ndarray, ...]

    def records(self, client: int) -> np.ndarray:
        """As ``Held.records``: distinct records, from the client's own stream."""
        generator = stream(self.seed, Purpose.PARTITION, int(client))
        return generator.choice(self.total, self.size, replace=False)

    def sizes(self, clients: np.ndarray) -> np.ndarray:
        """As ``Held.sizes``: the same for all."""
        return np.full(len(clients), self.size)

    def person(self, client: int) -> int | None:
        """As ``Held.person``: nobody."""
        return None

    def mix(self, clients: Iterable[int], labels: np.ndarray, classes: int) -> np.ndarray:
        """As ``Held.mix``: what is expected of the draw, the data set's own mix."""
        return np.bincount(labels, minlength=classes) / len(labels)
