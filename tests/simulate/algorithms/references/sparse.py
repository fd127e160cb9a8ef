"""DP-FedPGN line by line, and methods that keep the largest coordinates of updates or of sums."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from simulate.aggregators import add_shift, literal, mean, normalised, top_k
from simulate.components import LocalResult, LocalRule
from simulate.engine.loop import run_round
from simulate.local.sgd import pgn, plain_sgd
from simulate.runs.ledger_writer import MemoryLedger
from simulate.server import LAST_STEP, add, remembering
from simulate.transforms import clip, keep_largest, shift, sparsify
from tests.simulate import small, tiny
from tests.simulate.algorithms.references import sums
from tests.simulate.case import Case, having

RHO, BETA, SMOOTHING = 0.3, 0.4, 0.7
NUMBERS = {"rho": RHO, "beta": BETA}


def follow(algorithm, smooth):
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


def _client(g):
    """Lines 4 to 10 of Algorithm 1, with PyTorch's momentum on the client's own gradients."""

    def train(network, batches, rate):
        x = small.flat(network)
        probe = RHO * g / g.norm() if g.norm() > 0 else g
        speed = torch.zeros_like(x)
        for images, labels in batches:
            nn.utils.vector_to_parameters(x + probe, network.parameters())
            network.zero_grad()
            small.loss(network, images, labels).backward()
            slope = torch.cat(
                [weight.grad.flatten() for weight in network.parameters()]
            )
            speed = small.MOMENTUM * speed + BETA * slope
            x = x - rate * (speed + (1 - BETA) * g)
        nn.utils.vector_to_parameters(x, network.parameters())

    return train


def compare(smooth):
    """Compare with Algorithm 1 in the world of digits."""

    def check(algorithm):
        expected = follow(algorithm, smooth)
        torch.testing.assert_close(
            small.moved(algorithm), expected, rtol=1e-4, atol=1e-6
        )

    return check


def by_matrix(vector):
    """The smoothed vector, from the system solved through the matrix of its neighbours."""
    size = len(vector)
    system = (1 + 2 * SMOOTHING) * torch.eye(size)
    for index in range(size):
        system[index, index - 1] -= SMOOTHING
        system[index, (index + 1) % size] -= SMOOTHING
    return torch.linalg.solve(system, vector)


def check_by_hand(algorithm):
    """Two rounds with clipping and noise: updates (3, 4) times the pixel and the rate."""
    setting = tiny.setting(replace(algorithm, local=tiny.LOCAL))
    _, _, after = tiny.one_round(setting)
    again = run_round(setting, after, MemoryLedger(""))
    np.testing.assert_allclose(
        (again.theta - after.theta).numpy(), by_hand(algorithm), rtol=1e-4
    )


def by_hand(algorithm):
    """The second step."""
    pixels, first, second = (1, 2, 1, 4), 1.0, 0.5
    total = sum(_clipped(np.array([3.0, 4.0]) * pixel) for pixel in pixels)
    g = -(total + tiny.noise(algorithm.plan, 0, 10.0)) / (4 * first)
    known = (1 - BETA) * second * g
    total = sum(
        _clipped(np.array([3.0, 4.0]) * second * pixel + known) for pixel in pixels
    )
    return (total + tiny.noise(algorithm.plan, 0, 10.0, round_=2)) / 4 - known


def _clipped(vector):
    return vector * min(1.0, 5.0 / float(np.linalg.norm(vector)))


DECAY = 0.5  # of both worlds
SHARE = 1 - BETA

PGN_CASES = (
    Case("DP-FedPGN", small.plan(), compare(lambda vector: vector), {
        "plain SGD": having(local=plain_sgd()),
        "gradients at the parameters": having(local=pgn(0.0, BETA, DECAY)),
        "no penalty": having(local=pgn(RHO, 1.0, DECAY)),
        "the learning rate of the round before": having(local=pgn(RHO, BETA, 1.0)),
        "never put back": having(aggregator=mean()),
        "nothing remembered": having(
            server=replace(
                add(), start=remembering().start, step=lambda t, s, state: (t + s, state)
            )
        ),
    }, NUMBERS),
    Case("DP-FedPGN", tiny.plan(release="joint", sigmas=(2.0, 2.0)), check_by_hand, {
        "wrong sign of the shift": having(transforms=(shift(-SHARE, DECAY), clip(5.0))),
        "no shift": having(transforms=(clip(5.0),)),
        "another shift than is put back": having(aggregator=add_shift(mean(), SHARE, 1.0)),
    }, NUMBERS),
    Case("DP-FedPGN-LS", small.plan(), compare(by_matrix), {
        "no smoothing": having(server=remembering()),
        "half of the smoothing": having(server=remembering(SMOOTHING / 2)),
        "the rough step kept": lambda one: replace(one, server=replace(one.server, step=_rough)),
    }, {**NUMBERS, "smoothing": SMOOTHING}),
)  # fmt: skip


def _rough(theta, step, state):
    moved, after = remembering(SMOOTHING).step(theta, step, state)
    return moved, {**after, LAST_STEP: step}


KEPT = 0.5
SENT = 0.3


def against(work):
    """The update (-3, -4) times the pixel: the largest coordinates are negative."""
    return LocalResult(-tiny.three_four(work).updates)


def check_kept(algorithm):
    """The strict group's larger coordinate by absolute value, and both of the loose group's."""
    seed = 20
    world = tiny.setting(
        replace(algorithm, local=LocalRule("against", against)), seed=seed
    )
    step, _, _ = tiny.one_round(world)
    strict, loose = (
        tiny.noise(algorithm.plan, 0, 10.0, seed=seed) - sums.SUMS,
        tiny.noise(algorithm.plan, 1, 2.5, seed=seed) - sums.SUMS,
    )
    assert (
        strict[1] < -abs(strict[0]) < 0 < strict[0]
    )  # by sign the other one is larger
    expected = (
        tiny.WEIGHTS[0] / 4 * np.array([0.0, strict[1]]) + tiny.WEIGHTS[1] / 4 * loose
    )
    np.testing.assert_allclose(step, expected, rtol=1e-5)


def kept_by_group(*kept):
    """The tiny plan in which each group keeps its own fraction."""
    plan = tiny.plan()
    groups = tuple(
        group.model_copy(update={"kept_fraction": fraction})
        for group, fraction in zip(plan.groups, kept, strict=True)
    )
    return plan.model_copy(update={"groups": groups})


def top_k_by(largest):
    """The algorithm whose server chooses coordinates of each sum by another rule."""

    def combine(releases, theta, state):
        sparse = [
            replace(part, vector=largest(part.vector, part.groups[0].kept_fraction))
            for part in releases
        ]
        return literal().combine(sparse, theta, state)

    return lambda one: replace(one, aggregator=replace(one.aggregator, combine=combine))


def largest_by_sign(vector, fraction):
    """All but the largest coordinates, not in absolute value, set to zero."""
    kept = torch.topk(vector, max(1, round(fraction * len(vector)))).indices
    return torch.zeros_like(vector).scatter(0, kept, vector[kept])


def top_k_of_the_step(one):
    """The server adds the noisy sums up and chooses coordinates then."""

    def combine(releases, theta, state):
        step, after = literal().combine(releases, theta, state)
        return keep_largest(step, KEPT), after

    return replace(one, aggregator=replace(one.aggregator, combine=combine))


def sparse_blur_client(network, batches, rate):
    """BLUR, after which the smaller coordinates of the change are taken back."""
    start = small.flat(network)
    sums.blur_client(network, batches, rate)
    change = small.flat(network) - start
    kept = (
        change.abs()
        >= change.abs().sort(descending=True).values[round(SENT * len(change)) - 1]
    )
    nn.utils.vector_to_parameters(start + change * kept, network.parameters())


def common_support(fraction):
    """The coordinates that are largest in the sum of a chunk, for all of its clients."""

    def apply(updates, context):
        return updates * (keep_largest(updates.abs().sum(0), fraction) != 0), None

    return replace(sparsify(fraction), apply=apply)


CASES = (
    *PGN_CASES,
    Case("GDPFed+", tiny.plan(kept=KEPT), sums.check_groups(kept=KEPT), {
        "no sparsification": having(aggregator=literal()),
        "sparse before the noise": lambda one: replace(
            one, aggregator=literal(), transforms=(*one.transforms, sparsify(KEPT))
        ),
        "weights that add up to 1": having(aggregator=top_k(normalised())),
        "half of the noise": having(plan=tiny.plan(kept=KEPT, sigmas=(1.0, 0.25))),
    }),
    Case("GDPFed+", kept_by_group(KEPT, 1.0), check_kept, {
        "the loosest fraction for all": having(plan=tiny.plan()),
        "the strictest fraction for all": having(plan=tiny.plan(kept=KEPT)),
        "the largest by sign": top_k_by(largest_by_sign),
        "the largest of the step": top_k_of_the_step,
    }),
    Case("DP-FedAvg-BLUR+LUS", small.plan(), sums.like_a_loop(sparse_blur_client), {
        "no penalty": having(local=plain_sgd()),
        "dense": lambda one: replace(one, transforms=one.transforms[1:]),
        "the other coordinates": lambda one: replace(
            one, transforms=(sparsify(1 - SENT), *one.transforms[1:])
        ),
        "the cohort's largest coordinates": lambda one: replace(
            one, transforms=(common_support(SENT), *one.transforms[1:])
        ),
    }, {"price": sums.PRICE, "radius": sums.RADIUS / 1e3, "kept": SENT}),
)  # fmt: skip
