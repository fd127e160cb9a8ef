"""DP-FedSAM: DP-FedAvg with sharpness-aware minimisation at the clients.

Y. Shi, Y. Liu, K. Wei, L. Shen, X. Wang, D. Tao, Make Landscape Flatter in Differentially Private
Federated Learning, CVPR 2023; baseline of DP2-FedSAM and DP-FedPGN.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.entry import Hyperparameter, Hyperparameters
from simulate.algorithms.fedavg import dp_fedavg
from simulate.algorithms.registry import from_spec, register
from simulate.local.penalised import sam
from simulate.personalisation import fine_tuned

RHO = {
    "rho": Hyperparameter(
        0.1, "radius of SAM's ascent; the best of DP2-FedSAM's Figure 6", high=1e6
    )
}


@register(
    "DP-FedSAM",
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of clipped updates per round",
    source="Shi, Liu, Wei, Shen, Wang, Tao, CVPR 2023",
    hyperparameters=RHO,
)
def dp_fedsam(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg with local SAM.

    Source: CVPR 2023.
    Unit of privacy: client.
    Released: as DP-FedAvg; SAM changes the updates that are clipped, not their cost.
    Deviations: as DP-FedAvg. Momentum acts on the gradient at the perturbed point.
    """
    return replace(dp_fedavg(plan, hyperparameters), local=sam(hyperparameters["rho"]))


@register(
    "DP-FedSAM-FT",
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of clipped updates per round",
    source="baseline of DP2-FedSAM; Shi et al., CVPR 2023",
    hyperparameters=RHO,
)
def dp_fedsam_ft(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedSAM whose clients fine-tune the final model on their own records.

    Source: baseline of DP2-FedSAM.
    Unit of privacy: client.
    Released: as DP-FedSAM; fine-tuned models stay at the clients.
    Deviations: as DP-FedSAM. Fine-tuning takes the local steps of one round, of plain SGD, at the
        last round's learning rate.
    """
    return replace(dp_fedsam(plan, hyperparameters), personalisation=fine_tuned())
