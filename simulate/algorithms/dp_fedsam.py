"""DP-FedSAM: DP-FedAvg whose clients train by sharpness-aware minimisation.

Y. Shi, Y. Liu, K. Wei, L. Shen, X. Wang, D. Tao, Make Landscape Flatter in Differentially Private
Federated Learning, CVPR 2023; baseline of DP2-FedSAM and DP-FedPGN.

Unit of privacy: client. Released: in each round one noisy sum of the whole cohort's clipped
updates, as DP-FedAvg; SAM changes what is clipped, not what it costs.
Deviations: as DP-FedAvg. Momentum acts on the gradient at the perturbed point.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg import dp_fedavg
from simulate.algorithms.entry import Entry, Hyperparameter, Hyperparameters
from simulate.local.penalised import sam

NUMBERS = {
    "rho": Hyperparameter(
        0.1, "radius of SAM's ascent; the best of DP2-FedSAM's Figure 6", high=1e6
    )
}


def dp_fedsam(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """DP-FedAvg with local SAM; ``choices`` give ``rho``."""
    local = sam(choices.numbers["rho"])
    return replace(dp_fedavg(plan, choices), name="DP-FedSAM", local=local)


ROW = Entry(
    "DP-FedSAM",
    dp_fedsam,
    lambda plan, records: strictest(plan.spec),
    unit="client",
    released="one noisy sum of clipped updates a round",
    source="Shi, Liu, Wei, Shen, Wang, Tao, CVPR 2023",
    numbers=NUMBERS,
)
