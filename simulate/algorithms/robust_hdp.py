"""Robust-HDP: DP-SGD at each client, weighted by noise that the server estimates or knows.

S. Malekmohammadi, Y. Yu, Y. Cao, Noise-Aware Algorithm for Heterogeneous Differentially Private
Federated Learning, ICML 2024.
"""

from __future__ import annotations

from functools import partial

from privplan.plan import Plan
from privplan.planning.baselines import by_record
from simulate.aggregators.per_client import as_planned, by_noise, client_mean
from simulate.algorithm import Algorithm
from simulate.algorithms.dpfedavg import record_level
from simulate.algorithms.entry import Hyperparameter, Hyperparameters
from simulate.algorithms.registry import register

ROWS = Hyperparameter(200_000, "rows p' of a sub-matrix (Section 3.6)", low=2, integer=True)


@register(
    "Robust-HDP",
    plan=partial(by_record, weights="inverse_variance"),
    unit="record",
    released="each participant's update, noised by DP-SGD",
    source="Malekmohammadi, Yu, Cao, ICML 2024",
    hyperparameters={"rows": ROWS},
)
def robust_hdp(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-SGD at each client, weighted by the inverse of its estimated noise.

    Robust principal component analysis splits the updates into a low-rank part and noise.

    Source: Algorithm 1 and Eq. 8.
    Unit of privacy: record, for each client separately.
    Released: as DPFedAvg.
    Deviations: clients take turns by a public schedule where the cohort is smaller than the
        population.
    """
    rows = int(hyperparameters["rows"])
    return record_level(plan, client_mean("by estimated noise", by_noise(rows)))


@register(
    "Robust-HDP-oracle",
    plan=partial(by_record, weights="inverse_variance"),
    unit="record",
    released="each participant's update, noised by DP-SGD",
    source="Malekmohammadi, Yu, Cao, ICML 2024, Eq. 8",
)
def robust_hdp_oracle(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """Robust-HDP with the exact weights instead of estimates: the least noise in the mean.

    Source: Eq. 8 with the variances of Eq. 3 and Eq. 7.
    Unit of privacy: record, for each client separately.
    Released: as DPFedAvg.
    Deviations: as Robust-HDP.
    """
    return record_level(plan, client_mean("by noise", as_planned))
