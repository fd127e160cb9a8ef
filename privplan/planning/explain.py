"""Every term of the convergence bounds and objectives of a plan, as a formula and a number."""

from __future__ import annotations

from dataclasses import dataclass

from privplan.convergence.bounds import BOUNDS, Bound, missing, number
from privplan.errors import InputError
from privplan.plan import Plan
from privplan.planning.objectives import all_objectives
from privplan.planning.problem import noise_provision
from privplan.planning.record_level import client_weights, noise_variances

RECORDS = "robust_hdp"
"""Name of the rows of plans that protect records, which have no bound."""


@dataclass(frozen=True)
class Explained:
    """One term of a bound.

    Attributes:
        bound: name of the bound.
        source: paper and theorem.
        term: name of the error term.
        formula: the expression, groups counted from 1.
        value: its number for the plan, or None.
        needs: constants that have no value, when there is no number.
    """

    bound: str
    source: str
    term: str
    formula: str
    value: float | None
    needs: tuple[str, ...]


def explain(plan: Plan) -> list[Explained]:
    """Every term of every bound for a plan, as a formula and, where known, as a number.

    For a plan that protects records: the noise variance and the weight of each client. The bounds
    of the literature are left out for plans whose clients take turns: they assume that the noise of
    different rounds is independent.
    """
    if plan.unit == "record":
        return explain_records(plan)
    values = values_of(plan)
    rows = []
    correlated = plan.spec.sampling.law.turns > 1
    for name, one in symbolic_bounds(len(plan.groups), plan.release == "joint").items():
        if correlated and name in BOUNDS:
            continue
        for term, expression in one.terms.items():
            needs = tuple(missing(expression, values))
            value = None if needs else number(expression, values)
            rows.append(Explained(name, one.source, term, str(expression), value, needs))
    return rows


def symbolic_bounds(groups: int = 1, joint: bool = False) -> dict[str, Bound]:
    """All bounds by name: those of the registered objectives, then those of the literature.

    Args:
        groups: how many groups their sums run over.
        joint: whether all groups share one noisy sum.
    """
    own = {name: one.bound(groups, joint) for name, one in all_objectives().items()}
    found = {name: one for name, one in own.items() if one is not None}
    return {**found, **{name: make(groups, joint) for name, make in BOUNDS.items()}}


def bound(name: str, groups: int = 1, joint: bool = False) -> Bound:
    """The bound of a name; see ``symbolic_bounds``.

    Raises:
        InputError: when no bound has that name.
    """
    bounds = symbolic_bounds(groups, joint)
    if name not in bounds:
        raise InputError.one("bound", f"must be one of {', '.join(bounds)}", name)
    return bounds[name]


def explain_records(plan: Plan) -> list[Explained]:
    """Noise variance and weight of a single client of each group, in a plan of records."""
    source = "Malekmohammadi, Yu, Cao (ICML 2024), Section 3; unit record"
    weighting = {
        "inverse_variance": "(1 / sigma_i^2) / sum_j (1 / sigma_j^2)",
        "epsilon": "epsilon_i / sum_j epsilon_j",
        "population": "N_i / sum_j N_j",
        "uniform": "1 / n",
    }[plan.spec.weighting]
    variance = "E_i eta^2 p c^2 z_i^2 / b_i^2"
    rows = []
    for group, value in zip(plan.groups, noise_variances(plan), strict=True):
        term = f"{group.name}: noise variance of an update (Eq. 3, 7)"
        rows.append(Explained(RECORDS, source, term, variance, float(value), ()))
    for group, value in zip(plan.groups, client_weights(plan), strict=True):
        term = f"{group.name}: weight of a client (Eq. 8)"
        rows.append(Explained(RECORDS, source, term, weighting, float(value), ()))
    return rows


def values_of(plan: Plan) -> dict[str, float]:
    """Values of the bounds' symbols in a plan, by name."""
    spec = plan.spec
    clip = spec.clipping_norm
    values = {
        "eta": spec.local.learning_rate,
        "eta_phi": spec.local.learning_rate,
        "tau": float(spec.local.steps),
        "tau_min": float(spec.local.steps),
        "T": float(spec.rounds),
        "d": float(spec.model.parameters),
        "C": clip,
        "N": float(spec.population),
        "R": sum(group.expected_cohort for group in plan.groups),
        "q": sum(group.expected_cohort for group in plan.groups) / spec.population,
        "v": noise_provision(spec),
    }
    for objective in all_objectives().values():
        values |= objective.symbols(spec)
    constants = spec.planning.constants
    if constants is not None:
        values["L"] = constants.smoothness
        values["Delta"] = constants.initial_gap
        values["kappa"] = constants.dissimilarity**0.5
    for m, group in enumerate(plan.groups, start=1):
        values[f"w_{m}"] = group.weight
        values[f"sigma_{m}"] = group.noise_multiplier
        values[f"r_{m}"] = group.expected_cohort
        values[f"k_{m}"] = group.kept_fraction
        values[f"p_{m}"] = group.clients / spec.population
        if constants is not None:
            values[f"zeta_{m}"] = constants.local_variance**0.5
    values["sigma"] = plan.noise_std / clip * values["R"]
    return values
