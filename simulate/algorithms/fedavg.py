"""FedAvg: federated averaging without privacy.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agueera y Arcas, Communication-Efficient
Learning of Deep Networks from Decentralized Data, AISTATS 2017. Called P-FedAvg in the
comparison of GDPFed+.

Unit of privacy: none. Released: the exact sum of the cohort's updates in each round, so epsilon
is infinite and the ledger says so.
Deviations: the cohort is drawn by the plan's law with the same ratio for everybody, and the sum
is divided by the expected cohort, not by the realised one.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import uniform
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Entry, Hyperparameters


def fedavg(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Every slot at its default; ``choices`` change nothing."""
    return compose("FedAvg", plan)


ROW = Entry(
    "FedAvg",
    fedavg,
    lambda plan, records: uniform(plan.spec),
    unit="none",
    released="the exact sum of updates a round",
    source="McMahan, Moore, Ramage, Hampson, Agueera y Arcas, AISTATS 2017",
)
