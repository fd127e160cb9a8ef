"""A plan's bounds, term by term: the formula and the number."""

from __future__ import annotations

from dataclasses import dataclass

from privplan.convergence.bounds import BOUNDS, bound, missing, number
from privplan.plan import Plan
from privplan.planning.assemble import noise_provision
from privplan.planning.optimised import heterogeneity_of, update_norm_of, variance_prices
from privplan.planning.record_level import client_weights, noise_variances

RECORDS = "robust_hdp"
"""What stands in the place of a bound for plans that protect records."""


@dataclass(frozen=True)
class Explained:
    """One term of a bound.

    Attributes:
        bound: name of the bound.
        source: where it stands.
        term: name of the error.
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

    For a plan that protects records: the noise variance and the weight of each client.
    """
    if plan.unit == "record":
        return explain_records(plan)
    values = values_of(plan)
    rows = []
    for name in BOUNDS:
        one = bound(name, len(plan.groups), plan.release == "joint")
        for term, expression in one.terms.items():
            needs = tuple(missing(expression, values))
            value = None if needs else number(expression, values)
            rows.append(Explained(name, one.source, term, str(expression), value, needs))
    return rows


def explain_records(plan: Plan) -> list[Explained]:
    """The noise variance of each group's clients, and what a single client weighs."""
    source = "Malekmohammadi, Yu, Cao (ICML 2024), Section 3; unit record"
    weighting = {
        "inverse_variance": "(1 / sigma_i^2) / sum_j (1 / sigma_j^2)",
        "epsilon": "epsilon_i / sum_j epsilon_j",
        "population": "N_i / sum_j N_j",
        "uniform": "1 / n",
    }[plan.spec.weighting]
    variance = "E_i eta^2 p c^2 z_i^2 / b_i^2"
    rows = []
    for group, found in zip(plan.groups, noise_variances(plan), strict=True):
        term = f"{group.name}: noise variance of an update (Eq. 3, 7)"
        rows.append(Explained(RECORDS, source, term, variance, float(found), ()))
    for group, found in zip(plan.groups, client_weights(plan), strict=True):
        term = f"{group.name}: weight of a client (Eq. 8)"
        rows.append(Explained(RECORDS, source, term, weighting, float(found), ()))
    return rows


def values_of(plan: Plan) -> dict[str, float]:
    """The symbols that a plan gives a value to."""
    spec = plan.spec
    clip = spec.clipping_norm
    noise_price, sampling_price = variance_prices(spec)
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
        "s": update_norm_of(spec),
        "h": heterogeneity_of(spec),
        "v": noise_provision(spec),
        "rho": noise_price,
        "rho_s": sampling_price,
    }
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
