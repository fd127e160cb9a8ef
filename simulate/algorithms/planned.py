"""planned: executes a given plan, with one sum per group or one joint sum of all groups.

The joint sum is u = sum_m s_m sum_i clip_C(Delta_i) + N(0, C^2 s^2), where s_m is the plan's
scale of group m and s = s_m sigma_m. A client of group m changes u by at most s_m C, so the noise
multiplier that protects it is sigma_m. It generalises the Scale method of F. Boenisch et al.,
Have it your way: Individualized Privacy Assignment for DP-SGD, NeurIPS 2023.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.spec.turns import mixture
from simulate.aggregators.means import at_plan_norm, mean, normalised, top_k
from simulate.aggregators.unmixed import unmixed
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Hyperparameters
from simulate.algorithms.registry import as_given, register
from simulate.mechanisms.banded import mixed_sums
from simulate.mechanisms.gaussian import gaussian_joint, gaussian_per_group
from simulate.transforms import plan_clip, scale


@register(
    "planned",
    plan=as_given,
    unit="client",
    released="one noisy sum of scaled, clipped updates per round",
    source="this project; after Boenisch et al., NeurIPS 2023",
    in_turns=True,
)
def planned(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """Clipped, scaled updates, the plan's kind of release, and a normalised step.

    The weights on the groups' mean updates add up to 1.

    Source: this project.
    Unit of privacy: client.
    Released: per round, one noisy sum per group, or one noisy sum of all groups. Where the plan's
        clipping norm follows a private quantile, the sum has one more coordinate, the number of
        updates within the norm. Where clients take turns (``cyclic_poisson:B``), these are sums of
        sums, and the server solves for the sum of the round.
    Deviations: none.
    """
    joint, factors = plan.release == "joint", mixture(plan.spec)
    mechanism = gaussian_joint() if joint else gaussian_per_group()
    aggregator = at_plan_norm(mean() if joint else top_k(normalised()), plan)
    if len(factors) > 1:
        mechanism = mixed_sums(mechanism, factors, len(plan.groups))
        aggregator = unmixed(aggregator, factors)
    return compose(
        "planned",
        plan,
        transforms=(plan_clip(plan), scale()),
        mechanism=mechanism,
        aggregator=aggregator,
    )
