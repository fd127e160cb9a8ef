"""Epsilon and delta of composed Gaussian pairs by inverting the transform of the loss, with bounds.

For t > 0 delta is the integral of M(z) exp(-z epsilon) / (z (1 + z)) / 2 pi i along Re z = t, where
M(z) is the product of the moments E_P[exp(z loss)] of all rounds. From above the mass that
``moments`` leaves out counts as an infinite loss.

Composing one Gaussian mechanism more, of a small mu = w, adds to delta and a factor exp(w^2 (z^2 +
z) / 2), which ends the outer integral. With x = loss - epsilon it adds at most w E[exp(-x / 2)
phi(x / w)], since its price grows with mu by E[exp(-x / 2) phi(x / mu)] exp(-mu^2 / 8): that is the
lower bound. The trapezoidal rule adds exp(t k p) times what delta is k periods p away: no less than
0, and from below no more than by Chernoff's bound. Where clients take part rarely, the loss is
nearly always nearly 0: without that mass, 1 in M, no digits cancel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d
from scipy.special import erf, ndtr

from privplan.accounting.pld.moments import (
    NODES,
    Equal,
    chernoff,
    ends_of,
    off_by,
    outcomes,
    outside,
    tilted,
)
from privplan.accounting.pld.pairs import UNIT, Array
from privplan.laws.law import AnyPair, Kind, Pair

_WIDEST = 2.5  # a panel, in outcomes and shifts
_PHASES = (  # half the phase that may pass in a panel, by the logs of digits that are needed
    np.array([0.0, 2.3, 7.0, 11.0, 17.0, 24.0, 32.0, 43.0, 56.0, 90.0]),
    np.array([60.0, 57.0, 50.0, 45.0, 40.0, 35.0, 30.0, 25.0, 20.0, 8.0]),
)
_PANELS, _GRID, _NEAR = (
    2,
    48,
    7,
)  # of a plan: panels; places to lay them by; so many decide each
_RARE, _FORGONE = (
    0.5,
    3.0,
)  # rounds in which one loss decides; log of what a tilt may forgo
_OF_TOLERANCE = 20.0  # tolerance over that of what is left out
_MOST, _HIGHEST = 2e8, 1e6  # outcomes times frequencies; frequencies
_CHUNK, _ALIKE = (
    1 << 18,
    0.4,
)  # complex numbers in memory; how far sizes in it differ, in logs
_AT_ONCE, _BLOCK = 1024, 256  # questions planned at once; outcomes summed at once
_NEWTON, _PLANS = 12, 4  # most steps and plans
_GAP, _FIRST, _COMPOSED = (
    1.6,
    0.75,
    1.0,
)  # tolerances for a new, the first plan; most mu^2
_COARSE, _COARSE_DELTA = 3.0, 0.1  # tolerances of a direction that probably spends less
_TRIES, _FAR, _SETTLED, _LARGEST = (
    6,
    0.1,
    1e-6,
    1e3,
)  # of an estimate; how far from its plan
_ESTIMATED, _CLOSER, _LARGE = (
    1.8e-3,
    8.0,
    4e7,
)  # its tolerance, what it spares more, its work
_REACHES = (
    (np.logspace(-6, 7, 14, base=2), False),
    (np.arange(6, 19) / 12, True),
)  # of tilts

Indices = NDArray[np.int64]
Ends = tuple[Array, Array]


class Questions(NamedTuple):
    """Histories of so many kinds of rounds, one a question; every array of shape (n,)."""

    parts: tuple[Equal, ...]
    mu: Array  # of the rounds without sampling, as one Gaussian mechanism
    delta: Array

    def of(self, some: Indices) -> Questions:
        """Some of the questions."""
        parts = (Equal(one.kind, *(two[some] for two in one[1:])) for one in self.parts)
        return Questions(tuple(parts), self.mu[some], self.delta[some])


def questions(
    kind: Kind, shift: Array, ratio: Array, rounds: Array, delta: Array
) -> Questions:
    """Of equal rounds."""
    return Questions((Equal(kind, shift, ratio, rounds),), np.zeros(len(delta)), delta)


class _Plan(NamedTuple):  # shape (n,) each
    tilt: Array
    width: Array  # the mu that is composed
    period: Array  # of epsilon, by the trapezoidal rule
    frequencies: Array
    epsilon: Array
    pull: Array  # by which Chernoff's bound on what the rule adds is tilted further
    spared: Array  # minus the log of what may be left out, of delta
    nodes: Array  # outcomes of all parts
    meshes: tuple[tuple[Array, Array], ...]  # of each part: places, panels up to there

    def of(self, some: Indices) -> _Plan:
        """That of some of the questions."""
        meshes = tuple((places[some], panels[some]) for places, panels in self.meshes)
        own = (one[some] for one in self[:-1])
        return _Plan(*own, meshes)  # type: ignore[call-arg, arg-type]


class _Pilot:
    """The parts of questions by a few outcomes each, to plan with."""

    def __init__(self, asked: Questions, tail: Array, panels: int) -> None:
        self.asked, self.every = asked, np.arange(len(asked.mu))
        self.ends = [ends_of(part, tail) for part in asked.parts]
        self.parts = []
        for part, (low, high) in zip(asked.parts, self.ends, strict=True):
            made = outcomes(part, np.linspace(low, high, panels + 1, axis=1))
            masses = made.masses / made.masses.sum(axis=1, keepdims=True)
            self.parts.append((made.losses, masses, part.rounds))

    def cumulants(
        self, tilts: Array, start: Array | float = 0.0, *, even: bool = False
    ) -> Array:
        """Of all rounds, shape (n, tilts), which are even apart, or double from the start on."""
        total = self.asked.mu[:, None] ** 2 / 2 * tilts * (1 + tilts)
        for losses, masses, rounds in self.parts:
            top = losses.max(axis=1, keepdims=True)
            below, sums = losses - top, np.empty(tilts.shape)
            known = masses * np.exp(start * below)
            weights = np.exp((tilts[:, :1] - start) * below)
            factor = np.exp((tilts[:, 1:2] - tilts[:, :1]) * below)
            for at in range(tilts.shape[1]):
                sums[:, at] = np.einsum("rn,rn->r", weights, known)
                weights *= factor if even else weights
            total = total + rounds[:, None] * (tilts * top + np.log(sums))
        return total

    def jump(self) -> Array:
        """Epsilon of one rare large loss."""
        high = np.maximum.reduce([losses.max(axis=1) for losses, _, _ in self.parts])
        low = np.zeros(len(high))
        for _ in range(24):
            middle, spent = (low + high) / 2, np.zeros(len(low))
            for losses, masses, rounds in self.parts:
                over = np.maximum(losses - middle[:, None], 0.0)
                spent += rounds * (masses * -np.expm1(-over)).sum(axis=1)
            above = spent > self.asked.delta
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return low

    def spread(self, tilt: Array) -> Array:
        """Standard deviation of the tilted loss."""
        total = self.asked.mu**2
        for losses, masses, rounds in self.parts:
            exponents = tilt[:, None] * losses
            weights = masses * np.exp(exponents - exponents.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            mean = (weights * losses).sum(axis=1, keepdims=True)
            total = total + rounds * (weights * (losses - mean) ** 2).sum(axis=1)
        return np.sqrt(total + 1e-300)


def _plan(
    asked: Questions,
    tolerance: float,
    near: Array | None,
    steep: Array | None,
    of_delta: bool = False,
    estimated: bool = False,
    most: float = _MOST,
) -> _Plan:
    """By sums over a few outcomes, or at an epsilon and a slope of log delta that are known."""
    goal = np.log(1 / asked.delta)
    rounds = sum((part.rounds for part in asked.parts), np.zeros(len(goal)))
    often = sum((part.rounds * part.ratio for part in asked.parts), asked.mu * 1e9)
    rare = often < _RARE
    cut = math.log((5 if of_delta else 0.5) / tolerance) + estimated * _CLOSER
    tail = np.minimum(math.exp(-cut) * asked.delta / rounds, 1e-3)
    pilot = _Pilot(asked, tail, 3 * _PANELS if rare.any() else _PANELS)
    every, middle = pilot.every, np.sqrt(goal / 16) / pilot.spread(0 * goal)
    if near is not None:
        middle = np.minimum(middle, goal / 2 / np.maximum(near, 1e-300))
    for reach, even in _REACHES:
        tilts = middle[:, None] * reach
        found = pilot.cumulants(tilts, even=even)
        most_of = found + goal[:, None] - tilts * np.log1p(1 / tilts) - np.log1p(tilts)
        some = (most_of / tilts).min(axis=1) if near is None else near
        bounds = found - tilts * some[:, None] - np.log(tilts * (1 + tilts))
        steepest = bounds.argmin(axis=1)
        middle = tilts[every, steepest]
    # where that did not do, a smaller tilt, which leaves rare large losses out
    forgone = 1e-9 if near is None else _FORGONE
    enough = np.maximum(bounds[every, steepest] + forgone, -goal - 20)
    best = (bounds <= enough[:, None]).argmax(axis=1)
    tilt, moment = tilts[every, best], found[every, best]
    spread = pilot.spread(tilt)
    peak = np.log(tilt * (1 + tilt) * math.sqrt(2 * math.pi) * spread)
    if near is None:
        near = np.maximum((moment + goal - np.maximum(peak, 0.0)) / tilt, 1e-2 * spread)
        if rare.any():  # one large loss decides
            jump = pilot.jump()
            near = np.maximum(np.where(rare, np.minimum(near, 3 * jump), near), jump)
            aims = of_delta, estimated, most
            return _plan(asked, tolerance, near, steep, *aims)
    excess = np.maximum(moment - tilt * near - np.log(tilt * (1 + tilt)) + goal, 0.0)
    middle = np.minimum(middle, 2 * tilt)
    steep = middle if steep is None else np.maximum(steep, middle)
    aim = (
        2 * tolerance / steep
        if of_delta
        else 2 * tolerance * np.maximum(near, 1e-3 * spread)
    )
    spared = (
        np.clip(np.log(_OF_TOLERANCE / (aim * steep)), 4.0, 16.0) + estimated * _CLOSER
    )
    largest = np.maximum.reduce([losses.max(axis=1) for losses, _, _ in pilot.parts])
    pulls = 2.0 ** np.arange(-3, 6) * np.minimum(1 / spread, 8 / largest)[:, None]
    far = tilt[:, None] + pulls
    ends = (
        pilot.cumulants(far, tilt[:, None])
        - far * (near[:, None] + np.log1p(1 / far))
        - np.log1p(far)
    )
    ends = (ends + (goal + spared + 1)[:, None]) / pulls
    pull = pulls[every, ends.argmin(axis=1)]
    period = np.maximum(ends.min(axis=1), (goal + spared) / tilt)
    period = np.maximum(period, 5 * spread)
    quiet = np.sqrt(2 * (spared + excess + 2))
    change = np.minimum(aim / (1 + steep), _COMPOSED)
    needed = np.log(np.maximum(rounds, 1.0)) + 1.2 * excess + spared + 8
    for _ in range(2):  # the second time at a wider gap, where there is too much work
        highest = quiet / np.sqrt(change + asked.mu**2)
        frequencies = np.ceil(highest * period / (2 * math.pi)) + 1
        meshes, nodes = [], np.zeros(len(goal))
        for part, (low, high) in zip(asked.parts, pilot.ends, strict=True):
            count = 3 * _GRID if (needed > 30).any() else _GRID
            places = np.linspace(low, high, count + 1, axis=1)
            made, weight = tilted(part, places, tilt)
            digits = needed[:, None] + weight - weight.max(axis=1, keepdims=True)
            phase = np.interp(digits[:, 1:], *_PHASES)
            wide = _WIDEST * np.minimum(1, 35 / needed)[:, None]
            panels = np.diff(places) / wide * np.maximum(1, part.rows.shift)
            steepest = maximum_filter1d(np.diff(made), _NEAR, axis=1)
            panels += highest[:, None] * steepest / (2 * phase)
            meshes.append((places, np.pad(np.cumsum(panels, axis=1), ((0, 0), (1, 0)))))
            nodes += np.ceil(meshes[-1][1][:, -1] + 0.5) * len(NODES)
        work = nodes * frequencies / most
        if (work <= 1).all():
            break
        change = change * np.maximum(1, work)
    width = np.sqrt(np.where(asked.mu**2 > change, 0.0, change))
    return _Plan(
        tilt, width, period, frequencies, near, pull, spared, nodes, tuple(meshes)
    )


def _powers(phases: Array, count: int) -> NDArray[np.complex128]:
    """The first powers of unit numbers less 1, shape (rows, count, outcomes).

    From d_j and d_k, d_(j + k) is d_j + d_k + d_j d_k: by doubling, phases are off by some units.
    """
    found = np.zeros((len(phases), count, phases.shape[1]), dtype=np.complex128)
    step = -2 * np.sin(phases / 2) ** 2 + 1j * np.sin(phases)
    known = 1
    while known < count:
        some, new = found[:, : min(known, count - known)], found[:, known : 2 * known]
        np.multiply(some, 1 + step[:, None], out=new)
        new += step[:, None]
        step, known = step * (2 + step), 2 * known
    return found


def _moments(phases: Array, weights: Array, frequencies: int) -> NDArray[np.complex128]:
    """Sums of ``weights`` times unit numbers less 1, shape (rows, at least that many frequencies).

    Less 1, so that outcomes which hardly turn are hardly rounded: as where few clients take part.
    """
    fine = math.ceil(math.sqrt(frequencies))
    coarse = -(-frequencies // fine)
    found = np.zeros((len(phases), coarse, fine), dtype=np.complex128)
    for first in range(0, phases.shape[1], _BLOCK):
        some = slice(first, first + _BLOCK)
        weight = weights[:, None, some]
        few, many = (
            _powers(phases[:, some], fine),
            _powers(fine * phases[:, some], coarse),
        )
        few *= weight
        found += (
            np.matmul(many, (few + weight).transpose(0, 2, 1))
            + few.sum(axis=2)[:, None]
        )
    return found.reshape(len(phases), -1)


class _Transform(NamedTuple):  # of what the integral needs, the tilted mass being 1
    upper: NDArray[
        np.complex128
    ]  # terms of the bound from above, shape (rows, frequencies)
    lower: NDArray[np.complex128]
    places: Array  # z, likewise
    linear: Array  # what epsilon is less by, for the Gaussian factor; shape (rows,) from here on
    log_scale: Array
    doubt: Array  # of the sum of the terms
    drift: Array  # of delta, relative: what the moment at the tilt is off by
    extra: Array  # to add to delta
    rise: Array  # log moment at the tilt and the pull, less that at the tilt
    alone: NDArray[np.bool_]  # whether the mass without any loss was taken off


def _transform(
    asked: Questions, plan: _Plan, frequencies: int, *, correct: bool = False
) -> _Transform:
    """The integrand at its frequencies, with a bound on its rounding."""
    rows, tilt, width = len(asked.mu), plan.tilt, plan.width
    apart = 2 * math.pi / plan.period
    fine = math.ceil(math.sqrt(frequencies))
    u = apart[:, None] * np.arange(fine * -(-frequencies // fine))
    pulled = tilt + plan.pull
    size, turned, doubts, grown = (np.zeros(u.shape) for _ in range(4))
    extra, drift, moment, rise = (np.zeros(rows) for _ in range(4))
    for part, (places, panels) in zip(asked.parts, plan.meshes, strict=True):
        count = int(np.ceil(panels[:, -1].max() + 0.5))
        laid = np.linspace(0, panels[:, -1], count + 1, axis=1)
        ends = np.array(list(map(np.interp, laid, panels, places)))
        one, n = outcomes(part, ends), part.rounds
        exponents = tilt[:, None] * one.losses
        top = exponents.max(axis=1)
        weights = one.masses * np.exp(exponents - top[:, None])
        total = weights.sum(axis=1)
        weights, log_moment = weights / total[:, None], top + np.log(total)
        usual = one.losses[np.arange(rows), weights.argmax(axis=1)]
        away = one.losses - usual[:, None]
        moments = _moments(apart[:, None] * away, weights, frequencies)
        x, y = moments.real, moments.imag
        near = 2 * x + x * x + y * y
        logs = np.log1p(np.maximum(near, -0.5)) / 2
        logs = np.where(near > -0.5, logs, np.log(np.hypot(1 + x, y)))
        turn = n[:, None] * np.arctan2(y, 1 + x) + (n * usual)[:, None] * u
        turned += turn - 2 * math.pi * np.rint(turn / (2 * math.pi))
        size += n[:, None] * logs
        # what the moments are off by, relative to that at the tilt
        off = one.off + 4 * tilt[:, None] * (np.abs(one.losses) + one.loss_off)
        rule = np.exp(
            np.minimum(off_by(part, ends, tilt, u[:, -1]) - log_moment, 300.0)
        )
        turn = u * (weights * np.abs(away)).sum(axis=1)[:, None]
        rounded = weights * off
        unit = u * (rounded * np.abs(away)).sum(axis=1)[:, None]
        unit = np.minimum(unit, 2 * rounded.sum(axis=1)[:, None])
        unit += (one.losses.shape[1] / 8 + 1024) * np.minimum(turn, 2)
        unit += u * (weights * one.loss_off).sum(axis=1)[:, None]
        unit += (32 + 16 * math.log2(fine + 1)) * turn + 4 * u * np.abs(usual)[:, None]
        unit = UNIT * unit + 2 * rule[:, None]
        reached = np.exp(logs) + unit
        doubts += n[:, None] * unit / reached
        grown += n[:, None] * np.log(reached)
        of_mass = (
            rounded.sum(axis=1) + one.losses.shape[1] / 16 + 8 + 4 * np.abs(log_moment)
        )
        drift += n * (UNIT * of_mass + rule)
        moment += n * log_moment
        extra += n * outside(part, ends)
        rise += n * (chernoff(part, ends, one, pulled) - log_moment + 2 * rule)
    both = width**2 + asked.mu**2
    z, half, alone = tilt[:, None] + 1j * u, (both / 2)[:, None], asked.mu == 0
    payoff = 1 / (z * (1 + z))
    # of the loss less that of nothing, by the exponential less 1 where the two are alike
    one_less = np.where(alone, np.exp(-np.maximum(moment, -600.0)), 0.0)[:, None]
    whole = size + moment[:, None]
    sized = np.exp(np.minimum(size, 600.0))
    less = (
        np.expm1(np.minimum(whole, 1.0)) * np.cos(turned) - 2 * np.sin(turned / 2) ** 2
    )
    small = alone[:, None] & (whole < 1)
    real = np.where(small, one_less * less, sized * np.cos(turned) - one_less)
    faded = np.exp(-half * u * u)
    terms = (real + 1j * sized * np.sin(turned)) * faded
    terms[:, 0] /= 2
    if correct:  # take the Gaussian factor back, by the start of its inverse's series
        x = -(width**2 / 2)[:, None] * z * (1 + z)
        payoff = payoff * (1 + x * (1 + x / 2 * (1 + x / 3)))
    less = (width**2 * np.exp(width**2 / 8))[:, None]
    sized = np.abs(payoff) + less
    upper, lower = terms * payoff, terms * (payoff - less)
    end, quiet = u[:, -1], half[:, 0] * u[:, -1] ** 2
    reached = faded * np.exp(np.minimum(grown, 600.0))
    doubt = (sized * reached * np.minimum(2, doubts)).sum(axis=1)
    doubt += (
        (2 + 2 * one_less[:, 0])
        * np.exp(np.minimum(both / 8 - quiet, 600.0))
        / (apart * end)
    )
    log_scale = moment + half[:, 0] * tilt * (1 + tilt) + np.log(apart / math.pi)
    drift = np.expm1(np.minimum(2 * drift, 50.0)) + UNIT * 16 * (1 + np.abs(log_scale))
    drift += UNIT * 16 * tilt * (plan.epsilon + plan.period)
    each = UNIT * (64 + u.shape[1]) + UNIT * 16 * (tilt + end) * (
        plan.epsilon + plan.period + both * (1 + tilt)
    )
    doubt += each * (np.abs(terms) * sized).sum(axis=1)
    # Chernoff's bound on what the rule adds: the payoff is at most exp(pulled x) times a quotient
    rise += half[:, 0] * plan.pull * (pulled + tilt + 1) + np.log(math.pi / apart)
    rise -= pulled * np.log1p(1 / pulled) + np.log1p(pulled)
    linear = both * (tilt + 0.5)
    return _Transform(
        upper, lower, z, linear, log_scale, doubt, drift, extra, rise, alone
    )


def _delta(made: _Transform, plan: _Plan, epsilon: Array, sign: int) -> Ends:
    """A bound on delta at an epsilon of each row, and minus the slope of its log."""
    # the phases of the terms and, linear too, that of the Gaussian factor
    moved = (epsilon - made.linear) * 2 * math.pi / plan.period
    terms = made.upper if sign >= 0 else made.lower
    fine = math.ceil(math.sqrt(terms.shape[1]))
    few = np.exp(-1j * moved[:, None] * np.arange(fine))
    many = np.exp(-1j * (fine * moved)[:, None] * np.arange(-(-terms.shape[1] // fine)))
    phases = (many[:, :, None] * few[:, None]).reshape(len(moved), -1)[
        :, : terms.shape[1]
    ]
    turned = terms * phases
    scale = np.exp(np.minimum(made.log_scale - plan.tilt * epsilon, 600.0))
    value = turned.real.sum(axis=1)
    slope = (turned * made.places).real.sum(axis=1) / np.maximum(value, 1e-300)
    fades = -np.expm1(-np.minimum(plan.tilt, plan.pull) * plan.period)
    if sign == 0:
        return scale * value, slope
    nothing, of_nothing, price = (
        made.alone * one for one in _of_nothing(plan.width, epsilon)
    )
    around = np.exp(-plan.tilt * plan.period)
    width = np.maximum(
        plan.width, 1e-300
    )  # of what is composed; alone, periods above, an echo
    beyond = (
        plan.tilt * plan.period
        - np.maximum(plan.period / width - width / 2, 0.0) ** 2 / 2
    )
    echo = 4 * np.exp(np.minimum(beyond, 0.0))
    echo = np.where(made.alone, np.where(beyond < -30, echo, np.inf), 0.0)
    if sign > 0:  # what the rule adds is 0 or more but for what was cut and taken off
        added = made.extra * (1 + around / fades) + nothing + of_nothing + echo
        return (scale * (value + made.doubt) + added) * (1 + made.drift), slope
    above = made.rise - plan.pull * (epsilon + plan.period)
    wrapped = (
        (1 + 2 * plan.width) * around + scale * np.exp(np.minimum(above, 300.0)) + echo
    )
    own = np.maximum(nothing - of_nothing, 0.0) - price
    found = scale * (value - made.doubt) + own
    return found - made.drift * np.abs(found) - wrapped / fades, slope


def _of_nothing(width: Array, epsilon: Array) -> tuple[Array, Array, Array]:
    """Delta of the Gaussian mechanism that is composed, alone; its rounding; its price."""
    safe = np.maximum(width, 1e-300)
    far = epsilon / safe
    usual = ndtr(safe / 2 - far)
    found = usual - np.exp(np.minimum(epsilon, 600.0)) * ndtr(-safe / 2 - far)
    price = np.exp(np.minimum(epsilon, 600.0) / 2 - np.minimum(far**2 / 2, 700.0))
    price *= width * (1 + 1e-12) / math.sqrt(2 * math.pi)
    some = np.where(width > 0, 1.0, 0.0)
    return some * np.maximum(found, 0.0), some * 1e-13 * usual, price


def _solve(made: _Transform, plan: _Plan, delta: Array, sign: int) -> Ends:
    """Epsilon by Newton's method, and a little further until the bound holds there."""
    epsilon, goal = plan.epsilon, np.log(delta)
    for turn in range(_NEWTON):
        found, slope = _delta(made, plan, epsilon, sign)
        step = (np.log(np.maximum(found, 1e-300)) - goal) / np.where(
            slope > 0, slope, plan.tilt
        )
        step = np.clip(step, -2 / plan.tilt, 2 / plan.tilt)
        epsilon = np.maximum(epsilon + step, 0.1 * epsilon)
        far = (np.abs(step) > (5e-4 if sign else 2e-5) * epsilon) & (
            (found > 0) | (turn < 4)
        )
        if not far.any():
            break
    epsilon = epsilon * (1 + sign * 2e-6)
    for further in (1e-5, 1e-4, 1e-3, 0.0):
        short = ~(
            sign * (_delta(made, plan, epsilon, sign)[0] - delta) <= 0
        )  # nor is it NaN
        if not short.any():
            break
        epsilon = np.where(short, epsilon * (1 + sign * further), epsilon)
    epsilon = np.where(short, np.inf if sign > 0 else 0.0, epsilon)
    if sign > 0 and (epsilon < 0.2 * plan.epsilon).any():
        epsilon = np.where(
            _delta(made, plan, 0 * epsilon, sign)[0] <= delta, 0.0, epsilon
        )
    return epsilon, slope


def bounds(ways: tuple[Questions, ...], tolerance: float, most: float = _MOST) -> Ends:
    """Bounds from below and above on epsilon in one or two directions, the tight one first.

    Within the relative tolerance, nearly always; infinite where ``most`` work does not serve.
    """
    with np.errstate(all="ignore"):  # bounds that fail
        lower, upper = _bounds(ways[0], 0 * ways[0].mu, tolerance / 2, most)
        for other in ways[1:]:
            upper = np.maximum(upper, _bounds(other, upper, tolerance / 2, most)[1])
    return lower, upper


def _bounds(asked: Questions, least: Array, tolerance: float, most: float) -> Ends:
    """Bounds of one direction; no closer than to see that epsilon is at most ``least``."""
    count, known = len(asked.mu), bool(least.any())
    lower, upper = np.zeros(count), np.full(count, np.inf)
    kept, gaps = np.zeros(count), np.full(count, np.inf)
    for one in asked.parts:
        apart = one.shift * (2 if one.kind == Kind.SWAP else 1)
        kept += one.rounds * np.log1p(
            -one.ratio * erf(apart / math.sqrt(8)) * (1 + 1e-9)
        )
    never = (-np.expm1(kept) <= asked.delta) & (asked.mu == 0)
    if known:  # the total variation is that of the other direction
        never |= least == 0
    upper[never] = 0.0
    left = np.flatnonzero(~never & np.isfinite(least))
    if known and len(left):
        few = np.array_split(left, -(-len(left) // _AT_ONCE))
        shown = np.concatenate([_kept(asked.of(some), least[some]) for some in few])
        upper[left[shown]], left = least[left[shown]], left[~shown]
    near, steep = least[left] if known else None, None
    for turn in range(_PLANS):
        if not len(left):
            break
        aim = tolerance * (
            _COARSE if known and turn == 0 else _FIRST if turn == 0 else 1
        )
        slopes = np.zeros(len(left))
        for some, plan, part, made in _made(asked.of(left), aim, near, steep, most):
            found, slopes[some] = _solve(made, plan, part.delta, 1)
            upper[left[some]] = np.minimum(upper[left[some]], found)
            if not known:
                there = np.where((found > 0) & np.isfinite(found), found, plan.epsilon)
                below = _solve(made, plan._replace(epsilon=there), part.delta, -1)[0]
                lower[left[some]] = np.maximum(lower[left[some]], below)
        found = upper[left]
        gap = found - (least if known else lower)[left]
        again = gap > (0 if known else 2 * _GAP * tolerance * found)
        again &= np.isfinite(found) | (known and turn == 0)
        again &= (gap < 0.7 * gaps[left]) | (lower[left] == 0)
        gaps[left] = gap
        near, steep = (
            np.where(np.isfinite(found), found, least[left])[again],
            slopes[again],
        )
        left = left[again]
    return lower, upper


def _kept(asked: Questions, epsilon: Array) -> NDArray[np.bool_]:
    """Where Chernoff's bound at one tilt shows that delta is kept."""
    rounds = sum((part.rounds for part in asked.parts), np.zeros(len(epsilon)))
    pilot = _Pilot(asked, np.minimum(1e-3 * asked.delta / rounds, 1e-3), _PANELS)
    tilt = np.minimum(1 / pilot.spread(0 * epsilon), -np.log(asked.delta) / 2 / epsilon)
    for reach, even in _REACHES:
        tilts = tilt[:, None] * reach
        found = pilot.cumulants(tilts, even=even) - tilts * epsilon[:, None]
        found -= tilts * np.log1p(1 / tilts) + np.log1p(tilts)
        tilt = tilts[pilot.every, found.argmin(axis=1)]
    spent, extra = asked.mu**2 / 2 * tilt * (1 + tilt), 0 * epsilon
    for part, bounds in zip(asked.parts, pilot.ends, strict=True):
        ends = np.linspace(*bounds, _PANELS * 3 + 1, axis=1)
        spent += part.rounds * chernoff(part, ends, outcomes(part, ends), tilt)
        extra += part.rounds * outside(part, ends)
    rounding = UNIT * 64 * (100 + spent + tilt * epsilon)
    size = spent + rounding - tilt * (epsilon + np.log1p(1 / tilt)) - np.log1p(tilt)
    return np.asarray(np.exp(np.minimum(size, 0.0)) + extra * (1 + 1e-9) <= asked.delta)


def deltas(
    ways: tuple[Questions, ...], epsilon: float, tolerance: float, most: float
) -> tuple[float, float]:
    """Bounds on delta at an epsilon, from a delta that the questions name; 0 and 1 where none."""
    lowest, highest, at = 0.0, 0.0, np.array([epsilon])
    for asked in ways:
        lower, upper, gap, steep, least = 0.0, 1.0, math.inf, None, highest
        if least:
            asked = asked._replace(delta=np.array([least]))
        for turn in range(_PLANS + 2):
            aim = _COARSE_DELTA if least and turn == 0 else 0.4 * tolerance
            with np.errstate(all="ignore"):
                [*found] = _made(asked, aim, at, steep, most, of_delta=True)
                if not found:
                    break
                [(_, plan, _, made)] = found
                (above, slope), (below, _) = (
                    _delta(made, plan, at, one) for one in (1, -1)
                )
            upper = min(upper, float(above[0])) if math.isfinite(above[0]) else upper
            lower, before = max(lower, float(below[0])), gap
            gap = 1 - lower / upper
            far = abs(math.log(upper / float(asked.delta[0]))) > 1
            if gap <= tolerance or upper <= least or not (far or gap < 0.7 * before):
                break
            asked, steep = (
                asked._replace(delta=np.array([upper])),
                np.maximum(slope, 1e-3),
            )
        lowest, highest = max(lowest, lower), max(highest, upper)
    return lowest, highest


def _made(
    asked: Questions,
    tolerance: float,
    near: Array | None,
    steep: Array | None,
    most: float,
    of_delta: bool = False,
) -> Iterator[tuple[Indices, _Plan, Questions, _Transform]]:
    """The transforms of questions, by a plan, some at once."""
    for start in range(0, len(asked.mu), _AT_ONCE):
        those = np.arange(start, min(start + _AT_ONCE, len(asked.mu)))
        start_at, slope = (None if one is None else one[those] for one in (near, steep))
        plan = _plan(asked.of(those), tolerance, start_at, slope, of_delta, most=most)
        for some in _chunks(plan, most):
            part, own = asked.of(those[some]), plan.of(some)
            frequencies = int(own.frequencies.max())
            yield those[some], own, part, _transform(part, own, frequencies)


def _chunks(plan: _Plan, most: float) -> Iterator[Indices]:
    """Questions of about as many outcomes and frequencies, as many as fit."""
    alike = np.stack(
        [np.ceil(np.log(one) / _ALIKE) for one in (plan.nodes, plan.frequencies)]
    )
    served = plan.nodes * plan.frequencies <= 4 * most  # nor is it NaN
    order = np.lexsort(alike)
    order = order[served[order] & (plan.frequencies[order] < _HIGHEST)]
    starts = np.flatnonzero(np.diff(alike[:, order], axis=1, prepend=-1).any(axis=0))
    for group in np.split(order, starts[1:]) if len(order) else ():
        nodes, frequencies = plan.nodes[group].max(), plan.frequencies[group].max()
        rows = max(
            1, int(_CHUNK / (nodes + 8 * frequencies + 128 * np.sqrt(frequencies)))
        )
        for first in range(0, len(group), rows):
            yield group[first : first + rows]


def estimate(pair: AnyPair, rounds: int, delta: float, near: float) -> float | None:
    """Epsilon of equal rounds, within some 1e-6, from one of the same order; no guarantee.

    The pair is of the direction that spends more; None where the method does not serve.
    """
    if (
        not isinstance(pair, Pair)
        or pair.kind not in (Kind.REMOVE, Kind.SWAP)
        or pair.ratio == 1
    ):
        return None
    numbers = pair.shift, pair.ratio, rounds, delta
    asked = questions(pair.kind, *(np.array([float(one)]) for one in numbers))
    steep, spent = None, math.inf
    for _ in range(_TRIES):
        if not (0 < near < _LARGEST and spent > 0):
            return None
        with np.errstate(all="ignore"):
            plan = _plan(asked, _ESTIMATED, np.array([near]), steep, estimated=True)
            if not plan.nodes[0] * plan.frequencies[0] < _LARGE:
                return None
            made = _transform(asked, plan, int(plan.frequencies[0]), correct=True)
            found, steep = _solve(made, plan, asked.delta, 0)
            spent = float(_delta(made, plan, found, 0)[0][0])
        before, near = near, float(found[0])
        settled = spent > 0 and abs(math.log(spent / delta)) < _SETTLED
        if settled and abs(near - before) <= _FAR * before:
            return near
    return None
