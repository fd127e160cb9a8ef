"""DP-FedAvg-LS: DP-FedAvg with Laplacian smoothing at the server.

Z. Liang, B. Wang, Q. Gu, S. Osher, Y. Yao, Differentially Private Federated Learning with
Laplacian Smoothing, Applied and Computational Harmonic Analysis, 2024; baseline of DP-FedPGN.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.entry import Hyperparameter, Hyperparameters, no_server
from simulate.algorithms.fedavg import dp_fedavg
from simulate.algorithms.registry import from_spec, register
from simulate.server import laplacian

SMOOTHING = Hyperparameter(0.01, "strength of the smoothing; DP-FedPGN's choice", high=1e6)


@register(
    "DP-FedAvg-LS",
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of clipped updates per round",
    source="Liang, Wang, Gu, Osher, Yao, Applied and Computational Harmonic Analysis, 2024",
    hyperparameters={"smoothing": SMOOTHING},
    requires=(no_server,),
)
def dp_fedavg_ls(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg with a smoothed step.

    Source: Applied and Computational Harmonic Analysis, 2024.
    Unit of privacy: client.
    Released: as DP-FedAvg; smoothing is a function of the noisy sum, so it costs no privacy.
    Deviations: as DP-FedAvg. Neighbours are adjacent parameters in the flat vector, tensor after
        tensor.
    """
    return replace(dp_fedavg(plan, hyperparameters), server=laplacian(hyperparameters["smoothing"]))
