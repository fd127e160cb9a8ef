"""DP-FedPGN line by line, and methods that send or use the largest coordinates."""

from dataclasses import replace

import numpy as np
import torch
from numpy.testing import assert_allclose
from torch import nn
from torch.testing import assert_close

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

RHO = 0.3
BETA = 0.4
SMOOTHING = 0.7
# Of the learning rate, in both worlds.
DECAY = 0.5
NUMBERS = {"rho": RHO, "beta": BETA}


def follow(algorithm, smooth):
    """How far Algorithm 1 moves the model without clipping and noise [d]."""
    world = small.setting(algorithm)
    theta = world.start
    g = torch.zeros_like(theta)
    for round_ in range(1, small.ROUNDS + 1):
        rate = world.learning_rate(round_)
        public = (1 - BETA) * small.STEPS * rate * g
        total = torch.zeros_like(theta)
        for group in small.loop(world, round_, theta, _client(g)):
            for update in group:
                total += update + public
        mean_update = total / small.COHORT - public
        g = smooth(-mean_update / (rate * small.STEPS))
        theta = theta - rate * small.STEPS * g
    return theta - world.start


def _client(g):
    """Lines 4 to 10 of Algorithm 1, with momentum on the client's gradients."""

    def train(network, batches, rate):
        x = small.flat(network)
        probe = RHO * g / g.norm() if g.norm() > 0 else g
        speed = torch.zeros_like(x)
        for images, labels in batches:
            nn.utils.vector_to_parameters(x + probe, network.parameters())
            network.zero_grad()
            small.loss(network, images, labels).backward()
            slopes = [weight.grad.flatten() for weight in network.parameters()]
            slope = torch.cat(slopes)
            speed = small.MOMENTUM * speed + BETA * slope
            x = x - rate * (speed + (1 - BETA) * g)
        nn.utils.vector_to_parameters(x, network.parameters())

    return train


def compare(smooth):
    """Compare with Algorithm 1 in the world of digits."""

    def check(algorithm):
        expected = follow(algorithm, smooth)
        movement = small.moved(algorithm)
        assert_close(movement, expected, rtol=1e-4, atol=1e-6)

    return check


def by_matrix(vector):
    """The smoothed vector, from the system solved by the matrix of its neighbours."""
    size = len(vector)
    system = (1 + 2 * SMOOTHING) * torch.eye(size)
    for index in range(size):
        system[index, index - 1] -= SMOOTHING
        system[index, (index + 1) % size] -= SMOOTHING
    return torch.linalg.solve(system, vector)


def check_by_hand(algorithm):
    """Two rounds with clipping and noise: updates (3, 4) times pixel and rate."""
    setting = tiny.setting(replace(algorithm, local=tiny.LOCAL))
    _, _, after = tiny.one_round(setting)
    again = run_round(setting, after, MemoryLedger(""))
    step = (again.theta - after.theta).numpy()
    assert_allclose(step, by_hand(algorithm), rtol=1e-4)


def by_hand(algorithm):
    """The second step."""
    pixels = (1, 2, 1, 4)
    first_rate = 1.0
    rate = first_rate * DECAY
    update = np.array([3.0, 4.0])
    total = sum(_clipped(update * pixel) for pixel in pixels)
    g = -(total + tiny.noise(algorithm.plan, 0, 10.0)) / (4 * first_rate)
    public = (1 - BETA) * rate * g
    total = sum(_clipped(update * rate * pixel + public) for pixel in pixels)
    return (total + tiny.noise(algorithm.plan, 0, 10.0, round_=2)) / 4 - public


def _clipped(vector):
    return vector * min(1.0, 5.0 / float(np.linalg.norm(vector)))


def _rough(theta, step, state):
    moved, after = remembering(SMOOTHING).step(theta, step, state)
    return moved, {**after, LAST_STEP: step}


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
        "the rough step kept": having(server=replace(remembering(SMOOTHING), step=_rough)),
    }, {**NUMBERS, "smoothing": SMOOTHING}),
)  # fmt: skip


FRACTION_KEPT = 0.5
FRACTION_SENT = 0.3


def against(work):
    """The update (-3, -4) times the pixel: the largest coordinates are negative."""
    return LocalResult(-tiny.three_four(work).updates)


def check_kept(algorithm):
    """The strict group's larger coordinate in absolute value, and both of the loose."""
    seed = 20
    local = LocalRule("against", against)
    world = tiny.setting(replace(algorithm, local=local), seed=seed)
    step, _, _ = tiny.one_round(world)
    strict = tiny.noise(algorithm.plan, 0, 10.0, seed=seed) - sums.SUMS
    loose = tiny.noise(algorithm.plan, 1, 2.5, seed=seed) - sums.SUMS
    # By sign the first one is larger.
    assert strict[1] < -abs(strict[0]) < 0 < strict[0]
    sparse = np.array([0.0, strict[1]])
    expected = tiny.WEIGHTS[0] / 4 * sparse + tiny.WEIGHTS[1] / 4 * loose
    assert_allclose(step, expected, rtol=1e-5)


def kept_by_group(*fractions):
    """The tiny plan in which each group keeps its own fraction."""
    plan = tiny.plan()
    groups = tuple(
        group.model_copy(update={"kept_fraction": fraction})
        for group, fraction in zip(plan.groups, fractions, strict=True)
    )
    return plan.model_copy(update={"groups": groups})


def top_k_by(largest):
    """The algorithm whose server chooses coordinates of each sum by another rule."""

    def combine(releases, theta, state):
        sparse = [
            replace(
                release, vector=largest(release.vector, release.groups[0].kept_fraction)
            )
            for release in releases
        ]
        return literal().combine(sparse, theta, state)

    return having(aggregator=replace(literal(), combine=combine))


def largest_by_sign(vector, fraction):
    """All but the largest coordinates, not in absolute value, set to zero."""
    largest = torch.topk(vector, max(1, round(fraction * len(vector)))).indices
    return torch.zeros_like(vector).scatter(0, largest, vector[largest])


def top_k_of_the_step(algorithm):
    """The server adds the noisy sums up and chooses coordinates then."""

    def combine(releases, theta, state):
        step, after = literal().combine(releases, theta, state)
        return keep_largest(step, FRACTION_KEPT), after

    aggregator = replace(algorithm.aggregator, combine=combine)
    return replace(algorithm, aggregator=aggregator)


def sparse_blur_client(network, batches, rate):
    """BLUR, after which the smaller coordinates of the change are taken back."""
    start = small.flat(network)
    sums.blur_client(network, batches, rate)
    change = small.flat(network) - start
    descending = change.abs().sort(descending=True).values
    smallest = descending[round(FRACTION_SENT * len(change)) - 1]
    is_sent = change.abs() >= smallest
    nn.utils.vector_to_parameters(start + change * is_sent, network.parameters())


def common_support(fraction):
    """The coordinates that are largest in a chunk's sum, for all of its clients."""

    def apply(updates, context):
        return updates * (keep_largest(updates.abs().sum(0), fraction) != 0), None

    return replace(sparsify(fraction), apply=apply)


def sparse_before_noise(algorithm):
    """Clients send their largest coordinates, and the server keeps all."""
    transforms = (*algorithm.transforms, sparsify(FRACTION_KEPT))
    return replace(algorithm, aggregator=literal(), transforms=transforms)


def first_transform(*transforms):
    """The algorithm with something else in place of its first transform."""

    def changed(algorithm):
        return replace(algorithm, transforms=(*transforms, *algorithm.transforms[1:]))

    return changed


SPARSE_PLAN = tiny.plan(kept_fraction=FRACTION_KEPT)
CASES = (
    *PGN_CASES,
    Case("GDPFed+", SPARSE_PLAN, sums.check_groups(fraction=FRACTION_KEPT), {
        "no sparsification": having(aggregator=literal()),
        "sparse before the noise": sparse_before_noise,
        "weights that add up to 1": having(aggregator=top_k(normalised())),
        "half of the noise": having(
            plan=tiny.plan(kept_fraction=FRACTION_KEPT, sigmas=(1.0, 0.25))
        ),
    }),
    Case("GDPFed+", kept_by_group(FRACTION_KEPT, 1.0), check_kept, {
        "the loosest fraction for all": having(plan=tiny.plan()),
        "the strictest fraction for all": having(plan=SPARSE_PLAN),
        "the largest by sign": top_k_by(largest_by_sign),
        "the largest of the step": top_k_of_the_step,
    }),
    Case("DP-FedAvg-BLUR+LUS", small.plan(), sums.like_a_loop(sparse_blur_client), {
        "no penalty": having(local=plain_sgd()),
        "dense": first_transform(),
        "the other coordinates": first_transform(sparsify(1 - FRACTION_SENT)),
        "the cohort's largest coordinates": first_transform(common_support(FRACTION_SENT)),
    }, {"price": sums.PRICE, "radius": sums.RADIUS / 1e3, "kept": FRACTION_SENT}),
)  # fmt: skip
