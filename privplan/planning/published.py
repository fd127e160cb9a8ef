"""Problem 1 of GDPFed+ as published: its terms, kept fractions, and exact solution.

With participation weights w_m = r_m^2 / sum r^2 =: p_m and Theorem 1's closed form
sigma_m^2 = c_m q_m^2 inserted, w_m sigma_m^2 / r_m^2 = a_m p_m with a_m = c_m / N_m^2. With
Remark 3's sparsification, sqrt(phi*_m) = 2 u_m for u_m = a_m p_m / (eta tau mu4), and the
objective of Appendix F is

    mu4 + mu4 sum_m G(u_m) / k_m,   k_m = a_m / (eta tau mu4),   sum_m u_m / k_m = 1,
    G(u) = 4 u^2 - 4 u^3 for u <= 1/2, and u beyond, where no coordinate is kept.

It is free of scale: only the proportions p count, and the cohort sets the scale afterwards.
The KKT conditions ask for one slope G'(u_m) in all groups, so u_m is one number
1 / sum_m (1/k_m), p_m is proportional to 1/a_m, and q_m to 1/sqrt(c_m), that is to
epsilon_m / sqrt(epsilon_m + 2 log(1/delta_m)). G equals its convex envelope up to u = 1/6:
up to there, Jensen's inequality makes this the global optimum. Without sparsification
G(u) = 4 u^2, convex everywhere.

Beyond u = 1/6 (noise so large that a group is better thrown away), and when q_m <= 1 binds so
that the freedom of scale is lost, the problem is solved numerically from many starts; the
status says how many of them agree. A kept fraction is never below one coordinate.

With a tight accountant inserted instead of the closed form the problem is degenerate;
``degenerate_warning`` reports it with both values.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privplan.planning.bounds import StepConstants
from privplan.planning.error import (
    ReleaseKind,
    fill,
    mean_noise_multiplier,
    participation,
)
from privplan.planning.noise import least_noise
from privplan.planning.problem import Problem
from privplan.planning.task import project
from privplan.spec.spec import Spec

Floats = NDArray[np.float64]
Objective = Callable[[Floats], tuple[float, Floats]]  # cohorts -> value and gradient

_MOST_STEPS = 300
_LEAST_GAIN = 1e-11
_MEMORY = 5
_CONVEX_UP_TO = 1 / 6
_STARTS = 24


@dataclass(frozen=True)
class Ratios:
    """A choice of cohorts, its objective, and how far it is certified to be from the optimum."""

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
    """Remark 3: k*_m/d = 1 - 2 w_m sigma_m^2 / (eta tau mu4 r_m^2), at least one coordinate."""
    shrink = 2 * weights * noise**2 / (constants.progress * constants.mu4 * cohorts**2)
    return np.clip(1 - shrink, 1 / dimension, 1.0)


def kept_fractions(
    spec: Spec, problem: Problem, cohorts: Floats, noise: Floats, weights: Floats
) -> Floats:
    """Kept fractions k_m / d by the spec: given numbers, or Remark 3, shape (groups,)."""
    given = spec.kept_fractions()
    if given is not None:
        return np.array(given)
    return best_kept(weights, noise, cohorts, problem.constants, problem.dimension)


def published_terms(
    problem: Problem,
    weights: Floats,
    cohorts: Floats,
    noise: Floats,
    kept_fractions: Floats,
    release: ReleaseKind,
) -> dict[str, float]:
    """The terms of Theorem 3 that depend on the plan, as in Appendix F.

    In units of L d C^2 (smoothness, parameters, squared clipping norm), with the local
    variance at its bound C^2. Theorem 3 prints r_m q_m in its last term; its proof and
    Problem 1 have r_m^2, which is used here.
    """
    constants, kept_weights = problem.constants, weights * np.sqrt(kept_fractions)
    nu_squared = mean_noise_multiplier(kept_weights, cohorts, noise, release) ** 2
    return {
        "local_variance": constants.mu4,
        "sparsification": float(
            constants.mu4 * np.sum(weights * (1 - kept_fractions) ** 2)
        ),
        "privacy_noise": float(constants.mu5 * nu_squared),
    }


def published_value(
    problem: Problem, cohorts: Floats, noise: Floats, sparsified: bool
) -> float:
    """Problem 1's objective (Appendix F) for any noise multipliers."""
    constants, weights = problem.constants, participation(cohorts, noise)
    kept = np.ones_like(cohorts)
    if sparsified:
        kept = best_kept(weights, noise, cohorts, constants, problem.dimension)
    noise_term = constants.mu5 * kept * weights * noise**2 / cohorts**2
    return float(np.sum(weights * (constants.mu4 * (1 + (1 - kept) ** 2) + noise_term)))


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
    rates = np.asarray(problem.closed_form_factors) / clients**2
    rates = rates / (problem.constants.progress * problem.constants.mu4)
    shares, level = (1 / rates) / (1 / rates).sum(), 1 / float((1 / rates).sum())
    cohorts = problem.cohort * np.sqrt(shares) / np.sqrt(shares).sum()
    fits = bool(np.all(cohorts <= clients * (1 + 1e-12)))
    if fits and (not sparsified or level <= _CONVEX_UP_TO or len(clients) == 1):
        cohorts = np.minimum(cohorts, clients)
        status = "optimal: exact solution of Problem 1 with Theorem 1's closed form"
        return Ratios(cohorts, closed_form_value(problem, cohorts, sparsified), status)
    reason = "the noise is beyond its convex range" if fits else "q <= 1 binds"
    cohorts, agreeing = _searched(problem, cohorts, sparsified)
    value = closed_form_value(problem, cohorts, sparsified)
    status = (
        f"multi-start: {reason}; best of {_STARTS} searches, {agreeing} of them agree"
    )
    return Ratios(cohorts, value, status)


def _searched(problem: Problem, start: Floats, sparsified: bool) -> tuple[Floats, int]:
    """Cohorts with the caps r_m <= N_m, and how many of the local searches reached them."""
    clients = np.asarray(problem.clients, dtype=float)
    total = problem.cohort
    least = np.full_like(clients, total * 1e-6)
    generator, uniform = np.random.default_rng(0), total * clients / clients.sum()
    starts = [np.minimum(start, clients), uniform]
    starts += [
        total * generator.dirichlet(np.ones(len(clients))) for _ in range(_STARTS - 2)
    ]
    base = problem.constants.mu4
    scale = closed_form_value(problem, uniform, sparsified) - base

    def objective(cohorts: Floats) -> float:
        return (closed_form_value(problem, cohorts, sparsified) - base) / scale

    found = [
        descend(differences(objective), begin, least, clients, total)
        for begin in starts
    ]
    values = np.array([objective(cohorts) for cohorts in found])
    return found[int(values.argmin())], int(np.sum(values <= values.min() * (1 + 1e-6)))


def descend(
    objective: Objective, start: Floats, lower: Floats, upper: Floats, total: float
) -> Floats:
    """Returns a local minimiser over values in [lower, upper] that sum to ``total``.

    Spectral projected gradients (Birgin, Martinez and Raydan 2000). Distances are measured relative
    to the root of the values: where costs fall as 1 / r, the curvature of all groups is then alike.
    """
    x = project(start, lower, upper, total)
    value, slope = objective(x)
    least, at, recent = value, x, deque([value], _MEMORY)
    pull = slope - float(slope @ x) / float(x.sum())
    length = 0.5 / max(float(np.abs(pull).max()), 1e-300)
    for _ in range(_MOST_STEPS):
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
        length = (
            min(max(squares / bend, 1e-3 * length), 1e3 * length)
            if bend > 0
            else 10 * length
        )
        x, value, slope = moved, found, new
        recent.append(value)
        if value < least:
            least, at = value, x
    return at


def differences(objective: Callable[[Floats], float]) -> Objective:
    """The objective with its gradient by central differences."""

    def both(at: Floats) -> tuple[float, Floats]:
        rises = [
            objective(at + step) - objective(at - step) for step in np.diag(1e-6 * at)
        ]
        return objective(at), np.array(rises) / (2e-6 * at)

    return both


def degenerate_warning(
    problem: Problem, cohorts: Floats, noise: Floats, accountant: str
) -> str | None:
    """A warning when an accountant inserted in Problem 1 rewards ignoring groups.

    Problem 1's weights w_m = r_m^2 / sum r^2 change what is being minimised, and nothing in
    it pays for ignoring a group. Theorem 1's sigma ~ q hides that; with a tight accountant
    the privacy term is least when the whole cohort comes from the group of the largest epsilon.
    """
    if len(cohorts) == 1:
        return None
    loosest = int(np.lexsort((problem.clients, problem.epsilons))[-1])
    corner_cohort = min(problem.cohort, float(problem.clients[loosest]))
    corner = (
        least_noise(
            problem, loosest, corner_cohort / problem.clients[loosest], accountant
        )
        / corner_cohort
    )
    square = cohorts**2
    plan = math.sqrt(float(np.sum(square * noise**2))) / float(square.sum())
    if corner >= plan or corner_cohort < problem.cohort:
        return None
    mu5 = problem.constants.mu5
    return (
        f"planning.ratios: Problem 1 is degenerate with accountant {accountant} inserted: its "
        f"privacy term falls from {mu5 * plan**2:.4g} to {mu5 * corner**2:.4g} when the whole "
        f"cohort of {problem.cohort:g} comes from group {problem.names[loosest]} and the others "
        "are never asked, since nothing in it pays for ignoring a group; the ratios therefore "
        "minimise it with Theorem 1's closed form inserted"
    )
