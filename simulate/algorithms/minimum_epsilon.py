"""minimum-epsilon: DP-SGD at every client with the noise of the strictest budget.

The baseline of J. Liu, J. Lou, L. Xiong, J. Liu, X. Meng, Projected Federated Averaging with
Heterogeneous Differential Privacy, VLDB 2022, as Robust-HDP compares with it.

Unit of privacy: record, each client by itself. Released: in each round every participant's
update, made by DP-SGD on its own records with the noise that the strictest budget needs.
Deviations: clients take turns by a public schedule where the cohort is smaller than the population.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import by_record
from simulate.aggregators.per_client import as_planned, client_mean
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg_records import by_client
from simulate.algorithms.entry import Entry, Hyperparameters


def minimum_epsilon(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Weights as planned, by records; ``choices`` change nothing."""
    return by_client("minimum-epsilon", plan, client_mean("by records", as_planned))


ROW = Entry(
    "minimum-epsilon",
    minimum_epsilon,
    lambda plan, records: by_record(plan, records, weights="population", strict=True),
    unit="record",
    released="each participant's update, noised by DP-SGD",
    source="Liu, Lou, Xiong, Liu, Meng, VLDB 2022",
)
