"""The cohort of a round: drawn by the planned law from the registered clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from privplan.errors import InputError
from privplan.plan import GroupPlan, Plan
from privplan.secure_streams import SecureStream

Available = Mapping[str, Iterable[int]]
"""Positions of the clients that are there, by group; positions are 0..clients-1 of the plan."""
Positions = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round.

    Attributes:
        round: training round, from 1.
        clients: positions of the clients to train, by group: drawn and available.
        drawn: positions that the law drew from the registered clients, by group.
        missing: number of registered clients that were not available, by group.
        guarantee: what missing clients do to the guarantee, one sentence per group that misses
            some; empty when all are available.
    """

    round: int
    clients: Positions
    drawn: Positions
    missing: dict[str, int]
    guarantee: tuple[str, ...]

    def __len__(self) -> int:
        """Number of clients to train."""
        return sum(map(len, self.clients.values()))

    @property
    def members(self) -> list[tuple[str, int]]:
        """Group and position of every client to train."""
        return [(group, client) for group, found in self.clients.items() for client in found]


def draw_registered(plan: Plan, round_: int, generator: Callable[[], SecureStream]) -> Positions:
    """Draw each group's cohort by the plan's law from all registered clients.

    Args:
        plan: the plan.
        round_: training round, from 1.
        generator: makes a generator for one draw.
    """
    law = plan.spec.sampling.law
    drawn = {}
    for group in plan.groups:
        ratio, _ = plan.at_round(group, round_)
        source = cast(np.random.Generator, generator())  # it has the methods that laws use
        positions = law.draw(source, group.clients, ratio, round_)
        drawn[group.name] = tuple(np.asarray(positions).tolist())
    return drawn


def cohort_of(plan: Plan, round_: int, drawn: Positions, available: Available | None) -> Cohort:
    """The clients of a draw that are there.

    Args:
        plan: the plan.
        round_: training round, from 1.
        drawn: what the law drew from the registered clients.
        available: the clients that are there; all registered ones when None.

    Raises:
        InputError: for a group that the plan does not have, or a client that is not registered.
    """
    if available is None:
        none = dict.fromkeys(drawn, 0)
        return Cohort(round=round_, clients=dict(drawn), drawn=drawn, missing=none, guarantee=())
    for name in available:
        plan.group(name)
    there = {group.name: _positions(group, available) for group in plan.groups}
    missing = {group.name: group.clients - len(there[group.name]) for group in plan.groups}
    return Cohort(
        round=round_,
        clients={
            name: tuple(one for one in found if one in there[name]) for name, found in drawn.items()
        },
        drawn=drawn,
        missing=missing,
        guarantee=tuple(
            _guarantee(plan, group, round_, missing[group.name])
            for group in plan.groups
            if missing[group.name]
        ),
    )


def _positions(group: GroupPlan, available: Available) -> frozenset[int]:
    found = frozenset(int(one) for one in available.get(group.name, ()))
    outside = [one for one in found if not 0 <= one < group.clients]
    if outside:
        rule = f"must be positions of registered clients, 0 to {group.clients - 1}"
        raise InputError.one(f"available.{group.name}", rule, min(outside))
    return found


def _guarantee(plan: Plan, group: GroupPlan, round_: int, missing: int) -> str:
    """What missing clients do to the guarantee of a group."""
    ratio, _ = plan.at_round(group, round_)
    law, there = plan.spec.sampling.law, group.clients - missing
    text = (
        f"{group.name}: {missing} of {group.clients} registered clients are missing; the law drew "
        f"from all of them, so the ratio stays {ratio:.6g} and the guarantee is the planned one, "
        "if who is missing does not depend on who was drawn or on data; the expected cohort is "
        f"{ratio * there:.6g} instead of {ratio * group.clients:.6g}"
    )
    if law.whole_cohorts and there:
        size = round(ratio * group.clients)
        text += (
            f" (a cohort of {size} of the {there} that are there would have the ratio "
            f"{min(1.0, size / there):.6g}, which costs more than planned)"
        )
    return text
