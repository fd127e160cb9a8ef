"""DP-FedAvg-LS: DP-FedAvg whose server smooths the noisy step.

Z. Liang, B. Wang, Q. Gu, S. Osher, Y. Yao, Differentially Private Federated Learning with
Laplacian Smoothing, Applied and Computational Harmonic Analysis, 2024; baseline of DP-FedPGN.

Unit of privacy: client. Released: in each round one noisy sum of the whole cohort's clipped
updates; smoothing sees nothing but that sum, so it costs no privacy.
Deviations: as DP-FedAvg. Neighbours are the parameters that lie beside each other in the flat
vector, tensor after tensor.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg import dp_fedavg
from simulate.algorithms.entry import Entry, Hyperparameter, Hyperparameters
from simulate.server import laplacian


def dp_fedavg_ls(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """DP-FedAvg with a smoothed step; ``choices`` give ``smoothing``."""
    server = laplacian(choices.numbers["smoothing"])
    return replace(dp_fedavg(plan, choices), name="DP-FedAvg-LS", server=server)


ROW = Entry(
    "DP-FedAvg-LS",
    dp_fedavg_ls,
    lambda plan, records: strictest(plan.spec),
    unit="client",
    released="one noisy sum of clipped updates a round",
    source="Liang, Wang, Gu, Osher, Yao, Applied and Computational Harmonic Analysis, 2024",
    numbers={
        "smoothing": Hyperparameter(0.01, "strength of the smoothing; DP-FedPGN's choice", high=1e6)
    },
)
