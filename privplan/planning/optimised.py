"""Decisions that minimise an objective over sampling ratios, noise multipliers and weights."""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import ObjectiveValue
from privplan.planning.allocate import NEGLIGIBLE, Task, allocate
from privplan.planning.assemble import Decisions, failed_conditions
from privplan.planning.error_terms import Allocation
from privplan.planning.objectives import objective_of
from privplan.planning.problem import (
    Limits,
    Problem,
    drawable,
    implied_cohort,
    limits_of,
    uniform_cohorts,
)
from privplan.planning.published import kept_fractions
from privplan.planning.run_limits import not_above
from privplan.spec.spec import Spec

_AT_FLOOR = 1e-6


def task_of(spec: Spec, problem: Problem) -> Task:
    """The search task of a spec.

    Raises:
        InfeasibleError: when the limits of the groups contradict each other or the cohort.
    """
    limits = limits_of(spec, problem)
    if "ratios" not in spec.planning.free or problem.cohort == problem.population:
        fixed = drawable(problem, uniform_cohorts(problem))
        limits = Limits(fixed, fixed, limits.min_weights)
    return Task(
        problem,
        limits,
        objective_of(spec).coefficients(spec, problem),
        spec.release,
        spec.weighting,
        spec.planning.accountant,
    )


def optimised(spec: Spec, problem: Problem) -> Decisions:
    """Returns the decisions that minimise the spec's objective.

    Raises:
        InfeasibleError: naming the constraint that cannot hold.
        UnsupportedError: when the spec's accountant does not cover its law and relation.
    """
    task = task_of(spec, problem)
    found = allocate(task)
    found = replace(found, cohorts=not_above(spec, found.cohorts))
    terms = objective_of(spec).terms(spec, problem, found)
    lines = []
    if spec.planning.accountant == "closed_form":
        lines = failed_conditions(problem, found.cohorts, found.noise)
    return Decisions(
        cohorts=found.cohorts,
        noise=found.noise,
        weights=found.weights,
        kept_fractions=kept_fractions(spec, problem, found.cohorts, found.noise, found.weights),
        release=spec.release,
        objective=ObjectiveValue(name=spec.planning.ratios, value=sum(terms.values())),
        bound=terms,
        status=found.status,
        warnings=(
            *lines,
            *_below_minimum(task, found),
            *_negligible(task, found, spec),
            *_at_implied_floor(task, found, spec),
        ),
    )


def _below_minimum(task: Task, found: Allocation) -> list[str]:
    """Warnings on groups whose weight by a rule is below its minimum."""
    return [
        f"groups.{name}.min_weight: {minimum:g} does not hold, the rule {task.rule} gives "
        f"{weight:.4g}"
        for name, minimum, weight in zip(
            task.problem.names, task.limits.min_weights, found.weights, strict=True
        )
        if weight < minimum - 1e-9
    ]


def _negligible(task: Task, found: Allocation, spec: Spec) -> list[str]:
    """Warnings on groups whose weight is negligible."""
    assumed = objective_of(spec).assumed
    biased = "a larger planning.heterogeneity or " if "bias" in assumed else ""
    return [
        f"groups.{name}: all but left out, weight {weight:.3g} for {share:.3g} of the clients; "
        f"{biased}a min_weight pays for ignoring a group"
        for name, share, weight in zip(
            task.problem.names, task.coefficients.shares, found.weights, strict=True
        )
        if weight < NEGLIGIBLE * share
    ]


def _at_implied_floor(task: Task, found: Allocation, spec: Spec) -> list[str]:
    """Warnings on groups whose cohort is the least of a group without ``min_sampling_ratio``.

    Not on those of negligible weight, to which a smaller cohort is worth nothing.
    """
    problem, limits = task.problem, task.limits
    if problem.sampling.law.whole_cohorts:
        return []
    least = implied_cohort(problem)
    why = (
        "one participation over all rounds"
        if least == 1 / problem.rounds
        else f"{least * len(problem.names) / problem.cohort:.3g} of an equal share of the cohort"
    )
    return [
        f"groups.{group.name}: its expected cohort of {least:.4g} is the least that is planned "
        f"where no limit says otherwise ({why}); a max_sampling_ratio below "
        f"{least / clients:.4g} allows less"
        for m, (group, clients) in enumerate(zip(spec.groups, problem.clients, strict=True))
        if limits.min_cohorts[m] == least < limits.max_cohorts[m]
        and (group.min_sampling_ratio or 0.0) * clients < least
        and found.cohorts[m] <= least * (1 + _AT_FLOOR)
        and found.weights[m] >= NEGLIGIBLE * task.coefficients.shares[m]
    ]
