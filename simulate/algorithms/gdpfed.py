"""GDPFed, GDPFed-op and GDPFed+: noise per privacy group, with optimised sampling ratios.

GDPFed+, Sparsification-Amplified Group-wise Differentially Private Federated Learning with
Optimal Client Sampling.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import optimised, uniform
from simulate.aggregators.means import at_plan_norm, literal, normalised, top_k
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Hyperparameters, per_group
from simulate.algorithms.registry import as_given, from_spec, register
from simulate.components import Aggregator
from simulate.mechanisms.gaussian import gaussian_per_group
from simulate.transforms import plan_clip


@register(
    "GDPFed",
    plan=from_spec(uniform),
    unit="client",
    released="one noisy sum of clipped updates per group and round",
    source="Xu, Hu, Kotevska (GDPFed+)",
    scaled=True,
)
def gdpfed(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """A noise multiplier for each privacy group and the same sampling ratio for all.

    Source: Section 3; with aggregation ``paper`` the weights of Algorithm 1 as printed, with
        ``mean`` the weighted mean of the groups' means.
    Unit of privacy: client.
    Released: per round, one noisy sum of clipped updates per group.
    Deviations: noise is drawn on each sum with its planned standard deviation, whatever the
        realised cohort, not in shares that fall short when fewer clients report; the cohort is
        drawn by the plan's law.
    """
    return with_aggregator(plan, weighted(hyperparameters))


def weighted(hyperparameters: Hyperparameters) -> Aggregator:
    """The weights as printed, or those of the mean of the groups' means."""
    return literal() if hyperparameters.aggregation == "paper" else normalised()


def with_aggregator(plan: Plan, aggregator: Aggregator) -> Algorithm:
    """A noisy sum of clipped updates per group, and an aggregator of these sums."""
    return compose(
        "GDPFed",
        plan,
        transforms=(plan_clip(plan),),
        mechanism=gaussian_per_group(),
        aggregator=at_plan_norm(aggregator, plan),
    )


@register(
    "GDPFed-op",
    plan=from_spec(optimised),
    unit="client",
    released="one noisy sum of clipped updates per group and round",
    source="Xu, Hu, Kotevska (GDPFed+)",
    scaled=True,
)
def gdpfed_op(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """GDPFed with the sampling ratios that solve Problem 1, without sparsification.

    Source: Section 4 and Table 2.
    Unit of privacy: client.
    Released: as GDPFed.
    Deviations: as GDPFed.
    """
    return gdpfed(plan, hyperparameters)


@register(
    "GDPFed+",
    plan=as_given,
    unit="client",
    released="one noisy sum of clipped updates per group and round",
    source="Xu, Hu, Kotevska (GDPFed+)",
    requires=(per_group,),
    scaled=True,
)
def gdpfed_plus(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """GDPFed under the given plan, with top-k sparsification of the noisy sums.

    Source: Algorithms 1 and 3.
    Unit of privacy: client.
    Released: as GDPFed; top-k is a function of the noisy sums, so it costs no privacy. Where the
        clipping norm follows a quantile, the counts are not among the coordinates it selects.
    Deviations: as GDPFed. The fractions of coordinates are the plan's.
    """
    return with_aggregator(plan, top_k(weighted(hyperparameters)))
