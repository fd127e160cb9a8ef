"""Fed-SMP: DP-FedAvg on a random subset of the coordinates, drawn anew in each round.

R. Hu, Y. Guo, Y. Gong, Federated Learning with Sparsified Model Perturbation: Improving Accuracy
under Client-Level Differential Privacy, IEEE Transactions on Mobile Computing, 2023; baseline of
DP-FedPGN.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.entry import Hyperparameter, Hyperparameters
from simulate.algorithms.fedavg import dp_fedavg
from simulate.algorithms.registry import from_spec, register
from simulate.transforms import random_mask

KEPT = Hyperparameter(0.4, "fraction of the coordinates that are released", low=1e-9, high=1.0)


@register(
    "Fed-SMP",
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of masked, clipped updates per round",
    source="Hu, Guo, Gong, IEEE Transactions on Mobile Computing, 2023",
    hyperparameters={"kept": KEPT},
)
def fed_smp(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg behind a random public mask.

    Source: the paper's variant with a random mask.
    Unit of privacy: client.
    Released: per round, one noisy sum of the cohort's masked and clipped updates. The mask does
        not depend on data, so the coordinates outside it are not released and get no noise.
    Deviations: as DP-FedAvg. The variant that selects the largest coordinates on public data is
        not implemented: a simulation of private clients has none. The released coordinates are
        not scaled by the inverse of the fraction.
    """
    plain = dp_fedavg(plan, hyperparameters)
    return replace(plain, transforms=(random_mask(hyperparameters["kept"]), *plain.transforms))
