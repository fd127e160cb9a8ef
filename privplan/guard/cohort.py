"""The cohort of a round: drawn by the planned law from the registered clients."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import index
from typing import NamedTuple, cast

import numpy as np

from privplan.errors import InputError
from privplan.guidance import Guided
from privplan.plan import GroupPlan, Plan
from privplan.secure_stream import KEY_BYTES, SecureStream

Available = Mapping[str, Iterable[int]]
"""Positions of the clients that are there, by group; from 0 to the plan's clients - 1."""
_POSITIONS = (
    'must be positions of registered clients by group, such as {"strict": [0, 3]}'
)
Positions = dict[str, tuple[int, ...]]
"""Positions of clients, by group."""


class Stream(NamedTuple):
    """A random stream of a group whose choices last for several rounds."""

    first_round: int  # the first of these rounds
    key: bytes


Streams = dict[str, Stream]
"""By group."""


@dataclass(frozen=True)
class Cohort(Guided):
    """Who takes part in a round.

    Attributes:
        round: training round, from 1.
        clients: positions of the clients to train, by group: drawn and available.
        drawn: positions that the law drew from the registered clients, by group.
        missing: number of registered clients that were not available, by group.
        guarantee: what missing clients do to the guarantee, one sentence per group that
            misses some; empty when all are available.
    """

    round: int
    clients: Positions
    drawn: Positions
    missing: dict[str, int]
    guarantee: tuple[str, ...]

    def __len__(self) -> int:
        """Number of clients to train."""
        return sum(map(len, self.clients.values()))

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Group and position of every client to train."""
        return iter(self.members)

    @property
    def members(self) -> list[tuple[str, int]]:
        """Group and position of every client to train."""
        members = []
        for group, positions in self.clients.items():
            members += [(group, position) for position in positions]
        return members


def draw_registered(
    plan: Plan, round_: int, earlier_streams: Streams, last_drawn: int
) -> tuple[Positions, Streams]:
    """Draw each group's cohort by its law from all registered clients.

    Args:
        plan: whose laws draw.
        round_: from 1.
        earlier_streams: streams that earlier rounds began.
        last_drawn: the last round that drew; a stream that it used must be among them.

    Returns:
        The cohorts, and the streams that later rounds go on with.

    Raises:
        InputError: when a stream that an earlier round began is lost.
    """
    drawn: Positions = {}
    streams: Streams = {}
    for group in plan.groups:
        law = plan.law_of(group).law
        stream = Stream(law.stream_round(round_), secrets.token_bytes(KEY_BYTES))
        if stream.first_round <= last_drawn:
            earlier = earlier_streams.get(group.name)
            if earlier is None or earlier.first_round != stream.first_round:
                rule = (
                    "must be kept: it holds the draw that began in round "
                    f"{stream.first_round}"
                )
                raise InputError.one("guard.draw", rule, "no draw")
            stream = earlier

        # A secure stream has the methods of a generator that laws use.
        generator = cast(np.random.Generator, SecureStream(stream.key))
        ratio, _ = plan.at_round(group, round_)
        positions = law.draw(generator, group.clients, ratio, round_)
        drawn[group.name] = tuple(np.asarray(positions).tolist())
        if law.stream_round(round_ + 1) == stream.first_round:
            streams[group.name] = stream
    return drawn, streams


def cohort_of(
    plan: Plan, round_: int, drawn: Positions, available: Available | None
) -> Cohort:
    """The clients of a draw that are there.

    Args:
        plan: of the run.
        round_: training round, from 1.
        drawn: what the law drew from the registered clients.
        available: the clients that are there; all registered ones when None.

    Raises:
        InputError: for a group that the plan does not have, or a client that is not
            registered.
    """
    if available is None:
        nobody = dict.fromkeys(drawn, 0)
        return Cohort(round_, dict(drawn), drawn, missing=nobody, guarantee=())
    if not isinstance(available, Mapping):
        raise InputError.one("available", _POSITIONS, available)
    for name in available:
        plan.group(name)  # refuses a group that is not planned

    present = {group.name: _present(group, available) for group in plan.groups}
    missing = {
        group.name: group.clients - len(present[group.name]) for group in plan.groups
    }
    clients: Positions = {}
    for name, positions in drawn.items():
        clients[name] = tuple(filter(present[name].__contains__, positions))
    guarantee = tuple(
        _guarantee(plan, group, round_, missing[group.name])
        for group in plan.groups
        if missing[group.name]
    )
    return Cohort(round_, clients, drawn, missing, guarantee)


def _present(group: GroupPlan, available: Available) -> frozenset[int]:
    """The registered clients of a group that are there."""
    try:
        present = frozenset(map(index, available.get(group.name, ())))
    except TypeError:
        field = f"available.{group.name}"
        raise InputError.one(field, _POSITIONS, available[group.name]) from None
    outside = [client for client in present if not 0 <= client < group.clients]
    if outside:
        rule = f"must be positions of registered clients, 0 to {group.clients - 1}"
        raise InputError.one(f"available.{group.name}", rule, min(outside))
    return present


def _guarantee(plan: Plan, group: GroupPlan, round_: int, missing: int) -> str:
    """What missing clients do to the guarantee of a group."""
    ratio, _ = plan.at_round(group, round_)
    drawable = plan.law_of(group).law.drawable
    expected = ratio * drawable(group.clients - missing)
    planned = ratio * drawable(group.clients)
    return (
        f"{group.name}: {missing} of {group.clients} registered clients are missing; the "
        f"law drew from all of them, so the ratio stays {ratio:.6g} and the guarantee is "
        "the planned one, if who is missing does not depend on who was drawn or on data; "
        f"the expected cohort is {expected:.6g} instead of {planned:.6g}"
    )
