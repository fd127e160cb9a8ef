"""DP-FedAvg with bounded local update regularisation (BLUR) and local update sparsification (LUS).

A. Cheng, P. Wang, X. S. Zhang, J. Cheng, Differentially Private Federated Learning with Local
Regularization and Sparsification, CVPR 2022; baseline of DP-FedPGN.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.entry import Hyperparameter, Hyperparameters
from simulate.algorithms.fedavg import dp_fedavg
from simulate.algorithms.registry import from_spec, register
from simulate.local.penalised import blur
from simulate.transforms import sparsify

PENALTY = {
    "price": Hyperparameter(1.0, "weight of the penalty on a long local change", high=1e6),
    "radius": Hyperparameter(1.0, "norm without penalty, over the clipping norm", high=1e6),
}
KEPT = Hyperparameter(0.4, "fraction of its coordinates that a client sends", low=1e-9, high=1.0)


@register(
    "DP-FedAvg-BLUR",
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of clipped updates per round",
    source="Cheng, Wang, Zhang, Cheng, CVPR 2022",
    hyperparameters=PENALTY,
)
def dp_fedavg_blur(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg with a local penalty on updates longer than a radius.

    Source: CVPR 2022, BLUR.
    Unit of privacy: client.
    Released: as DP-FedAvg.
    Deviations: as DP-FedAvg. At each local step the penalty is half of ``price`` times the excess
        of the local change's squared norm over the squared radius.
    """
    norm = None if plan.clipping is not None else plan.spec.clipping_norm
    local = blur(hyperparameters["price"], hyperparameters["radius"], norm)
    return replace(dp_fedavg(plan, hyperparameters), local=local)


@register(
    "DP-FedAvg-BLUR+LUS",
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of sparse, clipped updates per round",
    source="Cheng, Wang, Zhang, Cheng, CVPR 2022",
    hyperparameters={**PENALTY, "kept": KEPT},
)
def dp_fedavg_blur_lus(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg-BLUR whose clients send their largest coordinates only.

    Source: CVPR 2022, BLUR with LUS.
    Unit of privacy: client.
    Released: per round, one noisy sum of the cohort's sparse, clipped updates. The coordinates that
        a client selects depend on its data, so the noise covers all coordinates: sparsification
        leaves more of the clipping norm to the selected ones, and saves no noise.
    Deviations: as DP-FedAvg-BLUR. Coordinates are ranked by absolute value.
    """
    dense = dp_fedavg_blur(plan, hyperparameters)
    return replace(dense, transforms=(sparsify(hyperparameters["kept"]), *dense.transforms))
