"""Multi-start search for the cohorts, noise multipliers and weights of least weighted error.

Noise multipliers come from curves during the search, which are refined around its optimum, and are
calibrated exactly at its end; the result is compared with a lower bound from Lagrangian duality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privplan.planning.error import (
    Allocation,
    Coefficients,
    ReleaseKind,
    best,
    fill,
    mean_noise_multiplier,
    terms,
)
from privplan.planning.noise import (
    GUARANTEE,
    NoiseCurves,
    curves_of,
    least_noise,
    on_one_side,
)
from privplan.planning.problem import Limits, Problem, whole_cohorts

Floats = NDArray[np.float64]
# --- The search task, and the error of a choice of cohorts. --------------------------------------


@dataclass(frozen=True)
class Task:
    """Everything that the error of a choice of cohorts depends on."""

    problem: Problem  # the planning problem
    limits: Limits  # bounds on the decisions
    coefficients: Coefficients  # coefficients of the error terms
    release: ReleaseKind  # one noisy sum of all groups, or one per group
    accountant: str  # the accountant that calibrates

    @property
    def clients(self) -> Floats:
        """N_m, shape (groups,)."""
        return np.asarray(self.problem.clients, dtype=float)


def weights_of(task: Task, cohorts: Floats, noise: Floats) -> Floats:
    """The best weights for given cohorts and noise."""
    return best(
        cohorts, noise, task.coefficients, task.release, task.limits.min_weights
    )


def error_of(task: Task, cohorts: Floats, noise: Floats) -> float:
    """The error of cohorts and noise with the task's weights."""
    chosen = weights_of(task, cohorts, noise)
    return terms(chosen, cohorts, noise, task.coefficients, task.release).total


def _noise(task: Task, curves: NoiseCurves, cohorts: Floats) -> Floats:
    return curves.at(cohorts / task.clients)[0]


# --- Local minimisation: a primal-dual interior-point method. ------------------------------------
# The error is a sum over groups in their cohorts r and weights w. What couples the groups is the
# sum of the cohorts, that of the weights and, in one sum of all groups, the peak
# t >= w_m sigma_m / r_m of all groups, a variable of its own. So Newton's equations are 2 x 2 for
# each group and 3 x 3 for the rest, and some ten steps are enough for any number of groups. Steps
# dr, dw and dt are relative to r, w and t. Four conditions of each group stay positive: r above
# and below its bounds, w above its floor, and log t above log (w sigma / r).
# docs/decisions/optimiser.md compares it with other solvers.

_MOST_STEPS = 60
_SMALLEST = (
    1e-9  # part of the error that the conditions' prices may still be worth at the end
)
_INSIDE = 0.05  # how far inside its bounds a search starts, as a part of the way to their middle
_BEND = 1e-3  # relative distance of ratios for a second derivative of the noise
_AROUND = np.array([1 - _BEND, 1.0, 1 + _BEND])
_BY_R, _BY_W, _BY_T = np.array([[1.0, -1, 0, 0], [0, 0, 1, -1], [0, 0, 0, 1]])[
    :, :, None
]
"""What the conditions gain with dr, dw and dt; the last one with dr by the slope of the noise."""


def project(values: Floats, lower: Floats, upper: Floats, total: float) -> Floats:
    """Projects values onto [lower, upper] and the sum ``total``, in Euclidean norm."""
    return fill(values, np.ones_like(values), lower, upper, total)[0]


def _far(values: Floats, steps: Floats) -> float:
    """The part of the steps, at most all, after which the values are still positive."""
    return min(0.995 / max(float(np.max(-steps / values)), 1e-300), 1.0)


def _descent(task: Task, curves: NoiseCurves, begin: Floats) -> tuple[Floats, Floats]:
    """The cohorts of a local minimum that is reached from cohorts within the limits.

    And what another unit of each group's weight costs there, where all but that weight stays.
    """
    limits, given, clients = task.limits, task.coefficients, task.clients
    low, high, floors = limits.min_cohorts, limits.max_cohorts, limits.min_weights
    total, width, left = task.problem.cohort, high - low, 1 - float(floors.sum())
    joint, shares = task.release == "joint", given.shares
    moving, free = width > 1e-9 * high, np.full(len(low), left > 1e-6)
    on = np.array([moving, moving, free, np.full(len(low), joint)])
    middle = low + (total - low.sum()) / max(float(width.sum()), 1e-300) * width
    r: Floats = begin + _INSIDE * (middle - begin)
    noise = curves.at(r / clients)[0]
    w = best(r, noise, given, task.release, floors)
    w = np.maximum(w + 2 * _INSIDE * (floors + left / len(low) - w), 1e-12)
    t = 1.1 * mean_noise_multiplier(w, r, noise, "joint")
    start = terms(w, r, noise, given, task.release).total
    peak, each = np.array([joint, not joint]) * given.noise / start
    sampling, bias = given.sampling / start, given.bias / start / shares
    above = np.maximum(np.log(t * r / (noise * w)), 0.1)
    barrier, dual = 0.1 / len(low), np.full(on.shape, np.nan)
    for _ in range(_MOST_STEPS):
        values = np.array([(r - low) / r, (high - r) / r, (w - floors) / w, above])
        slack = np.where(on, np.maximum(values, 1e-12), 1.0)
        dual = np.where(np.isnan(dual), barrier * on / slack, dual)
        sigma, slopes = curves.at((r / clients)[:, None] * _AROUND)
        noise, rise = sigma[:, 1], 1 - slopes[:, 1]
        bend = (slopes[:, 2] - slopes[:, 0]) / (2 * _BEND)
        by_r = np.vstack([_BY_R[:3] * moving, rise * moving])
        by_w = _BY_W * free
        # gradient and second derivatives of the error less what the conditions are worth
        missing = on[3] * (np.log(t * r / (noise * w)) - slack[3])
        stiff, push = dual / slack, barrier * on / slack
        push[3] -= stiff[3] * missing
        spread, apart, own = (
            sampling * w**2 / r,
            each * (w * noise / r) ** 2,
            2 * bias * w,
        )
        in_r = (-spread - 2 * apart * rise) * moving - (push * by_r).sum(axis=0)
        in_w = (2 * (spread + apart) + own * (w - shares)) * free - (push * by_w).sum(
            axis=0
        )
        rr = (
            2 * spread
            + apart * (4 * rise**2 + 2 * bend + 2 * rise)
            + dual[3] * (bend + rise)
        )
        rr = np.where(moving, rr, 1.0) + (stiff * by_r**2).sum(axis=0)
        ww = 2 * (spread + apart) + own * w - dual[3]
        ww = np.where(free, ww, 1.0) + (stiff * by_w**2).sum(axis=0)
        rw = (-2 * spread - 4 * apart * rise) * (moving & free) + (
            stiff * by_r * by_w
        ).sum(axis=0)
        middle, apart_by = (rr + ww) / 2, np.hypot((rr - ww) / 2, rw)
        lift = np.maximum(1e-8 * (np.abs(middle) + apart_by) - (middle - apart_by), 0.0)
        rr, ww = rr + lift, ww + lift
        # what couples the groups: the peak, and both sums
        sides = np.array(
            [
                [stiff[3] * by_r[3], r * moving, 0 * r],
                [-stiff[3] * free, 0 * w, w * free],
            ]
        )
        columns = np.concatenate([sides, -np.array([in_r, in_w])[:, None]], axis=1)
        solved = np.stack(
            [ww * columns[0] - rw * columns[1], rr * columns[1] - rw * columns[0]]
        )
        solved /= rr * ww - rw**2
        inner = np.einsum("kim,kjm->ij", sides, solved)
        matrix = inner[:, :3] * np.array([-1.0, 1.0, 1.0])
        matrix[0, 0] += (
            2 * peak * t**2 + float((dual[3] + stiff[3]).sum()) + (not joint)
        )
        matrix[[1, 2], [1, 2]] += [not moving.any(), not free.any()]
        gaps = np.array([push[3].sum() - 2 * peak * t**2, total - r.sum(), 1 - w.sum()])
        gaps[1:] *= [moving.any(), free.any()]
        dt, *prices = np.linalg.solve(matrix, gaps - inner[:, 3])
        dr, dw = (
            solved[:, 3]
            - solved[:, 0] * dt
            + solved[:, 1] * prices[0]
            + solved[:, 2] * prices[1]
        )
        gain = by_r * dr + by_w * dw + _BY_T * on * dt
        gain[3] += missing
        change = barrier * on / slack - dual - stiff * gain
        if not np.all(np.isfinite(change)):
            break
        part = min(_far(slack, gain), _far(np.ones(1), np.array([dt])))
        length = _far(np.where(on, dual, 1.0), change)
        grown = [1 + part * dr, 1 + part * dr, 1 + part * dw, np.ones_like(dr)]
        r, w, t = r * grown[0], w * grown[2], t * (1 + part * dt)
        above, dual = (
            slack[3] + part * gain[3],
            (dual + length * change) * np.array(grown),
        )
        left_over = float((dual * (slack + part * gain)).sum())
        barrier = (
            left_over
            / max(int(on.sum()), 1)
            * (0.1 if min(part, length) > 0.5 else 0.7)
        )
        if left_over < _SMALLEST and max(abs(dt), float(np.abs(dr).max())) < 1e-3:
            break
    return r, (2 * (spread + apart) + own * w + dual[3]) / w


# --- Lower bounds on the error over all cohorts and weights, by Lagrangian duality. --------------
# With a multiplier lambda on the cohort constraint the groups separate; each is solved on a fine
# grid of cohorts, so the bound needs no convexity of the noise.
#
# The bias term is not negative, so a bound for a smaller h is a bound, too. Where h^2 dwarfs the
# error, the bound for h itself is a difference of nearly equal numbers, and smaller h have a
# sharper one.
#
# - One sum per group: the error plus h^2 is 1 / sum_m F_m(r_m) with
#   F_m = 1 / (A sigma_m^2 / r_m^2 + b_m), and sum F <= lambda R + sum_m max_r (F_m - lambda r)
#   for every lambda.
# - One sum of all groups: with u = sum v the error plus h^2 is (A + phi(u)) / u^2, where phi is
#   the least sum b_m v_m^2. For every slope nu and price lambda,
#   phi(u) >= nu u - lambda R + sum_m min_{r, v <= H_m(r)} (b_m v^2 - nu v + lambda r).
#   Between the points where two such lines cross, (A + line) / u^2 has no inner minimum, so the
#   bound is the least value at the crossings and at the largest u that any cohorts reach.
#
# Floors on weights give every group a price c_m with sum c w >= 1 for all weights within them. So
# c_m nu takes the place of nu above, and c_m^2 F_m that of F_m; without floors, all c_m are 1.
# The prices are what a unit of weight costs at the end of a search.

_GRID, _FINE = 200, 0.02
"""Points of the grid over all cohorts; its steps are least and even so far around those found."""
_SLOPES = np.exp([-3.0, -0.5, -0.05, -0.005, 0.0, 0.005, 0.05, 0.5, 3.0])
_MOST_LINES = 40  # slopes of first lines below phi over the tangent, and how many more
_BISECTIONS = 26
_HINTS = 3
_SMALLER_BIAS = (
    100.0,
    30.0,
    10.0,
    3.0,
    0.0,
)  # squares of smaller h that are tried, over the error


def relative_gap(
    task: Task, curves: NoiseCurves, cohorts: Floats, enough: float
) -> tuple[float, list[Floats]]:
    """How far cohorts may be above the least error, over theirs; and cohorts that meet bounds."""
    noise, given, floors = (
        _noise(task, curves, cohorts),
        task.coefficients,
        task.limits.min_weights,
    )
    prices, chosen = np.ones_like(cohorts), weights_of(task, cohorts, noise)
    nu = mean_noise_multiplier(chosen, cohorts, noise, task.release)
    value = terms(chosen, cohorts, noise, given, task.release).total
    smaller = [
        value * factor for factor in _SMALLER_BIAS if value * factor < given.bias
    ]
    gap, hints = 1.0, np.empty((0, len(cohorts)))
    for bias in (given.bias, *smaller):
        reduced = replace(task, coefficients=replace(given, bias=bias))
        error = terms(chosen, cohorts, noise, reduced.coefficients, task.release).total
        if floors.any():
            costs = _descent(reduced, curves, cohorts)[1]
            costs = np.where(floors > 0, costs, costs.min())
            prices = costs / (costs.min() + float((costs - costs.min()) @ floors))
        bound, found = lower_bound(
            reduced, curves, 2 * (error + bias) / nu, prices, cohorts
        )
        hints = np.vstack([hints, found])
        gap = min(gap, max((value - bound) / value, 0.0))
        if gap <= enough:
            return gap, []
    limits = task.limits
    starts = [
        project(one, limits.min_cohorts, limits.max_cohorts, task.problem.cohort)
        for one in np.unique(hints, axis=0)
    ]
    starts.sort(key=lambda one: error_of(task, one, _noise(task, curves, one)))
    return gap, starts[:_HINTS]


def lower_bound(
    task: Task, curves: NoiseCurves, tangent: float, prices: Floats, near: Floats
) -> tuple[float, Floats]:
    """A lower bound on the error over all cohorts and weights within limits, and where it is met.

    Sharpest where ``tangent`` is the slope of phi at the least error and ``near`` its cohorts.
    Cohorts by which it is met sum to about the cohort only, shape (cases, groups).
    """
    limits, coefficients, total = task.limits, task.coefficients, task.problem.cohort
    ends = np.arcsinh(
        np.log(np.array([limits.min_cohorts, limits.max_cohorts]) / near) / _FINE
    )
    grid = near[:, None] * np.exp(
        _FINE * np.sinh(np.linspace(ends[0], ends[1], _GRID, axis=1))
    )
    reach = grid / curves.at(grid / task.clients[:, None])[0]
    costs = (
        coefficients.sampling / grid
        + (coefficients.bias / coefficients.shares)[:, None]
    )
    price, paid = coefficients.noise, prices[:, None]
    if task.release == "per_group":
        gain = paid**2 / (price / reach**2 + costs)
        most, cohorts = _dual_maximum(gain[None], grid, total)
        return 1 / float(most[0]) - coefficients.bias, cohorts
    most, cohorts = _dual_maximum(np.stack([reach, paid * reach]), grid, total)
    highest = float(most.min())
    if not np.any(costs > 0):
        return price / highest**2, cohorts
    # lines below phi: where the bound is least, another one is drawn between the two that cross
    lines: list[tuple[float, float]] = []
    met, new = [], (tangent * _SLOPES).tolist()
    for _ in range(_MOST_LINES):
        steep = np.array(new)[:, None, None] * paid
        chosen = np.minimum(reach, steep / (2 * costs))
        values, cohorts = _dual_maximum((steep - costs * chosen) * chosen, grid, total)
        met.append(cohorts)
        lines = sorted([*lines, *zip(new, values.tolist(), strict=True)])
        slopes, values = np.array(lines).T
        crossings = np.diff(values) / np.diff(slopes)
        where = np.concatenate([values[:1] / slopes[:1], crossings, [highest]])
        inside = (where > 0) & (where <= highest * (1 + 1e-12))
        floor = np.max(np.outer(where, slopes) - values, axis=1)
        bounds = np.full(len(where), np.inf)
        bounds[inside] = (price + np.maximum(floor, 0.0))[inside] / where[inside] ** 2
        place = int(bounds.argmin())
        if not 0 < place < len(lines) or slopes[place] < slopes[place - 1] * (1 + 1e-6):
            break
        new = [math.sqrt(slopes[place - 1] * slopes[place])]
    return float(bounds.min()) - coefficients.bias, np.vstack(met)


def _dual_maximum(gain: Floats, grid: Floats, total: float) -> tuple[Floats, Floats]:
    """Upper bounds on sum_m gain_m(r_m) with sum r = total: the least dual values evaluated.

    Bisection on the multiplier, by the sum of the cohorts that maximise the Lagrangian. Also those
    cohorts at both ends of the last interval.
    """
    low, high = np.zeros(len(gain)), np.max(gain / grid, axis=(1, 2)) * 2
    problems, rows = np.arange(len(gain))[:, None], np.arange(len(grid))
    least, reduced = np.full(len(gain), np.inf), np.empty_like(gain)
    ends = np.zeros((2, len(gain), len(grid)))
    for _ in range(_BISECTIONS):
        price = (low + high) / 2
        np.multiply(price[:, None, None], grid, out=reduced)
        np.subtract(gain, reduced, out=reduced)
        chosen = np.argmax(reduced, axis=2)
        least = np.minimum(
            least, price * total + _peaks(reduced, grid, chosen).sum(axis=1)
        )
        cohorts = grid[rows, chosen]
        above = cohorts.sum(axis=1) > total
        low, high = np.where(above, price, low), np.where(above, high, price)
        ends[above.astype(int), problems[:, 0]] = cohorts
    return least, ends[ends.sum(axis=2) > 0]


def _peaks(values: Floats, grid: Floats, chosen: NDArray[np.intp]) -> Floats:
    """Upper bounds on the maxima between grid points, by the largest ``values`` [cases, groups].

    A function that is concave around its maximum lies, between two points, below the lines
    through the two points before and the two after.
    """
    cases, rows, last = (
        np.arange(len(values))[:, None],
        np.arange(len(grid)),
        grid.shape[1] - 1,
    )
    at = np.minimum(np.maximum(chosen + np.arange(-2, 3)[:, None, None], 0), last)
    points = list(zip(grid[rows, at], values[cases, rows, at], strict=True))
    found = points[2][1]
    for (x0, f0), (x1, f1), (x2, f2), (x3, f3) in (points[1:], points[3::-1]):
        with np.errstate(
            all="ignore"
        ):  # at ends of the grid a line is missing, its slope is NaN
            before, after = (f1 - f0) / (x1 - x0), (f3 - f2) / (x3 - x2)
            meet = (f2 - f1 + before * x1 - after * x2) / (before - after)
            meet = np.minimum(np.maximum(meet, np.minimum(x1, x2)), np.maximum(x1, x2))
            both = np.fmin(f1 + before * (meet - x1), f2 + after * (meet - x2))
            alone = np.fmin(f1 + before * (x2 - x1), f2 + after * (x1 - x2))
        found = np.fmax(found, np.where(np.isnan(both), alone, both))
    return np.asarray(found)


# --- The search: curves, local searches, refined curves, bound, calibrated noise. ----------------

_STARTS = 8
_FEW_STARTS = 2
_REFINEMENTS = 6
_MOVED = 0.6  # how far an optimum may move after its curve was refined, over its reach
_PROVEN = 1e-3
_SETTLED = 1e-4  # gap to the dual bound below which there are no further searches
NEGLIGIBLE = (
    0.02  # weight over population share below which a group has a negligible weight
)


def allocate(task: Task) -> Allocation:
    """Returns the cohorts, noise and weights of least error, calibrated."""
    task, curves, starts = _prepared(task)
    used = starts[:_FEW_STARTS]
    curves, cohorts, agreeing = _optimum(task, curves, used)
    gap, hints = relative_gap(task, curves, cohorts, _SETTLED)
    if len(starts) > 1 and gap > _SETTLED:
        used = [*used, *hints, *starts[_FEW_STARTS:]][:_STARTS]
        curves, cohorts, agreeing = _optimum(task, curves, used)
        gap = relative_gap(task, curves, cohorts, _SETTLED)[0]
    kind = "optimal" if gap <= _PROVEN else "multi-start"
    status = f"{kind}: within {gap:.2g} of the dual bound; "
    status += f"best of {len(used)} searches" + f", {agreeing} of them agree" * (
        agreeing > 0
    )
    if task.problem.sampling.law.whole_cohorts:
        cohorts = _whole(task, curves, cohorts)
        status += "; then rounded to whole cohorts"
    ratios, near = (
        np.minimum(cohorts / task.clients, 1.0),
        _noise(task, curves, cohorts),
    )
    # bounds of very rare participation are costly, and nothing depends on a negligible group
    small = weights_of(task, cohorts, near) < NEGLIGIBLE * task.coefficients.shares
    noise = np.array(
        [
            least_noise(
                task.problem,
                m,
                ratios[m],
                task.accountant,
                float(near[m]),
                1e-2 if small[m] else 1e-4,
            )
            for m in range(len(cohorts))
        ]
    )
    return Allocation(
        cohorts, noise, weights_of(task, cohorts, noise), task.release, status
    )


def estimated(task: Task) -> Allocation:
    """``allocate`` with the noise of the curves, within 1e-3: to compare many tasks."""
    task, curves, starts = _prepared(task)
    curves, cohorts, _ = _optimum(task, curves, starts[:_FEW_STARTS])
    if task.problem.sampling.law.whole_cohorts:
        cohorts = _whole(task, curves, cohorts)
    noise = _noise(task, curves, cohorts)
    return Allocation(
        cohorts, noise, weights_of(task, cohorts, noise), task.release, "estimated"
    )


def _prepared(task: Task) -> tuple[Task, NoiseCurves, list[Floats]]:
    """The task with groups on one side of jumps, its curves, and starts of the search."""
    clients, total = task.clients, task.problem.cohort
    published = clients / np.sqrt(np.asarray(task.problem.closed_form_factors))
    shapes = [clients, published]
    for size in (1, 2):
        for chosen in combinations(range(len(clients)), size):
            subset = np.zeros_like(clients)
            subset[list(chosen)] = published[list(chosen)]
            shapes.append(subset)
            if len(shapes) == _STARTS:
                break
    starts = [total * shape / shape.sum() for shape in shapes[:_STARTS]]
    limits = task.limits
    rest = float(limits.min_cohorts.sum()) - limits.min_cohorts
    most = np.maximum(np.minimum(limits.max_cohorts, total - rest), limits.min_cohorts)
    limits = replace(limits, max_cohorts=most)
    if task.accountant == GUARANTEE:
        equal = project(starts[0], limits.min_cohorts, limits.max_cohorts, total)
        limits = on_one_side(task.problem, limits, equal)
    starts = [
        project(one, limits.min_cohorts, limits.max_cohorts, total) for one in starts
    ]
    return (
        replace(task, limits=limits),
        curves_of(task.problem, limits, task.accountant),
        starts,
    )


def _optimum(
    task: Task, curves: NoiseCurves, starts: Sequence[Floats]
) -> tuple[NoiseCurves, Floats, int]:
    """The curves refined at the optimum, its cohorts, and how many searches agreed on it."""
    limits = task.limits
    low, high, total = limits.min_cohorts, limits.max_cohorts, task.problem.cohort
    if min(np.max(high - low), total - low.sum(), high.sum() - total) <= 1e-9 * total:
        return curves, starts[0], len(starts)  # the limits leave one choice
    cohorts, agreeing = _search(task, curves, starts)
    refined, least, found = np.full(len(cohorts), np.inf), np.inf, (curves, cohorts)
    reaches = _MOVED * np.array([curve.reach for curve in curves.curves])
    for _ in range(_REFINEMENTS):
        places = np.log(np.minimum(cohorts / task.clients, 1.0))
        chosen = weights_of(task, cohorts, _noise(task, curves, cohorts))
        far = np.abs(places - refined) > reaches
        far &= chosen >= NEGLIGIBLE * task.coefficients.shares
        if far.any():
            refined = np.where(far, places, refined)
            curves = NoiseCurves(
                [
                    curve.refined(float(np.exp(places[m]))) if far[m] else curve
                    for m, curve in enumerate(curves.curves)
                ]
            )
        # only where curves are refined do they tell the error of cohorts well enough to compare
        if (value := error_of(task, cohorts, _noise(task, curves, cohorts))) < least:
            least, found = value, (curves, cohorts)
        # other searches may end lower on the refined curves, where they did not agree before
        if not far.any() and agreeing == len(starts):
            break
        other, _ = _search(task, curves, [cohorts] if far.any() else [cohorts, *starts])
        if not far.any() and np.all(np.abs(np.log(other / cohorts)) <= reaches):
            break
        cohorts = other
    return *found, agreeing


def _search(
    task: Task, curves: NoiseCurves, starts: Sequence[Floats]
) -> tuple[Floats, int]:
    """Returns the best of several local searches, and how many of them reached it."""
    limits, total = task.limits, task.problem.cohort
    found = [
        project(
            _descent(task, curves, start)[0],
            limits.min_cohorts,
            limits.max_cohorts,
            total,
        )
        for start in starts
    ]
    every = [*found, *starts]
    values = np.array([error_of(task, one, _noise(task, curves, one)) for one in every])
    least = int(values.argmin())
    return every[least], int(np.sum(values[: len(found)] <= values[least] * (1 + 1e-4)))


_MOVES = 8


def _whole(task: Task, curves: NoiseCurves, cohorts: Floats) -> Floats:
    """Rounds cohorts to whole numbers, then improves them by single moves between groups."""

    def error(at: Floats) -> float:
        return error_of(task, at, _noise(task, curves, at))

    low, high = (
        task.limits.min_cohorts,
        np.minimum(task.limits.max_cohorts, task.clients),
    )
    whole = whole_cohorts(cohorts, high, round(task.problem.cohort))
    whole = np.clip(whole, low, high)
    least = error(whole)
    while True:
        # the groups that lose least by a client less, and those that gain most by one more
        units = np.eye(len(whole))
        costs = [
            error(whole - unit) if np.all(whole - unit >= low) else np.inf
            for unit in units
        ]
        gains = [
            error(whole + unit) if np.all(whole + unit <= high) else np.inf
            for unit in units
        ]
        moves = [
            whole - units[giver] + units[taker]
            for giver in np.argsort(costs)[:_MOVES]
            for taker in np.argsort(gains)[:_MOVES]
            if giver != taker
            and np.isfinite(costs[giver])
            and np.isfinite(gains[taker])
        ]
        values = [error(move) for move in moves]
        if not moves or min(values) >= least * (1 - 1e-12):
            return whole
        whole, least = moves[int(np.argmin(values))], min(values)
