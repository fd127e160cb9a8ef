"""Fed-SMP: DP-FedAvg on a random part of the coordinates, drawn anew in each round.

R. Hu, Y. Guo, Y. Gong, Federated Learning with Sparsified Model Perturbation: Improving Accuracy
under Client-Level Differential Privacy, IEEE Transactions on Mobile Computing, 2023; baseline of
DP-FedPGN.

Unit of privacy: client. Released: in each round one noisy sum of the whole cohort's masked and
clipped updates. The mask sees no data, so the coordinates outside it are not released and get
no noise.
Deviations: as DP-FedAvg. Only the random mask is built: the variant that keeps the largest
coordinates finds them on public data, which a simulation of private clients does not have. The
part that is released is not scaled up by the inverse of the fraction.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg import dp_fedavg
from simulate.algorithms.entry import Entry, Hyperparameter, Hyperparameters
from simulate.transforms import random_mask


def fed_smp(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """DP-FedAvg behind a random mask; ``choices`` give ``kept``."""
    plain = dp_fedavg(plan, choices)
    mask = random_mask(choices.numbers["kept"])
    return replace(plain, name="Fed-SMP", transforms=(mask, *plain.transforms))


ROW = Entry(
    "Fed-SMP",
    fed_smp,
    lambda plan, records: strictest(plan.spec),
    unit="client",
    released="one noisy sum of masked, clipped updates a round",
    source="Hu, Guo, Gong, IEEE Transactions on Mobile Computing, 2023",
    numbers={
        "kept": Hyperparameter(
            0.4, "fraction of the coordinates that are released", low=1e-9, high=1.0
        )
    },
)
