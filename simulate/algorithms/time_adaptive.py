"""Time-adaptive HDPFL: groups participate less in early rounds and spend more in later ones.

S. Kiani, N. Kulkarni, A. Dziedzic, S. Draper, F. Boenisch, Differentially private federated
learning with time-adaptive privacy spending, ICLR 2025.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning import individual
from privplan.spec.spec import Spec
from simulate.algorithm import Algorithm
from simulate.algorithms.entry import Hyperparameters, poisson
from simulate.algorithms.fedavg import dp_fedavg
from simulate.algorithms.registry import from_spec, register


def adaptive_plan(spec: Spec) -> Plan:
    """The plan with default savings, calibrated with the spec's accountant as all others."""
    return individual.time_adaptive(spec, accountant=spec.planning.accountant)


@register(
    "Time-adaptive HDPFL",
    plan=from_spec(adaptive_plan),
    unit="client",
    released="one noisy sum of clipped updates per round",
    source="Kiani, Kulkarni, Dziedzic, Draper, Boenisch, ICLR 2025",
    requires=(poisson,),
)
def time_adaptive(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg with sampling ratios per group and round.

    Source: ICLR 2025.
    Unit of privacy: client.
    Released: per round, one noisy sum of the cohort's clipped updates.
    Deviations: as DP-FedAvg. The original tunes the saving rounds and ratios by hand; here each
        group saves in the first half of the rounds, at half of its later ratio. The sum is divided
        by the expected cohort averaged over the rounds, so that a client has the same weight in
        each round and saving rounds take shorter steps.
    """
    return dp_fedavg(plan, hyperparameters)
