"""Plans whose ratios follow a rule: uniform, given, or the published Problem 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privplan.accounting import closed_form
from privplan.plan import Objective
from privplan.planning.assemble import Decisions, published_terms
from privplan.planning.group_noise import calibrated, history_of
from privplan.planning.problem import Problem, drawable, uniform_cohorts
from privplan.planning.published import closed_form_value, degenerate_warning, solve_published
from privplan.planning.sparsification import kept_fractions
from privplan.planning.weights import weights
from privplan.spec.spec import Spec

Floats = NDArray[np.float64]


def rule_based(spec: Spec, problem: Problem) -> Decisions:
    """Ratios by the spec's rule, the least noise that keeps the budgets, weights by rule.

    Raises:
        InfeasibleError: naming the constraint that cannot hold.
        UnsupportedError: when the spec's accountant does not cover its law and relation.
    """
    cohorts, status = _cohorts(spec, problem)
    ratios = np.minimum(cohorts / np.asarray(problem.clients, dtype=float), 1.0)
    noise = calibrated(problem, ratios, spec.planning.accountant)
    weight = weights(spec.weighting, cohorts, noise, problem.clients)
    kept = kept_fractions(spec, problem, cohorts, noise, weight)
    sparsified = spec.planning.sparsification != "none"
    value = closed_form_value(problem, cohorts, sparsified)
    return Decisions(
        cohorts=cohorts,
        noise=noise,
        weights=weight,
        kept_fractions=kept,
        release=spec.release,
        objective=Objective(name="gdpfed_plus", value=value),
        bound=published_terms(problem, weight, cohorts, noise, kept, spec.release),
        status=status,
        warnings=tuple(_warnings(spec, problem, cohorts, noise)),
    )


def _cohorts(spec: Spec, problem: Problem) -> tuple[Floats, str]:
    """Expected clients of each group, and how good that choice is."""
    if spec.planning.ratios == "given":
        given = [(group.sampling_ratio or 0.0) * group.clients for group in spec.groups]
        return np.array(given), "evaluated: the ratios are given"
    if problem.cohort == problem.population:
        everybody = np.asarray(problem.clients, dtype=float)
        return everybody, "evaluated: everybody takes part in every round"
    if spec.planning.ratios == "uniform":
        uniform = uniform_cohorts(problem)
        return drawable(problem, uniform), "evaluated: the ratios are uniform"
    found = solve_published(problem, spec.planning.sparsification != "none")
    cohorts = drawable(problem, found.cohorts)
    status = found.status
    if not np.allclose(cohorts, found.cohorts, rtol=1e-9):
        status += "; then rounded to whole cohorts"
    return cohorts, status


def _warnings(spec: Spec, problem: Problem, cohorts: Floats, noise: Floats) -> list[str]:
    lines = []
    if spec.planning.accountant == "closed_form":
        lines += failed_conditions(problem, cohorts, noise)
    if spec.planning.ratios != "gdpfed_plus" or problem.cohort == problem.population:
        return lines
    if spec.weighting != "participation":
        lines.append(
            "planning.weights: Problem 1 fixes the weights at participation; the ratios are "
            f"its, the weights of the plan are {spec.weighting}"
        )
    if spec.planning.accountant != "closed_form":
        warning = degenerate_warning(problem, cohorts, noise, spec.planning.accountant)
        lines += [warning] if warning else []
    return lines


def failed_conditions(problem: Problem, cohorts: Floats, noise: Floats) -> list[str]:
    """Theorem 1's conditions that fail, a line a group."""
    lines = []
    for m, name in enumerate(problem.names):
        history = history_of(problem, min(cohorts[m] / problem.clients[m], 1.0), noise[m])
        failed = closed_form.failed_conditions(history, problem.deltas[m], problem.relation)
        if failed:
            lines.append(
                f"groups.{name}: Theorem 1's closed form is NOT a guarantee here, its "
                f"conditions fail: {'; '.join(failed)}; rely on the pld rows"
            )
    return lines
