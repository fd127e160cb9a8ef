"""Methods with one noisy sum per group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from simulate.aggregators import by_epsilon, literal, projected
from simulate.algorithm import Algorithm
from tests.simulate import small, tiny
from tests.simulate.case import Case

CLIPPED = np.array([6.0, 8.0])  # each group's sum of clipped updates in the tiny world


def check_weights(algorithm: Algorithm) -> None:
    """Two clients of epsilon 1, two of epsilon 2: weights 1 / 6 and 2 / 6 on single updates."""
    step, _, _ = tiny.one_round(tiny.setting(replace(algorithm, local=tiny.LOCAL)))
    strict, loose = CLIPPED + tiny.noise(0, 10.0), CLIPPED + tiny.noise(1, 2.5)
    np.testing.assert_allclose(step, (strict + 2 * loose) / 6, rtol=1e-5)


def check_one_direction(algorithm: Algorithm) -> None:
    """In two dimensions: the part of the strict noisy sum along the loose one; weights r^2."""
    step, _, _ = tiny.one_round(tiny.setting(replace(algorithm, local=tiny.LOCAL)))
    strict, loose = CLIPPED + tiny.noise(0, 10.0), CLIPPED + tiny.noise(1, 2.5)
    along = strict @ loose / (loose @ loose) * loose
    np.testing.assert_allclose(step, 0.25 / 4 * along + 0.75 / 4 * loose, rtol=1e-5)


def check_subspace(directions: int) -> Callable[[Algorithm], None]:
    """Three groups over three rounds: least squares on the last public sums."""

    def check(algorithm: Algorithm) -> None:
        world = small.setting(algorithm)
        theta = begin = world.start
        public: list[np.ndarray] = []
        for round_ in range(1, small.ROUNDS + 1):
            found = small.loop(world, round_, theta, small.plain_client)
            sums = [torch.stack(group).sum(0).double().numpy() for group in found]
            public = [sums[2], *public][:directions]
            basis = np.stack(public, axis=1)
            sums[0] = basis @ np.linalg.lstsq(basis, sums[0])[0]
            parts = [weight * part for weight, part in zip(small.WEIGHTS, sums, strict=True)]
            theta = theta + torch.from_numpy(sum(parts) / small.COHORT).float()
        torch.testing.assert_close(small.moved(algorithm), theta - begin, rtol=1e-4, atol=1e-6)

    return check


CASES = (
    Case(
        "PFA",
        tiny.plan(),
        check_one_direction,
        {
            "no projection": lambda one: replace(one, aggregator=literal()),
            "other weights": lambda one: replace(one, aggregator=projected(by_epsilon(), 1)),
        },
    ),
    Case(
        "PFA",
        small.plan("per_group"),
        check_subspace(2),
        {
            "no projection": lambda one: replace(one, aggregator=literal()),
            "one direction": lambda one: replace(one, aggregator=projected(literal(), 1)),
            "everything remembered": lambda one: replace(one, aggregator=projected(literal(), 9)),
        },
        {"directions": 2},
    ),
)
