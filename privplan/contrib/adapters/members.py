"""Guards of a framework's quick-start, and which of its clients are which clients of a plan."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from privplan.errors import InputError
from privplan.guard import Guard

Client = TypeVar("Client", int, str)


def opened(
    plan: Path | str, run: Path | str, framework: str, *, resends: bool = True
) -> Guard:
    """A guard of a program that does not close it: the end of the process does."""
    guard = Guard(plan, run, framework=framework, resends=resends)
    atexit.register(guard.close)
    return guard


def members_of(
    guard: Guard,
    members: Mapping[str, Sequence[Client]] | None,
    names: Iterable[Client],
) -> dict[Client, tuple[str, int]]:
    """Group of each client and position in it; by default ``names`` in the plan's order."""
    sizes, default = (
        {group.name: group.clients for group in guard.plan.groups},
        iter(names),
    )
    if members is None:
        return {
            next(default): (name, at) for name in sizes for at in range(sizes[name])
        }
    if set(members) != set(sizes):
        raise InputError.one(
            "members", f"must have the groups {', '.join(sizes)}", list(members)
        )
    found = {}
    for name, given in members.items():
        if len(given) != sizes[name]:
            rule = (
                f"must have the {sizes[name]} clients of the plan, each a node "
                "(docs/reference/hospitals.md: nodes that hold many people)"
            )
            raise InputError.one(f"members.{name}", rule, len(given))
        found.update({client: (name, at) for at, client in enumerate(given)})
    if len(found) != sum(sizes.values()):
        rule = f"must be {sum(sizes.values())} different clients"
        raise InputError.one("members", rule, len(found))
    return found
