"""PFA: the strictest group's noisy sum is projected onto what the loosest group releases.

J. Liu, J. Lou, L. Xiong, J. Liu, X. Meng, Projected Federated Averaging with Heterogeneous
Differential Privacy, VLDB 2022, for clients as in GDPFed+, Appendix B.2: the loosest group is
public, the strictest one is projected, the groups between are taken as they are.

Unit of privacy: client. Released: in each round one noisy sum of clipped updates a group; the
projection sees nothing but the noisy sums, so it costs no privacy. Under a plan that protects
records it is the original: each participant's update is released, noised by DP-SGD.
Deviations: as GDPFed, with its plan and weights. The original finds the public subspace in single
updates of public clients; secure sums reveal none, so here the last noisy public sums span it.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import either
from simulate.aggregators.projected import projected, projected_clients
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg_records import by_client
from simulate.algorithms.entry import Entry, Hyperparameter, Hyperparameters
from simulate.algorithms.gdpfed import gdpfed


def pfa(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """GDPFed, or DP-SGD at every client, with a projection; ``choices`` name ``directions``."""
    directions = int(choices.numbers["directions"])
    if plan.spec.unit == "record":
        return by_client("PFA", plan, projected_clients(directions))
    plain = gdpfed(plan, choices)
    return replace(plain, name="PFA", aggregator=projected(plain.aggregator, directions))


ROW = Entry(
    "PFA",
    pfa,
    lambda plan, records: either(plan, records, weights="epsilon"),
    unit="client",
    released="one noisy sum of clipped updates a group and round",
    source="Liu, Lou, Xiong, Liu, Meng, VLDB 2022",
    records_too=True,
    numbers={
        "directions": Hyperparameter(
            1, "public sums that span the subspace; 1 in Robust-HDP", low=1, high=100, whole=True
        )
    },
)
