"""The global pseudo-gradient of DP-FedPGN, kept as the step that it made.

DP-FedPGN (Algorithm 1) estimates the gradient of the global loss by g = -(1 / (eta K)) times the
mean update of K local steps at learning rate eta, and moves the model by -gamma g; its
experiments (Section VI-A) have gamma = eta K. The step is then -eta K g, with eta of the round
that made it. K local steps along g in the next round, whose learning rate is ``decay`` times
that, go ``decay`` times as far: no other number is needed, and none is if a step is zero.

The global model moves by the step.

Laplacian smoothing of the global step.

S. Osher, B. Wang, P. Yin, X. Luo, F. Barekat, M. Pham, A. Lin, Laplacian smoothing gradient
descent, Research in the Mathematical Sciences 9, 2022: the step v becomes the solution x of
(I - s L) x = v, where L is the one-dimensional periodic Laplacian over the order in which the
parameters lie in the flat vector: (L x)_i = x_{i-1} - 2 x_i + x_{i+1}.

A server that keeps its last step, which the next round's clients are told.

What the server does with a step.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from simulate.components import Server, State

LAST_STEP = "last_step"
"""Name of the step [d] in the server's state."""


def carried(state: State, decay: float) -> Tensor:
    """Where K local steps along the pseudo-gradient lead in this round, -eta K g [d].

    Args:
        state: the server's state.
        decay: factor on the local learning rate from a round to the next.
    """
    return decay * state[LAST_STEP]


def add() -> Server:
    """The neutral server, without state."""
    return Server("add", lambda theta: {}, lambda theta, step, state: (theta + step, state))


def smoothed(vector: Tensor, strength: float) -> Tensor:
    """The solution of the circulant system, by FFT in double precision.

    The eigenvalue of I - s L at frequency k is 1 + 2 s (1 - cos(2 pi k / d)), at least 1.

    Args:
        vector: v [d].
        strength: s, at least 0.

    Returns:
        x [d], in the precision of v; its sum is that of v.
    """
    size = vector.numel()
    frequencies = torch.arange(size // 2 + 1, dtype=torch.float64, device=vector.device)
    eigenvalues = 1 + 2 * strength * (1 - torch.cos(2 * math.pi / size * frequencies))
    spectrum = torch.fft.rfft(vector.double()) / eigenvalues
    return torch.fft.irfft(spectrum, n=size).to(vector.dtype)


def laplacian(strength: float) -> Server:
    """The global model moves by the smoothed step; without state.

    Args:
        strength: s, at least 0; 0 leaves the step as it is.
    """
    return Server(
        "laplacian",
        lambda theta: {},
        lambda theta, step, state: (theta + smoothed(step, strength), state),
    )


def remembering(strength: float = 0.0) -> Server:
    """The global model moves by the step, smoothed if wanted, and the step is kept.

    Args:
        strength: of Laplacian smoothing, at least 0; 0 leaves the step as it is.
    """

    def start(theta: Tensor) -> State:
        return {LAST_STEP: torch.zeros_like(theta)}

    def move(theta: Tensor, step: Tensor, state: State) -> tuple[Tensor, State]:
        taken = smoothed(step, strength) if strength else step
        return theta + taken, {**state, LAST_STEP: taken}

    return Server("remembering", start, move)
