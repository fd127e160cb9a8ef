"""Grouping by a plan's objective, against brute force and the planner itself."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from privplan.planning.solver import solve
from privplan.spec.grouping import Costs, balance, group_budgets, strengths
from privplan.spec.spec import Spec

COSTS = Costs(noise=24.0, sampling=0.5, bias=0.03, cohort=80, rounds=100)


def test_the_balance_of_one_group_is_the_central_limit() -> None:
    """One group has v = q / sigma with sigma = log(1 + mu^2 / T q^2)^(-1/2) and no bias."""
    found = balance(np.array([0.4]), np.array([800.0]), COSTS)
    scale = 0.1 * np.sqrt(np.log1p((0.4 / 10 / 0.1) ** 2))
    expected = (24 + 0.5 * 800 * scale**2) / (800 * scale) ** 2
    assert found.error == pytest.approx(expected, rel=1e-4)


def test_no_other_cut_is_much_better() -> None:
    epsilons = np.repeat(np.geomspace(0.05, 8, 8), [3, 20, 60, 150, 150, 90, 60, 9])
    deltas = np.full(len(epsilons), 1e-4)
    values, counts = np.unique(epsilons, return_counts=True)
    mu = strengths(values, 1e-4)

    def error(cuts: tuple[int, ...]) -> float:
        starts = [0, *cuts]
        sizes = np.add.reduceat(counts, starts).astype(float)
        return balance(mu[starts], sizes, COSTS).error

    best = min(error(cuts) for cuts in itertools.combinations(range(1, 8), 2))
    found = group_budgets(epsilons, deltas, 3, COSTS)
    reached = error(tuple(int(np.searchsorted(values, e)) for e in found.epsilons[1:]))
    assert reached <= best * 1.02
    assert found.precision < 1


def _lognormal(tmp_path: Path, clients: int) -> Path:
    values = np.clip(np.exp(np.random.default_rng(0).normal(0, 1, clients)), 0.05, 20)
    lines = ["client,epsilon", *(f"{i},{value:.6g}" for i, value in enumerate(values))]
    path = tmp_path / "budgets.csv"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.slow
def test_log_normal_budgets_are_cut_where_the_plan_gains(tmp_path: Path) -> None:
    """Thirds, and the cuts that retain most of the precision, both cost more than 10%."""
    source = _lognormal(tmp_path, 10_000)
    model = {"name": "cnn-2", "parameters": 28938}
    base = {"name": "many", "rounds": 100, "cohort": 1000, "model": model}
    spec = Spec.parse({**base, "groups_from": str(source)})
    plan = solve(spec)
    epsilons = np.sort(np.loadtxt(source, delimiter=",", skiprows=1, usecols=1))
    others = [group_budgets(epsilons, np.full(10_000, 1e-5), 3).clients, (3_334, 3_333, 3_333)]
    for sizes in others:
        starts = np.cumsum([0, *sizes[:-1]])
        groups = [
            {"name": f"g{i}", "clients": int(n), "epsilon": float(epsilons[at]), "delta": delta}
            for i, (n, at, delta) in enumerate(
                zip(sizes, starts, [group.delta for group in plan.groups], strict=True)
            )
        ]
        assert solve(Spec.parse({**base, "groups": groups})).objective.value > (
            1.1 * plan.objective.value
        )
