"""CENTAUR: a shared body with noise and personal heads.

Z. Shen, J. Ye, A. Kang, H. Hassani, R. Shokri, Share Your Representation Only: Guaranteed
Improvement of the Privacy-Utility Tradeoff in Federated Learning, ICLR 2023.
"""

from __future__ import annotations

from functools import partial

from privplan.plan import Plan
from privplan.planning.baselines import either, strictest
from simulate.aggregators.per_client import as_planned, client_mean
from simulate.algorithm import Algorithm
from simulate.algorithms.dp2_fedsam import HEAD_RATE, protected, shared_body
from simulate.algorithms.dpfedavg import record_level
from simulate.algorithms.entry import Hyperparameters
from simulate.algorithms.registry import register
from simulate.local.personal_dp_sgd import head_then_body
from simulate.personalisation import own
from simulate.splits import head


@register(
    "CENTAUR",
    plan=partial(either, weights="population", of_clients=strictest),
    unit="client",
    released="one noisy sum of the body's clipped updates per round",
    source="Shen, Ye, Kang, Hassani, Shokri, ICLR 2023",
    hyperparameters={"head_rate": HEAD_RATE},
    record_level=True,
)
def centaur(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP2-FedSAM with plain SGD on the body.

    Source: ICLR 2023; under a plan of clients as in the comparison of DP2-FedSAM, under a plan of
        records as proposed and as HyperFL compares with it.
    Unit of privacy: client.
    Released: as DP2-FedSAM. Under a record-level plan each participant's update of the body, noised
        by DP-SGD; heads stay at the clients.
    Deviations: as DP2-FedSAM. Under a record-level plan: half of a round's noisy steps train the
        head, the others the body, all by DP-SGD; the original fits the head without noise, and
        then a record changes all other records' gradients of the body through it, by which one
        clipped gradient is no bound on its effect. Gradients are clipped over head and body;
        updates are weighted by records; clients take turns by a public schedule where the cohort is
        smaller than the population.
    """
    rate = hyperparameters["head_rate"]
    if plan.spec.unit == "client":
        return protected(shared_body(plan, 0.0, rate))
    split = head()
    return record_level(
        plan,
        client_mean("by records", as_planned),
        local=head_then_body(plan.spec.clipping_norm, split, rate),
        split=split,
        personalisation=own(),
    )
