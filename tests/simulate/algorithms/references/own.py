"""Methods with personal heads or offsets: loops over clients with torch.nn and torch.optim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from simulate.algorithm import Algorithm, head, whole
from simulate.components import ClientBatch, LocalResult, LocalRule
from simulate.local.sgd import additive_sgd, alternating
from tests.simulate import small
from tests.simulate.case import Case

RHO, HEAD_RATE, ALPHA = 0.3, 0.5, 0.4
BODY, ALL = 64 * 32 + 32, 2410
"""Parameters of the body of mlp-digits, and of all of it."""


def check_heads(rho: float) -> Callable[[Algorithm], None]:
    """Compare with a head by SGD, then a body by SAM, of each client for itself."""

    def check(algorithm: Algorithm) -> None:
        world = small.setting(algorithm)

        def client(
            theta: Tensor, own: Tensor | None, real: small.Batches, rate: float
        ) -> tuple[Tensor, Tensor]:
            start = theta if own is None else torch.cat([theta[:BODY], own])
            network = small.network_at(world, start)
            last = list(network.children())[-1]
            sgd = torch.optim.SGD(last.parameters(), HEAD_RATE * rate, small.MOMENTUM)
            for images, labels in real:
                network.zero_grad()
                small.loss(network, images, labels).backward()
                sgd.step()
            for weight in last.parameters():
                weight.requires_grad_(False)
            _sam(network, real, rate, rho)
            moved = small.flat(network) - start
            moved[BODY:] = 0
            return moved, small.flat(network)[BODY:].clone()

        same(algorithm, small.averaged_with_own(world, client, world.start))

    return check


def _sam(network: nn.Module, real: small.Batches, rate: float, rho: float) -> None:
    """SAM on the parameters that are not frozen."""
    free = [weight for weight in network.parameters() if weight.requires_grad]
    sgd = torch.optim.SGD(free, rate, small.MOMENTUM)
    for images, labels in real:
        slopes = torch.autograd.grad(small.loss(network, images, labels), free)
        scale = rho / torch.cat([slope.flatten() for slope in slopes]).norm()
        with torch.no_grad():
            for weight, slope in zip(free, slopes, strict=True):
                weight.add_(scale * slope)
        sgd.zero_grad()
        small.loss(network, images, labels).backward()
        with torch.no_grad():
            for weight, slope in zip(free, slopes, strict=True):
                weight.sub_(scale * slope)
        sgd.step()


def check_offsets(algorithm: Algorithm) -> None:
    """Compare with shared and personal parameters as two leaves, whose sum is the model."""
    world = small.setting(algorithm)
    network = world.model.module()

    def client(
        theta: Tensor, own: Tensor | None, real: small.Batches, rate: float
    ) -> tuple[Tensor, Tensor]:
        shared = theta.clone().requires_grad_()
        kept = (torch.zeros_like(theta) if own is None else own.clone()).requires_grad_()
        rates = [{"params": [shared], "lr": ALPHA * rate}, {"params": [kept], "lr": rate}]
        sgd = torch.optim.SGD(rates, momentum=small.MOMENTUM)
        for images, labels in real:
            sizes = [int(np.prod(shape)) for _, shape in world.model.shapes]
            parts = zip(world.model.shapes, (shared + kept).split(sizes), strict=True)
            values = {name: part.view(shape) for (name, shape), part in parts}
            logits = torch.func.functional_call(network, values, (images,))
            sgd.zero_grad()
            nn.functional.cross_entropy(logits, labels).backward()
            sgd.step()
        return shared.detach() - theta, kept.detach()

    same(algorithm, small.averaged_with_own(world, client, world.start))


def same(algorithm: Algorithm, expected: tuple[Tensor, dict[int, Tensor]]) -> None:
    """Compare the engine's global vector and what its clients keep."""
    found, (theta, own) = small.played(algorithm), expected
    torch.testing.assert_close(found.theta, theta, rtol=1e-4, atol=1e-6)
    assert found.personal.keys() == own.keys()
    for number, kept in own.items():
        torch.testing.assert_close(found.personal[number], kept, rtol=1e-4, atol=1e-6)


def after(
    change: Callable[[ClientBatch, LocalResult], LocalResult],
) -> Callable[[Algorithm], Algorithm]:
    """The algorithm with another outcome of its local rule."""

    def changed(algorithm: Algorithm) -> Algorithm:
        train = algorithm.local.train
        local = LocalRule("changed", lambda work: change(work, train(work)))
        return replace(algorithm, local=local)

    return changed


def with_head(work: ClientBatch, trained: LocalResult) -> LocalResult:
    """Put what the client keeps of its head into the update."""
    assert trained.personal is not None
    moved = trained.personal - work.theta[work.model.head]
    return replace(trained, updates=torch.cat([trained.updates[:, :BODY], moved], 1))


def head_released(algorithm: Algorithm) -> Algorithm:
    """Every parameter may leave, and the head is in the update."""
    split = replace(algorithm.split, shared=lambda model: None)
    return replace(after(with_head)(algorithm), split=split)


def _forgets(work: ClientBatch, trained: LocalResult) -> LocalResult:
    return replace(trained, personal=work.personal)


def _with_offset(work: ClientBatch, trained: LocalResult) -> LocalResult:
    assert trained.personal is not None
    assert work.personal is not None
    return replace(trained, updates=trained.updates + trained.personal - work.personal)


def by(rho: float, head_rate: float) -> Callable[[Algorithm], Algorithm]:
    """The algorithm with other numbers in its local rule."""
    return lambda one: replace(one, local=alternating(head(), rho=rho, head_rate=head_rate))


HEADS = (
    Case(
        "P-FedSAM",
        small.plan(),
        check_heads(RHO),
        {
            "no ascent": by(0.0, HEAD_RATE),
            "a head that is fixed": by(RHO, 0.0),
            "a head that is released": head_released,
            "a head that is forgotten": after(_forgets),
        },
        {"rho": RHO, "head_rate": HEAD_RATE},
    ),
    Case(
        "DP2-FedSAM",
        small.plan(),
        check_heads(RHO),
        {
            "no ascent": by(0.0, HEAD_RATE),
            "descent in place of ascent": by(-RHO, HEAD_RATE),
            "a head that is released": head_released,
        },
        {"rho": RHO, "head_rate": HEAD_RATE},
    ),
    Case(
        "CENTAUR",
        small.plan(),
        check_heads(0.0),
        {
            "ascent": by(RHO, HEAD_RATE),
            "a head that is released": head_released,
            "a head that is forgotten": after(_forgets),
        },
        {"head_rate": HEAD_RATE},
    ),
)
OFFSETS = Case(
    "PPSGD",
    small.plan(),
    check_offsets,
    {
        "offsets averaged": after(_with_offset),
        "offsets forgotten": after(_forgets),
        "offsets not used": lambda one: replace(one, split=whole()),
        "equal steps": lambda one: replace(one, local=additive_sgd(1.0)),
    },
    {"alpha": ALPHA},
)
CASES = (*HEADS, OFFSETS)
