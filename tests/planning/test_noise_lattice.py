"""Noise curves interpolated between lattice budgets: against calibration, solve and promises."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privplan.accounting.pld import accountant as direction
from privplan.accounting.pld import accountant as pld_accountant
from privplan.accounting.release import Relation, SamplingLaw
from privplan.errors import InfeasibleError
from privplan.planning import noise as budget_nodes
from privplan.planning import noise as noise_lattice
from privplan.planning.noise import (
    AXES,
    Budget,
    interpolating,
    lattice_around,
    node,
    predicted,
    shared_axes,
)
from privplan.planning.solver import solve
from privplan.planning.sweep import (
    Question,
    axes_of,
    evenly,
    parse_vary,
    points,
    solve_point,
    sweep,
    with_point,
)
from privplan.spec.spec import Spec
from tests.planning.problems import calibrated, spec_data

POISSON = (SamplingLaw("poisson"), Relation("add_remove"))
BUDGETS = [
    (Budget(0.55, 6.98e-5, 50, *POISSON), ("epsilon",), 0.021),
    (Budget(3.3, 2e-6, 173, *POISSON), ("rounds",), 0.3),
    (Budget(1.2, 3.3e-4, 20, SamplingLaw("fixed_size"), Relation("replace_one")), ("delta",), 0.05),
    (Budget(0.9, 3.3e-7, 37, *POISSON), ("epsilon", "rounds"), 0.3),
]
SPENT = {"planning": {"accountant": "pld", "ratios": "balanced"}}


@pytest.mark.parametrize(("budget", "axes", "ratio"), BUDGETS)
def test_predicted_noise_is_calibrated(budget: Budget, axes: tuple[str, ...], ratio: float) -> None:
    """Log sigma is within 1e-4 of a calibration, from a start some percent off."""
    near = 1.02 * calibrated(budget, ratio)
    with interpolating(axes):
        found = predicted(budget, ratio, near, 1.5)
    assert found == pytest.approx(math.log(calibrated(budget, ratio)), abs=1e-4)
    assert predicted(budget, ratio, near, 1.5) == found
    assert predicted(budget, 1.0, near, 1.5) is None


@pytest.mark.parametrize(("budget", "axes", "ratio"), BUDGETS)
def test_interpolated_nodes_are_calibrated(
    budget: Budget, axes: tuple[str, ...], ratio: float
) -> None:
    """Between lattice budgets nodes are within 3e-4 of a calibration."""
    index = round(-math.log(ratio) / budget_nodes.STEP)
    with interpolating(axes):
        found = node(budget, index, True).log_noise
    expected = calibrated(budget, math.exp(-budget_nodes.STEP * index))
    assert found == pytest.approx(math.log(expected), abs=3e-4)


@given(
    st.floats(1e-3, 1e3),
    st.floats(1e-12, 0.5),
    st.integers(1, 10**6),
    st.sampled_from(AXES),
)
def test_a_budget_lies_between_its_lattice_budgets(
    epsilon: float, delta: float, rounds: int, axis: str
) -> None:
    budget = Budget(epsilon, delta, rounds, *POISSON)
    values = [getattr(one, axis) for one in lattice_around(budget, axis)]
    value = getattr(budget, axis)
    if len(values) == 1:
        assert values == [value]
        return
    assert values == sorted(set(values))
    assert values[0] < value < values[-1]
    if axis != "rounds" or rounds > 8:
        assert values[2] < value < values[3]
    [alone] = {replace(one, **{axis: value}) for one in lattice_around(budget, axis)}
    assert alone == budget


def test_few_budgets_are_not_interpolated() -> None:
    """Few budgets have nodes of their own, a thousand do not; the axis is the one that varies."""

    def over(name: str, values: Any) -> set[Budget]:
        return {replace(BUDGETS[0][0], **{name: value}) for value in values}

    assert shared_axes(over("epsilon", [0.5])) == ()
    assert shared_axes(over("epsilon", np.geomspace(0.1, 2, 12))) == ()
    assert shared_axes(over("epsilon", np.geomspace(0.1, 2, 1000))) == ("epsilon",)
    assert shared_axes(over("rounds", range(10, 400))) == ("rounds",)
    assert shared_axes(over("delta", np.geomspace(1e-6, 1e-4, 500))) == ("delta",)
    grid = {
        replace(one, rounds=rounds)
        for one in over("epsilon", np.geomspace(0.1, 2, 40))
        for rounds in range(10, 400, 10)
    }
    assert shared_axes(grid) == ("epsilon", "rounds")


def test_what_is_not_calibrated_by_losses_is_not_interpolated() -> None:
    vary = [parse_vary("groups.strict.epsilon=0.5:2:500")]
    faulty = [parse_vary("groups.strict.epsilon=-2:-1:500")]
    for data, varies, expected in (
        (spec_data(**SPENT), vary, ("epsilon",)),
        (spec_data(planning={"accountant": "rdp", "ratios": "balanced"}), vary, None),
        (spec_data(planning={"accountant": "pld", "ratios": "uniform"}), vary, None),
        (spec_data(**SPENT), faulty, None),
        (spec_data(**SPENT), vary[:0], None),
    ):
        assert axes_of([with_point(data, point) for point in points(varies)]) == expected


def test_some_of_many_points_lie_evenly() -> None:
    """Both numbers of a grid are seen with most of their values."""
    grid = [(i, j) for i in range(1000) for j in range(1000)]
    some = evenly(grid)
    assert len(some) == 1000
    for place in (0, 1):
        assert len({item[place] for item in some}) > 500
    assert evenly(grid[:7]) == grid[:7]


@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    st.floats(0.2, 3.0),
    st.floats(1.2, 6.0),
    st.integers(5, 300),
    st.integers(20, 200),
    st.sampled_from([("epsilon",), ("rounds",), ("delta",), ()]),
    st.sampled_from(["balanced", "noise"]),
)
def test_plans_of_a_sweep_are_those_of_solve(
    epsilon: float, factor: float, rounds: int, cohort: int, axes: tuple[str, ...], ratios: str
) -> None:
    """The objective is within 2e-4 of an own solve's, and every budget is kept.

    Each of the two calibrations is within 1e-4; where ratios are balanced the objective is flat,
    so the noise differs by more.
    """
    data = spec_data(rounds=rounds, cohort=cohort, planning={"accountant": "pld", "ratios": ratios})
    data["groups"][0]["epsilon"], data["groups"][1]["epsilon"] = epsilon, factor * epsilon
    spec = Spec.parse(data)
    with interpolating(axes):
        shared = solve(spec, second_opinion=False)
    alone = solve(spec, second_opinion=False)
    assert shared.objective.value == pytest.approx(alone.objective.value, rel=2e-4)
    assert shared.noise_std == pytest.approx(alone.noise_std, rel=1e-3)
    for row in shared.certificate:
        assert not row.guarantee or row.epsilon_upper <= shared.group(row.group).epsilon


def test_interpolated_sweeps_do_not_depend_on_what_is_known() -> None:
    """A point is equal bit for bit, alone with empty caches and after others."""
    data = spec_data(**SPENT)
    asked = [{"groups.strict.epsilon": value} for value in (0.8, 0.81, 0.9)]
    rows = [solve_point(Question(data, point, ("epsilon",))) for point in asked]
    caches: list[Any] = [budget_nodes.own_node, pld_accountant._bounds, direction.reading_at_delta]
    for cached in (*caches, noise_lattice._between, noise_lattice._around):
        cached.cache_clear()
    assert solve_point(Question(data, asked[1], ("epsilon",))) == rows[1]


def test_a_point_that_no_lattice_covers_has_its_own_nodes() -> None:
    """A large failure probability is not interpolated; the plan is that of its own nodes."""
    budget = Budget(0.9, 0.2, 37, *POISSON)
    assert lattice_around(budget, "delta") == (budget,)
    data = spec_data(**SPENT, delta=0.2, rounds=300)
    with interpolating(("delta",)):
        shared = solve(Spec.parse(data), second_opinion=False)
    alone = solve(Spec.parse(data), second_opinion=False)
    assert shared.objective.value == pytest.approx(alone.objective.value, rel=1e-4)


def test_budgets_that_cannot_be_met_are_refused_alike() -> None:
    data = spec_data(**SPENT)
    data["groups"][0]["epsilon"], data["delta"] = 1e-20, 1e-12
    said = []
    for axes in (("epsilon",), None):
        with interpolating(axes), pytest.raises(InfeasibleError) as caught:
            solve(Spec.parse(data), second_opinion=False)
        said.append(str(caught.value).partition(";")[0])
    assert said[0] == said[1]


@pytest.mark.slow
def test_a_thousand_points_keep_their_budgets() -> None:
    """Every guarantee of a sweep is within 2e-4 below its budget, never above."""
    rows = sweep(spec_data(**SPENT), [parse_vary("groups.strict.epsilon=0.2:3.5:300")])
    assert len(rows) == 600
    assert all(row["epsilon_upper"] <= row["epsilon"] for row in rows)
    assert sum(row["epsilon_upper"] >= row["epsilon"] * (1 - 2e-4) for row in rows) >= 300
