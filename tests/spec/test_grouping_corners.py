"""Budgets of several deltas into groups, against every partition and against one delta."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from privplan.accounting.gdp import mu_of
from privplan.spec.grouping import Costs, balance, group_budgets, groupings, strengths

Floats = NDArray[np.float64]
COSTS = Costs(noise=24.0, sampling=0.5, bias=0.03, cohort=100, rounds=100)


def _partitions(items: int, groups: int) -> Iterator[list[list[int]]]:
    for labels in itertools.product(range(groups), repeat=items - 1):
        found: list[list[int]] = [[0]] + [[] for _ in range(groups - 1)]
        for item, label in enumerate(labels, start=1):
            found[label].append(item)
        yield [group for group in found if group]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("groups", [2, 3])
def test_hardly_any_partition_of_few_clients_keeps_more(seed: int, groups: int) -> None:
    generator = np.random.default_rng(seed)
    epsilons, deltas = np.exp(generator.normal(0, 1, 7)), 10.0 ** generator.integers(-9, -2, 7)

    def kept(group: tuple[int, ...]) -> float:
        return len(group) * mu_of(epsilons[list(group)].min(), deltas[list(group)].min())

    values = {
        group: kept(group)
        for size in range(1, 8)
        for group in itertools.combinations(range(7), size)
    }
    best = max(sum(values[tuple(group)] for group in one) for one in _partitions(7, groups))
    own = sum(values[(client,)] for client in range(7))
    found = group_budgets(epsilons, deltas, groups)
    assert best / own * (1 - 0.003) <= found.precision <= best / own * (1 + 1e-9)


def test_a_delta_that_hardly_differs_changes_hardly_anything() -> None:
    """One delta is solved exactly, so the local search is measured against it."""
    epsilons = np.exp(np.random.default_rng(3).normal(0.2, 0.9, 800))
    one, nearly = np.full(800, 1e-5), np.full(800, 1e-5)
    nearly[7] *= 1.0001
    pairs = zip(
        groupings(epsilons, one, 6, costs=COSTS),
        groupings(epsilons, nearly, 6, costs=COSTS),
        strict=True,
    )
    for exact, found in pairs:
        assert 0.99 * exact.precision <= found.precision <= 1.001 * exact.precision


def test_the_strictest_may_share_a_delta_that_others_do_not() -> None:
    """Whether all of one delta or the strictest of both are merged: no cut by hand is better."""
    generator = np.random.default_rng(5)
    epsilons = np.exp(generator.normal(0.2, 0.7, 400))
    deltas = np.where(generator.random(400) < 0.5, 1e-7, 1e-3)
    found = group_budgets(epsilons, deltas, 3, COSTS)
    error = balance(found.strengths, np.array(found.clients, float), COSTS).error
    order = np.argsort(epsilons)
    for share in range(40, 320, 20):
        strict, rest = order[:share], order[share:]
        cut = [strict, rest[deltas[rest] == 1e-7], rest[deltas[rest] == 1e-3]]
        mu = np.array([mu_of(epsilons[one].min(), deltas[one].min()) for one in cut])
        assert error <= balance(mu, np.array([len(one) for one in cut], float), COSTS).error


def test_many_deltas_are_interpolated() -> None:
    generator = np.random.default_rng(2)
    epsilons = np.exp(generator.normal(0, 1, 6000))
    deltas = 10 ** generator.uniform(-9, -3, 6000)
    found = strengths(epsilons, deltas)
    for at in range(0, 6000, 500):
        assert found[at] == pytest.approx(mu_of(epsilons[at], deltas[at]), rel=3e-4)
