"""Pairs of balls in bins: a client in one of T rounds, under noise correlated over all.

Both profiles are prices of options on the likelihood ratio S: E[(S - e^epsilon)+] where
a client is removed, E[(1 - e^epsilon S)+] where one is added. ``option_chain`` bounds
calls above strike 1 and puts below it. The pair whose profile is the convex curve
through these dots dominates, and composes. From below: the release seen along the mean
column only, a mixture of normal laws against one of them, which is what an observer of
less sees.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privplan.accounting.families import stated
from privplan.accounting.pld.allocation import PricedStrikes, ratios_above
from privplan.accounting.pld.option_chain import Strikes, option_prices
from privplan.accounting.pld.pairs import UNIT, Array, normal_cells
from privplan.laws.law import DiscretePair, DominatingPairs
from privplan.laws.rank_one import RankOneFactors

# Spacing of the grid of W in its deviations, at 50 rounds: sigma is then some 0.3%
# above the exact one. What a round adds falls with the square, so more rounds take
# less.
_SPACING = 0.1
_SPACING_ROUNDS = 50
_SPACING_POWER = 0.4
_WIDEST_SPACING = 0.2
# Step of the strikes in deviations of S over the root of the rounds: each round spreads
# the strike by a step over root 6 at most, in all by 0.5% of the variance.
_STEP = 0.17
# A wide law of S has its curvature within this distance of its mean.
_WIDEST_DEVIATION = 0.35
# Strikes of the first table, and the factor from the first strike to the last of those
# that follow. Their step is a part of the first strike: where it is large, few of the
# rounds make up S, and they spread it less.
_STRIKES = 400
_FACTOR = 3.0
# Strikes of so few steps are spread by as much as they are: finer tables have them.
_STEPS_OF_FINER = 16
_LARGEST_PART = 1 / 60
_PART_OF_SMALL_STRIKES = 1 / 1500
# Relative step of further tables of calls over that around 1, at least: S is wide where
# it is so large, and epsilon rises by 0.02% at most.
_WIDER = 1.7
# The last call may cost so much for each round: what is left is an infinite loss. The
# outcomes that the grid of W does not reach cost nearly as much at any strike.
_NEGLIGIBLE = 1e-13
# Tables of calls that are computed at once; one has hardly any use for more.
_BATCH = 4
# Deviations of a mean of terms that tables reach: on the side where the price is linear
# and on the side where it vanishes.
_LINEAR_REACH = 6.5
_VANISHING_REACH = 8.5
# Relative margin of masses and losses from below, above the rounding of ``ndtr``.
_MARGIN = 1e-12
# Spacings of the two tables of a rough estimate over those of a bound, and the rounds
# from which these are narrow enough for that.
_COARSE = 2
_COARSER = 3
_FEWEST_ROUGH_ROUNDS = 50
# Epsilon by the second table over that by a fine one: 1.036 to 1.055, 50 or 100 rounds.
_COARSER_OVER_FINE = 1.045
# Within this factor of the epsilon that is looked for an estimate takes both tables.
_CLOSE = 1.04
# Epsilons of the table of an estimate, over the one that is looked for.
_NEAR = (0.8, 1.2)
# And at most so far from it, since strikes are exponentials.
_FARTHEST_NEAR = 2.0
# Cells of outcomes from below, and how far they reach in deviations.
_CELL = 0.02
_OUTCOMES = 9.0


class _Spread(NamedTuple):
    """Deviations of the logs of means of terms, for choosing tables.

    Attributes:
        ratio: deviation of S.
        term: of the log of a term, the largest.
        first: of the mean of the terms of rounds 0 to t, shape (T,).
        later: of the mean of the terms after t; 0 for the last.
    """

    ratio: float
    term: float
    first: Array
    later: Array


def _spread(factors: RankOneFactors, sigma: float) -> _Spread:
    d, a, b = map(np.array, factors.arrays)
    matrix = np.tril(np.outer(a, b), -1) + np.diag(d)
    products = matrix.T @ matrix / sigma**2
    count = np.arange(1.0, len(d) + 1)
    first_sums = np.cumsum(np.cumsum(products, 0), 1).diagonal()
    turned = products[::-1, ::-1]
    last_sums = np.cumsum(np.cumsum(turned, 0), 1).diagonal()
    later = np.append((np.sqrt(last_sums) / count)[::-1][1:], 0.0)
    # exp of more would overflow, and is beyond what tables distinguish.
    ratio = math.sqrt(float(np.expm1(np.minimum(products, 50.0)).mean()))
    term = math.sqrt(float(products.diagonal().max()))
    return _Spread(ratio, term, np.sqrt(first_sums) / count, later)


def _tables(spread: _Spread, step: float, ends: tuple[float, float]) -> Strikes:
    """Strikes between two ends, and those that earlier rounds need for them.

    What lies beyond a table is bounded by a line, so that its reach matters for
    closeness only.

    Args:
        spread: of the mean of some terms.
        step: of the strikes.
        ends: the first and the last strike of all rounds; calls end above 1.
    """
    lowest_strike, highest_strike = ends
    rounds = len(spread.first)
    mean = np.arange(1.0, rounds + 1) / rounds
    half = spread.first**2 / 2
    least_later = (1 - mean) * np.exp(
        -_LINEAR_REACH * spread.later - spread.later**2 / 2
    )
    if highest_strike > 1:
        low = np.minimum(
            mean * np.exp(-_LINEAR_REACH * spread.first - half), lowest_strike
        )
        reach = _VANISHING_REACH * spread.first
    else:
        low = mean * np.exp(-_VANISHING_REACH * spread.first - half)
        reach = _LINEAR_REACH * spread.first
    upwards = mean * np.exp(np.minimum(reach + half, 600.0))
    if highest_strike > 1:
        # With little noise the tail of a mean is that of its largest term.
        of_term = _VANISHING_REACH * spread.term + spread.term**2 / 2
        upwards = np.maximum(upwards, math.exp(min(of_term, 600.0)) / rounds)
    # Interpolation spreads strikes by some steps, which the reach has to hold, too.
    spread_steps = _LINEAR_REACH * math.sqrt(rounds)
    high = np.minimum(upwards + spread_steps * step, highest_strike - least_later)
    low = np.maximum(low - spread_steps * step, 0.0)
    low[-1] = lowest_strike
    high[-1] = highest_strike
    lowest = np.floor(_in_steps(low, step)).astype(np.int64)
    highest = np.ceil(_in_steps(high, step)).astype(np.int64)
    return Strikes(step, lowest, np.maximum(highest, lowest + 1))


def _in_steps(strikes: Array, step: float) -> Array:
    """Strikes as multiples of a step, whole ones without their rounding.

    Strike 1 is a whole multiple of the first step, at which puts end and calls begin;
    the quotient may miss it by the last bits.
    """
    quotients = strikes / step
    nearest = np.rint(quotients)
    is_whole = np.abs(quotients - nearest) <= 4 * UNIT * nearest
    return np.where(is_whole, nearest, quotients)


def _spacing(rounds: int) -> float:
    """Of the grid of W in its deviations."""
    spacing = _SPACING * (_SPACING_ROUNDS / rounds) ** _SPACING_POWER
    return float(min(spacing, _WIDEST_SPACING))


def _first_step(spread: _Spread) -> float:
    """Of the strikes around 1, which is one of them."""
    rounds = len(spread.first)
    deviation = min(spread.ratio, _WIDEST_DEVIATION)
    return 1 / math.ceil(math.sqrt(rounds) / (_STEP * deviation))


def _step_from(strike: float, step: float) -> float:
    """Of the strikes from one on, at least the step of those around 1."""
    relative_step = min(_LARGEST_PART, strike * _PART_OF_SMALL_STRIKES)
    return float(max(step, strike * relative_step))


def _further_step(strike: float, step: float) -> float:
    """Of a further table of calls from a strike on, given the step around 1."""
    return _step_from(strike, min(_WIDER * step, _LARGEST_PART) * strike)


def _dots(factors: RankOneFactors, sigma: float) -> tuple[PricedStrikes, PricedStrikes]:
    """Calls and puts from strike 1 outwards."""
    rounds = factors.rounds
    spread = _spread(factors, sigma)
    spacing = _spacing(rounds)
    step = _first_step(spread)
    puts = _puts(factors, sigma, spread, step, spacing)
    calls = _calls(factors, sigma, spread, step, spacing)

    # Both bound the same price at strike 1, from which rounding of the multiple may
    # have moved them; a price moves no more than its strike.
    beside_1 = abs(puts.strikes[0] - 1) + abs(calls.strikes[0] - 1)
    if beside_1 > 8 * UNIT:
        raise AssertionError("puts and calls must meet at strike 1")
    puts.strikes[0] = 1.0
    calls.strikes[0] = 1.0
    price_at_1 = min(puts.prices[0], calls.prices[0]) + beside_1
    puts.prices[0] = price_at_1
    calls.prices[0] = price_at_1
    falling = np.minimum.accumulate(calls.prices)
    return PricedStrikes(calls.strikes, falling), puts


def _largest_epsilon(sigma: float) -> float:
    """Beyond it even a client whose round is known costs less than is negligible."""
    return min(0.5 / sigma**2 + 9 / sigma, 600.0)


def _calls(
    factors: RankOneFactors, sigma: float, spread: _Spread, step: float, spacing: float
) -> PricedStrikes:
    """Calls from strike 1 to where they cost next to nothing, table by table."""
    limit = math.exp(_largest_epsilon(sigma))
    low = 1.0
    high = 1 + _STRIKES * step
    negligible = _NEGLIGIBLE * factors.rounds
    step_at_1 = step
    strikes: list[Array] = []
    prices: list[Array] = []
    while not prices or (prices[-1][-1] > negligible and low < limit):
        batch = []
        for _ in range(_BATCH):
            batch.append(_tables(spread, step, (low, high)))
            low = high
            high *= _FACTOR
            step = _further_step(low, step_at_1)
        strikes += [table.values(factors.rounds - 1) for table in batch]
        prices += option_prices(factors, sigma, batch, call=True, spacing=spacing)
    all_strikes = np.concatenate(strikes)
    all_prices = np.concatenate(prices)
    distinct, places = np.unique(all_strikes, return_index=True)
    return PricedStrikes(distinct, all_prices[places])


def _puts(
    factors: RankOneFactors, sigma: float, spread: _Spread, step: float, spacing: float
) -> PricedStrikes:
    """Puts from strike 1 down to where they cost next to nothing, table by table.

    A put over its strike is at least the part of S that is below: that part has an
    infinite loss once tables end.
    """
    largest = float(spread.first[-1])
    vanishing = math.exp(-_VANISHING_REACH * largest - largest**2 / 2)
    limit = math.exp(-_largest_epsilon(sigma))
    negligible = _NEGLIGIBLE * factors.rounds
    high = 1.0
    strikes = np.ones(1)
    prices = np.full(1, math.inf)
    while True:
        low = max(vanishing, step)
        table = _tables(spread, step, (low, high))
        [table_prices] = option_prices(
            factors, sigma, [table], call=False, spacing=spacing
        )
        # Where tables overlap, the finer one is closer.
        is_above = strikes > high
        strikes = np.append(strikes[is_above], table.values(factors.rounds - 1)[::-1])
        prices = np.append(prices[is_above], table_prices[::-1])
        lowest = float(strikes[-1])
        if prices[-1] <= negligible * lowest or lowest < max(limit, 2 * vanishing):
            return PricedStrikes(strikes, prices)
        high = _STEPS_OF_FINER * step
        step = high / _STRIKES


def _upper(factors: RankOneFactors, sigma: float) -> list[DiscretePair]:
    """The dominating pairs of a client that is removed, and of one that is added."""
    ratios, masses = ratios_above(*_dots(factors, sigma))
    positive = masses > 0
    losses = np.log(ratios[positive])
    # Losses up by their rounding; mass that is taken from them has an infinite loss.
    mass_factor = 1 - 4 * UNIT * len(masses)
    doubt = 4 * UNIT * (1 + np.abs(losses))
    removed = masses[positive] * ratios[positive] * mass_factor
    added = masses[positive] * mass_factor
    remove = DiscretePair(tuple((losses + doubt).tolist()), tuple(removed.tolist()))
    turned = (doubt - losses)[::-1]
    return [remove, DiscretePair(tuple(turned.tolist()), tuple(added[::-1].tolist()))]


def _lower(factors: RankOneFactors, sigma: float) -> list[DiscretePair]:
    """The pairs of an observer who sees <v, y> only, v along the mean column.

    P is the mixture of N(<c_t, v> / sigma, 1) over the rounds and Q = N(0, 1); a cell
    of outcomes counts as one.
    """
    d, a, b = map(np.array, factors.arrays)
    matrix = np.tril(np.outer(a, b), -1) + np.diag(d)
    direction = matrix.sum(axis=1)
    shifts = direction @ matrix / np.linalg.norm(direction) / sigma
    largest = float(shifts.max())
    cells = math.ceil((2 * _OUTCOMES + largest) / _CELL)
    ends = np.linspace(-_OUTCOMES, _OUTCOMES + largest, cells + 1)
    ends = np.concatenate([[-math.inf], ends, [math.inf]])
    absent = normal_cells(ends[None])[0][0]
    present = normal_cells(ends - shifts[:, None])[0].mean(axis=0)
    positive = (absent > 0) & (present > 0)
    losses = np.log(present[positive] / absent[positive])
    return [
        stated(losses, present[positive], -1, _MARGIN),
        stated(-losses, absent[positive], -1, _MARGIN),
    ]


def rough_epsilon(
    factors: RankOneFactors, sigma: float, delta: float, near: float
) -> float:
    """``estimated_epsilon`` within 0.1%, in a third of its time, for 50 rounds or more.

    What grids add to log epsilon grows with the squares of their spacings, so that two
    coarse tables tell what a fine one has: e(1) = e(2) - 3/5 (e(3) - e(2)). Far from
    ``near`` a search goes on, for which one table within 1% serves.
    """
    if factors.rounds < _FEWEST_ROUGH_ROUNDS:
        return estimated_epsilon(factors, sigma, delta, near)
    coarser = estimated_epsilon(factors, sigma, delta, near, _COARSER)
    alone = coarser / _COARSER_OVER_FINE
    if not near / _CLOSE <= alone <= near * _CLOSE:
        return alone
    coarse = estimated_epsilon(factors, sigma, delta, near, _COARSE)
    share = (_COARSE**2 - 1) / (_COARSER**2 - _COARSE**2)
    return float(coarse * (coarse / coarser) ** share)


def estimated_epsilon(
    factors: RankOneFactors,
    sigma: float,
    delta: float,
    near: float,
    coarseness: float = 1,
) -> float:
    """About the epsilon of a client that is removed, by one table. Not for guarantees.

    Args:
        factors: of C.
        sigma: the noise multiplier.
        delta: in (0, 1).
        near: an epsilon around which the table is; further away the log of the price
            is continued as a straight line in epsilon.
        coarseness: spacings of the table over those of a bound.
    """
    spread = _spread(factors, sigma)
    near = min(near, _largest_epsilon(sigma))
    low = math.exp(max(_NEAR[0] * near, near - _FARTHEST_NEAR))
    step = coarseness * _step_from(low, _first_step(spread))
    high = math.exp(min(_NEAR[1] * near, near + _FARTHEST_NEAR)) + 8 * step
    strikes = _tables(spread, step, (low, high))
    spacing = coarseness * _spacing(factors.rounds)
    [prices] = option_prices(factors, sigma, [strikes], call=True, spacing=spacing)
    priced = PricedStrikes(strikes.values(factors.rounds - 1), prices)
    return priced.epsilon(delta)


@lru_cache(maxsize=256)
def balls_in_bins_pairs(factors: RankOneFactors, sigma: float) -> DominatingPairs:
    """The pairs of a client that is removed, and of one that is added.

    Args:
        factors: of C; columns must have norm 1 at most, which the law checks.
        sigma: the noise multiplier.
    """
    removed, added = _upper(factors, sigma)
    removed_below, added_below = _lower(factors, sigma)
    return DominatingPairs((removed, added), (removed_below, added_below))
