"""Robust-HDP: DP-SGD at every client, weighted by noise that the server estimates.

S. Malekmohammadi, Y. Yu, Y. Cao, Noise-Aware Algorithm for Heterogeneous Differentially Private
Federated Learning, ICML 2024, Algorithm 1. Robust principal component analysis splits the
updates into a low-rank part and noise; a client counts 1 / its estimated noise (Eq. 8).

Unit of privacy: record, each client by itself. Released: in each round every participant's
update, made by DP-SGD on its own records with the noise that its own budget needs.
Deviations: clients take turns by a public schedule where the cohort is smaller than the population.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import by_record
from simulate.aggregators.per_client import by_noise, client_mean
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg_records import by_client
from simulate.algorithms.entry import Entry, Hyperparameter, Hyperparameters


def robust_hdp(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Weights by noise estimated on sub-matrices of ``rows`` rows."""
    rows = int(choices.numbers["rows"])
    return by_client("Robust-HDP", plan, client_mean("by estimated noise", by_noise(rows)))


ROW = Entry(
    "Robust-HDP",
    robust_hdp,
    lambda plan, records: by_record(plan, records, weights="inverse_variance"),
    unit="record",
    released="each participant's update, noised by DP-SGD",
    source="Malekmohammadi, Yu, Cao, ICML 2024",
    numbers={
        "rows": Hyperparameter(200_000, "rows p' of a sub-matrix (Section 3.6)", low=2, whole=True)
    },
)
