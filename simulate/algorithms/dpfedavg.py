"""DPFedAvg: DP-SGD at each client, and the mean of their updates weighted by records.

M. Noble, A. Bellet, A. Dieuleveut, Differentially Private Federated Learning on Heterogeneous
Data, AISTATS 2022; as Robust-HDP compares with it.
"""

from __future__ import annotations

from functools import partial

from privplan.plan import Plan
from privplan.planning.baselines import by_record
from simulate.aggregators.per_client import as_planned, client_mean
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Hyperparameters
from simulate.algorithms.registry import register
from simulate.components import Aggregator, LocalRule, Personalisation, Split
from simulate.local.dp_sgd import dp_sgd
from simulate.mechanisms.per_client import noised_by_client
from simulate.samplers import rotation


def record_level(
    plan: Plan,
    aggregator: Aggregator,
    *,
    local: LocalRule | None = None,
    split: Split | None = None,
    personalisation: Personalisation | None = None,
) -> Algorithm:
    """DP-SGD at each client, whose updates are released one by one.

    Clients take turns by a public schedule where the cohort is smaller than the population.

    Args:
        plan: a plan of records.
        aggregator: combines the clients' updates.
        local: a rule that draws noise on every step; DP-SGD on all parameters when None.
        split: shared and personal parameters; all are shared when None.
        personalisation: the models that clients use.
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


@register(
    "DPFedAvg",
    plan=partial(by_record, weights="population"),
    unit="record",
    released="each participant's update, noised by DP-SGD",
    source="Noble, Bellet, Dieuleveut, AISTATS 2022",
)
def dpfedavg(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-SGD at each client, weighted by records.

    Source: AISTATS 2022, in the form of Robust-HDP's comparison.
    Unit of privacy: record, for each client separately.
    Released: per round, the update of each participant, made by DP-SGD on its own records with the
        noise that its own budget needs.
    Deviations: no control variates; clients take turns by a public schedule where the cohort is
        smaller than the population.
    """
    return record_level(plan, client_mean("by records", as_planned))
