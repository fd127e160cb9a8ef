"""Terms of the convergence bounds and objectives of a plan, as formulas and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.planning.bounds import BOUNDS, Bound, missing, number
from privplan.planning.objectives import all_objectives
from privplan.planning.problem import noise_provision
from privplan.planning.records import client_weights, noise_variances

# Name of the rows of plans that protect records, which have no bound.
RECORDS = "robust_hdp"


@dataclass(frozen=True)
class Explained:
    """One term of a bound.

    Attributes:
        bound: name of the bound.
        source: paper and theorem.
        term: name of the term.
        formula: the term in symbols; groups are counted from 1.
        value: its number for the plan, if all constants have values.
        needs: constants that have no value, when there is no number.
        met: of a condition of the theorem, whether it is; None for terms.
    """

    bound: str
    source: str
    term: str
    formula: str
    value: float | None
    needs: tuple[str, ...]
    met: bool | None = None

    @property
    def cell(self) -> str:
        """The number, whether the condition is met, or what is needed for either."""
        if self.needs:
            return f"needs {', '.join(self.needs)}"
        if self.met is not None:
            if self.met:
                return "met"
            return "NOT met"
        return f"{self.value:.6g}"


def explain(
    plan: Plan, constants: Mapping[str, float] = MappingProxyType({})
) -> list[Explained]:
    """Every term and condition of every bound, with numbers where they have values.

    Args:
        plan: the plan.
        constants: values of symbols that neither plan nor spec states.

    Raises:
        InputError: for a constant that no bound needs, or that is not positive.

    For a plan that protects records: the noise variance and the weight of each client.
    The bounds of the literature are left out for plans with correlated noise: they
    assume that the noise of different rounds is independent.
    """
    if plan.unit == "record":
        return explain_records(plan)
    values = {**values_of(plan), **constants}
    correlated = len(plan.spec.mixture) > 1
    bounds = symbolic_bounds(len(plan.groups), plan.release == "joint")
    _check_constants(plan, constants, bounds)
    rows: list[Explained] = []
    for name, bound in bounds.items():
        if correlated and name in BOUNDS:
            continue
        for term, expression in bound.terms.items():
            needs = tuple(missing(expression, values))
            value = None if needs else number(expression, values)
            formula = str(expression)
            rows.append(Explained(name, bound.source, term, formula, value, needs))
        for condition, (smaller, larger) in bound.conditions.items():
            needs = tuple(sorted({*missing(smaller, values), *missing(larger, values)}))
            met = None if needs else number(smaller, values) <= number(larger, values)
            term = f"if {condition}"
            formula = f"{smaller} <= {larger}"
            rows.append(Explained(name, bound.source, term, formula, None, needs, met))
    return rows


def _check_constants(
    plan: Plan, constants: Mapping[str, float], bounds: Mapping[str, Bound]
) -> None:
    """Raise InputError for constants that are not open in any bound."""
    values = values_of(plan)
    expressions: list[Any] = []
    for bound in bounds.values():
        expressions += bound.terms.values()
        for inequality in bound.conditions.values():
            expressions += inequality
    open_names: set[str] = set()
    for formula in expressions:
        open_names.update(missing(formula, values))
    for name, value in constants.items():
        if name not in open_names:
            text = f"must be one of {', '.join(sorted(open_names))}"
            raise InputError.one("set", text, name)
        if not 0 < value < math.inf:
            raise InputError.one(f"set.{name}", "must be positive and finite", value)


def symbolic_bounds(groups: int = 1, joint: bool = False) -> dict[str, Bound]:
    """Bounds by name: of the registered objectives, then of the literature.

    Args:
        groups: how many groups the sums of the formulas have.
        joint: whether there is one noisy sum of all groups.
    """
    bounds: dict[str, Bound] = {}
    for name, objective in all_objectives().items():
        bound = objective.bound(groups, joint)
        if bound is not None:
            bounds[name] = bound
    for name, make_bound in BOUNDS.items():
        bounds[name] = make_bound(groups, joint)
    return bounds


def explain_records(plan: Plan) -> list[Explained]:
    """Noise variance and weight of a client of each group, in a plan of records."""
    source = "Malekmohammadi, Yu, Cao (ICML 2024), Section 3; unit record"
    formulas_of_weights = {
        "inverse_variance": "(1 / sigma_i^2) / sum_j (1 / sigma_j^2)",
        "epsilon": "epsilon_i / sum_j epsilon_j",
        "population": "N_i / sum_j N_j",
        "uniform": "1 / n",
    }
    variance_formula = "E_i eta^2 p c^2 z_i^2 / b_i^2"
    rows: list[Explained] = []
    for group, variance in zip(plan.groups, noise_variances(plan), strict=True):
        term = f"{group.name}: noise variance of an update (Eq. 3, 7)"
        rows.append(
            Explained(RECORDS, source, term, variance_formula, float(variance), ())
        )
    weight_formula = formulas_of_weights[plan.spec.weighting]
    for group, weight in zip(plan.groups, client_weights(plan), strict=True):
        term = f"{group.name}: weight of a client (Eq. 8)"
        rows.append(Explained(RECORDS, source, term, weight_formula, float(weight), ()))
    return rows


def values_of(plan: Plan) -> dict[str, float]:
    """Values of the bounds' symbols in a plan, by name."""
    spec = plan.spec
    clip = spec.clipping_norm
    cohort = sum(group.expected_cohort for group in plan.groups)
    values = {
        "eta": spec.local.learning_rate,
        "eta_phi": spec.local.learning_rate,
        "tau": float(spec.local.steps),
        "tau_min": float(spec.local.steps),
        "T": float(spec.rounds),
        "d": float(spec.model.parameters),
        "C": clip,
        "N": float(spec.population),
        "R": cohort,
        "q": cohort / spec.population,
        "v": noise_provision(spec),
    }
    for objective in all_objectives().values():
        values |= objective.symbols(spec)
    constants = spec.planning.constants
    if constants is not None:
        values["L"] = constants.smoothness
        values["Delta"] = constants.initial_gap
        values["kappa"] = constants.dissimilarity**0.5
    for number_of_group, group in enumerate(plan.groups, start=1):
        values[f"w_{number_of_group}"] = group.weight
        values[f"sigma_{number_of_group}"] = group.noise_multiplier
        values[f"r_{number_of_group}"] = group.expected_cohort
        values[f"k_{number_of_group}"] = group.kept_fraction
        values[f"p_{number_of_group}"] = group.clients / spec.population
        if constants is not None:
            values[f"zeta_{number_of_group}"] = constants.local_variance**0.5
    values["sigma"] = plan.mean_noise_std / clip * cohort
    return values
