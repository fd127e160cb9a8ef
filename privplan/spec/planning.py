"""What a spec asks of the planner: the objective, what is free, and what is known."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from privplan.spec.fields import CalibratingAccountant, KeptFractions
from privplan.spec.objectives import Ratios
from privplan.values import Count, Fraction, NonNegative, Positive, Probability, Value, is_none

Free = Literal["ratios", "weights", "rounds", "cohort", "clipping_norm", "groups"]


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
        0.2, description="Step of the logarithm of the clipping norm, a round."
    )


class Planning(Value):
    """How the plan is found."""

    accountant: CalibratingAccountant = Field(
        "pld", description="Accountant that the noise multipliers are calibrated with."
    )
    calibration: Literal["exact", "published"] = Field(
        "exact",
        description="Least noise to 1e-4; or as published tables were made, by bisection until "
        "epsilon is within 0.01 of the budget (accountant rdp, poisson, add_remove).",
    )
    ratios: Ratios = Field(
        "balanced", description="Objective that the sampling ratios minimise, or a fixed rule."
    )
    release: Literal["joint", "per_group"] | None = Field(
        None,
        description="One noisy sum of all groups, or one a group; joint when left out for "
        "balanced and noise, else per_group.",
    )
    weights: (
        Literal["optimal", "population", "participation", "uniform", "inverse_variance", "epsilon"]
        | None
    ) = Field(
        None,
        description="Weights of the groups: the best for the objective, N / n, r^2 / sum r^2, "
        "equal, or r^2 / sigma^2 normalised; optimal when left out for balanced, noise and "
        "bound, else participation. With unit: record of single clients: by their records, "
        "equal, by epsilon, or 1 over the noise variance, which is meant when left out.",
    )
    sparsification: KeptFractions = Field(
        "none", description="Kept fraction of each group, in the order of the groups, or a rule."
    )
    heterogeneity: NonNegative | None = Field(
        None,
        description="h: how much the mean updates of groups may differ, in norm; a sixth of the "
        "clipping norm when left out, a third with a release of each group. Never taken from "
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
    update_coherence: Fraction | None = Field(
        None,
        exclude_if=is_none,
        description="Norm of the mean update over the mean norm of updates; 1, which is its "
        "bound, when left out.",
    )
    dropout_tolerance: Annotated[NonNegative, Field(lt=1)] = Field(
        0.0,
        description="Fraction of a cohort that may stay silent without weakening the guarantee.",
    )
    clipping: QuantileClipping | None = Field(
        None,
        exclude_if=is_none,
        description="Let the clipping norm follow a private quantile from clipping_norm on, paid "
        "out of the budgets; one release of all groups only.",
    )
    constants: Constants | None = Field(
        None, description="Constants of the bounds; bound and free rounds need them."
    )
    free: tuple[Free, ...] = Field(
        ("ratios", "weights"), description="What the planner may choose."
    )
    group_count: Count | None = Field(
        None,
        description="How many groups to make of groups_from; 3 when left out, the fewest that "
        "keep 99% when groups are free.",
    )
    max_rounds: Count | None = Field(
        None, description="Most rounds when they are free; ten times the rounds when left out."
    )
    max_cohort: Positive | None = Field(
        None, description="Largest cohort when it is free; everybody when left out."
    )
    max_uploads: Positive | None = Field(
        None, description="Most client uploads over the whole run, rounds times cohort."
    )
