"""Robust-HDP: DP-SGD at each client, weighted by noise that the server estimates or knows.

S. Malekmohammadi, Y. Yu, Y. Cao, Noise-Aware Algorithm for Heterogeneous Differentially Private
Federated Learning, ICML 2024.
"""

from __future__ import annotations

from functools import partial

from privplan.plan import Plan
from privplan.planning.baselines import by_record
from simulate.aggregators import as_planned, by_noise, by_norm, client_mean
from simulate.algorithm import Algorithm
from simulate.algorithms.fedavg import record_level
from simulate.algorithms.registry import Hyperparameter, Hyperparameters, register

ROWS = Hyperparameter(
    2000, "rows p' of a random sub-matrix (Section 3.6; 200000 in the paper)", low=2, integer=True
)
MATRICES = Hyperparameter(
    1, "number Q of sub-matrices, whose estimates are averaged", low=1, high=1e4, integer=True
)


@register(
    "Robust-HDP",
    plan=partial(by_record, weights="inverse_variance"),
    unit="record",
    released="each participant's update, noised by DP-SGD",
    source="Malekmohammadi, Yu, Cao, ICML 2024",
    hyperparameters={"rows": ROWS, "matrices": MATRICES},
)
def robust_hdp(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-SGD at each client, weighted by the inverse of its estimated noise.

    Robust principal component analysis splits the updates into a low-rank part and noise.

    Source: Algorithm 1 and Eq. 8.
    Unit of privacy: record, for each client separately.
    Released: as DPFedAvg.
    Deviations: clients take turns by a public schedule where the cohort is smaller than the
        population. Robust PCA sees 2,000 random rows by default and at most 200 clients at a time
        (``noise_estimates``): on synthetic updates of 200 clients whose signal and noise are of one
        size the noise of the mean is 0.2% of the oracle's variance above it, 0.1% with all rows.
    """
    rows, matrices = int(hyperparameters["rows"]), int(hyperparameters["matrices"])
    return record_level(plan, client_mean("by estimated noise", by_noise(rows, matrices)))


@register(
    "Robust-HDP-norms",
    plan=partial(by_record, weights="inverse_variance"),
    unit="record",
    released="each participant's update, noised by DP-SGD",
    source="ablation of Robust-HDP: Malekmohammadi, Yu, Cao, ICML 2024",
)
def robust_hdp_norms(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """Robust-HDP without Robust PCA: weights by the inverse squared norm of each update.

    Source: this project; shows what Robust PCA adds. Where the noise is much larger than the
        common signal, as in the paper's range of budgets, the two have nearly the same weights.
    Unit of privacy: record, for each client separately.
    Released: as DPFedAvg.
    Deviations: clients take turns by a public schedule where the cohort is smaller than the
        population.
    """
    return record_level(plan, client_mean("by norm", by_norm))


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
