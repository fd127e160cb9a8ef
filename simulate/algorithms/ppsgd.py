"""PPSGD: the model of a client is the sum of shared and personal parameters.

A. Bietti, C.-Y. Wei, M. Dudik, J. Langford, Z. S. Wu, Personalization Improves Privacy-Accuracy
Tradeoffs in Federated Learning, ICML 2022.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.aggregators.means import at_plan_norm, mean
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Hyperparameter, Hyperparameters
from simulate.algorithms.registry import from_spec, register
from simulate.local.personal import additive_sgd
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
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of clipped shared updates per round",
    source="Bietti, Wei, Dudik, Langford, Wu, ICML 2022",
    hyperparameters={"alpha": ALPHA},
)
def ppsgd(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """SGD at the sum of shared and personal parameters, with noise on the shared updates.

    Source: ICML 2022.
    Unit of privacy: client.
    Released: per round, one noisy sum of the cohort's clipped shared updates, with the noise
        multiplier that the strictest group needs; personal parameters stay at the clients.
    Deviations: the plan's local steps where the original takes one gradient per round; a personal
        offset of each parameter, where the original's networks have one of the last layer; noise
        is drawn on the sum, which is divided by the expected cohort; the cohort is drawn by the
        plan's law.
    """
    return compose(
        "PPSGD",
        plan,
        split=additive(),
        local=additive_sgd(hyperparameters["alpha"]),
        transforms=(plan_clip(plan),),
        mechanism=gaussian_joint(),
        aggregator=at_plan_norm(mean(), plan),
        personalisation=own(),
    )
