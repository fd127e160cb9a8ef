"""The three workloads, the same for every contestant."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from contest.peers import (
    CLIP,
    LEARNING_RATE,
    RECORD_BATCH,
    RECORD_NORM,
    Batches,
    plain_cnn,
    plain_resnet,
    records_opacus,
    sum_sequential,
    tuned_cnn,
)
from torch import Tensor

from simulate.local.dp_sgd import clipped_sums
from simulate.local.sgd import local_sgd
from simulate.models.network import Model
from simulate.models.registry import model

# Noise multiplier of a timed run.
NOISE = 1.0
# The population of W1, and images of a client.
CLIENTS = 6000
RECORDS = 10


@dataclass(frozen=True)
class Workload:
    """What is timed.

    Attributes:
        title: a line that says what one run of a contestant is.
        network: what is trained.
        images: records that one run trains on, counted with repetition.
        contestants: name to one run with a noise multiplier; the first is the simulator
            on one core.
        reference: whose seconds are divided by the others'.
        tolerance: largest difference between the results without noise, relative to the
            largest value.
    """

    title: str
    network: Model
    images: int
    contestants: dict[str, Callable[[float], Tensor]]
    reference: str
    tolerance: float


def batches(network: Model, clients: int, steps: int, batch: int) -> Batches:
    """Random images [clients, steps, batch, *input_shape] in [0, 1], and labels."""
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(clients, steps, batch, *network.input_shape, generator=draw)
    return x, torch.randint(0, network.classes, x.shape[:3], generator=draw)


def cohort(clients: int, steps: int) -> Batches:
    """Mini-batches of a random cohort of the population of W1, made as bytes."""
    draw = torch.Generator().manual_seed(0)
    shape = (CLIENTS, RECORDS, 1, 28, 28)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=draw)
    labels = torch.randint(0, 10, shape[:2], generator=draw)
    chosen = torch.randperm(CLIENTS, generator=draw)[:clients]
    order = torch.rand(clients, steps, RECORDS, generator=draw).argsort(2)
    rows = chosen.view(-1, 1, 1).expand_as(order)
    return images[rows, order].float().div_(255), labels[rows, order]


def initial(network: Model) -> Tensor:
    """The parameters [d] that every contestant starts from."""
    return network.initial(torch.Generator().manual_seed(0))


def release(total: Tensor, noise: float) -> Tensor:
    """A sum of clipped updates with noise, the same for every contestant."""
    drawn = torch.randn(total.shape, generator=torch.Generator().manual_seed(1))
    return total + CLIP * noise * drawn


def sum_batched(network: Model, theta: Tensor, data: Batches, workers: int) -> Tensor:
    """Sum of the clipped updates [d] as the simulator trains.

    By chunks of clients over threads.
    """
    updates = local_sgd(
        network, theta, *data, learning_rate=LEARNING_RATE, workers=workers
    )
    updates *= (CLIP / updates.norm(dim=1, keepdim=True)).clamp(max=1)
    return updates.sum(0)


def records_batched(
    network: Model, theta: Tensor, data: Batches, noise: float
) -> Tensor:
    """Clients [K, d] after DP-SGD by record as the simulator trains, on one core."""
    draw = torch.Generator().manual_seed(1)
    inputs, labels = data
    clients, steps = labels.shape[:2]
    thetas = theta.repeat(clients, 1)
    for step in range(steps):
        sums = clipped_sums(
            network,
            thetas,
            inputs[:, step],
            labels[:, step],
            clipping_norm=RECORD_NORM,
            workers=1,
        ).total
        sums += noise * RECORD_NORM * torch.randn(sums.shape, generator=draw)
        thetas -= LEARNING_RATE / RECORD_BATCH * sums
    return thetas


def w1(threads: int, clients: int = 120) -> Workload:
    """Small images, many clients."""
    network = model("cnn-2")
    data = cohort(clients, steps=5)
    theta = initial(network)
    module = plain_cnn()
    tuned = tuned_cnn()
    return Workload(
        f"W1: one round of {clients} clients, 5 steps of batch 10",
        network,
        data[1].numel(),
        {
            "simulate, 1 thread": lambda z: release(
                sum_batched(network, theta, data, 1), z
            ),
            f"simulate, {threads} threads": lambda z: release(
                sum_batched(network, theta, data, threads), z
            ),
            "plain loop": lambda z: release(sum_sequential(module, theta, data), z),
            "plain loop, channels_last": lambda z: release(
                sum_sequential(tuned, theta, data, torch.channels_last), z
            ),
        },
        "plain loop, channels_last",
        # Orders of additions differ, which may turn on a unit whose input is near 0.
        1e-3,
    )


def w2(threads: int) -> Workload:
    """A residual network; a slice of one client and five steps."""
    network = model("resnet-18")
    data = batches(network, 1, 5, 50)
    theta = initial(network)
    module = plain_resnet()
    return Workload(
        "W2: 1 of 50 clients, 5 of 10 steps of batch 50, without noise",
        network,
        data[1].numel(),
        {
            "simulate, 1 thread": lambda _: sum_batched(network, theta, data, 1),
            "plain loop": lambda _: sum_sequential(module, theta, data),
        },
        "plain loop",
        # After five steps of a deep network, roundings have grown.
        5e-2,
    )


def w3(threads: int) -> Workload:
    """Record-level DP-SGD; a slice of four steps."""
    # What Opacus and its hooks say.
    warnings.filterwarnings("ignore")
    network = model("cnn-2")
    data = batches(network, 20, 4, RECORD_BATCH)
    theta = initial(network)
    module = plain_cnn()
    return Workload(
        "W3: 20 clients, 4 of 37 steps of batch 64, record-level DP-SGD",
        network,
        data[1].numel(),
        {
            "simulate, 1 thread": lambda z: records_batched(network, theta, data, z),
            "Opacus, hooks": lambda z: records_opacus(module, theta, data, z),
        },
        "Opacus, hooks",
        1e-4,
    )


def small(threads: int) -> Workload:
    """W1 with a tenth of the clients, and only one contestant beside the reference.

    Loading PyTorch takes most of the time of a process that does so little.
    """
    workload = w1(threads, clients=12)
    names = (next(iter(workload.contestants)), workload.reference)
    contestants = {name: workload.contestants[name] for name in names}
    return replace(workload, contestants=contestants)


SMALL = "small"
WORKLOADS = {"W1": w1, "W2": w2, "W3": w3, SMALL: small}
