"""Server SGD, without and with momentum.

T.-M. H. Hsu, H. Qi, M. Brown, Measuring the Effects of Non-Identical Data Distribution for
Federated Visual Classification, 2019 (FedAvgM): v = momentum v + step, theta = theta + eta v.
"""

from __future__ import annotations

import torch
from torch import Tensor

from privplan.spec.server import ServerOptimiser
from simulate.components import Server, State
from simulate.server_optimisers.registry import register

VELOCITY = "velocity"
"""Key of v [d] in the server's state."""


@register("sgd")
def sgd(options: ServerOptimiser) -> Server:
    """Adds the step times the learning rate; without state."""
    rate = options.learning_rate or 1.0
    return Server("sgd", lambda theta: {}, lambda theta, step, state: (theta + rate * step, state))


@register("momentum")
def momentum(options: ServerOptimiser) -> Server:
    """Adds the learning rate times the sum of the steps, each times momentum^(its age)."""
    rate, kept = options.learning_rate or 1.0, options.momentum or 0.0

    def start(theta: Tensor) -> State:
        return {VELOCITY: torch.zeros_like(theta)}

    def move(theta: Tensor, step: Tensor, state: State) -> tuple[Tensor, State]:
        velocity = kept * state[VELOCITY] + step
        return theta + rate * velocity, {**state, VELOCITY: velocity}

    return Server("momentum", start, move)
