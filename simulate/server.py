"""Server updates: how the global model moves by a step, and the server optimisers.

DP-FedPGN (Algorithm 1) estimates the gradient of the global loss by g = -(1 / (eta K))
times the mean update of K local steps at learning rate eta, and moves the model by
-gamma g; its experiments (Section VI-A) have gamma = eta K. The step is then -eta K g,
with eta of the round that made it. K local steps along g in the next round, whose
learning rate is ``decay`` times that, go ``decay`` times as far; so the last step is
the only state that the server keeps.

Laplacian smoothing (S. Osher, B. Wang, P. Yin, X. Luo, F. Barekat, M. Pham, A. Lin,
Laplacian smoothing gradient descent, Research in the Mathematical Sciences 9, 2022)
replaces the step v by the solution x of (I - s L) x = v, where L is the one-dimensional
periodic Laplacian over the order of the parameters in the flat vector: (L x)_i =
x_{i-1} - 2 x_i + x_{i+1}.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from privplan.errors import InputError
from privplan.registry import Registry
from privplan.spec.spec import Spec
from privplan.spec.training import BETA1, BETA2, GROUP, Averaging, ServerOptimiser
from simulate.components import Server, State, Step

# Key of the last step [d] in the server's state.
LAST_STEP = "last_step"


def pseudo_gradient_step(state: State, decay: float) -> Tensor:
    """The sum of K local steps along the pseudo-gradient in a round, -eta K g [d]."""
    return decay * state[LAST_STEP]


def add() -> Server:
    """Adds the step to the global model; the neutral default, without state."""
    return Server(
        "add", lambda theta: {}, lambda theta, step, state: (theta + step, state)
    )


def smoothed(vector: Tensor, strength: float) -> Tensor:
    """The solution x of (I - s L) x = v, a circulant system, by FFT.

    Its eigenvalues are 1 + 2 s (1 - cos(2 pi k / d)).

    Args:
        vector: v [d].
        strength: s.
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
    """Adds the step, optionally smoothed, to the global model, and remembers it."""

    def start(theta: Tensor) -> State:
        return {LAST_STEP: torch.zeros_like(theta)}

    def move(theta: Tensor, step: Tensor, state: State) -> Step:
        if strength:
            step = smoothed(step, strength)
        return theta + step, {**state, LAST_STEP: step}

    return Server("remembering", start, move)


# --- Registry of the server optimisers, and the server that a spec asks for. ----------
# An optimiser is a function from ``spec.server`` to a ``Server``, registered where it
# is defined::
#
#     @register("mine")
#     def mine(options: ServerOptimiser) -> Server: ...
#
# Other distributions name such a function in the entry-point group
# ``privplan.server_optimisers``.

Make = Callable[[ServerOptimiser], Server]
# Key of the average of the models [d] in the server's state.
AVERAGE = "averaged_model"
# Key of the number of completed rounds in the server's state.
AVERAGED_ROUNDS = "averaging_rounds"
# Slack on a whole number of rounds, for the rounding of the fraction.
ROUNDING = 1e-9


def _checked(component: object) -> Make:
    if not callable(component):
        raise TypeError("must be a function from ServerOptimiser to Server")
    return component


SERVER_OPTIMISERS: Registry[Make] = Registry("server.optimizer", GROUP, check=_checked)
"""All server optimisers by name."""


def register(name: str) -> Callable[[Make], Make]:
    """A decorator that registers a function as a server optimiser."""
    return lambda make: SERVER_OPTIMISERS.register(name, make)


def server_of(spec: Spec, server: Server, algorithm: str) -> Server:
    """The server of a spec's optimiser and averaging, or that of the algorithm.

    Args:
        spec: names optimiser and averaging.
        server: of the algorithm.
        algorithm: its name.

    Raises:
        InputError: when the spec names something that no recipe decided, and the
            algorithm's server moves the model in a way of its own.
    """
    if spec.server is None and spec.averaging is None:
        return server
    if server.name != "add":
        # What the plan's recipe decided is no wish of the user.
        decided = () if spec.recipe is None else spec.recipe.decides
        stated = {"server": spec.server, "averaging": spec.averaging}
        if not any(stated[name] for name in stated if name not in decided):
            return server
        text = f"must be left out for {algorithm}, which has its own server"
        raise InputError.one("plan.server", text, server.name)
    if spec.server is not None:
        server = SERVER_OPTIMISERS.get(spec.server.optimizer)(spec.server)
    if spec.averaging is not None:
        server = averaged(server, spec.averaging, spec.rounds)
    return server


def averaged(inner: Server, averaging: Averaging, rounds: int) -> Server:
    """A server whose released vector is an average of its models over rounds."""

    def start(theta: Tensor) -> State:
        zero = torch.zeros((), dtype=torch.float64, device=theta.device)
        return {**inner.start(theta), AVERAGE: theta.clone(), AVERAGED_ROUNDS: zero}

    def move(theta: Tensor, step: Tensor, state: State) -> Step:
        after, state = inner.step(theta, step, state)
        done = state[AVERAGED_ROUNDS] + 1
        weight = newest_weight(averaging, int(done), rounds)
        average = torch.lerp(state[AVERAGE], after, weight)
        return after, {**state, AVERAGE: average, AVERAGED_ROUNDS: done}

    return replace(
        inner,
        name=f"{inner.name}, {averaging.method}",
        start=start,
        step=move,
        released=lambda theta, state: state[AVERAGE],
    )


def newest_weight(averaging: Averaging, round_: int, rounds: int) -> float:
    """Weight of a round's model in the average with those before it.

    It is (1 - decay) / (1 - decay^t) in round t, or 1 / n as the n-th of a ``tail``.
    """
    if averaging.decay is not None:
        return (1 - averaging.decay) / (1 - averaging.decay**round_)
    tail = max(1, math.ceil((averaging.fraction or 1.0) * rounds - ROUNDING))
    return 1 / max(1, round_ - (rounds - tail))


# --- Adaptive server optimisers: FedAdagrad, FedAdam and FedYogi. ---------------------
# S. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konecny, S. Kumar, H. B.
# McMahan, Adaptive Federated Optimization, ICLR 2021, Algorithm 2: with the mean update
# D of a round, m = beta1 m + (1 - beta1) D, and v one of
#
#     v + D^2                                   (adagrad)
#     v - (1 - beta2) D^2 sign(v - D^2)         (yogi)
#     beta2 v + (1 - beta2) D^2                 (adam)
#
# per coordinate; the model moves by eta m / (sqrt(v) + epsilon), v starts at epsilon^2.

# Keys of m [d] and v [d] in the server's state.
MEAN = "mean"
SQUARES = "squares"
Squares = Callable[[Tensor, Tensor], Tensor]
"""(v [d], D^2 [d]) to the next v [d]."""


def _adaptive(name: str, options: ServerOptimiser, squares: Squares) -> Server:
    """The server with a rule for v."""
    rate = options.learning_rate or 0.01
    epsilon = options.epsilon or 1e-3

    def start(theta: Tensor) -> State:
        mean = torch.zeros_like(theta)
        return {MEAN: mean, SQUARES: torch.full_like(theta, epsilon**2)}

    def move(theta: Tensor, step: Tensor, state: State) -> Step:
        mean = BETA1 * state[MEAN] + (1 - BETA1) * step
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
    return _adaptive(
        "adam", options, lambda v, square: BETA2 * v + (1 - BETA2) * square
    )


@register("yogi")
def yogi(options: ServerOptimiser) -> Server:
    """FedYogi: v moves towards the square by at most (1 - beta2) times the square."""
    slow = 1 - BETA2
    return _adaptive(
        "yogi", options, lambda v, square: v - slow * square * torch.sign(v - square)
    )


# --- Server SGD, without and with momentum. -------------------------------------------
# T.-M. H. Hsu, H. Qi, M. Brown, Measuring the Effects of Non-Identical Data
# Distribution for Federated Visual Classification, 2019 (FedAvgM): v = momentum v +
# step, theta = theta + eta v.

VELOCITY = "velocity"  # key of v [d] in the server's state


@register("sgd")
def sgd(options: ServerOptimiser) -> Server:
    """Adds the step times the learning rate; without state."""
    rate = options.learning_rate or 1.0
    return Server(
        "sgd", lambda theta: {}, lambda theta, step, state: (theta + rate * step, state)
    )


@register("momentum")
def momentum(options: ServerOptimiser) -> Server:
    """Adds the learning rate times the sum of steps, each times momentum^(its age)."""
    rate = options.learning_rate or 1.0
    factor = options.momentum or 0.0

    def start(theta: Tensor) -> State:
        return {VELOCITY: torch.zeros_like(theta)}

    def move(theta: Tensor, step: Tensor, state: State) -> Step:
        velocity = factor * state[VELOCITY] + step
        return theta + rate * velocity, {**state, VELOCITY: velocity}

    return Server("momentum", start, move)
