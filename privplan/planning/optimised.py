"""Plans whose ratios, noise and weights are decided together: balanced, noise, bound."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privplan.convergence.theorem_3 import theorem_3_terms
from privplan.plan import Objective
from privplan.planning.allocate import LEFT_OUT, Allocation, Task, allocate
from privplan.planning.assemble import Decisions, noise_provision
from privplan.planning.error_terms import Coefficients, spread, terms
from privplan.planning.problem import Limits, Problem, drawable, limits_of, uniform_cohorts
from privplan.planning.rule_based import failed_conditions
from privplan.planning.sparsification import kept_fractions
from privplan.spec.spec import Spec

Floats = NDArray[np.float64]

DEFAULT_LEANING = {"joint": 1 / 6, "per_group": 1 / 3}
"""Default heterogeneity h, in clipping norms, by kind of release; see docs/planning.md."""


def prices_of(spec: Spec, problem: Problem) -> Coefficients:
    """What each kind of error costs under the spec's objective; see docs/planning.md."""
    planning = spec.planning
    price, sampling = variance_prices(spec)
    provision = noise_provision(spec)
    noise = price * problem.dimension * problem.clipping_norm**2 * provision
    shares = np.asarray(problem.clients, dtype=float) / problem.population
    if planning.ratios != "balanced":
        return Coefficients(noise, 0.0, 0.0, shares)
    update = update_norm_of(spec)
    return Coefficients(noise, sampling * update**2, heterogeneity_of(spec) ** 2, shares)


def variance_prices(spec: Spec) -> tuple[float, float]:
    """Price of a round's variance by noise, and by sampling, in squared norm of an update.

    1/T without constants: over T rounds variance averages out. With constants eta tau times
    the curvature that the variance meets, as the descent lemma has it: the mean curvature for
    noise, which is isotropic, the one along differences of updates for sampling, and the
    smoothness where they are not known.
    """
    constants = spec.planning.constants
    if constants is None:
        return 1 / spec.rounds, 1 / spec.rounds
    length = spec.local.learning_rate * spec.local.steps
    noise = constants.noise_curvature or constants.smoothness
    sampling = constants.sampling_curvature or constants.smoothness
    return length * noise, length * sampling


def update_norm_of(spec: Spec) -> float:
    """s: root mean square of a clipped update's norm, at most the clipping norm."""
    if spec.planning.update_norms:
        norms = np.minimum(np.asarray(spec.planning.update_norms), spec.clipping_norm)
        return float(np.sqrt(np.mean(norms**2)))
    return min(spec.planning.update_norm or spec.clipping_norm, spec.clipping_norm)


def heterogeneity_of(spec: Spec) -> float:
    """h: how much the mean updates of groups may differ, in norm."""
    given = spec.planning.heterogeneity
    return DEFAULT_LEANING[spec.release] * spec.clipping_norm if given is None else given


def task_of(spec: Spec, problem: Problem) -> Task:
    """The search that a spec asks for.

    Raises:
        InfeasibleError: when the limits of the groups contradict each other or the cohort.
    """
    limits = limits_of(spec, problem)
    if "ratios" not in spec.planning.free or problem.cohort == problem.population:
        fixed = drawable(problem, uniform_cohorts(problem))
        limits = Limits(fixed, fixed, limits.weights)
    accountant = spec.planning.accountant
    return Task(problem, limits, prices_of(spec, problem), spec.release, spec.weighting, accountant)


def optimised(spec: Spec, problem: Problem) -> Decisions:
    """The decisions of least error under the spec's objective.

    Raises:
        InfeasibleError: naming the constraint that cannot hold.
        UnsupportedError: when the spec's accountant does not cover its law and relation.
    """
    task = task_of(spec, problem)
    found = allocate(task)
    kept = kept_fractions(spec, problem, found.cohorts, found.noise, found.weights)
    value, bound = _valued(spec, task, found, kept)
    lines = []
    if spec.planning.accountant == "closed_form":
        lines = failed_conditions(problem, found.cohorts, found.noise)
    return Decisions(
        cohorts=found.cohorts,
        noise=found.noise,
        weights=found.weights,
        kept_fractions=kept,
        release=spec.release,
        objective=Objective(name=spec.planning.ratios, value=value),
        bound=bound,
        status=found.status,
        warnings=(*lines, *_below_floors(task, found), *_left_out(task, found)),
    )


def _valued(
    spec: Spec, task: Task, found: Allocation, kept: Floats
) -> tuple[float, dict[str, float]]:
    """The objective's value and its terms."""
    problem, name = task.problem, spec.planning.ratios
    if name == "bound":
        full = bound_terms(spec, task, found, kept)
        return sum(full.values()), full
    error = terms(found.weights, found.cohorts, found.noise, task.prices, task.release)
    parts = {"noise": error.noise, "sampling": error.sampling, "leaning": error.leaning}
    if name == "balanced":
        return error.total, parts
    std = problem.clipping_norm * _provisioned(spec, task, found)
    return std, {"noise_std": std}


def _provisioned(spec: Spec, task: Task, found: Allocation) -> float:
    """Noise multiplier of the mean, a coordinate, with all provisions."""
    nu = spread(found.weights, found.cohorts, found.noise, task.release)
    return nu * math.sqrt(noise_provision(spec))


def bound_terms(spec: Spec, task: Task, found: Allocation, kept: Floats) -> dict[str, float]:
    """Theorem 3's right-hand side, term by term."""
    return theorem_3_terms(spec, found.weights, kept, _provisioned(spec, task, found))


def bound_total(spec: Spec, task: Task, found: Allocation) -> float:
    """Theorem 3's right-hand side for an allocation."""
    weights = found.weights
    kept = kept_fractions(spec, task.problem, found.cohorts, found.noise, weights)
    return sum(bound_terms(spec, task, found, kept).values())


def _below_floors(task: Task, found: Allocation) -> list[str]:
    """A line for each group whose weight by a rule is below its floor."""
    return [
        f"groups.{name}.min_weight: {floor:g} does not hold, the rule {task.rule} gives "
        f"{weight:.4g}"
        for name, floor, weight in zip(
            task.problem.names, task.limits.weights, found.weights, strict=True
        )
        if weight < floor - 1e-9
    ]


def _left_out(task: Task, found: Allocation) -> list[str]:
    """A line for each group that the objective all but ignores."""
    return [
        f"groups.{name}: all but left out, weight {weight:.3g} for {share:.3g} of the clients; "
        "a larger planning.heterogeneity or a min_weight pays for ignoring a group"
        for name, share, weight in zip(
            task.problem.names, task.prices.shares, found.weights, strict=True
        )
        if weight < LEFT_OUT * share
    ]
