"""DPFedAvg: DP-SGD at every client, the mean weighted by records.

M. Noble, A. Bellet, A. Dieuleveut, Differentially Private Federated Learning on Heterogeneous
Data, AISTATS 2022; as Robust-HDP compares with it.

Unit of privacy: record, each client by itself. Released: in each round every participant's
update, made by DP-SGD on its own records with the noise that its own budget needs.
Deviations: Robust-HDP's form, without control variates;
clients take turns by a public schedule where the cohort is smaller than the population.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import by_record
from simulate.aggregators.per_client import as_planned, client_mean
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.components import Aggregator
from simulate.local.dp_sgd import dp_sgd
from simulate.mechanisms.per_client import noised_by_client
from simulate.samplers import rotation


def by_client(name: str, plan: Plan, aggregator: Aggregator) -> Algorithm:
    """Any method whose clients run DP-SGD and send for themselves; it is its aggregator."""
    return compose(
        name,
        plan,
        sampler=rotation(),
        local=dp_sgd(plan.spec.clipping_norm),
        mechanism=noised_by_client(),
        aggregator=aggregator,
    )


def dp_fedavg_records(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Weights as planned, by records; ``choices`` change nothing."""
    return by_client("DPFedAvg", plan, client_mean("by records", as_planned))


ROW = Entry(
    "DPFedAvg",
    dp_fedavg_records,
    lambda plan, records: by_record(plan, records, weights="population"),
    unit="record",
    released="each participant's update, noised by DP-SGD",
    source="Noble, Bellet, Dieuleveut, AISTATS 2022",
)
