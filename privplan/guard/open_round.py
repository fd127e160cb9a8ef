"""The open round of a guard: whom the law drew, and one update of each of them.

An update comes with its client, so that a client that was not drawn is refused, and one
that sends twice counts once. Both happen before any noise is drawn.
"""

from __future__ import annotations

import copy
import logging
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privplan.errors import InputError
from privplan.guard.vectors import clip
from privplan.plan import Plan

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Summand:
    """A client's update as it enters the sum."""

    vector: np.ndarray  # [d], float64: clipped, then scaled
    finite: bool  # whether the update was finite; else it counts as zero
    shortened: bool  # whether clipping made it shorter


@dataclass
class GroupTotal:
    """The sum of a group's clipped and scaled updates, with what was seen of them."""

    total: np.ndarray | None = (
        None  # the sum [d], float64; None before the first update
    )
    reported: int = 0  # number of clients with an update
    largest_norm: float = 0.0  # largest norm of a summand
    clipped: int = 0  # number of updates that were shortened here
    excluded: int = 0  # number of updates that were not finite and added zero

    def include(self, summand: Summand) -> None:
        """Add one client's summand."""
        if self.total is None:
            self.total = np.zeros_like(summand.vector)
        self.total += summand.vector
        self.reported += 1
        self.excluded += not summand.finite
        self.clipped += summand.shortened
        norm = float(np.linalg.norm(summand.vector))
        self.largest_norm = max(self.largest_norm, norm)


class OpenRound:
    """A round between its draw and its release.

    Args:
        plan: whose clipping norms and scales apply.
        round_: its number, from 1.
        drawn: positions that the law drew, by group.
        resends: whether each update is kept, so that a second one of its client
            replaces it. Otherwise only the sum is kept, and a second one is refused.
        length: of an update (d); None for that of the first one.

    Attributes:
        round: its number.
        drawn: positions that the law drew, by group.
    """

    def __init__(
        self,
        plan: Plan,
        round_: int,
        drawn: Mapping[str, Sequence[int]],
        *,
        resends: bool,
        length: int | None = None,
    ) -> None:
        self.round = round_
        self.drawn = drawn
        self._plan = plan
        self._drawn = {name: frozenset(clients) for name, clients in drawn.items()}
        self._resends = resends
        self._summands: dict[str, dict[int, Summand]] = {name: {} for name in drawn}
        self._clients: dict[str, set[int]] = {name: set() for name in drawn}
        self._totals = {name: GroupTotal() for name in drawn}
        self._length = length

    def add(self, group: str, client: int, update: np.ndarray) -> None:
        """Clip, scale and keep one client's update [d], whatever the client did itself.

        Args:
            group: of the client.
            client: its position in the group.
            update: what it sent.

        Raises:
            InputError: when the law did not draw the client, the update has another
                length than others, or it is a second one where only the sum is kept.
        """
        self._plan.group(group)
        position = _position(client)
        if position not in self._drawn[group]:
            rule = f"must be a client of {group} that was drawn in round {self.round}"
            raise InputError.one("client", rule, position)
        if not self._resends and position in self._clients[group]:
            rule = "must send one update a round; without resends only the sum is kept"
            raise InputError.one("client", rule, position)
        summand = self._summand(group, update)
        if self._length is None:
            self._length = summand.vector.size
            self._warn_of_length(group, position)
        if summand.vector.size != self._length:
            rule = f"must have {self._length} numbers"
            raise InputError.one("update", rule, summand.vector.size)
        self._clients[group].add(position)
        if self._resends:
            self._summands[group][position] = summand
        else:
            self._totals[group].include(summand)

    def total(self, group: str) -> GroupTotal:
        """What the round has of a group so far, as the caller's own."""
        self._plan.group(group)
        if not self._resends:
            return copy.deepcopy(self._totals[group])
        total = GroupTotal()
        for client in sorted(self._summands[group]):  # in whatever order they came
            total.include(self._summands[group][client])
        return total

    @property
    def totals(self) -> dict[str, GroupTotal]:
        """The totals of the groups with an update."""
        return {name: self.total(name) for name, sent in self._clients.items() if sent}

    def _warn_of_length(self, group: str, position: int) -> None:
        """Say who fixed a length for all that is not the plan's.

        It is no fault: updates may hold a module's buffers beside its parameters.
        """
        planned = self._plan.spec.model.parameters
        if self._length != planned:
            text = (
                "the first update, of client %d of %s, has %d numbers, model.parameters "
                "of the plan is %d; from now on all must have %d "
                "(Guard(..., coordinates=) fixes their number beforehand)"
            )
            _log.warning(text, position, group, self._length, planned, self._length)

    def _summand(self, group: str, update: np.ndarray) -> Summand:
        """The update of a client of the group as it enters the sum."""
        raw = _real_numbers(update)
        norm = float(np.linalg.norm(raw))
        finite = math.isfinite(norm)
        planned = self._plan.group(group)
        bound = planned.clipping_norm or self._plan.spec.clipping_norm
        vector = clip(raw, bound) * planned.scale
        return Summand(vector, finite, shortened=finite and norm > bound)


def _position(client: object) -> int:
    """The position of a client, which must be a whole number."""
    try:
        return operator.index(client)  # type: ignore[arg-type]
    except TypeError:
        rule = "must be a whole number, the client's position in its group"
        raise InputError.one("client", rule, client) from None


def _real_numbers(update: object) -> np.ndarray:
    """The numbers of an update [d], float64, whatever its shape."""
    rule = "must be an array of real numbers"
    try:
        array = np.asarray(update)
    except Exception:  # such as that of a tensor with a gradient
        raise InputError.one("update", rule, type(update).__name__) from None
    if array.dtype.kind not in "fiub" or not array.size:
        text = f"an array of {array.dtype}, of the shape {array.shape}"
        raise InputError.one("update", rule, text)
    return array.astype(np.float64).ravel()
