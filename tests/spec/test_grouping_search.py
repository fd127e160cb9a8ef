"""Groups where no formula says what a client adds: compared by the error of their plans."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privplan.planning.solver import solve
from privplan.spec.spec import Spec

SIX = (0.3, 0.5, 0.9, 2.0, 5.0, 9.0)
SPEC = {
    "name": "x",
    "delta": 1e-3,
    "rounds": 50,
    "cohort": 4,
    "clipping_norm": 1.0,
    "recipe": {"source": "none"},
    "model": {"name": "m", "parameters": 1000},
}


def _table(path: Path, budgets: Any) -> str:
    lines = ["client,epsilon", *(f"c{i},{float(one)!r}" for i, one in enumerate(budgets))]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def _by_hand(data: dict[str, Any], budgets: Any, cuts: tuple[int, ...]) -> float:
    ends = [0, *cuts, len(budgets)]
    groups = [
        {"name": f"g{a}", "clients": b - a, "epsilon": float(budgets[a])}
        for a, b in itertools.pairwise(ends)
    ]
    return solve(Spec.parse({**data, "groups": groups})).objective.value


@pytest.mark.parametrize(
    ("planning", "groups", "changes"),
    [
        ({"ratios": "noise", "weights": "participation"}, 2, {}),
        ({"weights": "uniform"}, 2, {}),
        ({"release": "per_group"}, 3, {"sampling": "full", "cohort": 6}),
    ],
)
def test_no_cut_of_six_clients_has_a_smaller_error(
    planning: dict[str, Any], groups: int, changes: dict[str, Any], tmp_path: Path
) -> None:
    data = {**SPEC, **changes, "planning": planning}
    source = _table(tmp_path / "six.csv", SIX)
    own = {**data, "groups_from": source, "planning": {**planning, "group_count": groups}}
    spec = Spec.parse(own)
    assert len(spec.groups) == groups
    best = min(_by_hand(data, SIX, c) for c in itertools.combinations(range(1, 6), groups - 1))
    assert solve(spec).objective.value <= best * (1 + 2e-3)
    assert 0 < (spec.groups_precision or 0) <= 1


def test_many_clients_are_cut_as_well_as_at_eighths(tmp_path: Path) -> None:
    budgets = np.sort(np.exp(np.random.default_rng(11).normal(0.2, 0.7, 1000)))
    data = {**SPEC, "delta": 1e-5, "cohort": 100, "planning": {"release": "per_group"}}
    source = _table(tmp_path / "many.csv", budgets)
    own = {**data, "groups_from": source, "planning": {**data["planning"], "group_count": 2}}
    best = min(_by_hand(data, budgets, (cut,)) for cut in range(125, 1000, 125))
    assert solve(Spec.parse(own)).objective.value <= best * 1.005


@pytest.mark.slow
def test_free_groups_are_as_many_as_cost_least(tmp_path: Path) -> None:
    """With one release per group each adds noise, so that more groups are not better."""
    budgets = np.sort(np.exp(np.random.default_rng(1).normal(0.2, 0.7, 300)))
    data = {**SPEC, "delta": 1e-4, "cohort": 30}
    source = _table(tmp_path / "many.csv", budgets)
    planning = {"release": "per_group", "free": ["ratios", "weights", "groups"]}
    free = Spec.parse({**data, "groups_from": source, "planning": planning})
    assert not [line for line in free.warnings() if line.startswith("groups_from")]
    least = solve(free).objective.value
    for number in (len(free.groups) + 1, 12):
        given = {"release": "per_group", "group_count": number}
        other = solve(Spec.parse({**data, "groups_from": source, "planning": given}))
        assert least <= other.objective.value * 1.01
