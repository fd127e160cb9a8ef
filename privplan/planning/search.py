"""Multi-start search for the cohorts, noise multipliers and weights of least weighted error.

Noise multipliers come from interpolated curves during the search and are calibrated exactly at
its end; the result is compared with a lower bound from Lagrangian duality. Where the noise of a
group jumps with its ratio, both sides of the jump are searched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.errors import InfeasibleError
from privplan.planning.error import (
    Allocation,
    Coefficients,
    ReleaseKind,
    best_weights,
    floor_prices,
    least_error,
    least_error_with_floors,
    mean_noise_multiplier,
    terms,
)
from privplan.planning.error import weights as weights_by_rule
from privplan.planning.noise import (
    FROM_LOSSES,
    GUARANTEE,
    NoiseCurves,
    above_jumps,
    build_curve,
    cheaper,
    group_noise,
    least_noise,
    refine,
    sides_of_jumps,
)
from privplan.planning.problem import Limits, Problem, whole_cohorts

# --- Local minimisation under bounds and one sum constraint, and the projection onto them. -------
#
# ``descend`` is for smooth objectives, ``descend_worst`` for a smooth part plus a squared maximum.
# docs/decisions/optimiser.md has the reason for an own SQP.

Floats = NDArray[np.float64]

_MOST_STEPS = 200
_LEAST_GAIN = 1e-12
_MANY = 8
"""From so many values on arrays are faster than lists."""


def project(values: Floats, lower: Floats, upper: Floats, total: float) -> Floats:
    """Projects values onto [lower, upper] and the sum ``total``, in Euclidean norm."""
    if len(values) < _MANY:
        few = _projected(values.tolist(), lower.tolist(), upper.tolist(), total)
        return np.array(few, dtype=np.float64)
    low, high = float(np.min(lower - values)), float(np.max(upper - values))
    least, most = _clipped(values + low, lower, upper), _clipped(values + high, lower, upper)
    for _ in range(200):
        shift, before = (low + high) / 2, (low, high)
        middle = _clipped(values + shift, lower, upper)
        if middle.sum() < total:
            low, least = shift, middle
        else:
            high, most = shift, middle
        if before == (low, high) or (least == most).all():
            break
    return most


def _projected(
    values: list[float], lower: list[float], upper: list[float], total: float
) -> list[float]:
    """``project`` of a few values: the same bits without NumPy's overhead for short arrays."""
    bounds = list(zip(values, lower, upper, strict=True))

    def clipped(shift: float) -> list[float]:
        moved = []
        for value, least, most in bounds:
            value += shift
            value = least if value < least else value
            moved.append(most if value > most else value)
        return moved

    low = min(least - value for value, least, _ in bounds)
    high = max(most - value for value, _, most in bounds)
    below, above = clipped(low), clipped(high)
    for _ in range(200):
        shift, before = (low + high) / 2, (low, high)
        middle, mass = clipped(shift), 0.0
        for value in middle:  # as NumPy adds fewer than eight numbers; sum() compensates rounding
            mass += value
        if mass < total:
            low, below = shift, middle
        else:
            high, above = shift, middle
        if before == (low, high) or below == above:
            break
    return above


def _clipped(values: Floats, lower: Floats, upper: Floats) -> Floats:
    """``np.clip``, without the overhead that dominates it for a few values."""
    return np.asarray(np.minimum(np.maximum(values, lower), upper))


def descend(
    objective: Callable[[Floats], float],
    start: Floats,
    lower: Floats,
    upper: Floats,
    total: float,
    with_gradient: Callable[[Floats], tuple[float, Floats]] | None = None,
) -> Floats:
    """Returns a local minimiser over values in [lower, upper] that sum to ``total``.

    Sequential quadratic programming on shares of the total, with a BFGS approximation of the
    Hessian and a line search; all iterates satisfy the constraints up to rounding.
    """
    evaluated = start  # the gradient where the objective was last evaluated

    def value(at: Floats) -> float:
        nonlocal evaluated
        if with_gradient is None:
            return objective(total * at)
        found, evaluated = with_gradient(total * at)
        return found

    def gradient(at: Floats) -> Floats:
        """At the point of the last value."""
        return _gradient(value, at) if with_gradient is None else total * evaluated

    shares = project(start, lower, upper, total) / total
    current, slope = value(shares), gradient(shares)
    curvature = np.eye(len(shares))
    for _ in range(_MOST_STEPS):
        room = lower / total - shares, upper / total - shares
        try:
            step = quadratic_step(curvature, slope, *room)
        except np.linalg.LinAlgError:  # next to a kink the approximation bends without bound
            curvature = np.eye(len(shares))
            step = quadratic_step(curvature, slope, *room)
        predicted = float(slope @ step)
        if predicted > -_LEAST_GAIN:
            break
        moved, found = _line_search(value, shares, step, current, predicted)
        if found >= current:
            if np.array_equal(curvature, np.eye(len(shares))):
                break
            curvature = np.eye(len(shares))
            continue
        new = gradient(moved)
        curvature = _bfgs_update(curvature, moved - shares, new - slope)
        shares, current, slope = moved, found, new
    return project(total * shares, lower, upper, total)


def _gradient(value: Callable[[Floats], float], at: Floats) -> Floats:
    """Gradient by central differences, relative step 1e-6."""
    found = np.empty_like(at)
    for index, share in enumerate(at):
        reach = 1e-6 * share
        above, below = at.copy(), at.copy()
        above[index] += reach
        below[index] -= reach
        found[index] = (value(above) - value(below)) / (2 * reach)
    return found


def _line_search(
    value: Callable[[Floats], float], at: Floats, step: Floats, current: float, predicted: float
) -> tuple[Floats, float]:
    """Backtracking line search with the Armijo condition; returns ``at`` when no step meets it."""
    length = 1.0
    while length > 1e-10:
        moved = at + length * step
        found = value(moved)
        if found <= current + 1e-4 * length * predicted:
            return moved, found
        length /= 2
    return at, current


def _bfgs_update(curvature: Floats, step: Floats, change: Floats) -> Floats:
    """Damped BFGS update, which stays positive definite (Powell, 1978)."""
    bent = curvature @ step
    along = float(step @ bent)
    gain = float(step @ change)
    if along <= 0:
        return curvature
    if gain < 0.2 * along:
        mix = 0.8 * along / (along - gain)
        change = mix * change + (1 - mix) * bent
        gain = float(step @ change)
    return np.asarray(curvature - np.outer(bent, bent) / along + np.outer(change, change) / gain)


def quadratic_step(curvature: Floats, slope: Floats, lower: Floats, upper: Floats) -> Floats:
    """Minimises slope @ p + p @ curvature @ p / 2 over p with sum p = 0 inside bounds.

    Active-set method: solves for the free entries, adds the first bound that a step would
    cross, and drops a bound whose multiplier has the wrong sign.
    """
    size = len(slope)
    step, active = np.zeros(size), np.zeros(size, dtype=int)
    for _ in range(20 * size):
        free = np.flatnonzero(active == 0)
        pull = slope + curvature @ step
        move, level = _free_move(curvature, pull, free)
        if np.max(np.abs(move), initial=0.0) <= 1e-14:
            wrong = active * (pull + level)
            worst = int(np.argmax(wrong))
            if active[worst] == 0 or wrong[worst] <= 1e-12:
                break
            active[worst] = 0
            continue
        room = np.where(move > 0, upper - step, lower - step)
        reach = np.divide(room, move, out=np.full(size, np.inf), where=move != 0)
        first = int(np.argmin(reach))
        step = step + min(1.0, max(reach[first], 0.0)) * move
        if reach[first] < 1:
            active[first] = 1 if move[first] > 0 else -1
            step[first] = upper[first] if move[first] > 0 else lower[first]
    return step


def _free_move(curvature: Floats, pull: Floats, free: NDArray[np.intp]) -> tuple[Floats, float]:
    """Step of the free entries that sums to 0, and the multiplier of that constraint."""
    move, count = np.zeros(len(pull)), len(free)
    if count == 0:
        return move, float("nan")
    system = np.ones((count + 1, count + 1))
    system[:count, :count] = curvature[np.ix_(free, free)]
    system[count, count] = 0.0
    solved = np.linalg.solve(system, np.append(-pull[free], 0.0))
    move[free] = solved[:count]
    return move, float(solved[count])


def descend_worst(
    smooth: Callable[[Floats], float],
    parts: Callable[[Floats], Floats],
    start: Floats,
    lower: Floats,
    upper: Floats,
    total: float,
) -> Floats:
    """Returns a local minimiser of ``smooth(x) + max(parts(x))^2``, with SciPy's SLSQP.

    The maximum becomes a variable that bounds every part, so the problem is smooth.
    """
    begin = project(start, lower, upper, total)
    found = _slsqp(
        lambda x: smooth(total * x[:-1]) + x[-1] ** 2,
        np.append(begin / total, parts(begin).max()),
        [*zip(lower / total, upper / total, strict=True), (0.0, np.inf)],
        [
            {"type": "eq", "fun": lambda x: x[:-1].sum() - 1},
            {"type": "ineq", "fun": lambda x: x[-1] - parts(total * x[:-1])},
        ],
    )
    return project(total * found[:-1], lower, upper, total)


def _slsqp(
    objective: Callable[[Floats], float],
    start: Floats,
    bounds: list[tuple[float, float]],
    constraints: list[dict[str, Any]],
) -> Floats:
    from scipy import optimize

    minimize: Any = optimize.minimize
    found = minimize(
        objective,
        start,
        bounds=bounds,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 200},
    )
    values = np.asarray(found.x, dtype=float)
    return values if np.all(np.isfinite(values)) else start


# --- Lower bounds on the error over all cohorts and weights, by Lagrangian duality. --------------
#
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

_GRID = 400
_LINES = 41
_REACH = 3.0
_BISECTIONS = 26
_SMALLER_BIAS = (100.0, 30.0, 10.0, 3.0, 0.0)
"""Squares of smaller h that are tried, over the error."""


def relative_gap(
    curves: NoiseCurves,
    problem: Problem,
    limits: Limits,
    coefficients: Coefficients,
    release: ReleaseKind,
    found: tuple[Floats, Floats],
    enough: float,
) -> float:
    """How far the error of a solution may be above the least one, over that error; in [0, 1]."""
    weights, cohorts = found
    noise, slopes = curves.at(cohorts / np.asarray(problem.clients, dtype=float))
    floors = limits.min_weights
    nu = mean_noise_multiplier(weights, cohorts, noise, release)
    value = terms(weights, cohorts, noise, coefficients, release).total
    smaller = [value * factor for factor in _SMALLER_BIAS if value * factor < coefficients.bias]
    gap = 1.0
    for bias in (coefficients.bias, *smaller):
        reduced = replace(coefficients, bias=bias)
        error = terms(weights, cohorts, noise, reduced, release).total
        choices: list[Floats | None] = [None]
        if floors.any():
            choices += floor_prices(cohorts, noise, slopes, reduced, release, floors)
        for prices in reversed(choices):
            bound = lower_bound(curves, problem, limits, reduced, release, (error, nu), prices)
            gap = min(gap, max((value - bound) / value, 0.0))
            if gap <= enough:
                return gap
    return gap


def lower_bound(
    curves: NoiseCurves,
    problem: Problem,
    limits: Limits,
    coefficients: Coefficients,
    release: ReleaseKind,
    found: tuple[float, float],
    prices: Floats | None = None,
) -> float:
    """A lower bound on the error over all cohorts and weights within limits."""
    clients = np.asarray(problem.clients, dtype=float)
    grid = np.geomspace(limits.min_cohorts, limits.max_cohorts, _GRID, axis=1)
    grid = _with_jumps(grid, curves.covered * clients)
    noise = curves.at(grid / clients[:, None])[0]
    reach = grid / noise
    costs = coefficients.sampling / grid + (coefficients.bias / coefficients.shares)[:, None]
    total = problem.cohort
    if release == "per_group":
        gain = 1 / (coefficients.noise / reach**2 + costs)
        gain = gain if prices is None else gain * prices[:, None] ** 2
        return 1 / float(_dual_maximum(gain[None], grid, total)[0]) - coefficients.bias
    tangent = 2 * (found[0] + coefficients.bias) / found[1]
    bound = _joint_bound(reach, costs, grid, coefficients.noise, total, tangent, prices)
    return bound - coefficients.bias


def _with_jumps(grid: Floats, jumps: Floats) -> Floats:
    """The grid with the largest cohorts of least noise, in place of those next to them."""
    for row, jump in zip(grid, jumps, strict=True):
        if row[0] < jump < row[-1]:
            row[np.searchsorted(row, jump) - 1] = jump * (1 - 1e-9)
    return grid


def _dual_maximum(gain: Floats, grid: Floats, total: float) -> Floats:
    """Upper bounds on sum_m gain_m(r_m) with sum r = total: the least dual values evaluated.

    Bisection on the multiplier, by the sum of the cohorts that maximise the Lagrangian.
    """
    low, high = np.zeros(len(gain)), np.max(gain / grid, axis=(1, 2)) * 2
    problems, rows = np.arange(len(gain))[:, None], np.arange(len(grid))
    best, reduced = np.full(len(gain), np.inf), np.empty_like(gain)
    for _ in range(_BISECTIONS):
        price = (low + high) / 2
        np.multiply(price[:, None, None], grid, out=reduced)
        np.subtract(gain, reduced, out=reduced)
        chosen = np.argmax(reduced, axis=2)
        best = np.minimum(best, price * total + reduced[problems, rows, chosen].sum(axis=1))
        above = grid[rows, chosen].sum(axis=1) > total
        low, high = np.where(above, price, low), np.where(above, high, price)
    return best


def _joint_bound(
    reach: Floats,
    costs: Floats,
    grid: Floats,
    price: float,
    total: float,
    tangent: float,
    prices: Floats | None,
) -> float:
    highest = float(_dual_maximum(reach[None], grid, total)[0])
    if prices is not None:
        priced = (prices[:, None] * reach)[None]
        highest = min(highest, float(_dual_maximum(priced, grid, total)[0]))
    if not np.any(costs > 0):
        return price / highest**2
    slopes, values = _lines(reach, costs, grid, total, tangent, prices)
    where = np.concatenate([_crossings(slopes, values), [highest]])
    where = where[(where > 0) & (where <= highest * (1 + 1e-12))]
    floor = np.max(np.outer(where, slopes) + values, axis=1)
    return float(np.min((price + np.maximum(floor, 0.0)) / where**2))


def _lines(
    reach: Floats,
    costs: Floats,
    grid: Floats,
    total: float,
    tangent: float,
    prices: Floats | None,
) -> tuple[Floats, Floats]:
    """Slopes nu and intercepts of lines below phi, closest together near ``tangent``."""
    steps = np.linspace(-1, 1, _LINES)
    slopes = tangent * np.exp(np.sign(steps) * np.abs(steps) ** 3 * _REACH)
    paid = slopes[:, None, None] if prices is None else slopes[:, None, None] * prices[:, None]
    chosen = np.minimum(reach, paid / (2 * costs))
    gain = (paid - costs * chosen) * chosen
    return slopes, -_dual_maximum(gain, grid, total)


def _crossings(slopes: Floats, values: Floats) -> Floats:
    """Abscissae where neighbouring lines cross, preceded by the zero of the first line."""
    inner = -np.diff(values) / np.diff(slopes)
    return np.concatenate([-values[:1] / slopes[:1], inner])


# --- Multi-start search for the cohorts, noise multipliers and weights of least weighted error. --

_STARTS = 8
_FEW_STARTS = 2
_ROUNDS_OF_REFINEMENT = 4
_CURVE_ERROR = 3e-3
_NODE_ERROR = 1e-5
_PROVEN = 1e-3
_SETTLED = 1e-4
"""Gap to the dual bound that further searches could close, below which there are none."""
NEGLIGIBLE = 0.02
"""Weight over population share below which a group has a negligible weight."""


@dataclass(frozen=True)
class Task:
    """Everything that the error of a choice of cohorts depends on.

    Attributes:
        problem: the planning problem.
        limits: bounds on the decisions.
        coefficients: coefficients of the error terms.
        release: one noisy sum of all groups, or one per group.
        rule: ``optimal``, or a rule of ``privplan.planning.error`` that the weights follow.
        accountant: the accountant that calibrates.
    """

    problem: Problem
    limits: Limits
    coefficients: Coefficients
    release: ReleaseKind
    rule: str
    accountant: str


def allocate(task: Task) -> Allocation:
    """Returns the cohorts, noise and weights of least error.

    The search runs on interpolated noise; nodes are added where the optimum lies until the
    interpolation is exact there, so the noise that is returned is calibrated.
    """
    problem, curves = task.problem, curves_of(task)
    task = _above_jumps(task, curves)
    starts = _starts(task)
    few = starts[:_FEW_STARTS]
    curves, cohorts, agreeing = _optimum(task, curves, few)
    gap = _dual_gap(task, curves, cohorts)
    if len(few) < len(starts) and (gap is None or gap > _SETTLED):
        few = starts
        curves, cohorts, agreeing = _optimum(task, curves, starts)
        gap = _dual_gap(task, curves, cohorts)
    status = _status(task, gap, len(few), agreeing)
    if problem.sampling.law.whole_cohorts:
        cohorts = _whole(task, curves, cohorts)
        status += "; then rounded to whole cohorts"
    noise = _calibrated(task, curves, cohorts)
    return Allocation(cohorts, noise, weights_of(task, cohorts, noise), task.release, status)


def estimated(task: Task) -> Allocation:
    """``allocate`` with the noise of the curves: within 1e-3 of calibrated noise, and faster.

    For choices that compare many tasks; what is chosen is then allocated and certified.
    """
    curves = curves_of(task)
    task = _above_jumps(task, curves)
    curves, cohorts, _ = _optimum(task, curves, _starts(task)[:_FEW_STARTS])
    if task.problem.sampling.law.whole_cohorts:
        cohorts = _whole(task, curves, cohorts)
    noise = _noise(task, curves, cohorts)
    return Allocation(cohorts, noise, weights_of(task, cohorts, noise), task.release, "estimated")


def curves_of(task: Task) -> NoiseCurves:
    """The noise curves of all groups over the ratios that the limits allow."""
    limits = task.limits
    return NoiseCurves(
        [
            build_curve(
                task.problem,
                m,
                task.accountant,
                float(limits.min_cohorts[m] / n),
                float(min(limits.max_cohorts[m] / n, 1.0)),
            )
            for m, n in enumerate(task.problem.clients)
        ]
    )


def _above_jumps(task: Task, curves: NoiseCurves) -> Task:
    """The task within ratios at which every budget needs noise; see ``above_jumps``."""
    limits = task.limits
    equal = project(_starts(task)[0], limits.min_cohorts, limits.max_cohorts, task.problem.cohort)
    return replace(task, limits=above_jumps(task.problem, limits, curves, equal))


def _optimum(
    task: Task, curves: NoiseCurves, starts: Sequence[Floats]
) -> tuple[NoiseCurves, Floats, int]:
    """The curves refined at the optimum, its cohorts, and how many searches agreed on it."""
    cohorts, agreeing = _search(task, curves, starts)
    enough = _NODE_ERROR if task.accountant in FROM_LOSSES else _CURVE_ERROR
    for _ in range(_ROUNDS_OF_REFINEMENT):
        curves, error = _refined(task, curves, cohorts)
        if error <= enough:
            break
        starts_again = [cohorts] if task.release == "joint" else [cohorts, *starts]
        cohorts, _ = _search(task, curves, starts_again)
    return curves, cohorts, agreeing


def weights_of(task: Task, cohorts: Floats, noise: Floats) -> Floats:
    """Weights for given cohorts and noise: the best, or those of the rule."""
    if task.rule == "optimal":
        return best_weights(
            cohorts, noise, task.coefficients, task.release, task.limits.min_weights
        )
    return weights_by_rule(task.rule, cohorts, noise, task.problem.clients)


def error_of(task: Task, cohorts: Floats, noise: Floats) -> float:
    """The error of cohorts and noise with the task's weights."""
    weights = weights_of(task, cohorts, noise)
    return terms(weights, cohorts, noise, task.coefficients, task.release).total


def _noise(task: Task, curves: NoiseCurves, cohorts: Floats) -> Floats:
    return curves.at(cohorts / np.asarray(task.problem.clients, dtype=float))[0]


def _objective(task: Task, curves: NoiseCurves) -> Callable[[Floats], float]:
    return lambda cohorts: error_of(task, cohorts, _noise(task, curves, cohorts))


def _with_gradient(
    task: Task, curves: NoiseCurves
) -> Callable[[Floats], tuple[float, Floats]] | None:
    """Error of the best weights and its gradient in the cohorts; None where it has no formula."""
    if task.rule != "optimal":
        return None
    clients, floors = np.asarray(task.problem.clients, dtype=float), task.limits.min_weights

    def evaluate(cohorts: Floats) -> tuple[float, Floats]:
        noise, slopes = curves.at(cohorts / clients)
        given = cohorts, noise, slopes, task.coefficients, task.release
        return least_error_with_floors(*given, floors) if floors.any() else least_error(*given)

    return evaluate


def _starts(task: Task) -> list[Floats]:
    """Starting cohorts: equal ratios, Problem 1's ratios, then subsets of one and two groups."""
    clients = np.asarray(task.problem.clients, dtype=float)
    published = clients / np.sqrt(np.asarray(task.problem.closed_form_factors))
    shapes = [clients, published]
    for size in (1, 2):
        for chosen in combinations(range(len(clients)), size):
            subset = np.zeros_like(clients)
            subset[list(chosen)] = published[list(chosen)]
            shapes.append(subset)
    return [task.problem.cohort * shape / shape.sum() for shape in shapes[:_STARTS]]


def _search(task: Task, curves: NoiseCurves, starts: Sequence[Floats]) -> tuple[Floats, int]:
    """Returns the best of several local searches, and how many of them reached it."""
    sides = sides_of_jumps(task.problem, task.limits, curves)
    found = [_search_smooth(replace(task, limits=side), curves, starts) for side in sides]
    if len(found) == 1:
        return found[0]
    objective = _objective(task, curves)
    return min(found, key=lambda one: objective(one[0]))


def _search_smooth(task: Task, curves: NoiseCurves, starts: Sequence[Floats]) -> tuple[Floats, int]:
    limits, total = task.limits, task.problem.cohort
    objective = _objective(task, curves)
    projected = [project(start, limits.min_cohorts, limits.max_cohorts, total) for start in starts]
    if np.all(limits.max_cohorts - limits.min_cohorts <= 1e-9 * total):
        return projected[0], len(projected)
    scale = max(objective(projected[0]), 1e-300)
    found = [_descent(task, curves, begin, scale) for begin in projected]
    values = np.array([objective(cohorts) for cohorts in [*found, *projected]])
    best = int(values.argmin())
    agreeing = int(np.sum(values[: len(found)] <= values[best] * (1 + 1e-4)))
    return [*found, *projected][best], agreeing


def _descent(task: Task, curves: NoiseCurves, begin: Floats, scale: float) -> Floats:
    limits, total, coefficients = task.limits, task.problem.cohort, task.coefficients
    if task.release == "per_group" or task.rule == "optimal":
        error, both = _objective(task, curves), _with_gradient(task, curves)
        bounds = limits.min_cohorts, limits.max_cohorts, total
        exact = None if both is None else lambda r: _scaled(both(r), scale)
        found = descend(lambda r: error(r) / scale, begin, *bounds, exact)
        if both is not None and task.release == "joint" and limits.min_weights.any():
            # differences see both sides of the kinks where an exact gradient gets stuck
            found = descend(lambda r: error(r) / scale, found, *bounds)
        return found

    def parts(cohorts: Floats) -> Floats:
        noise = _noise(task, curves, cohorts)
        shares = weights_of(task, cohorts, noise) * noise / cohorts
        return np.asarray(shares * np.sqrt(coefficients.noise / scale))

    def smooth(cohorts: Floats) -> float:
        noise = _noise(task, curves, cohorts)
        weights = weights_of(task, cohorts, noise)
        error = terms(weights, cohorts, noise, coefficients, task.release)
        return (error.sampling + error.bias) / scale

    return descend_worst(smooth, parts, begin, limits.min_cohorts, limits.max_cohorts, total)


def _scaled(found: tuple[float, Floats], scale: float) -> tuple[float, Floats]:
    return found[0] / scale, found[1] / scale


def _accountants(task: Task, curves: NoiseCurves, cohorts: Floats) -> list[str]:
    """The accountant of each group; a group of negligible weight takes the cheaper base.

    Loss distributions of very rare participation are costly, and the noise of a group without
    weight does not change the error; the base asks for more noise, certified like all others.
    """
    if not any(cheaper(task.accountant, delta) != task.accountant for delta in task.problem.deltas):
        return [task.accountant] * len(cohorts)
    weights = weights_of(task, cohorts, _noise(task, curves, cohorts))
    small = weights < NEGLIGIBLE * task.coefficients.shares
    return [
        cheaper(task.accountant, delta) if negligible else task.accountant
        for negligible, delta in zip(small, task.problem.deltas, strict=True)
    ]


def _calibrated(task: Task, curves: NoiseCurves, cohorts: Floats) -> Floats:
    """The noise of cohorts, exactly calibrated; the curves give the first guess."""
    ratios = np.minimum(cohorts / np.asarray(task.problem.clients, dtype=float), 1.0)
    expected = _noise(task, curves, cohorts)
    noise = []
    for m, name in enumerate(_accountants(task, curves, cohorts)):
        ratio, near = float(ratios[m]), float(expected[m]) if name == task.accountant else None
        fixed = task.problem.fixed_noise and task.problem.fixed_noise[m] is not None
        if name == GUARANTEE and near is not None and not fixed:
            noise.append(least_noise(task.problem, m, ratio, near))
            continue
        try:
            noise.append(group_noise(task.problem, m, ratio, name, near=near))
        except InfeasibleError:  # the budget may be one that only the tighter accountant meets
            if name == task.accountant:
                raise
            noise.append(group_noise(task.problem, m, ratio, task.accountant))
    return np.array(noise)


def _refined(task: Task, curves: NoiseCurves, cohorts: Floats) -> tuple[NoiseCurves, float]:
    ratios = cohorts / np.asarray(task.problem.clients, dtype=float)
    accountants = _accountants(task, curves, cohorts)
    pairs = [
        refine(curve, task.problem, m, task.accountant, min(float(ratios[m]), 1.0))
        if accountants[m] == task.accountant
        else (curve, 0.0)
        for m, curve in enumerate(curves.curves)
    ]
    error = max(error for _, error in pairs)
    return (NoiseCurves([curve for curve, _ in pairs]) if error else curves), error


def _dual_gap(task: Task, curves: NoiseCurves, cohorts: Floats) -> float | None:
    """How far the error may be above the least one, relatively; None where no bound is known."""
    if task.rule != "optimal":
        return None
    weights = weights_of(task, cohorts, _noise(task, curves, cohorts))
    return relative_gap(
        curves,
        task.problem,
        task.limits,
        task.coefficients,
        task.release,
        (weights, cohorts),
        _SETTLED,
    )


def _status(task: Task, gap: float | None, searches: int, agreeing: int) -> str:
    several = f"best of {searches} searches, {agreeing} of them agree"
    if gap is None:
        return f"multi-start: {several}; no bound for weights by the rule {task.rule}"
    kind = "optimal" if gap <= _PROVEN else "multi-start"
    return f"{kind}: within {gap:.2g} of the dual bound; {several}"


def _whole(task: Task, curves: NoiseCurves, cohorts: Floats) -> Floats:
    """Rounds cohorts to whole numbers, then improves them by single moves between groups."""
    objective = _objective(task, curves)
    clients = np.asarray(task.problem.clients, dtype=float)
    limits = replace(task.limits, max_cohorts=np.minimum(task.limits.max_cohorts, clients))
    whole = whole_cohorts(cohorts, limits.max_cohorts, round(task.problem.cohort))
    whole = np.clip(whole, limits.min_cohorts, limits.max_cohorts)
    least, improved = objective(whole), True
    while improved:
        improved = False
        for giver in range(len(whole)):
            for taker in range(len(whole)):
                moved = whole.copy()
                moved[giver] -= 1
                moved[taker] += 1
                inside = (
                    moved[giver] >= limits.min_cohorts[giver]
                    and moved[taker] <= limits.max_cohorts[taker]
                )
                if giver != taker and inside and objective(moved) < least * (1 - 1e-12):
                    whole, least, improved = moved, objective(moved), True
    return whole
