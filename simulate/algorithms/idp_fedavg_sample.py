"""IDP-FedAvg, Sample: one noisy sum, and each group takes part as often as its budget affords.

Boenisch et al., NeurIPS 2023 (see ``idp_fedavg_scale``), for clients as in GDPFed+, Appendix B.2.

Unit of privacy: client. Released: in each round one noisy sum of the whole cohort's clipped
updates; every group faces the same noise, and its sampling ratio uses its budget up.
Deviations: as IDP-FedAvg, Scale. The ratios are found with the accountant of the guarantee.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.individual import individual_sample
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg import dp_fedavg
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.algorithms.requirements import poisson


def idp_fedavg_sample(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """DP-FedAvg under ratios by group; ``choices`` change nothing."""
    return replace(dp_fedavg(plan, choices), name="IDP-FedAvg-Sample")


ROW = Entry(
    "IDP-FedAvg-Sample",
    idp_fedavg_sample,
    lambda plan, records: individual_sample(plan.spec),
    unit="client",
    released="one noisy sum of clipped updates a round",
    source="Boenisch, Muehl, Dziedzic, Rinberg, Papernot, NeurIPS 2023",
    needs=(poisson,),
)
