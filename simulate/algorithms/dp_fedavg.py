"""DP-FedAvg: one budget, the strictest, for every client.

H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, Learning Differentially Private Recurrent Language
Models, ICLR 2018; Algorithm 2 of GDPFed+.

Unit of privacy: client. Released: in each round one noisy sum of the whole cohort's clipped
updates, with the noise multiplier that the strictest group needs.
Deviations: the sum is divided by the expected cohort; noise is drawn on the sum, as secure
aggregation would reveal it, not in shares at the clients; the cohort is drawn by the plan's law.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.aggregators.means import mean
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.mechanisms.gaussian import gaussian_joint
from simulate.transforms import clip


def dp_fedavg(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Clip, one Gaussian sum, plain mean; ``choices`` change nothing."""
    return compose(
        "DP-FedAvg",
        plan,
        transforms=(clip(plan.spec.clipping_norm),),
        mechanism=gaussian_joint(),
        aggregator=mean(),
    )


ROW = Entry(
    "DP-FedAvg",
    dp_fedavg,
    lambda plan, records: strictest(plan.spec),
    unit="client",
    released="one noisy sum of clipped updates a round",
    source="McMahan, Ramage, Talwar, Zhang, ICLR 2018",
)
