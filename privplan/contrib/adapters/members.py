"""Guards of a framework's quick-start, and which of its clients a plan means."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from privplan.errors import InputError
from privplan.guard import Guard, Layout

_log = logging.getLogger(__name__)

Arrays = Mapping[str, np.ndarray]
Client = TypeVar("Client", int, str)
Reply = TypeVar("Reply")
Place = tuple[str, int]
"""A group, and a client's position in it."""

_open_guards: dict[Path, Guard] = {}
"""The guards of this process by folder, which nobody else closes."""


def opened(
    plan: Path | str, run: Path | str, framework: str, *, resends: bool = True
) -> Guard:
    """A guard of a program that does not close it: the end of the process does.

    Another one of the folder does, too, as where a cell of a notebook runs again.
    """
    folder = Path(run).resolve()
    earlier_guard = _open_guards.pop(folder, None)
    if earlier_guard is not None:
        earlier_guard.close()
    guard = Guard(plan, run, framework=framework, resends=resends)
    _open_guards[folder] = guard
    atexit.register(_close_in, os.getpid(), guard)
    return guard


def _close_in(process: int, guard: Guard) -> None:
    """Close a guard where it was opened, not in a process that was forked since."""
    if os.getpid() == process:
        guard.close()


def updates_of(
    layout: Layout,
    start: np.ndarray,
    replies: Mapping[Place, Reply],
    arrays_in: Callable[[Reply], Arrays | None],
) -> dict[Place, np.ndarray]:
    """The updates [d] of clients that replied with a model.

    One that replied with anything else counts as one that is not finite: its update is
    excluded, and counted. A run that ended there would say who was drawn.

    Args:
        layout: of the model.
        start: the model that was sent [d].
        replies: by client.
        arrays_in: reads a reply; None for one without arrays.
    """
    updates = {}
    for client, reply in replies.items():
        try:
            updates[client] = layout.vector(arrays_in(reply) or {}) - start
        except Exception as error:  # a client can send whatever it likes
            text = "an update does not fit and counts as zero: %.200r"
            _log.warning(text, str(error))
            updates[client] = np.full(layout.size, np.nan)
    return updates


def members_of(
    guard: Guard,
    members: Mapping[str, Sequence[Client]] | None,
    names: Iterable[Client],
) -> dict[Client, tuple[str, int]]:
    """Group of each client and position in it.

    Args:
        guard: of the plan.
        members: the clients of each group, in order; None for ``names``.
        names: all clients in the plan's order.

    Raises:
        InputError: unless the groups are the plan's, of as many different clients.
    """
    sizes = {group.name: group.clients for group in guard.plan.groups}
    positions: dict[Client, tuple[str, int]] = {}
    if members is None:
        clients = iter(names)
        for name, size in sizes.items():
            for position in range(size):
                positions[next(clients)] = (name, position)
        return positions
    if set(members) != set(sizes):
        raise InputError.one(
            "members", f"must have the groups {', '.join(sizes)}", list(members)
        )
    for name, group_clients in members.items():
        if len(group_clients) != sizes[name]:
            rule = (
                f"must have the {sizes[name]} clients of the plan, each a node "
                "(docs/reference/hospitals.md: nodes that hold many people)"
            )
            raise InputError.one(f"members.{name}", rule, len(group_clients))
        for position, client in enumerate(group_clients):
            positions[client] = (name, position)
    if len(positions) != sum(sizes.values()):
        rule = f"must be {sum(sizes.values())} different clients"
        raise InputError.one("members", rule, len(positions))
    return positions
