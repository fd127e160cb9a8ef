"""Whether a guarantee holds: proofs of upper bounds on epsilon, in integers and balls.

``python -m privplan.proof plan.json`` says of each group *proven*, or *not proven* and
why. It needs the plan and python-flint, and shares no code with the accountants.
``docs/proof.md`` lists the laws that it can prove and, by the letters in brackets
below, the theorems that it takes for granted.

A round is bounded by two distributions P and Q (A). Their profile is the hockey-stick
divergence h(x) = sup over events of P - x Q, at x = e^epsilon: convex, falling, at most
1. The losses log(P/Q) of rounds add up (B), and delta(epsilon) is the mean under P of
(1 - e^(epsilon - loss))+.

Lemma 1 (dots). Let v_i >= h(x_i) at 0 < x_0 < ... < x_n. Join (0, 1), the corners of
the lower convex hull of the points (x_i, v_i), and a level line from the last one. That
is nowhere below h, since chords of a convex function are not. Where it falls it is the
profile of a pair: under P the loss log x_i has the mass x_i times the change of slope
at x_i, and an infinite loss has v_n (C). Where v_i is above v_(i-1), v_(i-1) would do,
as h falls; that, and a corner that rounding left above the hull, only lowers other
masses, so a change of slope below 0 may count as 0.

Lemma 2 (upwards). Masses (m, inf) bound a loss when the loss of some pair with a
profile nowhere below h has at most m_i at each lattice point, and inf at infinity. Then
  they do when a mass grows: delta is a sum of masses times what is not negative;
  they do when mass moves to a higher loss, or to infinity: delta grows with a loss;
  and (m * m', inf + inf') bound the sum of two independent losses.
So numbers are rounded upwards: ``UpperMasses`` has no operation that lowers a mass.
"""

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from flint import arb, arb_poly, ctx, fmpz, fmpz_poly

VERSION = "privplan.proof 3"
BITS = 256  # precision of balls
SCALE = fmpz(1) << 128  # masses are whole multiples of 1 / SCALE
LEAST_DELTA = 2.0**-80  # far above the rounding of all masses together
LEAST_TAIL = 2.0**-128  # chance that a client's Y is above its last point
NEWTON_STEPS = 5  # from an error of 2^-16 or less to one below 2^-196
FIRST_POINTS = 1 << 10  # least, of a composed loss on the first lattice
TRUSTED = 8  # times the first points: from here on, slow progress means none
MOST_POINTS = 1 << 18  # of a composed loss
MOST_FACTOR = 8  # by which points grow at once
MARGIN = 1.1  # of that factor, above what two bounds ask for
DENSE = 64  # part of the points that are next to each other on each side of 0
NEGLIGIBLE = 2.0**-20  # share of delta that losses above the window may have
FAMILIES = ("gaussian", "discrete_gaussian")  # noise with normal pairs (G)
RELATIONS = ("add_remove", "replace_one", "zero_out")
OF_PERSONS = ("full", "poisson", "min_separation", "banded_separation")
POISSON = ("poisson", "cyclic_poisson")
ALLOCATED = ("random_allocation", "cyclic_allocation")
IN_TURNS = (*OF_PERSONS[2:], *ALLOCATED, "cyclic_poisson")
FINEST = 6  # noise of 2^5 and more has the same lattices
ALLOCATED_NOISE = (0.25, 1e4)  # outside of it a client's round counts as public
OF_ONE_RUN = ("pld", "rdp")  # accountants of guarantees over one run's releases
PERSONS = r"(?: \(up to (\d+) (?:client|record)s of one person\))?"
LAW = re.compile(r"([a-z_]+)(?::(\d+))?(?::(\d+))?" + PERSONS)


class NotProvableError(Exception):
    """Why a guarantee is outside of what can be proven."""


# --- Numbers that are rounded upwards, and nothing else. -----------------------------


def whole_above(ball: arb) -> fmpz:
    """The least whole number that nothing in a ball exceeds."""
    number = ball.upper().ceil().unique_fmpz()
    if number is None:
        raise NotProvableError("a number has no finite bound")
    return number


class UpperMasses:
    """Masses at neighbouring points of a lattice, each at least the true one.

    They are made from balls, added, multiplied and divided among points. There is no
    difference, no quotient and no conversion: to lower a mass is a TypeError.
    """

    __slots__ = ("_units",)

    def __init__(self, balls: Iterable[arb]) -> None:
        units = [whole_above(ball * SCALE) for ball in balls]
        self._units = fmpz_poly([max(number, fmpz(0)) for number in units])

    @classmethod
    def _from_units(cls, units: fmpz_poly) -> "UpperMasses":
        masses = cls(())
        masses._units = units
        return masses

    def __add__(self, other: "UpperMasses") -> "UpperMasses":
        return self._from_units(self._units + other._units)

    def __mul__(self, other: "UpperMasses") -> "UpperMasses":
        """Masses of sums, rounded up: the floor of what is nearly a unit more."""
        product = self._units * other._units
        most_of_a_unit = fmpz_poly([SCALE - 1] * product.length())
        return self._from_units((product + most_of_a_unit) // SCALE)

    def first(self, count: int) -> "UpperMasses":
        """Those at the first so many points."""
        return self._from_units(self._units.truncate(count))

    def after(self, count: int) -> "UpperMasses":
        """Those at all further points."""
        return self._from_units(self._units.right_shift(count))

    def total(self) -> "UpperMasses":
        """All of them at one point."""
        return self._from_units(fmpz_poly([self._units(1)]))

    def sums(self) -> tuple[list[int], list[int]]:
        """Of the first 0, 1, ... points: units, and units times their places."""
        units = [int(mass) for mass in self._units.coeffs()]
        moments = [place * mass for place, mass in enumerate(units)]
        return list(accumulate(units, initial=0)), list(accumulate(moments, initial=0))

    def weighed(self, ratio: arb) -> arb:
        """The sum of masses times ratio^place, in a ball."""
        return arb(self._units(ratio)) / SCALE


@dataclass(frozen=True)
class UpperLoss:
    """Masses at losses ``step * (lowest + place)`` and at infinity, as in Lemma 2."""

    step: float
    lowest: int
    masses: UpperMasses
    infinite: UpperMasses

    def within(self, lowest: int, highest: int) -> "UpperLoss":
        """Losses above a window become infinite, those below move up to its end."""
        count = highest - self.lowest + 1
        inside = self.masses.first(count)
        infinite = self.infinite + self.masses.after(count).total()
        below = lowest - self.lowest
        if below <= 0:
            return UpperLoss(self.step, self.lowest, inside, infinite)
        moved = inside.first(below).total() + inside.after(below)
        return UpperLoss(self.step, lowest, moved, infinite)

    def plus(self, other: "UpperLoss", lowest: int, highest: int) -> "UpperLoss":
        """The sum of two independent losses."""
        masses = self.masses * other.masses
        infinite = self.infinite + other.infinite
        total = UpperLoss(self.step, self.lowest + other.lowest, masses, infinite)
        return total.within(lowest, highest)

    def times(self, count: int, lowest: int, highest: int) -> "UpperLoss":
        """The sum of so many independent losses like this one, by squaring."""
        if count == 1:
            return self.within(lowest, highest)
        half = self.times(count // 2, lowest, highest)
        even = half.plus(half, lowest, highest)
        if count % 2:
            return even.plus(self, lowest, highest)
        return even

    def delta(self, epsilon: float) -> arb:
        """A ball whose upper end is at least delta, a sum over losses above it."""
        lowest_above = math.floor(Fraction(epsilon) / Fraction(self.step)) + 1
        lowest_above = max(lowest_above, self.lowest)
        above = self.masses.after(lowest_above - self.lowest)
        start = (arb(epsilon) - lowest_above * arb(self.step)).exp()
        discounted = start * above.weighed((-arb(self.step)).exp())
        return (self.infinite + above.total()).weighed(arb(1)) - discounted


# --- Profiles of one round at epsilon: balls that hold h, or a number above it. ------

Profile = Callable[[arb], arb]
Profiles = tuple[Profile, Profile]  # of a client that is removed, and is added


def beyond(place: arb) -> arb:
    """The chance that a standard normal draw exceeds the place."""
    return (place / arb(2).sqrt()).erfc() / 2


class Mixture:
    """P = sum_j p_j N(j s, 1) against Q = sum_j q_j N(-j s, 1).

    With u = e^(s y), P is x times as likely as Q at an outcome y where F(u) = 0,

        F(u) = u^n (sum_j p'_j u^j - x sum_j q'_j u^-j),    p'_j = p_j e^(-(j s)^2 / 2),

    n the last j of Q. The ratio grows with y, so the best event is "above that y".
    """

    def __init__(self, shift: arb, p: Sequence[arb], q: Sequence[arb]) -> None:
        self.shift = shift
        self.p = p
        self.q = q
        zeros = [arb(0)] * (len(q) - 1)
        self.rising = arb_poly([*zeros, *self._damped(p)])
        self.falling = arb_poly(self._damped(q)[::-1])

    def _damped(self, chances: Sequence[arb]) -> list[arb]:
        return [c * (-((j * self.shift) ** 2) / 2).exp() for j, c in enumerate(chances)]

    def place(self, x: arb) -> arb:
        """A ball around the y where the ratio is x, for an x that is reached.

        FLINT and Newton's steps find it about, and F has other signs beside it.
        """
        function = self.rising - x * self.falling
        slope = function.derivative()
        real = [root.real for root in function.complex_roots() if 0 in root.imag]
        positive = [root for root in real if root > 0]  # F changes its sign once
        if len(positive) != 1:
            raise NotProvableError("a likelihood ratio was not inverted")
        u = positive[0].mid()
        for _ in range(NEWTON_STEPS):
            u = (u - function(u) / slope(u)).mid()
        radius = arb(2) ** (60 - BITS)
        low = u * (1 - radius)
        high = u * (1 + radius)
        if not function(low) < 0 < function(high):
            raise NotProvableError("a likelihood ratio was not inverted")
        logarithm: arb = low.union(high).log() / self.shift
        return logarithm

    def profile(self, epsilon: arb) -> arb:
        """The divergence h at e^epsilon."""
        x = epsilon.exp()
        if len(self.q) == 1 and x <= self.p[0]:  # every ratio is above x
            return 1 - x
        if len(self.p) == 1 and x * self.q[0] >= 1:  # every ratio is below x
            return arb(0)
        place = self.place(x)
        divergence = arb(0)
        for j, chance in enumerate(self.p):
            divergence += chance * beyond(place - j * self.shift)
        for j, chance in enumerate(self.q):
            divergence -= x * chance * beyond(place + j * self.shift)
        return divergence


def sampled(shift: arb, ratio: arb, clients: int = 1) -> Profiles:
    """Of a person with so many clients, each of whom is drawn with the ratio (D)."""
    drawn = []
    for j in range(clients + 1):
        chance = ratio**j * (1 - ratio) ** (clients - j)
        drawn.append(math.comb(clients, j) * chance)
    surely = [arb(1)]
    return Mixture(shift, drawn, surely).profile, Mixture(shift, surely, drawn).profile


def mixed(usual: Profile, other: Profile, rare: arb) -> Profile:
    """Of a release that is the other one with a small chance, and which is seen."""
    return lambda epsilon: (1 - rare) * usual(epsilon) + rare * other(epsilon)


def laplace(bound: arb) -> Profile:
    """Laplace noise of scale 1 / bound on a count that moves by 1."""

    def profile(epsilon: arb) -> arb:
        between = 1 - ((epsilon - bound) / 2).exp()
        return between.max(1 - epsilon.exp()).max(arb(0))

    return profile


def discrete_laplace(bound: arb, moved: int) -> Profile:
    """Whole noise k, chances in proportion to e^(-bound |k|), on a count that moves."""
    fall = (-bound).exp()
    # The chances of 0 and less, of 1, ..., moved - 1, and of moved and more.
    weights = [arb(1), *(fall**k * (1 - fall) for k in range(1, moved)), fall**moved]
    chances = [weight / (1 + fall) for weight in weights]
    atoms = list(zip(chances, reversed(chances), strict=True))

    def profile(epsilon: arb) -> arb:
        x = epsilon.exp()
        return sum(((p - x * q).max(arb(0)) for p, q in atoms), arb(0))

    return profile


@lru_cache(1 << 16)  # a finer lattice has the points of a coarser one
def put_of_lognormal(noise: float, multiple: int, exponent: int) -> tuple[arb, arb]:
    """E[(y - Y)+] and P(Y < y) at y = multiple * 2^exponent."""
    sigma = arb(noise)
    y = arb(multiple) * arb(2) ** exponent
    half = 1 / (2 * sigma)
    centre = y.log() * sigma
    below = beyond(-centre - half)
    return y * below - beyond(half - centre), below


class Allocation:
    """One of t rounds, chosen: N(e_i, sigma^2), mixed, against N(0, sigma^2).

    Under Q the ratio is R = S / t, S a sum of t independent Y = e^(Z / sigma - 1 / (2
    sigma^2)) (E). With put(x) = E[(x - R)+] and E[R] = 1 the profiles are
    put(x) + 1 - x and x put(1 / x). As a function of one Y a put is convex and falling.
    So it grows

        where Y has the law whose own puts are joined at lattice points (convex order),
        where Y above the last point moves to 0;

    and it is 0 where S > t x, so only Y and sums up to there count. Each octave of x
    has a lattice, on which R has steps of a power of 2.
    """

    def __init__(self, noise: float, rounds: int, level: int) -> None:
        self.noise = noise
        self.rounds = rounds
        # Lattices are finer where log Y deviates less, by 1 / sigma.
        level += min(math.frexp(noise)[1], FINEST)
        self.bits = 3 + rounds.bit_length() + level  # of the points near x = 1
        self.near = max(4, 4 + level)  # of those of Y in an octave
        self.sums = lru_cache(None)(self._sums)

    def _exponent(self, octave: int) -> int:
        """Of the step of R for x up to 2^octave; fewer points far from x = 1."""
        away = max(octave - 1, -octave)
        return octave - self.bits + min(away, self.bits // 4)

    def _law_of_one(self, octave: int) -> UpperMasses:
        """Masses of Y / t at multiples of the step of R, up to 2^octave."""
        exponent = self._exponent(octave)
        end = 1 << (octave - exponent)
        step = self.rounds * arb(2) ** exponent
        balls = [arb(0)]
        place = 0
        value = slope = below = arb(0)  # the put at that place, and up to it
        while place < end and not 1 - below < LEAST_TAIL:
            # Each octave has as many points; lattices share most of them.
            gap = 1 << max(0, place.bit_length() - self.near)
            place += gap
            twos = (place & -place).bit_length() - 1
            before = (value, slope)
            value, below = put_of_lognormal(
                self.noise, self.rounds * (place >> twos), exponent + twos
            )
            slope = (value - before[0]) / (gap * step)
            balls[-1] += slope - before[1]
            balls.extend([arb(0)] * gap)
        balls[-1] += below - slope
        if place < end:
            balls[0] += 1 - below
        return UpperMasses(balls)

    def _sums(self, octave: int) -> tuple[list[int], list[int]]:
        """Sums of the masses of R, and of masses times places."""
        end = 1 << (octave - self._exponent(octave))
        single = UpperLoss(1.0, 0, self._law_of_one(octave), UpperMasses(()))
        return single.times(self.rounds, 0, end).masses.sums()

    def put(self, x: arb) -> arb:
        """Not less than E[(x - R)+]: that at the upper end of x, as it grows with x."""
        strike = x.upper()
        octave = math.frexp(float(strike))[1]
        if not strike <= arb(2) ** octave:
            raise NotProvableError("a strike is outside of its octave")
        step = arb(2) ** self._exponent(octave)
        masses, moments = self.sums(octave)
        count = min(int(whole_above(strike / step)), len(masses) - 1)
        return (strike * masses[count] - step * moments[count]) / SCALE

    def remove(self, epsilon: arb) -> arb:
        """The profile of a client that is removed."""
        x = epsilon.exp()
        return self.put(x) + 1 - x

    def add(self, epsilon: arb) -> arb:
        """The profile of a client that is added."""
        return epsilon.exp() * self.put((-epsilon).exp())


# --- What was released, and its profiles. --------------------------------------------


@dataclass(frozen=True)
class Rounds:
    """Equal releases: noise over the clipping norm, and how clients take part."""

    noise_multiplier: float
    sampling_ratio: float
    sampling: str
    count: int
    family: str = FAMILIES[0]


@lru_cache(8)  # both directions share what an allocation computes
def pair_of(rounds: Rounds, relation: str, level: int) -> arb | Profiles:
    """The shift of a Gaussian release, or both profiles (D, E, F).

    Raises:
        NotProvableError: for a law, a relation or a noise without a pair here.
    """
    law = LAW.fullmatch(rounds.sampling)
    pair: arb | Profiles | None = None
    if (
        law is None
        or relation not in RELATIONS
        or (law[4] and law[1] not in OF_PERSONS)
    ):
        pass
    elif rounds.family not in FAMILIES:
        pair = of_count(rounds, law)
    elif rounds.sampling_ratio == 1 and law[1] in (*OF_PERSONS, *IN_TURNS):
        pair = of_everybody(rounds, law, relation, level)
    else:
        pair = of_drawn(rounds, law, relation)
    if pair is None:
        text = f"{rounds.family} noise, {rounds.sampling} sampling, {relation}"
        raise NotProvableError(f"no pair for {text}")
    return pair


def of_count(rounds: Rounds, law: re.Match[str]) -> Profiles | None:
    """A count of all clients; None without a pair."""
    if law[1] != "full" or rounds.sampling_ratio != 1:
        return None
    bound = arb(2).sqrt() / arb(rounds.noise_multiplier)
    moved = int(law[4] or 1)
    if rounds.family == "laplace":
        profile = laplace(bound * moved)
    elif rounds.family == "discrete_laplace":
        profile = discrete_laplace(bound, moved)
    elif rounds.family == "randomized_response" and moved == 1:
        profile = discrete_laplace(bound, 1)
    else:
        return None
    return profile, profile


def of_everybody(
    rounds: Rounds, law: re.Match[str], relation: str, level: int
) -> arb | Profiles:
    """Rounds, or blocks of rounds, in which every client takes part surely."""
    noise = arb(rounds.noise_multiplier)
    low, high = ALLOCATED_NOISE
    if law[1] in ALLOCATED and relation != "replace_one" and low <= noise <= high:
        allocation = Allocation(rounds.noise_multiplier, int(law[3] or law[2]), level)
        return allocation.remove, allocation.add
    moved = 2 if relation == "replace_one" else 1
    return moved * int(law[4] or 1) / noise


def of_drawn(rounds: Rounds, law: re.Match[str], relation: str) -> Profiles | None:
    """Rounds whose clients are drawn; None without a pair."""
    shift = 1 / arb(rounds.noise_multiplier)
    ratio = arb(rounds.sampling_ratio)
    clients = int(law[4] or 1)
    once = sampled(shift, ratio, clients)
    twice = sampled(2 * shift, ratio)
    if law[1] in POISSON and relation != "replace_one":
        return once
    if law[1] in POISSON and clients == 1:
        profile = Mixture(shift, [1 - ratio, ratio], [1 - ratio, ratio]).profile
        return profile, profile
    if law[1] == "fixed_size" and relation == "add_remove":
        return twice
    if law[1] == "fixed_size":  # the lattice has a point at 0, where the two meet
        remove, add = twice
        return (lambda e: add(e) if e < 0 else remove(e),) * 2
    if law[1] == "capped_poisson" and relation == "add_remove":
        rare = 1 / arb(int(law[2]))
        return mixed(once[0], twice[0], rare), mixed(once[1], twice[1], rare)
    return None


# --- The proof. ----------------------------------------------------------------------

Parts = list[tuple[Profile, int]]  # of one direction, with how many rounds of each


def spread_out(end: int, dense: int) -> list[int]:
    """Whole numbers from 0 to the end, 1 or 1 / ``dense`` of themselves apart."""
    places = [0]
    while places[-1] < end:
        places.append(min(end, places[-1] + max(1, places[-1] // dense)))
    return places


def connected(
    profile: Profile, step: float, lowest: int, highest: int, dense: int
) -> UpperLoss:
    """One round by Lemma 1."""
    negative = [-place for place in spread_out(-lowest, dense)[:0:-1]]
    places: list[int] = []  # of the corners, besides that at x = 0
    corners = [(arb(0), arb(1), arb(-2))]  # x, value, and a slope up to there
    for place in [*negative, *spread_out(highest, dense)]:
        epsilon = arb(step) * place
        x = epsilon.exp()
        value = profile(epsilon)
        slope = (value - corners[-1][1]) / (x - corners[-1][0])
        while slope < corners[-1][2]:
            corners.pop()
            places.pop()
            slope = (value - corners[-1][1]) / (x - corners[-1][0])
        corners.append((x, value, slope))
        places.append(place)
    balls = [arb(0)] * (highest - lowest + 1)
    slopes = pairwise([*(slope for _, _, slope in corners[1:]), arb(0)])
    for place, (x, _, _), (before, after) in zip(
        places, corners[1:], slopes, strict=True
    ):
        balls[place - lowest] = x * (after - before)
    return UpperLoss(step, lowest, UpperMasses(balls), UpperMasses([corners[-1][1]]))


def composed(profiles: Parts, epsilon: float, reach: float, points: int) -> UpperLoss:
    """All rounds of one direction, with losses from epsilon - reach to reach."""
    step = (2 * reach - epsilon) / points
    ends = (math.floor((epsilon - reach) / step), math.ceil(reach / step))
    total = UpperLoss(step, 0, UpperMasses([arb(1)]), UpperMasses(()))
    for profile, count in profiles:
        rounds = connected(profile, step, *ends, points // DENSE).times(count, *ends)
        total = total.plus(rounds, *ends)
    return total


def directions(history: Sequence[Rounds], relation: str, level: int) -> list[Parts]:
    """The profiles of each direction; all Gaussian rounds together are one (B)."""
    squares = arb(0)
    removed: Parts = []
    added: Parts = []
    for rounds in history:
        silent = rounds.sampling_ratio == 0 or rounds.noise_multiplier == math.inf
        if rounds.count == 0 or silent:
            continue
        if not rounds.noise_multiplier > 0:
            raise NotProvableError("a release without noise")
        pair = pair_of(rounds, relation, level)
        if isinstance(pair, arb):
            squares += rounds.count * pair**2
            continue
        removed.append((pair[0], rounds.count))
        added.append((pair[1], rounds.count))
    if squares > 0:  # alike in both directions
        gaussian, _ = sampled(squares.sqrt(), arb(1))
        removed.append((gaussian, 1))
        added.append((gaussian, 1))
    if removed == added:
        return [removed]
    return [removed, added]


@dataclass(frozen=True)
class Claim:
    """That releases are (epsilon, delta)-private, in one direction."""

    history: Sequence[Rounds]
    relation: str
    direction: int
    epsilon: float
    delta: float

    def parts(self, level: int) -> Parts:
        """Its profiles; a level more halves the steps of lattices in them."""
        return directions(self.history, self.relation, level)[self.direction]


def shown(claim: Claim) -> tuple[arb, int]:
    """A ball whose upper end is at least delta, and points of the finest lattice.

    Points are added until the bound is low enough, or more of them were in vain.
    Windows and numbers of points are guesses, on which no proof rests.
    """
    profiles = claim.parts(0)
    epsilon = claim.epsilon
    if not profiles:
        return arb(0), 1
    if len(profiles) == 1 and profiles[0][1] == 1:
        return profiles[0][0](arb(epsilon)), 1
    rounds = sum(count for _, count in profiles)
    first_points = max(FIRST_POINTS, 64 * math.isqrt(rounds))

    # The window grows until hardly any loss is above it.
    reach = 1.2 * epsilon + 2.0**-10
    loss = composed(profiles, epsilon, reach, first_points)
    while not loss.infinite.weighed(arb(1)) < NEGLIGIBLE * claim.delta and reach < 1e4:
        reach *= 1.25
        loss = composed(profiles, epsilon, reach, first_points)

    # Errors fall as the square of the step, so two bounds tell of the next: the error
    # that is left, and by how much more points would leave less than the slack.
    points = first_points
    factor = 2.0
    ratio = math.inf
    bound = loss.delta(epsilon)
    while points < MOST_POINTS and not bound <= arb(claim.delta):
        before = ratio
        ratio = float(bound.upper()) / claim.delta
        error = (before - ratio) / (factor**2 - 1)
        slack = 1 - (ratio - error)
        if slack <= -error / 2 and points >= TRUSTED * first_points:
            break
        factor = 2.0
        if 0 < slack < error < math.inf:
            factor = min(MOST_FACTOR, MARGIN * math.sqrt(error / slack))
        points = min(MOST_POINTS, math.ceil(points * factor))
        level = ((points - 1) // first_points).bit_length()
        loss = composed(claim.parts(level), epsilon, reach, points)
        bound = loss.delta(epsilon)
    return bound, points


@dataclass(frozen=True)
class Finding:
    """What a proof came to: ``proven``, or ``not proven`` and why."""

    outcome: str
    points: int  # of the largest lattice of a composed loss; 1 for a closed form
    seconds: float  # of processor time


def prove(
    history: Sequence[Rounds], relation: str, epsilon: float, delta: float
) -> Finding:
    """Whether releases together are (epsilon, delta)-private under a relation."""
    start = time.process_time()
    outcome = "proven"
    points = 0
    try:
        if not (0 <= epsilon < math.inf and LEAST_DELTA <= delta < 1):
            text = f"epsilon {epsilon:g} at delta {delta:g}"
            raise NotProvableError(f"{text} is out of range")
        with ctx.workprec(BITS):
            for direction in range(len(directions(history, relation, 0))):
                claim = Claim(history, relation, direction, epsilon, delta)
                bound, lattice_points = shown(claim)
                points = max(points, lattice_points)
                if not bound <= arb(delta):
                    times = float(bound.upper()) / delta
                    raise NotProvableError(f"delta {times:.7g} times as large")
    except NotProvableError as error:
        outcome = f"not proven: {error}"
    return Finding(outcome, points, time.process_time() - start)


# --- Plans. --------------------------------------------------------------------------


def releases_of(group: dict[str, Any], spec: dict[str, Any]) -> list[Rounds]:
    """What a client, record or person of a group has been part of at the end."""
    sampling = group.get("sampling") or spec["sampling"]
    law = LAW.fullmatch(sampling)
    turns = 1
    if law is not None and law[1] in IN_TURNS:  # one of so many rounds can count
        turns = int(law[2]) * int(law[3] or 1)
    if (clients := group.get("contributions", 1)) > 1:
        sampling += f" (up to {clients} clients of one person)"
    noise = group["noise_multiplier"]
    if group.get("steps"):
        count = group["steps"] * group["participations"]
        return [Rounds(noise, group["record_sampling_ratio"], sampling, count)]
    if not group.get("segments"):
        count = math.ceil(spec["rounds"] / turns)
        return [Rounds(noise, group["sampling_ratio"], sampling, count)]
    numbers = itemgetter("noise_multiplier", "sampling_ratio", "rounds")
    history = []
    for segment in group["segments"]:
        noise, ratio, count = numbers(segment)
        history.append(Rounds(noise, ratio, sampling, count))
    return history


def proofs(plan: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Finding]]:
    """Each guarantee in a plan's certificate, and whether it is proven."""
    groups = {group["name"]: group for group in plan["groups"]}
    for row in plan["certificate"]:
        if row["guarantee"]:
            history = releases_of(groups[row["group"]], plan["spec"])
            epsilon = float(row["epsilon_upper"])
            finding = prove(history, row["relation"], epsilon, row["delta"])
            if row["accountant"] not in OF_ONE_RUN:
                text = f"{row['accountant']} counts more than the releases of this run"
                finding = Finding(f"not proven: {text}", 0, 0.0)
            yield row, finding


def main(path: str) -> int:
    """Print what is proven of each group of a plan file; 0 where all is, else 5."""
    code = 0
    for row, finding in proofs(json.loads(Path(path).read_text())):
        if finding.outcome != "proven":
            code = 5
        claim = f"epsilon at most {row['epsilon_upper']!r} at delta {row['delta']!r}"
        law = f"{row['sampling']} sampling, {row['relation']}"
        cost = f"{finding.points} points, {finding.seconds:.2f} s"
        line = f"{row['group']}: {finding.outcome}: {claim}, {law} ({VERSION}, {cost})"
        sys.stdout.write(line + "\n")
    return code


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m privplan.proof plan.json")
    sys.exit(main(sys.argv[1]))
