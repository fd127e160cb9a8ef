"""Hypernetworks: how they start, and their chain rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from simulate.models.network import Hypernetwork, Model
from tests.simulate import small
from tests.simulate.algorithms.references.hypernetworks import CASES, CLIENT


def test_every_client_starts_from_one_embedding_and_one_head() -> None:
    for case in CASES:
        world = small.setting(case.build())
        own = world.personal_start
        clients = np.arange(4)
        rows = None if own is None else own.expand(4, -1)
        thetas = world.algorithm.split.use(world.model, world.start, rows, clients)
        torch.testing.assert_close(thetas, thetas[:1].expand(4, -1), rtol=0, atol=0)


def test_the_first_model_has_the_spread_of_a_usual_one() -> None:
    world = small.setting(CLIENT[0].build())
    found = world.algorithm.split.use(world.model, world.start, None, np.arange(0))[0]
    usual = world.model.initial(torch.Generator().manual_seed(0))
    for own, other in zip(_split(world.model, found), _split(world.model, usual), strict=True):
        if len(own) > 100:
            assert 0.9 < float(own.std() / other.std()) < 1.5


def _split(model: Model, theta: Tensor) -> tuple[Tensor, ...]:
    return theta.split([int(np.prod(shape)) for _, shape in model.shapes])


@pytest.mark.parametrize("batch", [1, 3])
def test_the_chain_rule_against_autograd(batch: int) -> None:
    sizes = Hypernetwork(made=5, hidden=4, embedding=3)
    source = torch.Generator().manual_seed(1)
    start = torch.rand(5, generator=source)
    weights = torch.stack([sizes.initial(start, torch.ones(5), source) for _ in range(2)])
    embeddings = torch.rand(2, batch, 3, generator=source)
    slopes = torch.rand(2, batch, 5, generator=source)
    free, vectors = weights.clone().requires_grad_(), embeddings.clone().requires_grad_()
    sizes.generated(free, vectors).backward(slopes)
    into = torch.zeros_like(weights)
    found = sizes.pull_back(weights, embeddings, slopes, into, 0.5)
    torch.testing.assert_close(found, vectors.grad)
    assert free.grad is not None
    torch.testing.assert_close(into, 0.5 * free.grad)
    torch.testing.assert_close(sizes.pull_back(weights, embeddings, slopes, weights, -1.0), found)
    torch.testing.assert_close(weights, free.detach() - free.grad)
