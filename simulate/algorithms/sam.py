"""DP-FedSAM: DP-FedAvg with sharpness-aware minimisation at the clients.

Y. Shi, Y. Liu, K. Wei, L. Shen, X. Wang, D. Tao, Make Landscape Flatter in
Differentially Private Federated Learning, CVPR 2023; baseline of DP2-FedSAM and
DP-FedPGN.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from simulate.aggregators import at_plan_norm
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.fedavg import FINE_TUNING, dp_fedavg
from simulate.algorithms.registry import (
    Hyperparameter,
    Hyperparameters,
    of_clients,
    without_privacy,
)
from simulate.local.sgd import alternating, sam
from simulate.mechanisms import gaussian_joint
from simulate.personalisations import fine_tuned, own_model
from simulate.recipe import Recipe
from simulate.splits import head
from simulate.transforms import plan_clip

RHO = {
    "rho": Hyperparameter(
        0.1, "radius of SAM's ascent; the best of DP2-FedSAM's Figure 6", high=1e6
    )
}


@of_clients(
    "DP-FedSAM",
    source="Shi, Liu, Wei, Shen, Wang, Tao, CVPR 2023",
    hyperparameters=RHO,
    recipe=Recipe("joint", local="sam"),
)
def dp_fedsam(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg with local SAM.

    Released: as DP-FedAvg; SAM changes the updates that are clipped, not their cost.
    Deviations: as DP-FedAvg. Momentum acts on the gradient at the perturbed point.
    """
    return replace(dp_fedavg(plan, hyperparameters), local=sam(hyperparameters["rho"]))


@of_clients(
    "DP-FedSAM-FT",
    source="baseline of DP2-FedSAM; Shi et al., CVPR 2023",
    hyperparameters={**RHO, **FINE_TUNING},
    recipe=Recipe("joint", local="sam", fine_tuned=True),
)
def dp_fedsam_ft(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedSAM whose clients fine-tune the final model on their own records.

    Released: as DP-FedSAM; fine-tuned models stay at the clients.
    Deviations: as DP-FedSAM. Fine-tuning takes the local steps of one round, of plain
        SGD.
    """
    tuned = fine_tuned(hyperparameters["fine_tuning_rate"])
    return replace(dp_fedsam(plan, hyperparameters), personalisation=tuned)


# --- P-FedSAM and DP2-FedSAM: a shared body trained with SAM and personal heads. ------
# Z. Zhang, Y. Guo, Y. Gong, DP2-FedSAM: Enhancing Differentially Private Federated
# Learning Through Personalized Sharpness-Aware Minimization.

HEAD_RATE = Hyperparameter(
    1.0,
    "learning rate of the head over that of the body; DP2-FedSAM: 0.05 in words, 20 in symbols",
    high=1e6,
)
"""DP2-FedSAM (Section 5.1) sets "the learning rate for the shared representation
extractor eta_h to be 0.1 and for the personal classifier eta_phi to be 0.005". In its
table of notation and in Algorithm 2, h is the personal head and phi the shared
extractor, so the symbols say the reverse of the words: 0.05 by the words, 20 by the
symbols. By the words the head hardly learns on clients with two classes each, and best
on MNIST by writers. Their geometric mean is 1, which favours neither reading, is the
ratio of methods without a head of their own, and is the default.
"""


@without_privacy(
    "P-FedSAM",
    released="the exact sum of the body's updates per round",
    source="Zhang, Guo, Gong (DP2-FedSAM)",
    hyperparameters={**RHO, "head_rate": HEAD_RATE},
    recipe=Recipe("joint", local="head", noisy=False),
)
def p_fedsam(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """SGD on a personal head, then SAM on the shared body, without privacy.

    Source: Section 5: DP2-FedSAM without clipping and noise.
    Released: per round, the exact sum of the cohort's updates of the body, so epsilon
        is infinite; heads stay at the clients.
    Deviations: as DP2-FedSAM.
    """
    return shared_body(plan, hyperparameters["rho"], hyperparameters["head_rate"])


@of_clients(
    "DP2-FedSAM",
    released="one noisy sum of the body's clipped updates per round",
    source="Zhang, Guo, Gong (DP2-FedSAM)",
    hyperparameters={**RHO, "head_rate": HEAD_RATE},
    recipe=Recipe("joint", local="head"),
)
def dp2_fedsam(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """P-FedSAM with clipped updates and noise on the body.

    Source: Algorithm 2.
    Released: per round, one noisy sum of the cohort's clipped updates of the body, with
        the noise multiplier that the strictest group needs; heads stay at the clients.
    Deviations: the head is the last dense layer; head and body take the plan's local
        steps each, on the same mini-batches (the paper lets their numbers differ);
        noise is drawn on the sum, not in shares at the clients; the sum is divided by
        the expected cohort; the cohort is drawn by the plan's law. The gradient of the
        ascent is taken at the current step, as in its Equation 11; line 12 of the
        algorithm prints the round's first body. One learning rate for head and body by
        default, since the paper contradicts itself on theirs (``HEAD_RATE``).
    """
    return protected(p_fedsam(plan, hyperparameters))


def shared_body(plan: Plan, rho: float, head_rate: float) -> Algorithm:
    """A shared body and personal heads, without privacy.

    Args:
        plan: of the run.
        rho: radius of SAM on the body; 0 for plain SGD.
        head_rate: learning rate of the head over that of the body.
    """
    split = head()
    return compose(
        "shared body",
        plan,
        split=split,
        local=alternating(split, rho=rho, head_rate=head_rate),
        personalisation=own_model(),
    )


def protected(algorithm: Algorithm) -> Algorithm:
    """An algorithm with clipped updates and one noisy sum of all groups."""
    plan = algorithm.plan
    return replace(
        algorithm,
        transforms=(plan_clip(plan),),
        mechanism=gaussian_joint(),
        aggregator=at_plan_norm(algorithm.aggregator, plan),
    )
