"""References and mutations of methods with noisy sums of clients, and of FedAvg."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from privplan.plan import Plan
from simulate.aggregators import by_epsilon, mean, normalised
from simulate.algorithm import Algorithm, fine_tuned, own, shared
from simulate.components import ClientBatch, LocalResult, LocalRule, Server
from simulate.engine.round import RoundContext, client_batch, participants
from simulate.local.sgd import private_sgd, sam
from simulate.server import add, laplacian
from simulate.transforms import clip, random_mask, sparsify
from tests.simulate import small, tiny
from tests.simulate.algorithms.references.groups import check_weights
from tests.simulate.algorithms.references.individual import (
    FULL,
    HALF,
    RATIOS,
    by_ratio,
    by_round,
    changed,
    check_ratios,
)  # fmt: skip
from tests.simulate.algorithms.references.joint import (
    CLIPPED,
    JOINT,
    RHO,
    check_mask,
    check_smoothing,
    in_the_tiny_world,
    like_a_loop,
    sam_client,
)  # fmt: skip
from tests.simulate.case import Case

SUMS = np.array([6.0, 8.0])  # of each group's clipped updates in the tiny world
SCALES = (0.5, 1.0)

Mutation = Callable[[Algorithm], Algorithm]


def double_weights(one: Algorithm) -> Algorithm:
    """The server divides by half of the expected cohort."""
    rule = one.aggregator.weight
    return replace(
        one, aggregator=replace(one.aggregator, weight=lambda group, plan: 2 * rule(group, plan))
    )


def slower(one: Algorithm) -> Algorithm:
    """Clients train with half of the learning rate."""
    train = one.local.train

    def changed_train(batch: ClientBatch) -> LocalResult:
        return train(replace(batch, learning_rate=batch.learning_rate / 2))

    return replace(one, local=replace(one.local, train=changed_train))


def without_momentum(one: Algorithm) -> Algorithm:
    """Clients train without momentum."""
    train = one.local.train
    return replace(
        one, local=replace(one.local, train=lambda batch: train(replace(batch, momentum=0.0)))
    )


def backwards(one: Algorithm) -> Algorithm:
    """The server steps the other way."""
    inner = one.server
    server = Server(
        inner.name, inner.start, lambda theta, step, state: inner.step(theta, -step, state)
    )
    return replace(one, server=server)


def with_plan(plan: Plan) -> Mutation:
    """The algorithm with another plan."""
    return lambda one: replace(one, plan=plan)


def clipped_at(norm: float) -> Mutation:
    """The algorithm that clips to another norm."""
    return lambda one: replace(
        one,
        transforms=tuple(clip(norm) if part.name == "clip" else part for part in one.transforms),
    )


def check_mean(algorithm: Algorithm) -> None:
    """One noisy sum of clipped updates over the expected cohort of four."""
    expected = (CLIPPED + tiny.noise(0, 10.0)) / 4
    np.testing.assert_allclose(in_the_tiny_world(algorithm), expected, rtol=1e-5)


def check_groups(*, kept: float) -> Callable[[Algorithm], None]:
    """A noisy sum per group, its largest coordinates kept, times w_m / (q n)."""

    def check(algorithm: Algorithm) -> None:
        strict, loose = SUMS + tiny.noise(0, 10.0), SUMS + tiny.noise(1, 2.5)
        if kept < 1:
            strict, loose = (np.where(np.abs(v) == np.abs(v).max(), v, 0) for v in (strict, loose))
        expected = tiny.WEIGHTS[0] / 4 * strict + tiny.WEIGHTS[1] / 4 * loose
        np.testing.assert_allclose(in_the_tiny_world(algorithm), expected, rtol=1e-5)

    return check


def check_scaled(algorithm: Algorithm) -> None:
    """sum_m s_m sum_i clip(Delta_i) with noise of deviation max s_m sigma_m C, over sum s_m r_m."""
    total = SCALES[0] * SUMS + SCALES[1] * SUMS + tiny.noise(0, 2.5)
    expected = total / (2 * SCALES[0] + 2 * SCALES[1])
    np.testing.assert_allclose(in_the_tiny_world(algorithm), expected, rtol=1e-5)


def check_tuned(client: small.Client) -> Callable[[Algorithm], None]:
    """The shared training is a loop's, and a client's last model is fine-tuned by plain SGD."""

    def check(algorithm: Algorithm) -> None:
        like_a_loop(client)(algorithm)
        assert algorithm.personalisation.per_client
        world, found = small.setting(algorithm), small.played(algorithm)
        context = RoundContext(small.ROUNDS, found.theta, found.server, None, found.personal)
        group, members = algorithm.plan.groups[0], np.asarray(world.partition.members[0])
        later = small.ROUNDS + 1
        batch = client_batch(world, context, group, members, round_=later)
        models = algorithm.personalisation.deploy(found.theta, batch).expand(len(members), -1)
        for model, number in zip(models, members, strict=True):
            network = small.network_at(world, found.theta)
            batches = small.mini_batches(world, later, int(number))
            small.plain_client(network, batches, world.learning_rate(small.ROUNDS))
            torch.testing.assert_close(model, small.flat(network), rtol=1e-4, atol=1e-5)

    return check


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


FINE_TUNING: dict[str, Mutation] = {
    "no fine-tuning": lambda one: replace(one, personalisation=shared()),
    "fine-tuning of nothing": lambda one: replace(one, personalisation=own()),
    "twice the fine-tuning": lambda one: replace(
        one,
        personalisation=replace(
            fine_tuned(),
            deploy=lambda thetas, batch: fine_tuned().deploy(
                fine_tuned().deploy(thetas, batch), batch
            ),
        ),
    ),
}
NOISY: dict[str, Mutation] = {
    "half of the noise": with_plan(tiny.plan(release="joint", sigmas=(1.0, 1.0))),
    "clipped at twice the norm": clipped_at(10.0),
    "the mean of half the cohort": double_weights,
    "a step backwards": backwards,
}
GROUPS: dict[str, Mutation] = {
    "half of the noise": with_plan(tiny.plan(sigmas=(1.0, 0.25))),
    "clipped at twice the norm": clipped_at(10.0),
    "weights that do not count": lambda one: replace(one, aggregator=mean()),
    "weights that add up to 1": lambda one: replace(one, aggregator=normalised()),
}


def forgetting(one: Algorithm) -> Algorithm:
    """Clients start every round with half of what they had."""

    def train(batch: ClientBatch) -> LocalResult:
        own_part = None if batch.personal is None else batch.personal / 2
        return private_sgd().train(replace(batch, personal=own_part))

    return replace(one, local=LocalRule("forgets", train))


CASES = (
    Case(
        "FedAvg",
        small.plan(),
        like_a_loop(small.plain_client),
        {
            "half of the learning rate": slower,
            "no momentum": without_momentum,
            "the mean of half the cohort": double_weights,
            "a step backwards": backwards,
        },
    ),
    Case("DP-FedAvg", JOINT, check_mean, NOISY),
    Case("DP-FedAvg-FT", small.plan(), check_tuned(small.plain_client), FINE_TUNING),
    Case(
        "DP-FedSAM-FT",
        small.plan(),
        check_tuned(sam_client),
        {**FINE_TUNING, "no ascent": lambda one: replace(one, local=sam(0.0))},
        {"rho": RHO},
    ),
    Case(
        "DP-FedAvg-LS",
        JOINT,
        check_smoothing,
        {
            "twice the smoothing": lambda one: replace(one, server=laplacian(1.0)),
            "no smoothing": lambda one: replace(one, server=add()),
            **NOISY,
        },
        {"smoothing": 0.5},
    ),
    Case(
        "Fed-SMP",
        JOINT,
        check_mask,
        {
            "the largest coordinates": lambda one: replace(
                one, transforms=(sparsify(0.5), clip(5.0))
            ),
            "no mask": lambda one: replace(one, transforms=(random_mask(1.0), clip(5.0))),
            "the mean of half the cohort": double_weights,
        },
        {"kept": 0.5},
    ),
    Case("GDPFed", tiny.plan(), check_groups(kept=1.0), GROUPS),
    Case("GDPFed-op", tiny.plan(), check_groups(kept=1.0), GROUPS),
    Case(
        "planned",
        tiny.plan(release="joint", scales=SCALES, sigmas=(1.0, 0.5)),
        check_scaled,
        {
            "scaled before clipping": lambda one: replace(one, transforms=one.transforms[::-1]),
            "no scale": lambda one: replace(one, transforms=one.transforms[:1]),
            "clipped at twice the norm": clipped_at(10.0),
            "half of the noise": with_plan(
                tiny.plan(release="joint", scales=SCALES, sigmas=(0.5, 0.25))
            ),
            "the looser group's scale for all": with_plan(
                tiny.plan(release="joint", scales=(1.0, 1.0), sigmas=(0.5, 0.5))
            ),
        },
    ),
    Case(
        "WeiAvg",
        tiny.plan(),
        check_weights,
        {
            "half of the noise": with_plan(tiny.plan(sigmas=(1.0, 0.25))),
            "everybody alike": lambda one: replace(one, aggregator=mean()),
            "the plan's weights": lambda one: replace(one, aggregator=normalised()),
            "clipped at twice the norm": clipped_at(10.0),
            "weights of twice the sum": double_weights,
        },
    ),
    Case(
        "IDP-FedAvg-Sample",
        changed(small.plan(), by_ratio(RATIOS)),
        check_ratios(RATIOS, RATIOS, RATIOS),
        {
            "one ratio for all": with_plan(small.plan()),
            "weights by epsilon": lambda one: replace(one, aggregator=by_epsilon()),
            "the mean of half the cohort": double_weights,
        },
    ),
    Case(
        "Time-adaptive HDPFL",
        by_round((1, HALF), (2, FULL)),
        check_ratios(HALF, FULL, FULL),
        {
            "saving twice as long": with_plan(by_round((2, HALF), (1, FULL))),
            "saving nothing": with_plan(by_round((1, FULL), (2, FULL))),
            "the mean of half the cohort": double_weights,
        },
    ),
    Case(
        "Local-only",
        small.plan(),
        check_alone,
        {
            "half forgotten": forgetting,
            "half of the learning rate": slower,
            "no momentum": without_momentum,
        },
    ),
)
