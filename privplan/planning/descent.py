"""Local minimisation of the error: a primal-dual interior-point method.

The error is a sum over groups in their cohorts r and weights w. What couples the groups
is the sum of the cohorts, that of the weights and, in one sum of all groups, the peak t
>= w_m sigma_m / r_m of all groups, a variable of its own. So Newton's equations are 2 x
2 for each group and 3 x 3 for the rest, and some ten steps are enough for any number of
groups. Steps dr, dw and dt are relative to r, w and t.

Four conditions of each group stay positive: r above its lower bound, r below its upper
one, w above its floor, and log t above log (w sigma / r). Their slacks are in units of
r, r, w and 1, and each has a dual variable, the price of the condition.

Source: Nocedal and Wright, Numerical Optimization, 2nd edition, chapter 19.
docs/decisions/optimiser.md compares the method with other solvers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privplan.planning.error import mean_noise_multiplier, terms
from privplan.planning.task import ErrorModel

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_MOST_STEPS = 60
# A search ends when the conditions' prices are worth less than this part of the error
# ...
_SMALLEST_GAP = 1e-9
# ... and its last step was relatively smaller than this.
_SMALLEST_STEP = 1e-3
# How far inside its bounds a search starts, as a part of the way to their middle.
_INSIDE = 0.05
# How far the peak starts above the weighted noise of the groups, and its slack at
# least.
_PEAK_ABOVE = 1.1
_LEAST_PEAK_SLACK = 0.1
# The barrier at the start, for all groups together, relative to the error.
_BARRIER = 0.1
# After a long step the barrier falls to this part of the average of slack times price,
# after a short one more slowly, so that the search does not stick to a bound.
_BARRIER_AFTER_LONG_STEP = 0.1
_BARRIER_AFTER_SHORT_STEP = 0.7
_LONG_STEP = 0.5
# Part of the way to a bound that a step may go (Nocedal and Wright, equation 19.9).
_SHORT_OF_BOUND = 0.995
# Relative distance of ratios for a second derivative of the noise.
_BEND = 1e-3
_AROUND = np.array([1 - _BEND, 1.0, 1 + _BEND])
# A range of cohorts below this part, or weights that floors leave, below the next:
# fixed.
_NO_RANGE = 1e-9
_NO_WEIGHT = 1e-6
# Keeps slacks and weights positive where rounding makes them zero.
_TINY = 1e-12
# The smallest eigenvalue of a group's 2 x 2 block, over its largest one.
_LEAST_CURVATURE = 1e-8

# What the four conditions gain with dr, dw and dt; the last with dr by the noise's
# slope.
_BY_COHORT = np.array([[1.0], [-1.0], [0.0]])
_BY_WEIGHT = np.array([[0.0], [0.0], [1.0], [-1.0]])
_BY_PEAK = np.array([[0.0], [0.0], [0.0], [1.0]])
_PEAK = 3  # index of the condition that the peak is above


class LocalMinimum(NamedTuple):
    """Where a search ended.

    Attributes:
        cohorts: r_m, shape (groups,).
        weight_costs: what another unit of each group's weight costs there, where all
            but
            that weight stays, shape (groups,).
    """

    cohorts: Floats
    weight_costs: Floats


@dataclass(frozen=True)
class BorderedSystem:
    """Linear equations of groups with two unknowns each that meet in three unknowns.

    Group m has a symmetric block B_m and unknowns x_m = (dr_m, dw_m). With borders
    c_mi, corner d_i and the common unknowns y = (dt, price of the cohorts, price of
    weights)

        B_m x_m + c_m0 y_0 - c_m1 y_1 - c_m2 y_2 = g_m     for each group
        sum_m c_mi . x_m + d_i y_i = h_i                   for i = 0, 1, 2

    Attributes:
        rr: upper left entry of each block, shape (groups,).
        rw: both entries off the diagonal, shape (groups,).
        ww: lower right entry, shape (groups,).
        borders: c, shape (2, 3, groups).
        corner: d, shape (3,).
    """

    rr: Floats
    rw: Floats
    ww: Floats
    borders: Floats
    corner: Floats

    def convex(self) -> BorderedSystem:
        """The system with each block's diagonal raised until it is positive definite.

        Where the error is not convex, Newton's step would go to a saddle or a maximum.
        """
        # The eigenvalues of a block are its mean plus and minus its radius.
        mean = (self.rr + self.ww) / 2
        radius = np.hypot((self.rr - self.ww) / 2, self.rw)
        smallest = _LEAST_CURVATURE * (np.abs(mean) + radius)
        lift = np.maximum(smallest - (mean - radius), 0.0)
        rr = self.rr + lift
        ww = self.ww + lift
        return BorderedSystem(rr, self.rw, ww, self.borders, self.corner)

    def solve(self, right: Floats, totals: Floats) -> tuple[Floats, Floats]:
        """The unknowns x, shape (2, groups), and y, shape (3,).

        Args:
            right: g, shape (2, groups).
            totals: h, shape (3,).
        """
        # Each block is eliminated by its inverse, which leaves three equations.
        columns = np.concatenate([self.borders, right[:, None]], axis=1)
        upper = self.ww * columns[0] - self.rw * columns[1]
        lower = self.rr * columns[1] - self.rw * columns[0]
        solved = np.stack([upper, lower])
        solved /= self.rr * self.ww - self.rw**2
        inner = np.einsum("kim,kjm->ij", self.borders, solved)
        matrix = inner[:, :3] * np.array([-1.0, 1.0, 1.0])
        matrix[np.diag_indices(3)] += self.corner
        y = np.linalg.solve(matrix, totals - inner[:, 3])
        x = solved[:, 3] - solved[:, 0] * y[0]
        x = x + solved[:, 1] * y[1] + solved[:, 2] * y[2]
        return x, y


@dataclass(frozen=True)
class _Program:
    """What stays the same during a search. The error at its start is the unit.

    Attributes:
        model: the error and the limits.
        moving: groups whose limits leave a range of cohorts, shape (groups,).
        free: whether floors leave weight to distribute, shape (groups,).
        conditions: which of the four conditions hold a group, shape (4, groups).
        peak: factor on t^2, 0 with one sum per group.
        separate: factor on (w sigma / r)^2, 0 with one sum of all groups.
        sampling: factor on w^2 / r.
        bias: factors on (w - p)^2, shape (groups,).
    """

    model: ErrorModel
    moving: Flags
    free: Flags
    conditions: Flags
    peak: float
    separate: float
    sampling: float
    bias: Floats

    @property
    def joint(self) -> bool:
        """Whether there is one noisy sum of all groups."""
        return self.model.task.release == "joint"


@dataclass
class _Point:
    """Where a search stands.

    Attributes:
        cohorts: r, shape (groups,).
        weights: w, shape (groups,).
        peak: t.
        peak_slack: log t less log (w sigma / r), as far as steps know, shape (groups,).
        prices: the dual variables of the conditions, shape (4, groups).
        barrier: what slack times price is to be.
    """

    cohorts: Floats
    weights: Floats
    peak: float
    peak_slack: Floats
    prices: Floats
    barrier: float

    def slack(self, program: _Program) -> Floats:
        """Slacks of the conditions, 1 where there is none, shape (4, groups)."""
        limits = program.model.task.limits
        values = np.array(
            [
                (self.cohorts - limits.min_cohorts) / self.cohorts,
                (limits.max_cohorts - self.cohorts) / self.cohorts,
                (self.weights - limits.min_weights) / self.weights,
                self.peak_slack,
            ]
        )
        return np.where(program.conditions, np.maximum(values, _TINY), 1.0)


class _Evaluation(NamedTuple):
    """The error at a point, part by part, shape (groups,) each.

    Attributes:
        noise: sigma.
        rise: d log (r / sigma) / d log r.
        bend: d^2 log sigma / (d log r)^2.
        sampling: the part by sampling.
        separate: the part by noise of one sum per group.
        bias_slope: derivative of the bias by relative changes of w, over w - p.
    """

    noise: Floats
    rise: Floats
    bend: Floats
    sampling: Floats
    separate: Floats
    bias_slope: Floats

    def weight_slope(self) -> Floats:
        """Derivative by relative changes of the weights, without the bias."""
        return np.asarray(2 * (self.sampling + self.separate))


class _Conditions(NamedTuple):
    """How the conditions act on a point, shape (4, groups) where not said otherwise.

    Attributes:
        slack: how far they are from their bounds.
        stiffness: price over slack.
        push: barrier over slack, and what corrects ``missing``.
        by_cohort: what they gain with dr.
        by_weight: what they gain with dw.
        missing: what the peak's slack lacks to its true value, shape (groups,).
    """

    slack: Floats
    stiffness: Floats
    push: Floats
    by_cohort: Floats
    by_weight: Floats
    missing: Floats


class _Step(NamedTuple):
    """A step of Newton's method: dr, dw and dt, and what slacks and prices gain."""

    cohorts: Floats
    weights: Floats
    peak: float
    slack: Floats
    prices: Floats


def local_minimum(model: ErrorModel, begin: Floats) -> LocalMinimum:
    """The local minimum that is reached from cohorts within the limits.

    Args:
        model: the error and the limits.
        begin: cohorts within the limits that sum to the cohort, shape (groups,).
    """
    program, point = _start(model, begin)
    for _ in range(_MOST_STEPS):
        evaluation = _evaluate(program, point)
        step = _newton_step(program, point, evaluation)
        if not np.all(np.isfinite(step.prices)):
            break
        gap = _advance(program, point, step)
        largest = max(abs(step.peak), float(np.abs(step.cohorts).max()))
        if gap < _SMALLEST_GAP and largest < _SMALLEST_STEP:
            break
    # The derivative of the error with what the peak's condition is worth, by w itself.
    weights = point.weights
    costs = evaluation.weight_slope() + evaluation.bias_slope * weights
    return LocalMinimum(point.cohorts, (costs + point.prices[_PEAK]) / weights)


def _start(model: ErrorModel, begin: Floats) -> tuple[_Program, _Point]:
    """The program, in units of the error at the start, and the start."""
    cohorts, weights = _moved_inside(model, begin)
    noise = model.noise(cohorts)
    program = _program(model, cohorts, noise, weights)
    groups = len(cohorts)
    peak = _PEAK_ABOVE * mean_noise_multiplier(weights, cohorts, noise, "joint")
    peak_slack = np.log(peak * cohorts / (noise * weights))
    point = _Point(
        cohorts=cohorts,
        weights=weights,
        peak=peak,
        peak_slack=np.maximum(peak_slack, _LEAST_PEAK_SLACK),
        prices=np.empty((4, groups)),
        barrier=_BARRIER / groups,
    )
    point.prices = point.barrier * program.conditions / point.slack(program)
    return program, point


def _moved_inside(model: ErrorModel, begin: Floats) -> tuple[Floats, Floats]:
    """Cohorts, and their best weights, some way towards the middle of their bounds."""
    task = model.task
    lower = task.limits.min_cohorts
    floors = task.limits.min_weights
    width = task.limits.max_cohorts - lower

    # The middle sums to the cohort, too.
    spread = (task.problem.cohort - lower.sum()) / max(float(width.sum()), 1e-300)
    middle = lower + spread * width
    cohorts: Floats = begin + _INSIDE * (middle - begin)

    # The weights go twice as far, to floors that share what is left.
    weights = model.weights(cohorts)
    middle_weights = floors + (1 - float(floors.sum())) / len(lower)
    weights = np.maximum(weights + 2 * _INSIDE * (middle_weights - weights), _TINY)
    return cohorts, weights


def _program(
    model: ErrorModel, cohorts: Floats, noise: Floats, weights: Floats
) -> _Program:
    """The program in units of the error of cohorts, noise and weights."""
    task = model.task
    limits = task.limits
    coefficients = task.coefficients
    error = terms(weights, cohorts, noise, coefficients, task.release).total
    joint = task.release == "joint"
    width = limits.max_cohorts - limits.min_cohorts
    moving = width > _NO_RANGE * limits.max_cohorts
    unbound_weight = 1 - float(limits.min_weights.sum())
    free = np.full(len(cohorts), unbound_weight > _NO_WEIGHT)
    return _Program(
        model=model,
        moving=moving,
        free=free,
        conditions=np.array([moving, moving, free, np.full(len(cohorts), joint)]),
        peak=coefficients.noise / error if joint else 0.0,
        separate=0.0 if joint else coefficients.noise / error,
        sampling=coefficients.sampling / error,
        bias=coefficients.bias / error / coefficients.shares,
    )


def _evaluate(program: _Program, point: _Point) -> _Evaluation:
    """The parts of the error at a point."""
    cohorts = point.cohorts
    weights = point.weights
    ratios = (cohorts / program.model.task.clients)[:, None] * _AROUND
    values = program.model.curves.evaluate(ratios)
    noise = values.noise[:, 1]
    slopes = values.slopes
    return _Evaluation(
        noise=noise,
        rise=1 - slopes[:, 1],
        bend=(slopes[:, 2] - slopes[:, 0]) / (2 * _BEND),
        sampling=program.sampling * weights**2 / cohorts,
        separate=program.separate * (weights * noise / cohorts) ** 2,
        bias_slope=2 * program.bias * weights,
    )


def _conditions(
    program: _Program, point: _Point, evaluation: _Evaluation
) -> _Conditions:
    """How the conditions act on a point."""
    slack = point.slack(program)
    noise_of_weights = evaluation.noise * point.weights
    peak_slack = np.log(point.peak * point.cohorts / noise_of_weights)
    missing = program.conditions[_PEAK] * (peak_slack - slack[_PEAK])
    stiffness = point.prices / slack
    push = point.barrier * program.conditions / slack
    push[_PEAK] -= stiffness[_PEAK] * missing
    by_bounds = _BY_COHORT * program.moving
    return _Conditions(
        slack=slack,
        stiffness=stiffness,
        push=push,
        by_cohort=np.vstack([by_bounds, evaluation.rise * program.moving]),
        by_weight=_BY_WEIGHT * program.free,
        missing=missing,
    )


def _newton_step(program: _Program, point: _Point, evaluation: _Evaluation) -> _Step:
    """The step that solves the linearised conditions of an optimum."""
    conditions = _conditions(program, point, evaluation)
    system = _system(program, point, evaluation, conditions)

    # The gradient of the error less what the conditions push.
    push = conditions.push
    by_cohort = -evaluation.sampling - 2 * evaluation.separate * evaluation.rise
    bias_weights = point.weights - program.model.task.coefficients.shares
    by_weight = evaluation.weight_slope() + evaluation.bias_slope * bias_weights
    gradient = np.array(
        [
            by_cohort * program.moving - (push * conditions.by_cohort).sum(axis=0),
            by_weight * program.free - (push * conditions.by_weight).sum(axis=0),
        ]
    )
    # What the peak's and both sums' conditions lack.
    missing_clients = program.model.task.problem.cohort - point.cohorts.sum()
    totals = np.array(
        [
            push[_PEAK].sum() - 2 * program.peak * point.peak**2,
            missing_clients * program.moving.any(),
            (1 - point.weights.sum()) * program.free.any(),
        ]
    )
    (cohorts, weights), (peak, *_) = system.solve(-gradient, totals)

    slack = conditions.by_cohort * cohorts + conditions.by_weight * weights
    slack = slack + _BY_PEAK * program.conditions * peak
    slack[_PEAK] += conditions.missing
    prices = point.barrier * program.conditions / conditions.slack - point.prices
    prices = prices - conditions.stiffness * slack
    return _Step(cohorts, weights, float(peak), slack, prices)


def _system(
    program: _Program,
    point: _Point,
    evaluation: _Evaluation,
    conditions: _Conditions,
) -> BorderedSystem:
    """Newton's equations: second derivatives of the error and of the conditions."""
    rise = evaluation.rise
    bend = evaluation.bend
    separate = evaluation.separate
    by_cohort = conditions.by_cohort
    by_weight = conditions.by_weight
    stiffness = conditions.stiffness
    peak_prices = point.prices[_PEAK]

    rr = 2 * evaluation.sampling + separate * (4 * rise**2 + 2 * bend + 2 * rise)
    rr = rr + peak_prices * (bend + rise)
    rr = np.where(program.moving, rr, 1.0) + (stiffness * by_cohort**2).sum(axis=0)

    ww = evaluation.weight_slope() + evaluation.bias_slope * point.weights - peak_prices
    ww = np.where(program.free, ww, 1.0) + (stiffness * by_weight**2).sum(axis=0)

    rw = (-2 * evaluation.sampling - 4 * separate * rise) * (
        program.moving & program.free
    )
    rw = rw + (stiffness * by_cohort * by_weight).sum(axis=0)

    # What couples the groups: the peak, and both sums. Where nothing couples them, a
    # one on the diagonal keeps the equations solvable.
    zeros = np.zeros_like(rw)
    peak_stiffness = stiffness[_PEAK]
    borders = np.array(
        [
            [peak_stiffness * by_cohort[_PEAK], point.cohorts * program.moving, zeros],
            [-peak_stiffness * program.free, zeros, point.weights * program.free],
        ]
    )
    peak_curvature = 2 * program.peak * point.peak**2
    peak_curvature += float((peak_prices + peak_stiffness).sum())
    corner = np.array(
        [
            peak_curvature + (not program.joint),
            float(not program.moving.any()),
            float(not program.free.any()),
        ]
    )
    return BorderedSystem(rr, rw, ww, borders, corner).convex()


def _advance(program: _Program, point: _Point, step: _Step) -> float:
    """Take a step as far as all slacks and prices stay positive.

    Returns:
        What the conditions' prices are still worth: slack times price, over all.
    """
    slack = point.slack(program)
    conditions = program.conditions
    peak_part = _part_inside(np.ones(1), np.array([step.peak]))
    slack_part = min(_part_inside(slack, step.slack), peak_part)
    price_part = _part_inside(np.where(conditions, point.prices, 1.0), step.prices)

    cohort_growth = 1 + slack_part * step.cohorts
    weight_growth = 1 + slack_part * step.weights
    # Slacks are in units of r and w, so that prices grow with what these are.
    units = [cohort_growth, cohort_growth, weight_growth, np.ones_like(cohort_growth)]
    slack = slack + slack_part * step.slack
    point.cohorts = point.cohorts * cohort_growth
    point.weights = point.weights * weight_growth
    point.peak = point.peak * (1 + slack_part * step.peak)
    point.peak_slack = slack[_PEAK]
    point.prices = (point.prices + price_part * step.prices) * np.array(units)

    gap = float((point.prices * slack).sum())
    is_long = min(slack_part, price_part) > _LONG_STEP
    if is_long:
        decrease = _BARRIER_AFTER_LONG_STEP
    else:
        decrease = _BARRIER_AFTER_SHORT_STEP
    point.barrier = gap / max(int(conditions.sum()), 1) * decrease
    return gap


def _part_inside(values: Floats, steps: Floats) -> float:
    """The part of the steps, at most all, after which the values are still positive."""
    return min(_SHORT_OF_BOUND / max(float(np.max(-steps / values)), 1e-300), 1.0)
