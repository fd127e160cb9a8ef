"""The accountant of privacy loss distributions, and the composed loss that it evaluates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib.metadata import version

import numpy as np

from privplan.accounting.accountant import (
    ACCOUNTANTS,
    Interval,
    checked_delta,
    checked_relation,
)
from privplan.accounting.families import dominating_pairs
from privplan.accounting.pld import inversion, moments
from privplan.accounting.pld import pairs as one_round
from privplan.accounting.pld.convolution import (
    MOST_POINTS,
    Composed,
    Part,
    best_tilt,
    compose_at,
    cumulant,
    cumulants,
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
from privplan.accounting.pld.pairs import (
    LARGEST_SHIFT,
    Array,
    Rows,
    loss,
    tail_outcomes,
)
from privplan.accounting.release import History, Relation
from privplan.errors import TooLittleNoiseError, UnsupportedError
from privplan.laws.law import AnyPair, DiscretePair, Kind, Pair

# --- One direction of a history, discretised: pairs in, lattices and a plan of evaluation out. ---

_CHUNK = 256  # most pairs whose lattices are in memory as one array
_COARSE = 0.3
_COARSE_GROWTH = 0.06
"""Step of the lattice that is planned with, in deviations of a round, and how it widens."""
_SPREAD_OUT = (
    0.4  # how much wider points are far from the tilted loss, per step and deviation
)
_COARSENING = 1.1
_ROUNDING = 1e-15
_LEAST_TAIL = 1e-20
_SHARE = 0.35  # share of the tolerance that the lattice of one bound takes


@dataclass(frozen=True)
class Direction:
    """Pairs of one direction, with how often each is composed; upper or lower bound."""

    pairs: tuple[tuple[AnyPair, int], ...]
    from_above: bool

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return sum(count for _, count in self.pairs)

    def parts(self, step: float, tail: float, spacing: Spacing = EVEN) -> list[Part]:
        """The lattices of at most ``_CHUNK`` pairs; a round may leave out ``tail`` at each end."""
        made = []
        for rows, counts in self._chunks():
            if self.from_above:
                one = upper(rows, step, tail, spacing)
            else:  # all rounds of one pair may take as much off delta as all tails of its share
                share = tail * self.rounds / (len(self.pairs) * counts)
                one = lower(rows, step, tail, spacing, share)
            made.append((one, counts))
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

    def variation(self) -> float:
        """Upper bound on the total variation of all rounds, the chance of ever taking part at most.

        A maximal coupling of every round differs with a chance of at most ``1 - prod(1 - TV)``.
        """
        kept = 0.0
        for pair, count in self.pairs:
            one = one_round.delta_of(pair, 0.0)[1]
            kept += count * math.log1p(-one) if one < 1 else -math.inf
        return min(1.0, -math.expm1(kept) * (1 + _ROUNDING * (1 + self.rounds)))

    def _chunks(self) -> Iterator[tuple[Rows, Array]]:
        """Gaussian pairs of one kind, sampled or not, ``_CHUNK`` at most, with their counts."""
        gaussian = [
            (pair, count) for pair, count in self.pairs if isinstance(pair, Pair)
        ]
        for kind, everyone in sorted(
            {(pair.kind, pair.ratio == 1) for pair, _ in gaussian}
        ):
            same = [
                (pair, count)
                for pair, count in gaussian
                if (pair.kind, pair.ratio == 1) == (kind, everyone)
            ]
            for first in range(0, len(same), _CHUNK):
                chunk = same[first : first + _CHUNK]
                counts = np.array([float(count) for _, count in chunk])
                shift = np.array([[pair.shift] for pair, _ in chunk])
                ratio = np.array([[pair.ratio] for pair, _ in chunk])
                yield Rows(kind, shift, ratio), counts

    def _discrete(self) -> list[tuple[DiscretePair, int]]:
        return [
            (pair, count)
            for pair, count in self.pairs
            if isinstance(pair, DiscretePair)
        ]


def _second_moments(rows: Rows) -> Array:
    """Second moment of the loss under P, by a midpoint rule; only a scale, never a bound."""
    if rows.kind == Kind.STITCHED:
        rows = rows.halves()[0]
    low, high = tail_outcomes(rows, 1e-12)
    outcome = np.linspace(low[:, 0], high[:, 0], 120, axis=1)
    density = (1 - rows.p_ratio) * np.exp(-(outcome**2) / 2)
    density += rows.p_ratio * np.exp(-((outcome - rows.shift) ** 2) / 2)
    found: Array = (density * loss(rows, outcome) ** 2).sum(axis=1) / density.sum(
        axis=1
    )
    return found


@dataclass(frozen=True)
class Reading:
    """How to evaluate a direction at one place: where to tilt, how finely, what to leave out."""

    tilt: float  # of Chernoff's bound there
    step: float  # lattice step at which the bounds should be within the tolerance
    tail: float  # mass that each round may leave out at either end
    spacing: Spacing  # where the points may stand further apart, at that step
    spread: float  # standard deviation of the tilted composed loss


@lru_cache(maxsize=64)
def reading_at(direction: Direction, delta: float, tolerance: float) -> Reading:
    """Plan to evaluate epsilon at ``delta`` within a relative ``tolerance``; only a plan.

    A lattice of step s adds ``s^2 / 6`` to the variance of a round from above and takes
    ``s^2 / 12`` from below; a change dv of the composed variance moves epsilon by
    ``(1 + tilt) dv / 2``, since the mean moves with it. Rounds whose loss varies less than the step
    cost less, as they lie on a point; but from below they say nothing, so they may only make up a
    part of ``change``. Points are dense where the tilted loss lies.
    """
    delta = max(delta, 1e-200)  # so that no tail underflows
    parts = _coarse(direction, 1e-4 * delta / direction.rounds)
    tilt = best_tilt(parts, math.log(1 / delta))
    moments = tilted_moments(parts, tilt)
    spread = moments.spread
    prefactor = max(math.log(tilt * (1 + tilt) * math.sqrt(2 * math.pi) * spread), 0.0)
    epsilon = (cumulant(parts, tilt) + math.log(1 / delta) - prefactor) / tilt
    change = _SHARE * tolerance * max(epsilon, 0.05 * spread) / (1 + tilt)
    tail = (
        min(0.03 * tolerance * tilt * max(epsilon, spread), 1e-3)
        * delta
        / direction.rounds
    )
    least = 1e-3 * tilted_moments(parts, 0.0).spread
    typical = max(moments.spread, least) / math.sqrt(direction.rounds)
    step = math.sqrt(4 * change / direction.rounds)
    while step < typical:
        coarser = _COARSENING * step
        if (
            moments.counts @ np.minimum(coarser, moments.deviations) * coarser / 4
            > change
        ):
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
    return Reading(
        tilt, step, tail, Spacing(float(low), float(high), growth), moments.spread
    )


def _coarse(direction: Direction, tail: float) -> list[Part]:
    step = _COARSE * direction.deviation()
    above = Direction(direction.pairs, from_above=True)
    return above.parts(step, tail, Spacing(0.0, 0.0, _COARSE_GROWTH))


def composed_at(
    direction: Direction, reading: Reading, scale: float
) -> Composed | None:
    """The direction composed for a plan at ``scale`` times its step; None if out of memory."""
    spacing = replace(reading.spacing, growth=reading.spacing.growth * scale)
    return compose_at(
        direction.parts(reading.step * scale, reading.tail, spacing), reading.tilt
    )


# --- The accountant of privacy loss distributions, and the composed loss that it evaluates. ------

TOLERANCE = 1e-4
_REFINEMENTS = 7
_RETRIES = 6
_FLOOR = 0.01  # the tolerance is of this share of the spread of the loss at least
_ACCOUNTANT_COARSE = (
    3.0  # step of a direction that probably spends less, in steps of the first
)
_HOPELESS = 0.8  # a step that leaves more than this share of the gap ends the search
DELTA_TOLERANCE = 1e-3
_LEAST_RESOLVED = (
    1e-19  # below it a delta has an upper bound only: Chernoff's and all tails
)
_TILTS: Array = np.exp2(np.arange(-6.0, 2.0))
_SHARPER = 30.0
"""Factor between the tolerances of delta and of the epsilon by whose plan it is found, at least."""
_ESTIMATE_TOLERANCE = (
    3e-4  # where a calibration starts: thrice as fast as a certificate's
)
_VERY_MANY, _KINDS, _SELDOM, _SMALL, _EFFORT, _AS_CLOSE = (
    100_000,
    6,
    20.0,
    1e-3,
    5e7,
    5e-4,
)
"""Rounds and kinds of sampled ones from which a transform is inverted first; how often a client
takes part, and with what ratio, up to which it is; its limit of work; the gap that is kept."""
_SAME_SHIFT = (
    1e-5  # relative distance of shifts that moves epsilon by less than the tolerance
)


Directions = tuple[tuple[Direction, Direction], ...]
"""Pairs from above and from below, for each direction."""


@dataclass(frozen=True)
class ComposedLoss:
    """The composed privacy loss of a history: epsilon at any delta, delta at any epsilon."""

    mu: (
        float | None
    )  # of the Gaussian that the history is, when nobody was sampled; else None
    directions: (
        Directions  # pairs from above and from below, of each direction, when sampled
    )
    tolerance: float  # relative distance of the bounds on epsilon that is aimed at
    unbounded: bool = False  # whether something was released without noise
    least: float = (
        0.0  # of the rounds without sampling, from below: it bounds epsilon from below
    )

    def epsilon(
        self, delta: float, decide: float | None = None, *, invert: bool = True
    ) -> Interval:
        """Bounds on epsilon at ``delta``; only until they are on one side of ``decide``, if given.

        An upper bound up to it ends the search, without a lower one. Without ``invert`` by
        convolutions only.
        """
        if self.unbounded:
            return Interval(math.inf, math.inf)
        if self.mu is not None:
            lower = one_round.gaussian_epsilon(self.least, delta)[0]
            return Interval(lower, one_round.gaussian_epsilon(self.mu, delta)[1])
        if all(above.variation() <= delta for above, _ in self.directions):
            return Interval(0.0, 0.0)
        least = one_round.gaussian_epsilon(self.least, delta)[0] if self.least else 0.0
        lower, upper, gap = 0.0, math.inf, 1.0
        if invert:
            lower, upper, gap = _inverted(self.directions, None, delta, self.tolerance)
        close = gap <= max(_AS_CLOSE, self.tolerance)
        if close or (decide is not None and not lower <= decide < upper):
            return Interval(lower, upper)
        found = _between(
            self.directions, delta, self.tolerance, max(least, lower), decide
        )
        return Interval(found.lower, min(upper, found.upper))

    def estimate(
        self, delta: float, plan: Reading | None = None
    ) -> tuple[float, Reading | None]:
        """Epsilon at ``delta`` within some 1e-4, and the plan by which it was computed.

        An upper bound of one direction: that in which the client is removed, where the other one
        is its turned form, which spends less; of all directions otherwise. Not for guarantees.
        The plan of a loss nearby saves half of the time.
        """
        if self.unbounded or self.mu is not None:
            return self.epsilon(delta).upper, None
        distinct = list(dict.fromkeys(above for above, _ in self.directions))
        if all(isinstance(pair, Pair) for pair, _ in distinct[0].pairs):
            distinct = distinct[:1]
        if plan is None or len(distinct) > 1:
            plan = _reading(distinct[0], delta, _ESTIMATE_TOLERANCE)
        return max(
            _epsilon(direction, delta, plan, 1.0) for direction in distinct
        ), plan

    def delta(self, epsilon: float, tolerance: float = DELTA_TOLERANCE) -> Interval:
        """Bounds on delta at ``epsilon``; their relative distance is aimed to be ``tolerance``.

        The direction with the largest upper bound is composed ever more finely, as for epsilon.
        """
        if self.unbounded:
            return Interval(1.0, 1.0)
        if self.mu is not None:
            lower = one_round.gaussian_delta(self.least, epsilon)[0]
            return Interval(lower, one_round.gaussian_delta(self.mu, epsilon)[1])
        uppers = {above: _most_delta(above, epsilon) for above, _ in self.directions}
        near = max(uppers.values())
        if near >= _LEAST_RESOLVED and epsilon > 0:
            lower, upper, gap = _inverted(
                self.directions, epsilon, min(near, 0.5), tolerance
            )
            if gap <= 1.1 * tolerance:
                return Interval(lower, upper)
        plans: dict[
            Direction, tuple[float, float]
        ] = {}  # delta to be sharp at, scale of the step
        lower, gaps = 0.0, dict.fromkeys(uppers, math.inf)
        for _ in range(3 * _REFINEMENTS):
            worst = max(uppers, key=lambda direction: uppers[direction])
            if worst.rounds > 1 and uppers[worst] < _LEAST_RESOLVED:
                break
            near, scale = plans.get(worst, (uppers[worst], 1.0))
            uppers[worst] = min(
                uppers[worst], _delta(worst, epsilon, near, tolerance, scale)
            )
            for above, below in self.directions:
                if above == worst:
                    lower = max(lower, _delta(below, epsilon, near, tolerance, scale))
            if uppers[worst] < near / 2:
                plans[worst] = uppers[worst], 1.0
                continue
            upper = max(uppers.values())
            gap = upper - lower
            if gap <= tolerance * upper or gap > _HOPELESS * gaps[worst]:
                break
            gaps[worst] = gap
            finer = min(0.7, max(0.02, 0.85 * math.sqrt(tolerance * upper / gap)))
            plans[worst] = near, scale * finer
        return Interval(min(lower, max(uppers.values())), max(uppers.values()))


def _between(
    directions: Directions,
    delta: float,
    tolerance: float,
    least: float = 0.0,
    decide: float | None = None,
) -> Interval:
    """Bounds on epsilon: the worst direction is composed ever more finely until they are close.

    Epsilon is known to be ``least`` or more; a budget to ``decide`` on ends the search early.

    The gap shrinks with the square of the step, which tells the next step. A direction that is
    not the worst is only composed coarsely, by the plan of the first, and needs no lower bound.
    Where the lower pairs are others than the upper ones, the gap is that of the cell and cannot be
    closed; but where they differ by rounding, as of the discrete Gaussian, the upper bound is that
    which equal ones have, so that a ledger meets the certificate of its plan.
    """
    equal = tuple((above, Direction(above.pairs, False)) for above, _ in directions)
    if equal != directions and all(
        _nearly_equal(above, below) for above, below in directions
    ):
        upper = _between(equal, delta, tolerance).upper
        plans = [(below, _reading(below, delta, tolerance)) for _, below in directions]
        lower = max(_epsilon(below, delta, plan, 1.0) for below, plan in plans)
        return Interval(min(lower, upper), upper)
    distinct = list(dict.fromkeys(above for above, _ in directions))
    scales = {
        above: 1.0 if above == distinct[0] else _ACCOUNTANT_COARSE for above in distinct
    }
    first = _reading(distinct[0], delta, tolerance)
    uppers = {above: _epsilon(above, delta, first, scales[above]) for above in distinct}
    lowest, gaps = least, dict.fromkeys(distinct, math.inf)
    for _ in range(_REFINEMENTS):
        worst = max(uppers, key=lambda direction: uppers[direction])
        if uppers[worst] == 0:
            break
        reading = _reading(worst, delta, tolerance)
        if scales[worst] == _ACCOUNTANT_COARSE:
            scales[worst] = 1.0
            uppers[worst] = min(uppers[worst], _epsilon(worst, delta, reading, 1.0))
            continue
        known = worst.pairs in [below.pairs for _, below in directions]
        known |= any(isinstance(pair, DiscretePair) for pair, _ in worst.pairs)
        if decide is not None and (max(uppers.values()) <= decide or not known):
            break
        for above, below in directions:
            if above == worst:
                plan = _reading(below, delta, tolerance)
                lowest = max(lowest, _epsilon(below, delta, plan, scales[worst]))
        if decide is not None and lowest > decide:
            break
        if lowest == 0 and _delta(worst, 0.0, delta, tolerance) <= delta:
            uppers[worst] = 0.0
            continue
        gap = uppers[worst] - lowest
        enough = max(uppers[worst], _FLOOR * reading.spread)
        if gap <= tolerance * enough or not known or gap > _HOPELESS * gaps[worst]:
            break
        gaps[worst] = gap
        shrink = math.sqrt(tolerance * enough / gap) if math.isfinite(gap) else 0.5
        before = scales[worst]
        scales[worst] *= min(0.7, max(0.02, 0.85 * shrink))
        finer = _epsilon(worst, delta, reading, scales[worst], before)
        if math.isinf(finer):
            break
        uppers[worst] = min(uppers[worst], finer)
    return Interval(min(lowest, max(uppers.values())), max(uppers.values()))


def _inverted(
    directions: Directions, epsilon: float | None, delta: float, tolerance: float
) -> tuple[float, float, float]:
    """Bounds by inverting the transform, where convolutions are slow or lose digits; their gap.

    On epsilon at ``delta``; or on delta, where an epsilon is given. The gap is relative, and that
    of the pairs from above or from below where these are not the same.
    """
    if any(above.pairs != below.pairs for above, below in directions):
        ways = [
            tuple((one, one) for one in dict.fromkeys(way))
            for way in zip(*directions, strict=True)
        ]
        (_, upper, gap), (lower, _, other) = (
            _inverted(way, epsilon, delta, tolerance) for way in ways
        )
        return min(lower, upper), upper, max(gap, other)
    asked = []
    for above, _ in directions:
        pairs = [(pair, count) for pair, count in above.pairs if isinstance(pair, Pair)]
        sampled = [(pair, count) for pair, count in pairs if not _unsampled(pair)]
        rare = all(pair.ratio < _SMALL for pair, _ in sampled) and len(pairs) == len(
            sampled
        )
        rare = rare and sum(count * pair.ratio for pair, count in sampled) < _SELDOM
        slow = rare or len(sampled) >= _KINDS or above.rounds >= _VERY_MANY
        if not slow or len(pairs) < len(above.pairs) or above.rounds == 1:
            return 0.0, math.inf, 1.0
        parts = [
            moments.Equal(
                pair.kind, *np.array([[pair.shift], [pair.ratio], [float(count)]])
            )
            for pair, count in sampled
        ]
        of_rest = np.array([_mu([one for one in pairs if _unsampled(one[0])])])
        asked.append(inversion.Questions(tuple(parts), of_rest, np.array([delta])))
    if epsilon is not None:
        lower, upper = inversion.deltas(tuple(asked), epsilon, tolerance, _EFFORT)
    else:
        found = inversion.bounds(tuple(asked), tolerance, _EFFORT)
        lower, upper = (float(one[0]) for one in found)
    return lower, upper, (1 - lower / upper if upper > 0 else 0.0)


def _nearly_equal(above: Direction, below: Direction) -> bool:
    """Whether the Gaussian pairs differ in their shifts by ``_SAME_SHIFT`` at most."""
    return len(above.pairs) == len(below.pairs) and all(
        isinstance(one, Pair)
        and isinstance(other, Pair)
        and math.isclose(one.shift, other.shift, rel_tol=_SAME_SHIFT)
        and (replace(one, shift=other.shift), count) == (other, times)
        for (one, count), (other, times) in zip(above.pairs, below.pairs, strict=True)
    )


def _reading(direction: Direction, delta: float, tolerance: float) -> Reading:
    """The plan of a direction, which the bounds from above and from below share."""
    return reading_at(Direction(direction.pairs, from_above=True), delta, tolerance)


def _epsilon(
    direction: Direction,
    delta: float,
    reading: Reading,
    scale: float,
    most: float = math.inf,
) -> float:
    """One bound from one direction; coarser where memory is short, less tilted if needed."""
    if direction.rounds == 1:
        return one_round.epsilon_of(
            direction.pairs[0][0], delta, from_above=direction.from_above
        )
    found = math.inf if direction.from_above else 0.0
    for _ in range(_RETRIES):
        composed = composed_at(direction, reading, scale)
        if composed is None:
            scale *= 2
            if scale > _HOPELESS * most:
                break
            continue
        if not direction.from_above:
            return composed.epsilon_lower(delta)
        found = composed.epsilon_upper(delta)
        if math.isfinite(found):
            break
        reading = replace(reading, tilt=reading.tilt / 4)
    return found


def _most_delta(direction: Direction, epsilon: float) -> float:
    """Chernoff's bound on the delta of a direction from above; the value itself of one round."""
    if direction.rounds == 1:
        return one_round.delta_of(direction.pairs[0][0], epsilon)[1]
    parts = _coarse(direction, _LEAST_TAIL / direction.rounds)
    tilts = 2.0 ** np.arange(-20.0, 30.0)
    bound = float((cumulants(parts, tilts) - tilts * epsilon).min())
    infinite = sum(float(counts @ one.infinite) for one, counts in parts)
    return min(1.0, (1 + 1e-9) * math.exp(min(0.0, bound)) + infinite)


def _delta(
    direction: Direction,
    epsilon: float,
    near: float,
    tolerance: float,
    scale: float = 1.0,
) -> float:
    """One bound on delta from one direction, sharpest ``near`` that delta."""
    if direction.rounds == 1 and epsilon >= 0:
        return one_round.delta_of(direction.pairs[0][0], epsilon)[
            int(direction.from_above)
        ]
    # near that delta the plan of epsilon is the sharper one; another tilt may round less
    aim = tolerance / max(_SHARPER, 3 * math.log(1 / max(near, 1e-200)))
    reading = _reading(direction, min(near, 0.5), aim)
    for _ in range(_RETRIES):
        spacing = replace(reading.spacing, growth=reading.spacing.growth * scale)
        parts = direction.parts(reading.step * scale, reading.tail, spacing)
        tilts = reading.tilt * _TILTS
        doubts = cumulants(parts, tilts) - tilts * epsilon - np.log(tilts)
        composed = compose_at(parts, float(tilts[doubts.argmin()]))
        if composed is not None:
            return composed.delta(epsilon, 2 * direction.from_above - 1)
        scale *= 2
    return float(direction.from_above)


def compose(
    history: History, relation: Relation, *, tolerance: float = TOLERANCE
) -> ComposedLoss:
    """The privacy loss of a whole history, with bounds on epsilon within a relative tolerance."""
    drawn = [(r, n) for r, n in history if r.sampling_ratio > 0]
    real = [(r, n) for r, n in drawn if not math.isinf(r.noise_multiplier)]
    if any(release.noise_multiplier == 0 for release, _ in real):
        return ComposedLoss(None, (), tolerance, unbounded=True)
    bounds = [(dominating_pairs(release, relation), count) for release, count in real]
    every = [pair for found, _ in bounds for pair in (*found.upper, *found.lower)]
    gaussian = [pair for pair in every if isinstance(pair, Pair)]
    ways = [
        ([(b.upper[way], n) for b, n in bounds], [(b.lower[way], n) for b, n in bounds])
        for way in (0, 1)
    ]
    if all(map(_unsampled, every)):
        return ComposedLoss(_mu(ways[0][0]), (), tolerance, least=_mu(ways[0][1]))
    largest = max((pair.shift for pair in gaussian), default=0.0)
    if largest > LARGEST_SHIFT:
        raise TooLittleNoiseError(
            f"noise_multiplier: pld needs {1 / LARGEST_SHIFT:g} times the distance or more "
            f"under sampling, found {1 / largest:g}"
        )
    directions = [
        (Direction(_merged(above), True), Direction(_merged(below), False))
        for above, below in ways
    ]
    full = [(pair, n) for pair, n in directions[0][1].pairs if _unsampled(pair)]
    return ComposedLoss(
        None, tuple(dict.fromkeys(directions)), tolerance, least=_mu(full)
    )


def _unsampled(pair: AnyPair) -> bool:
    return isinstance(pair, Pair) and pair.kind == Kind.REMOVE and pair.ratio == 1


def _mu(counted: list[tuple[AnyPair, int]]) -> float:
    """Of the Gaussian that the rounds of unsampled pairs are."""
    return math.sqrt(
        math.fsum(n * one.shift**2 for one, n in counted if isinstance(one, Pair))
    )


def _merged(counted: list[tuple[AnyPair, int]]) -> tuple[tuple[AnyPair, int], ...]:
    merged: dict[AnyPair, int] = {}
    for pair, count in counted:
        merged[pair] = merged.get(pair, 0) + count
    return tuple(
        sorted(merged.items(), key=lambda item: (type(item[0]).__name__, item[0]))
    )


@cache
def _own_version() -> str:
    return f"privplan {version('privplan')}"


@dataclass(frozen=True)
class PldAccountant:
    """Privacy loss distributions, rounded outward: the guarantee of every plan."""

    tolerance: float = TOLERANCE  # relative distance of lower and upper bound to aim at
    # a budget; bounds on the same side of it are close enough. None to close every bound
    decide: float | None = None
    name: str = "pld"
    kind: str = "two-sided bound"
    guarantee: bool = True
    version: str = field(default_factory=_own_version)

    def why_not(self, history: History, relation: Relation) -> str | None:
        """None, unless a sampled release has too little noise to compose."""
        try:
            compose(history, checked_relation(relation))
        except UnsupportedError as error:
            return str(error)
        return None

    def epsilon(self, history: History, delta: float, relation: Relation) -> Interval:
        """Bounds on epsilon at ``delta``."""
        checked_delta(delta)
        aims = self.tolerance, self.decide
        return _bounds(history, checked_relation(relation), delta, *aims)


@lru_cache(maxsize=1024)
def _bounds(
    history: History,
    relation: Relation,
    delta: float,
    tolerance: float,
    decide: float | None,
) -> Interval:
    """Bounds on epsilon, kept for the certificate of what was just calibrated."""
    return compose(history, relation, tolerance=tolerance).epsilon(delta, decide)


ACCOUNTANTS.register("pld", PldAccountant())
