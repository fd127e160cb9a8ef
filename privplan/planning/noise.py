"""Noise multipliers of groups: calibrated to each group's budget, certified, and as curves.

``least_noise`` finds the noise multiplier of a plan, by the accountant itself; ``NoiseCurves``
says for a search about which one that is at any sampling ratio.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import Accountant, at_most
from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.calibrate import (
    LEAST_RATIO,
    NOISE_RANGE,
    PLD,
    least_certified,
    noise_multiplier,
    noise_multiplier_by_bisection,
)
from privplan.accounting.certificate import CertificateRow, certify
from privplan.accounting.families import dominating_pairs
from privplan.accounting.gdp import mu_of
from privplan.accounting.pld.accountant import PldAccountant, Reading, compose
from privplan.accounting.pld.inversion import estimate
from privplan.accounting.pld.pairs import LARGEST_SHIFT
from privplan.accounting.release import (
    History,
    Relation,
    Release,
    SamplingLaw,
    named_law,
)
from privplan.errors import InfeasibleError, InputError, TooLittleNoiseError
from privplan.laws.law import Kind, Pair
from privplan.planning.problem import Limits, Problem

Floats = NDArray[np.float64]

GUARANTEE = PLD
FAST_ACCOUNTANTS = ("pld", "rdp")
CERTIFICATE_ACCOUNTANTS = (
    "pld",
    "rdp",
    "prv",
)  # with prv-accountant, which is slow to import
FROM_LOSSES = (
    "pld",
    "prv",
)  # of the composed privacy loss, whose epsilon has a quick estimate

# --- The noise multiplier that spends a budget, by an estimate of epsilon. -----------------------

_CLOSE = 2e-3  # a smaller Newton step ends the search: the slope is known within some percent
_CLOSE_COARSE = 5e-3
_CLOSE_EXACT = 5e-5
_READING_REACH = (
    0.15  # distance of log epsilon from the budget at which a plan serves again
)
_MOST_STEPS = 40
_SPARE = 1e-6  # share of delta not counted on to cover taking part, since losses are rounded up


@dataclass(frozen=True)
class Budget:
    """What the noise multiplier of a group depends on, beside its sampling ratio."""

    epsilon: float
    delta: float
    rounds: int
    sampling: SamplingLaw
    relation: Relation

    @property
    def chances(self) -> int:
        """How often a person can be drawn."""
        return self.rounds * self.sampling.law.contributions

    @property
    def sensitivity(self) -> float:
        """Distance of neighbouring sums in clipping norms."""
        return float(self.sampling.law.sensitivity(self.relation))

    @property
    def least(self) -> float:
        """Log of the least noise multiplier that is certified under sampling."""
        return math.log(least_certified(self.sampling, self.relation))

    @property
    def loss(self) -> float:
        """mu^2 / T in the central limit, which sigma(q) of small losses depends on."""
        return _mu(self.epsilon, self.delta) ** 2 / self.rounds

    def history(self, ratio: float, noise: float) -> History:
        """Releases in which a client takes part."""
        return History.repeated(
            Release(float(noise), float(ratio), self.sampling), self.rounds
        )

    @property
    def swap(self) -> bool:
        """Whether the pair of a round is of two mixtures, and not of one with its base."""
        return _swap(self.sampling, self.relation)

    def central(self, ratio: float) -> float:
        """Log sigma at which the central limit of sampled rounds meets the budget."""
        x = np.array([[self.loss / ratio**2]])
        return float(_central(x, self.sensitivity, self.swap)[0][0, 0])

    def steepness(self, log_noise: float) -> float:
        """-d log mu / d log sigma in the central limit under sampling."""
        x = min((self.sensitivity / math.exp(log_noise)) ** 2, 700.0)
        return x / 4 / math.tanh(x / 4) if self.swap else x / -math.expm1(-x)


@lru_cache(maxsize=64)
def _swap(sampling: SamplingLaw, relation: Relation) -> bool:
    if sampling.law.everyone or sampling.law.contributions > 1:
        return False
    pair = dominating_pairs(Release(1.0, 0.5, sampling), relation).upper[0]
    return isinstance(pair, Pair) and pair.kind == Kind.SWAP


def _central(
    x: Floats, sensitivity: float | Floats, swap: bool
) -> tuple[Floats, Floats]:
    """Log sigma with mu^2 / (q^2 T) = x in the central limit, and its slope in log q.

    The variance of the loss of a round is q^2 (exp(s^2 / sigma^2) - 1) for a mixture against its
    base, and 4 q^2 sinh(1 / sigma^2) for two mixtures whose centres are 2 apart.
    """
    square = np.arcsinh(x / 4) if swap else np.log1p(x) / sensitivity**2
    change = x / 4 / np.sqrt(1 + (x / 4) ** 2) if swap else x / (1 + x) / sensitivity**2
    return -0.5 * np.log(square), change / square


@lru_cache(maxsize=1024)
def _mu(epsilon: float, delta: float) -> float:
    return mu_of(epsilon, delta)


def budget_of(problem: Problem, group: int) -> Budget:
    """The budget of a group with all that its noise depends on."""
    return Budget(
        problem.epsilons[group],
        problem.deltas[group],
        problem.rounds_of(group),
        problem.laws[group] if problem.laws else problem.sampling,
        problem.relation,
    )


def covered_ratio(delta: float, rounds: int) -> float:
    """Largest ratio at which a client ever takes part with chance delta: any noise does there."""
    return -math.expm1(math.log1p(-delta * (1 - _SPARE)) / rounds)


def root(
    budget: Budget,
    ratio: float,
    accountant: str = GUARANTEE,
    start: float | None = None,
    slope: float | None = None,
    close: float = _CLOSE,
) -> tuple[float, float]:
    """Log sigma where a budget is spent, or an end of its range, and -d log epsilon by it."""
    least, most = budget.least, math.log(NOISE_RANGE[1])
    x = min(max(budget.central(ratio) if start is None else start, least), most)
    too_little, enough = -math.inf, math.inf
    measured, used = slope is not None, slope or budget.steepness(x)
    before: tuple[float, float] | None = None
    reading: Reading | None = None
    for _ in range(_MOST_STEPS):
        gap, reading = _gap(budget, ratio, x, accountant, reading)
        if (x == least and gap <= 0) or (x == most and gap > 0):
            break
        too_little, enough = (x, enough) if gap > 0 else (too_little, x)
        if not math.isfinite(gap):
            following = x + math.copysign(0.7, gap)
        else:
            if before is not None and abs(x - before[0]) > 1e-5:
                measured, used = True, max((before[1] - gap) / (x - before[0]), 1.0)
            following = x + gap / used
            reading = reading if abs(gap) < _READING_REACH else None
            if abs(following - x) <= (close if measured else _CLOSE_EXACT):
                return min(max(following, least), most), used
            before = x, gap
        following = min(max(following, least), most)
        if not too_little < following < enough:
            following = (too_little + enough) / 2
        if enough - too_little < 1e-4:
            return enough, used
        x = following
    return x, used


def _gap(
    budget: Budget,
    ratio: float,
    log_noise: float,
    accountant: str,
    reading: Reading | None,
) -> tuple[float, Reading | None]:
    """Log of the epsilon spent over the budget, by a quick estimate, else by composition."""
    history = budget.history(ratio, math.exp(log_noise))
    try:
        if accountant not in FROM_LOSSES:
            spent = (
                by_name(accountant)
                .epsilon(history, budget.delta, budget.relation)
                .upper
            )
        elif (
            reading is None and (quick := _quick_estimate(budget, history)) is not None
        ):
            spent = quick
        else:
            composed = compose(history, budget.relation)
            spent, reading = composed.estimate(budget.delta, reading)
    except TooLittleNoiseError:
        return math.inf, reading
    if spent <= 0:
        return -math.inf, reading
    return math.log(spent / budget.epsilon) if math.isfinite(
        spent
    ) else math.inf, reading


def _quick_estimate(budget: Budget, history: History) -> float | None:
    """Epsilon of equal sampled rounds, ten times as fast; None where that does not serve."""
    pair = dominating_pairs(next(iter(history))[0], budget.relation).upper[0]
    if not isinstance(pair, Pair) or pair.ratio >= 1:
        return None
    if pair.shift > LARGEST_SHIFT:
        return math.inf
    return estimate(pair, budget.rounds, budget.delta, budget.epsilon)


# --- The least noise multiplier that keeps a budget, by the accountant itself. -------------------

_upper_only: ContextVar[bool] = ContextVar("upper_only", default=False)


@contextmanager
def upper_bounds_only() -> Iterator[None]:
    """Certify plans within the block without lower bounds, which a table does not show."""
    token = _upper_only.set(True)
    try:
        yield
    finally:
        _upper_only.reset(token)


def guarantee(epsilon: float) -> Accountant:
    """The accountant of the guarantee of a budget."""
    if _upper_only.get():
        return cast(Accountant, PldAccountant(decide=epsilon))
    return by_name(GUARANTEE)


_RTOL = 1e-4  # how far below its budget epsilon may be
_AIM = 0.95  # part of that by which an estimate is aimed below; bounds are 2e-5 to 5e-5 above it
_TRIES = 4


def least_noise(
    problem: Problem,
    group: int,
    ratio: float,
    accountant: str = GUARANTEE,
    near: float | None = None,
    rtol: float = _RTOL,
) -> float:
    """The smallest noise multiplier that keeps a group's budget, rounded up to ten digits.

    Or the group's fixed noise multiplier, where it has one. The accountant's upper bound keeps the
    budget and is within ``rtol`` of it. Since epsilon falls at least as fast as 1 / sigma, sigma
    is as close to the smallest. ``near`` is a first guess.
    """
    if problem.fixed_noise and (fixed := problem.fixed_noise[group]) is not None:
        return fixed
    name, ratio, budget = problem.names[group], float(ratio), budget_of(problem, group)
    if ratio < LEAST_RATIO and len(problem.names) > 1:
        least, most = min(problem.epsilons), max(problem.epsilons)
        raise InfeasibleError(
            f"groups.{name}.epsilon: {budget.epsilon:g} among budgets from {least:g} to {most:g} "
            f"leaves the group a sampling ratio of {ratio:.3g}, below the least of "
            f"{LEAST_RATIO:g}; bring the budgets closer together"
        )
    published = problem.calibration == "published" and accountant != GUARANTEE
    if (
        accountant == GUARANTEE
        and (found := _by_estimate(budget, ratio, near, rtol)) is not None
    ):
        return found
    try:
        known: dict[str, Any] = {
            "epsilon": budget.epsilon, "delta": budget.delta,
            "sampling_ratio": ratio, "rounds": budget.rounds, "accountant": accountant,
        }  # fmt: skip
        if published:
            noise = noise_multiplier_by_bisection(**known)
        else:
            law: dict[str, Any] = {
                "sampling": budget.sampling,
                "relation": budget.relation,
            }
            noise = noise_multiplier(**known, **law, near=near)
    except InfeasibleError as error:
        spent = _spent(budget, ratio, NOISE_RANGE[1], accountant)
        nearest = f"the nearest feasible epsilon is {at_most(math.nextafter(spent, math.inf))}"
        raise InfeasibleError(f"groups.{name}.epsilon: {error}; {nearest}") from None
    except InputError as error:
        raise InfeasibleError(f"groups.{name}: {error}") from None
    return rounded_up(noise)


def _by_estimate(
    budget: Budget, ratio: float, near: float | None, rtol: float
) -> float | None:
    """The least noise by ``pld``, from the root of the estimate; None where that does not serve."""
    if ratio <= covered_ratio(budget.delta, budget.chances):
        noise = rounded_up(least_certified(budget.sampling, budget.relation))
        return noise if _spent(budget, ratio, noise) <= budget.epsilon else None
    start = None if near is None else math.log(near)
    sampled = ratio < 1  # bounds of full participation are exact
    log_noise, slope = root(
        budget, ratio, start=start, close=_CLOSE_EXACT if sampled else 1e-8
    )
    aim = _AIM * rtol if sampled else 1e-7
    noise, before = rounded_up(math.exp(log_noise + aim / slope)), None
    for _ in range(_TRIES):
        if not math.exp(budget.least) < noise < NOISE_RANGE[1]:
            return None
        spent = _spent(budget, ratio, noise)
        if not 0 < spent < math.inf:
            return None
        gap = math.log(spent / budget.epsilon)
        if -rtol <= gap <= 0:
            return noise
        here = math.log(noise), gap
        if before is not None and abs(here[0] - before[0]) > 1e-6:
            slope = max((before[1] - here[1]) / (here[0] - before[0]), 1.0)
        before = here
        noise = rounded_up(math.exp(here[0] + (gap + rtol / 2) / slope))
    return None


def _spent(
    budget: Budget, ratio: float, noise: float, accountant: str = GUARANTEE
) -> float:
    chosen = (
        guarantee(budget.epsilon) if accountant == GUARANTEE else by_name(accountant)
    )
    history = budget.history(ratio, noise)
    return chosen.epsilon(history, budget.delta, budget.relation).upper


def rounded_up(noise: float) -> float:
    """The noise multiplier rounded up to ten digits, which a ledger's products keep exactly."""
    unit = 10.0 ** (math.floor(math.log10(noise)) - 9)
    return float(f"{math.ceil(noise / unit) * unit:.10g}")


def calibrated(problem: Problem, ratios: Floats, accountant: str) -> Floats:
    """``least_noise`` of all groups, shape (groups,)."""
    return np.array(
        [least_noise(problem, m, ratio, accountant) for m, ratio in enumerate(ratios)]
    )


# --- The certificate of noise multipliers. -------------------------------------------------------


@dataclass(frozen=True)
class CertifiedNoise:
    """Noise multipliers that keep every budget according to the guarantee's accountant."""

    noise: Floats  # sigma_m, shape (groups,)
    certificate: tuple[
        CertificateRow, ...
    ]  # rows of every accountant, in order of the groups
    warnings: tuple[
        str, ...
    ]  # one for each group whose calibrated noise multiplier was raised


def certify_noise(
    problem: Problem,
    ratios: Floats,
    noise: Floats,
    accountant: str,
    certificate_accountants: tuple[str, ...] = CERTIFICATE_ACCOUNTANTS,
) -> CertifiedNoise:
    """Noise multipliers with their certificate, raised where the guarantee is overspent."""

    def certified(group: int) -> tuple[Sequence[CertificateRow], float]:
        """The rows of a group, and the epsilon that its guarantee certifies."""
        found = certify(
            history_of(problem, group, ratios[group], noise[group]),
            group=problem.names[group],
            delta=problem.deltas[group],
            relation=problem.relation,
            accountants=(
                guarantee(problem.epsilons[group]),
                *(name for name in certificate_accountants if name != GUARANTEE),
            ),
            unit=problem.unit,
        )
        return found, max(
            (row.epsilon_upper for row in found if row.guarantee), default=math.inf
        )

    noise = np.array(noise, dtype=float)
    rows: list[CertificateRow] = []
    warnings: list[str] = []
    for group, (name, epsilon) in enumerate(
        zip(problem.names, problem.epsilons, strict=True)
    ):
        law = named_law(budget_of(problem, group).sampling, problem.unit)
        cell = f"(delta {problem.deltas[group]:.3g}, {law}, {problem.relation})"
        found, spent = certified(group)
        if spent > epsilon:
            raised = max(least_noise(problem, group, ratios[group]), noise[group])
            warnings.append(
                f"groups.{name}: the noise of accountant {accountant} ({noise[group]:.5g}) would "
                f"spend epsilon {at_most(spent, 6)} of {epsilon:g} by {GUARANTEE} {cell}; raised "
                f"to {raised:.5g} by {GUARANTEE}"
            )
            noise[group] = raised
            found, spent = certified(group)
            if spent > epsilon:
                raise InfeasibleError(
                    f"groups.{name}.epsilon: {epsilon:g} is overspent: {GUARANTEE} certifies only "
                    f"{at_most(spent, 6)} {cell}"
                )
        rows += found
    return CertifiedNoise(noise, tuple(rows), tuple(warnings))


def single_group(problem: Problem, group: int) -> Problem:
    """The problem of one group, without what its calibration does not depend on."""
    return replace(
        problem, names=(problem.names[group],), clients=(1,), epsilons=(problem.epsilons[group],),
        deltas=(problem.deltas[group],), cohort=1.0, clipping_norm=1.0, dimension=1, fixed_noise=(),
        laws=problem.laws[group : group + 1],
        rounds=problem.rounds_of(group), rounds_by_group=(),
    )  # fmt: skip


def history_of(problem: Problem, group: int, ratio: float, noise: float) -> History:
    """Releases in which a client of a group takes part."""
    return budget_of(problem, group).history(ratio, noise)


# --- Noise multipliers as functions of the sampling ratio. ---------------------------------------
# log sigma exceeds its central limit by a smooth function of log q. The polynomial through few
# roots of the estimate gives it within some percent, which shows where an optimum lies; a parabola
# of what is missing at three more roots around the ratio found there gives it within some 1e-5.

_MANY, _APART = (
    60,
    0.15,
)  # groups from which they share coarse curves, so far apart in log epsilon
_LEAST_NODES = 3  # number of roots of a curve, beside one for each unit of log q
_RARE = 0.1  # ratios below this part of the usual one count as the smallest ones above
_GRAIN = math.log(
    2.0
)  # ends of curves are multiples of it in log q: similar cohorts share them
_AROUND, _CLOSE_AROUND = 0.35, 0.1
"""How far a parabola reaches to either side in log q; beyond it is constant."""
_NEXT = 0.02  # centres of parabolas are multiples of it in log q: points of a sweep share them


@dataclass(frozen=True)
class NoiseCurve:
    """sigma(q) of one group; constant where it has no width."""

    budget: Budget  # what the curve meets
    accountant: str  # the accountant that says so
    low: float
    high: float
    # of the excess over the central limit on [low, high] as [-1, 1], lowest power first; of log
    # sigma itself for a constant
    polynomial: tuple[float, ...]
    centre: float = 0.0  # log q in the middle of the parabola that is added
    # coefficients on the reach to either side as [-1, 1], lowest power first
    parabola: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def reach(self) -> float:
        """How far the parabola reaches; bounds by moments have kinks."""
        return _AROUND if self.accountant in FROM_LOSSES else _CLOSE_AROUND

    def refined(self, ratio: float) -> NoiseCurve:
        """The curve with its parabola around a ratio, or within ``_NEXT`` of it."""
        if self.low == self.high:
            return self
        centre = min(round(math.log(ratio) / _NEXT) * _NEXT, self.high - self.reach)
        return _refined(replace(self, centre=0.0, parabola=(0.0, 0.0, 0.0)), centre)


@lru_cache(maxsize=4096)
def _refined(coarse: NoiseCurve, centre: float) -> NoiseCurve:
    """The curve with its parabola around a place in log q."""
    missing: list[float] = []
    slope: float | None = None
    for place in (centre, centre - coarse.reach, centre + coarse.reach):
        ratio = math.exp(place)
        expected = math.log(NoiseCurves([coarse]).at(np.array([ratio]))[0][0])
        start = expected + (missing[0] if missing else 0.0)
        found, slope = root(coarse.budget, ratio, coarse.accountant, start, slope)
        missing.append(found - expected)
    here, below, above = missing
    parabola = here, (above - below) / 2, (above + below) / 2 - here
    return replace(coarse, centre=centre, parabola=parabola)


class NoiseCurves:
    """The curves of all groups, evaluated in one pass."""

    def __init__(self, curves: Sequence[NoiseCurve]) -> None:
        self.curves = tuple(curves)
        low, high, self._centre, self._loss = np.array(
            [[one.low, one.high, one.centre, one.budget.loss] for one in curves]
        ).T[:, :, None]
        self._varying = high > low
        self._middle, self._width = (
            (low + high) / 2,
            np.where(self._varying, (high - low) / 2, 1.0),
        )
        self._polynomial = np.zeros(
            (max(len(one.polynomial) for one in curves), len(curves), 1)
        )
        for m, one in enumerate(curves):
            self._polynomial[: len(one.polynomial), m, 0] = one.polynomial
        self._reach = np.array([one.reach for one in curves])[:, None]
        self._parabola = np.array([one.parabola for one in curves]).T[:, :, None]
        distance = np.array([[one.budget.sensitivity] for one in curves])
        self._pair = distance, curves[0].budget.swap
        self._least = np.array([[one.budget.least] for one in curves])

    def at(self, ratios: Floats) -> tuple[Floats, Floats]:
        """sigma(q) and d log sigma / d log q, for one or more ratios of each group."""
        if ratios.ndim == 1:
            noise, slopes = self.at(ratios[:, None])
            return noise[:, 0], slopes[:, 0]
        place = np.log(ratios)
        value, slope = _central(self._loss / ratios**2, *self._pair)
        for coefficients, centre, width in (
            (self._polynomial, self._middle, self._width),
            (self._parabola, self._centre, self._reach),
        ):
            x = (place - centre) / width
            inside = np.minimum(np.maximum(x, -1.0), 1.0)
            part, change = np.zeros_like(x), np.zeros_like(x)
            for coefficient in coefficients[
                ::-1
            ]:  # Horner's scheme of value and derivative
                change = change * inside + part
                part = part * inside + coefficient
            value, slope = (
                value + part,
                slope + np.where(x == inside, change / width, 0.0),
            )
        value = np.where(
            self._varying, np.maximum(value, self._least), self._polynomial[0]
        )
        return np.exp(value), np.where(self._varying, np.maximum(slope, 0.0), 0.0)


def curves_of(problem: Problem, limits: Limits, accountant: str) -> NoiseCurves:
    """The curves of all groups over the ratios that limits, each on one side, allow."""
    clients = np.asarray(problem.clients, dtype=float)
    most = np.minimum(limits.max_cohorts / clients, 1.0)
    usual = problem.cohort / problem.population
    least = np.maximum(limits.min_cohorts / clients, np.minimum(_RARE * usual, most))
    budgets = [budget_of(problem, m) for m in range(len(clients))]
    alike = Counter(replace(one, epsilon=1.0) for one in budgets)
    curves: list[NoiseCurve] = []
    for budget, low, high in zip(budgets, least.tolist(), most.tolist(), strict=True):
        covered = (
            covered_ratio(budget.delta, budget.chances)
            if accountant == GUARANTEE
            else 0.0
        )
        if problem.fixed_noise and (fixed := problem.fixed_noise[len(curves)]):
            curves.append(NoiseCurve(budget, accountant, 0.0, 0.0, (math.log(fixed),)))
        elif high <= covered:
            curves.append(NoiseCurve(budget, accountant, 0.0, 0.0, (budget.least,)))
        elif high - low <= 1e-9 * high:
            found, _ = root(budget, high, accountant)
            curves.append(NoiseCurve(budget, accountant, 0.0, 0.0, (found,)))
        else:
            first = math.floor(math.log(low) / _GRAIN) * _GRAIN
            first = max(first, math.log(covered) + 1e-9) if covered > 0 else first
            last = min(math.ceil(math.log(high) / _GRAIN) * _GRAIN, 0.0)
            curve = (
                _between
                if alike[replace(budget, epsilon=1.0)] > _MANY
                else _coarse_curve
            )
            curves.append(curve(budget, accountant, first, last))
    return NoiseCurves(curves)


def _between(budget: Budget, accountant: str, low: float, high: float) -> NoiseCurve:
    """The coarse curve by a cubic in log epsilon through those of four budgets around it."""
    place = math.log(budget.epsilon) / _APART
    nodes = [math.floor(place) + k for k in (-1, 0, 1, 2)]
    parts = [math.prod((place - b) / (a - b) for b in nodes if b != a) for a in nodes]
    near = [replace(budget, epsilon=math.exp(node * _APART)) for node in nodes]
    known = np.array(
        [_coarse_curve(one, accountant, low, high).polynomial for one in near]
    )
    return NoiseCurve(
        budget, accountant, low, high, tuple((np.array(parts) @ known).tolist())
    )


@lru_cache(maxsize=4096)
def _coarse_curve(
    budget: Budget, accountant: str, low: float, high: float
) -> NoiseCurve:
    """The curve through roots at Chebyshev nodes, each found from those before."""
    dense = 1 if accountant in FROM_LOSSES else 3
    count = _LEAST_NODES + math.ceil(dense * (high - low))
    x = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    nodes = ((low + high) / 2 + x * (high - low) / 2).tolist()
    excess: list[float] = []
    found, slope = 0.0, None
    for place, node in enumerate(nodes):
        ratio = math.exp(node)
        central = start = budget.central(ratio)
        if place:  # along the parabola through the last three
            last = slice(max(place - 3, 0), place)
            powers = x[last, None] ** np.arange(len(excess[last]))
            fit = np.linalg.solve(powers, np.array(excess[last]))
            start += float(np.polynomial.polynomial.polyval(x[place], fit))
        if slope is not None:
            slope *= budget.steepness(start) / budget.steepness(found)
        found, slope = root(budget, ratio, accountant, start, slope, _CLOSE_COARSE)
        excess.append(found - central)
    powers = x[:, None] ** np.arange(count)
    polynomial = np.linalg.solve(powers, np.array(excess)).tolist()
    return NoiseCurve(budget, accountant, low, high, tuple(polynomial))


# --- Ratios at which a group's noise jumps: up to there delta covers ever taking part. -----------

_BEYOND = 1.001
_TIMES_DELTA = 2.0


def on_one_side(problem: Problem, limits: Limits, equal: Floats) -> Limits:
    """Limits that have each group on the side of its jump that equal ratios have it on.

    Below its jump a plan keeps the budget, but protects nobody who takes part; it is left to specs
    whose cohort allows no other. Groups above take part with a chance of twice their delta or
    more, or halfway between delta and their chance at equal ratios.
    """
    least, most = limits.min_cohorts.copy(), limits.max_cohorts.copy()
    for m, (clients, delta) in enumerate(
        zip(problem.clients, problem.deltas, strict=True)
    ):
        chances = budget_of(problem, m).chances
        jump = covered_ratio(delta, chances) * clients
        if equal[m] <= jump:
            most[m] = max(min(most[m], jump), least[m])
        elif (
            least[m]
            < _BEYOND * covered_ratio(min(_TIMES_DELTA * delta, 1.0), chances) * clients
        ):
            taking_part = 1 - (1 - min(equal[m] / clients, 1.0)) ** chances
            chance = min(_TIMES_DELTA * delta, (delta + taking_part) / 2)
            bound = clients * covered_ratio(chance, chances)
            if problem.sampling.law.whole_cohorts:
                bound = min(math.ceil(bound), math.floor(equal[m]))
            least[m] = max(least[m], min(bound, equal[m]))
    return replace(limits, min_cohorts=least, max_cohorts=most)
