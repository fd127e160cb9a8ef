"""Methods with one sum of everybody under the strictest budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from simulate.algorithm import Algorithm
from simulate.local.sgd import blur, plain_sgd, sam
from simulate.transforms import clip, random_mask, sparsify
from tests.simulate import small, tiny
from tests.simulate.case import Case

JOINT = tiny.plan(release="joint", sigmas=(2.0, 2.0))
RHO, PRICE, RADIUS = 0.3, 5.0, 0.05


def like_a_loop(client: small.Client) -> Callable[[Algorithm], None]:
    """Compare with the mean over clients who train for themselves."""

    def check(algorithm: Algorithm) -> None:
        expected = small.averaged(small.setting(algorithm), client)
        torch.testing.assert_close(small.moved(algorithm), expected, rtol=1e-4, atol=1e-6)

    return check


def sam_client(network: nn.Module, batches: small.Batches, rate: float) -> None:
    """SAM as an optimiser does it: go up, take the gradient there, come back, step."""
    optimiser = small.sgd(network, rate)
    for images, labels in batches:
        optimiser.zero_grad()
        small.loss(network, images, labels).backward()
        slope = [weight.grad.clone() for weight in network.parameters()]
        scale = RHO / torch.cat([part.flatten() for part in slope]).norm()
        with torch.no_grad():
            for weight, part in zip(network.parameters(), slope, strict=True):
                weight.add_(scale * part)
        optimiser.zero_grad()
        small.loss(network, images, labels).backward()
        with torch.no_grad():
            for weight, part in zip(network.parameters(), slope, strict=True):
                weight.sub_(scale * part)
        optimiser.step()


def blur_client(network: nn.Module, batches: small.Batches, rate: float) -> None:
    """SGD on the penalised loss, differentiated by autograd."""
    start = small.flat(network)
    optimiser = small.sgd(network, rate)
    for images, labels in batches:
        optimiser.zero_grad()
        change = nn.utils.parameters_to_vector(network.parameters()) - start
        excess = torch.relu(change.square().sum() - RADIUS**2)
        (small.loss(network, images, labels) + PRICE / 2 * excess).backward()
        optimiser.step()


def in_the_tiny_world(algorithm: Algorithm) -> np.ndarray:
    """The step of the first round with the updates (3, 4) times 1, 2, 1 and 4."""
    step, _, _ = tiny.one_round(tiny.setting(replace(algorithm, local=tiny.LOCAL)))
    return step


CLIPPED = np.array([12.0, 16.0])  # four times (3, 4)


def check_smoothing(algorithm: Algorithm) -> None:
    """With two parameters the system is [[1 + 2 s, -2 s], [-2 s, 1 + 2 s]]."""
    mean = (CLIPPED + tiny.noise(0, 10.0)) / 4
    expected = np.linalg.solve([[2.0, -1.0], [-1.0, 2.0]], mean)
    np.testing.assert_allclose(in_the_tiny_world(algorithm), expected, rtol=1e-5)


def check_mask(algorithm: Algorithm) -> None:
    """One of two coordinates: cut out, clipped, summed, noised, and nothing else moves."""
    setting = tiny.setting(replace(algorithm, local=tiny.LOCAL))
    step, [record], _ = tiny.one_round(setting)
    assert record.dimension == 1
    [kept] = np.flatnonzero(step)
    total = sum(min((3.0, 4.0)[kept] * pixel, 5.0) for pixel in (1, 2, 1, 4))
    np.testing.assert_allclose(step[kept], (total + tiny.noise(0, 10.0, 1)[0]) / 4, rtol=1e-5)


def check_sparse(algorithm: Algorithm) -> None:
    """The larger coordinate of each update alone is clipped; noise falls on both."""
    expected = (np.array([0.0, 4.0 + 5.0 + 4.0 + 5.0]) + tiny.noise(0, 10.0)) / 4
    np.testing.assert_allclose(in_the_tiny_world(algorithm), expected, rtol=1e-5)


CASES = (
    Case(
        "DP-FedSAM",
        small.plan(),
        like_a_loop(sam_client),
        {
            "no ascent": lambda one: replace(one, local=sam(0.0)),
            "plain SGD": lambda one: replace(one, local=plain_sgd()),
            "descent in place of ascent": lambda one: replace(one, local=sam(-RHO)),
        },
        {"rho": RHO},
    ),
    Case(
        "DP-FedAvg-BLUR",
        small.plan(),
        like_a_loop(blur_client),
        {
            "no penalty": lambda one: replace(one, local=blur(0.0, RADIUS)),
            "nothing costs nothing": lambda one: replace(one, local=blur(PRICE, 0.0)),
            "everything costs nothing": lambda one: replace(one, local=blur(PRICE, 1e6)),
        },
        {"price": PRICE, "radius": RADIUS / 1e3},
    ),
    Case(
        "DP-FedAvg-BLUR+LUS",
        JOINT,
        check_sparse,
        {
            "dense": lambda one: replace(one, transforms=(sparsify(1.0), clip(5.0))),
            "sparse after clipping": lambda one: replace(one, transforms=one.transforms[::-1]),
            "noise on a part": lambda one: replace(
                one, transforms=(random_mask(0.5), *one.transforms)
            ),
        },
        {"kept": 0.5},
    ),
)
