"""Whether a guarantee holds: proofs in exact integers and balls, of upper bounds on epsilon.

``python -m privplan.proof plan.json`` says of each group *proven* or *not proven: reason*. It needs
the plan and python-flint, and shares no code with the accountants. ``docs/proof.md`` has the laws
that it can prove, and by these letters the theorems that it takes for granted.

A round is bounded by two distributions P, Q (A). Their profile is the hockey-stick divergence
h(x) = sup over events of P - x Q, at x = e^epsilon: convex, falling, at most 1. The losses
log(P/Q) of rounds add up (B), and delta(epsilon) = E_P[(1 - e^(epsilon - loss))+].

Lemma 1 (dots). Let v_i >= h(x_i) at 0 < x_0 < ... < x_n. Join (0, 1), the corners of the lower
convex hull of the points (x_i, v_i), and a level line from the last one. That is at least h, as
chords of a convex function are; convex and falling, it is the profile of a pair: under P it has at
the loss log x_i the mass x_i times the change of slope there, and v_n at infinity (C).

Lemma 2 (upwards). (m, inf) bounds a loss when the loss of some pair with a profile that is nowhere
smaller has at most m_i at each lattice point and at most inf at infinity. Then so it is
  where a mass grows: delta is a sum of masses times what is not negative;
  where mass moves to a higher loss, or to infinity: delta grows with each loss;
  and (m * m', inf + inf') bounds the sum of two independent losses.
So numbers are rounded upwards only: ``UpperMasses`` has no operation that makes one smaller.
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
from pathlib import Path
from typing import Any

from flint import arb, arb_poly, ctx, fmpz, fmpz_poly

VERSION = "proof 1"
BITS = 256  # of balls
SCALE = fmpz(1) << 160  # masses are whole multiples of 1 / SCALE
LEAST_DELTA = 2.0**-80  # far above the rounding of all masses together
LEVELS = 5  # lattices that are tried, each with twice the points
FIRST_ERROR = 2e-5  # of epsilon, that the first lattice costs about; each further one a quarter
DENSE = 128  # points of the first lattice on either side of 0 before they stand further apart
NEGLIGIBLE = 2.0**-24  # share of delta that losses above the window may have
MOST_POINTS = 1 << 18  # of a composed loss
RELATIONS = ("add_remove", "replace_one", "zero_out")
NORMAL = ("gaussian", "discrete_gaussian")  # families of noise (G)
WHOLE = ("discrete_laplace", "randomized_response")
PERSONS = ("full", "poisson", "min_separation", "banded_separation")  # may have several clients
POISSON = ("poisson", "cyclic_poisson")
ALLOCATED = ("random_allocation", "cyclic_allocation")
TURNS = (*PERSONS[2:], *ALLOCATED, "cyclic_poisson")  # a client counts in one of so many rounds
LAW = re.compile(r"([a-z_]+)(?::(\d+))?(?::(\d+))?(?: \(up to (\d+) (?:client|record)s of .*\))?")


class NotProvableError(Exception):
    """Why a guarantee is outside of what can be proven."""


# --- Numbers that are rounded upwards, and nothing else. -----------------------------------------


class UpperMasses:
    """Masses at neighbouring points of a lattice, each at least the true one.

    They are made from balls, added, multiplied and divided among points. There is no difference, no
    quotient and no conversion: what makes one smaller is a TypeError.
    """

    __slots__ = ("_units",)

    def __init__(self, balls: Iterable[arb]) -> None:
        self._units = fmpz_poly([self._above(ball) for ball in balls])

    @staticmethod
    def _above(ball: arb) -> fmpz:
        """The least whole number, 0 or more, of units that no point of the ball exceeds."""
        units = (ball.upper() * SCALE).ceil().unique_fmpz()
        if units is None:
            raise NotProvableError("a mass has no finite bound")
        return max(units, fmpz(0))

    @classmethod
    def _of(cls, units: fmpz_poly) -> "UpperMasses":
        made = cls(())
        made._units = units
        return made

    def __add__(self, other: "UpperMasses") -> "UpperMasses":
        return self._of(self._units + other._units)

    def __mul__(self, other: "UpperMasses") -> "UpperMasses":
        """Masses of sums, each rounded up: minus the floor of minus the exact one."""
        return self._of(-((-(self._units * other._units)) // SCALE))

    def first(self, count: int) -> "UpperMasses":
        """Those at the first so many points."""
        return self._of(self._units.truncate(count))

    def after(self, count: int) -> "UpperMasses":
        """Those at all other points, the next one first."""
        return self._of(self._units.right_shift(count))

    def total(self) -> "UpperMasses":
        """All of them at one point."""
        return self._of(fmpz_poly([self._units(1)]))

    def sums(self) -> tuple[list[int], list[int]]:
        """Sums of units, and of units times their places, at the first 0, 1, ... points."""
        units = [int(mass) for mass in self._units.coeffs()]
        moments = (place * mass for place, mass in enumerate(units))
        return list(accumulate(units, initial=0)), list(accumulate(moments, initial=0))

    def weighed(self, ratio: arb) -> arb:
        """The sum of masses times ratio^place, in a ball."""
        return arb(self._units(ratio)) / SCALE


@dataclass(frozen=True)
class UpperLoss:
    """Masses at the losses ``step * (lowest + place)`` and at infinity, as in Lemma 2."""

    step: float
    lowest: int
    masses: UpperMasses
    infinite: UpperMasses

    def within(self, lowest: int, highest: int) -> "UpperLoss":
        """Losses above the window count as infinite, losses below it move up to its lowest."""
        count, below = highest - self.lowest + 1, lowest - self.lowest
        kept, infinite = self.masses.first(count), self.infinite + self.masses.after(count).total()
        if below <= 0:
            return UpperLoss(self.step, self.lowest, kept, infinite)
        return UpperLoss(self.step, lowest, kept.first(below).total() + kept.after(below), infinite)

    def plus(self, other: "UpperLoss", lowest: int, highest: int) -> "UpperLoss":
        """The sum of two independent losses."""
        masses, infinite = self.masses * other.masses, self.infinite + other.infinite
        whole = UpperLoss(self.step, self.lowest + other.lowest, masses, infinite)
        return whole.within(lowest, highest)

    def times(self, count: int, lowest: int, highest: int) -> "UpperLoss":
        """The sum of so many independent losses like this one, by repeated squaring."""
        if count == 1:
            return self.within(lowest, highest)
        half = self.times(count // 2, lowest, highest)
        even = half.plus(half, lowest, highest)
        return even.plus(self, lowest, highest) if count % 2 else even

    def delta(self, epsilon: float) -> arb:
        """A ball whose upper end is at least delta: the sum over all losses above epsilon."""
        first = max(self.lowest, math.floor(Fraction(epsilon) / Fraction(self.step)) + 1)
        above, fall = self.masses.after(first - self.lowest), (-arb(self.step)).exp()
        start = (arb(epsilon) - first * arb(self.step)).exp()
        return (self.infinite + above.total()).weighed(arb(1)) - start * above.weighed(fall)


# --- Profiles: the divergence of one round at epsilon, as a ball whose upper end is no smaller. --

Profile = Callable[[arb], arb]
Both = tuple[Profile, Profile]  # of a client that is removed, and of one that is added


def beyond(place: arb) -> arb:
    """The chance that a standard normal draw exceeds the place."""
    return (place / arb(2).sqrt()).erfc() / 2


class Mixture:
    """P = sum_j p_j N(j s, 1) against Q = sum_j q_j N(-j s, 1).

    With u = e^(s y), P is x times as likely as Q at an outcome y where F(u) = u^n (sum_j p_j' u^j -
    x sum_j q_j' u^-j) is 0, p_j' = p_j e^(-(j s)^2 / 2), n the last j of Q. The ratio grows with y,
    so the best event is "above that y".
    """

    def __init__(self, shift: arb, p: Sequence[arb], q: Sequence[arb]) -> None:
        self.shift, self.p, self.q, self.start = shift, p, q, arb(1)
        damped = [(-((j * shift) ** 2) / 2).exp() for j in range(max(len(p), len(q)))]
        damped_p, damped_q = ([a * b for a, b in zip(one, damped, strict=False)] for one in (p, q))
        self.rising = arb_poly([arb(0)] * (len(q) - 1) + damped_p)
        self.falling = arb_poly(damped_q[::-1])

    def place(self, x: arb) -> arb:
        """A ball around the y where the ratio is x, for an x that is reached.

        By Newton's steps; that the root is in the ball is then seen from the signs at its ends.
        """
        function, u = self.rising - x * self.falling, self.start
        derivative = function.derivative()
        for _ in range(300):
            before, slope = u, derivative(u)
            u = (u - function(u) / slope).mid() if slope > 0 else 2 * before
            if abs(u - before) < u * arb(2) ** (40 - BITS):
                break
        self.start = u  # near the next one
        low, high = (u * (1 + sign * arb(2) ** (60 - BITS)) for sign in (-1, 1))
        if not function(low) < 0 < function(high):
            raise NotProvableError("a likelihood ratio was not inverted")
        return low.union(high).log() / self.shift

    def profile(self, epsilon: arb) -> arb:
        """Its value at epsilon."""
        x = epsilon.exp()
        if len(self.q) == 1 and x <= self.p[0]:  # the ratio is above x everywhere
            return 1 - x
        if len(self.p) == 1 and x * self.q[0] >= 1:  # and here below
            return arb(0)
        place, value = self.place(x), arb(0)
        for j, chance in enumerate(self.p):
            value += chance * beyond(place - j * self.shift)
        for j, chance in enumerate(self.q):
            value -= chance * x * beyond(place + j * self.shift)
        return value


def removal(shift: arb, ratio: arb, clients: int = 1) -> Both:
    """Of a client, or a person with several, each drawn with the ratio (D)."""
    others = range(clients, -1, -1)
    drawn = [math.comb(clients, j) * ratio ** (clients - j) * (1 - ratio) ** j for j in others]
    return Mixture(shift, drawn, [arb(1)]).profile, Mixture(shift, [arb(1)], drawn).profile


def laplace(bound: arb) -> Profile:
    """Laplace noise of scale 1 / bound on a count that moves by 1."""
    return lambda e: (1 - ((e - bound) / 2).exp()).max(1 - e.exp()).max(arb(0))


def discrete_laplace(bound: arb, moved: int) -> Profile:
    """Whole noise k with chances in proportion to e^(-bound |k|), on a count that moves so far."""
    fall = (-bound).exp()
    inner = [fall**k * (1 - fall) for k in range(1, moved)]
    chances = [chance / (1 + fall) for chance in (arb(1), *inner, fall**moved)]  # from 0 or less
    atoms = list(zip(chances, chances[::-1], strict=True))
    return lambda e: sum(((p - e.exp() * q).max(arb(0)) for p, q in atoms), arb(0))


class Allocation:
    """One of t rounds, chosen by the client: the mixture of N(e_i, sigma^2) against N(0, sigma^2).

    Under Q the ratio is R = S / t, S a sum of t independent Y = e^(Z/sigma - 1/(2 sigma^2)) (E).
    With put(x) = E[(x - R)+] and E[R] = 1 the profiles are put(x) + 1 - x and x put(1/x). As a
    function of one Y a put is convex and falling. So it grows where Y has the law whose own puts
    are joined at lattice points, as in Lemma 1 (convex order), and where Y above the last one moves
    to 0; and it is 0 where S > t x, so that only Y and sums up to there count. Each octave of x
    has a lattice of its own, on which R has steps of a power of 2.
    """

    def __init__(self, sigma: arb, rounds: int, level: int) -> None:
        self.sigma, self.rounds, self.bits = sigma, rounds, 7 + rounds.bit_length() + level
        self.of_one, self.sums = lru_cache(None)(self._of_one), lru_cache(None)(self._sums)

    def _of_one(self, whole: int, exponent: int) -> tuple[arb, arb]:
        """E[(y - Y)+] and P(Y < y) at y = whole * 2^exponent."""
        y, half = arb(whole) * arb(2) ** exponent, 1 / (2 * self.sigma)
        below = beyond(-y.log() * self.sigma - half)
        return y * below - beyond(half - y.log() * self.sigma), below

    def _step(self, octave: int) -> int:
        """The exponent of the step of R for x up to 2^octave; coarser far from x = 1."""
        return octave - self.bits + min(abs(octave), self.bits // 4)

    def _sums(self, octave: int) -> tuple[list[int], list[int]]:
        """Sums of the masses of R at multiples of its step, and of their places."""
        step, places, values, below = self._step(octave), [0], [arb(0)], arb(0)
        last = 1 << (octave - step)
        while places[-1] < last and not 1 - below < arb(2) ** -200:
            places.append(places[-1] + (1 << max(0, places[-1].bit_length() - 10)))
            twos = (places[-1] & -places[-1]).bit_length() - 1  # octaves share most y
            value, below = self.of_one(self.rounds * (places[-1] >> twos), step + twos)
            values.append(value)
        slopes, balls = [arb(0)], [arb(0)] * (places[-1] + 1)
        for (low, high), (left, right) in zip(pairwise(values), pairwise(places), strict=True):
            slopes.append((high - low) / ((right - left) * self.rounds * arb(2) ** step))
        for place, (before, after) in zip(places, pairwise([*slopes, below]), strict=True):
            balls[place] = after - before
        balls[0] += 1 - below if places[-1] < last else 0
        one = UpperLoss(1.0, 0, UpperMasses(balls), UpperMasses(()))
        return one.times(self.rounds, 0, last).masses.sums()

    def put(self, x: arb) -> arb:
        """Not less than E[(x - R)+]: at the upper end of x, as it grows with x."""
        strike = x.upper()
        octave = math.frexp(float(strike))[1]
        if not strike <= arb(2) ** octave:
            raise NotProvableError("a strike is outside of its octave")
        step, (masses, moments) = arb(2) ** self._step(octave), self.sums(octave)
        count = min(int((strike / step).ceil().unique_fmpz()), len(masses) - 1)
        return (strike * masses[count] - step * moments[count]) / SCALE

    def profiles(self) -> Both:
        """Of both directions."""
        return lambda e: self.put(e.exp()) + 1 - e.exp(), lambda e: e.exp() * self.put((-e).exp())


# --- What was released, and its profiles. --------------------------------------------------------


@dataclass(frozen=True)
class Rounds:
    """So many equal releases: noise over the clipping norm, and how a client comes to take part."""

    noise_multiplier: float
    sampling_ratio: float
    sampling: str
    count: int
    family: str = NORMAL[0]


def profiles_of(one: Rounds, relation: str, level: int) -> arb | Both:
    """The shift of a Gaussian release, or the profiles in both directions (D, E, F).

    Raises:
        NotProvableError: for a law, a relation or a noise without a pair here.
    """
    law, every, replaced = (
        LAW.fullmatch(one.sampling),
        one.sampling_ratio == 1,
        relation == RELATIONS[1],
    )
    name, clients = ("", 1) if law is None else (law[1], int(law[4] or 1))
    shift, ratio, moved = 1 / arb(one.noise_multiplier), arb(one.sampling_ratio), 1 + replaced
    covered = relation in RELATIONS and (clients == 1 or name in PERSONS)
    normal, bound = covered and one.family in NORMAL, arb(2).sqrt() * shift
    if covered and every and name == "full" and clients == 1 and one.family == "laplace":
        return (laplace(bound * moved),) * 2
    if covered and every and name == "full" and clients == 1 and one.family in WHOLE:
        return (discrete_laplace(bound, moved if one.family == WHOLE[0] else 1),) * 2
    if normal and every and name in (*PERSONS, *POISSON):
        return shift * clients * moved
    if normal and every and name == "fixed_size":
        return shift if relation == "zero_out" else 2 * shift
    if normal and every and name in ALLOCATED:
        if replaced or one.noise_multiplier < 0.25:  # as if the round were known
            return shift * moved
        return Allocation(arb(one.noise_multiplier), int(law[3] or law[2]), level).profiles()
    if normal and name in POISSON and not replaced:
        return removal(shift, ratio, clients)
    if normal and name in POISSON and clients == 1:
        return (Mixture(shift, [1 - ratio, ratio], [1 - ratio, ratio]).profile,) * 2
    remove, add = removal(2 * shift, ratio)
    if normal and name == "fixed_size" and relation == "add_remove":
        return remove, add
    if normal and name == "fixed_size":
        return (lambda e: add(e) if e < 0 else remove(e),) * 2
    if normal and name == "capped_poisson" and relation == "add_remove":
        (alone, joined), rare = removal(shift, ratio), 1 / arb(law[2])
        rare *= not every  # nobody is cut where the cap is everybody
        return (
            lambda e: (1 - rare) * alone(e) + rare * remove(e),
            lambda e: (1 - rare) * joined(e) + rare * add(e),
        )
    raise NotProvableError(f"no pair for {one.family} noise, {one.sampling} sampling, {relation}")


# --- The proof. ----------------------------------------------------------------------------------

Parts = list[tuple[Profile, int]]  # profiles of one direction, and how many rounds have each


def spread(end: int, dense: int) -> list[int]:
    """Whole numbers from 0 to the end, 1 or 1 / ``dense`` of themselves apart."""
    places = [0]
    while places[-1] < end:
        places.append(min(end, places[-1] + max(1, places[-1] // dense)))
    return places


def connected(profile: Profile, step: float, lowest: int, highest: int, dense: int) -> UpperLoss:
    """One round by Lemma 1."""
    places = [-place for place in spread(-lowest, dense)[:0:-1]] + spread(highest, dense)
    corners = [(-math.inf, arb(0), arb(1), arb(-2))]  # place, x, value, slope up to there
    for place in places:
        x, value = (arb(step) * place).exp(), profile(arb(step) * place)
        while True:
            slope = (value - corners[-1][2]) / (x - corners[-1][1])
            if not slope < corners[-1][3]:
                break
            corners.pop()
        corners.append((place, x, value, slope))
    balls = [arb(0)] * (highest - lowest + 1)
    for (place, x, _, before), (*_, after) in pairwise([*corners[1:], (arb(0),)]):
        balls[place - lowest] = x * (after - before)
    return UpperLoss(step, lowest, UpperMasses(balls), UpperMasses([corners[-1][2]]))


def composed(parts: Parts, step: float, lowest: float, highest: float, dense: int) -> UpperLoss:
    """All rounds of one direction, with losses within a window."""
    ends = math.floor(lowest / step), math.ceil(highest / step)
    total = UpperLoss(step, 0, UpperMasses([arb(1)]), UpperMasses(()))
    for profile, count in parts:
        total = total.plus(connected(profile, step, *ends, dense).times(count, *ends), *ends)
    return total


def delta_of(parts: Parts, epsilon: float, delta: float, level: int) -> tuple[arb, int, float]:
    """Delta of one direction, the number of points, and how log delta falls with epsilon there.

    What is tried rests on this: a lattice of step s adds s^2 / 6 at most to the variance of a
    round, and (1 + tilt) / 2 times that to epsilon. What is proven does not.
    """
    if not parts or (len(parts) == 1 and parts[0][1] == 1):
        return (parts[0][0](arb(epsilon)) if parts else arb(0)), 1, 1.0
    reach, rounds = 1.2 * epsilon or 2.0**-10, sum(count for _, count in parts)
    rough = max(256, 16 * math.isqrt(rounds))
    while True:  # until next to none of the losses on a rough lattice are above
        loss = composed(parts, reach / rough, epsilon - reach, reach, 32)
        if loss.infinite.weighed(arb(1)) < NEGLIGIBLE * delta or reach > 1e4 * (1 + epsilon):
            break
        reach *= 1.25
    near, further = (loss.delta(epsilon + more * reach / 64) for more in (0, 1))
    if near <= arb(delta):
        return near, rough, 1.0
    tilt = max(float((near / (further + near / 1000)).log().mid()), 1e-6) * 64 / reach
    step = math.sqrt(12 * FIRST_ERROR * epsilon / rounds / (1 + tilt)) / 2**level or reach
    step = max(min(step, reach / (512 << level)), 2 * reach / MOST_POINTS)
    loss = composed(parts, step, epsilon - reach, reach, DENSE << level)
    return loss.delta(epsilon), math.ceil((2 * reach - epsilon) / step), tilt


def directions(history: Sequence[Rounds], relation: str, level: int) -> list[Parts]:
    """The profiles of each direction; all Gaussian rounds together are one (B)."""
    squares, ways = arb(0), ([], [])
    for one in history:
        if one.count == 0 or one.sampling_ratio == 0 or one.noise_multiplier == math.inf:
            continue
        if not one.noise_multiplier > 0:
            raise NotProvableError("a release without noise")
        found = profiles_of(one, relation, level)
        if isinstance(found, arb):
            squares += one.count * found**2
            continue
        for way, profile in zip(ways, found, strict=True):
            way.append((profile, one.count))
    for way in ways if squares > 0 else ():
        way.append((removal(squares.sqrt(), arb(1))[0], 1))
    return [ways[0]] if ways[0] == ways[1] else [*ways]


@dataclass(frozen=True)
class Finding:
    """What a proof found: ``proven``, or ``not proven`` and why."""

    outcome: str
    points: int  # of the largest lattice of a composed loss; 1 for a closed form
    seconds: float  # of processor time


def prove(history: Sequence[Rounds], relation: str, epsilon: float, delta: float) -> Finding:
    """Whether releases together are (epsilon, delta)-private under a relation."""
    begun, points, reason, last = time.process_time(), 0, "", (-1, 0.0)
    with ctx.workprec(BITS):
        try:
            if not (0 <= epsilon < math.inf and LEAST_DELTA <= delta < 1):
                raise NotProvableError(f"epsilon {epsilon:g} at delta {delta:g} is out of range")
            for level in range(LEVELS):
                way = -1
                for parts in directions(history, relation, level):
                    way += 1
                    found, size, tilt = delta_of(parts, epsilon, delta, level)
                    points = max(points, size)
                    if not found <= arb(delta):
                        break
                else:
                    return Finding("proven", points, time.process_time() - begun)
                over = float(found.upper()) / delta
                reason = (
                    f"delta {over:.7g} times as large, epsilon {math.log(over) / tilt:.2g} more"
                )
                if way == last[0] and over - (last[1] - over) / 2 > 1:
                    break  # finer lattices would still miss
                last = way, over
        except NotProvableError as error:
            reason = str(error)
    return Finding(f"not proven: {reason}", points, time.process_time() - begun)


def of_plan(plan: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[Rounds]]]:
    """The row of each group's guarantee in a plan's certificate, and the group's releases."""
    spec = plan["spec"]
    rows = {row["group"]: row for row in plan["certificate"] if row["guarantee"]}
    for group in plan["groups"]:
        name, clients = group.get("sampling") or spec["sampling"], group.get("contributions", 1)
        law, noise, turns = LAW.fullmatch(name), group["noise_multiplier"], 1
        if law is not None and law[1] in TURNS:
            turns = int(law[2]) * int(law[3] or 1)
        each = [(noise, group["sampling_ratio"], -(-spec["rounds"] // turns))]
        if group.get("steps"):
            count = group["steps"] * group["participations"]
            each = [(noise, group["record_sampling_ratio"], count)]
        if group.get("segments"):
            keys = ("noise_multiplier", "sampling_ratio", "rounds")
            each = [tuple(segment[key] for key in keys) for segment in group["segments"]]
        name += f" (up to {clients} clients of one person)" * (clients > 1)
        yield rows[group["name"]], [Rounds(sigma, q, name, count) for sigma, q, count in each]


def main(path: str) -> int:
    """Print what is proven of each group of a plan file; 0 where all is, else 5."""
    code = 0
    for row, history in of_plan(json.loads(Path(path).read_text())):
        epsilon, delta = float(row["epsilon_upper"]), row["delta"]
        found = prove(history, row["relation"], epsilon, delta)
        code = code if found.outcome == "proven" else 5
        claim = (
            f"epsilon at most {epsilon!r} at delta {delta!r}, {row['sampling']}, {row['relation']}"
        )
        print(f"{row['group']}: {found.outcome}: {claim} ({found.points} points, {VERSION})")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else f"usage: {sys.argv[0]} plan.json")
