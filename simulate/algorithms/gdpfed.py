"""GDPFed, GDPFed-op and GDPFed+: noise per group, with optimised sampling ratios.

GDPFed+, Sparsification-Amplified Group-wise Differentially Private Federated Learning
with Optimal Client Sampling.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning import baselines
from privplan.planning.baselines import time_adaptive as adaptive_plan
from simulate import aggregators
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.fedavg import dp_fedavg
from simulate.algorithms.registry import (
    Hyperparameters,
    as_given,
    from_spec,
    of_clients,
    of_groups,
    own_if_joint,
    poisson,
    register,
)
from simulate.components import Aggregator
from simulate.mechanisms import gaussian_joint, gaussian_per_group, mixed_sums
from simulate.recipe import Recipe, of_group_sums
from simulate.transforms import plan_clip, scale


@of_groups(
    "GDPFed",
    plan=from_spec(baselines.uniform),
    source="Xu, Hu, Kotevska (GDPFed+)",
    recipe=of_group_sums,
)
def gdpfed(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """A noise multiplier for each privacy group and the same sampling ratio for all.

    Source: Section 3; with aggregation ``paper`` the weights of Algorithm 1 as printed,
        with ``mean`` the weighted mean of the groups' means.
    Deviations: noise is drawn on each sum with its planned standard deviation, whatever
        the realised cohort, not in shares that fall short when fewer clients report;
        the cohort is drawn by the plan's law.
    """
    return with_aggregator(plan, weighted(hyperparameters))


def weighted(hyperparameters: Hyperparameters) -> Aggregator:
    """The weights as printed, or those of the mean of the groups' means."""
    if hyperparameters.aggregation == "paper":
        return aggregators.literal()
    return aggregators.normalised()


def with_aggregator(plan: Plan, aggregator: Aggregator) -> Algorithm:
    """A noisy sum of clipped updates per group, and an aggregator of these sums."""
    return compose(
        "GDPFed",
        plan,
        transforms=(plan_clip(plan),),
        mechanism=gaussian_per_group(),
        aggregator=aggregators.at_plan_norm(aggregator, plan),
    )


@of_groups(
    "GDPFed-op",
    plan=from_spec(baselines.optimised),
    source="Xu, Hu, Kotevska (GDPFed+)",
    recipe=of_group_sums,
)
def gdpfed_op(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """GDPFed with the sampling ratios that solve Problem 1, without sparsification.

    Source: Section 4 and Table 2.
    Deviations: as GDPFed.
    """
    return gdpfed(plan, hyperparameters)


@of_groups(
    "GDPFed+",
    plan=own_if_joint,
    source="Xu, Hu, Kotevska (GDPFed+)",
    recipe=of_group_sums,
)
def gdpfed_plus(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """GDPFed under the given plan, with top-k sparsification of the noisy sums.

    Under a plan with one sum of all groups, it plans the spec by Problem 1 itself.

    Source: Algorithms 1 and 3.
    Released: as GDPFed; top-k is a function of the noisy sums, so it costs no privacy.
        Where the clipping norm follows a quantile, the counts are not among the
        coordinates it selects.
    Deviations: as GDPFed. The fractions of coordinates are the plan's.
    """
    return with_aggregator(plan, aggregators.top_k(weighted(hyperparameters)))


# --- planned: executes a given plan, with one sum per group or one joint sum. ---------
# The joint sum is u = sum_m s_m sum_i clip_C(Delta_i) + N(0, C^2 s^2), where s_m is the
# plan's scale of group m and s = s_m sigma_m. A client of group m changes u by at most
# s_m C, so the noise multiplier that protects it is sigma_m. It generalises the Scale
# method of F. Boenisch et al., Have it your way: Individualized Privacy Assignment for
# DP-SGD, NeurIPS 2023.


def _as_planned(plan: Plan, aggregation: str) -> Recipe:
    """The plan's kind of release, of scaled updates."""
    if plan.release == "joint":
        return Recipe("joint", scaled=True)
    return Recipe("per_group", "normalised", scaled=True)


@register(
    "planned",
    plan=as_given,
    unit="client",
    released="one noisy sum of scaled, clipped updates per round",
    source="this project; after Boenisch et al., NeurIPS 2023",
    mixes=True,
    recipe=_as_planned,
)
def planned(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """Clipped, scaled updates, the plan's kind of release, and a normalised step.

    The weights on the groups' mean updates add up to 1.

    Source: this project.
    Released: per round, one noisy sum per group, or one noisy sum of all groups. Where
        the plan's clipping norm follows a private quantile, the sum has one more
        coordinate, the number of updates within the norm. Where the sampling law mixes
        rounds, these are sums of sums, and the server solves for the sum of the round.
    Deviations: none.
    """
    if plan.release == "joint":
        mechanism = gaussian_joint()
        aggregator = aggregators.mean()
    else:
        mechanism = gaussian_per_group()
        aggregator = aggregators.top_k(aggregators.normalised())
    aggregator = aggregators.at_plan_norm(aggregator, plan)
    if len(plan.spec.mixture) > 1:
        factors = plan.spec.mixture_of
        mechanism = mixed_sums(mechanism, factors)
        aggregator = aggregators.unmixed(aggregator, factors)
    return compose(
        "planned",
        plan,
        transforms=(plan_clip(plan), scale()),
        mechanism=mechanism,
        aggregator=aggregator,
    )


# --- IDP-FedAvg: one noisy sum with a clipping norm or a sampling ratio per group. ----
# F. Boenisch, C. Muehl, A. Dziedzic, R. Rinberg, N. Papernot, Have it your way:
# Individualized Privacy Assignment for DP-SGD, NeurIPS 2023; for clients as in GDPFed+,
# Appendix B.2.


@of_clients(
    "IDP-FedAvg-Scale",
    plan=from_spec(baselines.individual_scale),
    released="one noisy sum of updates, clipped per group, per round",
    source="Boenisch, Muehl, Dziedzic, Rinberg, Papernot, NeurIPS 2023",
    recipe=Recipe("joint"),
)
def idp_fedavg_scale(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """One noisy sum of updates that are clipped to the bounds of their groups.

    Released: per round, one noisy sum of the cohort's updates, each clipped to the
        bound of its group: the looser the budget, the larger the bound.
    Deviations: as DP-FedAvg. The original protects records. The weights of the groups
        follow from the sum; GDPFed+ multiplies with other ones.
    """
    return dp_fedavg(plan, hyperparameters)


@of_clients(
    "IDP-FedAvg-Sample",
    plan=from_spec(
        lambda spec: baselines.individual_sample(spec, spec.planning.accountant)
    ),
    source="Boenisch, Muehl, Dziedzic, Rinberg, Papernot, NeurIPS 2023",
    requires=(poisson,),
    recipe=Recipe("joint"),
)
def idp_fedavg_sample(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg with the sampling ratio of each group that uses its budget up.

    Released: per round, one noisy sum of the cohort's clipped updates, with the same
        noise for all groups.
    Deviations: as IDP-FedAvg-Scale. The ratios are found with the spec's accountant.
    """
    return dp_fedavg(plan, hyperparameters)


# --- Time-adaptive HDPFL: groups take part less early, and spend more later. ----------
# S. Kiani, N. Kulkarni, A. Dziedzic, S. Draper, F. Boenisch, Differentially private
# federated learning with time-adaptive privacy spending, ICLR 2025.


@of_clients(
    "Time-adaptive HDPFL",
    plan=from_spec(
        lambda spec: adaptive_plan(spec, accountant=spec.planning.accountant)
    ),
    source="Kiani, Kulkarni, Dziedzic, Draper, Boenisch, ICLR 2025",
    requires=(poisson,),
    recipe=Recipe("joint"),
)
def time_adaptive(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg with sampling ratios per group and round.

    Deviations: as DP-FedAvg. The original tunes the saving rounds and ratios by hand;
        here each group saves in the first half of the rounds, at half of its later
        ratio. The sum is divided by the expected cohort averaged over the rounds, so
        that a client has the same weight in each round and saving rounds take shorter
        steps.
    """
    return dp_fedavg(plan, hyperparameters)
