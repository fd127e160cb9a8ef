"""DPFedAvg and Robust-HDP: DP-SGD at each client, and a weighted mean of the updates.

M. Noble, A. Bellet, A. Dieuleveut, Differentially Private Federated Learning on
Heterogeneous Data, AISTATS 2022. S. Malekmohammadi, Y. Yu, Y. Cao, Noise-Aware
Algorithm for Heterogeneous Differentially Private Federated Learning, ICML 2024: the
weights follow from noise that the server estimates or knows.
"""

from __future__ import annotations

from functools import partial

from privplan.plan import Plan
from privplan.planning.baselines import by_record
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.registry import Hyperparameter, Hyperparameters, of_records
from simulate.client_aggregators import as_planned, by_noise, by_norm, client_mean
from simulate.components import Aggregator, LocalRule, Personalisation, Split
from simulate.local.dp_sgd import dp_sgd
from simulate.mechanisms import noised_by_client
from simulate.samplers import rotation

ROWS = Hyperparameter(
    2000,
    "rows p' of a random sub-matrix (Section 3.6; 200000 in the paper)",
    low=2,
    integer=True,
)
MATRICES = Hyperparameter(
    1, "number Q of sub-matrices, whose estimates are averaged", 1, 1e4, True
)


def record_level(
    plan: Plan,
    aggregator: Aggregator,
    *,
    local: LocalRule | None = None,
    split: Split | None = None,
    personalisation: Personalisation | None = None,
) -> Algorithm:
    """DP-SGD at each client, whose updates are released one by one.

    Clients take turns by a public schedule where the cohort is smaller than the
    population.
    """
    return compose(
        "record level",
        plan,
        sampler=rotation(),
        split=split,
        local=local or dp_sgd(plan.spec.clipping_norm),
        mechanism=noised_by_client(),
        aggregator=aggregator,
        personalisation=personalisation,
    )


@of_records(
    "DPFedAvg",
    plan=partial(by_record, weights="population"),
    source="Noble, Bellet, Dieuleveut, AISTATS 2022",
)
def dpfedavg(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-SGD at each client, weighted by records.

    Source: AISTATS 2022, in the form of Robust-HDP's comparison.
    Released: per round, the update of each participant, made by DP-SGD on its own
        records with the noise that its own budget needs.
    Deviations: no control variates; clients take turns by a public schedule where the
        cohort is smaller than the population.
    """
    return record_level(plan, client_mean("by records", as_planned))


@of_records(
    "Robust-HDP",
    plan=partial(by_record, weights="inverse_variance"),
    source="Malekmohammadi, Yu, Cao, ICML 2024",
    hyperparameters={"rows": ROWS, "matrices": MATRICES},
)
def robust_hdp(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-SGD at each client, weighted by the inverse of its estimated noise.

    Robust principal component analysis splits the updates into a low-rank part and
    noise.

    Source: Algorithm 1 and Eq. 8.
    Deviations: clients take turns by a public schedule where the cohort is smaller than
        the population. Robust PCA sees 2,000 random rows by default and at most 200
        clients at a time (``noise_estimates``): on synthetic updates of 200 clients
        whose signal and noise are of one size the noise of the mean is 0.2% of the
        oracle's variance above it, 0.1% with all rows.
    """
    rows = int(hyperparameters["rows"])
    matrices = int(hyperparameters["matrices"])
    weights = by_noise(rows, matrices)
    return record_level(plan, client_mean("by estimated noise", weights))


@of_records(
    "Robust-HDP-norms",
    plan=partial(by_record, weights="inverse_variance"),
    source="ablation of Robust-HDP: Malekmohammadi, Yu, Cao, ICML 2024",
)
def robust_hdp_norms(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """Robust-HDP without Robust PCA: weights by the inverse squared norm of updates.

    Source: this project; shows what Robust PCA adds. Where the noise is much larger
        than the common signal, as in the paper's range of budgets, the two have nearly
        the same weights.
    Deviations: clients take turns by a public schedule where the cohort is smaller than
        the population.
    """
    return record_level(plan, client_mean("by norm", by_norm))


@of_records(
    "Robust-HDP-oracle",
    plan=partial(by_record, weights="inverse_variance"),
    source="Malekmohammadi, Yu, Cao, ICML 2024, Eq. 8",
)
def robust_hdp_oracle(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """Robust-HDP with the exact weights instead of estimates.

    The mean has the least noise that weights can give it.

    Source: Eq. 8 with the variances of Eq. 3 and Eq. 7.
    Deviations: as Robust-HDP.
    """
    return record_level(plan, client_mean("by noise", as_planned))
