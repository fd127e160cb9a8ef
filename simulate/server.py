"""Server updates: how the global model moves by a step.

DP-FedPGN (Algorithm 1) estimates the gradient of the global loss by g = -(1 / (eta K)) times the
mean update of K local steps at learning rate eta, and moves the model by -gamma g; its experiments
(Section VI-A) have gamma = eta K. The step is then -eta K g, with eta of the round that made it. K
local steps along g in the next round, whose learning rate is ``decay`` times that, go ``decay``
times as far; so the last step is the only state that the server keeps.

Laplacian smoothing (S. Osher, B. Wang, P. Yin, X. Luo, F. Barekat, M. Pham, A. Lin, Laplacian
smoothing gradient descent, Research in the Mathematical Sciences 9, 2022) replaces the step v by
the solution x of (I - s L) x = v, where L is the one-dimensional periodic Laplacian over the order
of the parameters in the flat vector: (L x)_i = x_{i-1} - 2 x_i + x_{i+1}.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from simulate.components import Server, State

LAST_STEP = "last_step"
"""Key of the last step [d] in the server's state."""


def pseudo_gradient_step(state: State, decay: float) -> Tensor:
    """Returns the sum of K local steps along the pseudo-gradient in this round, -eta K g [d]."""
    return decay * state[LAST_STEP]


def add() -> Server:
    """Adds the step to the global model; the neutral default, without state."""
    return Server("add", lambda theta: {}, lambda theta, step, state: (theta + step, state))


def smoothed(vector: Tensor, strength: float) -> Tensor:
    """Returns the solution of the circulant system, by FFT in double precision.

    The eigenvalue of I - s L at frequency k is 1 + 2 s (1 - cos(2 pi k / d)), at least 1.
    """
    size = vector.numel()
    frequencies = torch.arange(size // 2 + 1, dtype=torch.float64, device=vector.device)
    eigenvalues = 1 + 2 * strength * (1 - torch.cos(2 * math.pi / size * frequencies))
    spectrum = torch.fft.rfft(vector.double()) / eigenvalues
    solution: Tensor = torch.fft.irfft(spectrum, n=size)
    return solution.to(vector.dtype)


def laplacian(strength: float) -> Server:
    """Adds the smoothed step to the global model; without state."""
    return Server(
        "laplacian",
        lambda theta: {},
        lambda theta, step, state: (theta + smoothed(step, strength), state),
    )


def remembering(strength: float = 0.0) -> Server:
    """Adds the step, optionally smoothed, to the global model and stores it in the state."""

    def start(theta: Tensor) -> State:
        return {LAST_STEP: torch.zeros_like(theta)}

    def move(theta: Tensor, step: Tensor, state: State) -> tuple[Tensor, State]:
        taken = smoothed(step, strength) if strength else step
        return theta + taken, {**state, LAST_STEP: taken}

    return Server("remembering", start, move)
