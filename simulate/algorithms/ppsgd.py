"""PPSGD: the model of a client is the sum of shared and personal parameters.

A. Bietti, C.-Y. Wei, M. Dudik, J. Langford, Z. S. Wu, Personalization Improves Privacy-Accuracy
Tradeoffs in Federated Learning, ICML 2022.
"""

from __future__ import annotations

from functools import partial

from privplan.plan import Plan
from privplan.planning.baselines import either, strictest
from simulate.aggregators.means import at_plan_norm, mean
from simulate.aggregators.per_client import as_planned, client_mean
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.dpfedavg import record_level
from simulate.algorithms.entry import Hyperparameter, Hyperparameters
from simulate.algorithms.registry import register
from simulate.local.personal import additive_sgd
from simulate.local.personal_dp_sgd import noisy_sum
from simulate.mechanisms.gaussian import gaussian_joint
from simulate.personalisation import own
from simulate.splits import additive
from simulate.transforms import plan_clip

ALPHA = Hyperparameter(
    1.0,
    "shared step size over the personal one (its alpha): 0 for local training, large for one model",
    high=1e6,
)


@register(
    "PPSGD",
    plan=partial(either, weights="population", of_clients=strictest),
    unit="client",
    released="one noisy sum of clipped shared updates per round",
    source="Bietti, Wei, Dudik, Langford, Wu, ICML 2022",
    hyperparameters={"alpha": ALPHA},
    record_level=True,
)
def ppsgd(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """SGD at the sum of shared and personal parameters, with noise on the shared updates.

    Source: ICML 2022.
    Unit of privacy: client.
    Released: per round, one noisy sum of the cohort's clipped shared updates, with the noise
        multiplier that the strictest group needs; personal parameters stay at the clients. Under
        a record-level plan each participant's shared update, noised by DP-SGD.
    Deviations: the plan's local steps where the original takes one gradient per round; a personal
        offset of each parameter, where the original's networks have one of the last layer; noise
        is drawn on the sum, which is divided by the expected cohort; the cohort is drawn by the
        plan's law. Under a record-level plan, as HyperFL compares with it, one clipped and noised
        gradient moves both parts (the original protects clients, so its personal part needs no
        noise); updates are weighted by records; clients take turns by a public schedule where the
        cohort is smaller than the population.
    """
    alpha = hyperparameters["alpha"]
    if plan.spec.unit == "record":
        return record_level(
            plan,
            client_mean("by records", as_planned),
            local=noisy_sum(plan.spec.clipping_norm, alpha),
            split=additive(),
            personalisation=own(),
        )
    return compose(
        "PPSGD",
        plan,
        split=additive(),
        local=additive_sgd(alpha),
        transforms=(plan_clip(plan),),
        mechanism=gaussian_joint(),
        aggregator=at_plan_norm(mean(), plan),
        personalisation=own(),
    )
