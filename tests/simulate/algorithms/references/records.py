"""Methods that protect records: DP-SGD, its noise and weights; CENTAUR and PPSGD."""

from dataclasses import replace
from functools import cache

import numpy as np
import torch
from numpy.random import default_rng
from torch import nn
from torch.testing import assert_close

from privplan.planning.baselines import by_record
from privplan.planning.records import solve_records
from privplan.spec.spec import Spec
from privplan.streams import Purpose, private_seed, stream
from simulate.algorithms.registry import algorithm
from simulate.client_aggregators import as_planned, by_noise, by_norm, client_mean
from simulate.components import Received
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load
from simulate.engine.cohort import client_updates
from simulate.engine.experiment import Experiment
from simulate.engine.round import RoundContext, released_coordinates
from simulate.local.dp_sgd import dp_sgd, head_then_body, noisy_sum
from simulate.models.registry import model
from simulate.splits import additive, head
from tests.simulate import small, tiny
from tests.simulate.algorithms.references.personal import ALPHA, BODY, HEAD_RATE
from tests.simulate.case import Case, Mutation, after, having, slower


def run_of(name, plan):
    """A run of a method that protects records, on the digits."""
    data = load("digits")
    records = partition(
        scheme("iid"), data.train_y.numpy(), plan.groups, 3, data.train_people
    )
    built = algorithm(name, plan, records={group.name: 4 for group in plan.groups})
    network = model(plan.spec.model.name)
    return Experiment(built, network, data, records, 3, torch.device("cpu"))


def context_of(run):
    return RoundContext(1, run.start, {}, None, {})


def released(vector, epsilon):
    group = tiny.plan().groups[0].model_copy(update={"epsilon": epsilon})
    return Received(1, torch.tensor(vector), (group,), epsilon, 0)


def common_signal(clients, strength, seed=4):
    """Updates [clients, 4000] with a common signal of rank 2, and noise variances."""
    draw = default_rng(seed)
    std = draw.permutation(np.geomspace(0.3, 3, clients))
    shares = 1 + 0.3 * draw.normal(size=(clients, 2))
    updates = strength * shares @ draw.normal(size=(2, 4000))
    updates += draw.normal(size=(clients, 4000)) * std[:, None]
    return torch.from_numpy(updates), std**2


NORM = 0.5
RECORDS = 20
RATE = 0.2
HOLDINGS = {"strict": 20, "medium": 30, "loose": 25}


def spec():
    """Clients of three budgets, who take one noisy step on all their records."""
    groups = [
        {
            "name": name,
            "clients": small.CLIENTS,
            "epsilon": epsilon,
            "records": HOLDINGS[name],
            "batch_size": HOLDINGS[name],
        }
        for name, epsilon in small.EPSILONS.items()
    ]
    data = {
        "name": "small records",
        "unit": "record",
        "groups": groups,
        "delta": 0.01,
        "rounds": 2,
        "clipping_norm": NORM,
        "local": {"learning_rate": RATE, "momentum": 0.0, "batch_size": RECORDS},
        "model": {"name": "mlp-digits", "parameters": 2410},
    }
    return Spec.parse(data)


@cache
def solved():
    """The plan of the spec, with each group's own noise."""
    return solve_records(spec())


@cache
def plan(weights, strict=False):
    """The plan of a method, by its weights."""
    return by_record(solved(), {}, weights=weights, strict=strict)


def clipped(world, theta, client, norm=NORM):
    """Sum over a client's records of the clipped gradient of each [d]."""
    records = world.partition.records(client)
    x = world.data.inputs(world.data.train_x[records])
    y = world.data.train_y[records]
    network = small.network_at(world, theta)
    total = torch.zeros_like(theta)
    for index in range(len(y)):
        loss = nn.functional.cross_entropy(network(x[index, None]), y[index, None])
        slopes = torch.autograd.grad(loss, [*network.parameters()])
        slope = torch.cat([tensor.flatten() for tensor in slopes])
        total += slope * min(1.0, norm / float(slope.norm()))
    return total


def check_step(algorithm):
    """A client's update is a step by its clipped records and its stream's noise."""
    world = small.setting(algorithm)
    sent, _ = client_updates(world, context_of(world))
    for update in (sent[0], sent[-1]):
        total = clipped(world, world.start, update.client)
        std = expected_noise(algorithm)[update.group.name] * NORM
        seed = private_seed(world.seed, algorithm.plan.spec_digest)
        source = stream(seed, Purpose.RECORD_NOISE, 1, update.client)
        drawn = std * source.standard_normal(world.dimension)
        noisy = total + torch.from_numpy(drawn).float()
        expected = -RATE * noisy / HOLDINGS[update.group.name]
        assert_close(update.vector, expected, rtol=1e-3, atol=1e-5)


def expected_noise(algorithm):
    """Noise multipliers by group; for minimum-epsilon the strictest group's for all."""
    multipliers = {group.name: group.noise_multiplier for group in solved().groups}
    if algorithm.name == "minimum-epsilon":
        return dict.fromkeys(multipliers, max(multipliers.values()))
    return multipliers


def check_weights(weights_of):
    """The server's mean of synthetic updates of the groups in turn."""

    def check(algorithm):
        check_step(algorithm)
        updates, _ = common_signal(30, 1.0)
        sent = []
        names = list(HOLDINGS)
        for index, row in enumerate(updates.float()):
            group = algorithm.plan.group(names[index % 3])
            weight = algorithm.aggregator.weight(group, algorithm.plan)
            sent.append(Received(1, row, (group,), weight, index))
        step, _ = algorithm.aggregator.combine(sent, torch.zeros(4000), {})
        counts = weights_of(updates, algorithm.plan).double()
        expected = (counts / counts.sum()) @ updates
        assert_close(step.double(), expected, rtol=1e-3, atol=1e-4)

    return check


def by_group(values):
    """A value per update, whose groups come in turn."""
    return torch.tensor([values[name] for name in HOLDINGS] * 10)


def of_records(updates, plan):
    """By the records of a client."""
    return by_group({name: float(count) for name, count in HOLDINGS.items()})


def of_budgets(updates, plan):
    """By epsilon."""
    return by_group(dict(small.EPSILONS))


def of_variances(updates, plan):
    """By the inverse noise variance of a client's update: (z / b)^2 times constants."""
    weights = {}
    for group in plan.groups:
        weights[group.name] = (HOLDINGS[group.name] / group.noise_multiplier) ** 2
    return by_group(weights)


def aggregated(name, weights):
    """The algorithm with other weights at the server."""
    return having(aggregator=client_mean(name, weights))


def half_noise(algorithm):
    """Clients add half of the planned noise."""
    groups = tuple(
        group.model_copy(update={"noise_multiplier": group.noise_multiplier / 2})
        for group in algorithm.plan.groups
    )
    plan = algorithm.plan.model_copy(update={"groups": groups})
    return replace(algorithm, plan=plan)


def root(updates, releases):
    """1 / sigma instead of 1 / sigma^2."""
    return by_noise(2000)(updates, []).sqrt()


DP_SGD: dict[str, Mutation] = {
    "records clipped at twice the norm": having(local=dp_sgd(2 * NORM)),
    "half of the noise": half_noise,
    "half of the learning rate": slower,
    "equal weights": aggregated(
        "equal", lambda updates, releases: torch.ones(len(updates))
    ),
}
INVERSE = aggregated(
    "inverse", lambda updates, releases: 1 / as_planned(updates, releases)
)

RECORDS_CASES = (
    Case(
        "DPFedAvg",
        plan("population"),
        check_weights(of_records),
        {**DP_SGD, "inverse weights": INVERSE},
    ),
    Case("minimum-epsilon", plan("population", strict=True), check_weights(of_records), {
        **DP_SGD,
        "each client's own budget": having(plan=plan("population")),
    }),
    Case("WeiAvg", plan("epsilon"), check_weights(of_budgets), {**DP_SGD, "inverse": INVERSE}),
    Case("Robust-HDP-oracle", plan("inverse_variance"), check_weights(of_variances), {
        **DP_SGD,
        "inverse weights": INVERSE,
        "1 / sigma": aggregated("root", lambda u, releases: as_planned(u, releases).sqrt()),
    }),
    Case(
        "Robust-HDP-norms",
        plan("inverse_variance"),
        check_weights(lambda updates, plan: 1 / updates.square().sum(1)),
        {
            **DP_SGD,
            "1 / norm": aggregated("root", lambda u, releases: by_norm(u, []).sqrt()),
            "Robust PCA": aggregated("pursuit", by_noise(2000)),
        },
    ),
)  # fmt: skip


def check_estimates(algorithm):
    """Weights near those of the true noise with a strong signal, to 3% of variance."""
    check_step(algorithm)
    updates, variances = common_signal(60, 1.0)
    group = algorithm.plan.groups[0]
    # Each update has a coordinate of its own, which shows its weight.
    marked = torch.cat([updates.float(), 1e-3 * torch.eye(60)], 1)
    sent = [Received(1, row, (group,), 1.0, index) for index, row in enumerate(marked)]
    step, _ = algorithm.aggregator.combine(sent, torch.zeros(4060), {})
    weights = step[4000:].double().numpy()
    weights = weights / weights.sum()
    oracle = (1 / variances) / np.sum(1 / variances)
    variance = np.sum(weights**2 * variances)
    assert variance / np.sum(oracle**2 * variances) - 1 < 0.03


ESTIMATED = Case("Robust-HDP", plan("inverse_variance"), check_estimates, {
    **DP_SGD,
    "raw norms": aggregated("norms", by_norm),
    "1 / sigma": aggregated("root", root),
    "inverse weights": aggregated("inverse", lambda u, releases: 1 / by_noise(2000)(u, [])),
})  # fmt: skip


STEPS = 5
MOMENTUM = 0.5


def _long_spec():
    """Five noisy steps on all records, with momentum."""
    data = spec().model_dump(mode="json")
    data["local"] |= {"epochs": STEPS, "momentum": MOMENTUM}
    return Spec.parse(data)


PLAN = by_record(solve_records(_long_spec()), {}, weights="population")


def noisy_gradient(world, client, group):
    """The mean of a client's clipped gradients with the noise of its next step."""
    seed = private_seed(world.seed, world.algorithm.plan.spec_digest)
    source = stream(seed, Purpose.RECORD_NOISE, 1, client)

    def noisy(theta):
        drawn = source.standard_normal(len(theta)) * group.noise_multiplier * NORM
        noise = torch.from_numpy(drawn).float()
        return (clipped(world, theta, client) + noise) / (group.records or 1)

    return noisy


def check_sent_noise(local, walk, personal, size):
    """What a client says of the noise in what it sent is what noise alone sends."""
    draw = torch.Generator().manual_seed(5)
    drawn = [
        torch.randn(size, generator=draw, dtype=torch.float64) for _ in range(STEPS)
    ]
    steps = iter(drawn)
    theta = torch.zeros(size, dtype=torch.float64)
    nothing = torch.zeros_like(personal).double()
    sent, _ = walk(theta, nothing, lambda point: next(steps))
    speed = torch.zeros_like(theta)
    total = torch.zeros_like(theta)
    for factor, noise in zip(local.sent_noise(STEPS), drawn, strict=True):
        speed = MOMENTUM * speed + noise * (factor != 0)
        total = total + factor * speed
    assert_close(sent, -RATE * total[: len(sent)])


def compare(walk, first_parameters):
    """Compare two clients' first round with a walk by noisy gradients, by a loop."""

    def check(algorithm):
        world = small.setting(algorithm)
        context = RoundContext(1, world.start, {}, released_coordinates(world, 1), {})
        sent, personal = client_updates(world, context)
        assert len(sent) == sum(group.clients for group in algorithm.plan.groups)
        for update in (sent[0], sent[-1]):
            noisy = noisy_gradient(world, update.client, PLAN.group(update.group.name))
            expected = walk(world.start, first_parameters(world.start), noisy)
            assert update.client in personal
            result = (update.vector, personal[update.client])
            assert_close(result, expected, rtol=1e-3, atol=1e-5)
            assert update.noise_evidence.drawn[0] == STEPS * len(update.vector)
        step, _ = algorithm.aggregator.combine((), world.start, {})
        assert not step.any()
        check_sent_noise(
            algorithm.local, walk, first_parameters(world.start), len(world.start)
        )

    return check


def body_after_head(theta, personal, noisy):
    """CENTAUR: two steps of the head, three of the body, each with its own momentum."""
    body = theta[:BODY].clone()
    head_part = personal.clone()
    speed = torch.zeros_like(head_part)
    for _ in range(2):
        speed = MOMENTUM * speed + noisy(torch.cat([body, head_part]))[BODY:]
        head_part = head_part - HEAD_RATE * RATE * speed
    speed = torch.zeros_like(body)
    for _ in range(3):
        speed = MOMENTUM * speed + noisy(torch.cat([body, head_part]))[:BODY]
        body = body - RATE * speed
    return body - theta[:BODY], head_part


def at_the_sum(theta, personal, noisy):
    """PPSGD: both parts step along one noisy gradient at their sum."""
    shared = theta.clone()
    offset = personal.clone()
    speed = torch.zeros_like(theta)
    for _ in range(STEPS):
        speed = MOMENTUM * speed + noisy(shared + offset)
        shared = shared - ALPHA * RATE * speed
        offset = offset - RATE * speed
    return shared - theta, offset


class Silent(np.random.Generator):
    """A generator whose normal draws are zero."""

    def standard_normal(self, size=None, *_, **__):
        return np.zeros(size)


def personal_without_noise(algorithm):
    """What stays at the client was trained without noise."""
    train = algorithm.local.train

    def quiet(client):
        return Silent(default_rng(client).bit_generator)

    def changed(batch):
        without_noise = train(replace(batch, noise=quiet))
        return replace(train(batch), personal=without_noise.personal)

    return replace(algorithm, local=replace(algorithm.local, train=changed))


def reports_noise(factor):
    """The client says that every step sent the noise with the same factor."""

    def changed(algorithm):
        local = replace(algorithm.local, sent_noise=lambda steps: [factor] * steps)
        return replace(algorithm, local=local)

    return changed


def forgotten(batch, result):
    """The client keeps zeros."""
    personal = result.personal
    if personal is not None:
        personal = torch.zeros_like(personal)
    return replace(result, personal=personal)


def head_released(algorithm):
    """Every parameter may leave."""
    split = replace(algorithm.split, shared=lambda model: None)
    return replace(algorithm, split=split)


COMMON: dict[str, Mutation] = {
    "half of the noise": half_noise,
    "half of the learning rate": slower,
    "personal parameters without noise": personal_without_noise,
    "personal parameters forgotten": after(forgotten),
}
CASES = (
    *RECORDS_CASES,
    ESTIMATED,
    Case("CENTAUR", PLAN, compare(body_after_head, lambda theta: theta[BODY:]), {
        **COMMON,
        "clipped at twice the norm": having(local=head_then_body(2 * NORM, head(), HEAD_RATE)),
        "noise of all steps is said to be sent": reports_noise(1.0),
        "one learning rate": having(local=head_then_body(NORM, head(), 1.0)),
        "the head released": head_released,
        "head and body at once": having(local=dp_sgd(NORM)),
    }, {"head_rate": HEAD_RATE}),
    Case("PPSGD", PLAN, compare(at_the_sum, torch.zeros_like), {
        **COMMON,
        "clipped at twice the norm": having(local=noisy_sum(2 * NORM, ALPHA)),
        "noise is said to be sent whole": reports_noise(1.0),
        "equal steps": having(local=noisy_sum(NORM, 1.0)),
        "no offsets": having(
            split=replace(additive(), personal=lambda model, theta: None), local=dp_sgd(NORM)
        ),
    }, {"alpha": ALPHA}),
)  # fmt: skip
