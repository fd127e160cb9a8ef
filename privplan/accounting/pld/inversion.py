"""Epsilon of equal rounds by inverting the transform of the loss: many at once, with bounds.

Rounds are cut into cells of outcomes. From above the mass of each cell goes to its two ends, its
masses under P and Q kept; from below a cell is one outcome. So the moments M(z) = E_P[exp(z loss)]
are finite sums, and for any t > 0 delta is the integral of M(z)^T exp(-z epsilon) / (z (1 + z)) /
2 pi i along Re z = t. Composing one Gaussian mechanism more, of a small mu = w, adds to delta and
a factor exp(w^2 (z^2 + z) / 2), which ends the integral. With x = loss - epsilon it adds at most
w E[exp(-x / 2) phi(x / w)], since its price grows with mu by E[exp(-x / 2) phi(x / mu)]
exp(-mu^2 / 8): that is the lower bound. The trapezoidal rule adds exp(t k p) times what delta is k
periods p away: no less than 0, and from below no more than by Chernoff's bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from privplan.accounting.pld.pairs import UNIT, Array, Rows, cells, loss, tail_outcomes
from privplan.laws.law import AnyPair, Kind, Pair

_TOLERANCE, _COARSE = 4.5e-3, 7.0  # relative, of bounds; how much wider if probably not needed
_SHARE, _SPARED = 0.6, 10.0  # of the tolerance for cells; minus the log of what may be left out
_PILOT, _FORGONE = 64, 3.0  # outcomes of a plan; how far its integrand may be above the least
_MOST, _LARGE = 3e4, 2e6  # outcomes times the root of frequencies: of bounds, of an estimate
_HIGHEST = 1e5  # number of frequencies
_CHUNK, _ALIKE = 1 << 17, 0.25  # complex numbers in memory; how far sizes in it differ, in logs
_BLOCK = 64  # outcomes summed at once, for less rounding
_NEWTON, _PLANS, _GAP = 12, 3, 2.7  # most steps and plans; tolerances that ask for another one
_TRIES, _FAR, _SETTLED = 6, 0.1, 1e-6  # of an estimate; how far from its plan and delta


Indices = NDArray[np.int64]


class Questions(NamedTuple):
    """Equal rounds of Gaussian pairs of one kind, one a question; every array of shape (n,)."""

    kind: Kind
    shift: Array
    ratio: Array
    rounds: Array
    delta: Array

    def of(self, some: Indices) -> Questions:
        """Some of the questions."""
        return Questions(self.kind, *(one[some] for one in self[1:]))

    @property
    def rows(self) -> Rows:
        """Their pairs."""
        return Rows(self.kind, self.shift[:, None], self.ratio[:, None])


class _Plan(NamedTuple):  # shape (n,) each
    low: Array  # outcomes between which the cells lie
    high: Array
    nodes: Array
    tilt: Array
    width: Array  # the mu that is composed
    period: Array  # of epsilon, by the trapezoidal rule
    frequencies: Array  # frequencies
    epsilon: Array
    pull: Array  # by which Chernoff's bound on what the rule adds is tilted further


def _cumulants(losses: Array, masses: Array, tilts: Array) -> Array:
    """Log moments, shape (rows, tilts)."""
    exponents = tilts[:, :, None] * losses[:, None]
    top = exponents.max(axis=2)
    sums = np.einsum("rtn,rn->rt", np.exp(exponents - top[:, :, None]), masses)
    return np.asarray(top + np.log(sums))


def _plan(
    asked: Questions,
    tolerance: float,
    near: Array | None,
    steep: Array | None,
    spared: float = _SPARED,
    limit: float = _MOST,
) -> _Plan:
    """By sums over a few outcomes, or at an epsilon and a slope of log delta that are known."""
    rows, rounds, goal = asked.rows, asked.rounds, np.log(1 / asked.delta)
    shift = rows.shift
    low, high = tail_outcomes(rows, (math.exp(-spared) * asked.delta / rounds)[:, None])
    flat = 25 / shift - shift / 2  # from where on the loss hardly changes
    if asked.kind == Kind.REMOVE:
        low = np.maximum(low, -flat)
    elif asked.kind == Kind.ADD:
        high = np.maximum(np.minimum(high, flat), low + 1)
    places = low + (high - low) * (np.arange(_PILOT) + 0.5) / _PILOT
    losses, p = loss(rows, places), rows.p_ratio
    masses = (1 - p) * np.exp(-(places**2) / 2) + p * np.exp(-((places - shift) ** 2) / 2)
    masses /= masses.sum(axis=1, keepdims=True)
    deviation = np.sqrt(rounds * (masses * losses**2).sum(axis=1) + 1e-300)
    every, middle = np.arange(len(rounds)), np.sqrt(goal / 16) / deviation
    for reach in (2.0 ** np.arange(-6, 8), 2.0 ** (np.arange(-8, 5) / 8)):
        tilts = middle[:, None] * reach
        found = rounds[:, None] * _cumulants(losses, masses, tilts)
        most = found + goal[:, None] - tilts * np.log1p(1 / tilts) - np.log1p(tilts)
        some = (most / tilts).min(axis=1) if near is None else near
        bounds = found - tilts * some[:, None] - np.log(tilts * (1 + tilts))
        steepest = bounds.argmin(axis=1)
        middle = tilts[every, steepest]
    # where that did not do, a smaller tilt, which leaves rare large losses out
    forgone = 1e-9 if steep is None else _FORGONE
    best = (bounds <= bounds[every, steepest][:, None] + forgone).argmax(axis=1)
    tilt, moment = tilts[every, best], found[every, best]
    weights = masses * np.exp(tilt[:, None] * losses - (tilt[:, None] * losses).max(1)[:, None])
    weights /= weights.sum(axis=1, keepdims=True)
    mean = (weights * losses).sum(axis=1)
    spread = np.sqrt(rounds * (weights * (losses - mean[:, None]) ** 2).sum(axis=1) + 1e-300)
    steps = np.diff(losses) / np.diff(places)
    slope = rounds * (weights[:, 1:] * steps**2).sum(axis=1) + 1e-300
    if near is None:
        peak = np.log(tilt * (1 + tilt) * math.sqrt(2 * math.pi) * spread)
        near = np.maximum((moment + goal - np.maximum(peak, 0.0)) / tilt, 1e-2 * spread)
    if asked.kind != Kind.ADD:  # one rare loss, of which the others see little
        jump = near - rounds * rows.edge[:, 0]
        slope += (asked.shift * -np.expm1(rows.edge[:, 0] - jump)) ** 2
    steep = middle if steep is None else np.maximum(steep, middle)
    change = 2 * tolerance * np.maximum(near, 1e-3 * spread) / (1 + steep)
    pulls = 2.0 ** np.arange(-3, 4) / spread[:, None]
    rises = rounds[:, None] * _cumulants(losses, masses, tilt[:, None] + pulls) - moment[:, None]
    ends = (rises + (spared + np.log1p(tilt * spread))[:, None]) / pulls
    period = np.maximum(ends.min(axis=1) - near, (goal + spared) / tilt)
    pull = pulls[every, ends.argmin(axis=1)]
    period = np.maximum(period, 5 * spread)
    # at most so many outcomes and frequencies, for a wider gap
    wide = (high - low)[:, 0] / np.sqrt(6 * _SHARE / slope)
    frequencies = math.sqrt((spared + 6) / (1 - _SHARE) / 2) / math.pi * period
    change = np.maximum(change, (wide * np.sqrt(frequencies) / limit) ** (4 / 3))
    change = np.maximum(change, (frequencies / _HIGHEST) ** 2)
    width, nodes = np.sqrt((1 - _SHARE) * change), np.ceil(wide / np.sqrt(change)) + 2
    frequencies = np.ceil(frequencies / np.sqrt(change)) + 1
    return _Plan(low[:, 0], high[:, 0], nodes, tilt, width, period, frequencies, near, pull)


def _rounds(asked: Questions, plan: _Plan, nodes: int) -> Iterator[tuple[Array, Array, Array]]:
    """Losses and masses of a pair that is larger and of one that is smaller; infinite masses."""
    rows = asked.rows
    places = plan.low[:, None] + (plan.high - plan.low)[:, None] * np.linspace(0, 1, nodes)
    ends = np.pad(places, ((0, 0), (1, 1)), constant_values=(-np.inf, np.inf))
    inner = cells(rows, ends, fine=True)
    levels, mass = loss(rows, places), inner.first_mass()
    # of a cell's mass, by that of the smaller tail, as in ``normal_cells``
    tails = np.minimum(np.cumsum(mass, axis=1), np.cumsum(mass[:, ::-1], axis=1)[:, ::-1])
    far = np.pad(np.abs(places), ((0, 0), (1, 1)), mode="edge") + rows.shift
    of_mass = UNIT * (32 + 8 * np.maximum(far[:, :-1], far[:, 1:]) ** 2) * tails
    ends = (mass + of_mass)[:, [0, -1]] + np.array([1e-14, 0.0])
    flat = (asked.kind == Kind.ADD) & (ends[:, 1] > 1e-3 * asked.delta / asked.rounds)
    levels[flat, -1] = -rows.edge[flat, 0]  # what is beyond has at most the largest loss
    low, gaps = levels[:, np.r_[0, :nodes]], np.maximum(np.diff(levels, axis=1), 1e-300)
    over, error = inner.excess(low)
    # P - e^(low + gap) Q = over - (e^gap - 1) e^low Q, of which neither term loses digits
    grown = np.expm1(gaps)
    under = over[:, 1:-1] - grown * (mass - over)[:, 1:-1]
    of_under = error[:, 1:-1] * (1 + grown) + grown * of_mass[:, 1:-1]
    above = np.zeros(levels.shape)
    above[:, 1:] = np.maximum(over + error, 0.0)[:, 1:-1] / -np.expm1(-gaps)
    above[:, :-1] += np.maximum(of_under - under, 0.0) / grown
    above[:, 0] += ends[:, 0]
    above[:, -1] += ends[:, 1] * flat
    yield levels, above, ends[:, 1] * ~flat
    share = (over - error) / np.maximum(mass + np.sign(over) * of_mass, 1e-300)
    lost = (share >= 1) | (mass <= of_mass)
    merged = low - np.log1p(-np.where(lost, 0.0, share))
    merged -= 4 * UNIT * (np.abs(low) + np.abs(merged))
    yield merged, np.where(lost, 0.0, mass - of_mass), np.zeros(len(mass))


class _Transform(NamedTuple):  # of what the integral needs, the tilted mass being 1
    terms: Array  # shape (rows, frequencies)
    places: Array  # z, likewise
    log_scale: Array  # shape (rows,) from here on
    doubt: Array  # of the sum of the terms
    extra: Array  # to add to delta
    rise: Array  # log moment at the tilt and the pull, less that at the tilt
    pull: Array
    fine: int  # phases in the shorter table


def _powers(phases: Array, count: int) -> NDArray[np.complex128]:
    """The first powers of unit numbers less 1, shape (rows, count, outcomes).

    From d_j and d_k, d_(j + k) is d_j + d_k + d_j d_k: by doubling, phases are off by some units.
    """
    found = np.zeros((len(phases), count, phases.shape[1]), dtype=np.complex128)
    step = -2 * np.sin(phases / 2) ** 2 + 1j * np.sin(phases)
    known = 1
    while known < count:
        some = found[:, : min(known, count - known)]
        found[:, known : 2 * known] = some + step[:, None] * (1 + some)
        step, known = step * (2 + step), 2 * known
    return found


def _moments(phases: Array, weights: Array, frequencies: int) -> tuple[NDArray[np.complex128], int]:
    """Sums of ``weights`` times unit numbers less 1, shape (rows, at least that many frequencies).

    Less 1, so that outcomes which hardly turn are hardly rounded: as where few clients take part.
    Also how many frequencies the shorter of the two tables of phases has.
    """
    fine = math.ceil(math.sqrt(frequencies))
    few, many = _powers(phases, fine), _powers(fine * phases, -(-frequencies // fine))
    few = np.concatenate([few * weights[:, None], weights[:, None]], axis=1)
    found = np.zeros((len(phases), many.shape[1], fine + 1), dtype=np.complex128)
    for first in range(0, phases.shape[1], _BLOCK):
        some = slice(first, first + _BLOCK)
        found += np.matmul(many[:, :, some], few[:, :, some].transpose(0, 2, 1))
    both = found[:, :, :fine] + found[:, :, fine:] + few[:, None, :fine].sum(axis=3)
    return both.reshape(len(phases), -1), fine


def _transform(
    asked: Questions, plan: _Plan, frequencies: int, one: tuple[Array, Array, Array], sign: int
) -> _Transform:
    """The integrand at its frequencies, with a bound on its rounding."""
    (losses, masses, infinite), rounds, tilt, width = one, asked.rounds, plan.tilt, plan.width
    exponents = np.where(masses > 0, tilt[:, None] * losses, -np.inf)
    top = exponents.max(axis=1)
    weights = masses * np.exp(exponents - top[:, None])
    total = weights.sum(axis=1)
    weights, log_moment = weights / total[:, None], top + np.log(total)
    usual = losses[np.arange(len(losses)), weights.argmax(axis=1)]
    apart, away = 2 * math.pi / plan.period, losses - usual[:, None]
    moments, fine = _moments(apart[:, None] * away, weights, frequencies)
    u = apart[:, None] * np.arange(moments.shape[1])
    z, n, half = tilt[:, None] + 1j * u, rounds[:, None], (width**2 / 2)[:, None]
    payoff = 1 / (z * (1 + z))
    if sign < 0:
        payoff -= (width**2 * np.exp(width**2 / 8))[:, None]
    elif sign == 0:  # take the Gaussian factor back, by the start of its inverse's series
        x = -half * z * (1 + z)
        payoff *= 1 + x * (1 + x / 2 * (1 + x / 3))
    payoff[:, 0] /= 2
    payoff *= np.exp(-half * u * u)
    x, y = moments.real, moments.imag
    near = 2 * x + x * x + y * y
    with np.errstate(divide="ignore"):
        size = np.where(
            near > -0.5, np.log1p(np.maximum(near, -0.5)) / 2, np.log(np.hypot(1 + x, y))
        )
    turned = n * np.arctan2(y, 1 + x) + (n * usual[:, None]) * u
    turned -= 2 * math.pi * np.rint(turned / (2 * math.pi))
    terms = payoff * np.exp(n * size) * (np.cos(turned) + 1j * np.sin(turned))
    # rounding of the moments, and the terms that are left out, by their Gaussian factor
    largest = np.abs(losses).max(axis=1)
    end, quiet = u[:, -1], (width * u[:, -1]) ** 2 / 2
    turn = u * (weights * np.abs(away)).sum(axis=1)[:, None]
    of_sums = 1024 + losses.shape[1] / 8 + 8 * tilt * largest
    unit = UNIT * of_sums[:, None] * np.minimum(turn, 2) + UNIT * (32 + 16 * math.log2(fine)) * turn
    unit += 4 * UNIT * u * np.abs(usual)[:, None]
    size = np.exp(size) + unit
    doubt = (np.abs(payoff) * np.exp(n * np.log(size)) * np.minimum(1, n * unit / size)).sum(axis=1)
    doubt += 2 * np.exp(np.minimum(width**2 / 8 - quiet, 600.0)) / (apart * end)
    log_scale = rounds * log_moment + half[:, 0] * tilt * (1 + tilt) + np.log(apart / math.pi)
    drift = rounds * (tilt * largest + 64 + np.abs(log_moment)) + 64 * moments.shape[1]
    drift += 16 * (tilt + end) * (plan.epsilon + width**2 * (1 + tilt))
    doubt += UNIT * drift * np.abs(terms).sum(axis=1)
    # Chernoff's bound on what the rule adds, by the best of a few pulls
    pulls = plan.pull[:, None] * 2.0 ** -np.arange(6)
    rises = n * _cumulants(losses, weights, pulls)
    far = tilt[:, None] + pulls  # the payoff is at most exp(far x) times its largest quotient
    rises += half * pulls * (far + tilt[:, None] + 1) + np.log(math.pi / apart)[:, None]
    rises -= far * np.log1p(1 / far) + np.log1p(far)
    best = (rises - pulls * (plan.epsilon + plan.period)[:, None]).argmin(axis=1)
    rise, pull = (one[np.arange(len(best)), best] for one in (rises, pulls))
    return _Transform(terms, z, log_scale, doubt, rounds * infinite, rise, pull, fine)


def _delta(made: _Transform, plan: _Plan, epsilon: Array, sign: int) -> tuple[Array, Array]:
    """A bound on delta at an epsilon of each row, and minus the slope of its log."""
    # the phases of the terms and, linear too, that of the Gaussian factor
    moved = (epsilon - plan.width**2 * (plan.tilt + 0.5)) * 2 * math.pi / plan.period
    fine = made.fine
    few = np.exp(-1j * moved[:, None] * np.arange(fine))
    many = np.exp(-1j * (fine * moved)[:, None] * np.arange(made.terms.shape[1] // fine))
    turned = made.terms * (many[:, :, None] * few[:, None]).reshape(made.terms.shape)
    scale = np.exp(np.minimum(made.log_scale - plan.tilt * epsilon, 600.0))
    value = turned.real.sum(axis=1)
    slope = (turned * made.places).real.sum(axis=1) / np.maximum(value, 1e-30)
    if sign >= 0:
        return scale * (value + sign * made.doubt) + made.extra, slope
    above = made.rise - made.pull * (epsilon + plan.period)
    wrapped = np.exp(-plan.tilt * plan.period) + scale * np.exp(np.minimum(above, 300.0))
    fades = -np.expm1(-np.minimum(plan.tilt, made.pull) * plan.period)
    return scale * (value - made.doubt) - wrapped / fades, slope


def _solve(made: _Transform, plan: _Plan, delta: Array, sign: int) -> tuple[Array, Array]:
    """Epsilon by Newton's method, and a little further until the bound holds there."""
    epsilon, goal = plan.epsilon, np.log(delta)
    for _ in range(_NEWTON):
        found, slope = _delta(made, plan, epsilon, sign)
        step = (np.log(np.maximum(found, 1e-300)) - goal) / np.where(slope > 0, slope, plan.tilt)
        step = np.clip(step, -2 / plan.tilt, 2 / plan.tilt)
        epsilon = np.maximum(epsilon + step, 0.0)
        if (np.abs(step) <= 2e-5 * epsilon).all():
            break
    for further in (1e-7, 1e-6, 1e-5, 1e-4, 1e-3):
        short = ~(sign * (_delta(made, plan, epsilon, sign)[0] - delta) <= 0)  # nor is it NaN
        if not short.any():
            break
        epsilon = np.where(short, epsilon * (1 + sign * further), epsilon)
    short = ~(sign * (_delta(made, plan, epsilon, sign)[0] - delta) <= 0)
    failed = np.inf if sign > 0 else 0.0
    return np.where(short, failed, epsilon), slope


def bounds(
    first: Questions, second: Questions, tolerance: float = _TOLERANCE, most: float = _MOST
) -> tuple[Array, Array]:
    """Bounds from below and above on epsilon in two directions, the tight one first.

    Within twice the tolerance of each other nearly always; infinite where this method does not
    serve. ``most`` limits outcomes times the root of frequencies, for a wider gap.
    """
    aim = tolerance, most
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # bounds that fail
        lower, upper = _bounds(first, np.zeros(len(first.rounds)), *aim)
        if second.kind != first.kind:
            upper = np.maximum(upper, _bounds(second, upper, *aim)[1])
    return lower, upper


def _bounds(asked: Questions, least: Array, tolerance: float, most: float) -> tuple[Array, Array]:
    """Bounds of one direction; no closer than to see that epsilon is at most ``least``."""
    count, known = len(asked.rounds), bool(least.any())
    lower, upper = np.zeros(count), np.full(count, np.inf)
    apart = asked.shift * (2 if asked.kind == Kind.SWAP else 1)
    differ = asked.ratio * erf(apart / math.sqrt(8)) * (1 + 1e-9)
    never = -np.expm1(asked.rounds * np.log1p(-differ)) <= asked.delta
    upper[never] = 0.0
    left = np.flatnonzero(~never & np.isfinite(least))
    near, steep = least[left] if known else None, None
    for turn in range(_PLANS):
        if not len(left):
            break
        aim = tolerance * (_COARSE if known and turn == 0 else 1)
        spared = _SPARED + math.log(_TOLERANCE / tolerance)
        plan = _plan(asked.of(left), aim, near, steep, spared, most)
        slopes = np.zeros(len(left))
        for some in _chunks(plan):
            own, part, at = _Plan(*(one[some] for one in plan)), asked.of(left[some]), left[some]
            nodes, frequencies = int(own.nodes.max()), int(own.frequencies.max())
            pairs = _rounds(part, own, nodes)
            made = _transform(part, own, frequencies, next(pairs), 1)
            found, slopes[some] = _solve(made, own, part.delta, 1)
            upper[at] = np.minimum(upper[at], found)
            if not known:
                made = _transform(part, own, frequencies, next(pairs), -1)
                lower[at] = np.maximum(lower[at], _solve(made, own, part.delta, -1)[0])
        found = upper[left]
        usable = np.isfinite(found)
        if known:
            again = (found > least[left]) & (usable | (turn == 0))
        else:
            again = usable & (found - lower[left] > _GAP * tolerance * found)
        near, steep = np.where(usable, found, least[left])[again], slopes[again]
        left = left[again]
    return lower, upper


def _chunks(plan: _Plan) -> Iterator[Indices]:
    """Questions of about as many outcomes and frequencies, as many as fit."""
    alike = np.stack([np.ceil(np.log(one) / _ALIKE) for one in (plan.nodes, plan.frequencies)])
    order = np.lexsort(alike)
    starts = np.flatnonzero(np.diff(alike[:, order], axis=1, prepend=-1).any(axis=0))
    for group in np.split(order, starts[1:]):
        size = float(plan.nodes[group].max() * np.sqrt(plan.frequencies[group].max()))
        rows = max(1, int(_CHUNK / size))
        for first in range(0, len(group), rows):
            yield group[first : first + rows]


def estimate(pair: AnyPair, rounds: int, delta: float, near: float) -> float | None:
    """Epsilon of equal rounds, within some 1e-6, from one of the same order; no guarantee.

    The pair is of the direction that spends more; None where the method does not serve: for
    ``ADD``, ``STITCHED``, full participation and discrete pairs.
    """
    served = isinstance(pair, Pair) and pair.kind in (Kind.REMOVE, Kind.SWAP)
    if not isinstance(pair, Pair) or not served or pair.ratio == 1 or not 0 < near < math.inf:
        return None
    numbers = pair.shift, pair.ratio, rounds, delta
    asked = Questions(pair.kind, *(np.array([float(one)]) for one in numbers))
    rows, p, steep = asked.rows, pair.ratio, np.zeros(1)
    for _ in range(_TRIES):
        plan = _plan(asked, _TOLERANCE, np.array([near]), steep, _SPARED + 8)
        frequencies, highest = (
            int(plan.frequencies[0]),
            2 * math.pi * float(plan.frequencies[0] / plan.period[0]),
        )
        low, high = (float(end[0, 0]) for end in tail_outcomes(rows, np.full((1, 1), 1e-25)))
        high = max(high, float(plan.high[0]))
        # the trapezoidal rule, close enough for the highest frequency
        nodes = (high - low) * (highest * pair.shift * (1 + (pair.kind == Kind.SWAP)) + 10) / 6
        if not nodes * math.sqrt(frequencies) < _LARGE:
            return None
        places = np.linspace(low, high, int(nodes) + 2)[None]
        masses = (1 - p) * np.exp(-(places**2) / 2) + p * np.exp(-((places - pair.shift) ** 2) / 2)
        masses *= (places[0, 1] - places[0, 0]) / math.sqrt(2 * math.pi)
        one = loss(rows, places), masses, np.zeros(1)
        made = _transform(asked, plan, frequencies, one, 0)
        found, steep = _solve(made, plan, asked.delta, 0)
        before, near = near, float(found[0])
        spent = float(_delta(made, plan, found, 0)[0][0])
        if not (near > 0 and spent > 0):
            return None
        settled = abs(math.log(spent / delta)) < _SETTLED
        if settled and abs(near - before) <= _FAR * before:
            return near
    return None
