"""What a spec asks of the planner: the objective, what is free, and what is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from privplan.errors import Fault
from privplan.spec.groups import (
    ONLY_CLIENTS,
    ONLY_RECORDS,
    CalibratingAccountant,
    KeptFractions,
    refuse,
)
from privplan.spec.objectives import (
    FIXED_RATIOS,
    OBJECTIVES,
    FixedRatios,
    ObjectiveName,
    Ratios,
    is_registered,
    objective_names,
    only_objectives,
)
from privplan.values import (
    LARGEST,
    Checked,
    Count,
    NonNegative,
    Positive,
    Probability,
    Value,
    is_none,
    rule,
)

Weights = Literal[
    "optimal", "population", "participation", "uniform", "inverse_variance", "epsilon"
]
RECORD_CHOICES = ("accountant", "weights")
"""The fields that a spec of records chooses; the others keep their defaults."""

Free = Literal["ratios", "weights", "rounds", "cohort", "clipping_norm", "groups"]

CONSTANTS_OF_ROUNDS = (
    "is required when rounds are free (initial_gap and smoothness) without the default recipe, "
    "which decides clipping_norm and server"
)
"""Rule of the constants of planning."""


class Constants(Value):
    """Constants of the convergence bounds, given or estimated on public or proxy data."""

    smoothness: Positive = Field(description="L of the local objectives.")
    noise_curvature: Positive | None = Field(
        None,
        exclude_if=is_none,
        description="Mean curvature tr(H) / d of the objective, which isotropic noise meets; the "
        "smoothness when left out.",
    )
    sampling_curvature: Positive | None = Field(
        None,
        exclude_if=is_none,
        description="Mean curvature along the differences of clients' updates; the smoothness "
        "when left out.",
    )
    initial_gap: Positive = Field(description="f(theta^0) - f*, the loss that can be gained.")
    local_variance: NonNegative = Field(
        0.0, description="zeta^2, variance of a coordinate of a local gradient."
    )
    dissimilarity: NonNegative = Field(
        0.0, description="kappa^2, how much local gradients differ between clients."
    )


class QuantileClipping(Value):
    """A clipping norm that follows a private quantile of the update norms."""

    quantile: Annotated[Positive, Field(lt=1)] = Field(
        0.5, description="Share of the updates that are not clipped."
    )
    share: Probability = Field(
        0.02, description="Part of the precision 1 / sigma^2 that counting them takes."
    )
    learning_rate: Positive = Field(
        0.2, description="Step of the logarithm of the clipping norm, per round."
    )


class Planning(Checked):
    """How the plan is found; has the fields of all variants. Plain data become one of them."""

    accountant: CalibratingAccountant = Field(
        "pld", description="Accountant that the noise multipliers are calibrated with."
    )
    calibration: Literal["exact", "published"] = Field("exact", description="Least noise to 1e-4.")
    ratios: Ratios = "balanced"
    release: Literal["joint", "per_group"] | None = Field(
        None,
        description="One noisy sum of all groups, or one per group; joint when left out for "
        "balanced and noise, else per_group.",
    )
    weights: Weights | None = None
    sparsification: KeptFractions = Field(
        "none", description="Kept fraction of each group, in the order of the groups, or a rule."
    )
    heterogeneity: Annotated[NonNegative, Field(le=LARGEST)] | None = Field(
        None,
        description="h: how much the mean updates of groups may differ, in norm; a sixth of the "
        "clipping norm when left out, a third with one release per group. Never taken from "
        "private data.",
    )
    update_norm: Positive | None = Field(
        None,
        description="Root mean square of the norm of a client's update; the clipping norm when "
        "left out.",
    )
    update_norms: tuple[Positive, ...] = Field(
        (), description="Norms of client updates in a pilot on public or proxy data."
    )
    dropout_tolerance: Annotated[NonNegative, Field(lt=1)] = Field(
        0.0,
        description="Fraction of a cohort that may stay silent without weakening the guarantee.",
    )
    clipping: QuantileClipping | None = Field(
        None,
        exclude_if=is_none,
        description="Let the clipping norm follow a private quantile from clipping_norm on, paid "
        "out of the budgets, in the plan and in every method that clips clients' updates.",
    )
    constants: Constants | None = Field(
        None, description="Constants of the bounds; bound and free rounds need them."
    )
    free: tuple[Free, ...] = Field(
        ("ratios", "weights"), description="What the planner may choose."
    )
    max_rounds: Count | None = Field(
        None, description="Most rounds when they are free; ten times the rounds when left out."
    )
    max_uploads: Positive | None = Field(
        None, description="Most client uploads over the whole run, rounds times cohort."
    )

    @classmethod
    def variants(cls) -> tuple[type[Checked], ...]:
        """Optimised ratios, and ratios by a rule without or with published calibration."""
        return (Optimised, RuleBased, Published) if cls is Planning else ()

    @classmethod
    def variant(cls, data: dict[str, Any]) -> type[Checked]:
        """The class for plain data, by ``ratios`` and ``calibration``."""
        ratios = data.get("ratios", "balanced")
        if ratios in FIXED_RATIOS:
            return Published if data.get("calibration") == "published" else RuleBased
        return Optimised if is_registered(ratios) else cls


def _published_is_not_for() -> str:
    return f"published is not for planning.ratios: {', '.join(objective_names())}"


def _optimal_is_only_for() -> str:
    return f"optimal {only_objectives()}"


class Optimised(Planning):
    """Ratios and weights that minimise an objective, within the limits of the groups."""

    calibration: Annotated[
        Literal["exact"],
        refuse(_published_is_not_for, "published"),
    ] = Field("exact", description="Least noise to 1e-4.")
    ratios: ObjectiveName = Field(
        "balanced", description="Objective that the sampling ratios minimise."
    )
    weights: Annotated[
        Literal["optimal", "population", "participation", "uniform", "inverse_variance"] | None,
        refuse(f"epsilon {ONLY_RECORDS}", "epsilon"),
    ] = Field(
        None,
        description="Weights of the groups: the best for the objective, N / n, r^2 / sum r^2, "
        "equal, or r^2 / sigma^2 normalised; optimal when left out.",
    )

    @rule
    def _free_weights(self) -> Iterator[Fault]:
        if "weights" not in self.free and self.weights == "optimal":
            text = "must name weights when planning.weights is optimal"
            yield Fault("free", text, list(self.free))

    @rule
    def _free_rounds(self) -> Iterator[Fault]:
        """Without a clipping norm to decide, the default recipe can decide rounds: see the spec."""
        if {"rounds", "clipping_norm"} <= {*self.free} and self.constants is None:
            yield Fault("constants", CONSTANTS_OF_ROUNDS, "nothing")

    @rule
    def _free_norm(self) -> Iterator[Fault]:
        if "clipping_norm" in self.free and not self.update_norms:
            text = "is required when the clipping norm is free: norms of updates in a pilot"
            yield Fault("update_norms", text, "nothing")

    @rule
    def _adaptive_norm(self) -> Iterator[Fault]:
        if self.clipping is not None and "clipping_norm" in self.free:
            text = "cannot hold clipping_norm with planning.clipping, which moves it"
            yield Fault("free", text, "clipping_norm")

    @rule
    def _required(self) -> Iterator[Fault]:
        """The fields that the objective requires."""
        for field in OBJECTIVES.get(self.ratios).required:
            if getattr(self, field) is None:
                yield Fault(field, f"is required for ratios: {self.ratios}", "nothing")


class RuleBased(Planning):
    """Ratios by a fixed rule, or given."""

    ratios: FixedRatios = Field(description="Rule of the sampling ratios.")
    weights: Annotated[
        Literal["population", "participation", "uniform", "inverse_variance"] | None,
        refuse(_optimal_is_only_for, "optimal"),
        refuse(f"epsilon {ONLY_RECORDS}", "epsilon"),
    ] = Field(
        None,
        description="Weights of the groups: N / n, r^2 / sum r^2, equal, or r^2 / sigma^2 "
        "normalised; participation when left out.",
    )

    @rule
    def _free(self) -> Iterator[Fault]:
        if set(self.free) - {"groups"} != {"ratios", "weights"}:
            yield Fault("free", only_objectives(), list(self.free))


class Published(RuleBased):
    """Ratios by a fixed rule, and noise multipliers as published tables were made."""

    calibration: Literal["published"] = Field(
        description="By bisection until epsilon is within 0.01 of the budget (accountant rdp, "
        "poisson, add_remove)."
    )


def _only_choices(schema: dict[str, Any]) -> None:
    """Allow only the default of each field that a spec of records cannot choose."""
    for name, field in schema["properties"].items():
        if name not in RECORD_CHOICES:
            schema["properties"][name] = {"const": field["default"], "description": ONLY_CLIENTS}


class RecordPlanning(Planning):
    """Planning of a spec of records, where only accountant and weights are chosen."""

    model_config = ConfigDict(json_schema_extra=_only_choices)

    weights: Annotated[
        Literal["inverse_variance", "population", "uniform", "epsilon"] | None,
        refuse(
            "must be one of inverse_variance, population, uniform, epsilon with unit: record",
            "optimal",
            "participation",
        ),
    ] = Field(
        None,
        description="Weights of single clients: 1 over the noise variance, which is meant when "
        "left out, by their records, equal, or by epsilon.",
    )

    @rule
    def _only_clients(self) -> Iterator[Fault]:
        """The choices of a spec of clients have their defaults."""
        for name, field in type(self).model_fields.items():
            found = getattr(self, name, field.default)
            if name not in RECORD_CHOICES and found != field.default:
                yield Fault(name, ONLY_CLIENTS, found)
