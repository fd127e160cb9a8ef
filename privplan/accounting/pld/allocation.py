"""Random allocation: a client takes part in exactly one of t rounds, chosen at random by itself.

With noise multiplier sigma, P the mixture of N(e_i, sigma^2) over the t rounds and Q = N(0,
sigma^2), the likelihood ratio under Q is R = S / t, S a sum of t independent lognormals Y of mean 1
(Feldman and Shenfeld 2025, arXiv 2502.08202). Both profiles are prices of options on R,
E[(R - x)+] with x = e^epsilon (remove) and E[(x - R)+] / x with x = e^-epsilon (add): puts
for strikes below 1 and calls above. They are convex in each Y, so a law of Y on a lattice that is
larger or smaller in convex order bounds them. A tilted power of a transform gives the law of S.
Strikes of each octave have a lattice of their own, above whose top Y has a closed form.
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

_OCTAVE, _SPACING = (
    math.log(2),
    0.007,
)  # logs of strikes: reach of a lattice, least distance
_LEAST, _MOST, _EVEN = (
    800,
    1 << 16,
    640,
)  # points: below the lowest strike, in all, evenly apart
_SHARE, _PASSES, _NEGLIGIBLE = (
    3.6e-4,
    30,
    {1: 1e-17, -1: 1e-15},
)  # of puts errors are larger
_FAR, _LUMPED, _TAIL, _DISTANCE = (
    9.5,
    7.0,
    1e-20,
    7.0,
)  # outcomes: no place, one cell; mass; reach
_QUIET, _STEEPEST, _TILTS, _JUMPS = (
    26.0,
    150.0,
    32,
    32.0,
)  # of transforms: logs; most pull to tops
_AIM, _ROUGH = (
    -23.0,
    2e-16,
)  # log of the relative error that serves; rounding of a round, about
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_Four = tuple[Array, Array, Array, Array]


class _Law(
    NamedTuple
):  # masses of Y at origin plus steps, for Y at most top; added was put on
    origin: float
    steps: Array
    masses: Array
    top: float
    added: float = 0.0


class _Options(
    NamedTuple
):  # strikes from 1 outwards; a put at any x is at least mass x - moment
    strikes: Array
    above: Array
    mass: Array
    moment: Array


def _outcome(sigma: float, y: Array) -> Array:
    """The normal outcome at which the lognormal Y is y; as good as -infinity at 0."""
    return np.asarray(sigma * np.log(np.maximum(y, 1e-300)) + 1 / (2 * sigma))


def _place(sigma: float, outcome: float) -> float:
    return math.exp((outcome - 1 / (2 * sigma)) / sigma)


def _deviation(sigma: float, rounds: int) -> float:
    return math.sqrt(math.log1p(math.expm1(1 / sigma**2) / rounds))  # of log R, about


def _cells(sigma: float, step: float, edges: Array) -> _Four:
    """Mass of Y between edges, given in steps, its moment about the lower edge, and their errors.

    By quadrature, except near 0: six points are off by less than a unit where a cell is at most
    1 / (10 sigma) of its place and an eighth of it.
    """
    wide = int(np.searchsorted(edges[:-1], max(8.0, 10 * sigma)))
    z, low = _outcome(sigma, step * edges[: wide + 1])[None], edges[:wide]
    (mass, of_mass), (moment, of_moment) = normal_cells(z), normal_cells(z - 1 / sigma)
    doubt = (of_moment + 4 * UNIT * moment) / step + low * of_mass
    about = np.maximum(moment / step - low * mass, 0.0)
    width = np.diff(edges[wide:])
    inside = width * (1 + _NODES[:, None]) / 2
    at = edges[wide:-1] + inside
    squares = _outcome(sigma, step * at) ** 2
    density = np.exp(-squares / 2) * (width * sigma / math.sqrt(8 * math.pi)) / at
    found = _WEIGHTS @ density
    error = UNIT * (64 + 8 * np.maximum(squares[0], squares[-1])) * found
    far = (found, _WEIGHTS @ (density * inside), error, error * width)
    near = zip((mass[0], about[0], of_mass[0], doubt[0]), far, strict=True)
    one, two, three, four = map(np.concatenate, near)
    return one, two, three, four


def _grid(sigma: float, first: int, last: float) -> Array:
    """Whole numbers, ever further apart: by the variance that this adds, next to nothing."""
    even = max(_EVEN, math.ceil(51 / _deviation(sigma, 1)))
    start = max(even, first + 3)
    turns = math.ceil(even * math.log(max(last / start, 1.0))) + 1
    spread = np.ceil(
        start * np.exp(np.arange(1.0, turns + 1) / even)
    )  # at least 1 apart
    places = np.concatenate([np.arange(first, start + 1.0), spread])
    return np.asarray(places[: max(int(np.searchsorted(places, last)) + 1, 4)])


def _larger(sigma: float, step: float, top: float) -> _Law:
    """Larger in convex order: the mass of each cell on its ends, the mean kept."""
    first = math.floor(_place(sigma, -_FAR) / step)
    edges = _grid(sigma, first, top / step)
    mass, about, of_mass, of_about = _cells(sigma, step, edges)
    about, of_about = about / np.diff(edges), of_about / np.diff(edges)
    lower, upper = np.maximum(mass - about, 0.0) + of_mass + of_about, about + of_about
    masses = np.append(lower, 0.0) + np.append(
        ndtr(_outcome(sigma, step * edges[:1])), upper
    )
    return _Law(float(first), edges - first, masses, float(edges[-1]))


def _smaller(sigma: float, step: float, top: float) -> _Law:
    """Smaller: the lowest cell at its mean, tangents at the other edges.

    With ``e`` the moment of a cell about its point, the put at the point is that through the lower
    edge less the positive part of e; the masses are the differences of the slopes between points.
    """
    chances = ndtr(_outcome(sigma, step * np.arange(1.0, 16 * sigma + 4)))
    resolved = 1.0 + int(np.argmax(2 * chances[:-1] >= chances[1:]))
    lowest = max(resolved, math.floor(_place(sigma, -_LUMPED) / step))
    whole, part, of_whole, of_part = np.ravel(
        _cells(sigma, step, np.array([0, lowest]))
    ).tolist()
    offset = (part + of_part) / (whole - of_whole) * (1 + 4 * UNIT)
    first = max(math.ceil(lowest - offset), 1)
    grid = _grid(sigma, first, top / step - offset)
    near = round(offset * 2.0**20) / 2.0**20  # so that edges are exact
    gaps = np.diff(grid, prepend=0.0)
    ends = near + grid[-1] + 0.75 * gaps[-1]
    edges = np.r_[0.0, lowest, near + grid[1:] - gaps[1:] / 2, ends]
    beside = np.r_[offset, offset + first - lowest, gaps[1:] / 2 + (offset - near)]
    mass, about, of_mass, of_about = _cells(sigma, step, edges)
    about = about - beside * mass
    doubt = of_about + beside * (of_mass + 8 * UNIT * mass)
    under, over = np.maximum(-about, 0.0), np.maximum(about, 0.0)
    masses = mass - of_mass - 4 * UNIT * mass
    masses[1:] += (over[1:] - doubt[1:] - under[:-1] - doubt[:-1]) / gaps
    masses[:-1] += (under[:-1] - doubt[:-1] - over[1:] - doubt[1:]) / gaps
    if under[-1] > 0:  # calls end one point before
        ratio = gaps[-1] / gaps[-2]
        masses[-3:] += masses[-1] * np.array([-ratio, 1 + ratio, -1.0])
    share = gaps[:-1] / (gaps[:-1] + gaps[1:])
    for _ in range(
        _PASSES if masses.min() < 0 else 0
    ):  # no corners: their masses to neighbours
        negative = np.minimum(masses[1:-1], 0.0)
        masses[1:-1] -= negative
        masses[2:] += negative * share
        masses[:-2] += negative * (1 - share)
    added = -float(np.minimum(masses, 0.0).sum())
    return _Law(
        offset, np.append(0.0, grid), np.maximum(masses, 0.0), float(edges[-1]), added
    )


def _tilt(parts: list[power.Part], places: Array, sign: int, quiet: float) -> float:
    """That of the shortest circle which serves three calls, or two puts, by Chernoff's bounds."""
    spread, last = (
        power.tilted_moments(parts, 0.0).spread,
        float(parts[0][0].index[0, -1]),
    )
    size = np.geomspace(
        1 / max(spread, last), min(16 / spread, _STEEPEST / last), _TILTS
    )[::sign]
    some = places[[0, len(places) // 2, -1][: 2 + (sign > 0)], None]
    bounds = power.cumulants(parts, sign * size) - sign * size * some
    errors = np.log(_ROUGH * parts[0][1] * size**-1.5 + 4 * math.exp(-quiet) / size)
    worst = (bounds + errors - (bounds - np.log(size)).min(axis=1, keepdims=True)).max(
        axis=0
    )
    return sign * float(size[np.argmax(worst <= max(worst.min(), _AIM))])


def _priced(parts: list[power.Part], places: Array, tilt: float, quiet: float) -> _Four:
    """Options, masses beyond strikes, and bounds on the errors of both, in steps."""
    (one, [rounds]), middle = parts[0], float(places[len(places) // 2])
    last, (weighted, logs) = (
        float(one.index[0, -1]),
        (x[0] for x in power.tilted_masses(one, tilt)),
    )
    log_scale = rounds * float(logs[0])
    # the law of the sum, between places that hardly any of its tilted mass is beyond
    most = math.sqrt(2 * quiet) / power.tilted_moments(parts, tilt).spread
    pulls = np.outer([min(most, _JUMPS / last), -most], 0.5 ** np.arange(-1.0, 8))
    high, low = (
        (power.cumulants(parts, tilt + one) - log_scale + quiet) / one for one in pulls
    )
    first = math.floor(max(float(low.max()), 0.0))
    count = power.fast_length(
        math.ceil(min(float(high.min()), rounds * last)) - first + 4
    )
    circle, error = power.convolved(
        [(one.index[0] % count, weighted, float(rounds))], count
    )
    exponent = tilt * (middle - first - np.arange(float(count)))
    found = np.roll(circle, -(first % count)) * np.exp(np.minimum(exponent, 690.0))
    found, at = (
        (found, places - first)
        if tilt > 0
        else (found[::-1], count - 1 + first - places)
    )
    beyond = np.append(np.cumsum(found[::-1])[::-1], 0.0)
    option = np.append(np.cumsum(beyond[:0:-1])[::-1], 0.0)
    after = np.clip(np.floor(at).astype(np.int64) + 1, 0, count)
    scale = math.exp(min(log_scale - tilt * middle, 700.0))
    price, mass = (
        scale * (option[after] + (after - at) * beyond[after]),
        scale * beyond[after],
    )
    # the errors of all masses with their tilts, by Cauchy-Schwarz
    own, steep = np.exp(np.minimum(log_scale - tilt * places, 700.0)), abs(tilt)
    gap, wrapped = -math.expm1(-2 * steep), 4 * math.exp(-quiet)
    spans = 2 * steep * (abs(middle) + 2 * count) + 4 * abs(log_scale) + 4 * count
    drift = UNIT * (rounds * (steep * last + 16) + spans)
    of_price = own * (error * math.sqrt((2 - gap) / gap) / gap + wrapped / steep)
    of_mass = own * (error / math.sqrt(gap) + wrapped)
    return price, mass, of_price + drift * np.abs(price), of_mass + drift * np.abs(mass)


def _octave(sigma: float, rounds: int, strikes: Array, sign: int) -> _Options:
    """Puts (sign -1) or calls (sign 1) on one lattice.

    Draws above the top are left out of puts and linear in calls. Where R may still be on the other
    side of the strike, the sum of the others is far below its mean, which is as rare as
    exp(-distance^2 / (2 t E[Y^2])) (Maurer 2003, for sums of positive variables).
    """
    low, high, square = (
        float(strikes.min()),
        float(strikes.max()),
        math.exp(1 / sigma**2),
    )
    loss = max(abs(math.log(float(strikes[0]))), 5 * _deviation(sigma, rounds))
    wanted = max(math.sqrt((1 + 25 / loss) * rounds / (_SHARE * loss)), _LEAST)
    top = 2 * max(rounds * (high - 1), 0.0) + _DISTANCE * math.sqrt(rounds * square)
    top = min(top, (1 if sign < 0 else 1.05) * rounds * high)
    highest = _place(sigma, _FAR + 1 / sigma)
    step = max(low * rounds / wanted, min(top, low * rounds, highest) / _MOST)
    top, unit, quiet = (
        min(top + step, highest),
        step / rounds,
        _QUIET + max(math.log(high), 0.0),
    )
    found, tilt, zero = [], 0.0, np.zeros(1)
    for law in (_larger(sigma, step, top), _smaller(sigma, step, top)):
        index, places = law.steps.astype(np.int64), strikes / unit - rounds * law.origin
        one = Lattice(1.0, zero, index[None], law.masses[None], zero, zero)
        parts = [(one, np.array([float(rounds)]))]
        tilt = tilt or _tilt(parts, places, sign, quiet)
        price, mass, of_price, of_mass = _priced(parts, places, tilt, quiet)
        price, of_price = unit * price, unit * of_price
        moment = strikes * mass + sign * price
        tail, moved = ndtr(
            [0.0, 1 / sigma] - _outcome(sigma, np.array(step * law.top))
        ).tolist()
        distance = np.maximum(rounds * (1 - strikes) + step * law.top - 1, 0.0)
        missed = (
            1.01
            * strikes
            * rounds
            * tail
            * np.exp(-(distance**2) / (2 * rounds * square))
        )
        missed[strikes * rounds <= step * law.top] = 0.0
        if sign > 0:  # chances that any draw is above the top, under Q and under P
            some = -math.expm1(rounds * math.log1p(-tail))
            every = -math.expm1(math.log1p(-moved) + (rounds - 1) * math.log1p(-tail))
            mass, moment = mass + some, moment + every
            price = price + np.maximum(every - strikes * some, 0.0)
            of_price, of_mass = (
                of_price + 1e-13 * (every + strikes * some),
                of_mass + 1e-13 * some,
            )
        of_price = of_price + rounds * law.added * (strikes + step * law.top / rounds)
        found.append((price + of_price + missed, mass, moment, of_price, of_mass))
    outside = 2 * rounds * _TAIL * strikes if sign < 0 else 0.0  # of all places
    above, (_, mass, moment, of_price, of_mass) = found[0][0] + outside, found[1]
    lost = of_price + of_mass * strikes
    return _Options(strikes, above, mass + sign * of_mass, moment - sign * lost)


def _side(sigma: float, rounds: int, sign: int) -> _Options:
    """All strikes on one side of 1, until nothing that matters is beyond."""
    deviation, start = _deviation(sigma, rounds), 0.0
    parts: list[list[Array]] = []
    reach = _place(sigma, 8.6 + 1 / sigma if sign > 0 else -_FAR) / rounds
    furthest = max(math.log1p(reach) if sign > 0 else -math.log(reach), 9 * deviation)
    while start <= furthest:
        logs, end = [start], start + min(_OCTAVE, 7 * deviation)
        while logs[-1] < end:
            logs.append(logs[-1] + _SPACING * max(deviation, logs[-1]))
        one = _octave(sigma, rounds, np.exp(sign * np.array(logs)), sign)
        parts.append([each[bool(parts) :] for each in one])
        start = logs[-1]
        if one.above[-1] <= _NEGLIGIBLE[sign] * math.exp(min(sign * start, 0.0)):
            break
    strikes, above, mass, moment = map(np.concatenate, zip(*parts, strict=True))
    size = np.minimum(
        strikes, 1.0
    )  # calls fall with the strike, and so does put / strike to 0
    above = size * np.minimum.accumulate(np.nan_to_num(above / size, nan=np.inf))
    return _Options(strikes, above, mass, moment)


def _above(calls: _Options, puts: _Options) -> tuple[Array, Array]:
    """Ratios R and their masses under Q of the profile through the options from above.

    The slope of puts at strike 0 is the mass at R = 0; the rest of P's mass is at R = infinity.
    """
    x, y = np.append(0.0, puts.strikes[::-1]), np.append(0.0, puts.above[::-1])
    z, prices = calls.strikes, calls.above.copy()
    y[-1] = prices[0] = max(y[-1], prices[0])
    while True:  # strikes that are no corners: any others give a profile that is larger
        below, above = np.diff(y) / np.diff(x), -np.diff(prices) / np.diff(z)
        masses = np.concatenate(
            [np.diff(below), [1 - below[-1] - above[0]], -np.diff(above)]
        )
        bad, one = masses < 0, len(x) - 2
        if not bad.any():
            return np.concatenate([x[1:-1], z]), np.append(masses, above[-1])
        bad[one - 1 : one + 2] |= bad[one]
        left = np.concatenate([[True], ~bad[:one], [True]])
        right = np.concatenate([[True], ~bad[one + 1 :], [True]])
        x, y, z, prices = x[left], y[left], z[right], prices[right]


def _below(calls: _Options, puts: _Options) -> tuple[Array, Array]:
    """Ratios and masses of the profile that the tests reach: R is a slope between two of them."""
    low, high = (np.stack([one.mass, one.moment], axis=1)[1:] for one in (puts, calls))
    low, high = (one[((one > 0) & (one < 2)).all(axis=1)] for one in (low, high))
    low, high = np.pad(low[::-1], ((1, 0), (0, 0))), np.pad(high, ((0, 1), (0, 0)))
    while (
        True
    ):  # tests that are not the best: any others reach a profile that is smaller
        middle = [1 - low[-1] - high[0]]
        steps = np.concatenate([np.diff(low, axis=0), middle, -np.diff(high, axis=0)])
        (masses, moments), one = steps.T, len(low) - 1
        good = moments[:-1] * masses[1:] < moments[1:] * masses[:-1]
        good &= np.minimum(masses[:-1], masses[1:]) > 0
        if good.all():
            return moments / masses, masses
        good[1:] |= ~good[:-1]
        low, high = low[np.append(True, good[:one])], high[np.append(good[one:], True)]


@lru_cache(maxsize=256)
def allocation_pairs(sigma: float, rounds: int) -> DominatingPairs:
    """The pairs of one of ``rounds`` rounds: a client that is removed, and one that is added."""
    calls, puts = _side(sigma, rounds, 1), _side(sigma, rounds, -1)
    found = []
    for below, (ratios, masses) in enumerate(
        (_above(calls, puts), _below(calls, puts))
    ):
        some = (masses > 0) & (ratios > 0)
        losses, masses = np.log(ratios[some]), masses[some]
        remove = tuple(losses.tolist()), tuple((masses * ratios[some]).tolist())
        add = tuple((-losses[::-1]).tolist()), tuple(masses[::-1].tolist())
        found.append(
            (DiscretePair(*remove, bool(below)), DiscretePair(*add, bool(below)))
        )
    return DominatingPairs(found[0], found[1])
