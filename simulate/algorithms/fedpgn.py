"""DP-FedPGN: local steps along the last global step, which is removed before clipping.

J. Liu, Y. Tian, F. Shang, H. Liu, Y. Liu, J. Zhou, D. Ding, DP-FedPGN: Finding Global
Flat Minima for Differentially Private Federated Learning via Penalizing Gradient Norm.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import median_clipped, strictest
from simulate.aggregators import add_shift
from simulate.algorithm import Algorithm
from simulate.algorithms.fedavg import dp_fedavg
from simulate.algorithms.registry import (
    Hyperparameter,
    Hyperparameters,
    from_spec,
    no_server,
    of_clients,
)
from simulate.local.sgd import pgn
from simulate.recipe import Recipe
from simulate.server import remembering
from simulate.transforms import shift

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
    Released: per round, one noisy sum of the cohort's updates, each shifted by a vector
        that all clients know and then clipped. The shift is a function of earlier
        releases and is added to the noisy mean again, so neither costs any privacy.
    Deviations: as DP-FedAvg. The shift is added once to the mean over the expected
        cohort, not by each client, so the step does not depend on the size of the
        cohort. The global learning rate is the local one times the number of local
        steps, as in the paper's experiments. Local momentum acts on the client's own
        gradients. The paper clips at the median norm of the round's updates and does
        not pay for it. Here the clipping norm follows a private median of the shifted
        updates, whose noisy count is in the same release and the same budget
        (``median_clipped``). The unpaid median has no finite epsilon, as two clients
        can have it at any two values. Where the client more or less moves it by 0.1%
        only, the scale of the noise on the 11,173,962 coordinates of the paper's
        ResNet-18 spends epsilon 23.9 at its delta of 1/500 in each of its 300 rounds,
        before any update is looked at.
    """
    beta = hyperparameters["beta"]
    decay = plan.spec.local.learning_rate_decay
    plain = dp_fedavg(plan, hyperparameters)
    return replace(
        plain,
        local=pgn(hyperparameters["rho"], beta, decay),
        # What is clipped, and counted for the norm, are shifted updates.
        transforms=(shift(1 - beta, decay), *plain.transforms),
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
