"""Federated averaging, with and without privacy, and training at each client only.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agueera y Arcas,
Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.
H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, Learning Differentially Private Recurrent
Language Models, ICLR 2018.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import unprotected
from simulate.aggregators import at_plan_norm, mean
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.registry import (
    Hyperparameter,
    Hyperparameters,
    from_spec,
    no_server,
    of_clients,
    register,
    without_privacy,
)
from simulate.local.sgd import blur, private_sgd
from simulate.mechanisms import gaussian_joint, silent
from simulate.personalisations import fine_tuned, own_model
from simulate.recipe import NotExecuted, Recipe
from simulate.server import laplacian
from simulate.splits import private
from simulate.transforms import plan_clip, random_mask, sparsify


@without_privacy(
    "FedAvg",
    released="the exact sum of updates per round",
    source="McMahan, Moore, Ramage, Hampson, Agueera y Arcas, AISTATS 2017",
    hyperparameters={
        "clipped": Hyperparameter(
            0, "1: updates are clipped as private methods' are", 0, 1, True
        )
    },
    recipe=Recipe("joint", noisy=False),
)
def fedavg(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """Federated averaging without privacy: every component at its default.

    Source: AISTATS 2017; called P-FedAvg in the comparison of GDPFed+.
    Released: per round, the exact sum of the cohort's updates, so epsilon is infinite.
    Deviations: the cohort is drawn by the plan's law with the same ratio for all
        clients, and the sum is divided by the expected cohort, not by the realised one.
    """
    transforms = (plan_clip(plan),) if hyperparameters["clipped"] else ()
    return compose("FedAvg", plan, transforms=transforms)


@of_clients(
    "DP-FedAvg",
    source="McMahan, Ramage, Talwar, Zhang, ICLR 2018",
    recipe=Recipe("joint"),
)
def dp_fedavg(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """Federated averaging under one budget, the strictest, for all clients.

    Source: ICLR 2018; Algorithm 2 of GDPFed+.
    Released: per round, one noisy sum of the cohort's clipped updates, with the noise
        multiplier that the strictest group needs.
    Deviations: the sum is divided by the expected cohort; noise is drawn on the sum, as
        secure aggregation would reveal it, not in shares at the clients; the cohort is
        drawn by the plan's law.
    """
    return compose(
        "DP-FedAvg",
        plan,
        transforms=(plan_clip(plan),),
        mechanism=gaussian_joint(),
        aggregator=at_plan_norm(mean(), plan),
    )


FINE_TUNING = {
    "fine_tuning_rate": Hyperparameter(
        1.0, "learning rate of fine-tuning over that of the last round", high=1e6
    )
}


@of_clients(
    "DP-FedAvg-FT",
    source="baseline of DP2-FedSAM; Yu, Bagdasaryan, Shmatikov, 2020",
    hyperparameters=FINE_TUNING,
    recipe=Recipe("joint", fine_tuned=True),
)
def dp_fedavg_ft(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg whose clients fine-tune the final model on their own records.

    Released: as DP-FedAvg; fine-tuned models stay at the clients.
    Deviations: as DP-FedAvg. Fine-tuning takes the local steps of one round.
    """
    tuned = fine_tuned(hyperparameters["fine_tuning_rate"])
    return replace(dp_fedavg(plan, hyperparameters), personalisation=tuned)


@register(
    "Local-only",
    plan=from_spec(unprotected),
    unit="client",
    released="nothing",
    source="baseline of DP2-FedSAM and HyperFL",
    recipe=NotExecuted("nothing leaves its clients"),
)
def local_only(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """Local training without any communication.

    Source: the lower end of the comparisons of DP2-FedSAM and HyperFL ("Local").
    Released: nothing, so epsilon is 0 for all clients.
    Deviations: a client trains in the rounds in which the plan's law draws it, as often
        as under the other algorithms; it keeps its parameters between them.
    """
    return compose(
        "Local-only",
        plan,
        split=private(),
        local=private_sgd(),
        mechanism=silent(),
        personalisation=own_model(),
    )


# --- DP-FedAvg-LS: DP-FedAvg with Laplacian smoothing at the server. ------------------
# Z. Liang, B. Wang, Q. Gu, S. Osher, Y. Yao, Differentially Private Federated Learning
# with Laplacian Smoothing, Applied and Computational Harmonic Analysis, 2024; baseline
# of DP-FedPGN.

SMOOTHING = Hyperparameter(
    0.01, "strength of the smoothing; DP-FedPGN's choice", high=1e6
)


@of_clients(
    "DP-FedAvg-LS",
    source="Liang, Wang, Gu, Osher, Yao, Applied and Computational Harmonic Analysis, 2024",
    hyperparameters={"smoothing": SMOOTHING},
    requires=(no_server,),
    recipe=Recipe("joint"),
)
def dp_fedavg_ls(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg with a smoothed step.

    Released: as DP-FedAvg; smoothing is a function of the noisy sum, so it costs no
        privacy.
    Deviations: as DP-FedAvg. Neighbours are adjacent parameters in the flat vector,
        tensor after tensor.
    """
    server = laplacian(hyperparameters["smoothing"])
    return replace(dp_fedavg(plan, hyperparameters), server=server)


# --- BLUR and LUS: bounded local update regularisation, local update sparsification. --
# A. Cheng, P. Wang, X. S. Zhang, J. Cheng, Differentially Private Federated Learning
# with Local Regularization and Sparsification, CVPR 2022; baseline of DP-FedPGN.

PENALTY = {
    "price": Hyperparameter(
        1.0, "weight of the penalty on a long local change", high=1e6
    ),
    "radius": Hyperparameter(
        1.0, "norm without penalty, over the clipping norm", high=1e6
    ),
}
FRACTION_SENT = Hyperparameter(
    0.4, "fraction of its coordinates that a client sends", low=1e-9, high=1.0
)


@of_clients(
    "DP-FedAvg-BLUR",
    source="Cheng, Wang, Zhang, Cheng, CVPR 2022",
    hyperparameters=PENALTY,
    recipe=Recipe("joint", local="blur"),
)
def dp_fedavg_blur(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg with a local penalty on updates longer than a radius.

    Deviations: as DP-FedAvg. At each local step the penalty is half of ``price`` times
        the excess of the local change's squared norm over the squared radius.
    """
    norm = None if plan.clipping is not None else plan.spec.clipping_norm
    local = blur(hyperparameters["price"], hyperparameters["radius"], norm)
    return replace(dp_fedavg(plan, hyperparameters), local=local)


@of_clients(
    "DP-FedAvg-BLUR+LUS",
    released="one noisy sum of sparse, clipped updates per round",
    source="Cheng, Wang, Zhang, Cheng, CVPR 2022",
    hyperparameters={**PENALTY, "kept": FRACTION_SENT},
    recipe=NotExecuted("rounding decides which coordinates its clients select"),
)
def dp_fedavg_blur_lus(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg-BLUR whose clients send their largest coordinates only.

    Released: per round, one noisy sum of the cohort's sparse, clipped updates. The
        coordinates that a client selects depend on its data, so the noise covers all
        coordinates: sparsification leaves more of the clipping norm to the selected
        ones, and saves no noise.
    Deviations: as DP-FedAvg-BLUR. Coordinates are ranked by absolute value.
    """
    dense = dp_fedavg_blur(plan, hyperparameters)
    transforms = (sparsify(hyperparameters["kept"]), *dense.transforms)
    return replace(dense, transforms=transforms)


# --- Fed-SMP: DP-FedAvg on random coordinates, drawn anew in each round. --------------
# R. Hu, Y. Guo, Y. Gong, Federated Learning with Sparsified Model Perturbation:
# Improving Accuracy under Client-Level Differential Privacy, IEEE Transactions on
# Mobile Computing, 2023; baseline of DP-FedPGN.

FRACTION_OF_MASK = Hyperparameter(
    0.4, "fraction of the coordinates that are released", 1e-9, 1.0
)


@of_clients(
    "Fed-SMP",
    released="one noisy sum of masked, clipped updates per round",
    source="Hu, Guo, Gong, IEEE Transactions on Mobile Computing, 2023",
    hyperparameters={"kept": FRACTION_OF_MASK},
    recipe=Recipe("joint", masked=True),
)
def fed_smp(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg behind a random public mask.

    Source: the paper's variant with a random mask.
    Released: per round, one noisy sum of the cohort's masked and clipped updates. The
        mask does not depend on data, so the coordinates outside it are not released and
        get no noise.
    Deviations: as DP-FedAvg. The variant that selects the largest coordinates on public
        data is not implemented: a simulation of private clients has none. The released
        coordinates are not scaled by the inverse of the fraction.
    """
    plain = dp_fedavg(plan, hyperparameters)
    transforms = (random_mask(hyperparameters["kept"]), *plain.transforms)
    return replace(plain, transforms=transforms)
