"""IDP-FedAvg: one noisy sum with a clipping norm or a sampling ratio per group.

F. Boenisch, C. Muehl, A. Dziedzic, R. Rinberg, N. Papernot, Have it your way: Individualized
Privacy Assignment for DP-SGD, NeurIPS 2023; for clients as in GDPFed+, Appendix B.2.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.individual import individual_sample, individual_scale
from privplan.spec.spec import Spec
from simulate.algorithm import Algorithm
from simulate.algorithms.entry import Hyperparameters, poisson
from simulate.algorithms.fedavg import dp_fedavg
from simulate.algorithms.registry import from_spec, register


def sample_plan(spec: Spec) -> Plan:
    """The plan of Sample, calibrated with the spec's accountant as those of all other methods."""
    return individual_sample(spec, spec.planning.accountant)


@register(
    "IDP-FedAvg-Scale",
    plan=from_spec(individual_scale),
    unit="client",
    released="one noisy sum of updates, clipped per group, per round",
    source="Boenisch, Muehl, Dziedzic, Rinberg, Papernot, NeurIPS 2023",
)
def idp_fedavg_scale(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """One noisy sum of updates that are clipped to the bounds of their groups.

    Source: NeurIPS 2023, Scale.
    Unit of privacy: client.
    Released: per round, one noisy sum of the cohort's updates, each clipped to the bound of its
        group: the looser the budget, the larger the bound.
    Deviations: as DP-FedAvg. The original protects records. The weights of the groups follow from
        the sum; GDPFed+ multiplies with other ones.
    """
    return dp_fedavg(plan, hyperparameters)


@register(
    "IDP-FedAvg-Sample",
    plan=from_spec(sample_plan),
    unit="client",
    released="one noisy sum of clipped updates per round",
    source="Boenisch, Muehl, Dziedzic, Rinberg, Papernot, NeurIPS 2023",
    requires=(poisson,),
)
def idp_fedavg_sample(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg with the sampling ratio of each group that uses its budget up.

    Source: NeurIPS 2023, Sample.
    Unit of privacy: client.
    Released: per round, one noisy sum of the cohort's clipped updates, with the same noise for all
        groups.
    Deviations: as IDP-FedAvg-Scale. The ratios are found with the spec's accountant.
    """
    return dp_fedavg(plan, hyperparameters)
