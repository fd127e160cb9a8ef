"""DP-FedSAM: DP-FedAvg with sharpness-aware minimisation at the clients.

Y. Shi, Y. Liu, K. Wei, L. Shen, X. Wang, D. Tao, Make Landscape Flatter in Differentially Private
Federated Learning, CVPR 2023; baseline of DP2-FedSAM and DP-FedPGN.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import median_clipped, strictest
from simulate.aggregators import add_shift, at_plan_norm
from simulate.algorithm import Algorithm, compose, fine_tuned, head, own
from simulate.algorithms.fedavg import FINE_TUNING, dp_fedavg
from simulate.algorithms.registry import (
    Hyperparameter,
    Hyperparameters,
    from_spec,
    no_server,
    of_clients,
    without_privacy,
)
from simulate.local.sgd import alternating, pgn, sam
from simulate.mechanisms import gaussian_joint
from simulate.recipe import Recipe
from simulate.server import remembering
from simulate.transforms import plan_clip, shift

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
    Deviations: as DP-FedSAM. Fine-tuning takes the local steps of one round, of plain SGD.
    """
    tuned = fine_tuned(hyperparameters["fine_tuning_rate"])
    return replace(dp_fedsam(plan, hyperparameters), personalisation=tuned)


# --- P-FedSAM and DP2-FedSAM: a shared body trained with SAM and personal heads. -----------------
# Z. Zhang, Y. Guo, Y. Gong, DP2-FedSAM: Enhancing Differentially Private Federated Learning
# Through Personalized Sharpness-Aware Minimization.

HEAD_RATE = Hyperparameter(
    1.0,
    "learning rate of the head over that of the body; DP2-FedSAM: 0.05 in words, 20 in symbols",
    high=1e6,
)
"""DP2-FedSAM (Section 5.1) sets "the learning rate for the shared representation extractor eta_h to
be 0.1 and for the personal classifier eta_phi to be 0.005". In its table of notation and in
Algorithm 2, h is the personal head and phi the shared extractor, so the symbols say the reverse of
the words: 0.05 by the words, 20 by the symbols. By the words the head hardly learns on clients
with two classes each, and best on MNIST by writers. Their geometric mean is 1, which favours
neither reading, is the ratio of methods without a head of their own, and is the default.
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
    Released: per round, the exact sum of the cohort's updates of the body, so epsilon is infinite;
        heads stay at the clients.
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
    Released: per round, one noisy sum of the cohort's clipped updates of the body, with the noise
        multiplier that the strictest group needs; heads stay at the clients.
    Deviations: the head is the last dense layer; head and body take the plan's local steps each, on
        the same mini-batches (the paper lets their numbers differ); noise is drawn on the sum, not
        in shares at the clients; the sum is divided by the expected cohort; the cohort is drawn by
        the plan's law. The gradient of the ascent is taken at the current step, as in its
        Equation 11; line 12 of the algorithm prints the round's first body. One learning rate for
        head and body by default, since the paper contradicts itself on theirs (``HEAD_RATE``).
    """
    return protected(p_fedsam(plan, hyperparameters))


def shared_body(plan: Plan, rho: float, head_rate: float) -> Algorithm:
    """A shared body and personal heads without privacy; plain SGD on the body where rho is 0."""
    split = head()
    local = alternating(split, rho=rho, head_rate=head_rate)
    return compose("shared body", plan, split=split, local=local, personalisation=own())


def protected(algorithm: Algorithm) -> Algorithm:
    """An algorithm with clipped updates and one noisy sum of all groups."""
    plan = algorithm.plan
    return replace(
        algorithm,
        transforms=(plan_clip(plan),),
        mechanism=gaussian_joint(),
        aggregator=at_plan_norm(algorithm.aggregator, plan),
    )


# -------------------------------------------------------------------------------------------------
# DP-FedPGN: local steps along the last global step, whose known part is removed before clipping.
#
# J. Liu, Y. Tian, F. Shang, H. Liu, Y. Liu, J. Zhou, D. Ding, DP-FedPGN: Finding Global Flat
# Minima for Differentially Private Federated Learning via Penalizing Gradient Norm.

STEPS = {
    "rho": Hyperparameter(
        0.2, "distance of the gradients along the pseudo-gradient", high=1e6
    ),
    "beta": Hyperparameter(
        0.3, "share of a client's own gradient in its steps", high=1.0
    ),
}
SMOOTHING = Hyperparameter(
    0.01, "strength of the smoothing; the paper's choice", high=1e6
)


@of_clients(
    "DP-FedPGN",
    plan=from_spec(median_clipped(strictest)),
    released="one noisy sum of shifted, clipped updates per round",
    source="Liu, Tian, Shang, Liu, Liu, Zhou, Ding (DP-FedPGN)",
    hyperparameters=STEPS,
    requires=(no_server,),
    recipe=Recipe("joint", local="pgn"),
)
def dp_fedpgn(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg with a penalty on the norm of the global gradient.

    Source: Algorithm 1.
    Released: per round, one noisy sum of the cohort's updates, each shifted by a vector that all
        clients know and then clipped. The shift is a function of earlier releases and is added
        to the noisy mean again, so neither costs any privacy.
    Deviations: as DP-FedAvg. The shift is added once to the mean over the expected cohort, not by
        each client, so the step does not depend on the size of the cohort. The global learning rate
        is the local one times the number of local steps, as in the paper's experiments. Local
        momentum acts on the client's own gradients. The paper clips at the median norm of the
        round's updates and does not pay for it. Here the clipping norm follows a private median
        of the shifted updates, whose noisy count is in the same release and the same budget
        (``median_clipped``). The unpaid median has no finite epsilon, as two clients can have it
        at any two values. Where the client more or less moves it by 0.1% only, the scale of the
        noise on the 11,173,962 coordinates of the paper's ResNet-18 spends epsilon 23.9 at its
        delta of 1/500 in each of its 300 rounds, before any update is looked at.
    """
    beta, decay = hyperparameters["beta"], plan.spec.local.learning_rate_decay
    plain = dp_fedavg(plan, hyperparameters)
    return replace(
        plain,
        local=pgn(hyperparameters["rho"], beta, decay),
        transforms=(
            shift(1 - beta, decay),
            *plain.transforms,
        ),  # the count is of shifted updates
        aggregator=add_shift(plain.aggregator, 1 - beta, decay),
        server=remembering(),
    )


@of_clients(
    "DP-FedPGN-LS",
    plan=from_spec(median_clipped(strictest)),
    released="one noisy sum of shifted, clipped updates per round",
    source="Liu, Tian, Shang, Liu, Liu, Zhou, Ding (DP-FedPGN)",
    hyperparameters={**STEPS, "smoothing": SMOOTHING},
    requires=(no_server,),
    recipe=Recipe("joint", local="pgn"),
)
def dp_fedpgn_ls(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedPGN with a smoothed step, which is also the next round's pseudo-gradient.

    Source: Algorithm 1, line 17.
    Deviations: as DP-FedPGN and DP-FedAvg-LS.
    """
    server = remembering(hyperparameters["smoothing"])
    return replace(dp_fedpgn(plan, hyperparameters), server=server)
