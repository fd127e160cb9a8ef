"""Certified plans of the baseline algorithms, for the same spec.

Baselines either release a noisy sum per group (GDPFed, GDPFed-op, GDPFed+) or add all updates to
one noisy sum without scaling them. In that sum a client of group m adds at most its bound C_m;
the noise has one standard deviation std, so the group faces the noise multiplier std / C_m. The
server divides by the expected cohort r, so the weight of a group is r_m / r.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.plan import GroupPlan, ObjectiveValue, Plan
from privplan.planning.assemble import Decisions, assemble, make_plan, quantile_clipping
from privplan.planning.group_noise import calibrated
from privplan.planning.problem import (
    Problem,
    drawable,
    noise_provision,
    problem_of,
    uniform_cohorts,
)
from privplan.planning.published import closed_form_value, published_terms
from privplan.planning.record_level import record_level, solve_records
from privplan.planning.solver import solve
from privplan.planning.update_noise import local_steps
from privplan.spec.planning import QuantileClipping
from privplan.spec.recipe import without_recipe
from privplan.spec.spec import Spec

Floats = NDArray[np.float64]


def one_sum(
    spec: Spec,
    problem: Problem,
    groups: tuple[GroupPlan, ...],
    method: str,
    warnings: tuple[str, ...] = (),
) -> Plan:
    """The certified plan of groups that share one noisy sum.

    Args:
        spec: the planning problem.
        problem: the spec as numbers.
        groups: plans of the groups; ``noise_multiplier`` times the group's own clipping norm
            is one number, the standard deviation of the noise.
        method: name of the rule that found it.
        warnings: warnings of the planner.

    Raises:
        InfeasibleError: when the guarantee exceeds a budget.
    """
    cohorts = np.array([group.expected_cohort for group in groups])
    weights = cohorts / cohorts.sum()
    mean_clip = spec.clipping_norm
    stds = [g.noise_multiplier * (g.clipping_norm or mean_clip) for g in groups]
    noise = np.full(len(groups), max(stds) / mean_clip)
    kept = np.ones(len(groups))
    bound = published_terms(problem, weights, cohorts, noise, kept, "joint")
    provision = 1 / math.sqrt(noise_provision(spec))
    return make_plan(
        spec,
        tuple(
            group.model_copy(update={"weight": float(weight)})
            for group, weight in zip(groups, weights, strict=True)
        ),
        release="joint",
        objective=ObjectiveValue(name=method, value=sum(bound.values())),
        bound=bound,
        noise_std=max(stds) / float(cohorts.sum()) / provision,
        status=f"evaluated: the rule {method}",
        warnings=warnings,
        clipping=quantile_clipping(spec, max(stds) / mean_clip),
    )


def uniform(spec: Spec) -> Plan:
    """GDPFed: the same ratio for every group, each with its own noise, no sparsification."""
    return solve(plain(spec, ratios="uniform"))


def unprotected(spec: Spec) -> Plan:
    """The ratios of ``uniform`` for methods without privacy, which clip nothing."""
    return solve(plain(spec, ratios="uniform", clipping=None))


def median_clipped(make: Callable[[Spec], Plan]) -> Callable[[Spec], Plan]:
    """A plan whose clipping norm follows a private median, unless the spec says otherwise.

    For methods whose paper clips at the median of the round's norms, which is a release of its
    own that the paper does not pay for.

    Args:
        make: makes the plan of a spec.
    """

    def plan(spec: Spec) -> Plan:
        planning = spec.planning
        if planning.clipping is None and planning.median_clipping == "paid":
            planning = planning.model_copy(update={"clipping": QuantileClipping()})
        return make(spec.model_copy(update={"planning": planning}))

    return plan


def optimised(spec: Spec) -> Plan:
    """GDPFed-op: the ratios of Problem 1, no sparsification."""
    return solve(plain(spec, ratios="gdpfed_plus"))


def strictest(spec: Spec) -> Plan:
    """DP-FedAvg: one sum of all groups, every client under the strictest budget.

    The noise multiplier is that of the smallest epsilon and the smallest delta; the weights
    r_m / r make the step the mean over the cohort.
    """
    even = plain(spec, ratios="uniform")
    problem = problem_of(even)
    cohorts = drawable(problem, uniform_cohorts(problem))
    highest = np.max(cohorts / np.asarray(problem.clients, dtype=float))
    groups = len(problem.names)
    strict = replace(
        problem,
        epsilons=(min(problem.epsilons),) * groups,
        deltas=(min(problem.deltas),) * groups,
    )
    noise = calibrated(strict, np.array([min(highest, 1.0)]), even.planning.accountant)
    shares = cohorts / cohorts.sum()
    return assemble(
        even,
        problem,
        Decisions(
            cohorts=cohorts,
            noise=np.full(groups, noise[0]),
            weights=shares,
            kept_fractions=np.ones(groups),
            release="joint",
            objective=ObjectiveValue(
                name="strictest", value=closed_form_value(problem, cohorts, sparsified=False)
            ),
            bound=published_terms(
                problem, shares, cohorts, np.full(groups, noise[0]), np.ones(groups), "joint"
            ),
            status="evaluated: the strictest budget for everybody, uniform ratios",
        ),
    )


def published(spec: Spec) -> Plan:
    """GDPFed+: the ratios of Problem 1, a release per group, the spec's kept fractions."""
    kept = spec.model_dump(mode="json")["planning"]["sparsification"]
    return solve(plain(spec, ratios="gdpfed_plus", sparsification=kept))


def by_record(
    plan: Plan, records: Mapping[str, int], *, weights: str, strict: bool = False
) -> Plan:
    """DP-SGD at every client: the plan that protects records, with each group's budget.

    A plan of clients is turned into one with as many passes as come nearest to its local steps.

    Args:
        plan: a plan of clients, whose budgets then hold for records; or a plan of records.
        records: for each group the fewest records that one of its clients holds; unused for a
            plan of records.
        weights: a rule of ``planning.weights`` for records.
        strict: whether all clients add the noise of the strictest budget.
    """
    if plan.spec.unit == "client":
        local, fewest = plan.spec.local, min(records.values())
        a_pass = local_steps(fewest, min(local.batch_size, fewest), 1)
        epochs = max(1, round(local.steps / a_pass))
        return record_level(plan, records, weights=weights, epochs=epochs, strictest=strict)
    data = plan.spec.model_dump(mode="json")
    data["planning"]["weights"] = weights
    return solve_records(Spec.parse(data), strictest=strict)


def either(
    plan: Plan,
    records: Mapping[str, int],
    *,
    weights: str,
    of_clients: Callable[[Spec], Plan] = uniform,
) -> Plan:
    """``by_record`` for plans of records, another rule for plans of clients."""
    if plan.spec.unit == "client":
        return of_clients(plan.spec)
    return by_record(plan, records, weights=weights)


def plain(spec: Spec, **planning: Any) -> Spec:
    """The spec as the papers' methods see it, with other planning choices.

    A release per group, participation weights, no sparsification, and none of the limits and
    free variables that only objectives support. What a recipe decided is left out.
    """
    data = without_recipe(spec.model_dump(mode="json"))
    data["cohort"] = spec.expected_cohort
    own = ("sampling_ratio", "min_sampling_ratio", "max_sampling_ratio", "min_weight")
    for group in data["groups"]:
        group.update(dict.fromkeys(own))
    changes = {
        "weights": "participation",
        "sparsification": "none",
        "release": "per_group",
        "free": ["ratios", "weights"],
        **planning,
    }
    data["planning"] = {**data["planning"], **changes}
    return Spec.parse(data)
