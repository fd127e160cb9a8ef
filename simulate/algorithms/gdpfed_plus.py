"""GDPFed+: optimised sampling ratios, noise by group, and top-k after the release.

GDPFed+, Sparsification-Amplified Group-wise Differentially Private Federated Learning with
Optimal Client Sampling, Algorithms 1 and 3.

Unit of privacy: client. Released: in each round one noisy sum of clipped updates a group; the
top-k step sees nothing but the noisy sum, so it costs no privacy.
Deviations: as GDPFed. The kept fractions are the plan's.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from simulate.aggregators.means import top_k
from simulate.algorithm import Algorithm
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.algorithms.gdpfed import gdpfed
from simulate.algorithms.requirements import per_group


def gdpfed_plus(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """GDPFed under the given plan, sparsified; ``planned`` trains joint plans."""
    plain = gdpfed(plan, choices)
    return replace(plain, name="GDPFed+", aggregator=top_k(plain.aggregator))


ROW = Entry(
    "GDPFed+",
    gdpfed_plus,
    lambda plan, records: plan,
    unit="client",
    released="one noisy sum of clipped updates a group and round",
    source="Xu, Hu, Kotevska (GDPFed+)",
    needs=(per_group,),
)
