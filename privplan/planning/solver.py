"""Solves a spec: spec -> problem -> decisions -> certified plan.

The road of a plan for clients, in ``_solved``: ``decide_free_choices`` settles rounds, cohort and
clipping norm; ``problem_of`` states the numbers that are left; ``decide`` finds ratios, noise
multipliers and weights, by an objective's search or by a fixed rule; ``assemble`` certifies them;
``with_server`` adds what the default recipe leaves to the plan's noise.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.errors import InfeasibleError, InputError, checked_call
from privplan.plan import ObjectiveValue, Plan
from privplan.planning.assemble import Decisions, assemble, failed_conditions
from privplan.planning.choices import decide_free_choices, optimised, with_server
from privplan.planning.error import weights
from privplan.planning.noise import calibrated
from privplan.planning.problem import Problem, drawable, problem_of, uniform_cohorts
from privplan.planning.published import (
    closed_form_value,
    degenerate_warning,
    kept_fractions,
    published_terms,
    solve_published,
)
from privplan.spec.planning import is_objective
from privplan.spec.spec import Spec

Floats = NDArray[np.float64]
_log = logging.getLogger(__name__)


@checked_call
def solve(
    spec: Spec | Mapping[str, Any] | Path | str, *, second_opinion: bool | None = None
) -> Plan:
    """Returns the plan of a spec, with its certificate.

    Args:
        spec: the planning problem, its data as a mapping, or the path of its YAML file. Free
            rounds, cohort and clipping norm are decided first; the plan's own spec holds the
            decisions.
        second_opinion: whether the certificate has rows of prv-accountant, which takes longer
            to load than a plan to solve; None when the spec's accountant is ``prv`` only.

    Raises:
        InfeasibleError: naming the constraint that cannot hold.
        UnsupportedError: when the spec's accountant does not cover its law and relation.

    >>> privplan.solve(privplan.preset("digits")).groups["strict"].clients
    100
    """
    spec = given_spec(spec)
    if not any(group.risk for group in spec.groups):
        return _solved(spec, second_opinion)
    from privplan.planning.risks import STATEMENTS, of_risk, restated

    try:
        plan = _solved(spec, second_opinion)
        for _ in range(STATEMENTS):  # at the weakest budgets that the risks allow
            weaker = restated(plan)
            if weaker is None:
                break
            plan = _solved(weaker, second_opinion)
    except InfeasibleError as error:
        raise of_risk(error, spec) from None
    return plan


def given_spec(given: Any) -> Spec:
    """The spec that is given as such, as data or as a file."""
    if isinstance(given, Spec):
        return given
    if isinstance(given, Mapping):
        return Spec.parse(dict(given))
    if isinstance(given, Path | str):
        return Spec.load(given)
    rule = "must be a Spec, a mapping of its fields, or the path of its file"
    raise InputError.one("spec", rule, type(given).__name__)


def _solved(spec: Spec, second_opinion: bool | None) -> Plan:
    _log.debug("solving %s: %d groups, unit %s", spec.name, len(spec.groups), spec.unit)
    if spec.unit == "record":
        from privplan.planning.records import solve_records

        plan = solve_records(spec, second_opinion=bool(second_opinion))
    else:
        decided, notes = decide_free_choices(spec)
        problem = problem_of(decided)
        chosen = decide(decided, problem)
        plan = with_server(assemble(decided, problem, chosen, notes, second_opinion))
    _log.info("solved %s: %s", spec.name, plan.status)
    return plan


def decide(spec: Spec, problem: Problem) -> Decisions:
    """Ratios, noise multipliers and weights of a spec without free rounds, cohort or clipping."""
    return (optimised if is_objective(spec.planning.ratios) else rule_based)(
        spec, problem
    )


def rule_based(spec: Spec, problem: Problem) -> Decisions:
    """Returns ratios and weights by spec's rules, and the least noise that keeps the budgets."""
    cohorts, status = _cohorts(spec, problem)
    noise = calibrated(problem, problem.ratios(cohorts), spec.planning.accountant)
    weight = weights(spec.weighting, cohorts, noise, problem.members)
    kept = kept_fractions(spec, problem, cohorts, noise, weight)
    sparsified = spec.planning.sparsification != "none"
    value = closed_form_value(problem, cohorts, sparsified)
    return Decisions(
        cohorts=cohorts,
        noise=noise,
        weights=weight,
        kept_fractions=kept,
        release=spec.release,
        objective=ObjectiveValue(name="gdpfed_plus", value=value),
        bound=published_terms(problem, weight, cohorts, noise, kept, spec.release),
        status=status,
        warnings=tuple(_warnings(spec, problem, cohorts, noise)),
    )


def _cohorts(spec: Spec, problem: Problem) -> tuple[Floats, str]:
    """Expected cohorts by ``planning.ratios``, shape (groups,), and the status of the plan."""
    if spec.planning.ratios == "given":
        given = [
            (group.sampling_ratio or 0.0) * spec.drawable(group)
            for group in spec.groups
        ]
        return np.array(given), "evaluated: the ratios are given"
    if problem.cohort == problem.population:
        everybody = np.asarray(problem.clients, dtype=float)
        return everybody, "evaluated: everybody takes part in every round"
    if spec.planning.ratios == "uniform":
        cohorts = drawable(problem, uniform_cohorts(problem))
        return cohorts, "evaluated: the ratios are uniform"
    found = solve_published(problem, spec.planning.sparsification != "none")
    cohorts = drawable(problem, found.cohorts)
    rounded = not np.allclose(cohorts, found.cohorts, rtol=1e-9)
    return cohorts, found.status + "; then rounded to whole cohorts" * rounded


def _warnings(
    spec: Spec, problem: Problem, cohorts: Floats, noise: Floats
) -> list[str]:
    planning, lines = spec.planning, []
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
        lines += [warning] if warning else []
    return lines
