"""DP-FedPGN, with and without smoothing: its Algorithm 1 line by line, with g itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from simulate.aggregators import add_shift, mean
from simulate.algorithm import Algorithm
from simulate.engine.loop import run_round
from simulate.local.sgd import pgn, plain_sgd
from simulate.runs.ledger_writer import MemoryLedger
from simulate.server import LAST_STEP, add, remembering
from simulate.transforms import clip, shift
from tests.simulate import small, tiny
from tests.simulate.case import Case

RHO, BETA, SMOOTHING = 0.3, 0.4, 0.7
NUMBERS = {"rho": RHO, "beta": BETA}


def follow(algorithm: Algorithm, smooth: Callable[[Tensor], Tensor]) -> Tensor:
    """How far Algorithm 1 moves the model in all rounds without clipping and noise [d]."""
    world = small.setting(algorithm)
    theta = begin = world.start
    g = torch.zeros_like(theta)
    for round_ in range(1, small.ROUNDS + 1):
        rate = world.learning_rate(round_)
        known = (1 - BETA) * small.STEPS * rate * g
        total = torch.zeros_like(theta)
        for group in small.loop(world, round_, theta, _client(g)):
            for update in group:
                total += update + known
        mean_update = total / small.COHORT - known
        g = smooth(-mean_update / (rate * small.STEPS))
        theta = theta - rate * small.STEPS * g
    return theta - begin


def _client(g: Tensor) -> small.Client:
    """Lines 4 to 10 of Algorithm 1, with PyTorch's momentum on the client's own gradients."""

    def train(network: nn.Module, batches: small.Batches, rate: float) -> None:
        x = small.flat(network)
        probe = RHO * g / g.norm() if g.norm() > 0 else g
        speed = torch.zeros_like(x)
        for images, labels in batches:
            nn.utils.vector_to_parameters(x + probe, network.parameters())
            network.zero_grad()
            small.loss(network, images, labels).backward()
            slope = torch.cat([weight.grad.flatten() for weight in network.parameters()])
            speed = small.MOMENTUM * speed + BETA * slope
            x = x - rate * (speed + (1 - BETA) * g)
        nn.utils.vector_to_parameters(x, network.parameters())

    return train


def compare(smooth: Callable[[Tensor], Tensor]) -> Callable[[Algorithm], None]:
    """Compare with Algorithm 1 in the world of digits."""

    def check(algorithm: Algorithm) -> None:
        expected = follow(algorithm, smooth)
        torch.testing.assert_close(small.moved(algorithm), expected, rtol=1e-4, atol=1e-6)

    return check


def by_matrix(vector: Tensor) -> Tensor:
    """The smoothed vector, from the system solved through the matrix of its neighbours."""
    size = len(vector)
    system = (1 + 2 * SMOOTHING) * torch.eye(size)
    for index in range(size):
        system[index, index - 1] -= SMOOTHING
        system[index, (index + 1) % size] -= SMOOTHING
    return torch.linalg.solve(system, vector)


def check_by_hand(algorithm: Algorithm) -> None:
    """Two rounds with clipping and noise: updates (3, 4) times the pixel and the rate."""
    setting = tiny.setting(replace(algorithm, local=tiny.LOCAL))
    _, _, after = tiny.one_round(setting)
    again = run_round(setting, after, MemoryLedger(""))
    np.testing.assert_allclose((again.theta - after.theta).numpy(), by_hand(), rtol=1e-4)


def by_hand() -> np.ndarray:
    """The second step."""
    pixels, first, second = (1, 2, 1, 4), 1.0, 0.5
    total = sum(_clipped(np.array([3.0, 4.0]) * pixel) for pixel in pixels)
    g = -(total + tiny.noise(0, 10.0)) / (4 * first)
    known = (1 - BETA) * second * g
    total = sum(_clipped(np.array([3.0, 4.0]) * second * pixel + known) for pixel in pixels)
    return (total + tiny.noise(0, 10.0, round_=2)) / 4 - known


def _clipped(vector: np.ndarray) -> np.ndarray:
    return vector * min(1.0, 5.0 / float(np.linalg.norm(vector)))


DECAY = 0.5  # of both worlds
SHARE = 1 - BETA

CASES = (
    Case(
        "DP-FedPGN",
        small.plan(),
        compare(lambda vector: vector),
        {
            "plain SGD": lambda one: replace(one, local=plain_sgd()),
            "gradients at the parameters": lambda one: replace(one, local=pgn(0.0, BETA, DECAY)),
            "no penalty": lambda one: replace(one, local=pgn(RHO, 1.0, DECAY)),
            "the learning rate of the round before": lambda one: replace(
                one, local=pgn(RHO, BETA, 1.0)
            ),
            "never put back": lambda one: replace(one, aggregator=mean()),
            "nothing remembered": lambda one: replace(
                one,
                server=replace(
                    add(), start=remembering().start, step=lambda t, s, state: (t + s, state)
                ),
            ),
        },
        NUMBERS,
    ),
    Case(
        "DP-FedPGN",
        tiny.plan(release="joint", sigmas=(2.0, 2.0)),
        check_by_hand,
        {
            "wrong sign of the shift": lambda one: replace(
                one, transforms=(shift(-SHARE, DECAY), clip(5.0))
            ),
            "no shift": lambda one: replace(one, transforms=(clip(5.0),)),
            "another shift than is put back": lambda one: replace(
                one, aggregator=add_shift(mean(), SHARE, 1.0)
            ),
        },
        NUMBERS,
    ),
    Case(
        "DP-FedPGN-LS",
        small.plan(),
        compare(by_matrix),
        {
            "no smoothing": lambda one: replace(one, server=remembering()),
            "half of the smoothing": lambda one: replace(one, server=remembering(SMOOTHING / 2)),
            "the rough step remembered": lambda one: replace(
                one, server=replace(one.server, step=_rough)
            ),
        },
        {**NUMBERS, "smoothing": SMOOTHING},
    ),
)


def _rough(theta: Tensor, step: Tensor, state: small.State) -> tuple[Tensor, small.State]:
    moved, after = remembering(SMOOTHING).step(theta, step, state)
    return moved, {**after, LAST_STEP: step}
