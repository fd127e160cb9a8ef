"""What a scheme is given, what it gives back, and the row that describes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privplan.errors import InputError
from simulate.data.partition.clients import ClientPartition, Partition
from simulate.engine.seeds import Purpose, stream


@dataclass(frozen=True)
class PartitionRequest:
    """Records to be dealt to clients.

    Attributes:
        labels: label of each training record [n].
        names: names of the plan's groups.
        members: the clients of each group.
        seed: the run's seed.
        people: the person that each training record is from [n]; None when nobody knows.
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
        """The stream that deals records, from its start."""
        return stream(self.seed, Purpose.PARTITION)

    def written(self, order: np.ndarray, starts: np.ndarray) -> Partition:
        """A partition from the clients' records one after the other, and where each begins."""
        return Partition(order.astype(np.int64), starts, self.members)

    def require_records(self, a_client: int = 1) -> None:
        """Refuse more clients than there are records for.

        Args:
            a_client: the least number of records that a client holds.

        Raises:
            InputError: when they do not suffice.
        """
        if self.clients * a_client > len(self.labels):
            most = f"{len(self.labels)} training records of the data set"
            rule = f"must not exceed the {most}"
            if a_client > 1:
                rule += f", at {a_client} a client"
            raise InputError.one("groups.clients", rule, self.clients)


Assignment = Callable[[PartitionRequest], ClientPartition]
"""Deals records to clients; raises InputError when the scheme does not fit the problem."""


@dataclass(frozen=True)
class SchemeKind:
    """A row of the table of schemes.

    Attributes:
        form: how a person writes it.
        meaning: what it does, in one line.
        read: from what follows the colon to the dealing function; raises ValueError for a text
            that does not fit the form.
    """

    form: str
    meaning: str
    read: Callable[[str], Assignment]


def whole(text: str) -> int:
    """A number from 1, in digits.

    Raises:
        ValueError: for any other text.
    """
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(text)
    return int(text)


def even(records: int, parts: int) -> np.ndarray:
    """Starts of parts whose sizes differ by at most one [parts + 1]."""
    return np.arange(parts + 1, dtype=np.int64) * records // parts


def in_order(records: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Each client's records, as the clients' records one after the other and their starts."""
    starts = np.concatenate([[0], np.cumsum([len(part) for part in records])])
    return np.concatenate(records), starts.astype(np.int64)
