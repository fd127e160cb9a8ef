"""The accountant of privacy loss distributions, and the composed loss behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial

import numpy as np

from privplan.accounting.accountant import (
    ACCOUNTANTS,
    Interval,
    checked_delta,
    checked_relation,
)
from privplan.accounting.families import dominating_pairs
from privplan.accounting.pld import profile
from privplan.accounting.pld.convolution import Part, compose_at, cumulants
from privplan.accounting.pld.direction import (
    Direction,
    EvaluationPlan,
    coarse_parts,
    evaluation_plan,
)
from privplan.accounting.pld.pairs import LARGEST_SHIFT, Array
from privplan.accounting.release import History, Relation
from privplan.distribution import own_version
from privplan.errors import TooLittleNoiseError, UnsupportedError
from privplan.guidance import Guided
from privplan.laws.law import AnyPair, DiscretePair, Kind, Pair

TOLERANCE = 1e-4
"""Gap of the bounds on epsilon over the upper one, to aim at."""
DELTA_TOLERANCE = 1e-3
"""Gap of the bounds on delta over the upper one, to aim at."""

# Refinements of a step before the bounds are returned as they are.
_REFINEMENTS = 7
# Tries with coarser steps, where memory is short, or with smaller tilts.
_RETRIES = 6
# The tolerance of epsilon is of this share of the spread of the loss at least.
_LEAST_EPSILON_SHARE = 0.01
# Step of a direction that probably spends less, in steps of the first.
_LESSER_SCALE = 3.0
# A step that leaves more than this share of the gap ends the search.
_HOPELESS = 0.8
# The next step is a little finer than the gap tells, and within these factors.
_FINER = 0.85
_MAX_FINER = 0.7
_MIN_FINER = 0.02
# Below it a delta has an upper bound only, Chernoff's with all tails: rounding hides
# more than a lower bound would tell.
_LEAST_RESOLVED = 1e-19
_LEAST_TAIL = 1e-20
# Tilts that are tried for delta, over that of the plan.
_TILTS: Array = np.exp2(np.arange(-6.0, 2.0))
# Tilts of Chernoff's bound on delta, from next to none to far beyond any deviation.
_CHERNOFF_TILTS: Array = 2.0 ** np.arange(-20.0, 30.0)
# Factor between the tolerances of delta and of the epsilon by whose plan it is found,
# at least. It grows with log(1 / delta), as delta's slope in epsilon does.
_SHARPER = 30.0
_SHARPER_PER_LOG = 3
# Where a calibration starts: thrice as fast as a certificate's bounds.
_ESTIMATE_TOLERANCE = 3e-4
# Relative distance of shifts that moves epsilon by less than the tolerance.
_SAME_SHIFT = 1e-5

# Bounds further apart than this share of the upper one are computed by a second plan
# where a client takes part in fewer rounds than these, as is to be expected.
_WIDE_GAP = 5e-3
_RARE = 0.5

Counted = list[tuple[AnyPair, int]]
Directions = tuple[tuple[Direction, Direction], ...]
"""Pairs from above and from below, for each direction."""


@dataclass(frozen=True)
class ComposedLoss:
    """The composed privacy loss of a history: epsilon at any delta, and the reverse.

    Attributes:
        mu: of the Gaussian mechanism that the history is, when nobody was sampled.
        directions: pairs from above and from below, of each direction, when sampled.
        tolerance: gap of the bounds on epsilon over the upper one, to aim at.
        unbounded: whether something was released without noise.
        unsampled_mu: mu of the rounds without sampling, from below. Other rounds only
            add to their epsilon.
    """

    mu: float | None
    directions: Directions
    tolerance: float
    unbounded: bool = False
    unsampled_mu: float = 0.0

    def epsilon(self, delta: float, decide: float | None = None) -> Interval:
        """Bounds on epsilon at ``delta``.

        Args:
            delta: in (0, 1).
            decide: a budget. Bounds on the same side of it are close enough: an upper
                bound up to it ends the search, without a lower one.
        """
        if self.unbounded:
            return Interval(math.inf, math.inf)
        if self.mu is not None:
            lower = profile.gaussian_epsilon(self.unsampled_mu, delta)[0]
            return Interval(lower, profile.gaussian_epsilon(self.mu, delta)[1])

        # A total variation of delta or less makes epsilon 0.
        if all(above.variation() <= delta for above, _ in self.directions):
            return Interval(0.0, 0.0)

        lower = 0.0
        if self.unsampled_mu:
            lower = profile.gaussian_epsilon(self.unsampled_mu, delta)[0]

        interval = _between(self.directions, delta, self.tolerance, lower, decide)
        if decide is not None and not interval.lower <= decide < interval.upper:
            return interval

        # Where a client hardly ever takes part, another plan may serve better.
        is_apart = interval.upper - interval.lower > _WIDE_GAP * interval.upper
        rounds = min(above.participations for above, _ in self.directions)
        if is_apart and rounds < _RARE:
            second = _between(
                self.directions,
                delta,
                self.tolerance,
                interval.lower,
                decide,
                is_gentle=True,
            )
            upper = min(interval.upper, second.upper)
            return Interval(min(second.lower, upper), upper)
        return interval

    def estimate(
        self, delta: float, plan: EvaluationPlan | None = None
    ) -> tuple[float, EvaluationPlan | None]:
        """Epsilon at ``delta`` within some 1e-4, and the plan by which it was computed.

        An upper bound of one direction: that in which the client is removed, where the
        other one is its turned form, which spends less; of all directions otherwise.
        Not for guarantees. The plan of a loss nearby saves half of the time.
        """
        if self.unbounded or self.mu is not None:
            return self.epsilon(delta).upper, None
        distinct = _distinct(self.directions)
        if all(isinstance(pair, Pair) for pair, _ in distinct[0].pairs):
            distinct = distinct[:1]
        if plan is None or len(distinct) > 1:
            plan = _plan(distinct[0], delta, _ESTIMATE_TOLERANCE)
        epsilons = [_epsilon(direction, delta, plan, 1.0) for direction in distinct]
        return max(epsilons), plan

    def delta(self, epsilon: float, tolerance: float = DELTA_TOLERANCE) -> Interval:
        """Bounds on delta at ``epsilon``.

        The direction with the largest upper bound is composed ever more finely, as for
        epsilon. A delta below ``_LEAST_RESOLVED`` has the lower bound 0.

        Args:
            epsilon: 0 or more.
            tolerance: gap of the bounds over the upper one, to aim at.
        """
        if self.unbounded:
            return Interval(1.0, 1.0)
        if self.mu is not None:
            lower = profile.gaussian_delta(self.unsampled_mu, epsilon)[0]
            return Interval(lower, profile.gaussian_delta(self.mu, epsilon)[1])

        # Chernoff's bound tells where to be sharp.
        candidates = []
        for above in _distinct(self.directions):
            bound = _chernoff_delta(above, epsilon)
            candidates.append(_Refined(above, bound, 1.0, near=bound))
        lower = 0.0
        for _ in range(3 * _REFINEMENTS):
            worst = _worst(candidates)
            if worst.direction.rounds > 1 and worst.upper < _LEAST_RESOLVED:
                break

            # Both bounds of the worst direction, sharp near the last one.
            near = worst.near
            scale = worst.scale
            refined = _delta(worst.direction, epsilon, near, tolerance, scale)
            worst.upper = min(worst.upper, refined)
            for above, below in self.directions:
                if above == worst.direction:
                    bound = _delta(below, epsilon, near, tolerance, scale)
                    lower = max(lower, bound)

            # Far below: be sharp there instead.
            if worst.upper < near / 2:
                worst.near = worst.upper
                worst.scale = 1.0
                continue

            upper = _worst(candidates).upper
            gap = upper - lower
            if gap <= tolerance * upper or gap > _HOPELESS * worst.gap:
                break
            worst.gap = gap
            worst.scale = scale * _finer(tolerance * upper, gap)
        upper = _worst(candidates).upper
        return Interval(min(lower, upper), upper)


@dataclass
class _Refined:
    """The upper bound of a direction, as it is composed ever more finely.

    Attributes:
        direction: from above.
        upper: the smallest bound so far.
        scale: the step of the next one, in steps of its plan.
        gap: to the lower bound, at the last step.
        near: the delta at which a bound on delta is to be sharp.
    """

    direction: Direction
    upper: float
    scale: float
    gap: float = math.inf
    near: float = 1.0


def _worst(candidates: list[_Refined]) -> _Refined:
    return max(candidates, key=lambda candidate: candidate.upper)


def _distinct(directions: Directions) -> list[Direction]:
    """The directions from above, each once."""
    return list(dict.fromkeys(above for above, _ in directions))


def _finer(tolerated: float, gap: float) -> float:
    """Factor of the next step: the gap shrinks with its square."""
    shrink = math.sqrt(tolerated / gap) if math.isfinite(gap) else 0.5
    return min(_MAX_FINER, max(_MIN_FINER, _FINER * shrink))


def _between(
    directions: Directions,
    delta: float,
    tolerance: float,
    lower: float = 0.0,
    decide: float | None = None,
    *,
    is_gentle: bool = False,
) -> Interval:
    """Bounds on epsilon: the worst direction is composed ever more finely.

    A direction that is not the worst is only composed coarsely, by the plan of the
    first, and needs no lower bound. Where the lower pairs are others than the upper
    ones, the gap is that of the cell and cannot be closed; but where they differ by
    rounding, as of the discrete Gaussian, the upper bound is that which equal ones
    have, so that a ledger meets the certificate of its plan.

    Args:
        directions: what is composed.
        delta: in (0, 1).
        tolerance: gap of the bounds over the upper one, to aim at.
        lower: a lower bound on epsilon that is proven already.
        decide: a budget; bounds on the same side of it end the search.
        is_gentle: whether plans are those for a client that hardly ever takes part.
    """
    planned = partial(_plan, delta=delta, tolerance=tolerance, is_gentle=is_gentle)
    equal = tuple((above, Direction(above.pairs, False)) for above, _ in directions)
    if equal != directions and all(
        _nearly_equal(above, below) for above, below in directions
    ):
        upper = _between(equal, delta, tolerance, is_gentle=is_gentle).upper
        lower = max(
            _epsilon(below, delta, planned(below), 1.0) for _, below in directions
        )
        return Interval(min(lower, upper), upper)

    # An upper bound of each direction; the first one probably spends most.
    plan = planned(directions[0][0])
    candidates: list[_Refined] = []
    for above in _distinct(directions):
        scale = _LESSER_SCALE if candidates else 1.0
        bound = _epsilon(above, delta, plan, scale)
        candidates.append(_Refined(above, bound, scale))

    for _ in range(_REFINEMENTS):
        worst = _worst(candidates)
        if worst.upper == 0:
            break

        # A direction that turns out to be the worst gets a plan of its own first.
        plan = planned(worst.direction)
        if worst.scale == _LESSER_SCALE:
            worst.scale = 1.0
            bound = _epsilon(worst.direction, delta, plan, 1.0)
            worst.upper = min(worst.upper, bound)
            continue

        can_close = _can_close(worst.direction, directions)
        if decide is not None and (worst.upper <= decide or not can_close):
            break
        for above, below in directions:
            if above == worst.direction:
                bound = _epsilon(below, delta, planned(below), worst.scale)
                lower = max(lower, bound)
        if decide is not None and lower > decide:
            break

        # Epsilon is 0 where delta at 0 shows it; no step would.
        if lower == 0 and _delta(worst.direction, 0.0, delta, tolerance) <= delta:
            worst.upper = 0.0
            continue

        gap = worst.upper - lower
        tolerated = tolerance * max(worst.upper, _LEAST_EPSILON_SHARE * plan.spread)
        if gap <= tolerated or not can_close or gap > _HOPELESS * worst.gap:
            break

        worst.gap = gap
        scale = worst.scale
        worst.scale = scale * _finer(tolerated, gap)
        bound = _epsilon(worst.direction, delta, plan, worst.scale, scale)
        if math.isinf(bound):
            break
        worst.upper = min(worst.upper, bound)
    upper = _worst(candidates).upper
    return Interval(min(lower, upper), upper)


def _can_close(direction: Direction, directions: Directions) -> bool:
    """Whether a finer step closes the gap: the pairs are attained, or discretised."""
    if any(isinstance(pair, DiscretePair) for pair, _ in direction.pairs):
        return True
    return any(direction.pairs == below.pairs for _, below in directions)


def _nearly_equal(above: Direction, below: Direction) -> bool:
    """Whether the Gaussian pairs differ in their shifts by ``_SAME_SHIFT`` at most."""
    if len(above.pairs) != len(below.pairs):
        return False
    for (upper, upper_count), (lower, lower_count) in zip(
        above.pairs, below.pairs, strict=True
    ):
        if not isinstance(upper, Pair) or not isinstance(lower, Pair):
            return False
        if not math.isclose(upper.shift, lower.shift, rel_tol=_SAME_SHIFT):
            return False
        if replace(upper, shift=lower.shift) != lower or upper_count != lower_count:
            return False
    return True


def _plan(
    direction: Direction, delta: float, tolerance: float, *, is_gentle: bool = False
) -> EvaluationPlan:
    """The plan of a direction, which the bounds from above and from below share."""
    above = Direction(direction.pairs, from_above=True)
    return evaluation_plan(above, delta, tolerance, is_gentle=is_gentle)


def _parts(direction: Direction, plan: EvaluationPlan, scale: float) -> list[Part]:
    """The lattices of a plan at ``scale`` times its step."""
    spacing = replace(plan.spacing, growth=plan.spacing.growth * scale)
    return direction.parts(plan.step * scale, plan.tail, spacing)


def _epsilon(
    direction: Direction,
    delta: float,
    plan: EvaluationPlan,
    scale: float,
    previous_scale: float = math.inf,
) -> float:
    """One bound on epsilon from one direction.

    Coarser where memory is short, unless that comes near the ``previous_scale``; less
    tilted where the window shows no epsilon.
    """
    if direction.rounds == 1:
        pair = direction.pairs[0][0]
        return profile.epsilon_of(pair, delta, from_above=direction.from_above)
    bound = math.inf if direction.from_above else 0.0
    for _ in range(_RETRIES):
        composed = compose_at(_parts(direction, plan, scale), plan.tilt)
        if composed is None:
            scale *= 2
            if scale > _HOPELESS * previous_scale:
                break
            continue
        if not direction.from_above:
            return composed.epsilon_lower(delta)
        bound = composed.epsilon_upper(delta)
        if math.isfinite(bound):
            break
        plan = replace(plan, tilt=plan.tilt / 4)
    return bound


def _chernoff_delta(direction: Direction, epsilon: float) -> float:
    """Chernoff's bound on the delta of a direction; the value itself of one round.

    ``log delta <= K(t) - t epsilon`` at any tilt t, with K the cumulant of the finite
    losses; a part in 1e9 is added for rounding, and the mass of infinite losses.
    """
    if direction.rounds == 1:
        return profile.delta_of(direction.pairs[0][0], epsilon)[1]
    counted_lattices = coarse_parts(direction, _LEAST_TAIL / direction.rounds)
    log_deltas = (
        cumulants(counted_lattices, _CHERNOFF_TILTS) - _CHERNOFF_TILTS * epsilon
    )
    log_delta = float(log_deltas.min())
    infinite = sum(
        float(counts @ lattices.infinite) for lattices, counts in counted_lattices
    )
    return min(1.0, (1 + 1e-9) * math.exp(min(0.0, log_delta)) + infinite)


def _delta(
    direction: Direction,
    epsilon: float,
    near: float,
    tolerance: float,
    scale: float = 1.0,
) -> float:
    """One bound on delta from one direction, sharpest ``near`` that delta."""
    if direction.rounds == 1 and epsilon >= 0:
        lower, upper = profile.delta_of(direction.pairs[0][0], epsilon)
        if direction.from_above:
            return upper
        return lower

    # Near that delta the plan of epsilon is the sharper one.
    log_inverse = math.log(1 / max(near, 1e-200))
    sharper = max(_SHARPER, _SHARPER_PER_LOG * log_inverse)
    plan = _plan(direction, min(near, 0.5), tolerance / sharper)
    for _ in range(_RETRIES):
        # Another tilt may round less: the errors are as e^(K(t) - t epsilon) / t.
        counted_lattices = _parts(direction, plan, scale)
        tilts = plan.tilt * _TILTS
        log_errors = (
            cumulants(counted_lattices, tilts) - tilts * epsilon - np.log(tilts)
        )
        composed = compose_at(counted_lattices, float(tilts[log_errors.argmin()]))
        if composed is not None:
            return composed.delta(epsilon, 1 if direction.from_above else -1)
        scale *= 2
    return float(direction.from_above)


def compose(
    history: History, relation: Relation, *, tolerance: float = TOLERANCE
) -> ComposedLoss:
    """The privacy loss of a whole history, with bounds on epsilon.

    Args:
        history: releases and how often each happened.
        relation: which data sets are neighbours.
        tolerance: gap of the bounds on epsilon over the upper one, to aim at.

    Raises:
        TooLittleNoiseError: when a noise multiplier is too small to compose with
            sampling.
        UnsupportedError: when a family of noise does not cover a release.
    """
    # Nobody learns from a release without clients, or of infinite noise.
    noisy = []
    for release, count in history:
        if release.sampling_ratio > 0 and not math.isinf(release.noise_multiplier):
            noisy.append((release, count))
    if any(release.noise_multiplier == 0 for release, _ in noisy):
        return ComposedLoss(None, (), tolerance, unbounded=True)

    # The pairs of both directions, from above and from below.
    above: tuple[Counted, Counted] = ([], [])
    below: tuple[Counted, Counted] = ([], [])
    for release, count in noisy:
        bounds = dominating_pairs(release, relation)
        for direction in (0, 1):
            above[direction].append((bounds.upper[direction], count))
            below[direction].append((bounds.lower[direction], count))
    all_pairs = [pair for pair, _ in (*above[0], *above[1], *below[0], *below[1])]

    # Rounds without sampling are one Gaussian mechanism.
    if all(map(_unsampled, all_pairs)):
        mu = _mu(above[0])
        return ComposedLoss(mu, (), tolerance, unsampled_mu=_mu(below[0]))

    _check_shifts(all_pairs)
    directions = []
    for direction in (0, 1):
        from_above = Direction(_merged(above[direction]), True)
        from_below = Direction(_merged(below[direction]), False)
        directions.append((from_above, from_below))
    mu = _mu(directions[0][1].pairs)
    distinct = tuple(dict.fromkeys(directions))
    return ComposedLoss(None, distinct, tolerance, unsampled_mu=mu)


def estimated_epsilon(pair: AnyPair, times: int, delta: float) -> float:
    """About the epsilon of releases that have one pair. Not for guarantees."""
    above = Direction(((pair, times),), True)
    return ComposedLoss(None, ((above, above),), TOLERANCE).estimate(delta)[0]


def _check_shifts(pairs_of_rounds: list[AnyPair]) -> None:
    """Raise where a likelihood ratio might leave the floating-point range."""
    shifts = [pair.shift for pair in pairs_of_rounds if isinstance(pair, Pair)]
    largest = max(shifts, default=0.0)
    if largest > LARGEST_SHIFT:
        rule = f"pld needs {1 / LARGEST_SHIFT:g} times the distance or more"
        raise TooLittleNoiseError(
            f"noise_multiplier: {rule} under sampling, found {1 / largest:g}"
        )


def _unsampled(pair: AnyPair) -> bool:
    return isinstance(pair, Pair) and pair.kind == Kind.REMOVE and pair.ratio == 1


def _mu(counted: Iterable[tuple[AnyPair, int]]) -> float:
    """Of the Gaussian mechanism that the rounds of unsampled pairs are."""
    squares = [
        count * pair.shift**2
        for pair, count in counted
        if isinstance(pair, Pair) and _unsampled(pair)
    ]
    return math.sqrt(math.fsum(squares))


def _merged(counted: Counted) -> tuple[tuple[AnyPair, int], ...]:
    """Pairs in an order of their own, each once, so that equal histories are equal."""
    counts: dict[AnyPair, int] = {}
    for pair, count in counted:
        counts[pair] = counts.get(pair, 0) + count
    return tuple(
        sorted(counts.items(), key=lambda item: (type(item[0]).__name__, item[0]))
    )


@cache
def _privplan_version() -> str:
    return f"privplan {own_version()}"


@dataclass(frozen=True)
class PldAccountant(Guided):
    """Privacy loss distributions, rounded outward: the guarantee of every plan.

    Attributes:
        tolerance: gap of the bounds over the upper one, to aim at.
        decide: a budget; bounds on the same side of it are close enough. None to close
            every bound.
    """

    tolerance: float = TOLERANCE
    decide: float | None = None
    name: str = "pld"
    kind: str = "two-sided bound"
    guarantee: bool = True
    version: str = field(default_factory=_privplan_version)

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
        relation = checked_relation(relation)
        return _bounds(history, relation, delta, self.tolerance, self.decide)


@lru_cache(maxsize=1024)
def _bounds(
    history: History,
    relation: Relation,
    delta: float,
    tolerance: float,
    decide: float | None,
) -> Interval:
    """Bounds on epsilon, stored for the certificate of what was just calibrated."""
    return compose(history, relation, tolerance=tolerance).epsilon(delta, decide)


ACCOUNTANTS.register("pld", PldAccountant())
