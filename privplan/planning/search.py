"""Multi-start search for the cohorts, noise multipliers and weights of least weighted error.

Noise multipliers come from curves during the search, which are refined around its optimum, and are
calibrated exactly at its end; the result is compared with a lower bound from Lagrangian duality.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.planning.error import (
    Allocation,
    Coefficients,
    ReleaseKind,
    best,
    error_below_peak,
    error_of_rule,
    fill,
    floor_prices,
    least_error,
    mean_noise_multiplier,
    terms,
    weights,
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
Objective = Callable[[Floats], tuple[float, Floats]]
"""Cohorts -> value and gradient."""

# --- Local minimisation under bounds and one sum constraint. -------------------------------------

_MOST_STEPS = 300
_FEW_STEPS = 20
_LEAST_GAIN = 1e-11
_MEMORY = 5


def project(values: Floats, lower: Floats, upper: Floats, total: float) -> Floats:
    """Projects values onto [lower, upper] and the sum ``total``, in Euclidean norm."""
    return fill(values, np.ones_like(values), lower, upper, total)[0]


def descend(
    objective: Objective,
    start: Floats,
    lower: Floats,
    upper: Floats,
    total: float,
    steps: int = _MOST_STEPS,
) -> Floats:
    """Returns a local minimiser over values in [lower, upper] that sum to ``total``.

    Spectral projected gradients (Birgin, Martinez and Raydan 2000). Distances are measured relative
    to the root of the values: where costs fall as 1 / r, the curvature of all groups is then alike.
    docs/decisions/optimiser.md compares it with other solvers.
    """
    x = project(start, lower, upper, total)
    value, slope = objective(x)
    least, at, recent = value, x, deque([value], _MEMORY)
    pull = slope - float(slope @ x) / float(x.sum())
    length = 0.5 / max(float(np.abs(pull).max()), 1e-300)
    for _ in range(steps):
        step = fill(x - length * x * slope, x, lower, upper, total)[0] - x
        predicted = float(slope @ step)
        if predicted > -_LEAST_GAIN * abs(value):
            break
        part = 1.0
        while True:
            moved = x + part * step
            found, new = objective(moved)
            if found <= max(recent) + 1e-4 * part * predicted:
                break
            part /= 2
            if part < 1e-8:
                return at
        change, bend = moved - x, float((moved - x) @ (new - slope))
        squares = float(change @ (change / x))
        length = min(max(squares / bend, 1e-3 * length), 1e3 * length) if bend > 0 else 10 * length
        x, value, slope = moved, found, new
        recent.append(value)
        if value < least:
            least, at = value, x
    return at


def differences(objective: Callable[[Floats], float]) -> Objective:
    """The objective with its gradient by central differences."""

    def both(at: Floats) -> tuple[float, Floats]:
        steps = np.diag(1e-6 * at)
        rises = [objective(at + step) - objective(at - step) for step in steps]
        return objective(at), np.array(rises) / (2e-6 * at)

    return both


def _slsqp(
    objective: Objective,
    constraints: Callable[[Floats], tuple[Floats, Floats]],
    start: Floats,
    lower: Floats,
    upper: Floats,
) -> Floats:
    """A local minimiser over cohorts and a peak, by SciPy: for objectives with kinks.

    Constraints are values that must not be negative, and their Jacobian. The cohorts sum to what
    they do at the start.
    """
    from scipy.optimize import minimize  # slow to load

    scale = np.append(np.full(len(start) - 1, start[:-1].sum()), start[-1])
    worth = abs(objective(start)[0])

    def scaled(x: Floats) -> tuple[float, Floats]:
        value, gradient = objective(x * scale)
        return value / worth, gradient * scale / worth

    total: Any = {
        "type": "eq",
        "fun": lambda x: x[:-1].sum() - 1,
        "jac": lambda x: np.append(np.ones(len(x) - 1), 0.0),
    }
    within: Any = {
        "type": "ineq",
        "fun": lambda x: constraints(x * scale)[0] / start[-1],
        "jac": lambda x: constraints(x * scale)[1] * scale / start[-1],
    }
    found = minimize(
        scaled,
        start / scale,
        jac=True,
        bounds=[*zip(lower / scale, upper / scale, strict=True)],
        constraints=[total, within],
        method="SLSQP",
        options={"ftol": 1e-9, "maxiter": 50},
    )
    values = np.asarray(found.x, dtype=float) * scale
    return values if np.all(np.isfinite(values)) else start


# --- The search task, and the error of a choice of cohorts. --------------------------------------


@dataclass(frozen=True)
class Task:
    """Everything that the error of a choice of cohorts depends on."""

    problem: Problem  # the planning problem
    limits: Limits  # bounds on the decisions
    coefficients: Coefficients  # coefficients of the error terms
    release: ReleaseKind  # one noisy sum of all groups, or one per group
    rule: str  # ``optimal``, or a rule of ``privplan.planning.error`` that the weights follow
    accountant: str  # the accountant that calibrates

    @property
    def clients(self) -> Floats:
        """N_m, shape (groups,)."""
        return np.asarray(self.problem.clients, dtype=float)

    @property
    def has_kinks(self) -> bool:
        """Whether the largest w_m sigma_m / r_m may change its group where the error is least."""
        return self.release == "joint" and (
            self.rule != "optimal" or bool(self.limits.min_weights.any())
        )


def weights_of(task: Task, cohorts: Floats, noise: Floats) -> Floats:
    """Weights for given cohorts and noise: the best, or those of the rule."""
    if task.rule != "optimal":
        return weights(task.rule, cohorts, noise, task.problem.clients)
    floors = task.limits.min_weights
    return best(cohorts, noise, task.coefficients, task.release, floors).weights


def error_of(task: Task, cohorts: Floats, noise: Floats) -> float:
    """The error of cohorts and noise with the task's weights."""
    chosen = weights_of(task, cohorts, noise)
    return terms(chosen, cohorts, noise, task.coefficients, task.release).total


def _noise(task: Task, curves: NoiseCurves, cohorts: Floats) -> Floats:
    return curves.at(cohorts / task.clients)[0]


def _descent(task: Task, curves: NoiseCurves, begin: Floats) -> Floats:
    """The local minimiser that is reached from cohorts within the limits."""
    limits, floors, clients = task.limits, task.limits.min_weights, task.clients
    by_rule = task.rule != "optimal"

    def smooth(cohorts: Floats) -> tuple[float, Floats]:
        noise, slopes = curves.at(cohorts / clients)
        given = cohorts, noise, slopes, task.coefficients, task.release
        if by_rule:
            return error_of_rule(task.rule, clients, *given)[:2]
        return least_error(*given, floors)

    if not (task.has_kinks and by_rule):
        bounds = limits.min_cohorts, limits.max_cohorts, task.problem.cohort
        begin = descend(smooth, begin, *bounds, _FEW_STEPS if task.has_kinks else _MOST_STEPS)
    if not task.has_kinks:
        return begin

    # the largest w_m sigma_m / r_m becomes a variable that bounds every part

    def below_peak(x: Floats) -> tuple[float, Floats]:
        cohorts, peak = x[:-1], float(x[-1])
        noise, slopes = curves.at(cohorts / clients)
        given = cohorts, noise, slopes, task.coefficients
        if not by_rule:
            return error_below_peak(*given, floors, peak)
        error, gradient, _ = error_of_rule(task.rule, clients, *given, task.release)
        price = task.coefficients.noise
        return error + price * peak**2, np.append(gradient, 2 * price * peak)

    def room(x: Floats) -> tuple[Floats, Floats]:
        cohorts, peak = x[:-1], float(x[-1])
        noise, slopes = curves.at(cohorts / clients)
        if by_rule:
            given = cohorts, noise, slopes, task.coefficients, task.release
            parts = error_of_rule(task.rule, clients, *given)[2]
            chosen = weights(task.rule, cohorts, noise, clients)
            left = peak - chosen * noise / cohorts
            return left, np.column_stack([-parts, np.ones_like(cohorts)])
        reach = cohorts / noise  # the largest weights are peak * reach: as much as floors, 1 in all
        by_cohort = peak * (1 - slopes) / noise
        left = np.append(peak * reach - floors, peak * reach.sum() - 1)
        jacobian = np.vstack([np.diag(by_cohort), by_cohort])
        return left * peak, np.column_stack([jacobian, np.append(reach, reach.sum())]) * peak

    noise = _noise(task, curves, begin)
    peak = mean_noise_multiplier(weights_of(task, begin, noise), begin, noise, "joint")
    lower, upper = np.append(limits.min_cohorts, 0.0), np.append(limits.max_cohorts, np.inf)
    return _slsqp(below_peak, room, np.append(begin, peak), lower, upper)[:-1]


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
_HINTS = 3
_SMALLER_BIAS = (100.0, 30.0, 10.0, 3.0, 0.0)
"""Squares of smaller h that are tried, over the error."""


def relative_gap(
    task: Task, curves: NoiseCurves, cohorts: Floats, enough: float
) -> tuple[float, list[Floats]]:
    """How far the error of cohorts may be above the least one, over that error; in [0, 1].

    Also cohorts by which bounds were met, where a search may find less; the search for a sharper
    bound ends at ``enough``.
    """
    (noise, slopes), given = curves.at(cohorts / task.clients), task.coefficients
    chosen = weights_of(task, cohorts, noise)
    nu = mean_noise_multiplier(chosen, cohorts, noise, task.release)
    value = terms(chosen, cohorts, noise, given, task.release).total
    smaller = [value * factor for factor in _SMALLER_BIAS if value * factor < given.bias]
    gap, hints = 1.0, np.empty((0, len(cohorts)))
    for bias in (given.bias, *smaller):
        reduced = replace(task, coefficients=replace(given, bias=bias))
        error = terms(chosen, cohorts, noise, reduced.coefficients, task.release).total
        prices = [np.ones_like(cohorts)]
        if (floors := task.limits.min_weights).any():
            at = cohorts, noise, slopes, reduced.coefficients, task.release
            prices += floor_prices(*at, floors)
        for one in reversed(prices):
            bound, found = lower_bound(reduced, curves, 2 * (error + bias) / nu, one)
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
    task: Task, curves: NoiseCurves, tangent: float, prices: Floats
) -> tuple[float, Floats]:
    """A lower bound on the error over all cohorts and weights within limits, and where it is met.

    Sharpest where ``tangent`` is the slope of phi at the least error. Cohorts by which it is met
    sum to about the cohort only, shape (cases, groups).
    """
    limits, coefficients, total = task.limits, task.coefficients, task.problem.cohort
    grid = np.geomspace(limits.min_cohorts, limits.max_cohorts, _GRID, axis=1)
    reach = grid / curves.at(grid / task.clients[:, None])[0]
    costs = coefficients.sampling / grid + (coefficients.bias / coefficients.shares)[:, None]
    price, paid = coefficients.noise, prices[:, None]
    if task.release == "per_group":
        gain = paid**2 / (price / reach**2 + costs)
        most, cohorts = _dual_maximum(gain[None], grid, total)
        return 1 / float(most[0]) - coefficients.bias, cohorts
    most, cohorts = _dual_maximum(np.stack([reach, paid * reach]), grid, total)
    highest = float(most.min())
    if not np.any(costs > 0):
        return price / highest**2, cohorts
    # lines below phi, closest together near the tangent, and where neighbours cross
    steps = np.linspace(-1, 1, _LINES)
    slopes = tangent * np.exp(np.sign(steps) * np.abs(steps) ** 3 * _REACH)
    paid = slopes[:, None, None] * paid
    chosen = np.minimum(reach, paid / (2 * costs))
    values, cohorts = _dual_maximum((paid - costs * chosen) * chosen, grid, total)
    crossings = np.diff(values) / np.diff(slopes)
    where = np.concatenate([values[:1] / slopes[:1], crossings, [highest]])
    where = where[(where > 0) & (where <= highest * (1 + 1e-12))]
    floor = np.max(np.outer(where, slopes) - values, axis=1)
    least = float(np.min((price + np.maximum(floor, 0.0)) / where**2))
    return least - coefficients.bias, cohorts


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
        least = np.minimum(least, price * total + reduced[problems, rows, chosen].sum(axis=1))
        cohorts = grid[rows, chosen]
        above = cohorts.sum(axis=1) > total
        low, high = np.where(above, price, low), np.where(above, high, price)
        ends[above.astype(int), problems[:, 0]] = cohorts
    return least, ends[ends.sum(axis=2) > 0]


# --- The search: curves, local searches, refined curves, bound, calibrated noise. ----------------

_STARTS = 8
_FEW_STARTS = 2
_REFINEMENTS = 4
_MOVED = 0.6
"""How far an optimum may move after its curve was refined there, over the reach of that."""
_PROVEN = 1e-3
_SETTLED = 1e-4
"""Gap to the dual bound that further searches could close, below which there are none."""
NEGLIGIBLE = 0.02
"""Weight over population share below which a group has a negligible weight."""


def allocate(task: Task) -> Allocation:
    """Returns the cohorts, noise and weights of least error, calibrated."""
    task, curves, starts = _prepared(task)
    used = starts[:_FEW_STARTS]
    curves, cohorts, agreeing = _optimum(task, curves, used)
    by_rule = task.rule != "optimal"  # for which there is no bound
    gap, hints = (1.0, []) if by_rule else relative_gap(task, curves, cohorts, _SETTLED)
    if len(starts) > 1 and gap > _SETTLED:
        used = [*used, *hints, *starts[_FEW_STARTS:]][:_STARTS]
        curves, cohorts, agreeing = _optimum(task, curves, used)
        gap = 1.0 if by_rule else relative_gap(task, curves, cohorts, _SETTLED)[0]
    status = f"best of {len(used)} searches, {agreeing} of them agree"
    if by_rule:
        status = f"multi-start: {status}; no bound for weights by the rule {task.rule}"
    else:
        kind = "optimal" if gap <= _PROVEN else "multi-start"
        status = f"{kind}: within {gap:.2g} of the dual bound; {status}"
    if task.problem.sampling.law.whole_cohorts:
        cohorts = _whole(task, curves, cohorts)
        status += "; then rounded to whole cohorts"
    ratios, near = np.minimum(cohorts / task.clients, 1.0), _noise(task, curves, cohorts)
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
    return Allocation(cohorts, noise, weights_of(task, cohorts, noise), task.release, status)


def estimated(task: Task) -> Allocation:
    """``allocate`` with the noise of the curves: within 1e-3 of calibrated noise, and faster.

    For choices that compare many tasks; what is chosen is then allocated and certified.
    """
    task, curves, starts = _prepared(task)
    curves, cohorts, _ = _optimum(task, curves, starts[:_FEW_STARTS])
    if task.problem.sampling.law.whole_cohorts:
        cohorts = _whole(task, curves, cohorts)
    noise = _noise(task, curves, cohorts)
    return Allocation(cohorts, noise, weights_of(task, cohorts, noise), task.release, "estimated")


def _prepared(task: Task) -> tuple[Task, NoiseCurves, list[Floats]]:
    """The task with groups on one side of jumps of their noise, its curves, and where to start.

    Starts are equal ratios, Problem 1's ratios, then subsets of one and two groups.
    """
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
    starts = [project(one, limits.min_cohorts, limits.max_cohorts, total) for one in starts]
    curves = curves_of(task.problem, limits, task.accountant)
    return replace(task, limits=limits), curves, starts


def _optimum(
    task: Task, curves: NoiseCurves, starts: Sequence[Floats]
) -> tuple[NoiseCurves, Floats, int]:
    """The curves refined at the optimum, its cohorts, and how many searches agreed on it."""
    limits = task.limits
    if np.all(limits.max_cohorts - limits.min_cohorts <= 1e-9 * task.problem.cohort):
        return curves, starts[0], len(starts)
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
            cohorts, _ = _search(task, curves, [cohorts])
        if (value := error_of(task, cohorts, _noise(task, curves, cohorts))) < least:
            least, found = value, (curves, cohorts)
        if not far.any():
            if task.has_kinks:
                break
            # other searches may end lower on the refined curves
            other, _ = _search(task, curves, [cohorts, *starts])
            if np.all(np.abs(np.log(other / cohorts)) <= reaches):
                break
            cohorts = other
    return *found, agreeing


def _search(task: Task, curves: NoiseCurves, starts: Sequence[Floats]) -> tuple[Floats, int]:
    """Returns the best of several local searches, and how many of them reached it."""
    limits, total = task.limits, task.problem.cohort
    found = [
        project(_descent(task, curves, start), limits.min_cohorts, limits.max_cohorts, total)
        for start in starts
    ]
    every = [*found, *starts]
    values = np.array([error_of(task, one, _noise(task, curves, one)) for one in every])
    least = int(values.argmin())
    agreeing = int(np.sum(values[: len(found)] <= values[least] * (1 + 1e-4)))
    return every[least], agreeing


_MOVES = 8


def _whole(task: Task, curves: NoiseCurves, cohorts: Floats) -> Floats:
    """Rounds cohorts to whole numbers, then improves them by single moves between groups."""

    def error(at: Floats) -> float:
        return error_of(task, at, _noise(task, curves, at))

    low, high = task.limits.min_cohorts, np.minimum(task.limits.max_cohorts, task.clients)
    whole = whole_cohorts(cohorts, high, round(task.problem.cohort))
    whole = np.clip(whole, low, high)
    least = error(whole)
    while True:
        # the groups that lose least by a client less, and those that gain most by one more
        units = np.eye(len(whole))
        costs = [error(whole - unit) if np.all(whole - unit >= low) else np.inf for unit in units]
        gains = [error(whole + unit) if np.all(whole + unit <= high) else np.inf for unit in units]
        moves = [
            whole - units[giver] + units[taker]
            for giver in np.argsort(costs)[:_MOVES]
            for taker in np.argsort(gains)[:_MOVES]
            if giver != taker and np.isfinite(costs[giver]) and np.isfinite(gains[taker])
        ]
        values = [error(move) for move in moves]
        if not moves or min(values) >= least * (1 - 1e-12):
            return whole
        whole, least = moves[int(np.argmin(values))], min(values)
