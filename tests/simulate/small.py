"""A small world of digits, and its rounds as plain loops with torch.nn."""

import itertools
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from privplan.plan import GroupPlan, ObjectiveValue, Plan
from privplan.spec.spec import Spec
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load
from simulate.engine.batches import batches
from simulate.engine.experiment import Experiment
from simulate.engine.loop import initial_state, run_round
from simulate.engine.round import participants
from simulate.local.sgd import PADDING
from simulate.models.registry import model
from simulate.parallel import one_core
from simulate.runs.ledger_writer import MemoryLedger

ROUNDS = 3
CLIENTS = 4
COHORT = 6
EPSILONS = {"strict": 1.0, "medium": 2.0, "loose": 4.0}
WEIGHTS = (0.2, 0.3, 0.5)
STEPS = 4
RATE = 0.2
DECAY = 0.5
MOMENTUM = 0.3

Batches = Sequence[tuple[Tensor, Tensor]]
Client = Callable[[nn.Module, Batches, float], None]
"""Train a network in place on mini-batches without padding at a learning rate."""


def plan(release="joint"):
    """Three groups of which half takes part; no clipping, and noise below rounding."""
    groups = [
        {"name": name, "clients": CLIENTS, "epsilon": epsilon}
        for name, epsilon in EPSILONS.items()
    ]
    spec = Spec.parse(
        {
            "name": "small",
            "groups": groups,
            "delta": 0.01,
            "rounds": ROUNDS,
            "cohort": COHORT,
            "sampling": "poisson",
            "clipping_norm": 1e3,
            "local": {
                "steps": STEPS,
                "batch_size": 100,
                "learning_rate": RATE,
                "learning_rate_decay": DECAY,
                "momentum": MOMENTUM,
            },
            "model": {"name": "mlp-digits", "parameters": 2410},
        }
    )
    planned = [
        GroupPlan(
            name=group.name,
            clients=CLIENTS,
            epsilon=group.epsilon,
            delta=0.01,
            sampling_ratio=0.5,
            expected_cohort=CLIENTS / 2,
            noise_multiplier=1e-15,
            kept_fraction=1.0,
            weight=weight,
        )
        for group, weight in zip(spec.groups, WEIGHTS, strict=True)
    ]
    return Plan(
        spec=spec,
        release=release,
        groups=tuple(planned),
        objective=ObjectiveValue(name="given", value=0.0),
        bound={},
        mean_noise_std=0.0,
        status="given",
        certificate=(),
    )


@cache
def digits():
    """The data, read once."""
    return load("digits")


def setting(algorithm, seed=8):
    """A run of an algorithm in this world."""
    clients = partition(
        scheme("iid"), digits().train_y.numpy(), algorithm.plan.groups, seed=seed
    )
    return Experiment(
        algorithm,
        model(algorithm.plan.spec.model.name),
        digits(),
        clients,
        seed,
        torch.device("cpu"),
    )


def moved(algorithm):
    """How far the engine moves the global model in all rounds [d]."""
    return played(algorithm).theta - setting(algorithm).start


def played(algorithm):
    """Where the engine stands after all rounds."""
    world = setting(algorithm)
    state = initial_state(world)
    ledger = MemoryLedger("")
    while state.round < ROUNDS:
        state = run_round(world, state, ledger)
    return state


def loop(world, round_, theta, client, cohort=None):
    """Updates of a round's participants, by group, each trained alone with torch.nn.

    The participants are those that the engine draws, unless their numbers are given.
    """
    if cohort is None:
        cohort = participants(world, round_)
    updates_by_group = []
    for numbers in cohort:
        updates = [
            _update(world, round_, theta, int(number), client) for number in numbers
        ]
        updates_by_group.append(updates)
    return updates_by_group


def plain_client(network, batches, rate):
    """Plain SGD."""
    optimiser = sgd(network, rate)
    for images, labels in batches:
        optimiser.zero_grad()
        loss(network, images, labels).backward()
        optimiser.step()


def sam(network, batches, rate, rho):
    """SAM on what is not frozen: go up, take the gradient there, come back, step."""
    free = [weight for weight in network.parameters() if weight.requires_grad]
    optimiser = torch.optim.SGD(free, rate, MOMENTUM)
    for images, labels in batches:
        slopes = torch.autograd.grad(loss(network, images, labels), free)
        scale = rho / torch.cat([slope.flatten() for slope in slopes]).norm()
        with torch.no_grad():
            for weight, slope in zip(free, slopes, strict=True):
                weight.add_(scale * slope)
        optimiser.zero_grad()
        loss(network, images, labels).backward()
        with torch.no_grad():
            for weight, slope in zip(free, slopes, strict=True):
                weight.sub_(scale * slope)
        optimiser.step()


def mini_batches(world, round_, number):
    """A client's mini-batches of a round, without padding."""
    local = world.local
    x, y = batches(
        world.data,
        world.partition,
        np.array([number]),
        seed=world.seed,
        round_=round_,
        steps=local.steps,
        size=local.batch_size,
        device=world.device,
    )
    return [
        (images[rows != PADDING], rows[rows != PADDING])
        for images, rows in zip(x[0], y[0], strict=True)
    ]


def network_at(world, theta):
    """The model as a module with these parameters, of which it takes a copy."""
    network = world.model.module()
    nn.utils.vector_to_parameters(theta.clone(), network.parameters())
    return network


def _update(world, round_, theta, number, client):
    network = network_at(world, theta)
    client_batches = mini_batches(world, round_, number)
    with one_core():
        client(network, client_batches, world.learning_rate(round_))
    return flat(network) - theta


def flat(network):
    """The parameters of a network as one vector [d], without their history."""
    return nn.utils.parameters_to_vector(network.parameters()).detach()


def loss(network, images, labels):
    """Mean cross-entropy."""
    return nn.functional.cross_entropy(network(images), labels)


def sgd(network, rate):
    """PyTorch's optimiser with this world's momentum."""
    return torch.optim.SGD(network.parameters(), lr=rate, momentum=MOMENTUM)


def averaged(world, client):
    """How far the mean over the expected cohort moves the model in all rounds [d]."""
    theta = begin = world.start
    for round_ in range(1, ROUNDS + 1):
        updates_by_group = loop(world, round_, theta, client)
        updates = list(itertools.chain.from_iterable(updates_by_group))
        theta = theta + torch.stack(updates).sum(0) / COHORT
    return theta - begin


def averaged_with_own(world, client, theta):
    """As ``averaged``, from a vector: the last one, and what each client keeps."""
    personal: dict[int, Tensor] = {}
    for round_ in range(1, ROUNDS + 1):
        total = torch.zeros_like(theta)
        rate = world.learning_rate(round_)
        for number in map(int, np.concatenate(participants(world, round_))):
            with one_core():
                client_batches = mini_batches(world, round_, number)
                update, personal[number] = client(
                    theta, personal.get(number), client_batches, rate
                )
            total += update
        theta = theta + total / COHORT
    return theta, personal
