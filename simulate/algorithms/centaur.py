"""CENTAUR: a shared body with noise and personal heads.

Z. Shen, J. Ye, A. Kang, H. Hassani, R. Shokri, Share Your Representation Only: Guaranteed
Improvement of the Privacy-Utility Tradeoff in Federated Learning, ICLR 2023.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.dp2_fedsam import HEAD_RATE, protected, shared_body
from simulate.algorithms.entry import Hyperparameters
from simulate.algorithms.registry import from_spec, register


@register(
    "CENTAUR",
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of the body's clipped updates per round",
    source="Shen, Ye, Kang, Hassani, Shokri, ICLR 2023",
    hyperparameters={"head_rate": HEAD_RATE},
)
def centaur(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP2-FedSAM with plain SGD on the body.

    Source: ICLR 2023; at the level of clients as in the comparison of DP2-FedSAM.
    Unit of privacy: client.
    Released: as DP2-FedSAM.
    Deviations: as DP2-FedSAM.
    """
    return protected(shared_body(plan, 0.0, hyperparameters["head_rate"]))
