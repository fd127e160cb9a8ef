"""One direction of a history, discretised: pairs in, lattices and a plan out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privplan.accounting.pld.convolution import (
    MOST_POINTS,
    Moments,
    Part,
    best_tilt,
    cumulant,
    gentle_tilt,
    tilted_moments,
)
from privplan.accounting.pld.lattice import (
    EVEN,
    Spacing,
    discretise,
    lower,
    second_moment,
    upper,
)
from privplan.accounting.pld.pairs import Array, Rows, loss, tail_outcomes
from privplan.accounting.pld.profile import delta_of
from privplan.laws.law import AnyPair, DiscretePair, Kind, Pair

# Most pairs whose lattices are in memory as one array.
_CHUNK = 256
# Step of the lattice that is planned with, in deviations of a round, and how it widens.
_COARSE = 0.3
_COARSE_GROWTH = 0.06
# Per round, a sum of logarithms is off by less than this, relatively.
_ROUNDING = 1e-15
# Outcomes by which the scale of a loss is told, and the tail beyond them.
_SCALE_OUTCOMES = 120
_SCALE_TAIL = 1e-12

# A plan is made for this delta at least, so that no tail underflows.
_LEAST_PLANNED_DELTA = 1e-200
# Share of the tolerance that the lattice of one bound takes; the other bound takes as
# much, and the tails and rounding take the rest.
_LATTICE_SHARE = 0.35
_TAIL_SHARE = 0.03
# Share of delta that the tails of all rounds take, at most.
_MAX_TAIL = 1e-3
# The tolerance is of this share of the spread of the loss, at least.
_LEAST_EPSILON_SHARE = 0.05
# The deviation of a typical round is this share of the untilted one, at least.
_LEAST_DEVIATION_SHARE = 1e-3
# The step grows by so much at a time while the rounds' variances allow it.
_COARSENING = 1.1
# Largest and smallest step, in deviations of a typical round.
_MAX_STEP = 0.5
_LEAST_STEP = 1e-6
# Typical deviations around the tilted means within which points are one step apart.
_DENSE_DEVIATIONS = 2.5
# How much wider points stand beyond, per step and deviation.
_SPREAD_OUT = 0.4
# Halvings of a range, which leave less than 1e-6 of it.
_BISECTIONS = 20
# Deviations of the composed loss for which the longest circle must suffice.
_WINDOW_DEVIATIONS = 30


@dataclass(frozen=True)
class Direction:
    """Pairs of one direction, with how often each is composed.

    Attributes:
        pairs: each with its number of rounds.
        from_above: whether the lattices are upper bounds; lower bounds otherwise.
    """

    pairs: tuple[tuple[AnyPair, int], ...]
    from_above: bool

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return sum(count for _, count in self.pairs)

    @property
    def participations(self) -> float:
        """Expected rounds in which the client takes part; of other pairs all rounds."""
        expected = 0.0
        for pair, count in self.pairs:
            if isinstance(pair, Pair):
                expected += count * pair.ratio
            else:
                expected += count
        return expected

    def parts(self, step: float, tail: float, spacing: Spacing = EVEN) -> list[Part]:
        """The lattices of at most ``_CHUNK`` pairs each.

        Args:
            step: distance of neighbouring multiples.
            tail: mass that a round may leave out at each end.
            spacing: where points stand further apart.
        """
        counted_lattices = []
        for rows, counts in self._chunks():
            if self.from_above:
                lattices = upper(rows, step, tail, spacing)
            else:
                # All rounds of one pair may take as much off delta as all tails of
                # its share.
                max_slack = tail * self.rounds / (len(self.pairs) * counts)
                lattices = lower(rows, step, tail, spacing, max_slack)
            counted_lattices.append((lattices, counts))
        for pair, count in self._discrete():
            lattices = discretise(pair, step, from_above=self.from_above)
            counted_lattices.append((lattices, np.array([float(count)])))
        return counted_lattices

    def deviation(self) -> float:
        """Root mean square of the loss of a typical round."""
        total = 0.0
        for rows, counts in self._chunks():
            total += float(counts @ _second_moments(rows))
        for pair, count in self._discrete():
            total += count * second_moment(pair)
        return math.sqrt(total / self.rounds)

    def variation(self) -> float:
        """Upper bound on the total variation of all rounds.

        It is the chance of ever taking part at most: a maximal coupling of every round
        differs with a chance of at most ``1 - prod(1 - TV)``.
        """
        log_equal = 0.0
        for pair, count in self.pairs:
            variation = delta_of(pair, 0.0)[1]
            if variation < 1:
                log_equal += count * math.log1p(-variation)
            else:
                log_equal = -math.inf
        rounding = 1 + _ROUNDING * (1 + self.rounds)
        return min(1.0, -math.expm1(log_equal) * rounding)

    def _chunks(self) -> Iterator[tuple[Rows, Array]]:
        """Gaussian pairs of one kind, sampled or not, with their counts."""
        groups: dict[tuple[Kind, bool], list[tuple[Pair, int]]] = defaultdict(list)
        for pair, count in self.pairs:
            if isinstance(pair, Pair):
                groups[pair.kind, pair.ratio == 1].append((pair, count))

        for kind, everyone in sorted(groups):
            group = groups[kind, everyone]
            for start in range(0, len(group), _CHUNK):
                chunk = group[start : start + _CHUNK]
                counts = np.array([float(count) for _, count in chunk])
                shift = np.array([[pair.shift] for pair, _ in chunk])
                ratio = np.array([[pair.ratio] for pair, _ in chunk])
                yield Rows(kind, shift, ratio), counts

    def _discrete(self) -> Iterator[tuple[DiscretePair, int]]:
        for pair, count in self.pairs:
            if isinstance(pair, DiscretePair):
                yield pair, count


def _second_moments(rows: Rows) -> Array:
    """Second moment of the loss under P; only a scale, never a bound."""
    if rows.kind == Kind.STITCHED:
        rows = rows.halves()[0]
    low, high = tail_outcomes(rows, _SCALE_TAIL)
    outcome = np.linspace(low[:, 0], high[:, 0], _SCALE_OUTCOMES, axis=1)
    density = (1 - rows.p_ratio) * np.exp(-(outcome**2) / 2)
    density += rows.p_ratio * np.exp(-((outcome - rows.shift) ** 2) / 2)
    squares = (density * loss(rows, outcome) ** 2).sum(axis=1)
    second_moments: Array = squares / density.sum(axis=1)
    return second_moments


@dataclass(frozen=True)
class EvaluationPlan:
    """How to evaluate a direction near one delta; any plan gives bounds.

    Attributes:
        tilt: of Chernoff's bound there.
        step: lattice step at which the bounds should be within the tolerance.
        tail: mass that each round may leave out at either end.
        spacing: where the points may stand further apart, at that step.
        spread: standard deviation of the tilted composed loss.
    """

    tilt: float
    step: float
    tail: float
    spacing: Spacing
    spread: float


@lru_cache(maxsize=64)
def evaluation_plan(
    direction: Direction, delta: float, tolerance: float, *, is_gentle: bool = False
) -> EvaluationPlan:
    """Plan to evaluate epsilon at ``delta`` within a relative ``tolerance``.

    Args:
        direction: what is composed.
        delta: in (0, 1).
        tolerance: of epsilon, relative.
        is_gentle: for a client that hardly ever takes part. Delta may then be small
            since losses are few rather than large, and a tilt by which large losses
            count more would hide all others.
    """
    delta = max(delta, _LEAST_PLANNED_DELTA)
    rounds = direction.rounds
    counted_lattices = coarse_parts(direction, 1e-4 * delta / rounds)
    if is_gentle:
        focus = _gentle_focus(counted_lattices, delta)
    else:
        focus = _focus(counted_lattices, delta)
    moments = tilted_moments(counted_lattices, focus.tilt)
    spread = moments.spread

    # How much the variance of all rounds may change: a change dv of it moves epsilon
    # by (1 + tilt) dv / 2, since the mean moves with it.
    tolerated = (
        _LATTICE_SHARE * tolerance * max(focus.epsilon, _LEAST_EPSILON_SHARE * spread)
    )
    max_change = tolerated / (1 + focus.tilt)
    tail_share = _TAIL_SHARE * tolerance * focus.tilt * max(focus.epsilon, spread)
    tail = min(tail_share, _MAX_TAIL) * delta / rounds

    untilted = tilted_moments(counted_lattices, 0.0).spread
    typical = max(spread, _LEAST_DEVIATION_SHARE * untilted) / math.sqrt(rounds)
    step = _planned_step(moments, max_change, typical, rounds)

    # Points are dense where the tilted loss lies.
    spacing = Spacing(
        low=float(moments.means.min() - _DENSE_DEVIATIONS * typical),
        high=float(moments.means.max() + _DENSE_DEVIATIONS * typical),
        growth=_SPREAD_OUT * step / typical,
    )
    return EvaluationPlan(focus.tilt, step, tail, spacing, spread)


class _Focus(NamedTuple):
    """Where an evaluation is to be sharp.

    Attributes:
        tilt: of the composition.
        epsilon: at the delta that is asked for, about.
    """

    tilt: float
    epsilon: float


def _gentle_focus(counted_lattices: list[Part], delta: float) -> _Focus:
    """The smallest tilt that serves a delta which one loss decides."""
    epsilon = _epsilon_of_one_loss(counted_lattices, delta)
    return _Focus(gentle_tilt(counted_lattices, epsilon, delta), epsilon)


def _focus(counted_lattices: list[Part], delta: float) -> _Focus:
    """The tilt for a delta, and the epsilon near it."""
    # Saddle point: delta is about exp(K(t) - t epsilon) / (t (1 + t) sqrt(2 pi) spread)
    # at tilt t, with K the cumulant.
    tilt = best_tilt(counted_lattices, math.log(1 / delta))
    spread = tilted_moments(counted_lattices, tilt).spread
    prefactor = math.log(tilt * (1 + tilt) * math.sqrt(2 * math.pi) * spread)
    log_inverse = (
        cumulant(counted_lattices, tilt) + math.log(1 / delta) - max(prefactor, 0.0)
    )
    return _Focus(tilt, log_inverse / tilt)


def _epsilon_of_one_loss(counted_lattices: list[Part], delta: float) -> float:
    """Epsilon where losses are so rare that one decides, about; no bound.

    Delta is then the sum of the rounds' deltas ``E[(1 - exp(epsilon - loss))+]``.
    """
    low = 0.0
    high = max(float(lattices.losses.max()) for lattices, _ in counted_lattices)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        spent = 0.0
        for lattices, counts in counted_lattices:
            gains = -np.expm1(np.minimum(middle - lattices.losses, 0.0))
            spent += float(counts @ (lattices.masses * gains).sum(axis=1))
        if spent > delta:
            low = middle
        else:
            high = middle
    return high


def _planned_step(
    moments: Moments, max_change: float, typical: float, rounds: int
) -> float:
    """The largest step at which the rounds' variances change by ``max_change``.

    A lattice of step s adds ``s^2 / 6`` to the variance of a round from above and takes
    ``s^2 / 12`` from below: ``s^2 / 4`` lie between them. Rounds whose loss varies less
    than the step cost less, as they lie on a point; but from below they say nothing, so
    they may only make up a part of the change.

    Args:
        moments: of the tilted loss of each pair.
        max_change: of the composed variance, between both bounds.
        typical: standard deviation of a typical round.
        rounds: number of all rounds.
    """
    deviations = moments.deviations
    step = math.sqrt(4 * max_change / rounds)
    while step < typical:
        coarser = _COARSENING * step
        change = moments.counts @ np.minimum(coarser, deviations) * coarser / 4
        if change > max_change:
            break
        step = coarser

    # The smallest rounds, up to a quarter of the change, may be lost from below; the
    # step resolves all others.
    order = np.argsort(deviations)
    variances = np.cumsum((moments.counts * deviations**2)[order])
    lost = int(np.searchsorted(variances, max_change / 4))
    resolved = float(deviations[order][min(lost, len(order) - 1)])
    largest = max(resolved, _LEAST_DEVIATION_SHARE * typical)
    step = min(step, _MAX_STEP * typical, largest)

    # The composed window must fit into memory.
    memory_step = _WINDOW_DEVIATIONS * moments.spread / MOST_POINTS
    return max(step, memory_step, _LEAST_STEP * typical)


def coarse_parts(direction: Direction, tail: float) -> list[Part]:
    """Lattices from above by which an evaluation is planned, quick to compute."""
    step = _COARSE * direction.deviation()
    above = Direction(direction.pairs, from_above=True)
    return above.parts(step, tail, Spacing(0.0, 0.0, _COARSE_GROWTH))
