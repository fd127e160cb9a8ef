"""CENTAUR and PPSGD: a shared body and personal heads, or a sum of both parts.

Z. Shen, J. Ye, A. Kang, H. Hassani, R. Shokri, Share Your Representation Only:
Guaranteed Improvement of the Privacy-Utility Tradeoff in Federated Learning, ICLR 2023.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from privplan.plan import Plan
from privplan.planning.baselines import either, strictest
from simulate.aggregators import at_plan_norm, mean
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.record_level import record_level
from simulate.algorithms.registry import Hyperparameter, Hyperparameters, of_clients
from simulate.algorithms.sam import HEAD_RATE, protected, shared_body
from simulate.client_aggregators import as_planned, client_mean
from simulate.local.dp_sgd import head_then_body, noisy_sum
from simulate.local.sgd import additive_sgd
from simulate.mechanisms import gaussian_joint
from simulate.personalisations import own_model
from simulate.recipe import Recipe, RecipeOf
from simulate.splits import additive, head
from simulate.transforms import plan_clip


def _either(local: Literal["head", "offset"]) -> RecipeOf:
    """One noisy sum, or under a record-level plan the clients' own updates."""

    def recipe(plan: Plan, aggregation: str) -> Recipe:
        if plan.unit == "record":
            return Recipe("per_client", "by records", local=local)
        return Recipe("joint", local=local)

    return recipe


@of_clients(
    "CENTAUR",
    plan=partial(either, weights="population", of_clients=strictest),
    released="one noisy sum of the body's clipped updates per round",
    source="Shen, Ye, Kang, Hassani, Shokri, ICLR 2023",
    hyperparameters={"head_rate": HEAD_RATE},
    record_level=True,
    recipe=_either("head"),
)
def centaur(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP2-FedSAM with plain SGD on the body.

    Source: ICLR 2023; under a plan of clients as in the comparison of DP2-FedSAM, under
        a plan of records as proposed and as HyperFL compares with it.
    Released: as DP2-FedSAM. Under a record-level plan each participant's update of the
        body, noised by DP-SGD; heads stay at the clients.
    Deviations: as DP2-FedSAM. Under a record-level plan: half of a round's noisy steps
        train the head, the others the body, all by DP-SGD; the original fits the head
        without noise, and then a record changes all other records' gradients of the
        body through it, by which one clipped gradient is no bound on its effect.
        Gradients are clipped over head and body; updates are weighted by records;
        clients take turns by a public schedule where the cohort is smaller than the
        population.
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
        personalisation=own_model(),
    )


# --- PPSGD: the model of a client is the sum of shared and personal parameters. -------
# A. Bietti, C.-Y. Wei, M. Dudik, J. Langford, Z. S. Wu, Personalization Improves
# Privacy-Accuracy Tradeoffs in Federated Learning, ICML 2022.

ALPHA = Hyperparameter(
    1.0,
    "shared step size over the personal one (its alpha): "
    "small for local training, large for one model",
    low=1e-6,  # at 0 nothing is shared: that is Local-only
    high=1e6,
)


@of_clients(
    "PPSGD",
    plan=partial(either, weights="population", of_clients=strictest),
    released="one noisy sum of clipped shared updates per round",
    source="Bietti, Wei, Dudik, Langford, Wu, ICML 2022",
    hyperparameters={"alpha": ALPHA},
    record_level=True,
    recipe=_either("offset"),
)
def ppsgd(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """SGD at the sum of shared and personal parameters, with noise on the former.

    Released: per round, one noisy sum of the cohort's clipped shared updates, with the
        noise multiplier that the strictest group needs; personal parameters stay at the
        clients. Under a record-level plan each participant's shared update, noised by
        DP-SGD.
    Deviations: the plan's local steps where the original takes one gradient per round;
        a personal offset of each parameter, where the original's networks have one of
        the last layer; noise is drawn on the sum, which is divided by the expected
        cohort; the cohort is drawn by the plan's law. Under a record-level plan, as
        HyperFL compares with it, one clipped and noised gradient moves both parts (the
        original protects clients, so its personal part needs no noise); updates are
        weighted by records; clients take turns by a public schedule where the cohort is
        smaller than the population.
    """
    alpha = hyperparameters["alpha"]
    if plan.spec.unit == "record":
        return record_level(
            plan,
            client_mean("by records", as_planned),
            local=noisy_sum(plan.spec.clipping_norm, alpha),
            split=additive(),
            personalisation=own_model(),
        )
    return compose(
        "PPSGD",
        plan,
        split=additive(),
        local=additive_sgd(alpha),
        transforms=(plan_clip(plan),),
        mechanism=gaussian_joint(),
        aggregator=at_plan_norm(mean(), plan),
        personalisation=own_model(),
    )
