"""DP2-FedSAM: a shared body trained with SAM under personal heads, with noise on the body.

Z. Zhang, Y. Guo, Y. Gong, DP2-FedSAM: Enhancing Differentially Private Federated Learning Through
Personalized Sharpness-Aware Minimization, Algorithm 2.

Unit of privacy: client. Released: in each round one noisy sum of the cohort's clipped updates of
the body, with the noise multiplier that the strictest group needs; heads stay at the clients.
Deviations: the head is the last dense layer; head and body take the plan's local steps each, on
the same mini-batches (the paper lets their numbers differ); noise is drawn on the sum, not in
shares at the clients; the sum is divided by the expected cohort; the cohort is drawn by the
plan's law. The gradient of the ascent is taken at the current step, as in its Equation 11; line
12 of the algorithm prints the round's first body.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.algorithms.p_fedsam import NUMBERS, p_fedsam
from simulate.mechanisms.gaussian import gaussian_joint
from simulate.transforms import clip


def dp2_fedsam(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """P-FedSAM with clipping and one Gaussian sum; arguments as there."""
    return replace(
        p_fedsam(plan, choices),
        name="DP2-FedSAM",
        transforms=(clip(plan.spec.clipping_norm),),
        mechanism=gaussian_joint(),
    )


ROW = Entry(
    "DP2-FedSAM",
    dp2_fedsam,
    lambda plan, records: strictest(plan.spec),
    unit="client",
    released="one noisy sum of the body's clipped updates a round",
    source="Zhang, Guo, Gong (DP2-FedSAM)",
    numbers=NUMBERS,
)
