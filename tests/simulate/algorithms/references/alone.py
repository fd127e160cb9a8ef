"""Clients who train alone."""

from __future__ import annotations

from dataclasses import replace

import torch

from simulate.algorithm import Algorithm
from simulate.components import ClientBatch, LocalResult, LocalRule
from simulate.engine.round import participants
from simulate.local.sgd import private_sgd
from tests.simulate import small
from tests.simulate.case import Case


def check_alone(algorithm: Algorithm) -> None:
    """Each participant goes on where it stopped; the global model stays, nobody else moves."""
    world = small.setting(algorithm)
    own: dict[int, torch.Tensor] = {}
    for round_ in range(1, small.ROUNDS + 1):
        for number in (int(one) for group in participants(world, round_) for one in group):
            network = small.network_at(world, own.get(number, world.start))
            real = small.mini_batches(world, round_, number)
            small.plain_client(network, real, world.learning_rate(round_))
            own[number] = small.flat(network)
    found = small.played(algorithm)
    torch.testing.assert_close(found.theta, world.start, rtol=0, atol=0)
    torch.testing.assert_close(dict(found.personal), own, rtol=1e-4, atol=1e-6)


def forgetful() -> LocalRule:
    """Every round from the beginning."""

    def train(work: ClientBatch) -> LocalResult:
        return private_sgd().train(replace(work, personal=None))

    return replace(private_sgd(), train=train)


CASES = (
    Case(
        "Local-only",
        small.plan(),
        check_alone,
        {
            "what was learnt is forgotten": lambda one: replace(one, local=forgetful()),
        },
    ),
)
