"""Noise multipliers of groups: calibrated to each group's budget, and certified."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import Accountant
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
from privplan.accounting.gdp import epsilon_of, mu_of
from privplan.accounting.pld.accountant import Reading, compose
from privplan.accounting.pld.pairs import LARGEST_SHIFT
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.errors import InfeasibleError, InputError, TooLittleNoiseError
from privplan.laws.law import Pair
from privplan.planning.problem import Limits, Problem

# --- Noise multiplier as a function of the sampling ratio: values between nodes. -----------------
#
# In log-log coordinates sigma(q) is smooth: flat while the loss per round is large, of slope 1 in
# the small-loss limit. Between nodes it is a cubic, outside them a line. Where delta is so large
# that it covers the chance of ever taking part, any noise keeps the budget, so the curve jumps to
# the least noise that is certified.

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NoiseCurve:
    """Interpolated sigma(q) of one group.

    Attributes:
        log_ratios: log q of the nodes, increasing, shape (nodes,).
        log_noise: log sigma at the nodes, shape (nodes,).
        slopes: d log sigma / d log q at the nodes, shape (nodes,).
        precise: lattice indices of the nodes that are known precisely, for curves of
            ``privplan.planning.noise``; empty for others.
        covered: log q up to which any noise keeps the budget; -inf where that is nowhere known.
        least: log of the least noise multiplier that is certified, which is the curve up to there.
    """

    log_ratios: Floats
    log_noise: Floats
    slopes: Floats
    precise: frozenset[int] = frozenset()
    covered: float = -math.inf
    least: float = -math.inf


def make_curve(log_ratios: Floats, log_noise: Floats) -> NoiseCurve:
    """The curve through nodes; slopes are those of parabolas through three neighbours."""
    if len(log_ratios) == 1:
        return NoiseCurve(log_ratios, log_noise, np.zeros(1))
    steps = np.diff(log_ratios)
    secants = np.diff(log_noise) / steps
    slopes = np.empty_like(log_ratios)
    slopes[1:-1] = (secants[:-1] * steps[1:] + secants[1:] * steps[:-1]) / (steps[:-1] + steps[1:])
    slopes[0] = 2 * secants[0] - slopes[1] if len(steps) > 1 else secants[0]
    slopes[-1] = 2 * secants[-1] - slopes[-2] if len(steps) > 1 else secants[0]
    return NoiseCurve(log_ratios, log_noise, slopes)


def spline(log_ratios: Floats, log_noise: Floats) -> NoiseCurve:
    """The curve through nodes with a continuous second derivative, where that is monotone.

    A cubic spline whose third derivative is continuous at the second and the last but one node.
    Slopes are limited to three times the neighbouring secants, which keeps the curve monotone
    (Fritsch and Carlson 1980).
    """
    if len(log_ratios) < 4:
        return make_curve(log_ratios, log_noise)
    h = np.diff(log_ratios)
    secants = np.diff(log_noise) / h
    count = len(log_ratios)
    system, right = np.zeros((count, count)), np.empty(count)
    inner = np.arange(1, count - 1)
    system[inner, inner - 1], system[inner, inner + 1] = h[1:], h[:-1]
    system[inner, inner] = 2 * (h[:-1] + h[1:])
    right[1:-1] = 3 * (h[1:] * secants[:-1] + h[:-1] * secants[1:])
    for row, near, far, at in ((0, 0, 1, 1), (-1, -1, -2, -2)):
        both = h[near] + h[far]
        system[row, row], system[row, at] = h[far], both
        right[row] = (
            (h[near] + 2 * both) * h[far] * secants[near] + h[near] ** 2 * secants[far]
        ) / both
    slopes = np.linalg.solve(system, right)
    limits = 3 * np.minimum(np.append(secants, np.inf), np.append(np.inf, secants))
    slopes = np.minimum(np.maximum(slopes, 0.0), np.maximum(limits, 0.0))
    return NoiseCurve(log_ratios, log_noise, slopes)


class NoiseCurves:
    """The curves of all groups, evaluated in one pass.

    Args:
        curves: one curve per group.
    """

    def __init__(self, curves: Sequence[NoiseCurve]) -> None:
        self.curves = tuple(curves)
        most = max(2, *(len(curve.log_ratios) for curve in curves))
        self._nodes = np.full((len(curves), most), np.inf)
        self._noise, self._slopes = np.zeros_like(self._nodes), np.zeros_like(self._nodes)
        for row, curve in enumerate(curves):
            count = len(curve.log_ratios)
            self._nodes[row, :count] = curve.log_ratios
            self._noise[row, :count] = curve.log_noise
            self._slopes[row, :count] = curve.slopes
            if count == 1:  # constant
                self._nodes[row, 1] = curve.log_ratios[0] + 1
                self._noise[row, 1] = curve.log_noise[0]
        counts = np.array([max(len(curve.log_ratios), 2) for curve in curves])
        self._last_cell = (counts - 2)[:, None]
        self._rows = np.arange(len(curves))[:, None]
        self._covered = np.array([curve.covered for curve in curves])[:, None]
        self._least = np.array([curve.least for curve in curves])[:, None]
        self._jumps = bool(np.any(np.isfinite(self._least)))

    @property
    def covered(self) -> Floats:
        """Largest ratios at which any noise keeps the budget, 0 without; shape (groups,)."""
        return np.asarray(np.exp(self._covered[:, 0]), dtype=np.float64)

    def at(self, ratios: Floats) -> tuple[Floats, Floats]:
        """sigma(q) and d log sigma / d log q, extrapolated linearly outside the nodes."""
        if ratios.ndim == 1:
            noise, slope = self.at(ratios[:, None])
            return noise[:, 0], slope[:, 0]
        x, rows = np.log(ratios), self._rows
        below = (self._nodes[:, None, :] < x[:, :, None]).sum(axis=2) - 1
        left = np.minimum(np.maximum(below, 0), self._last_cell)
        right = left + 1
        start = self._nodes[rows, left]
        width = self._nodes[rows, right] - start
        t = (x - start) / width
        inner = np.minimum(np.maximum(t, 0.0), 1.0)  # np.clip costs more than all the rest
        low = self._noise[rows, left]
        low_slope, high_slope = self._slopes[rows, left] * width, self._slopes[rows, right] * width
        rise = self._noise[rows, right] - low
        second = 3 * rise - 2 * low_slope - high_slope
        third = low_slope + high_slope - 2 * rise
        value = low + inner * (low_slope + inner * (second + inner * third))
        slope = low_slope + inner * (2 * second + 3 * inner * third)
        value = value + slope * (t - inner)
        if self._jumps:
            low_part = x <= self._covered
            value, slope = np.where(low_part, self._least, value), np.where(low_part, 0.0, slope)
        return np.exp(value), slope / width


def noise_at(curve: NoiseCurve, ratio: float) -> float:
    """sigma(q) of one curve."""
    return float(NoiseCurves([curve]).at(np.array([ratio]))[0][0])


def log_noise_at(curve: NoiseCurve, log_ratio: float) -> float:
    """Log sigma of one curve at log q."""
    return math.log(noise_at(curve, math.exp(log_ratio)))


# --- Noise multipliers that spend a budget, on a lattice of sampling ratios ``exp(-STEP k)``. ----
#
# A node is a pure function of its budget and place: what was computed before only saves time. Each
# is the root of an estimate of epsilon (``epsilon_estimate``; ``ComposedLoss.estimate`` where that
# does not serve): Newton's method with the slope that the node beside it had.

STEP = 0.4
COARSE = 3
FAR = 12
"""Coarse nodes are every third one, and beyond the twelfth (a ratio of 0.8%) every sixth."""
CLOSE = 2e-3
"""A Newton step that is smaller ends the search: the slope is known within some percent."""
_CLOSE_COARSE = 2e-2
_PLAN_REACH = 0.15
"""How far from the budget log epsilon may be for its plan to read the next one, too."""
_MOST_STEPS = 40
_SPARE = 1e-6
"""Share of delta that is not counted on to cover taking part, since losses are rounded up."""


@dataclass(frozen=True)
class Budget:
    """What a noise curve is a function of."""

    epsilon: float
    delta: float
    rounds: int
    sampling: SamplingLaw
    relation: Relation

    @property
    def sensitivity(self) -> float:
        """Distance of neighbouring sums in clipping norms."""
        return float(self.sampling.law.sensitivity(self.relation))

    @property
    def covered(self) -> float:
        """Largest sampling ratio whose chance of ever taking part is at most delta.

        Up to it any noise keeps the budget, since what is released depends on a client with a
        chance of delta only: sigma(q) jumps there, from ``least`` to what epsilon asks for.
        """
        return covered_ratio(self.delta, self.rounds)

    @property
    def least(self) -> float:
        """Log of the least noise multiplier that is certified under sampling."""
        return math.log(least_certified(self.sampling, self.relation))

    @property
    def most_epsilon(self) -> float:
        """A bound of what the least noise multiplier costs: all clients take part in all rounds."""
        mu = self.sensitivity * math.sqrt(self.rounds) / math.exp(self.least)
        return _epsilon(mu, self.delta)

    def central(self, ratio: float) -> float:
        """Log sigma at which the central limit meets the budget."""
        square = _mu(self.epsilon, self.delta) ** 2 / self.rounds
        log = math.log1p(square / ratio**2) if ratio < 1 else square
        return math.log(self.sensitivity) - 0.5 * math.log(log)

    def steepness(self, log_noise: float) -> float:
        """-d log mu / d log sigma in the central limit under sampling."""
        x = min((self.sensitivity / math.exp(log_noise)) ** 2, 700.0)
        return x / -math.expm1(-x)


def covered_ratio(delta: float, rounds: int) -> float:
    """Largest sampling ratio at which a client ever takes part with a chance of at most delta."""
    return -math.expm1(math.log1p(-delta * (1 - _SPARE)) / rounds)


@lru_cache(maxsize=1024)
def _mu(epsilon: float, delta: float) -> float:
    return mu_of(epsilon, delta)


@lru_cache(maxsize=1024)
def _epsilon(mu: float, delta: float) -> float:
    return epsilon_of(mu, delta)


@dataclass(frozen=True)
class Node:
    """A noise multiplier that spends a budget.

    Attributes:
        log_noise: log sigma.
        slope: -d log epsilon / d log sigma, 1 or more.
        met: whether the budget is met there; False at the ends of the range of noise multipliers,
            and at the least that the accountant covers.
    """

    log_noise: float
    slope: float
    met: bool = True


def budget_of(problem: Problem, group: int) -> Budget:
    """The budget of a group with all that its noise depends on."""
    return Budget(
        problem.epsilons[group],
        problem.deltas[group],
        problem.rounds,
        problem.sampling,
        problem.relation,
    )


def coarse_after(index: int) -> int:
    """The coarse node after a coarse one."""
    return index + (COARSE if index < FAR else 2 * COARSE)


def coarse_before(index: int) -> int:
    """The coarse node before a node; 0 for the first."""
    if index <= FAR:
        return max(0, (index - 1) // COARSE * COARSE)
    return FAR + (index - 1 - FAR) // (2 * COARSE) * 2 * COARSE


@lru_cache(maxsize=65_536)
def own_node(budget: Budget, index: int, precise: bool) -> Node:
    """The noise multiplier at ``exp(-STEP index)``, started from coarse nodes of larger ratios."""
    log_ratio = -STEP * index
    if math.exp(log_ratio) <= budget.covered:
        return Node(budget.least, 1.0, met=False)
    central = budget.central(math.exp(log_ratio))
    if index == 0:
        return root(budget, 0.0, central, None, CLOSE)
    coarse = coarse_after(coarse_before(index)) == index
    if precise and coarse:
        begin = own_node(budget, index, False)
        return root(budget, log_ratio, begin.log_noise, begin.slope, CLOSE)
    beside = [coarse_before(index)]
    if coarse_before(beside[0]) != beside[0]:
        beside.append(coarse_before(beside[0]))
    if not coarse:
        beside.append(coarse_after(beside[0]))
    nodes = [own_node(budget, other, False) for other in beside]
    excess = [
        node.log_noise - budget.central(math.exp(-STEP * other))
        for other, node in zip(beside, nodes, strict=True)
    ]
    start = central + lagrange(beside, excess, index)
    if coarse:
        slope = nodes[0].slope * budget.steepness(start) / budget.steepness(nodes[0].log_noise)
        return root(budget, log_ratio, start, slope, _CLOSE_COARSE)
    share = (index - beside[0]) / (beside[-1] - beside[0])
    slope = nodes[0].slope ** (1 - share) * nodes[-1].slope ** share
    return root(budget, log_ratio, start, slope, CLOSE)


def lagrange(places: Sequence[float], values: Sequence[float], at: float) -> float:
    """The polynomial through values, at one place."""
    total = 0.0
    for weight, value in zip(lagrange_weights(places, at), values, strict=True):
        total += value * weight
    return total


def lagrange_weights(places: Sequence[float], at: float) -> list[float]:
    """Weights of the values at places in the polynomial through them, at one place."""
    return [math.prod((at - o) / (p - o) for o in places if o != p) for p in places]


def root(budget: Budget, log_ratio: float, start: float, slope: float | None, close: float) -> Node:
    """The noise multiplier at which the estimate of epsilon is the budget."""
    if budget.epsilon >= budget.most_epsilon:
        return Node(budget.least, 1.0, met=False)
    least, most = (math.log(limit) for limit in NOISE_RANGE)
    infeasible, feasible = least, most
    x, plan, points = min(max(start, least), most), None, []
    ratio = min(math.exp(log_ratio), 1.0)
    for _ in range(_MOST_STEPS):
        gap, plan = _fast_gap(budget, ratio, x) or _gap(budget, ratio, x, plan)
        infeasible, feasible = (x, feasible) if gap > 0 else (infeasible, x)
        if math.isfinite(gap):
            points.append((x, gap))
        if len(points) > 1 and abs(points[-1][0] - points[-2][0]) > 1e-5:
            secant = (points[-2][1] - points[-1][1]) / (points[-1][0] - points[-2][0])
            slope = max(secant, 1.0)
        if not math.isfinite(gap):
            following = (infeasible + feasible) / 2 if points else x + (0.7 if gap > 0 else -0.7)
        elif slope is None:
            following = x + (0.02 if abs(gap) < 0.02 else gap / 2)
        else:
            following = x + gap / slope
            if abs(following - x) <= close:
                return Node(min(max(following, least), most), slope, least < following < most)
        if not infeasible < following < feasible:
            following = (infeasible + feasible) / 2
        if abs(gap) > _PLAN_REACH:
            plan = None
        if feasible - infeasible < 1e-4:
            break
        x = following
    return Node(feasible, slope or 1.0, met=False)


def _gap(
    budget: Budget, ratio: float, log_noise: float, plan: Reading | None
) -> tuple[float, Reading | None]:
    """Log of the estimated epsilon over the budget, and the plan by which it was read."""
    release = Release(math.exp(log_noise), ratio, budget.sampling)
    history = History.repeated(release, budget.rounds)
    try:
        spent, plan = compose(history, budget.relation).estimate(budget.delta, plan)
    except TooLittleNoiseError:
        return math.inf, plan
    if spent <= 0:
        return -math.inf, plan
    return math.log(spent / budget.epsilon) if math.isfinite(spent) else math.inf, plan


def _fast_gap(budget: Budget, ratio: float, log_noise: float) -> tuple[float, None] | None:
    """``_gap`` without bounds, ten times as fast; None where that method does not serve."""
    from privplan.accounting.pld.estimate import epsilon_estimate

    release = Release(math.exp(log_noise), ratio, budget.sampling)
    pair = dominating_pairs(release, budget.relation).upper[0]
    if isinstance(pair, Pair) and pair.shift > LARGEST_SHIFT:
        return math.inf, None
    spent = epsilon_estimate(pair, budget.rounds, budget.delta, budget.epsilon)
    return None if spent is None else (math.log(spent / budget.epsilon), None)


# --- What planning does otherwise for the points of a sweep than for a single plan. --------------
#
# Within ``interpolating`` noise curves lie between lattice budgets (``noise_lattice``), and an
# upper bound that meets its budget within the tolerance needs no lower one beside it. Plans are
# calibrated and certified as ever; a table of a sweep shows upper bounds only.

Axes = tuple[str, ...] | None
"""Numbers of a budget that are interpolated; none of them when empty, no sweep when None."""

_interpolated: ContextVar[Axes] = ContextVar("interpolated", default=None)


@contextmanager
def interpolating(axes: Axes) -> Iterator[None]:
    """Plan the points of a sweep within the block; as ever when None."""
    token = _interpolated.set(axes)
    try:
        yield
    finally:
        _interpolated.reset(token)


def interpolated() -> Axes:
    """The axes along which this sweep interpolates noise curves."""
    return _interpolated.get()


def guarantee(epsilon: float) -> Accountant:
    """The accountant of a group's guarantee."""
    if interpolated() is None:
        return by_name(PLD)
    from privplan.accounting.pld.accountant import PldAccountant

    return cast(Accountant, PldAccountant(enough=epsilon))


# --- Noise multipliers of groups: calibrated to each group's budget, and certified. --------------

GUARANTEE = "pld"
FAST_ACCOUNTANTS = ("pld", "rdp")
CERTIFICATE_ACCOUNTANTS = ("pld", "rdp", "prv")
"""With prv-accountant, which is slow to import."""


@dataclass(frozen=True)
class CertifiedNoise:
    """Noise multipliers that keep every budget according to the guarantee's accountant.

    Attributes:
        noise: sigma_m, shape (groups,).
        certificate: rows of every accountant, in order of the groups.
        warnings: one for each group whose calibrated noise multiplier was raised.
    """

    noise: Floats
    certificate: tuple[CertificateRow, ...]
    warnings: tuple[str, ...]


def calibrated(problem: Problem, ratios: Floats, accountant: str) -> Floats:
    """Smallest noise multipliers that keep the budgets, shape (groups,)."""
    return np.array(
        [group_noise(problem, group, ratio, accountant) for group, ratio in enumerate(ratios)]
    )


def group_noise(
    problem: Problem,
    group: int,
    ratio: float,
    accountant: str | Accountant,
    rtol: float = 1e-4,
    near: float | None = None,
) -> float:
    """Smallest noise multiplier that keeps the budget of one group, rounded up to ten digits.

    Or the group's fixed noise multiplier, where it has one.
    """
    if problem.fixed_noise and (fixed := problem.fixed_noise[group]) is not None:
        return fixed
    name, ratio = problem.names[group], float(ratio)
    budget = problem.epsilons[group], problem.deltas[group]
    _check_ratio(problem, group, ratio)
    if accountant == GUARANTEE and ratio <= covered_ratio(budget[1], problem.rounds):
        least = _least_certified(problem, group, ratio, accountant)
        if least is not None:
            return least
    try:
        if problem.calibration == "published" and accountant != GUARANTEE:
            noise = noise_multiplier_by_bisection(
                *budget, sampling_ratio=ratio, rounds=problem.rounds, accountant=accountant
            )
        else:
            noise = noise_multiplier(
                *budget,
                sampling_ratio=ratio,
                rounds=problem.rounds,
                sampling=problem.sampling,
                relation=problem.relation,
                accountant=accountant,
                rtol=rtol,
                near=near,
            )
    except InfeasibleError as error:
        nearest = _smallest_epsilon(problem, group, ratio, accountant)
        raise InfeasibleError(f"groups.{name}.epsilon: {error}; {nearest}") from None
    except InputError as error:
        raise InfeasibleError(f"groups.{name}: {error}") from None
    return rounded_up(noise)


def _least_certified(
    problem: Problem, group: int, ratio: float, accountant: str | Accountant
) -> float | None:
    """The least noise multiplier that can be certified; None where it does not keep the budget.

    Where delta covers the chance of ever taking part, any noise keeps the budget.
    """
    budget = budget_of(problem, group)
    chosen = by_name(accountant) if isinstance(accountant, str) else accountant
    noise = rounded_up(least_certified(budget.sampling, budget.relation))
    spent = chosen.epsilon(history_of(problem, ratio, noise), budget.delta, budget.relation).upper
    return noise if spent <= budget.epsilon else None


def _check_ratio(problem: Problem, group: int, ratio: float) -> None:
    """Raise InfeasibleError when budgets differ so much that a group would hardly take part."""
    if ratio < LEAST_RATIO and len(problem.names) > 1:
        least, most = min(problem.epsilons), max(problem.epsilons)
        raise InfeasibleError(
            f"groups.{problem.names[group]}.epsilon: {problem.epsilons[group]:g} among budgets "
            f"from {least:g} to {most:g} leaves the group a sampling ratio of {ratio:.3g}, below "
            f"the least of {LEAST_RATIO:g}; bring the budgets closer together"
        )


def _smallest_epsilon(
    problem: Problem, group: int, ratio: float, accountant: str | Accountant
) -> str:
    """The smallest feasible epsilon of a group in words: that of the largest noise multiplier."""
    chosen = by_name(accountant) if isinstance(accountant, str) else accountant
    history = history_of(problem, ratio, NOISE_RANGE[1])
    spent = chosen.epsilon(history, problem.deltas[group], problem.relation).upper
    return f"the nearest feasible epsilon is {math.nextafter(spent, math.inf):.4g}"


def rounded_up(noise: float) -> float:
    """The noise multiplier rounded up to ten significant digits.

    A ledger records standard deviations. Ten digits survive the product with the clipping norm and
    the division by it exactly, so that the realised epsilon equals the planned one bit for bit.
    """
    unit = 10.0 ** (math.floor(math.log10(noise)) - 9)
    return float(f"{math.ceil(noise / unit) * unit:.10g}")


def certify_noise(
    problem: Problem,
    ratios: Floats,
    noise: Floats,
    accountant: str,
    certificate_accountants: tuple[str, ...] = CERTIFICATE_ACCOUNTANTS,
) -> CertifiedNoise:
    """Noise multipliers with their certificate, raised where the guarantee is overspent."""
    noise = np.array(noise, dtype=float)
    rows: list[CertificateRow] = []
    warnings: list[str] = []
    for group in range(len(noise)):
        certified = _certified(problem, group, ratios[group], noise[group], certificate_accountants)
        spent = _guaranteed_epsilon(certified)
        if spent > problem.epsilons[group]:
            raised = group_noise(problem, group, ratios[group], GUARANTEE)
            warnings.append(
                f"groups.{problem.names[group]}: the noise of accountant {accountant} "
                f"({noise[group]:.5g}) would spend epsilon {spent:.6g} of "
                f"{problem.epsilons[group]:g} by {GUARANTEE} (delta "
                f"{problem.deltas[group]:.3g}, {problem.law}, {problem.relation}); "
                f"raised to {max(raised, noise[group]):.5g} by {GUARANTEE}"
            )
            noise[group] = max(raised, noise[group])
            certified = _certified(
                problem, group, ratios[group], noise[group], certificate_accountants
            )
            _check_budget(problem, group, certified)
        rows += certified
    return CertifiedNoise(noise, tuple(rows), tuple(warnings))


def single_group(problem: Problem, group: int) -> Problem:
    """The problem of one group, without what its calibration does not depend on.

    Groups with the same name and budget are equal as problems, and share their cached calibrations.
    """
    return replace(
        problem,
        names=(problem.names[group],),
        clients=(1,),
        epsilons=(problem.epsilons[group],),
        deltas=(problem.deltas[group],),
        cohort=1.0,
        clipping_norm=1.0,
        dimension=1,
        fixed_noise=(),
    )


def history_of(problem: Problem, ratio: float, noise: float) -> History:
    """Releases in which a client of a group takes part."""
    return History.repeated(Release(float(noise), float(ratio), problem.sampling), problem.rounds)


def _certified(
    problem: Problem, group: int, ratio: float, noise: float, accountants: tuple[str, ...]
) -> list[CertificateRow]:
    return certify(
        history_of(problem, ratio, noise),
        group=problem.names[group],
        delta=problem.deltas[group],
        relation=problem.relation,
        accountants=(
            guarantee(problem.epsilons[group]),
            *(name for name in accountants if name != GUARANTEE),
        ),
        unit=problem.unit,
    )


def _guaranteed_epsilon(rows: list[CertificateRow]) -> float:
    return max((row.epsilon_upper for row in rows if row.guarantee), default=float("inf"))


def _check_budget(problem: Problem, group: int, rows: list[CertificateRow]) -> None:
    spent = _guaranteed_epsilon(rows)
    if spent > problem.epsilons[group]:
        raise InfeasibleError(
            f"groups.{problem.names[group]}.epsilon: {problem.epsilons[group]:g} is overspent: "
            f"{GUARANTEE} certifies only {spent:.6g} (delta {problem.deltas[group]:.3g}, "
            f"{problem.law}, {problem.relation})"
        )


# --- Nodes of many budgets: calibrated on a lattice of budgets, interpolated between them. -------
#
# The points of a sweep have budgets (epsilon, delta and rounds) that no other point has, but that
# lie close together. Over the logarithms of the three, log sigma exceeds its central limit
# (``Budget.central``) by a smooth function, so calibrations of few budgets give all: polynomials
# of degree five through the six lattice budgets around, one axis after the other. Where those
# through four differ by more than ``_DOUBT``, or a lattice budget is not met, a budget has its
# own nodes.
#
# Interpolated nodes only say where an optimum lies: plans are calibrated and certified as ever.
# docs/performance.md states what the ratios lose.

AXES = ("epsilon", "rounds", "delta")
"""Numbers of a budget that a sweep may vary."""
_DISTANCE = {"epsilon": 0.4, "rounds": 0.65, "delta": 1.0}
"""Distance of neighbouring lattice budgets, in logarithms."""
_EVERY = 8
"""Up to so many rounds, each number is on the lattice."""
_LARGE_DELTA = 0.1
"""Larger failure probabilities have nodes of their own."""
_AROUND = 6
_DOUBT = 5e-4
_SHARE = 0.05
"""Time to interpolate the nodes of a budget along an axis, over that to calibrate them."""
_SETTLED = 3e-4
"""Newton step that ends the search for a predicted log sigma, which is then within some 2e-5."""


def node(budget: Budget, index: int, precise: bool) -> Node:
    """The noise multiplier of a budget at the ratio ``exp(-STEP index)``."""
    axes = interpolated()
    if axes is None:
        return own_node(budget, index, precise)
    found = _between(budget, axes, index, precise) if axes else None
    return own_node(budget, index, precise) if found is None else found


def predicted(budget: Budget, ratio: float, near: float, slope: float) -> float | None:
    """Log sigma that meets a budget at any ratio, within some 2e-5.

    None at full participation, and at the ends of the range of noise multipliers.
    """
    if ratio >= 1:
        return None
    found = root(budget, math.log(ratio), math.log(near), slope, _SETTLED)
    return found.log_noise if found.met else None


def shared_axes(budgets: Collection[Budget]) -> tuple[str, ...]:
    """The axes along which interpolation makes a sweep cheapest; empty where it does not pay."""
    varying = [axis for axis in AXES if len({getattr(one, axis) for one in budgets}) > _AROUND]
    best: tuple[str, ...] = ()
    least = float(len(budgets))
    for size in range(1, len(varying) + 1):
        for axes in combinations(varying, size):
            needed = set(budgets)
            for axis in axes:
                needed = {found for one in needed for found in lattice_around(one, axis)}
            if len(needed) + _SHARE * size * len(budgets) < least:
                best, least = axes, len(needed) + _SHARE * size * len(budgets)
    return best


def lattice_around(budget: Budget, axis: str) -> tuple[Budget, ...]:
    """The lattice budgets between which one is interpolated along axis; itself on the lattice."""
    if axis == "rounds":
        first = _rounds_before(budget.rounds)
        if _rounds(first) == budget.rounds:
            return (budget,)
        first = max(first - _AROUND // 2 + 1, 0)
        counts = [_rounds(first + step) for step in range(_AROUND)]
        return tuple(replace(budget, rounds=count) for count in counts)
    value, distance = float(getattr(budget, axis)), _DISTANCE[axis]
    first = math.floor(math.log(value) / distance) - _AROUND // 2 + 1
    values = [math.exp(distance * (first + step)) for step in range(_AROUND)]
    if value in values or (axis == "delta" and values[-1] > _LARGE_DELTA):
        return (budget,)
    if axis == "delta":
        return tuple(replace(budget, delta=one) for one in values)
    return tuple(replace(budget, epsilon=one) for one in values)


def _rounds(place: int) -> int:
    """The number of rounds at a place of the lattice, from 0 on."""
    if place < _EVERY:
        return place + 1
    return round(_EVERY * math.exp(_DISTANCE["rounds"] * (place + 1 - _EVERY)))


def _rounds_before(rounds: int) -> int:
    """The last place of the lattice with at most so many rounds."""
    if rounds <= _EVERY:
        return rounds - 1
    place = _EVERY + math.floor(math.log(rounds / _EVERY) / _DISTANCE["rounds"])
    return max(one for one in (place - 2, place - 1, place) if _rounds(one) <= rounds)


@dataclass(frozen=True)
class _Around:
    """How a budget is interpolated along an axis: lattice budgets with their weights.

    Attributes:
        budgets: the lattice budgets; one where the budget is on the lattice.
        weights: of the polynomial through all.
        doubts: of its difference from that through the four in the middle.
        below: the last lattice budget that is not above.
        share: part of the way from there to the next.
    """

    budgets: tuple[Budget, ...]
    weights: tuple[float, ...]
    doubts: tuple[float, ...]
    below: int
    share: float


@lru_cache(maxsize=16_384)
def _around(budget: Budget, axis: str) -> _Around:
    budgets = lattice_around(budget, axis)
    if len(budgets) == 1:
        return _Around(budgets, (1.0,), (0.0,), 0, 0.0)
    values = [math.log(getattr(one, axis)) for one in budgets]
    value = math.log(getattr(budget, axis))
    below = max(sum(one <= value for one in values) - 1, 0)
    first = min(max(below - 1, 0), _AROUND - 4)
    weights = lagrange_weights(values, value)
    inner = [0.0] * first + lagrange_weights(values[first : first + 4], value)
    doubts = [w - v for w, v in zip(weights, inner + [0.0] * _AROUND, strict=False)]
    share = (value - values[below]) / (values[below + 1] - values[below])
    return _Around(budgets, tuple(weights), tuple(doubts), below, share)


@lru_cache(maxsize=262_144)
def _between(budget: Budget, axes: tuple[str, ...], index: int, precise: bool) -> Node | None:
    """The node interpolated along axes; None where one of the lattice is not met or in doubt."""
    if not axes:
        found = own_node(budget, index, precise)
        return found if found.met else None
    around = _around(budget, axes[0])
    nodes = [_between(one, axes[1:], index, precise) for one in around.budgets]
    if len(nodes) == 1:
        return nodes[0]
    known = [found for found in nodes if found is not None]
    if len(known) < len(nodes):
        return None
    ratio, total, doubt = math.exp(-STEP * index), 0.0, 0.0
    for found, one, weight, other in zip(
        known, around.budgets, around.weights, around.doubts, strict=True
    ):
        excess = found.log_noise - one.central(ratio)
        total += weight * excess
        doubt += other * excess
    if not abs(doubt) <= _DOUBT:
        return None
    below, share = around.below, around.share
    slope = known[below].slope ** (1 - share) * known[below + 1].slope ** share
    return Node(budget.central(ratio) + total, slope)


# -------------------------------------------------------------------------------------------------
# Noise curves of ``pld``: splines through noise multipliers on a lattice of sampling ratios.
#
# log sigma as a function of log q is smooth enough that nodes 1.2 apart show where an optimum
# lies (within 1%), and nodes 0.4 apart around it give its noise multiplier within some 1e-4. All
# ratios are ``exp(-0.4 k)``, so groups of equal budgets, the starts of a search and the plans of
# a sweep share nodes (``privplan.planning.noise``), and over a sweep budgets that lie
# close together share those of a lattice of budgets (``privplan.planning.noise``).
#
# Plans do not rely on nodes: ``least_noise`` evaluates the accountant itself, whose upper bound
# must keep the budget.

_RARE = 0.04
_RTOL = 1e-4
_AIM = 0.8e-4
"""How far below its budget epsilon is aimed at: bounds are above it by some 2e-5 to 5e-5."""
_TRIES = 4
_BESIDE_JUMP = (1.001, 1.03, 1.1, 1.3)
_CLEAR_OF_JUMP = 1.5
"""Nodes lie at these multiples of the ratio where a curve jumps, and on the lattice beyond."""
JUMP = _BESIDE_JUMP[0]
"""The first of them: searches above a jump start there."""


def loss_curve(budget: Budget, least: float, most: float, usual: float | None = None) -> NoiseCurve:
    """The curve through the coarse nodes that span [least, most]."""
    covered = math.log(budget.covered) if budget.covered >= least else -math.inf
    if math.log(most) <= covered:
        one = make_curve(np.array([math.log(most)]), np.array([budget.least]))
        return replace(one, covered=covered, least=budget.least)
    if usual is not None:
        least = max(least, min(usual * _RARE, most))
    if most - least < 1e-9 * most:
        log_ratio = math.log(most)
        found = root(budget, log_ratio, budget.central(most), None, CLOSE)
        return make_curve(np.array([log_ratio]), np.array([found.log_noise]))
    last = -math.log(least) / STEP - 1e-9
    indices = [0]
    while indices[-1] < last:
        indices.append(coarse_after(indices[-1]))
    first = max(i for i in indices if i * STEP <= -math.log(most) + 1e-9)
    used = [i for i in indices if i >= coarse_before(coarse_before(first))]
    return _through(budget, used, frozenset(), covered)


def refined(curve: NoiseCurve, budget: Budget, ratio: float) -> tuple[NoiseCurve, float]:
    """The curve with precise nodes around a ratio, and its largest relative error there before."""
    log_ratio = math.log(ratio)
    if len(curve.log_ratios) == 1:
        return curve, 0.0
    below = min(math.floor(-log_ratio / STEP), round(-curve.log_ratios[0] / STEP) - 1)
    around = frozenset(range(max(below - 1, 0), below + 3))
    missing = around - curve.precise
    if not missing:
        return curve, 0.0
    known = {round(-x / STEP) for x in curve.log_ratios}
    better = _through(budget, sorted(known | around), curve.precise | around, curve.covered)
    places = [-STEP * index for index in missing] + [log_ratio]
    errors = [abs(log_noise_at(better, x) - log_noise_at(curve, x)) for x in places]
    return better, max(errors)


def least_noise(problem: Problem, group: int, ratio: float, near: float) -> float:
    """The smallest noise multiplier that keeps a group's budget by ``pld``, rounded up.

    The upper bound of the accountant keeps the budget and is within 1e-4 of it. Since epsilon
    falls at least as fast as 1 / sigma (it is proportional to it, or steeper, for a Gaussian, and
    sampling only steepens it), sigma is within 1e-4 of the smallest.
    """
    budget = budget_of(problem, group)
    accountant = guarantee(budget.epsilon)
    if ratio <= budget.covered:
        return group_noise(problem, group, ratio, GUARANTEE)
    index = round(-math.log(ratio) / STEP / COARSE) * COARSE
    slope = node(budget, min(index, FAR), False).slope * (
        budget.steepness(math.log(near))
        / budget.steepness(node(budget, min(index, FAR), False).log_noise)
    )
    known = predicted(budget, ratio, near, slope)
    noise = rounded_up(near if known is None else math.exp(known + _AIM / slope))
    before = None
    for _ in range(_TRIES):
        if not NOISE_RANGE[0] < noise < NOISE_RANGE[1]:
            break
        try:
            history = history_of(problem, ratio, noise)
            spent = accountant.epsilon(history, budget.delta, budget.relation).upper
        except TooLittleNoiseError:
            break
        if not 0 < spent < math.inf:
            break
        gap = math.log(spent / budget.epsilon)
        if -_RTOL <= gap <= 0:
            return noise
        here = math.log(noise), gap
        if before is not None and abs(here[0] - before[0]) > 1e-6:
            secant = (before[1] - here[1]) / (here[0] - before[0])
            slope = secant if 0.5 < secant / slope < 2 else slope
        before = here
        noise = rounded_up(math.exp(here[0] + (gap + _RTOL / 2) / slope))
    return group_noise(problem, group, ratio, GUARANTEE, near=near)


def _through(
    budget: Budget, indices: list[int], precise: frozenset[int], covered: float
) -> NoiseCurve:
    """The spline through nodes; where it jumps, through nodes beside the jump, too."""
    clear = covered + math.log(_CLEAR_OF_JUMP)
    order = [i for i in sorted(indices, reverse=True) if -STEP * i > clear or i == 0]
    places = [-STEP * index for index in order]
    log_noise = [node(budget, index, index in precise).log_noise for index in order]
    if len(order) < len(indices):
        beside = [covered + math.log(factor) for factor in _BESIDE_JUMP]
        beside = [place for place in beside if place < 0]
        places = beside + places
        log_noise = [_beside_jump(budget, place).log_noise for place in beside] + log_noise
    curve = spline(np.array(places), np.maximum.accumulate(log_noise))
    least = -math.inf if covered == -math.inf else budget.least
    return replace(curve, precise=precise, covered=covered, least=least)


@lru_cache(maxsize=4096)
def _beside_jump(budget: Budget, log_ratio: float) -> Node:
    """The noise multiplier at any ratio, without one nearby to start from."""
    return root(budget, log_ratio, budget.central(math.exp(log_ratio)), None, CLOSE)


# --- Noise curves of groups: few calibrations, interpolated. -------------------------------------
#
# Curves of ``pld`` (and of ``prv``, which differs by far less than ratios depend on) have their
# nodes on a lattice (``privplan.planning.noise``). For other accountants every node that is
# added is first predicted, so the interpolation error is measured, not assumed. Plans do not rely
# on a curve: their noise multipliers are calibrated with full precision and certified.

FROM_LOSSES = ("pld", "prv")
"""Accountants whose curves are those of ``pld``."""
CHEAPER = "rdp"
"""The accountant that calibrates negligible groups in place of those."""
_MAX_NODE_DISTANCE = math.log(4.0)
_CURVE_TOLERANCE = 2e-3
_MODEL_LARGE_DELTA = 1e-2
"""Above it, Rényi divergence is too loose to take the place of another accountant."""


@lru_cache(maxsize=100_000)
def _log_noise(
    problem: Problem, log_ratio: float, accountant: str, log_near: float | None = None
) -> float:
    """Logarithm of the calibrated noise multiplier of a problem with one group."""
    near = None if log_near is None else math.exp(log_near)
    return math.log(group_noise(problem, 0, min(math.exp(log_ratio), 1.0), accountant, near=near))


def exact_noise(problem: Problem, group: int, ratio: float, accountant: str) -> float:
    """The noise multiplier of a group, calibrated with full precision and cached."""
    return math.exp(_log_noise(single_group(problem, group), math.log(ratio), accountant))


def cheaper(accountant: str, delta: float) -> str:
    """The accountant that calibrates a negligible group; itself where none is cheaper."""
    return CHEAPER if accountant in FROM_LOSSES and delta <= _MODEL_LARGE_DELTA else accountant


def build_curve(
    problem: Problem, group: int, accountant: str, least: float, most: float
) -> NoiseCurve:
    """The curve over [least, most]; nodes are added until predictions are within tolerance."""
    if accountant in FROM_LOSSES:
        usual = problem.cohort / problem.population
        return loss_curve(budget_of(problem, group), least, most, usual)
    one = single_group(problem, group)
    low, high = math.log(least), math.log(most)
    if high - low < 1e-9:
        return make_curve(np.array([high]), np.array([_log_noise(one, high, accountant)]))
    count = 2 + math.ceil((high - low) / _MAX_NODE_DISTANCE)
    nodes: dict[float, float] = {}
    for x in np.linspace(low, high, count):
        nodes[x] = _log_noise(one, x, accountant, _extrapolated(nodes))
    pending = list(pairwise(sorted(nodes)))
    while pending:
        left, right = pending.pop()
        middle = (left + right) / 2
        predicted = log_noise_at(_model_through(nodes), middle)
        nodes[middle] = _log_noise(one, middle, accountant, predicted)
        if abs(predicted - nodes[middle]) > _CURVE_TOLERANCE and right - left > 0.05:
            pending += [(left, middle), (middle, right)]
    return _model_through(nodes)


def refine(
    curve: NoiseCurve, problem: Problem, group: int, accountant: str, ratio: float
) -> tuple[NoiseCurve, float]:
    """The curve with a node at ``ratio``, and the relative error of the curve there before."""
    if accountant in FROM_LOSSES:
        return refined(curve, budget_of(problem, group), ratio)
    log_ratio = math.log(ratio)
    log_noise = _log_noise(single_group(problem, group), log_ratio, accountant)
    error = abs(log_noise - log_noise_at(curve, log_ratio))
    nodes = dict(zip(curve.log_ratios.tolist(), curve.log_noise.tolist(), strict=True))
    if min(abs(log_ratio - node) for node in nodes) < 1e-3:
        return curve, error
    nodes[log_ratio] = log_noise
    return _model_through(nodes), error


def _extrapolated(nodes: dict[float, float]) -> float | None:
    """Value of the next of evenly spaced nodes, linear in the last two; None without two."""
    if len(nodes) < 2:
        return None
    *_, before, last = nodes.values()
    return 2 * last - before


def _model_through(nodes: dict[float, float]) -> NoiseCurve:
    log_ratios = sorted(nodes)
    return make_curve(np.array(log_ratios), np.array([nodes[x] for x in log_ratios]))


# --- Ratios at which a group's noise jumps: up to there delta covers ever taking part. -----------
#
# Up to the ratio 1 - (1 - delta)^(1/T) any noise keeps a budget, since what is released depends on
# a client with a chance of delta only. Above it the noise is what epsilon asks for.

_BOTH_SIDES = 3
"""Up to so many groups whose noise jumps, each combination of sides is searched; of more groups,
none, one and all of them below."""
_BELOW_JUMP = 1 - 1e-9
_TIMES_DELTA = 2.0


def above_jumps(problem: Problem, limits: Limits, curves: NoiseCurves, equal: Floats) -> Limits:
    """Limits within which every budget needs noise, where equal ratios are within them.

    Below the jump of a noise curve, delta is the chance to take part with hardly any noise. Such a
    plan keeps the budget, but protects nobody who takes part; it is left to specs whose cohort
    allows no other. Groups whose curve jumps take part with a chance of twice their delta or more,
    or halfway between delta and their chance at equal ratios.
    """
    clients = np.asarray(problem.clients, dtype=float)
    if not np.any(curves.covered > 0) or np.any(equal <= curves.covered * clients):
        return limits
    least = limits.min_cohorts.copy()
    for m in np.flatnonzero(curves.covered > 0):
        taking_part = 1 - (1 - min(equal[m] / clients[m], 1.0)) ** problem.rounds
        delta = problem.deltas[m]
        bound = clients[m] * covered_ratio(
            min(_TIMES_DELTA * delta, (delta + taking_part) / 2), problem.rounds
        )
        if problem.sampling.law.whole_cohorts:
            bound = min(math.ceil(bound), math.floor(equal[m]))
        least[m] = max(least[m], min(bound, equal[m]))
    return replace(limits, min_cohorts=least)


def sides_of_jumps(problem: Problem, limits: Limits, curves: NoiseCurves) -> list[Limits]:
    """Limits within which no noise jumps, which together are those that are given."""
    total = problem.cohort
    jump = curves.covered * np.asarray(problem.clients, dtype=float)
    inner = (limits.min_cohorts < jump * _BELOW_JUMP) & (jump * JUMP < limits.max_cohorts)
    where = [int(m) for m in np.flatnonzero(inner)]
    if len(where) <= _BOTH_SIDES:
        choices = [chosen for size in range(len(where) + 1) for chosen in combinations(where, size)]
    else:
        choices = [(), *((m,) for m in where), tuple(where)]
    sides = []
    for below in choices:
        least, most = limits.min_cohorts.copy(), limits.max_cohorts.copy()
        for m in where:
            if m in below:
                most[m] = jump[m] * _BELOW_JUMP
            else:
                least[m] = jump[m] * JUMP
        if least.sum() <= total <= most.sum():
            sides.append(Limits(least, most, limits.min_weights))
    return sides or [limits]
