"""DP-FedAvg-BLUR: DP-FedAvg whose clients pay for updates that are longer than the bound.

A. Cheng, P. Wang, X. S. Zhang, J. Cheng, Differentially Private Federated Learning with Local
Regularization and Sparsification, CVPR 2022; baseline of DP-FedPGN.

Unit of privacy: client. Released: in each round one noisy sum of the whole cohort's clipped
updates, as DP-FedAvg.
Deviations: as DP-FedAvg. The penalty is half of ``price`` times what the squared norm of the
local change exceeds the squared radius by, at every local step.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg import dp_fedavg
from simulate.algorithms.entry import Entry, Hyperparameter, Hyperparameters
from simulate.local.penalised import blur

NUMBERS = {
    "price": Hyperparameter(1.0, "weight of the penalty on a long local change", high=1e6),
    "radius": Hyperparameter(1.0, "norm that costs nothing, over the clipping norm", high=1e6),
}


def dp_fedavg_blur(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """DP-FedAvg with a regularised local loss; ``choices`` give ``price`` and ``radius``."""
    radius = choices.numbers["radius"] * plan.spec.clipping_norm
    local = blur(choices.numbers["price"], radius)
    return replace(dp_fedavg(plan, choices), name="DP-FedAvg-BLUR", local=local)


ROW = Entry(
    "DP-FedAvg-BLUR",
    dp_fedavg_blur,
    lambda plan, records: strictest(plan.spec),
    unit="client",
    released="one noisy sum of clipped updates a round",
    source="Cheng, Wang, Zhang, Cheng, CVPR 2022",
    numbers=NUMBERS,
)
