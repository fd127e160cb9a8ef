"""GDPFed: a noise multiplier for each privacy group, the same sampling ratio for all.

GDPFed+ (see ``gdpfed_plus``), Section 3: the method before its ratios are optimised.

Unit of privacy: client. Released: in each round one noisy sum of clipped updates a group.
Deviations: noise is drawn on each sum with its planned deviation whatever the realised cohort,
not in shares that fall short when fewer clients report; the cohort is drawn by the plan's law.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import uniform
from simulate.aggregators.means import literal, normalised
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.mechanisms.gaussian import gaussian_a_group
from simulate.transforms import clip


def gdpfed(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Clip, one Gaussian sum a group, and the groups' weights.

    Args:
        plan: the plan, with one release a group.
        choices: aggregation ``paper`` for the weights of Algorithm 1 as printed, ``mean`` for
            the weighted mean of the groups' means.
    """
    return compose(
        "GDPFed",
        plan,
        transforms=(clip(plan.spec.clipping_norm),),
        mechanism=gaussian_a_group(),
        aggregator=literal() if choices.aggregation == "paper" else normalised(),
    )


ROW = Entry(
    "GDPFed",
    gdpfed,
    lambda plan, records: uniform(plan.spec),
    unit="client",
    released="one noisy sum of clipped updates a group and round",
    source="Xu, Hu, Kotevska (GDPFed+)",
)
