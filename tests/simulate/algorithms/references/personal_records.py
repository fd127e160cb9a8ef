"""References and mutations of CENTAUR and PPSGD under plans that protect records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.plan import GroupPlan
from privplan.planning.baselines import by_record
from privplan.planning.records import solve_records
from privplan.spec.spec import Spec
from privplan.streams import Purpose, stream
from simulate.algorithm import Algorithm, additive, head
from simulate.components import ClientBatch, LocalResult, LocalRule
from simulate.engine.cohort import client_updates
from simulate.engine.experiment import Experiment
from simulate.engine.round import RoundContext, released_coordinates
from simulate.local.dp_sgd import dp_sgd, head_then_body, noisy_sum
from tests.simulate import small
from tests.simulate.algorithms.references.own import BODY
from tests.simulate.algorithms.references.records import clipped, half_noise, spec
from tests.simulate.algorithms.references.sums import Mutation, slower
from tests.simulate.case import Case

STEPS, MOMENTUM, NORM, RATE = 5, 0.5, 0.5, 0.2
HEAD_RATE, ALPHA = 0.5, 0.4


def _spec() -> Spec:
    """Five noisy steps on all records, with momentum."""
    data = spec().model_dump(mode="json")
    data["local"] |= {"epochs": STEPS, "momentum": MOMENTUM}
    return Spec.parse(data)


PLAN = by_record(solve_records(_spec()), {}, weights="population")


def noisy_gradient(world: Experiment, client: int, group: GroupPlan) -> Callable[[Tensor], Tensor]:
    """The mean of clipped gradients of a client with the noise of its next step, as a function."""
    source = stream(world.seed, Purpose.RECORD_NOISE, 1, client)

    def noisy(theta: Tensor) -> Tensor:
        drawn = source.standard_normal(len(theta)) * group.noise_multiplier * NORM
        noise = torch.from_numpy(drawn).float()
        return (clipped(world, theta, client) + noise) / (group.records or 1)

    return noisy


Walk = Callable[[Tensor, Tensor, Callable[[Tensor], Tensor]], tuple[Tensor, Tensor]]
"""(global vector, personal vector, noisy mean gradient of the next step) to what a client sends
and keeps."""


def check_sent_noise(local: LocalRule, walk: Walk, own: Tensor, size: int) -> None:
    """What a client says of the noise that it sent is what a walk by noise alone sends."""
    draw = torch.Generator().manual_seed(5)
    drawn = [torch.randn(size, generator=draw, dtype=torch.float64) for _ in range(STEPS)]
    left = iter(drawn)
    theta, nothing = torch.zeros(size, dtype=torch.float64), torch.zeros_like(own).double()
    sent, _ = walk(theta, nothing, lambda at: next(left))
    assert local.sent_noise is not None
    speed = total = torch.zeros_like(theta)
    for factor, noise in zip(local.sent_noise(STEPS), drawn, strict=True):
        speed = MOMENTUM * speed + noise * (factor != 0)
        total = total + factor * speed
    torch.testing.assert_close(sent, -RATE * total[: len(sent)])


def compare(walk: Walk, first: Callable[[Tensor], Tensor]) -> Callable[[Algorithm], None]:
    """Compare two clients' first round with a walk by noisy gradients of a loop over records."""

    def check(algorithm: Algorithm) -> None:
        world = small.setting(algorithm)
        context = RoundContext(1, world.start, {}, released_coordinates(world, 1), {})
        sent, kept = client_updates(world, context)
        assert len(sent) == sum(group.clients for group in algorithm.plan.groups)
        for update in (sent[0], sent[-1]):
            noisy = noisy_gradient(world, update.client, PLAN.group(update.group.name))
            expected, own = walk(world.start, first(world.start), noisy)
            torch.testing.assert_close(update.vector, expected, rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(kept[update.client], own, rtol=1e-3, atol=1e-5)
            assert update.noise_evidence is not None
            assert update.noise_evidence.drawn[0] == STEPS * len(expected)
        step, _ = algorithm.aggregator.combine((), world.start, {})
        assert not step.any()
        check_sent_noise(algorithm.local, walk, first(world.start), len(world.start))

    return check


def body_after_head(
    theta: Tensor, own: Tensor, noisy: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """CENTAUR: two steps of the head, three of the body, each part with momentum of its own."""
    body, kept = theta[:BODY].clone(), own.clone()
    speed = torch.zeros_like(kept)
    for _ in range(2):
        speed = MOMENTUM * speed + noisy(torch.cat([body, kept]))[BODY:]
        kept = kept - HEAD_RATE * RATE * speed
    speed = torch.zeros_like(body)
    for _ in range(3):
        speed = MOMENTUM * speed + noisy(torch.cat([body, kept]))[:BODY]
        body = body - RATE * speed
    return body - theta[:BODY], kept


def at_the_sum(
    theta: Tensor, own: Tensor, noisy: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """PPSGD: both parts step along one noisy gradient at their sum."""
    shared, kept, speed = theta.clone(), own.clone(), torch.zeros_like(theta)
    for _ in range(STEPS):
        speed = MOMENTUM * speed + noisy(shared + kept)
        shared, kept = shared - ALPHA * RATE * speed, kept - RATE * speed
    return shared - theta, kept


def with_rule(rule: LocalRule) -> Mutation:
    """The algorithm with another local rule."""
    return lambda one: replace(one, local=rule)


def _changed(change: Callable[[ClientBatch, LocalResult], LocalResult]) -> Mutation:
    """The algorithm whose clients do something else after training."""

    def mutation(one: Algorithm) -> Algorithm:
        train = one.local.train
        local = replace(one.local, train=lambda batch: change(batch, train(batch)))
        return replace(one, local=local)

    return mutation


class Silent(np.random.Generator):
    """A generator whose normal draws are zero."""

    def standard_normal(self, size: Any = None, *_: Any, **__: Any) -> Any:
        return np.zeros(size)


def personal_without_noise(one: Algorithm) -> Algorithm:
    """What stays at the client was trained without noise."""
    train = one.local.train

    def quiet(client: int) -> np.random.Generator:
        return Silent(np.random.default_rng(client).bit_generator)

    def changed(batch: ClientBatch) -> LocalResult:
        kept = train(replace(batch, noise=quiet)).personal
        return replace(train(batch), personal=kept)

    return replace(one, local=replace(one.local, train=changed))


def says(factor: float) -> Mutation:
    """The client says that every step sent the noise with the same factor."""
    return lambda one: replace(
        one, local=replace(one.local, sent_noise=lambda steps: [factor] * steps)
    )


def swapped(batch: ClientBatch, result: LocalResult) -> LocalResult:
    """The client keeps what it had."""
    own = result.personal
    return replace(result, personal=None if own is None else torch.zeros_like(own))


COMMON: dict[str, Mutation] = {
    "half of the noise": half_noise,
    "half of the learning rate": slower,
    "personal parameters without noise": personal_without_noise,
    "personal parameters forgotten": _changed(swapped),
}
CASES = (
    Case(
        "CENTAUR",
        PLAN,
        compare(body_after_head, lambda theta: theta[BODY:]),
        {
            **COMMON,
            "clipped at twice the norm": with_rule(head_then_body(2 * NORM, head(), HEAD_RATE)),
            "noise of all steps is said to be sent": says(1.0),
            "one learning rate": with_rule(head_then_body(NORM, head(), 1.0)),
            "the head released": lambda one: replace(
                one, split=replace(one.split, shared=lambda model: None)
            ),
            "head and body at once": with_rule(dp_sgd(NORM)),
        },
        {"head_rate": HEAD_RATE},
    ),
    Case(
        "PPSGD",
        PLAN,
        compare(at_the_sum, torch.zeros_like),
        {
            **COMMON,
            "clipped at twice the norm": with_rule(noisy_sum(2 * NORM, ALPHA)),
            "noise is said to be sent whole": says(1.0),
            "equal steps": with_rule(noisy_sum(NORM, 1.0)),
            "no offsets": lambda one: replace(
                one,
                split=replace(additive(), personal=lambda model, theta: None),
                local=dp_sgd(NORM),
            ),
        },
        {"alpha": ALPHA},
    ),
)
