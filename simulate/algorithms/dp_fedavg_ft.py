"""DP-FedAvg-FT: DP-FedAvg, then every client fine-tunes the global model on its own records.

Baseline of DP2-FedSAM; after T. Yu, E. Bagdasaryan, V. Shmatikov, Salvaging Federated Learning
by Local Adaptation, 2020.

Unit of privacy: client. Released: as DP-FedAvg; what fine-tuning makes stays at the client.
Deviations: as DP-FedAvg. Fine-tuning is one round's worth of local steps at the last round's
learning rate.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg import dp_fedavg
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.personalisation import fine_tuned


def dp_fedavg_ft(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """DP-FedAvg with fine-tuned models; ``choices`` change nothing."""
    return replace(dp_fedavg(plan, choices), name="DP-FedAvg-FT", personalisation=fine_tuned())


ROW = Entry(
    "DP-FedAvg-FT",
    dp_fedavg_ft,
    lambda plan, records: strictest(plan.spec),
    unit="client",
    released="one noisy sum of clipped updates a round",
    source="baseline of DP2-FedSAM; Yu, Bagdasaryan, Shmatikov, 2020",
)
