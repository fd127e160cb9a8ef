"""DP-FedAvg-BLUR+LUS: DP-FedAvg-BLUR whose clients send their largest coordinates only.

Cheng, Wang, Zhang, Cheng, CVPR 2022 (see ``dp_fedavg_blur``).

Unit of privacy: client. Released: in each round one noisy sum of the whole cohort's sparse,
clipped updates. Which coordinates a client keeps depends on its data, so the noise covers all of
them: sparsification leaves more of the clipping norm to what is kept, and saves no noise.
Deviations: as DP-FedAvg-BLUR. What a coordinate matters is measured by its absolute value.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg_blur import NUMBERS, dp_fedavg_blur
from simulate.algorithms.entry import Entry, Hyperparameter, Hyperparameters
from simulate.transforms import sparsify


def dp_fedavg_blur_lus(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """DP-FedAvg-BLUR with sparse updates; ``choices`` give ``kept`` besides its numbers."""
    dense = dp_fedavg_blur(plan, choices)
    sparse = sparsify(choices.numbers["kept"])
    return replace(dense, name="DP-FedAvg-BLUR+LUS", transforms=(sparse, *dense.transforms))


ROW = Entry(
    "DP-FedAvg-BLUR+LUS",
    dp_fedavg_blur_lus,
    lambda plan, records: strictest(plan.spec),
    unit="client",
    released="one noisy sum of sparse, clipped updates a round",
    source="Cheng, Wang, Zhang, Cheng, CVPR 2022",
    numbers={
        **NUMBERS,
        "kept": Hyperparameter(
            0.4, "fraction of its coordinates that a client sends", low=1e-9, high=1.0
        ),
    },
)
