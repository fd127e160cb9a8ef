"""Nodes of the noise curves of ``pld``: noise multipliers on a lattice of sampling ratios.

log sigma as a function of log q is smooth enough that nodes 1.2 apart show where an optimum lies
(within 1%), and nodes 0.4 apart around it give its noise multiplier within some 1e-4. All ratios
are ``exp(-0.4 k)``, so groups of equal budgets, the starts of a search and the plans of a sweep
share nodes. A node is a pure function of its budget and place: what was computed before only
saves time.

Each node is the root of an estimate of epsilon (``ComposedLoss.estimate``): Newton's method with
the slope that the node beside it had. Plans do not rely on nodes: ``least_noise`` evaluates the
accountant itself, whose upper bound must keep the budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.gdp import mu_of
from privplan.accounting.pld.accountant import compose
from privplan.accounting.pld.direction import Reading
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.accounting.target import NOISE_RANGE
from privplan.errors import TooLittleNoiseError
from privplan.planning.group_noise import GUARANTEE, group_noise, history_of, rounded_up
from privplan.planning.noise_curve import NoiseCurve, log_noise_at, make_curve, spline
from privplan.planning.problem import Problem

STEP = 0.4
_COARSE = 3
_FAR = 12
"""Coarse nodes are every third one, and beyond the twelfth (a ratio of 0.8%) every sixth."""
_RARE = 0.04
_CLOSE_COARSE = 2e-2
_CLOSE = 2e-3
"""A Newton step that is smaller ends the search: the slope is known within some percent."""
_PLAN_REACH = 0.15
"""How far from the budget log epsilon may be for its plan to read the next one, too."""
_MOST_STEPS = 40
_RTOL = 1e-4
_TRIES = 4


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

    def central(self, ratio: float) -> float:
        """Log sigma at which the central limit meets the budget."""
        square = _mu(self.epsilon, self.delta) ** 2 / self.rounds
        log = math.log1p(square / ratio**2) if ratio < 1 else square
        return math.log(self.sensitivity) - 0.5 * math.log(log)

    def steepness(self, log_noise: float) -> float:
        """-d log mu / d log sigma in the central limit under sampling."""
        x = min((self.sensitivity / math.exp(log_noise)) ** 2, 700.0)
        return x / -math.expm1(-x)


@lru_cache(maxsize=1024)
def _mu(epsilon: float, delta: float) -> float:
    return mu_of(epsilon, delta)


@dataclass(frozen=True)
class Node:
    """A noise multiplier that spends a budget.

    Attributes:
        log_noise: log sigma.
        slope: -d log epsilon / d log sigma, 1 or more.
    """

    log_noise: float
    slope: float


def budget_of(problem: Problem, group: int) -> Budget:
    """The budget of a group with all that its noise depends on."""
    return Budget(
        problem.epsilons[group],
        problem.deltas[group],
        problem.rounds,
        problem.sampling,
        problem.relation,
    )


def loss_curve(budget: Budget, least: float, most: float, usual: float | None = None) -> NoiseCurve:
    """The curve through the coarse nodes that span [least, most].

    Args:
        budget: the budget.
        least: smallest ratio, positive.
        most: largest ratio, at most 1.
        usual: a ratio of which the optimum is some multiple; nodes far below it are left out.
            There the curve is the line that continues it, which lies below it: log sigma is
            convex in log q at small ratios.
    """
    if usual is not None:
        least = max(least, min(usual * _RARE, most))
    if most - least < 1e-9 * most:
        log_ratio = math.log(most)
        found = _root(budget, log_ratio, budget.central(most), None, _CLOSE)
        return make_curve(np.array([log_ratio]), np.array([found.log_noise]))
    last = -math.log(least) / STEP - 1e-9
    indices = [0]
    while indices[-1] < last:
        indices.append(_next(indices[-1]))
    first = max(i for i in indices if i * STEP <= -math.log(most) + 1e-9)
    return _through(budget, [i for i in indices if i >= _before(_before(first))], frozenset())


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
    better = _through(budget, sorted(known | around), curve.precise | around)
    places = [-STEP * index for index in missing] + [log_ratio]
    errors = [abs(log_noise_at(better, x) - log_noise_at(curve, x)) for x in places]
    return better, max(errors)


def least_noise(problem: Problem, group: int, ratio: float, near: float) -> float:
    """The smallest noise multiplier that keeps a group's budget by ``pld``, rounded up.

    The upper bound of the accountant keeps the budget and is within 1e-4 of it. Since epsilon
    falls at least as fast as 1 / sigma (it is proportional to it, or steeper, for a Gaussian, and
    sampling only steepens it), sigma is within 1e-4 of the smallest.

    Args:
        problem: budgets, rounds, sampling law and relation.
        group: index of the group.
        ratio: its sampling ratio.
        near: noise multiplier within some percent of the result.

    Raises:
        InfeasibleError: as ``group_noise``.
    """
    budget, accountant = budget_of(problem, group), by_name(GUARANTEE)
    index = round(-math.log(ratio) / STEP / _COARSE) * _COARSE
    slope = _node(budget, min(index, _FAR), False).slope * (
        budget.steepness(math.log(near))
        / budget.steepness(_node(budget, min(index, _FAR), False).log_noise)
    )
    noise, before = rounded_up(near), None
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


def _next(index: int) -> int:
    """The coarse node after a coarse one."""
    return index + (_COARSE if index < _FAR else 2 * _COARSE)


def _before(index: int) -> int:
    """The coarse node before a node; 0 for the first."""
    if index <= _FAR:
        return max(0, (index - 1) // _COARSE * _COARSE)
    return _FAR + (index - 1 - _FAR) // (2 * _COARSE) * 2 * _COARSE


def _through(budget: Budget, indices: list[int], precise: frozenset[int]) -> NoiseCurve:
    """The spline through nodes."""
    order = sorted(indices, reverse=True)
    log_noise = np.array([_node(budget, index, index in precise).log_noise for index in order])
    curve = spline(-STEP * np.array(order, dtype=float), np.maximum.accumulate(log_noise))
    return NoiseCurve(curve.log_ratios, curve.log_noise, curve.slopes, precise)


@lru_cache(maxsize=65_536)
def _node(budget: Budget, index: int, precise: bool) -> Node:
    """The noise multiplier at ``exp(-STEP index)``, started from coarse nodes of larger ratios."""
    log_ratio = -STEP * index
    central = budget.central(math.exp(log_ratio))
    if index == 0:
        return _root(budget, 0.0, central, None, _CLOSE)
    coarse = _next(_before(index)) == index
    if precise and coarse:
        begin = _node(budget, index, False)
        return _root(budget, log_ratio, begin.log_noise, begin.slope, _CLOSE)
    beside = [_before(index)]
    if _before(beside[0]) != beside[0]:
        beside.append(_before(beside[0]))
    if not coarse:
        beside.append(_next(beside[0]))
    nodes = [_node(budget, other, False) for other in beside]
    excess = [
        node.log_noise - budget.central(math.exp(-STEP * other))
        for other, node in zip(beside, nodes, strict=True)
    ]
    start = central + _lagrange(beside, excess, index)
    if coarse:
        slope = nodes[0].slope * budget.steepness(start) / budget.steepness(nodes[0].log_noise)
        return _root(budget, log_ratio, start, slope, _CLOSE_COARSE)
    share = (index - beside[0]) / (beside[-1] - beside[0])
    slope = nodes[0].slope ** (1 - share) * nodes[-1].slope ** share
    return _root(budget, log_ratio, start, slope, _CLOSE)


def _lagrange(places: list[int], values: list[float], at: int) -> float:
    """The polynomial through values, at one place."""
    total = 0.0
    for place, value in zip(places, values, strict=True):
        total += value * math.prod((at - o) / (place - o) for o in places if o != place)
    return total


def _root(
    budget: Budget, log_ratio: float, start: float, slope: float | None, close: float
) -> Node:
    """The noise multiplier at which the estimate of epsilon is the budget.

    Args:
        budget: the budget.
        log_ratio: log q.
        start: first log sigma.
        slope: slope there; measured by a second evaluation when None.
        close: Newton step that ends the search.
    """
    least, most = (math.log(limit) for limit in NOISE_RANGE)
    infeasible, feasible = least, most
    x, plan, points = min(max(start, least), most), None, []
    ratio = min(math.exp(log_ratio), 1.0)
    for _ in range(_MOST_STEPS):
        gap, plan = _gap(budget, ratio, x, plan)
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
                return Node(min(max(following, least), most), slope)
        if not infeasible < following < feasible:
            following = (infeasible + feasible) / 2
        if abs(gap) > _PLAN_REACH:
            plan = None
        if feasible - infeasible < 1e-4:
            break
        x = following
    return Node(feasible, slope or 1.0)


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
