"""Random allocation: a client takes part in exactly one of t rounds, chosen by itself.

With noise multiplier sigma, P the mixture of N(e_i, sigma^2) over the t rounds and
Q = N(0, sigma^2), the likelihood ratio under Q is R = S / t, S a sum of t independent
lognormals Y of mean 1 (Feldman and Shenfeld 2025, arXiv 2502.08202). Both profiles are
prices of options on R, E[(R - x)+] with x = e^epsilon (remove) and E[(x - R)+] / x with
x = e^-epsilon (add): puts for strikes below 1 and calls above. They are convex in each
Y, so a law of Y on a lattice that is larger or smaller in convex order bounds them. A
tilted power of a transform gives the law of S. Strikes of each octave have a lattice of
their own, above whose top Y has a closed form.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from privplan.accounting.pld import convolution as power
from privplan.accounting.pld.lattice import Lattice
from privplan.accounting.pld.pairs import UNIT, Array, normal_cells
from privplan.laws.law import DiscretePair, DominatingPairs

# Logs of strikes: reach of one lattice, and least distance in deviations.
_OCTAVE = math.log(2)
_SPACING = 0.007
# Points of a lattice: below the lowest strike, in all, and how many are evenly apart.
_LEAST_POINTS = 800
_MOST_POINTS = 1 << 16
_EVEN_POINTS = 640
# Share of a put by which both bounds may differ.
_SHARE = 3.6e-4
# Rounds in which corners are smoothed; what they leave is added.
_PASSES = 30
# Options below this are not looked at any further, by sign.
_NEGLIGIBLE = {1: 1e-17, -1: 1e-15}
# Outcomes beyond the lowest place, in deviations; those in one cell; how far the top of
# a lattice is, in deviations of the sum. ``_TAIL`` is the mass beyond the first.
_LOWEST_OUTCOME = 9.5
_LUMPED_OUTCOME = 7.0
_TAIL = 1e-20
_TOP_DISTANCE = 7.0
# Of transforms: log of the mass that may wrap; steepest tilt times the last place;
# tilts that are tried; largest exponent of a pull towards the top.
_QUIET = 26.0
_STEEPEST = 150.0
_TILTS = 32
_JUMPS = 32.0
# Log of the relative error that serves; rounding of a round, about.
_AIM = -23.0
_ROUGH = 2e-16
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
# Exponents of floats: e^690 and e^700 are near the largest one.
_LARGEST_WEIGHT = 690.0
_LARGEST_EXPONENT = 700.0
# Epsilons of an estimate, over the one that is looked for, and at most so far below it;
# how many.
_NEAR = (0.8, 1.2)
_FARTHEST_NEAR = 2.0
_NEAR_STRIKES = 60


class _Cells(NamedTuple):
    """Mass of Y between edges, and its moment about the lower edge, with their errors.

    Moments are in steps. All of shape (cells,).
    """

    mass: Array
    moment: Array
    mass_error: Array
    moment_error: Array


class _Law(NamedTuple):
    """Masses of Y at ``origin`` plus steps, for Y up to a top.

    Attributes:
        origin: the first place, in steps.
        steps: places above it, whole numbers.
        masses: at these.
        top: the last edge, in steps.
        added: mass that was put on.
    """

    origin: float
    steps: Array
    masses: Array
    top: float
    added: float = 0.0


class _Prices(NamedTuple):
    """Options at strikes, masses beyond these, and bounds on the errors of both."""

    price: Array
    mass: Array
    price_error: Array
    mass_error: Array


class _Options(NamedTuple):
    """Options at strikes from 1 outwards.

    Attributes:
        strikes: x.
        above: bounds from above.
        mass: of Q beyond each strike, from below for puts and from above for calls.
        moment: a put at any x is at least ``x mass - moment``.
    """

    strikes: Array
    above: Array
    mass: Array
    moment: Array


def _outcome(sigma: float, y: Array) -> Array:
    """The normal outcome at which the lognormal Y is y; as good as -infinity at 0."""
    return np.asarray(sigma * np.log(np.maximum(y, 1e-300)) + 1 / (2 * sigma))


def _place(sigma: float, outcome: float) -> float:
    """The lognormal Y at a normal outcome."""
    return math.exp((outcome - 1 / (2 * sigma)) / sigma)


def _deviation(sigma: float, rounds: int) -> float:
    """Of log R, about."""
    return math.sqrt(math.log1p(math.expm1(1 / sigma**2) / rounds))


def _cells(sigma: float, step: float, edges: Array) -> _Cells:
    """Cells between edges, given in steps.

    By quadrature, except near 0: six points are off by less than a unit where a cell is
    at most 1 / (10 sigma) of its place and an eighth of it.
    """
    wide = int(np.searchsorted(edges[:-1], max(8.0, 10 * sigma)))
    near = _near_cells(sigma, step, edges[: wide + 1])
    width = np.diff(edges[wide:])
    inside = width * (1 + _NODES[:, None]) / 2
    places = edges[wide:-1] + inside
    squares = _outcome(sigma, step * places) ** 2
    scale = width * sigma / math.sqrt(8 * math.pi)
    density = np.exp(-squares / 2) * scale / places
    mass = _WEIGHTS @ density
    error = UNIT * (64 + 8 * np.maximum(squares[0], squares[-1])) * mass
    further = _Cells(mass, _WEIGHTS @ (density * inside), error, error * width)
    return _Cells(*map(np.concatenate, zip(near, further, strict=True)))


def _near_cells(sigma: float, step: float, edges: Array) -> _Cells:
    """Cells by differences of normal masses: the moment of Y is a shifted mass."""
    outcomes = _outcome(sigma, step * edges)[None]
    low = edges[:-1]
    mass, mass_error = normal_cells(outcomes)
    moment, moment_error = normal_cells(outcomes - 1 / sigma)
    doubt = (moment_error + 4 * UNIT * moment) / step + low * mass_error
    about = np.maximum(moment / step - low * mass, 0.0)
    return _Cells(mass[0], about[0], mass_error[0], doubt[0])


def _grid(sigma: float, lowest: int, highest: float) -> Array:
    """Whole numbers, ever further apart: by the variance that this adds, about none."""
    even = max(_EVEN_POINTS, math.ceil(51 / _deviation(sigma, 1)))
    start = max(even, lowest + 3)
    growths = math.ceil(even * math.log(max(highest / start, 1.0))) + 1

    # At least one apart, since they grow from ``start`` on by 1 / even of themselves.
    spread = np.ceil(start * np.exp(np.arange(1.0, growths + 1) / even))
    places = np.concatenate([np.arange(lowest, start + 1.0), spread])
    count = max(int(np.searchsorted(places, highest)) + 1, 4)
    return np.asarray(places[:count])


def _larger(sigma: float, step: float, top: float) -> _Law:
    """Larger in convex order: the mass of each cell on its ends, the mean kept."""
    lowest = math.floor(_place(sigma, -_LOWEST_OUTCOME) / step)
    edges = _grid(sigma, lowest, top / step)
    cells = _cells(sigma, step, edges)
    share = cells.moment / np.diff(edges)
    share_error = cells.moment_error / np.diff(edges)
    lower = np.maximum(cells.mass - share, 0.0) + cells.mass_error + share_error
    upper = share + share_error

    # All below the first edge is moved there.
    below = ndtr(_outcome(sigma, step * edges[:1]))
    masses = np.append(lower, 0.0) + np.append(below, upper)
    return _Law(float(lowest), edges - lowest, masses, float(edges[-1]))


class _Points(NamedTuple):
    """Where the smaller law has its masses.

    Attributes:
        offset: of the lowest place, in steps: the mean of the lowest cell.
        grid: places above it.
        gaps: distances to the place before.
        edges: of the cells.
        distances: of each place from the lower edge of its cell.
    """

    offset: float
    grid: Array
    gaps: Array
    edges: Array
    distances: Array


def _mean_below(sigma: float, step: float, edge: float) -> float:
    """The mean of Y below an edge, in steps, rounded up."""
    lump = _cells(sigma, step, np.array([0, edge]))
    mass, moment, mass_error, moment_error = np.ravel(lump).tolist()
    upper: float = (moment + moment_error) / (mass - mass_error) * (1 + 4 * UNIT)
    return upper


def _points(sigma: float, step: float, top: float) -> _Points:
    """Places of the smaller law, the lowest of which is resolved by rounding."""
    chances = ndtr(_outcome(sigma, step * np.arange(1.0, 16 * sigma + 4)))
    resolved = 1.0 + int(np.argmax(2 * chances[:-1] >= chances[1:]))
    lowest = max(resolved, math.floor(_place(sigma, -_LUMPED_OUTCOME) / step))
    offset = _mean_below(sigma, step, lowest)
    first_place = max(math.ceil(lowest - offset), 1)
    grid = _grid(sigma, first_place, top / step - offset)
    gaps = np.diff(grid, prepend=0.0)

    # The offset with so few digits that edges are exact.
    near = round(offset * 2.0**20) / 2.0**20
    last_edge = near + grid[-1] + 0.75 * gaps[-1]
    edges = np.r_[0.0, lowest, near + grid[1:] - gaps[1:] / 2, last_edge]
    distances = np.r_[
        offset, offset + first_place - lowest, gaps[1:] / 2 + (offset - near)
    ]
    return _Points(offset, grid, gaps, edges, distances)


def _smaller(sigma: float, step: float, top: float) -> _Law:
    """Smaller: the lowest cell at its mean, tangents at the other edges.

    With ``e`` the moment of a cell about its point, the put at the point is that
    through the lower edge less the positive part of e; the masses are the differences
    of the slopes between points.
    """
    points = _points(sigma, step, top)
    gaps = points.gaps
    cells = _cells(sigma, step, points.edges)
    excess = cells.moment - points.distances * cells.mass
    doubt = cells.moment_error + points.distances * (
        cells.mass_error + 8 * UNIT * cells.mass
    )
    under = np.maximum(-excess, 0.0)
    over = np.maximum(excess, 0.0)
    masses = cells.mass - cells.mass_error - 4 * UNIT * cells.mass
    masses[1:] += (over[1:] - doubt[1:] - under[:-1] - doubt[:-1]) / gaps
    masses[:-1] += (under[:-1] - doubt[:-1] - over[1:] - doubt[1:]) / gaps

    # Calls end one point before.
    if under[-1] > 0:
        ratio = gaps[-1] / gaps[-2]
        masses[-3:] += masses[-1] * np.array([-ratio, 1 + ratio, -1.0])

    # A negative mass is no corner: its mass goes to the neighbours.
    share = gaps[:-1] / (gaps[:-1] + gaps[1:])
    for _ in range(_PASSES if masses.min() < 0 else 0):
        negative = np.minimum(masses[1:-1], 0.0)
        masses[1:-1] -= negative
        masses[2:] += negative * share
        masses[:-2] += negative * (1 - share)
    added = -float(np.minimum(masses, 0.0).sum())
    return _Law(
        points.offset,
        np.append(0.0, points.grid),
        np.maximum(masses, 0.0),
        float(points.edges[-1]),
        added,
    )


def _tilt(
    counted_lattices: list[power.Part], places: Array, sign: int, quiet: float
) -> float:
    """That of the shortest circle which serves three calls, or two puts.

    By Chernoff's bounds on the options and on their errors.
    """
    one_round, counts = counted_lattices[0]
    spread = power.tilted_moments(counted_lattices, 0.0).spread
    largest_index = float(one_round.index[0, -1])
    smallest = 1 / max(spread, largest_index)
    largest = min(16 / spread, _STEEPEST / largest_index)
    sizes = np.geomspace(smallest, largest, _TILTS)[::sign]
    chosen = places[[0, len(places) // 2, -1][: 2 + (sign > 0)], None]
    bounds = power.cumulants(counted_lattices, sign * sizes) - sign * sizes * chosen
    errors = np.log(_ROUGH * counts * sizes**-1.5 + 4 * math.exp(-quiet) / sizes)
    best = (bounds - np.log(sizes)).min(axis=1, keepdims=True)
    worst = (bounds + errors - best).max(axis=0)
    return sign * float(sizes[np.argmax(worst <= max(worst.min(), _AIM))])


def _log_scale(counted_lattices: list[power.Part], tilt: float) -> float:
    """Log of the factor of the tilted masses of the sum."""
    one_round, [rounds] = counted_lattices[0]
    return float(rounds) * float(power.tilted_masses(one_round, tilt)[1][0, 0])


class _Circle(NamedTuple):
    """Places of a sum between which hardly any of its tilted mass is missing."""

    start: int
    points: int


def _circle(counted_lattices: list[power.Part], tilt: float, quiet: float) -> _Circle:
    """By Chernoff's bounds with several pulls on either side."""
    one_round, [rounds] = counted_lattices[0]
    largest_index = float(one_round.index[0, -1])
    log_scale = _log_scale(counted_lattices, tilt)
    steepest = (
        math.sqrt(2 * quiet) / power.tilted_moments(counted_lattices, tilt).spread
    )
    shares = 0.5 ** np.arange(-1.0, 8)
    high_pulls = min(steepest, _JUMPS / largest_index) * shares
    low_pulls = -steepest * shares
    rise = power.cumulants(counted_lattices, tilt + high_pulls) - log_scale + quiet
    fall = power.cumulants(counted_lattices, tilt + low_pulls) - log_scale + quiet
    start = math.floor(max(float((fall / low_pulls).max()), 0.0))
    end = min(float((rise / high_pulls).min()), rounds * largest_index)
    return _Circle(start, power.fast_length(math.ceil(end) - start + 4))


class _Tails(NamedTuple):
    """Sums of untilted masses from the far end.

    Attributes:
        beyond: mass at each place of the circle and beyond.
        option: the same of ``beyond``: options at the places.
        positions: of the strikes on the circle, from its near end.
        error: bound on the 2-norm of the error of the tilted masses.
        points: of the circle.
    """

    beyond: Array
    option: Array
    positions: Array
    error: float
    points: int


def _tails(
    counted_lattices: list[power.Part], places: Array, tilt: float, quiet: float
) -> _Tails:
    """Of the law of the sum, relative to the tilt at the middle strike."""
    one_round, [rounds] = counted_lattices[0]
    middle = float(places[len(places) // 2])
    weighted = power.tilted_masses(one_round, tilt)[0][0]
    start, count = _circle(counted_lattices, tilt, quiet)
    circle, error = power.convolved(
        [(one_round.index[0] % count, weighted, float(rounds))], count
    )
    exponent = tilt * (middle - start - np.arange(float(count)))
    masses = np.roll(circle, -(start % count))
    masses = masses * np.exp(np.minimum(exponent, _LARGEST_WEIGHT))
    positions = places - start
    if tilt <= 0:
        masses = masses[::-1]
        positions = count - 1 + start - places
    beyond = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
    option = np.append(np.cumsum(beyond[:0:-1])[::-1], 0.0)
    return _Tails(beyond, option, positions, error, count)


def _priced(
    counted_lattices: list[power.Part], places: Array, tilt: float, quiet: float
) -> _Prices:
    """Options and masses beyond strikes, in steps."""
    middle = float(places[len(places) // 2])
    log_scale = _log_scale(counted_lattices, tilt)
    tails = _tails(counted_lattices, places, tilt, quiet)
    after = np.clip(np.floor(tails.positions).astype(np.int64) + 1, 0, tails.points)
    scale = math.exp(min(log_scale - tilt * middle, _LARGEST_EXPONENT))
    beyond = tails.beyond[after]
    price = scale * (tails.option[after] + (after - tails.positions) * beyond)
    mass = scale * beyond

    # The errors of all masses with their tilts, and what wraps around.
    drift = _drift(counted_lattices, tilt, middle, tails.points)
    weights = np.exp(np.minimum(log_scale - tilt * places, _LARGEST_EXPONENT))
    of_price, of_mass = _norms(abs(tilt), tails.error, quiet)
    price_error = weights * of_price + drift * np.abs(price)
    mass_error = weights * of_mass + drift * np.abs(mass)
    return _Prices(price, mass, price_error, mass_error)


def _drift(
    counted_lattices: list[power.Part], tilt: float, middle: float, count: int
) -> float:
    """Rounding of tilts and sums, relative: as ``error_terms.tilt_drift`` and sums."""
    one_round, [rounds] = counted_lattices[0]
    log_scale = _log_scale(counted_lattices, tilt)
    largest_index = float(one_round.index[0, -1])
    steep = abs(tilt)
    spans = 2 * steep * (abs(middle) + 2 * count) + 4 * abs(log_scale) + 4 * count
    return UNIT * float(rounds * (steep * largest_index + 16) + spans)


def _norms(steep: float, error: float, quiet: float) -> tuple[float, float]:
    """What errors of tilted masses add to an option, and to a mass beyond a strike.

    By Cauchy and Schwarz, as ``error_terms.spread_error``.
    """
    gap = -math.expm1(-2 * steep)
    wrapped = 4 * math.exp(-quiet)
    of_price = error * math.sqrt((2 - gap) / gap) / gap + wrapped / steep
    of_mass = error / math.sqrt(gap) + wrapped
    return of_price, of_mass


class _Scale(NamedTuple):
    """The lattice of an octave.

    Attributes:
        step: distance of places of Y.
        top: of the lattice, about.
        quiet: minus the log of what may wrap around.
    """

    step: float
    top: float
    quiet: float


def _scale(sigma: float, rounds: int, strikes: Array, sign: int) -> _Scale:
    """The step at which both bounds are a share of a put apart, and where to end."""
    low = float(strikes.min())
    high = float(strikes.max())
    square = math.exp(1 / sigma**2)
    loss = max(abs(math.log(float(strikes[0]))), 5 * _deviation(sigma, rounds))
    points = max(math.sqrt((1 + 25 / loss) * rounds / (_SHARE * loss)), _LEAST_POINTS)
    distance = _TOP_DISTANCE * math.sqrt(rounds * square)
    top = 2 * max(rounds * (high - 1), 0.0) + distance
    top = min(top, (1 if sign < 0 else 1.05) * rounds * high)
    highest = _place(sigma, _LOWEST_OUTCOME + 1 / sigma)
    widest = min(top, low * rounds, highest)
    step = max(low * rounds / points, widest / _MOST_POINTS)
    quiet = _QUIET + max(math.log(high), 0.0)
    return _Scale(step, min(top + step, highest), quiet)


class _Side(NamedTuple):
    """Options by one law of Y, with what lies above its top.

    Attributes:
        above: bounds from above, if the law is larger.
        mass: beyond each strike.
        moment: likewise.
        price_error: bound on the error of the options.
        mass_error: likewise.
    """

    above: Array
    mass: Array
    moment: Array
    price_error: Array
    mass_error: Array


def _octave(
    sigma: float, rounds: int, strikes: Array, sign: int, *, only_above: bool
) -> _Options:
    """Puts (sign -1) or calls (sign 1) on one lattice.

    ``only_above``: masses and moments serve no bound from below.
    """
    scale = _scale(sigma, rounds, strikes, sign)
    above, tilt = _side_above(sigma, rounds, strikes, sign, scale)
    if only_above:
        return _Options(strikes, above.above, above.mass, above.moment)
    smaller = _smaller(sigma, scale.step, scale.top)
    below = _side_of(sigma, rounds, strikes, sign, scale, smaller, tilt)

    # Mass beyond all places.
    outside = 2 * rounds * _TAIL * strikes if sign < 0 else 0.0
    lost = below.price_error + below.mass_error * strikes
    return _Options(
        strikes,
        above.above + outside,
        below.mass + sign * below.mass_error,
        below.moment - sign * lost,
    )


def _side_above(
    sigma: float, rounds: int, strikes: Array, sign: int, scale: _Scale
) -> tuple[_Side, float]:
    """Options by the larger law, and the tilt that it chooses for both."""
    larger = _larger(sigma, scale.step, scale.top)
    places = strikes / (scale.step / rounds) - rounds * larger.origin
    tilt = _tilt(_parts(larger, rounds), places, sign, scale.quiet)
    return _side_of(sigma, rounds, strikes, sign, scale, larger, tilt), tilt


def estimated_epsilon(sigma: float, rounds: int, delta: float, near: float) -> float:
    """About the epsilon of a client that is removed from a block.

    By one lattice of calls, as close as the pairs. Not for guarantees.

    Args:
        sigma: noise multiplier, from 0.25 to 10,000.
        rounds: of which a client picks one.
        delta: in (0, 1).
        near: an epsilon around which the strikes are; further away the log of the price
            is continued as a straight line in epsilon.
    """
    near = min(near, _furthest(sigma, rounds, 1))
    ends = (max(_NEAR[0] * near, near - _FARTHEST_NEAR), _NEAR[1] * near)
    strikes = np.exp(np.linspace(*ends, _NEAR_STRIKES))
    scale = _scale(sigma, rounds, strikes, 1)
    calls, _ = _side_above(sigma, rounds, strikes, 1, scale)
    return PricedStrikes(strikes, calls.above).epsilon(delta)


def _parts(law: _Law, rounds: int) -> list[power.Part]:
    """One kind of round, on places above the law's origin."""
    zero = np.zeros(1)
    index = law.steps.astype(np.int64)
    lattice = Lattice(1.0, zero, index[None], law.masses[None], zero, zero)
    return [(lattice, np.array([float(rounds)]))]


def _side_of(
    sigma: float,
    rounds: int,
    strikes: Array,
    sign: int,
    scale: _Scale,
    law: _Law,
    tilt: float,
) -> _Side:
    """Options by one law of Y.

    Draws above the top are left out of puts and linear in calls. Where R may still be
    on the other side of the strike, the sum of the others is far below its mean, which
    is as rare as exp(-distance^2 / (2 t E[Y^2])) (Maurer 2003, for sums of positive
    variables).
    """
    unit = scale.step / rounds
    places = strikes / unit - rounds * law.origin
    priced = _priced(_parts(law, rounds), places, tilt, scale.quiet)
    price = unit * priced.price
    mass = priced.mass
    mass_error = priced.mass_error
    price_error = unit * priced.price_error
    moment = strikes * mass + sign * price
    last_place = scale.step * law.top
    beyond = [0.0, 1 / sigma] - _outcome(sigma, np.array(last_place))
    tail, moved = ndtr(beyond).tolist()
    missed = _missed(sigma, rounds, strikes, last_place, tail)

    # Of calls: the chances that any draw is above the top, under Q and under P.
    if sign > 0:
        under_q = -math.expm1(rounds * math.log1p(-tail))
        under_p = -math.expm1(math.log1p(-moved) + (rounds - 1) * math.log1p(-tail))
        mass = mass + under_q
        moment = moment + under_p
        price = price + np.maximum(under_p - strikes * under_q, 0.0)
        price_error = price_error + 1e-13 * (under_p + strikes * under_q)
        mass_error = mass_error + 1e-13 * under_q
    price_error = price_error + rounds * law.added * (strikes + last_place / rounds)
    return _Side(price + price_error + missed, mass, moment, price_error, mass_error)


def _missed(
    sigma: float, rounds: int, strikes: Array, last_place: float, tail: float
) -> Array:
    """What options miss of draws above the top of a lattice.

    Args:
        sigma: noise multiplier.
        rounds: draws.
        strikes: of the options.
        last_place: the top.
        tail: chance of a draw above it.
    """
    square = math.exp(1 / sigma**2)
    distance = np.maximum(rounds * (1 - strikes) + last_place - 1, 0.0)
    rare = np.exp(-(distance**2) / (2 * rounds * square))
    missed: Array = 1.01 * strikes * rounds * tail * rare
    missed[strikes * rounds <= last_place] = 0.0
    return missed


def _logs_of_octave(start: float, deviation: float) -> list[float]:
    """Distances of log strikes from 0, from a start to the end of its octave."""
    logs = [start]
    end = start + min(_OCTAVE, 7 * deviation)
    while logs[-1] < end:
        logs.append(logs[-1] + _SPACING * max(deviation, logs[-1]))
    return logs


def _furthest(sigma: float, rounds: int, sign: int) -> float:
    """Log strike beyond which hardly any outcome of one draw leads, in size."""
    if sign > 0:
        return math.log1p(_place(sigma, 8.6 + 1 / sigma) / rounds)
    return -math.log(_place(sigma, -_LOWEST_OUTCOME) / rounds)


def _side(
    sigma: float, rounds: int, sign: int, *, only_above: bool = False
) -> _Options:
    """All strikes on one side of 1, until nothing that matters is beyond."""
    deviation = _deviation(sigma, rounds)
    start = 0.0
    octaves: list[list[Array]] = []
    furthest = max(_furthest(sigma, rounds, sign), 9 * deviation)
    while start <= furthest:
        logs = _logs_of_octave(start, deviation)
        octave = np.exp(sign * np.array(logs))
        options = _octave(sigma, rounds, octave, sign, only_above=only_above)

        # The first strike of an octave is the last one before.
        octaves.append([column[bool(octaves) :] for column in options])
        start = logs[-1]
        negligible = _NEGLIGIBLE[sign] * math.exp(min(sign * start, 0.0))
        if options.above[-1] <= negligible:
            break
    strikes, above, mass, moment = map(np.concatenate, zip(*octaves, strict=True))

    # Calls fall with the strike, and so does put / strike to 0.
    size = np.minimum(strikes, 1.0)
    ratio = np.nan_to_num(above / size, nan=np.inf)
    above = size * np.minimum.accumulate(ratio)
    return _Options(strikes, above, mass, moment)


class Ratios(NamedTuple):
    """Ratios R and their masses under Q."""

    ratios: Array
    masses: Array


class PricedStrikes(NamedTuple):
    """Options at strikes from 1 outwards, from above."""

    strikes: Array
    prices: Array

    def epsilon(self, delta: float) -> float:
        """About where a call costs delta: its log is straight beyond the strikes."""
        logs = np.log(np.maximum(self.prices, 1e-300))
        epsilons = np.log(self.strikes)
        # The two strikes between which the price is delta, or the outermost ones.
        place = int(np.searchsorted(-logs, -math.log(delta)))
        place = min(max(place, 1), len(logs) - 1)
        fall = float(logs[place - 1] - logs[place])
        share = (float(logs[place - 1]) - math.log(delta)) / max(fall, 1e-12)
        width = float(epsilons[place] - epsilons[place - 1])
        return max(0.0, float(epsilons[place - 1]) + share * width)


def ratios_above(calls: PricedStrikes, puts: PricedStrikes) -> Ratios:
    """The ratio of densities whose options are those, or more between strikes.

    The slope of puts at strike 0 is the mass at R = 0; the rest of P's mass is at
    R = infinity. At strike 1 put and call cost the same, since E[R] = 1.
    """
    x = np.append(0.0, puts.strikes[::-1])
    y = np.append(0.0, puts.prices[::-1])
    z = calls.strikes
    prices = calls.prices.copy()
    y[-1] = max(y[-1], prices[0])
    prices[0] = y[-1]

    # Leave out strikes that are no corners: any others give a larger profile.
    while True:
        below = np.diff(y) / np.diff(x)
        above = -np.diff(prices) / np.diff(z)
        at_one = [1 - below[-1] - above[0]]
        masses = np.concatenate([np.diff(below), at_one, -np.diff(above)])
        is_bad = masses < 0
        if not is_bad.any():
            ratios = np.concatenate([x[1:-1], z])
            return Ratios(ratios, np.append(masses, above[-1]))
        middle = len(x) - 2
        is_bad[middle - 1 : middle + 2] |= is_bad[middle]
        put_corners = np.concatenate([[True], ~is_bad[:middle], [True]])
        call_corners = np.concatenate([[True], ~is_bad[middle + 1 :], [True]])
        x = x[put_corners]
        y = y[put_corners]
        z = z[call_corners]
        prices = prices[call_corners]


def _tests(options: _Options) -> Array:
    """Mass and moment of each test that may be used, shape (tests, 2)."""
    tests = np.stack([options.mass, options.moment], axis=1)[1:]
    is_usable = ((tests > 0) & (tests < 2)).all(axis=1)
    return np.asarray(tests[is_usable])


def _below(calls: _Options, puts: _Options) -> Ratios:
    """The profile that the tests reach: R is a slope between two of them."""
    low = np.pad(_tests(puts)[::-1], ((1, 0), (0, 0)))
    high = np.pad(_tests(calls), ((0, 1), (0, 0)))

    # Leave out tests that are not the best: any others reach a smaller profile.
    while True:
        middle = (1 - low[-1] - high[0])[None]
        steps = np.concatenate([np.diff(low, axis=0), middle, -np.diff(high, axis=0)])
        masses, moments = steps.T
        is_good = moments[:-1] * masses[1:] < moments[1:] * masses[:-1]
        is_good &= np.minimum(masses[:-1], masses[1:]) > 0
        if is_good.all():
            return Ratios(moments / masses, masses)
        is_good[1:] |= ~is_good[:-1]
        last_low = len(low) - 1
        low = low[np.append(True, is_good[:last_low])]
        high = high[np.append(is_good[last_low:], True)]


def _both_directions(
    profile: Ratios, *, rest_below: bool
) -> tuple[DiscretePair, DiscretePair]:
    """The pairs of a client that is removed, and of one that is added."""
    is_usable = (profile.masses > 0) & (profile.ratios > 0)
    ratios = profile.ratios[is_usable]
    masses = profile.masses[is_usable]
    losses = np.log(ratios)
    masses_of_p = masses * ratios
    remove = DiscretePair(
        tuple(losses.tolist()), tuple(masses_of_p.tolist()), rest_below
    )
    added_losses = tuple((-losses[::-1]).tolist())
    add = DiscretePair(added_losses, tuple(masses[::-1].tolist()), rest_below)
    return remove, add


def _pairs_above(calls: _Options, puts: _Options) -> tuple[DiscretePair, DiscretePair]:
    """The pairs of both directions, from above."""
    profile = ratios_above(
        PricedStrikes(calls.strikes, calls.above),
        PricedStrikes(puts.strikes, puts.above),
    )
    return _both_directions(profile, rest_below=False)


def removed_pair(sigma: float, rounds: int) -> DiscretePair:
    """That of a client that is removed, from above, in half the time of all pairs.

    But for masses beyond all places, which it leaves out: not for guarantees.

    Args:
        sigma: noise multiplier, from 0.25 to 10,000.
        rounds: of which a client picks one.
    """
    calls = _side(sigma, rounds, 1, only_above=True)
    puts = _side(sigma, rounds, -1, only_above=True)
    return _pairs_above(calls, puts)[0]


@lru_cache(maxsize=256)
def allocation_pairs(sigma: float, rounds: int) -> DominatingPairs:
    """The pairs of one of ``rounds`` rounds.

    Args:
        sigma: noise multiplier, from 0.25 to 10,000.
        rounds: of which a client picks one.

    Returns:
        From above and from below: a client that is removed, and one that is added.
    """
    calls = _side(sigma, rounds, 1)
    puts = _side(sigma, rounds, -1)
    return DominatingPairs(
        _pairs_above(calls, puts),
        _both_directions(_below(calls, puts), rest_below=True),
    )
