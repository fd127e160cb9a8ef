"""References and mutations of methods that protect records: DP-SGD, its noise, and the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from privplan.plan import Plan
from privplan.planning.baselines import by_record
from privplan.planning.records import solve_records
from privplan.spec.spec import Spec
from privplan.streams import Purpose, stream
from simulate.aggregators import as_planned, by_noise, by_norm, client_mean
from simulate.algorithm import Algorithm
from simulate.components import Released
from simulate.engine.cohort import client_updates
from simulate.engine.experiment import Experiment
from simulate.local.dp_sgd import dp_sgd
from tests.simulate import small
from tests.simulate.algorithms.record_runs import context_of
from tests.simulate.algorithms.references.sums import Mutation, slower
from tests.simulate.algorithms.test_record_weights import common_signal, released
from tests.simulate.case import Case

NORM, RECORDS, RATE = 0.5, 20, 0.2
HOLDINGS = {"strict": 20, "medium": 30, "loose": 25}


def spec() -> Spec:
    """Clients of three budgets, who take one noisy step on all their records."""
    return Spec.parse({
        "name": "small records",
        "unit": "record",
        "groups": [
            {"name": name, "clients": small.CLIENTS, "epsilon": epsilon,
             "records": HOLDINGS[name], "batch_size": HOLDINGS[name]}
            for name, epsilon in small.EPSILONS.items()
        ],
        "delta": 0.01,
        "rounds": 2,
        "clipping_norm": NORM,
        "local": {"learning_rate": RATE, "momentum": 0.0, "batch_size": RECORDS},
        "model": {"name": "mlp-digits", "parameters": 2410},
    })  # fmt: skip


@cache
def solved() -> Plan:
    """The plan of the spec, with each group's own noise."""
    return solve_records(spec())


@cache
def plan(weights: str, strict: bool = False) -> Plan:
    """The plan of a method, by its weights."""
    return by_record(solved(), {}, weights=weights, strict=strict)


def clipped(world: Experiment, theta: Tensor, client: int, norm: float = NORM) -> Tensor:
    """Sum over a client's records of the clipped gradient of each [d]."""
    records = world.partition.records(client)
    x, y = world.data.inputs(world.data.train_x[records]), world.data.train_y[records]
    network, total = small.network_at(world, theta), torch.zeros_like(theta)
    for index in range(len(y)):
        loss = nn.functional.cross_entropy(network(x[index, None]), y[index, None])
        parts = torch.autograd.grad(loss, [*network.parameters()])
        slope = torch.cat([part.flatten() for part in parts])
        total += slope * min(1.0, norm / float(slope.norm()))
    return total


def check_step(algorithm: Algorithm) -> None:
    """A client's update is a step by its clipped records and the noise of its stream."""
    world = small.setting(algorithm)
    sent, _ = client_updates(world, context_of(world))
    for update in (sent[0], sent[-1]):
        total = clipped(world, world.start, update.client)
        z = expected_noise(algorithm)[update.group.name]
        drawn = stream(world.seed, Purpose.RECORD_NOISE, 1, update.client).standard_normal(
            world.dimension
        )
        noisy = total + torch.from_numpy(z * NORM * drawn).float()
        expected = -RATE * noisy / HOLDINGS[update.group.name]
        torch.testing.assert_close(update.vector, expected, rtol=1e-3, atol=1e-5)


def expected_noise(algorithm: Algorithm) -> dict[str, float]:
    """Noise multipliers by group: each group's own, or the strictest's for minimum-epsilon."""
    own = {group.name: group.noise_multiplier for group in solved().groups}
    if algorithm.name == "minimum-epsilon":
        return dict.fromkeys(own, max(own.values()))
    return own


def check_weights(wanted: Callable[[Tensor, Plan], Tensor]) -> Callable[[Algorithm], None]:
    """The server's mean of synthetic updates of the groups in turn."""

    def check(algorithm: Algorithm) -> None:
        check_step(algorithm)
        updates, _ = common_signal(30, 1.0)
        sent, names = [], list(HOLDINGS)
        for index, row in enumerate(updates.float()):
            group = algorithm.plan.group(names[index % 3])
            record = released([1.0], 1.0).record
            weight = algorithm.aggregator.weight(group, algorithm.plan)
            share = record.shares[0].model_copy(update={"weight": weight})
            record = record.model_copy(update={"shares": (share,)})
            sent.append(Released(row, record, (group,), index))
        step, _ = algorithm.aggregator.combine(sent, torch.zeros(4000), {})
        counts = wanted(updates, algorithm.plan).double()
        expected = (counts / counts.sum()) @ updates
        torch.testing.assert_close(step.double(), expected, rtol=1e-3, atol=1e-4)

    return check


def by_group(values: dict[str, float]) -> Tensor:
    """A value per update, whose groups come in turn."""
    return torch.tensor([values[name] for name in HOLDINGS] * 10)


def of_records(updates: Tensor, plan: Plan) -> Tensor:
    """By the records of a client."""
    return by_group({name: float(count) for name, count in HOLDINGS.items()})


def of_budgets(updates: Tensor, plan: Plan) -> Tensor:
    """By epsilon."""
    return by_group(dict(small.EPSILONS))


def of_variances(updates: Tensor, plan: Plan) -> Tensor:
    """By the inverse of the noise variance of a client's update: (z / b)^2 times constants."""
    return by_group({g.name: (HOLDINGS[g.name] / g.noise_multiplier) ** 2 for g in plan.groups})


def of_low_rank(updates: Tensor, plan: Plan) -> Tensor:
    """By what a low-rank part leaves, from a singular value decomposition instead of a pursuit."""
    left, values, right = torch.linalg.svd(updates, full_matrices=False)
    rest = updates - (left[:, :2] * values[:2]) @ right[:2]
    return 1 / rest.square().sum(1)


def aggregated(name: str, weights: Callable[..., Tensor]) -> Mutation:
    """The algorithm with other weights at the server."""
    return lambda one: replace(one, aggregator=client_mean(name, weights))


def half_noise(one: Algorithm) -> Algorithm:
    """Clients add half of the planned noise."""
    groups = [
        group.model_copy(update={"noise_multiplier": group.noise_multiplier / 2})
        for group in one.plan.groups
    ]
    return replace(one, plan=one.plan.model_copy(update={"groups": tuple(groups)}))


def root(updates: Tensor, releases: object) -> Tensor:
    """1 / sigma instead of 1 / sigma^2."""
    return by_noise(2000)(updates, []).sqrt()


DP_SGD: dict[str, Mutation] = {
    "records clipped at twice the norm": lambda one: replace(one, local=dp_sgd(2 * NORM)),
    "half of the noise": half_noise,
    "half of the learning rate": slower,
    "equal weights": aggregated("equal", lambda updates, releases: torch.ones(len(updates))),
}
INVERSE = aggregated("inverse", lambda updates, releases: 1 / as_planned(updates, releases))

CASES = (
    Case(
        "DPFedAvg",
        plan("population"),
        check_weights(of_records),
        {**DP_SGD, "inverse weights": INVERSE},
    ),
    Case(
        "minimum-epsilon",
        plan("population", strict=True),
        check_weights(of_records),
        {
            **DP_SGD,
            "each client's own budget": lambda one: replace(one, plan=plan("population")),
        },
    ),
    Case("WeiAvg", plan("epsilon"), check_weights(of_budgets), {**DP_SGD, "inverse": INVERSE}),
    Case(
        "Robust-HDP-oracle",
        plan("inverse_variance"),
        check_weights(of_variances),
        {
            **DP_SGD,
            "inverse weights": INVERSE,
            "1 / sigma": aggregated("root", lambda u, releases: as_planned(u, releases).sqrt()),
        },
    ),
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
)


def check_estimates(algorithm: Algorithm) -> None:
    """Weights near those of the true noise where the common signal is strong, to 3% of variance."""
    check_step(algorithm)
    updates, variances = common_signal(60, 1.0)
    group = algorithm.plan.groups[0]
    record = released([1.0], 1.0).record
    basis = torch.eye(60)  # each update's own coordinate shows its weight
    sent = [
        Released(torch.cat([row.float(), 1e-3 * one]), record, (group,), index)
        for index, (row, one) in enumerate(zip(updates, basis, strict=True))
    ]
    step, _ = algorithm.aggregator.combine(sent, torch.zeros(4060), {})
    found = step[4000:].double().numpy()
    found, oracle = found / found.sum(), (1 / variances) / np.sum(1 / variances)
    least = np.sum(oracle**2 * variances)
    assert np.sum(found**2 * variances) / least - 1 < 0.03


ESTIMATED = Case(
    "Robust-HDP",
    plan("inverse_variance"),
    check_estimates,
    {
        **DP_SGD,
        "raw norms": aggregated("norms", by_norm),
        "1 / sigma": aggregated("root", root),
        "inverse weights": aggregated("inverse", lambda u, releases: 1 / by_noise(2000)(u, [])),
    },
)
CASES = (*CASES, ESTIMATED)
