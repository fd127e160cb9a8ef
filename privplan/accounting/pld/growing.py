"""One direction of a history that grows, read at many deltas and epsilons.

What was composed for one delta is kept: it bounds delta at every epsilon, and is close to the
truth over many orders of magnitude of delta. A new question first reads what is there, and
composes again only where the bounds are further apart than the tolerance. Rounds that are added
later are multiplied into what is there, so that a history of T rounds is composed afresh about
``log2 T`` times, whatever the number of questions.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Protocol

from privplan.accounting.pld import profile
from privplan.accounting.pld.accountant import Reading, Side, reading_at_delta, reading_at_epsilon
from privplan.accounting.pld.profile import Composed
from privplan.accounting.pld.running import Running
from privplan.laws.law import AnyPair

_RETRIES = 6
_KEPT = 4
_SAMPLED = 200
_HEADROOM = 0.3
_SPARE_TAIL = 1e-6
_WIDE = 1 << 16
_DOUBT = 0.05
_TINY = 1e-25
_AS_FINE = 1.5
_ROOM = 1.5


class Question(Protocol):
    """What is asked of a composed loss: epsilon at a delta, or delta at an epsilon."""

    @property
    def worst(self) -> float:
        """The upper bound that always holds."""
        ...

    def plan(self, side: Side) -> Reading:
        """How to compose a side to answer within the tolerance."""
        ...

    def answer(self, composed: Composed, from_above: bool) -> float:
        """A bound from what was composed."""
        ...

    def settled(self, composed: Composed, from_above: bool, tilt: float) -> bool:
        """Whether rounding and what was left out are far below the tolerance."""
        ...

    def single(self, pair: AnyPair, from_above: bool) -> float:
        """A bound for one round, in closed form."""
        ...


@dataclass(frozen=True)
class AtDelta:
    """Epsilon at ``delta``, within a relative ``tolerance``."""

    delta: float
    tolerance: float
    worst: float = math.inf

    def plan(self, side: Side) -> Reading:
        """A plan whose step has room for other deltas."""
        return reading_at_delta(side, self.delta, _HEADROOM * self.tolerance)

    def answer(self, composed: Composed, from_above: bool) -> float:
        """A bound on epsilon."""
        if from_above:
            return composed.epsilon_upper(self.delta)
        return composed.epsilon_lower(self.delta)

    def settled(self, composed: Composed, from_above: bool, tilt: float) -> bool:
        """Whether the doubt about delta moves epsilon by far less than the tolerance."""
        epsilon = self.answer(composed, from_above)
        if not 0 < epsilon < math.inf:
            return False
        least = _DOUBT * self.tolerance * min(1.0, tilt * epsilon)
        return composed.doubt(epsilon) <= least * self.delta

    def single(self, pair: AnyPair, from_above: bool) -> float:
        """A bound on epsilon of one round."""
        return profile.epsilon_of(pair, self.delta, from_above=from_above)


@dataclass(frozen=True)
class AtEpsilon:
    """Delta at ``epsilon``, within a relative ``tolerance``."""

    epsilon: float
    tolerance: float
    worst: float = 1.0

    def plan(self, side: Side) -> Reading:
        """A plan whose step has room for other epsilons; a smaller delta than 1e-25 is not met."""
        found = reading_at_epsilon(side, self.epsilon, _HEADROOM * self.tolerance)
        if found.tail * side.rounds > _HEADROOM * 0.01 * self.tolerance * _TINY:
            return found
        return reading_at_delta(side, _TINY, _HEADROOM * self.tolerance)

    def answer(self, composed: Composed, from_above: bool) -> float:
        """A bound on delta."""
        return composed.delta(self.epsilon, 1 if from_above else -1)

    def settled(self, composed: Composed, from_above: bool, tilt: float) -> bool:
        """Whether the doubt about delta is far less than the tolerance."""
        found = self.answer(composed, from_above)
        return composed.doubt(self.epsilon) <= _DOUBT * self.tolerance * found

    def single(self, pair: AnyPair, from_above: bool) -> float:
        """A bound on delta of one round."""
        return profile.delta_of(pair, self.epsilon)[int(from_above)]


class GrowingSide:
    """Upper or lower bounds of one direction: its pairs, and what was composed of them."""

    def __init__(self, *, from_above: bool) -> None:
        self.from_above = from_above
        self.pairs: Counter[AnyPair] = Counter()
        self.tables: list[Running] = []
        self._pending: Counter[AnyPair] = Counter()
        self._current: list[Composed] | None = None
        self._grown = False

    def add(self, pair: AnyPair, count: int) -> None:
        """Add rounds of a pair."""
        self.pairs[pair] += count
        if self.tables:
            self._pending[pair] += count
        self._current = None

    def bound(self, question: Question) -> float:
        """The best bound from what was composed."""
        trivial = question.worst if self.from_above else 0.0
        if self.pairs.total() == 1:
            return question.single(next(iter(self.pairs)), self.from_above)
        found = [question.answer(one, self.from_above) for one in self._composed()]
        return min(found, default=trivial) if self.from_above else max(found, default=trivial)

    @property
    def known(self) -> bool:
        """Whether there is something to read: one round, or what was composed."""
        return self.pairs.total() == 1 or bool(self._composed())

    def plan(self, question: Question) -> Reading:
        """A plan for these pairs, or for twice as many once they were seen to grow.

        Of many pairs a sample with the same number of rounds is enough to plan.
        """
        factor = 2 if self._grown else 1
        sample = [(pair, factor * count) for pair, count in self._sample()]
        return question.plan(Side(tuple(sample), from_above=True))

    def _sorted(self) -> list[tuple[AnyPair, int]]:
        return sorted(self.pairs.items(), key=lambda item: (type(item[0]).__name__, item[0]))

    def _sample(self) -> list[tuple[AnyPair, int]]:
        """At most ``_SAMPLED`` of the pairs, with as many rounds as all of them."""
        counted = self._sorted()
        stride = -(-len(counted) // _SAMPLED)
        runs = [counted[first : first + stride] for first in range(0, len(counted), stride)]
        return [(run[len(run) // 2][0], sum(count for _, count in run)) for run in runs]

    def has(self, reading: Reading) -> bool:
        """Whether something was composed at about this tilt, about as finely."""
        return any(
            0.5 <= one.reading.tilt / reading.tilt <= 2
            and one.reading.step <= _AS_FINE * reading.step
            and one.reading.tail <= reading.tail
            for one in self.tables
        )

    def compose(self, reading: Reading, scale: float, question: Question) -> bool:
        """Compose all pairs at ``scale`` times the planned step.

        Retried coarser when memory does not suffice, and tilted less when nothing is shown.

        Returns:
            Whether it could be composed.
        """
        self._composed()
        for _ in range(_RETRIES):
            made = self._made(reading, scale, question)
            if made is None:
                scale *= 2
                continue
            table, composed = made
            self.tables = [*self.tables, table][-_KEPT:]
            self._current = [*(self._current or []), composed][-_KEPT:]
            found = question.answer(composed, self.from_above)
            if math.isfinite(found) if self.from_above else found > 0:
                return True
            reading = replace(reading, tilt=reading.tilt / 4)
        return not self.from_above

    def _made(
        self, reading: Reading, scale: float, question: Question
    ) -> tuple[Running, Composed] | None:
        """A table that serves smaller deltas too, where that costs little in time and accuracy."""
        trial = self._table(self._sample(), reading, scale, _SPARE_TAIL)
        if trial.width <= _WIDE * trial.reading.step:
            if len(self.pairs) > _SAMPLED:
                trial = self._table(self._sorted(), reading, scale, _SPARE_TAIL)
            composed = trial.composed()
            if composed is not None and question.settled(composed, self.from_above, reading.tilt):
                return trial, composed
        table = self._table(self._sorted(), reading, scale, 1.0)
        composed = table.composed()
        return None if composed is None else (table, composed)

    def _table(
        self, pairs: list[tuple[AnyPair, int]], reading: Reading, scale: float, spare: float
    ) -> Running:
        """A table of pairs at a step, with ``spare`` times the planned tails."""
        spacing = replace(reading.spacing, growth=reading.spacing.growth * scale)
        plan = replace(
            reading, step=reading.step * scale, spacing=spacing, tail=reading.tail * spare
        )
        table = Running(plan, _ROOM if self._grown else 1.0)
        table.fill(Side(tuple(pairs), self.from_above))
        return table

    def _composed(self) -> list[Composed]:
        """What the tables say of all pairs; tables whose circle is too small are dropped."""
        if self._current is None:
            self._grown = self._grown or bool(self._pending)
            side = Side(tuple(self._pending.items()), self.from_above)
            found = []
            for table in self.tables:
                if side.pairs:
                    table.fill(side)
                found.append((table, table.composed()))
            self._pending = Counter()
            self.tables = [table for table, one in found if one is not None]
            self._current = [one for _, one in found if one is not None]
        return self._current


@dataclass(frozen=True)
class Direction:
    """Both sides of one direction.

    Attributes:
        above: pairs that dominate.
        below: pairs that are attained; lower bounds.
    """

    above: GrowingSide
    below: GrowingSide

    @property
    def closable(self) -> bool:
        """Whether the bounds can meet: the pairs of both sides are the same."""
        return self.above.pairs == self.below.pairs
