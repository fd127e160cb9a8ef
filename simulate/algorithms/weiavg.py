"""WeiAvg: noise by group, and every client counts in proportion to its epsilon.

J. Liu, J. Lou, L. Xiong, J. Liu, X. Meng, Projected Federated Averaging with Heterogeneous
Differential Privacy, VLDB 2022: the baseline of PFA; Algorithm 2 of Robust-HDP.

Unit of privacy: client. Released: in each round one noisy sum of clipped updates a group. Under
a plan that protects records it is the original: each participant's update, noised by DP-SGD.
Deviations: as GDPFed. The original protects records; under a plan that protects clients the noise
is on each group's sum.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import either
from simulate.aggregators.means import by_epsilon
from simulate.aggregators.per_client import as_planned, client_mean
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg_records import by_client
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.algorithms.gdpfed import gdpfed


def weiavg(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """GDPFed, or DP-SGD at every client, with weights by epsilon; ``choices`` change nothing."""
    if plan.spec.unit == "record":
        return by_client("WeiAvg", plan, client_mean("by epsilon", as_planned))
    return replace(gdpfed(plan, choices), name="WeiAvg", aggregator=by_epsilon())


ROW = Entry(
    "WeiAvg",
    weiavg,
    lambda plan, records: either(plan, records, weights="epsilon"),
    unit="client",
    released="one noisy sum of clipped updates a group and round",
    source="Liu, Lou, Xiong, Liu, Meng, VLDB 2022",
    records_too=True,
)
