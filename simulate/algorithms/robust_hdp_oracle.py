"""Robust-HDP with oracle weights: the weights that Robust-HDP estimates, known.

S. Malekmohammadi, Y. Yu, Y. Cao, ICML 2024, Eq. 8 with the variances of Eq. 3 and Eq. 7: what the
least noise in the mean would be.

Unit of privacy: record, each client by itself. Released: in each round every participant's
update, made by DP-SGD on its own records with the noise that its own budget needs.
Deviations: clients take turns by a public schedule where the cohort is smaller than the population.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import by_record
from simulate.aggregators.per_client import as_planned, client_mean
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg_records import by_client
from simulate.algorithms.entry import Entry, Hyperparameters


def robust_hdp_oracle(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Weights as planned, by noise variance; ``choices`` change nothing."""
    return by_client("Robust-HDP-oracle", plan, client_mean("by noise", as_planned))


ROW = Entry(
    "Robust-HDP-oracle",
    robust_hdp_oracle,
    lambda plan, records: by_record(plan, records, weights="inverse_variance"),
    unit="record",
    released="each participant's update, noised by DP-SGD",
    source="Malekmohammadi, Yu, Cao, ICML 2024, Eq. 8",
)
