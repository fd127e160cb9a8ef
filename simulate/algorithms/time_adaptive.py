"""Time-adaptive HDPFL: groups take part less in the first rounds and spend more in the later ones.

S. Kiani, N. Kulkarni, A. Dziedzic, S. Draper, F. Boenisch, Differentially private federated
learning with time-adaptive privacy spending, ICLR 2025.

Unit of privacy: client. Released: in each round one noisy sum of the whole cohort's clipped
updates; a group's sampling ratio depends on the round.
Deviations: as DP-FedAvg. The original tunes when to save, and how much, by hand; here every group
saves in the first half of the rounds, at half of its later ratio. The sum is divided by the
expected cohort averaged over the rounds, so that a client counts the same in every round and
saving rounds take shorter steps.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.individual import time_adaptive as plan_of
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg import dp_fedavg
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.algorithms.requirements import poisson


def time_adaptive(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """DP-FedAvg under ratios by group and round; ``choices`` change nothing."""
    return replace(dp_fedavg(plan, choices), name="Time-adaptive HDPFL")


ROW = Entry(
    "Time-adaptive HDPFL",
    time_adaptive,
    lambda plan, records: plan_of(plan.spec),
    unit="client",
    released="one noisy sum of clipped updates a round",
    source="Kiani, Kulkarni, Dziedzic, Draper, Boenisch, ICLR 2025",
    needs=(poisson,),
)
