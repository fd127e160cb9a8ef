"""Solves a spec: spec -> problem -> decisions -> certified plan.

The road of a plan for clients, in ``_solved``: ``with_best_law`` chooses the sampling
law where it is free; ``decide_free_choices`` settles rounds, cohort and clipping norm;
``problem_of`` states the numbers that are left; ``decide`` finds ratios, noise
multipliers and weights, by an objective's search or by a fixed rule; ``assemble``
certifies them; ``with_server`` adds what the default recipe leaves to the plan's noise.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.errors import InfeasibleError, InputError
from privplan.guidance import checked_call
from privplan.plan import ObjectiveValue, Plan
from privplan.planning.assemble import Decisions, assemble, failed_conditions
from privplan.planning.choices import decide_free_choices, optimised
from privplan.planning.error import weights
from privplan.planning.law_choice import with_best_law, with_compared
from privplan.planning.noise import calibrated
from privplan.planning.problem import (
    Problem,
    drawable,
    noise_provision,
    problem_of,
    uniform_cohorts,
)
from privplan.planning.published import (
    closed_form_value,
    degenerate_warning,
    kept_fractions,
    published_terms,
    solve_published,
)
from privplan.planning.recipe import with_server
from privplan.spec.planning import is_objective
from privplan.spec.spec import Spec
from privplan.threads import one_product_thread

Floats = NDArray[np.float64]
_log = logging.getLogger(__name__)


@checked_call
@one_product_thread()
def solve(
    spec: Spec | Mapping[str, Any] | Path | str, *, second_opinion: bool | None = None
) -> Plan:
    """Returns the plan of a spec, with its certificate.

    Args:
        spec: the planning problem, its data as a mapping, or the path of its YAML file.
            Free
            rounds, cohort and clipping norm are decided first; the plan's own spec
            holds the decisions.
        second_opinion: whether the certificate has rows of prv-accountant, which takes
            longer
            to load than a plan to solve; None when the spec's accountant is ``prv``
            only.

    Raises:
        InfeasibleError: naming the constraint that cannot hold.
        UnsupportedError: when the spec's accountant does not cover its law and
            relation.

    >>> privplan.solve(privplan.preset("digits")).groups["strict"].clients
    100
    """
    spec = given_spec(spec)
    if not any(group.risk for group in spec.groups):
        return _solved(spec, second_opinion)
    from privplan.planning.risks import STATEMENTS, of_risk, restated

    # Budgets that state a risk become the weakest that the risk allows.
    try:
        plan = _solved(spec, second_opinion)
        for _ in range(STATEMENTS):
            weaker = restated(plan)
            if weaker is None:
                break
            plan = _solved(weaker, second_opinion)
    except InfeasibleError as error:
        raise of_risk(error, spec) from None
    return plan


def given_spec(spec: Any) -> Spec:
    """The spec that is given as such, as data or as the path of a file.

    Raises:
        InputError: for anything else.
    """
    if isinstance(spec, Spec):
        return spec
    if isinstance(spec, Mapping):
        return Spec.parse(dict(spec))
    if isinstance(spec, Path | str):
        return Spec.load(spec)
    rule = "must be a Spec, a mapping of its fields, or the path of its file"
    raise InputError.one("spec", rule, type(spec).__name__)


def _solved(spec: Spec, second_opinion: bool | None) -> Plan:
    """The road of a plan."""
    _log.debug("solving %s: %d groups, unit %s", spec.name, len(spec.groups), spec.unit)
    if spec.unit == "record":
        from privplan.planning.records import solve_records

        plan = solve_records(spec, second_opinion=bool(second_opinion))
    else:
        spec, compared = with_best_law(spec)
        decided, notes = decide_free_choices(spec)
        problem = problem_of(decided)
        decisions = decide(decided, problem)
        plan = assemble(decided, problem, decisions, notes, second_opinion)
        plan = with_compared(with_server(plan), compared)
    _log.info("solved %s: %s", spec.name, plan.status)
    return plan


def decide(spec: Spec, problem: Problem) -> Decisions:
    """Ratios, noise and weights of a spec without free rounds, cohort or clipping."""
    if is_objective(spec.planning.ratios):
        return optimised(spec, problem)
    return rule_based(spec, problem)


def rule_based(spec: Spec, problem: Problem) -> Decisions:
    """Ratios and weights by the spec's rules, with the least noise for the budgets."""
    cohorts, status = _cohorts(spec, problem)
    noise = calibrated(problem, problem.ratios(cohorts), spec.planning.accountant)
    group_weights = weights(spec.weighting, cohorts, noise, problem.members)
    fractions = kept_fractions(spec, problem, cohorts, noise, group_weights)
    value = closed_form_value(problem, cohorts, _is_sparsified(spec))
    bound = published_terms(
        problem,
        group_weights,
        cohorts,
        noise,
        fractions,
        spec.release,
        noise_provision(spec),
    )
    return Decisions(
        cohorts=cohorts,
        noise=noise,
        weights=group_weights,
        kept_fractions=fractions,
        release=spec.release,
        objective=ObjectiveValue(name="gdpfed_plus", value=value),
        bound=bound,
        status=status,
        warnings=tuple(_warnings(spec, problem, cohorts, noise)),
    )


def _is_sparsified(spec: Spec) -> bool:
    return spec.planning.sparsification != "none"


def _cohorts(spec: Spec, problem: Problem) -> tuple[Floats, str]:
    """Expected cohorts by ``planning.ratios``, shape (groups,), and a status."""
    if spec.planning.ratios == "given":
        cohorts = []
        for group in spec.groups:
            cohorts.append((group.sampling_ratio or 0.0) * spec.drawable(group))
        return np.array(cohorts), "evaluated: the ratios are given"
    if problem.cohort == problem.population:
        everybody = np.asarray(problem.clients, dtype=float)
        return everybody, "evaluated: everybody takes part in every round"
    if spec.planning.ratios == "uniform":
        equal = drawable(problem, uniform_cohorts(problem))
        return equal, "evaluated: the ratios are uniform"
    solution = solve_published(problem, _is_sparsified(spec))
    drawn = drawable(problem, solution.cohorts)
    status = solution.status
    if not np.allclose(drawn, solution.cohorts, rtol=1e-9):
        status += "; then rounded to whole cohorts"
    return drawn, status


def _warnings(
    spec: Spec, problem: Problem, cohorts: Floats, noise: Floats
) -> list[str]:
    """What a plan by rules leaves to say."""
    planning = spec.planning
    lines: list[str] = []
    if planning.accountant == "closed_form":
        lines += failed_conditions(problem, cohorts, noise)
    if planning.ratios != "gdpfed_plus" or problem.cohort == problem.population:
        return lines
    if spec.weighting != "participation":
        lines.append(
            "planning.weights: Problem 1 fixes the weights at participation; the ratios are "
            f"its, the weights of the plan are {spec.weighting}"
        )
    if planning.accountant != "closed_form":
        warning = degenerate_warning(problem, cohorts, noise, planning.accountant)
        if warning:
            lines.append(warning)
    return lines
