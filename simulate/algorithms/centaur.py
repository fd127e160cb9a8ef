"""CENTAUR: a shared body under personal heads, with noise on the body.

Z. Shen, J. Ye, A. Kang, H. Hassani, R. Shokri, Share Your Representation Only: Guaranteed
Improvement of the Privacy-Utility Tradeoff in Federated Learning, ICLR 2023; at the level of
clients as in the comparison of DP2-FedSAM: its method with plain SGD on the body.

Unit of privacy: client. Released: in each round one noisy sum of the cohort's clipped updates of
the body, with the noise multiplier that the strictest group needs; heads stay at the clients.
Deviations: as DP2-FedSAM.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.dp2_fedsam import dp2_fedsam
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.algorithms.p_fedsam import HEAD_RATE


def centaur(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """DP2-FedSAM without its ascent.

    Args:
        plan: the plan.
        choices: the number ``head_rate``.
    """
    plain = replace(choices, numbers={**choices.numbers, "rho": 0.0})
    return replace(dp2_fedsam(plan, plain), name="CENTAUR")


ROW = Entry(
    "CENTAUR",
    centaur,
    lambda plan, records: strictest(plan.spec),
    unit="client",
    released="one noisy sum of the body's clipped updates a round",
    source="Shen, Ye, Kang, Hassani, Shokri, ICLR 2023",
    numbers={"head_rate": HEAD_RATE},
)
