"""Noise multipliers that spend a budget, on a lattice of sampling ratios ``exp(-STEP k)``.

A node is a pure function of its budget and place: what was computed before only saves time. Each
is the root of an estimate of epsilon (``epsilon_estimate``; ``ComposedLoss.estimate`` where that
does not serve): Newton's method with the slope that the node beside it had.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from privplan.accounting.gdp import epsilon_of, mu_of
from privplan.accounting.noise_families import dominating_pairs
from privplan.accounting.pld.accountant import compose
from privplan.accounting.pld.direction import Reading
from privplan.accounting.pld.dominating_pairs import LARGEST_SHIFT
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.accounting.target import NOISE_RANGE, least_certified
from privplan.errors import TooLittleNoiseError
from privplan.laws.pairs import Pair
from privplan.planning.problem import Problem

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
    """Largest sampling ratio at which a client ever takes part with a chance of at most delta.

    Args:
        delta: failure probability.
        rounds: number of rounds, each with an independent draw.
    """
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
    """The noise multiplier at ``exp(-STEP index)``, started from coarse nodes of larger ratios.

    Args:
        budget: the budget.
        index: the place, 0 or more.
        precise: within some 1e-4 instead of 1e-3.
    """
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
    """The noise multiplier at which the estimate of epsilon is the budget.

    Args:
        budget: the budget.
        log_ratio: log q.
        start: first log sigma.
        slope: slope there; measured by a second evaluation when None.
        close: Newton step that ends the search.
    """
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
    from privplan.accounting.pld.inversion import epsilon_estimate

    release = Release(math.exp(log_noise), ratio, budget.sampling)
    pair = dominating_pairs(release, budget.relation).upper[0]
    if isinstance(pair, Pair) and pair.shift > LARGEST_SHIFT:
        return math.inf, None
    spent = epsilon_estimate(pair, budget.rounds, budget.delta, budget.epsilon)
    return None if spent is None else (math.log(spent / budget.epsilon), None)
