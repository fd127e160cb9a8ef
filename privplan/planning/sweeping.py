"""What planning does otherwise for the points of a sweep than for a single plan.

Within ``interpolating`` noise curves lie between lattice budgets (``noise_lattice``), and an upper
bound that meets its budget within the tolerance needs no lower one beside it. Plans are calibrated
and certified as ever; a table of a sweep shows upper bounds only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import cast

from privplan.accounting.accountant import Accountant
from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.target import PLD

Axes = tuple[str, ...] | None
"""Numbers of a budget that are interpolated; none of them when empty, no sweep when None."""

_interpolated: ContextVar[Axes] = ContextVar("interpolated", default=None)


@contextmanager
def interpolating(axes: Axes) -> Iterator[None]:
    """Plan the points of a sweep within the block; as ever when None."""
    token = _interpolated.set(axes)
    try:
        yield
    finally:
        _interpolated.reset(token)


def interpolated() -> Axes:
    """The axes along which this sweep interpolates noise curves."""
    return _interpolated.get()


def guarantee(epsilon: float) -> Accountant:
    """The accountant of a group's guarantee.

    Args:
        epsilon: the group's budget.
    """
    if interpolated() is None:
        return by_name(PLD)
    from privplan.accounting.pld.accountant import PldAccountant

    return cast(Accountant, PldAccountant(enough=epsilon))
