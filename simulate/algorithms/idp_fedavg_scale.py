"""IDP-FedAvg, Scale: one noisy sum in which each group has a clipping norm of its own.

F. Boenisch, C. Muehl, A. Dziedzic, R. Rinberg, N. Papernot, Have it your way: Individualized
Privacy Assignment for DP-SGD, NeurIPS 2023, for clients as in GDPFed+, Appendix B.2.

Unit of privacy: client. Released: in each round one noisy sum of the whole cohort's updates, each
clipped to its group's bound: the looser the budget, the longer the update may be.
Deviations: as DP-FedAvg. The original protects records. The groups' weights are those that one
sum gives them, not the ones that GDPFed+ multiplies with.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.individual import individual_scale
from simulate.aggregators.means import mean
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.mechanisms.gaussian import gaussian_joint
from simulate.transforms import own_clip


def idp_fedavg_scale(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Clip by group, one Gaussian sum, plain mean; ``choices`` change nothing."""
    return compose(
        "IDP-FedAvg-Scale",
        plan,
        transforms=(own_clip(plan.spec.clipping_norm),),
        mechanism=gaussian_joint(),
        aggregator=mean(),
    )


ROW = Entry(
    "IDP-FedAvg-Scale",
    idp_fedavg_scale,
    lambda plan, records: individual_scale(plan.spec),
    unit="client",
    released="one noisy sum of updates, clipped by group, a round",
    source="Boenisch, Muehl, Dziedzic, Rinberg, Papernot, NeurIPS 2023",
)
