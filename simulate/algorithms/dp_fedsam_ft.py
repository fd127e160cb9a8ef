"""DP-FedSAM-FT: DP-FedSAM, then every client fine-tunes the global model on its own records.

Baseline of DP2-FedSAM; after ``dp_fedsam`` and ``dp_fedavg_ft``.

Unit of privacy: client. Released: as DP-FedSAM; what fine-tuning makes stays at the client.
Deviations: as DP-FedSAM. Fine-tuning is one round's worth of plain SGD steps at the last round's
learning rate.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedsam import NUMBERS, dp_fedsam
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.personalisation import fine_tuned


def dp_fedsam_ft(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """DP-FedSAM with fine-tuned models; ``choices`` give ``rho``."""
    return replace(dp_fedsam(plan, choices), name="DP-FedSAM-FT", personalisation=fine_tuned())


ROW = Entry(
    "DP-FedSAM-FT",
    dp_fedsam_ft,
    lambda plan, records: strictest(plan.spec),
    unit="client",
    released="one noisy sum of clipped updates a round",
    source="baseline of DP2-FedSAM; Shi et al., CVPR 2023",
    numbers=NUMBERS,
)
