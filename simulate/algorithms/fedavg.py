"""Federated averaging, with and without privacy, and training at each client only.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agueera y Arcas, Communication-Efficient
Learning of Deep Networks from Decentralized Data, AISTATS 2017.
H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, Learning Differentially Private Recurrent Language
Models, ICLR 2018.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest, unprotected
from simulate.aggregators.means import at_plan_norm, mean
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Hyperparameters
from simulate.algorithms.registry import from_spec, register
from simulate.local.personal import private_sgd
from simulate.mechanisms.gaussian import gaussian_joint
from simulate.mechanisms.unprotected import silent
from simulate.personalisation import fine_tuned, own
from simulate.splits import private
from simulate.transforms import plan_clip


@register(
    "FedAvg",
    plan=from_spec(unprotected),
    unit="none",
    released="the exact sum of updates per round",
    source="McMahan, Moore, Ramage, Hampson, Agueera y Arcas, AISTATS 2017",
)
def fedavg(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """Federated averaging without privacy: every component at its default.

    Source: AISTATS 2017; called P-FedAvg in the comparison of GDPFed+.
    Unit of privacy: none.
    Released: per round, the exact sum of the cohort's updates, so epsilon is infinite.
    Deviations: the cohort is drawn by the plan's law with the same ratio for all clients, and the
        sum is divided by the expected cohort, not by the realised one.
    """
    return compose("FedAvg", plan)


@register(
    "DP-FedAvg",
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of clipped updates per round",
    source="McMahan, Ramage, Talwar, Zhang, ICLR 2018",
)
def dp_fedavg(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """Federated averaging under one budget, the strictest, for all clients.

    Source: ICLR 2018; Algorithm 2 of GDPFed+.
    Unit of privacy: client.
    Released: per round, one noisy sum of the cohort's clipped updates, with the noise multiplier
        that the strictest group needs.
    Deviations: the sum is divided by the expected cohort; noise is drawn on the sum, as secure
        aggregation would reveal it, not in shares at the clients; the cohort is drawn by the
        plan's law.
    """
    return compose(
        "DP-FedAvg",
        plan,
        transforms=(plan_clip(plan),),
        mechanism=gaussian_joint(),
        aggregator=at_plan_norm(mean(), plan),
    )


@register(
    "DP-FedAvg-FT",
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of clipped updates per round",
    source="baseline of DP2-FedSAM; Yu, Bagdasaryan, Shmatikov, 2020",
)
def dp_fedavg_ft(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg whose clients fine-tune the final model on their own records.

    Source: baseline of DP2-FedSAM; after T. Yu, E. Bagdasaryan, V. Shmatikov, Salvaging Federated
        Learning by Local Adaptation, 2020.
    Unit of privacy: client.
    Released: as DP-FedAvg; fine-tuned models stay at the clients.
    Deviations: as DP-FedAvg. Fine-tuning takes the local steps of one round at the last round's
        learning rate.
    """
    return replace(dp_fedavg(plan, hyperparameters), personalisation=fine_tuned())


@register(
    "Local-only",
    plan=from_spec(unprotected),
    unit="client",
    released="nothing",
    source="baseline of DP2-FedSAM and HyperFL",
)
def local_only(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """Local training without any communication.

    Source: the lower end of the comparisons of DP2-FedSAM and HyperFL ("Local").
    Unit of privacy: client.
    Released: nothing, so epsilon is 0 for all clients.
    Deviations: a client trains in the rounds in which the plan's law draws it, as often as under
        the other algorithms; it keeps its parameters between them.
    """
    return compose(
        "Local-only",
        plan,
        split=private(),
        local=private_sgd(),
        mechanism=silent(),
        personalisation=own(),
    )
