"""planned: exactly what the plan says, with one sum a group or one joint sum of all groups.

The joint sum is u = sum_m s_m sum_i clip_C(Delta_i) + N(0, C^2 s^2), where s_m is the plan's
scale of group m and s = s_m sigma_m. A client of group m moves u by at most s_m C, so the noise
multiplier that protects it is sigma_m. It generalises the Scale method of F. Boenisch et al.,
Have it your way: Individualized Privacy Assignment for DP-SGD, NeurIPS 2023.

Where the plan's clipping norm follows a private quantile, the sum has one more coordinate that
counts who was short enough, in the same release.

Unit of privacy: client. Released: in each round one noisy sum a group, or one noisy sum of all.
The step is normalised: the weights on the groups' mean updates add up to 1.
"""

from __future__ import annotations

from privplan.plan import Plan
from simulate.aggregators.means import adaptive_clipping, mean, normalised, top_k
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.mechanisms.gaussian import gaussian_a_group, gaussian_joint
from simulate.transforms import adaptive_clip, clip, scale


def planned(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Clip, scale, the plan's kind of release, normalised; ``choices`` change nothing."""
    joint, clipping = plan.release == "joint", plan.clipping
    shorten = clip(plan.spec.clipping_norm) if clipping is None else adaptive_clip(clipping)
    combined = mean() if joint else top_k(normalised())
    return compose(
        "planned",
        plan,
        transforms=(shorten, scale()),
        mechanism=gaussian_joint() if joint else gaussian_a_group(),
        aggregator=combined if clipping is None else adaptive_clipping(combined, plan, clipping),
    )


ROW = Entry(
    "planned",
    planned,
    lambda plan, records: plan,
    unit="client",
    released="one noisy sum of scaled, clipped updates a round",
    source="this project; after Boenisch et al., NeurIPS 2023",
)
