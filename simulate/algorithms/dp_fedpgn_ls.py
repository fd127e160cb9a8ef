"""DP-FedPGN-LS: DP-FedPGN whose server smooths the noisy step.

DP-FedPGN (see ``dp_fedpgn``), line 17 of Algorithm 1. The next round's pseudo-gradient is the
smoothed one.

Unit of privacy: client. Released: as DP-FedPGN; smoothing sees nothing but releases.
Deviations: as DP-FedPGN and DP-FedAvg-LS.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedpgn import NUMBERS, dp_fedpgn
from simulate.algorithms.entry import Entry, Hyperparameter, Hyperparameters
from simulate.server import remembering


def dp_fedpgn_ls(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """DP-FedPGN with a smoothed step; ``choices`` give ``smoothing`` besides its numbers."""
    server = remembering(choices.numbers["smoothing"])
    return replace(dp_fedpgn(plan, choices), name="DP-FedPGN-LS", server=server)


ROW = Entry(
    "DP-FedPGN-LS",
    dp_fedpgn_ls,
    lambda plan, records: strictest(plan.spec),
    unit="client",
    released="one noisy sum of shifted, clipped updates a round",
    source="Liu, Tian, Shang, Liu, Liu, Zhou, Ding (DP-FedPGN)",
    numbers={
        **NUMBERS,
        "smoothing": Hyperparameter(
            0.01, "strength of the smoothing; the paper's choice", high=1e6
        ),
    },
)
