"""One direction of a history, discretised: pairs in, lattices and a reading plan out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from privplan.accounting.pld.convolution import (
    MOST_POINTS,
    Moments,
    Part,
    best_tilt,
    compose_at,
    cumulant,
    tilted_moments,
)
from privplan.accounting.pld.discrete import discretise, second_moment
from privplan.accounting.pld.dominating_pairs import Array, Rows, loss, tail_outcomes
from privplan.accounting.pld.lattice import EVEN, Spacing, lower, upper
from privplan.accounting.pld.profile import Composed
from privplan.laws.pairs import AnyPair, DiscretePair, Kind, Pair

_CHUNK = 256
_COARSE = 0.3
_COARSE_GROWTH = 0.06
_SPREAD_OUT = 0.4
_COARSENING = 1.1
_SHARE = 0.35


@dataclass(frozen=True)
class Side:
    """Pairs of one direction, with how often each is composed; upper or lower bound."""

    pairs: tuple[tuple[AnyPair, int], ...]
    from_above: bool

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return sum(count for _, count in self.pairs)

    def parts(self, step: float, tail: float, spacing: Spacing = EVEN) -> list[Part]:
        """The lattices, of at most ``_CHUNK`` pairs of one kind each.

        Args:
            step: distance of neighbouring losses.
            tail: mass that each round may leave out on each side.
            spacing: where the points stand further apart.
        """
        bound = upper if self.from_above else lower
        made = [(bound(rows, step, tail, spacing), counts) for rows, counts in self._chunks()]
        for pair, count in self._discrete():
            one = discretise(pair, step, from_above=self.from_above)
            made.append((one, np.array([float(count)])))
        return made

    def deviation(self) -> float:
        """Root mean square of the loss of a typical round."""
        total = 0.0
        for rows, counts in self._chunks():
            total += float(counts @ _second_moments(rows))
        for pair, count in self._discrete():
            total += count * second_moment(pair)
        return math.sqrt(total / self.rounds)

    def _chunks(self) -> Iterator[tuple[Rows, Array]]:
        """Gaussian pairs of one kind, at most ``_CHUNK`` at a time, with their counts."""
        gaussian = [(pair, count) for pair, count in self.pairs if isinstance(pair, Pair)]
        for kind in sorted({pair.kind for pair, _ in gaussian}):
            same = [(pair, count) for pair, count in gaussian if pair.kind == kind]
            for first in range(0, len(same), _CHUNK):
                chunk = same[first : first + _CHUNK]
                counts = np.array([float(count) for _, count in chunk])
                yield _rows(kind, [pair for pair, _ in chunk]), counts

    def _discrete(self) -> list[tuple[DiscretePair, int]]:
        return [(pair, count) for pair, count in self.pairs if isinstance(pair, DiscretePair)]


def _rows(kind: Kind, pairs: list[Pair]) -> Rows:
    shift = np.array([[pair.shift] for pair in pairs])
    return Rows(kind, shift, np.array([[pair.ratio] for pair in pairs]))


def _second_moments(rows: Rows) -> Array:
    """Second moment of the loss under P, by a midpoint rule; only a scale, never a bound."""
    if rows.kind == Kind.STITCHED:
        rows = rows.halves()[0]
    low, high = tail_outcomes(rows, 1e-12)
    outcome = np.linspace(low[:, 0], high[:, 0], 120, axis=1)
    density = (1 - rows.p_ratio) * np.exp(-(outcome**2) / 2)
    density += rows.p_ratio * np.exp(-((outcome - rows.shift) ** 2) / 2)
    found: Array = (density * loss(rows, outcome) ** 2).sum(axis=1) / density.sum(axis=1)
    return found


@dataclass(frozen=True)
class Reading:
    """How to read one side at one place: where to tilt, how finely, what to leave out.

    Attributes:
        tilt: of Chernoff's bound there.
        step: lattice step at which the bounds should be within the tolerance.
        tail: mass that each round may leave out on each side.
        spacing: where the points may stand further apart, at that step.
        spread: standard deviation of the tilted composed loss.
    """

    tilt: float
    step: float
    tail: float
    spacing: Spacing
    spread: float


@lru_cache(maxsize=64)
def reading_at_delta(side: Side, delta: float, tolerance: float) -> Reading:
    """Plan to read epsilon at ``delta`` within a relative ``tolerance``; only a plan.

    A lattice of step s adds ``s^2 / 6`` to the variance of a round from above and takes
    ``s^2 / 12`` from below; a change dv of the composed variance moves epsilon by
    ``(1 + tilt) dv / 2``, since the mean moves with it.
    """
    delta = max(delta, 1e-200)  # so that no tail underflows
    parts = _coarse(side, 1e-4 * delta / side.rounds)
    tilt = best_tilt(parts, math.log(1 / delta))
    moments = tilted_moments(parts, tilt)
    spread = moments.spread
    prefactor = max(math.log(tilt * (1 + tilt) * math.sqrt(2 * math.pi) * spread), 0.0)
    epsilon = (cumulant(parts, tilt) + math.log(1 / delta) - prefactor) / tilt
    change = _SHARE * tolerance * max(epsilon, 0.05 * spread) / (1 + tilt)
    tail = min(0.03 * tolerance * tilt * max(epsilon, spread), 1e-3) * delta / side.rounds
    return _plan(side, parts, tilt, moments, change, tail)


@lru_cache(maxsize=64)
def reading_at_epsilon(side: Side, epsilon: float, tolerance: float) -> Reading:
    """Plan to read delta at ``epsilon`` within a relative ``tolerance``; only a plan."""
    parts = _coarse(side, 1e-20 / side.rounds)
    tilt = best_tilt(parts, epsilon, at_loss=True)
    chernoff = math.exp(min(0.0, cumulant(parts, tilt) - tilt * epsilon))
    tail = min(0.01 * tolerance, 1e-4) * max(chernoff, 1e-200) / side.rounds
    change = 2 * tolerance / (tilt * (1 + tilt))
    return _plan(side, parts, tilt, tilted_moments(parts, tilt), change, tail)


def _coarse(side: Side, tail: float) -> list[Part]:
    step = _COARSE * side.deviation()
    above = Side(side.pairs, from_above=True)
    return above.parts(step, tail, Spacing(0.0, 0.0, _COARSE_GROWTH))


def _plan(
    side: Side, parts: list[Part], tilt: float, moments: Moments, change: float, tail: float
) -> Reading:
    """Keep the points dense where the tilted loss lies, and the composed window in memory.

    ``change`` is how far apart the variances from above and from below may be. Rounds whose loss
    varies less than the step cost less than ``step^2 / 4``, as they lie on a point; but from below
    they say nothing, so they may only make up a part of ``change``.
    """
    least = 1e-3 * tilted_moments(parts, 0.0).spread
    typical = max(moments.spread, least) / math.sqrt(side.rounds)
    step = math.sqrt(4 * change / side.rounds)
    while step < typical:
        coarser = _COARSENING * step
        if moments.counts @ np.minimum(coarser, moments.deviations) * coarser / 4 > change:
            break
        step = coarser
    order = np.argsort(moments.deviations)
    shares = np.cumsum((moments.counts * moments.deviations**2)[order])
    spared = int(np.searchsorted(shares, change / 4))
    smallest = float(moments.deviations[order][min(spared, len(order) - 1)])
    step = min(step, 0.5 * typical, max(smallest, 1e-3 * typical))
    step = max(step, 30 * moments.spread / MOST_POINTS, 1e-6 * typical)
    growth = _SPREAD_OUT * step / typical
    low, high = moments.means.min() - 2.5 * typical, moments.means.max() + 2.5 * typical
    return Reading(tilt, step, tail, Spacing(float(low), float(high), growth), moments.spread)


def read(side: Side, reading: Reading, scale: float) -> Composed | None:
    """The side composed for a reading at ``scale`` times its step; None if out of memory."""
    spacing = replace(reading.spacing, growth=reading.spacing.growth * scale)
    return compose_at(side.parts(reading.step * scale, reading.tail, spacing), reading.tilt)
