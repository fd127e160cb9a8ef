"""An algorithm: DP-FedAvg's clipped sums with noise, and half of the mean as the server's step."""

from __future__ import annotations

from privplan.plan import Plan
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.registry import (
    Hyperparameter,
    Hyperparameters,
    as_given,
    per_group,
    register,
)
from simulate.components import Server
from simulate.mechanisms import gaussian_per_group
from simulate.transforms import clip


def shortened(factor: float) -> Server:
    """A server that takes a share of each step."""
    return Server(
        "shortened",
        lambda theta: {},
        lambda theta, step, state: (theta + factor * step, state),
    )


@register(
    "half-step",
    plan=as_given,
    unit="client",
    released="one noisy sum of clipped updates per group and round",
    source="a template",
    requires=(per_group,),
    hyperparameters={
        "factor": Hyperparameter(0.5, "share of the step", low=0.0, high=1.0)
    },
)
def half_step(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """Clipped updates, noise per group, and a share of the mean as the step.

    Unit of privacy: client. The noise is added to sums of clipped updates before anything else
    is computed from them, so the step costs no privacy.
    """
    return compose(
        "half-step",
        plan,
        transforms=(clip(plan.spec.clipping_norm),),
        mechanism=gaussian_per_group(),
        server=shortened(hyperparameters.values["factor"]),
    )
