"""P-FedSAM and DP2-FedSAM: a shared body trained with SAM and personal heads.

Z. Zhang, Y. Guo, Y. Gong, DP2-FedSAM: Enhancing Differentially Private Federated Learning Through
Personalized Sharpness-Aware Minimization.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest, unprotected
from simulate.aggregators.means import at_plan_norm
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.dp_fedsam import RHO
from simulate.algorithms.entry import Hyperparameter, Hyperparameters
from simulate.algorithms.registry import from_spec, register
from simulate.local.personal import alternating
from simulate.mechanisms.gaussian import gaussian_joint
from simulate.personalisation import own
from simulate.splits import head
from simulate.transforms import plan_clip

HEAD_RATE = Hyperparameter(
    1.0,
    "learning rate of the head over that of the body; DP2-FedSAM: 0.05 in words, 20 in symbols",
    high=1e6,
)
"""DP2-FedSAM (Section 5.1) sets "the learning rate for the shared representation extractor eta_h to
be 0.1 and for the personal classifier eta_phi to be 0.005". In its table of notation and in
Algorithm 2, h is the personal head and phi the shared extractor, so the symbols say the reverse of
the words: 0.05 by the words, 20 by the symbols. The words cripple the head: on clients with two
classes each it hardly learns. Their geometric mean is 1, which favours neither reading, is the
ratio of methods without a head of their own, and is the default.
"""


@register(
    "P-FedSAM",
    plan=from_spec(unprotected),
    unit="none",
    released="the exact sum of the body's updates per round",
    source="Zhang, Guo, Gong (DP2-FedSAM)",
    hyperparameters={**RHO, "head_rate": HEAD_RATE},
)
def p_fedsam(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """SGD on a personal head, then SAM on the shared body, without privacy.

    Source: Section 5: DP2-FedSAM without clipping and noise.
    Unit of privacy: none.
    Released: per round, the exact sum of the cohort's updates of the body, so epsilon is infinite;
        heads stay at the clients.
    Deviations: as DP2-FedSAM.
    """
    return shared_body(plan, hyperparameters["rho"], hyperparameters["head_rate"])


@register(
    "DP2-FedSAM",
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of the body's clipped updates per round",
    source="Zhang, Guo, Gong (DP2-FedSAM)",
    hyperparameters={**RHO, "head_rate": HEAD_RATE},
)
def dp2_fedsam(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """P-FedSAM with clipped updates and noise on the body.

    Source: Algorithm 2.
    Unit of privacy: client.
    Released: per round, one noisy sum of the cohort's clipped updates of the body, with the noise
        multiplier that the strictest group needs; heads stay at the clients.
    Deviations: the head is the last dense layer; head and body take the plan's local steps each, on
        the same mini-batches (the paper lets their numbers differ); noise is drawn on the sum, not
        in shares at the clients; the sum is divided by the expected cohort; the cohort is drawn by
        the plan's law. The gradient of the ascent is taken at the current step, as in its
        Equation 11; line 12 of the algorithm prints the round's first body. One learning rate for
        head and body by default, since the paper contradicts itself on theirs (``HEAD_RATE``).
    """
    return protected(p_fedsam(plan, hyperparameters))


def shared_body(plan: Plan, rho: float, head_rate: float) -> Algorithm:
    """A shared body and personal heads without privacy; plain SGD on the body where rho is 0."""
    split = head()
    local = alternating(split, rho=rho, head_rate=head_rate)
    return compose("shared body", plan, split=split, local=local, personalisation=own())


def protected(algorithm: Algorithm) -> Algorithm:
    """An algorithm with clipped updates and one noisy sum of all groups."""
    plan = algorithm.plan
    return replace(
        algorithm,
        transforms=(plan_clip(plan),),
        mechanism=gaussian_joint(),
        aggregator=at_plan_norm(algorithm.aggregator, plan),
    )
