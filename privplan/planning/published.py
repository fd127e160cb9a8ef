"""Problem 1 of GDPFed+ as published: its terms, kept fractions, and exact solution.

With participation weights w_m = r_m^2 / sum r^2 =: p_m and Theorem 1's closed form
sigma_m^2 = c_m q_m^2 inserted, w_m sigma_m^2 / r_m^2 = a_m p_m with a_m = c_m / N_m^2.
With Remark 3's sparsification, sqrt(phi*_m) = 2 u_m for u_m = a_m p_m / (eta tau mu4),
and the objective of Appendix F is

    mu4 + mu4 sum_m G(u_m) / k_m,   k_m = a_m / (eta tau mu4),   sum_m u_m / k_m = 1,
    G(u) = 4 u^2 - 4 u^3 for u <= 1/2, and u beyond, where no coordinate is kept.

It is free of scale: only the proportions p count, and the cohort sets the scale
afterwards. The KKT conditions ask for one slope G'(u_m) in all groups, so u_m is one
number 1 / sum_m (1/k_m), p_m is proportional to 1/a_m, and q_m to 1/sqrt(c_m), that is
to epsilon_m / sqrt(epsilon_m + 2 log(1/delta_m)). G equals its convex envelope up to
u = 1/6: up to there, Jensen's inequality makes this the global optimum. Without
sparsification G(u) = 4 u^2, convex everywhere.

Beyond u = 1/6 (noise so large that a group is better thrown away), and when q_m <= 1
binds so that the freedom of scale is lost, the problem is solved numerically from many
starts; the status says how many of them agree. A kept fraction is never below one
coordinate.

With a tight accountant inserted instead of the closed form the problem is degenerate;
``degenerate_warning`` reports it with both values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privplan.planning.error import (
    ReleaseKind,
    fill,
    mean_noise_multiplier,
    participation,
    squared_noise_multiplier,
)
from privplan.planning.noise import least_noise
from privplan.planning.problem import Problem
from privplan.planning.task import project
from privplan.planning.theorem_3 import StepConstants, problem_1_terms
from privplan.spec.spec import Spec

Floats = NDArray[np.float64]
Objective = Callable[[Floats], tuple[float, Floats]]
"""Value and gradient at cohorts."""

_CONVEX_UP_TO = 1 / 6  # u up to which G equals its convex envelope
_STARTS = 24  # far more than the local optima of any preset

# Of the descent: steps, and the predicted gain, relative to the value, at which it
# ends.
_MAX_STEPS = 300
_SMALLEST_GAIN = 1e-11
# A step may be worse than the last value, but not than the worst of so many before it.
_MEMORY = 5
# It must gain this part of what its slope predicts, else it is halved down to the end.
_SUFFICIENT_GAIN = 1e-4
_SHORTEST_STEP = 1e-8
# Factors between the lengths of two steps: the least, the largest, and without a bend.
_SHORTER = 1e-3
_LONGER = 1e3
_WITHOUT_BEND = 10


@dataclass(frozen=True)
class Ratios:
    """A choice of cohorts.

    Attributes:
        cohorts: expected clients of a round, shape (groups,).
        value: Problem 1's objective there.
        status: how far it is certified to be from the optimum.
    """

    cohorts: Floats
    value: float
    status: str


def best_kept(
    weights: Floats,
    noise: Floats,
    cohorts: Floats,
    constants: StepConstants,
    dimension: int,
) -> Floats:
    """The kept fractions of Remark 3, shape (groups,), each at least one coordinate.

    k*_m/d = 1 - 2 w_m sigma_m^2 / (eta tau mu4 r_m^2).
    """
    shrink = 2 * weights * noise**2 / (constants.progress * constants.mu4 * cohorts**2)
    return np.clip(1 - shrink, 1 / dimension, 1.0)


def kept_fractions(
    spec: Spec, problem: Problem, cohorts: Floats, noise: Floats, weights: Floats
) -> Floats:
    """Kept fractions k_m / d: the spec's, or those of Remark 3, shape (groups,)."""
    fractions_of_spec = spec.kept_fractions()
    if fractions_of_spec is not None:
        return np.array(fractions_of_spec)
    return best_kept(weights, noise, cohorts, problem.constants, problem.dimension)


def published_terms(
    problem: Problem,
    weights: Floats,
    cohorts: Floats,
    noise: Floats,
    kept_fractions: Floats,
    release: ReleaseKind,
    provision: float = 1.0,
) -> dict[str, float]:
    """The terms of Theorem 3 that depend on the plan, as in Appendix F.

    Args:
        problem: the planning problem.
        weights: w_m, shape (groups,).
        cohorts: r_m, shape (groups,).
        noise: sigma_m, shape (groups,).
        kept_fractions: k_m / d, shape (groups,).
        release: one noisy sum of all groups, or one per group.
        provision: ``problem.noise_provision``, a factor on the squared noise.
    """
    squared_noise = provision * squared_noise_multiplier(
        weights, cohorts, noise, release, kept_fractions
    )
    terms = problem_1_terms(problem.constants, weights, kept_fractions, squared_noise)
    return {name: float(value) for name, value in terms.items()}


def published_value(
    problem: Problem, cohorts: Floats, noise: Floats, sparsified: bool
) -> float:
    """Problem 1's objective (Appendix F) for any noise multipliers."""
    weights = participation(cohorts, noise)
    kept_fractions = np.ones_like(cohorts)
    if sparsified:
        kept_fractions = best_kept(
            weights, noise, cohorts, problem.constants, problem.dimension
        )
    terms = published_terms(
        problem, weights, cohorts, noise, kept_fractions, "per_group"
    )
    return sum(terms.values())


def closed_form_noise(problem: Problem, cohorts: Floats) -> Floats:
    """Theorem 1's sigma_m at the ratios r_m / N_m, shape (groups,)."""
    ratios = cohorts / np.asarray(problem.clients)
    return np.asarray(np.sqrt(np.asarray(problem.closed_form_factors)) * ratios)


def closed_form_value(problem: Problem, cohorts: Floats, sparsified: bool) -> float:
    """Problem 1's objective with Theorem 1's closed form inserted."""
    return published_value(
        problem, cohorts, closed_form_noise(problem, cohorts), sparsified
    )


def solve_published(problem: Problem, sparsified: bool) -> Ratios:
    """The ratios that minimise Problem 1 with the closed form inserted."""
    clients = np.asarray(problem.clients, dtype=float)

    # The exact solution: shares p_m in proportion to 1 / k_m, and u_m = 1 / sum
    # (1/k_m).
    slopes = np.asarray(problem.closed_form_factors) / clients**2
    slopes = slopes / (problem.constants.progress * problem.constants.mu4)
    inverse_slopes = 1 / slopes
    shares = inverse_slopes / inverse_slopes.sum()
    level = 1 / float(inverse_slopes.sum())
    cohorts = problem.cohort * np.sqrt(shares) / np.sqrt(shares).sum()
    fits = bool(np.all(cohorts <= clients * (1 + 1e-12)))
    if fits and (not sparsified or level <= _CONVEX_UP_TO or len(clients) == 1):
        cohorts = np.minimum(cohorts, clients)
        status = "optimal: exact solution of Problem 1 with Theorem 1's closed form"
        return Ratios(cohorts, closed_form_value(problem, cohorts, sparsified), status)

    reason = "q <= 1 binds"
    if fits:
        reason = "the noise is beyond its convex range"
    cohorts, agreeing = _searched(problem, cohorts, sparsified)
    value = closed_form_value(problem, cohorts, sparsified)
    status = (
        f"multi-start: {reason}; best of {_STARTS} searches, {agreeing} of them agree"
    )
    return Ratios(cohorts, value, status)


def _searched(problem: Problem, start: Floats, sparsified: bool) -> tuple[Floats, int]:
    """Cohorts with the caps r_m <= N_m, and how many local searches reached them."""
    clients = np.asarray(problem.clients, dtype=float)
    total = problem.cohort
    lower = np.full_like(clients, total * 1e-6)  # a share that no plan can tell from 0

    generator = np.random.default_rng(0)
    uniform = total * clients / clients.sum()
    starts = [np.minimum(start, clients), uniform]
    while len(starts) < _STARTS:
        starts.append(total * generator.dirichlet(np.ones(len(clients))))

    # mu4 is the same everywhere, and hides how the rest changes.
    constant = problem.constants.mu4
    scale = closed_form_value(problem, uniform, sparsified) - constant

    def objective(cohorts: Floats) -> float:
        """What cohorts change of the closed form, about 1 at the uniform ones."""
        return (closed_form_value(problem, cohorts, sparsified) - constant) / scale

    gradient = differences(objective)
    minima = [descend(gradient, begin, lower, clients, total) for begin in starts]
    values = np.array([objective(cohorts) for cohorts in minima])
    agreeing = int(np.sum(values <= values.min() * (1 + 1e-6)))
    return minima[int(values.argmin())], agreeing


class _Point(NamedTuple):
    """Where the descent is: cohorts, the objective there, and its gradient."""

    cohorts: Floats
    value: float
    gradient: Floats


def descend(
    objective: Objective, start: Floats, lower: Floats, upper: Floats, total: float
) -> Floats:
    """Returns a local minimiser over values in [lower, upper] that sum to ``total``.

    Distances are measured relative to the root of the values: where costs fall as
    1 / r, the curvature of all groups is then alike.

    Source: spectral projected gradients (Birgin, Martinez and Raydan 2000).
    """
    start = project(start, lower, upper, total)
    point = _Point(start, *objective(start))
    best = point
    recent = deque([point.value], _MEMORY)

    # The first step moves no value by more than half of itself.
    mean_slope = float(point.gradient @ start) / float(start.sum())
    steepest = float(np.abs(point.gradient - mean_slope).max())
    length = 0.5 / max(steepest, 1e-300)
    for _ in range(_MAX_STEPS):
        aim = point.cohorts - length * point.cohorts * point.gradient
        projected, _ = fill(aim, point.cohorts, lower, upper, total)
        step = projected - point.cohorts
        predicted = float(point.gradient @ step)
        if predicted > -_SMALLEST_GAIN * abs(point.value):
            break
        moved = _moved(objective, point, step, max(recent))
        if moved is None:
            break
        length = _next_length(point, moved, length)
        point = moved
        recent.append(point.value)
        if point.value < best.value:
            best = point
    return best.cohorts


def _moved(
    objective: Objective, point: _Point, step: Floats, worst: float
) -> _Point | None:
    """The point after the largest part of a step that gains enough, if any does."""
    predicted = float(point.gradient @ step)
    share = 1.0
    while share >= _SHORTEST_STEP:
        cohorts = point.cohorts + share * step
        value, gradient = objective(cohorts)
        if value <= worst + _SUFFICIENT_GAIN * share * predicted:
            return _Point(cohorts, value, gradient)
        share /= 2
    return None


def _next_length(point: _Point, moved: _Point, length: float) -> float:
    """Length of the next step: the inverse curvature along the last one."""
    change = moved.cohorts - point.cohorts
    bend = float(change @ (moved.gradient - point.gradient))
    if not bend > 0:
        return _WITHOUT_BEND * length
    squares = float(change @ (change / point.cohorts))
    return min(max(squares / bend, _SHORTER * length), _LONGER * length)


def differences(objective: Callable[[Floats], float]) -> Objective:
    """The objective with its gradient by central differences."""

    def with_gradient(cohorts: Floats) -> tuple[float, Floats]:
        """The value and its gradient [groups], by a step of 1e-6 either way."""
        rises = [
            objective(cohorts + step) - objective(cohorts - step)
            for step in np.diag(1e-6 * cohorts)
        ]
        return objective(cohorts), np.array(rises) / (2e-6 * cohorts)

    return with_gradient


def degenerate_warning(
    problem: Problem, cohorts: Floats, noise: Floats, accountant: str
) -> str | None:
    """A warning when an accountant inserted in Problem 1 rewards ignoring groups.

    Problem 1's weights w_m = r_m^2 / sum r^2 change what is being minimised, and
    nothing in it pays for ignoring a group. Theorem 1's sigma ~ q hides that; with a
    tight accountant the privacy term is least when the whole cohort comes from the
    group of the largest epsilon.

    Args:
        problem: the planning problem.
        cohorts: those of the plan, shape (groups,).
        noise: the plan's noise multipliers, shape (groups,).
        accountant: the tight one.
    """
    if len(cohorts) == 1:
        return None
    loosest = int(np.lexsort((problem.clients, problem.epsilons))[-1])
    corner_cohort = min(problem.cohort, float(problem.clients[loosest]))
    corner_ratio = corner_cohort / problem.clients[loosest]
    corner_noise = least_noise(problem, loosest, corner_ratio, accountant)

    # Noise of the mean in clipping norms.
    corner = corner_noise / corner_cohort
    weights = participation(cohorts, noise)
    plan = mean_noise_multiplier(weights, cohorts, noise, "per_group")
    if corner >= plan or corner_cohort < problem.cohort:
        return None
    mu5 = problem.constants.mu5
    return (
        f"planning.ratios: Problem 1 is degenerate with accountant {accountant} "
        f"inserted: its privacy term falls from {mu5 * plan**2:.4g} to "
        f"{mu5 * corner**2:.4g} when the whole cohort of {problem.cohort:g} comes from "
        f"group {problem.names[loosest]} and the others are never asked, since nothing "
        "in it pays for ignoring a group; the ratios therefore minimise it with "
        "Theorem 1's closed form inserted"
    )
