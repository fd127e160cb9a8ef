"""P-FedSAM: a shared body trained with SAM under personal heads, without privacy.

Z. Zhang, Y. Guo, Y. Gong, DP2-FedSAM: Enhancing Differentially Private Federated Learning Through
Personalized Sharpness-Aware Minimization, Section 5: their method without clipping and noise.

Unit of privacy: none. Released: the exact sum of the cohort's updates of the body in each round,
so epsilon is infinite; heads stay at the clients.
Deviations: as DP2-FedSAM.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import uniform
from simulate.algorithm import Algorithm, compose
from simulate.algorithms import dp_fedsam
from simulate.algorithms.entry import Entry, Hyperparameter, Hyperparameters
from simulate.local.personal import alternating
from simulate.personalisation import own
from simulate.splits import head

HEAD_RATE = Hyperparameter(
    0.05, "learning rate of the head over that of the body; 0.005 over 0.1 in DP2-FedSAM", high=1e6
)
NUMBERS = {**dp_fedsam.NUMBERS, "head_rate": HEAD_RATE}


def p_fedsam(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Personal head, SGD on the head and then SAM on the body, plain mean.

    Args:
        plan: the plan.
        choices: the numbers ``rho`` and ``head_rate``.
    """
    split, numbers = head(), choices.numbers
    return compose(
        "P-FedSAM",
        plan,
        split=split,
        local=alternating(split, rho=numbers["rho"], head_rate=numbers["head_rate"]),
        personalisation=own(),
    )


ROW = Entry(
    "P-FedSAM",
    p_fedsam,
    lambda plan, records: uniform(plan.spec),
    unit="none",
    released="the exact sum of the body's updates a round",
    source="Zhang, Guo, Gong (DP2-FedSAM)",
    numbers=NUMBERS,
)
