"""Adaptive server optimisers: FedAdagrad, FedAdam and FedYogi.

S. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konecny, S. Kumar, H. B. McMahan, Adaptive
Federated Optimization, ICLR 2021, Algorithm 2: with the mean update D of a round,
m = beta1 m + (1 - beta1) D, and v one of

    v + D^2                                   (adagrad)
    v - (1 - beta2) D^2 sign(v - D^2)         (yogi)
    beta2 v + (1 - beta2) D^2                 (adam)

per coordinate; the model moves by eta m / (sqrt(v) + epsilon), v starts at epsilon^2.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from privplan.spec.server import ServerOptimiser
from simulate.components import Server, State
from simulate.server_optimisers.registry import register

MEAN = "mean"
"""Key of m [d] in the server's state."""
SQUARES = "squares"
"""Key of v [d] in the server's state."""
Squares = Callable[[Tensor, Tensor], Tensor]
"""(v [d], D^2 [d]) to the next v [d]."""


def _adaptive(name: str, options: ServerOptimiser, squares: Squares) -> Server:
    """Returns the server with a rule for v."""
    rate, beta = options.learning_rate or 0.01, options.beta1 or 0.0
    epsilon = options.epsilon or 1e-3

    def start(theta: Tensor) -> State:
        return {MEAN: torch.zeros_like(theta), SQUARES: torch.full_like(theta, epsilon**2)}

    def move(theta: Tensor, step: Tensor, state: State) -> tuple[Tensor, State]:
        mean = beta * state[MEAN] + (1 - beta) * step
        after = squares(state[SQUARES], step * step)
        moved = theta + rate * mean / (after.sqrt() + epsilon)
        return moved, {**state, MEAN: mean, SQUARES: after}

    return Server(name, start, move)


@register("adagrad")
def adagrad(options: ServerOptimiser) -> Server:
    """FedAdagrad: v is the sum of the squares."""
    return _adaptive("adagrad", options, lambda v, square: v + square)


@register("adam")
def adam(options: ServerOptimiser) -> Server:
    """FedAdam: v is an exponential moving average of the squares."""
    beta2 = options.beta2 or 0.0
    return _adaptive("adam", options, lambda v, square: beta2 * v + (1 - beta2) * square)


@register("yogi")
def yogi(options: ServerOptimiser) -> Server:
    """FedYogi: v moves towards the square by at most (1 - beta2) times the square."""
    slow = 1 - (options.beta2 or 0.0)
    return _adaptive("yogi", options, lambda v, square: v - slow * square * torch.sign(v - square))
