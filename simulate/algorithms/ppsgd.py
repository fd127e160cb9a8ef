"""PPSGD: every client adds parameters of its own to the shared ones.

A. Bietti, C.-Y. Wei, M. Dudik, J. Langford, Z. S. Wu, Personalization Improves Privacy-Accuracy
Tradeoffs in Federated Learning, ICML 2022.

Unit of privacy: client. Released: in each round one noisy sum of the cohort's clipped shared
updates, with the noise multiplier that the strictest group needs; offsets stay at the clients.
Deviations: the plan's local steps where the original takes one gradient a round; an offset of
every parameter, where the original's networks have one of the last layer; noise is drawn on the
sum, which is divided by the expected cohort; the cohort is drawn by the plan's law.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Entry, Hyperparameter, Hyperparameters
from simulate.local.personal import additive_sgd
from simulate.mechanisms.gaussian import gaussian_joint
from simulate.personalisation import own
from simulate.splits import additive
from simulate.transforms import clip

ALPHA = Hyperparameter(
    1.0,
    "shared step size over the personal one (its alpha): 0 learns alone, large one global model",
    high=1e6,
)


def ppsgd(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Additive split, SGD at the sum, clipping and one Gaussian sum of the shared updates.

    Args:
        plan: the plan.
        choices: the number ``alpha``.
    """
    return compose(
        "PPSGD",
        plan,
        split=additive(),
        local=additive_sgd(choices.numbers["alpha"]),
        transforms=(clip(plan.spec.clipping_norm),),
        mechanism=gaussian_joint(),
        personalisation=own(),
    )


ROW = Entry(
    "PPSGD",
    ppsgd,
    lambda plan, records: strictest(plan.spec),
    unit="client",
    released="one noisy sum of clipped shared updates a round",
    source="Bietti, Wei, Dudik, Langford, Wu, ICML 2022",
    numbers={"alpha": ALPHA},
)
