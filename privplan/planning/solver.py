"""Problem and solver, brought together: a spec in, a certified plan out."""

from __future__ import annotations

from collections.abc import Callable

from privplan.plan import Plan
from privplan.planning.assemble import Decisions, assemble
from privplan.planning.free_choices import decide_free_choices
from privplan.planning.group_noise import CERTIFICATE_ACCOUNTANTS, FAST_ACCOUNTANTS
from privplan.planning.optimised import optimised
from privplan.planning.problem import Problem, problem_of
from privplan.planning.record_level import solve_records
from privplan.planning.rule_based import rule_based
from privplan.spec.rules import SEARCHED
from privplan.spec.spec import Spec

PLANNERS: dict[str, Callable[[Spec, Problem], Decisions]] = {
    "balanced": optimised,
    "noise": optimised,
    "bound": optimised,
    "gdpfed_plus": rule_based,
    "uniform": rule_based,
    "given": rule_based,
}
"""``planning.ratios`` -> what decides ratios, noise, weights and kept fractions."""


def solve(spec: Spec, *, second_opinion: bool | None = None) -> Plan:
    """The plan of a spec, with its certificate.

    Args:
        spec: the planning problem. Free rounds, cohort and clipping norm are decided first;
            the plan's own spec holds what was decided.
        second_opinion: whether the certificate has rows of prv-accountant, which takes longer
            to load than a plan to solve; None for plans of published and fixed ratios only,
            and never for records.

    Raises:
        InfeasibleError: naming the constraint that cannot hold.
        UnsupportedError: when the spec's accountant does not cover its law and relation.
    """
    if spec.unit == "record":
        return solve_records(spec, second_opinion=bool(second_opinion))
    settled, notes = decide_free_choices(spec)
    problem = problem_of(settled)
    chosen = PLANNERS[settled.planning.ratios](settled, problem)
    if second_opinion is None:
        second_opinion = spec.planning.ratios not in SEARCHED or spec.planning.accountant == "prv"
    accountants = CERTIFICATE_ACCOUNTANTS if second_opinion else FAST_ACCOUNTANTS
    return assemble(settled, problem, chosen, notes, accountants)
